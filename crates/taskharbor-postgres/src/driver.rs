//! [`PostgresDriver`]: the store for clients and workers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use taskharbor_core::{
    Driver, DriverError, QueueName, State, Timestamp,
    driver::{
        Answers, DriverId, Enqueue, Enqueued, ExtendLeases, Extended, JoinList, Limits,
        OutputEntry, OutputOf, OutputPage, Outputs, Reserve, Reserved, Settle, Settled, Watch,
    },
    error::{Refusal, Rejected},
    job::JobKind,
};
use tokio::time::Instant;
use tokio_postgres::Row;

use crate::{
    SchemaName,
    answer::{self, Verdict, get},
    enqueue::{self, Part},
    error,
    held::HeldCalls,
    record, reserve,
    scan_start::ScanStarts,
    session::Session,
    statement::Statements,
    value::Value,
    wake::{Wakeups, Work},
};

/// How long an enqueue waits for a transaction that has stored the same job or taken the same key and does not end.
const LOCK_WAIT_MS: Option<i64> = Some(1_000);

/// Jobs of a call that took this long may stand before jobs that other drivers were granted.
const LATE_COMMIT: Duration = Duration::from_millis(500);

/// Jobs in a PostgreSQL database. Clones share one pool of connections.
#[derive(Clone, Debug)]
pub struct PostgresDriver {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) session: Session,
    pub(crate) statements: Statements,
    pub(crate) schema: SchemaName,
    pub(crate) channel: String,
    pub(crate) notify_in_transactions: bool,
    pub(crate) limits: Limits,
    pub(crate) wakeups: Wakeups,
    pub(crate) held_calls: HeldCalls,
    pub(crate) scan_starts: Arc<ScanStarts>,
    pub(crate) id: DriverId,
    /// Whether the role may insert into the tables, as far as is known.
    pub(crate) inserts_directly: AtomicBool,
    /// Whether the schema was found to be of our version.
    pub(crate) fits: AtomicBool,
    /// The latest time that the store has told anybody, in microseconds.
    pub(crate) last_told: AtomicI64,
}

impl PostgresDriver {
    /// Runs one statement on a schema that is known to fit.
    pub(crate) async fn query(
        &self,
        sql: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, DriverError> {
        if !self.shared.fits.load(Ordering::Acquire) {
            self.shared.check_version().await?;
        }
        self.shared.session.query(sql, values).await
    }

    pub(crate) async fn verdicts(
        &self,
        sql: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<Verdict>, DriverError> {
        self.query(sql, values).await?.iter().map(Verdict::read).collect()
    }

    /// Stores a part of a call, and tells others so if a channel is given.
    async fn store(
        &self,
        part: &Part<'_>,
        now: Timestamp,
        channel: Option<&str>,
    ) -> Result<Vec<Verdict>, DriverError> {
        let shared = &self.shared;
        let columns = part.columns()?;
        let may_be_short = channel.is_none()
            && shared.session.prepares()
            && shared.inserts_directly.load(Ordering::Relaxed);
        if may_be_short
            && let Some((sql, values)) = part.short_cut(&columns, &shared.statements, now)
        {
            match self.verdicts(sql, &values).await {
                Err(error) if error::is_duplicate(&error) => {}
                // The role of a producer may only call the function.
                Err(error) if error::is_forbidden(&error) => {
                    shared.inserts_directly.store(false, Ordering::Relaxed);
                }
                verdicts => return verdicts,
            }
        }
        let (sql, values) =
            part.statement(&columns, &shared.statements, now, LOCK_WAIT_MS, channel);
        match self.verdicts(sql, &values).await {
            // A server that takes no more wake-ups, because a listener does not take them from it,
            // can store jobs all the same. Workers look for themselves.
            Err(error) if channel.is_some() && error::is_over_limit(&error) => {
                let (sql, values) =
                    part.statement(&columns, &shared.statements, now, LOCK_WAIT_MS, None);
                self.verdicts(sql, &values).await
            }
            verdicts => verdicts,
        }
    }

    /// Jobs became available in these queues, at this time or later; zero for in front of others.
    pub(crate) fn put_in_line(&self, queues: Vec<QueueName>, at: i64) {
        self.shared.scan_starts.lower(&queues, at);
        let work = queues.into_iter().map(|queue| Work::new(queue).in_front(at == 0));
        self.shared.wakeups.announce(work.collect(), false);
    }

    /// The identity that transactions on this store carry.
    pub(crate) fn identity(&self) -> DriverId {
        self.shared.id
    }

    pub(crate) fn bounds(&self) -> Limits {
        self.shared.limits
    }
}

impl Driver for PostgresDriver {
    fn limits(&self) -> Limits {
        self.shared.limits
    }

    fn driver_id(&self) -> Option<DriverId> {
        Some(self.shared.id)
    }

    fn detached_handle(&self) -> Option<Self> {
        let shared = &self.shared;
        let session = shared.session.apart(1)?;
        // It is used for leases alone, so no worker waits for wake-ups there.
        let detached = Self::with(session, shared.schema.clone(), shared.limits, false);
        detached.shared.fits.store(shared.fits.load(Ordering::Acquire), Ordering::Release);
        Some(detached.known_as(shared.id))
    }

    async fn enqueue(&self, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        let shared = &self.shared;
        // REF-5: the first fault of a call as a whole; here ENQ-6, and in other calls REF-4 too.
        shared.session.check_open()?;
        request.check()?;
        let (parts, mut answers) = enqueue::parts(&request, &shared.limits);
        for part in parts {
            let jobs = part.jobs();
            let permit = shared.held_calls.enter(&jobs).await?;
            let mut queues: Vec<_> = jobs.into_iter().map(|job| &job.queue).collect();
            queues.dedup();
            let channel = shared.wakeups.inline_notify_channel();
            let call = shared.wakeups.begin_call(queues.into_iter().cloned().collect());
            let started = Instant::now();
            let verdicts = self.store(&part, request.now, channel).await;
            call.answered(&verdicts);
            permit.answered();
            let verdicts = verdicts.map_err(error::held_elsewhere)?;
            let is_late = started.elapsed() >= LATE_COMMIT;
            let stored = part.conclude(verdicts, &mut answers, request.now)?;
            shared.scan_starts.lower(stored.iter().map(|it| &it.queue), request.now.as_micros());
            let work = stored.into_iter().map(|it| it.in_front(is_late)).collect();
            shared.wakeups.announce(work, channel.is_some());
        }
        Ok(answers)
    }

    async fn reserve(&self, request: Reserve) -> Result<Reserved, DriverError> {
        let shared = &self.shared;
        shared.session.check_open()?;
        self.reserve_jobs(request).await
    }

    async fn extend_leases(&self, request: ExtendLeases) -> Answers<Extended, Refusal> {
        let shared = &self.shared;
        shared.session.check_open()?;
        let expires_at = request.check()?;
        if request.items.is_empty() {
            return Ok(Vec::new());
        }
        let values = reserve::extension(&request, expires_at);
        let rows = self.query(&shared.statements.extend, &values).await?;
        rows.iter().zip(&request.items).map(|(row, item)| reserve::extended(row, item)).collect()
    }

    async fn settle(&self, request: Settle) -> Answers<Settled, Refusal> {
        let shared = &self.shared;
        shared.session.check_open()?;
        self.settle_jobs(request).await
    }

    async fn outputs(&self, request: Outputs) -> Answers<OutputPage, Refusal> {
        let shared = &self.shared;
        shared.session.check_open()?;
        request.check()?;
        let number = |number: usize| i64::try_from(number).ok();
        let of = |of: OutputOf| match of {
            OutputOf::Itself => "itself",
            OutputOf::Parents => "parents",
            OutputOf::Input => "input",
        };
        let values = [
            Value::Texts(request.items.iter().map(|item| Some(item.id.as_str())).collect()),
            Value::Texts(request.items.iter().map(|item| Some(of(item.of))).collect()),
            Value::BigInts(request.items.iter().map(|item| number(item.from)).collect()),
            Value::BigInt(number(request.limit)),
            Value::BigInt(number(Limits::PAGE_BYTES)),
        ];
        let rows = self.query(&shared.statements.outputs, &values).await?;
        let mut pages: Vec<Option<Result<OutputPage, Refusal>>> = vec![None; request.items.len()];
        for row in &rows {
            let at: usize = answer::number(get::<i64>(row, "item")? - 1)?;
            let Some(page) = pages.get_mut(at) else { continue };
            match entry(row)? {
                Found::NoJob => *page = Some(Err(Refusal::JobNotFound)),
                found => {
                    let page = page.get_or_insert_with(|| Ok(OutputPage::new(Vec::new(), None)));
                    let Ok(page) = page else { continue };
                    page.join = join_list(row, ["list_id", "list_len", "list_reading"])?;
                    if let Found::Entry(entry) = found {
                        page.entries.push(entry);
                    }
                    let end = request.items[at].from.saturating_add(page.entries.len());
                    let total: usize = answer::number(get(row, "total")?)?;
                    page.next = (end < total).then_some(end);
                }
            }
        }
        let unanswered = || answer::unknown("page", "none");
        pages.into_iter().map(|page| page.ok_or_else(unanswered)).collect()
    }

    async fn watch(&self, queues: Vec<QueueName>) -> Result<Watch, DriverError> {
        self.shared.session.check_open()?;
        Ok(self.shared.wakeups.watch(queues).await)
    }

    async fn store_time(&self) -> Result<Timestamp, DriverError> {
        let rows = self.shared.session.query(&self.shared.statements.time, &[]).await?;
        let now: i64 = rows.first().map_or(Ok(0), |row| get(row, 0))?;
        // STO-1: a wall clock may be set back, or another server take over; the store's time may
        // not run backwards for that.
        let before = self.shared.last_told.fetch_max(now, Ordering::AcqRel);
        answer::time(now.max(before))
    }

    async fn close(&self) -> Result<(), DriverError> {
        // CLO-1
        self.shared.wakeups.close().await;
        self.shared.session.close();
        Ok(())
    }
}

/// A join in three columns: its id, length and reading.
fn join_list(row: &Row, columns: [&str; 3]) -> Result<Option<JoinList>, DriverError> {
    let [id, len, reading] = columns;
    let Some(id) = get::<Option<&str>>(row, id)? else { return Ok(None) };
    let len = answer::count(get(row, len)?)?;
    let (kind, _) = record::kind(get(row, reading)?)?;
    match kind {
        JobKind::Join(reading) => Ok(Some(JoinList::new(answer::id(id)?, len, reading))),
        JobKind::Work => Ok(None),
    }
}

/// What a row of outputs tells.
enum Found {
    NoJob,
    NoEntry,
    Entry(OutputEntry),
}

fn entry(row: &Row) -> Result<Found, DriverError> {
    let failed = |state| -> Result<_, DriverError> {
        Ok(OutputEntry::Failed { state, reason: answer::text(get(row, "reason")?) })
    };
    let entry = match get::<Option<&str>>(row, "kind")? {
        Some("not_found") => return Ok(Found::NoJob),
        None => return Ok(Found::NoEntry),
        Some("list") => {
            let list = join_list(row, ["join_id", "join_len", "reading"])?
                .ok_or_else(|| answer::unknown("join", "none"))?;
            OutputEntry::List(list)
        }
        Some("done") => OutputEntry::Done(answer::blob(get(row, "output")?)),
        Some("dlq") => failed(State::Dlq)?,
        Some("cancelled") => failed(State::Cancelled)?,
        Some("pending") => OutputEntry::Pending,
        Some("missing") => OutputEntry::Missing,
        Some(other) => return Err(answer::unknown("entry", other)),
    };
    Ok(Found::Entry(entry))
}
