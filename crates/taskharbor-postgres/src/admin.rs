//! [`PostgresDriver`] for people.

use taskharbor_core::{
    Admin, DriverError, JobId, JobType, QueueName, State, Timestamp,
    admin::{Action, Cursor, Inconsistency, List, Manage, Page, Prune, QueueCounts, Requeue},
    driver::Answers,
    error::{Denied, InvalidRequest},
    export::{ExportUnit, Imported},
    flow::{FlowRecord, FlowState, ListFlows},
    job::{JobRecord, JobSummary},
    name::FlowName,
};
use tokio_postgres::Row;

use crate::{
    PostgresDriver,
    answer::{self, get},
    migration::migration,
    record,
    value::Value,
};

impl Admin for PostgresDriver {
    async fn migrate(&self) -> Result<(), DriverError> {
        self.shared.session.batch(&migration(&self.shared.schema)).await?;
        self.shared.check_version().await
    }

    async fn inspect(&self, id: JobId, now: Timestamp) -> Result<Option<JobRecord>, DriverError> {
        let values = [Value::Text(Some(id.as_str()))];
        let rows = self.query(&self.shared.statements.inspect, &values).await?;
        rows.first().map(|row| record::record(row, now.as_micros())).transpose()
    }

    async fn list(&self, request: List) -> Result<Page<JobSummary>, DriverError> {
        self.shared.session.check_open()?;
        request.check()?;
        let filter = &request.filter;
        let values = [
            Value::BigInt(Some(place(request.after.as_ref(), "job")?)),
            Value::BigInt(i64::try_from(request.limit).ok()),
            Value::Text(filter.queue.as_ref().map(QueueName::as_str)),
            Value::Text(filter.job_type.as_ref().map(JobType::as_str)),
            Value::Text(filter.flow.as_ref().map(JobId::as_str)),
            Value::Text(filter.state.map(State::as_str)),
            Value::BigInt(Some(request.now.as_micros())),
        ];
        let rows = self.query(&self.shared.statements.list, &values).await?;
        page(&rows, request.limit, "job", record::summary)
    }

    async fn counts(&self, now: Timestamp) -> Result<Vec<QueueCounts>, DriverError> {
        let values = [Value::BigInt(Some(now.as_micros()))];
        let rows = self.query(&self.shared.statements.counts, &values).await?;
        rows.iter().map(record::counts).collect()
    }

    async fn manage(&self, request: Manage) -> Answers<State, Denied> {
        self.shared.session.check_open()?;
        request.check()?;
        let nothing = Requeue::new();
        let (name, requeue, priority) = match &request.action {
            Action::Requeue(requeue) => ("requeue", requeue, 0),
            Action::Cancel => ("cancel", &nothing, 0),
            Action::RunNow => ("run_now", &nothing, 0),
            Action::SetPriority(priority) => ("set_priority", &nothing, *priority),
            Action::Purge => ("purge", &nothing, 0),
            Action::CancelFlow => ("cancel_flow", &nothing, 0),
            Action::PurgeFlow => ("purge_flow", &nothing, 0),
        };
        let values = [
            Value::Text(Some(name)),
            Value::Texts(request.ids.iter().map(|id| Some(id.as_str())).collect()),
            Value::BigInt(Some(request.now.as_micros())),
            Value::BigInt(requeue.run_at.map(Timestamp::as_micros)),
            Value::Bool(requeue.reset_attempts),
            Value::Bool(requeue.detach),
            Value::BigInt(Some(i64::from(priority))),
            Value::Text(None),
        ];
        let call = self.shared.hints.set_out(Vec::new());
        let rows = self.query(&self.shared.statements.manage, &values).await;
        call.answered(&rows);
        let rows = rows?;
        let mut answers = Vec::with_capacity(request.ids.len());
        for row in &rows {
            match get::<Option<Vec<String>>>(row, 3)? {
                Some(wakes) => self.put_in_line(answer::queues(Some(wakes)), 0),
                None => answers.push(managed(row)?),
            }
        }
        Ok(answers)
    }

    async fn pause(&self, queue: QueueName, now: Timestamp) -> Result<(), DriverError> {
        let values = [Value::Text(Some(queue.as_str())), Value::BigInt(Some(now.as_micros()))];
        self.query(&self.shared.statements.pause, &values).await.map(drop)
    }

    async fn resume(&self, queue: QueueName) -> Result<(), DriverError> {
        let values = [Value::Text(Some(queue.as_str())), Value::Text(None)];
        let call = self.shared.hints.set_out(vec![queue.clone()]);
        let rows = self.query(&self.shared.statements.resume, &values).await;
        call.answered(&rows);
        rows?;
        self.put_in_line(vec![queue], 0);
        Ok(())
    }

    async fn prune(&self, request: Prune) -> Result<usize, DriverError> {
        self.shared.session.check_open()?;
        request.check()?;
        let before = |state| Value::BigInt(request.before(state).map(Timestamp::as_micros));
        let values = [
            before(State::Done),
            before(State::Cancelled),
            before(State::Dlq),
            Value::BigInt(i64::try_from(request.limit).ok()),
        ];
        let rows = self.query(&self.shared.statements.prune, &values).await?;
        rows.first().map_or(Ok(0), |row| answer::number(get(row, 0)?))
    }

    async fn flow(&self, id: JobId, now: Timestamp) -> Result<Option<FlowRecord>, DriverError> {
        let values = [
            Value::BigInt(Some(0)),
            Value::BigInt(Some(1)),
            Value::Text(Some(id.as_str())),
            Value::Text(None),
            Value::Text(None),
            Value::BigInt(Some(now.as_micros())),
        ];
        let rows = self.query(&self.shared.statements.flows, &values).await?;
        rows.first().map(|row| record::flow(row).map(|(_, flow)| flow)).transpose()
    }

    async fn list_flows(&self, request: ListFlows) -> Result<Page<FlowRecord>, DriverError> {
        self.shared.session.check_open()?;
        request.check()?;
        let values = [
            Value::BigInt(Some(place(request.after.as_ref(), "flow")?)),
            Value::BigInt(i64::try_from(request.limit).ok()),
            Value::Text(None),
            Value::Text(request.name.as_ref().map(FlowName::as_str)),
            Value::Text(request.state.map(flow_state).transpose()?),
            Value::BigInt(Some(request.now.as_micros())),
        ];
        let rows = self.query(&self.shared.statements.flows, &values).await?;
        page(&rows, request.limit, "flow", record::flow)
    }

    async fn export(
        &self,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<ExportUnit>, DriverError> {
        self.shared.session.check_open()?;
        self.export_page(after, limit).await
    }

    async fn import(&self, parcels: Vec<ExportUnit>) -> Result<Vec<Imported>, DriverError> {
        self.shared.session.check_open()?;
        self.import_all(parcels).await
    }

    async fn check(&self) -> Result<Vec<Inconsistency>, DriverError> {
        self.shared.check_version().await?;
        let rows = self.shared.session.query_slowly(&self.shared.statements.check, &[]).await?;
        rows.iter().map(|row| Ok(Inconsistency::new(get::<String>(row, 0)?))).collect()
    }
}

fn flow_state(state: FlowState) -> Result<&'static str, DriverError> {
    match state {
        FlowState::Running => Ok("running"),
        FlowState::Held => Ok("held"),
        FlowState::Done => Ok("done"),
        FlowState::Failed => Ok("failed"),
        FlowState::Cancelled => Ok("cancelled"),
        other => Err(answer::unknown("state of flows", &format!("{other:?}"))),
    }
}

fn managed(row: &Row) -> Result<Result<State, Denied>, DriverError> {
    let state = get::<Option<&str>>(row, 0)?.map(answer::state).transpose()?;
    Ok(match (get::<Option<&str>>(row, 1)?, state) {
        (None, Some(state)) => Ok(state),
        (Some("wrong_state"), Some(state)) => Err(Denied::WrongState(state)),
        (Some("not_found"), _) => Err(Denied::JobNotFound),
        (Some("flow_over"), _) => Err(Denied::FlowOver),
        (Some("in_flow"), _) => {
            Err(Denied::InFlow(answer::id(get::<Option<&str>>(row, 2)?.unwrap_or_default())?))
        }
        (other, _) => return Err(answer::unknown("denial", other.unwrap_or_default())),
    })
}

/// The number after which a page starts. Cursors say what they are a place in, so that one list
/// does not take another's.
fn place(after: Option<&Cursor>, of: &str) -> Result<i64, InvalidRequest> {
    let Some(cursor) = after else { return Ok(0) };
    let digits =
        cursor.as_str().strip_prefix(of).filter(|it| it.bytes().all(|it| it.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).ok_or(InvalidRequest::Cursor)
}

fn page<T>(
    rows: &[Row],
    limit: usize,
    of: &str,
    read: impl Fn(&Row) -> Result<(i64, T), DriverError>,
) -> Result<Page<T>, DriverError> {
    let items = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let last = items.last().filter(|_| items.len() == limit).map(|(place, _)| *place);
    let next = last.map(|place| Cursor::new(format!("{of}{place}")));
    Ok(Page::new(items.into_iter().map(|(_, item)| item).collect(), next))
}
