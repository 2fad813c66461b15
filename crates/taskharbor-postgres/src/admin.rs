//! The operations of [`PostgresDriver`] for operators and tools.

use taskharbor_core::{
    Admin, DriverError, JobId, JobType, QueueName, State, Timestamp,
    admin::{
        Action, Configure, Counts, Cursor, Diagnosis, Evict, Evicted, Filter, Inconsistency,
        LaneStatus, List, ListLanes, ListSettings, ListWorkers, Manage, Order, Page, Prune,
        QueueCounts, Requeue, Setting, WorkerRecord,
    },
    driver::Answers,
    error::{Denied, InvalidRequest},
    export::{ExportUnit, ImportRefused, Imported},
    flow::{FlowRecord, FlowState, ListFlows},
    job::{JobRecord, JobSummary},
    name::{FlowName, IdempotencyKey, LaneName},
};
use tokio_postgres::Row;

use crate::{
    PostgresDriver,
    answer::{self, get},
    error,
    held::HeldElsewhere,
    record,
    value::Value,
};

impl Admin for PostgresDriver {
    async fn migrate(&self) -> Result<(), DriverError> {
        // ADM-11
        self.shared.migrate().await
    }

    async fn inspect(&self, id: JobId, now: Timestamp) -> Result<Option<JobRecord>, DriverError> {
        let values = [Value::Text(Some(id.as_str())), Value::BigInt(Some(now.as_micros()))];
        let rows = self.query(&self.shared.statements.inspect, &values).await?;
        rows.first().map(|row| record::record(row, now.as_micros())).transpose()
    }

    async fn list(&self, request: List) -> Result<Page<JobSummary>, DriverError> {
        self.shared.session.check_open()?;
        request.check()?;
        let place = PageStart::of(JOBS, request.order, request.after.as_ref())?;
        if matches_nothing(&request.filter) {
            return Ok(Page::new(Vec::new(), None));
        }
        let values = list_values(&request, place);
        let mut rows = self.query(&self.shared.statements.list, &values).await?;
        // ADM-12: a row without a job is the last record that a short page looked at.
        let is_end = |row: &Row| get::<Option<&str>>(row, "id").is_ok_and(|id| id.is_none());
        let end = rows.pop_if(|row| is_end(row));
        let items = rows.iter().map(record::summary).collect::<Result<Vec<_>, _>>()?;
        let last = match (items.last(), end) {
            (_, Some(end)) => Some((get(&end, "seq")?, answer::time(get(&end, "created_at")?)?)),
            (Some((seq, job)), None) if items.len() == request.limit => {
                Some((*seq, job.created_at))
            }
            _ => None,
        };
        let next = last.map(|(seq, _)| place.at(seq).cursor());
        let page = Page::new(items.into_iter().map(|(_, item)| item).collect(), next);
        Ok(page.looked_at(last.map(|(_, created_at)| created_at)))
    }

    async fn counts(&self, request: Counts) -> Result<Vec<QueueCounts>, DriverError> {
        self.shared.session.check_open()?;
        request.check()?;
        let values = [Value::BigInt(Some(request.now.as_micros()))];
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
        let call = self.shared.wakeups.begin_call(Vec::new());
        let rows = self.query(&self.shared.statements.manage, &values).await;
        call.answered(&rows);
        let rows = rows.map_err(|it| error::held_elsewhere(it, HeldElsewhere::Locked))?;
        let mut answers = Vec::with_capacity(request.ids.len());
        for row in &rows {
            match get::<Option<Vec<String>>>(row, "wakes")? {
                Some(wakes) => self.put_in_line(answer::queues(Some(wakes)), 0),
                None => answers.push(managed(row)?),
            }
        }
        // A process in which people act on jobs mostly lives too short to hear that a caller waits.
        if matches!(request.action, Action::Cancel | Action::CancelFlow) {
            self.shared.wakeups.ended(request.ids.iter(), true);
        }
        Ok(answers)
    }

    async fn configure(&self, request: Configure) -> Answers<(), Denied> {
        self.shared.session.check_open()?;
        self.change_settings(request).await
    }

    async fn settings(&self, request: ListSettings) -> Result<Page<Setting>, DriverError> {
        self.shared.session.check_open()?;
        self.list_settings(request).await
    }

    async fn lanes(&self, request: ListLanes) -> Result<Page<LaneStatus>, DriverError> {
        self.shared.session.check_open()?;
        self.list_lanes(request).await
    }

    async fn workers(&self, request: ListWorkers) -> Result<Page<WorkerRecord>, DriverError> {
        self.shared.session.check_open()?;
        self.list_workers(request).await
    }

    async fn evict(&self, request: Evict) -> Result<Evicted, DriverError> {
        self.shared.session.check_open()?;
        self.evict_worker(request).await
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
            Value::BigInt(Some(request.now.as_micros())),
        ];
        let rows = self.query(&self.shared.statements.prune, &values).await?;
        rows.first().map_or(Ok(0), |row| answer::number(get(row, 0)?))
    }

    async fn flow(&self, id: JobId, now: Timestamp) -> Result<Option<FlowRecord>, DriverError> {
        let values = [
            Value::BigInt(Some(0)),
            Value::Bool(false),
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
        let place = PageStart::of(FLOWS, request.order, request.after.as_ref())?;
        let values = [
            Value::BigInt(Some(place.seq)),
            Value::Bool(place.order == Order::NewestFirst),
            Value::BigInt(i64::try_from(request.limit).ok()),
            Value::Text(None),
            Value::Text(request.name.as_ref().map(FlowName::as_str)),
            Value::Text(request.state.map(flow_state).transpose()?),
            Value::BigInt(Some(request.now.as_micros())),
        ];
        let rows = self.query(&self.shared.statements.flows, &values).await?;
        let items = rows.iter().map(record::flow).collect::<Result<Vec<_>, _>>()?;
        let last = items.last().filter(|_| items.len() == request.limit);
        let next = last.map(|(seq, _)| place.at(*seq).cursor());
        Ok(Page::new(items.into_iter().map(|(_, item)| item).collect(), next))
    }

    async fn export(
        &self,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<ExportUnit>, DriverError> {
        self.shared.session.check_open()?;
        self.export_page(after, limit).await
    }

    async fn import(&self, units: Vec<ExportUnit>) -> Answers<Imported, ImportRefused> {
        self.shared.session.check_open()?;
        self.import_all(units).await
    }

    async fn diagnose(&self) -> Result<Vec<Diagnosis>, DriverError> {
        self.shared.session.check_open()?;
        self.diagnose_server().await
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
        FlowState::Blocked => Ok("blocked"),
        FlowState::Done => Ok("done"),
        FlowState::Failed => Ok("failed"),
        FlowState::Cancelled => Ok("cancelled"),
        other => Err(answer::unknown("state of flows", &format!("{other:?}"))),
    }
}

fn managed(row: &Row) -> Result<Result<State, Denied>, DriverError> {
    let state = get::<Option<&str>>(row, "state")?.map(answer::state).transpose()?;
    Ok(match (get::<Option<&str>>(row, "denied")?, state) {
        (None, Some(state)) => Ok(state),
        (Some("wrong_state"), Some(state)) => Err(Denied::WrongState(state)),
        (Some("not_found"), _) => Err(Denied::JobNotFound),
        (Some("flow_over"), _) => Err(Denied::FlowOver),
        (Some("key_held"), _) => Err(Denied::KeyHeld(answer::id(
            get::<Option<&str>>(row, "detail")?.unwrap_or_default(),
        )?)),
        (Some("in_flow"), _) => Err(Denied::InFlow(answer::id(
            get::<Option<&str>>(row, "detail")?.unwrap_or_default(),
        )?)),
        (other, _) => return Err(answer::unknown("denial", other.unwrap_or_default())),
    })
}

fn list_values(request: &List, place: PageStart) -> Vec<Value<'_>> {
    let filter = &request.filter;
    let number = |number: usize| Value::BigInt(i64::try_from(number).ok());
    let micros = |at: Option<Timestamp>| Value::BigInt(at.map(Timestamp::as_micros));
    let (header, value) =
        filter.header.as_ref().map(|(name, value)| (name.as_str(), value.as_str())).unzip();
    vec![
        Value::BigInt(Some(place.seq)),
        Value::Bool(place.order == Order::NewestFirst),
        number(request.limit),
        number(request.scan),
        Value::Text(filter.queue.as_ref().map(QueueName::as_str)),
        Value::Text(filter.job_type.as_ref().map(JobType::as_str)),
        Value::Text(filter.lane.as_ref().map(LaneName::as_str)),
        Value::Text(filter.flow.as_ref().map(JobId::as_str)),
        Value::Text(filter.state.map(State::as_str)),
        Value::Text(filter.key.as_ref().map(IdempotencyKey::as_str)),
        Value::Text(header),
        Value::Text(value),
        Value::Text(filter.error.as_deref()),
        micros(filter.created.from),
        micros(filter.created.before),
        micros(filter.finished.from),
        micros(filter.finished.before),
        micros(Some(request.now)),
    ]
}

/// Whether a filter asks for a text that no text in a store is or has: PostgreSQL knows no NUL.
fn matches_nothing(filter: &Filter) -> bool {
    let header = filter.header.iter().flat_map(|(name, value)| [name, value]);
    header.chain(&filter.error).any(|text| text.contains('\0'))
}

/// What cursors of the lists begin with: a list takes none of another.
const JOBS: &str = "job";
const FLOWS: &str = "flow";

/// The record after which a page of a list starts.
#[derive(Clone, Copy, Debug)]
struct PageStart {
    list: &'static str,
    order: Order,
    seq: i64,
}

impl PageStart {
    /// Where a page in this order starts. ADM-13.
    fn of(
        list: &'static str,
        order: Order,
        after: Option<&Cursor>,
    ) -> Result<Self, InvalidRequest> {
        let first = match order {
            Order::OldestFirst => 0,
            Order::NewestFirst => i64::MAX,
        };
        let Some(cursor) = after else { return Ok(Self { list, order, seq: first }) };
        let digits = cursor.as_str().strip_prefix(list);
        let digits = digits.and_then(|rest| rest.strip_prefix(Self::sign(order)));
        let digits = digits.filter(|it| it.bytes().all(|it| it.is_ascii_digit()));
        let seq = digits.and_then(|digits| digits.parse().ok()).ok_or(InvalidRequest::Cursor)?;
        Ok(Self { list, order, seq })
    }

    const fn at(self, seq: i64) -> Self {
        Self { seq, ..self }
    }

    fn cursor(self) -> Cursor {
        Cursor::new(format!("{}{}{}", self.list, Self::sign(self.order), self.seq))
    }

    const fn sign(order: Order) -> &'static str {
        match order {
            Order::OldestFirst => "+",
            Order::NewestFirst => "-",
        }
    }
}
