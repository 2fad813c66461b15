//! Announcements and evictions of workers: the parameters that are sent, and the answers.

use std::time::Duration;

use taskharbor_core::{
    Blob, DriverError,
    admin::{Evict, Evicted, ListWorkers, Page, WorkerRecord},
    driver::{Announce, Incarnation},
    name::Holder,
};
use tokio::time::sleep;
use tokio_postgres::Row;

use crate::{
    PostgresDriver,
    answer::{self, get},
    column::place,
    value::Value,
};

/// How often an eviction looks for leases whose jobs other calls have locked, and for how long it pauses
/// between. A lease that an application's open transaction has locked is left after that.
const EVICT_ATTEMPTS: u32 = 5;
const EVICT_PAUSE: Duration = Duration::from_millis(100);

impl PostgresDriver {
    pub(crate) async fn announce_worker(&self, request: Announce) -> Result<(), DriverError> {
        let expires_at = request.check()?;
        let incarnation = request.incarnation.to_string();
        let holder = Value::Text(Some(request.holder.as_str()));
        let incarnation = Value::Text(Some(&incarnation));
        let statements = &self.shared.statements;
        let Some(expires_at) = expires_at else {
            // WRK-3
            return self.query(&statements.withdraw, &[holder, incarnation]).await.map(drop);
        };
        let values = [
            holder,
            incarnation,
            Value::Byteas(vec![Some(&*request.info)]),
            Value::BigInt(Some(request.now.as_micros())),
            Value::BigInt(Some(expires_at.as_micros())),
        ];
        self.query(&statements.announce, &values).await.map(drop)
    }

    pub(crate) async fn list_workers(
        &self,
        request: ListWorkers,
    ) -> Result<Page<WorkerRecord>, DriverError> {
        request.check()?;
        let begin = request.begin()?;
        let begin = begin.map(|(holder, incarnation)| (holder, incarnation.to_string()));
        // No worker stands at or before the pair of empty texts.
        let (holder, incarnation) =
            begin.as_ref().map_or(("", ""), |(holder, incarnation)| (holder.as_str(), incarnation));
        let values = [
            Value::Text(Some(holder)),
            Value::Text(Some(incarnation)),
            // WRK-2
            Value::Bool(request.valid),
            Value::Bool(request.overdue),
            Value::BigInt(Some(request.now.as_micros())),
            // One more tells whether there is a further page.
            Value::BigInt(place(request.limit)),
        ];
        let rows = self.query(&self.shared.statements.workers, &values).await?;
        let workers = rows.iter().take(request.limit).map(record).collect::<Result<Vec<_>, _>>()?;
        let next = workers.last().filter(|_| rows.len() > request.limit).map(WorkerRecord::cursor);
        Ok(Page::new(workers, next))
    }

    pub(crate) async fn evict_worker(&self, request: Evict) -> Result<Evicted, DriverError> {
        let incarnation = request.incarnation.map(|it| it.to_string());
        let values = [
            Value::Text(Some(request.holder.as_str())),
            Value::Text(incarnation.as_deref()),
            Value::BigInt(Some(request.now.as_micros())),
        ];
        let mut leases = 0;
        for attempt in 1..=EVICT_ATTEMPTS {
            let call = self.shared.wakeups.begin_call(Vec::new());
            let rows = self.query(&self.shared.statements.evict, &values).await;
            call.answered(&rows);
            let rows = rows?;
            let Some(row) = rows.first() else { return Err(answer::unknown("answer", "nothing")) };
            if get(row, "is_replaced")? {
                // Another incarnation may have announced itself since an earlier attempt.
                return Ok(if leases == 0 { Evicted::Replaced } else { Evicted::Leases(leases) });
            }
            leases += answer::number::<usize>(get(row, "leases")?)?;
            // EVI-5: the jobs stand where they were, which may be before the start of any scan.
            self.put_in_line(answer::queues(get(row, "wakes")?), 0);
            if get::<i64>(row, "busy")? == 0 {
                break;
            }
            if attempt < EVICT_ATTEMPTS {
                sleep(EVICT_PAUSE).await;
            }
        }
        Ok(Evicted::Leases(leases))
    }
}

fn record(row: &Row) -> Result<WorkerRecord, DriverError> {
    let time = |column| answer::time(get(row, column)?);
    let incarnation = get::<&str>(row, "incarnation")?;
    let incarnation = Incarnation::parse(incarnation)
        .ok_or_else(|| answer::unknown("incarnation", incarnation))?;
    let (seen_at, expires_at) = (time("seen_at")?, time("expires_at")?);
    let announced = Announce::new(
        answer::name(Holder::new(get::<&str>(row, "holder")?))?,
        incarnation,
        Blob::from(get::<&[u8]>(row, "info")?),
        expires_at.since(seen_at),
        seen_at,
    );
    Ok(WorkerRecord::new(announced, time("started_at")?, expires_at))
}
