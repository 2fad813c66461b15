//! A driver to copy: both traits, the checks that every driver makes first, and for each operation
//! the clauses of `docs/SEMANTICS.md` that it has to satisfy.
//!
//! Every operation that needs a store answers [`NotImplemented`]. `docs/guides/writing-a-driver.md`
//! says in which order to replace those answers. In a crate of its own the driver is tested with
//!
//! ```text
//! async fn open() -> MyDriver {
//!     MyDriver::open()
//! }
//!
//! taskharbor_conformance::tests!(open, level = jobs);
//! ```

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use taskharbor_core::{
    Admin, AnyDriver, Driver, DriverError, JobId, QueueName, State, Timestamp,
    admin::{
        Action, Configure, Counts, Cursor, Evict, Evicted, Inconsistency, LaneStatus, List,
        ListLanes, ListSettings, ListWorkers, Manage, Page, Prune, QueueCounts, Setting,
        WorkerRecord,
    },
    driver::{
        Announce, Answers, Due, DueSchedules, Enqueue, Enqueued, ExtendLeases, Extended, Fire,
        Limits, OutputPage, Outputs, Reserve, Reserved, Settle, Settled, WakeHub, Watch,
    },
    error::{Denied, FireRefused, InvalidRequest, Refusal, Rejected},
    export::{ExportUnit, ImportRefused, Imported},
    flow::{FlowRecord, ListFlows},
    job::{JobRecord, JobSummary},
};

/// A driver for a store of yours. Clones share one store.
#[derive(Clone)]
struct MyDriver {
    shared: Arc<Shared>,
}

/// What the clones of a driver share: a pool of connections, a file, a client.
struct Shared {
    is_closed: AtomicBool,
    hub: WakeHub,
}

/// The operation is not written yet.
#[derive(Debug)]
struct NotImplemented(&'static str);

impl fmt::Display for NotImplemented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not implemented yet", self.0)
    }
}

impl std::error::Error for NotImplemented {}

/// The answer of an operation that is not written yet. An error of the store that a repeated call
/// will not cure is reported in this way; one that it may cure with `DriverError::unavailable`.
fn not_implemented<T>(operation: &'static str) -> Result<T, DriverError> {
    Err(DriverError::backend(NotImplemented(operation)))
}

impl MyDriver {
    fn open() -> Self {
        let shared = Shared { is_closed: AtomicBool::new(false), hub: WakeHub::new() };
        Self { shared: Arc::new(shared) }
    }

    /// The first thing that every operation does: a closed driver says so, whatever else is wrong.
    fn check_open(&self) -> Result<(), DriverError> {
        // CLO-1, REF-5
        let is_closed = self.shared.is_closed.load(Ordering::Acquire);
        if is_closed { Err(DriverError::Closed) } else { Ok(()) }
    }
}

impl Driver for MyDriver {
    fn limits(&self) -> Limits {
        // FLO-9: remove `without_flows` when single jobs pass the suite, and test `level = flows`.
        Limits::default().without_flows()
    }

    /// One atomic step for each set: ENQ-1 to ENQ-7, KEY-1 to KEY-11, JOB-1 to JOB-5, ORD-4. With
    /// flows also FLO-1 and FLO-3 to FLO-6. Wakes the queues of jobs that may run: WAK-1.
    async fn enqueue(&self, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        self.check_open()?;
        // ENQ-6
        request.check()?;
        let limits = self.limits();
        // A set that breaks a rule is answered with the reason; the others are stored.
        let _checked: Vec<_> = request.sets.iter().map(|set| set.check(&limits)).collect();
        not_implemented("enqueue")
    }

    /// RES-1 to RES-10, ORD-1 to ORD-3, LEA-2 to LEA-5, TIM-3, JOB-6, JOB-8, PAU-1, LAN-2 to LAN-5,
    /// LIM-1 to LIM-7, RAT-1 to RAT-4. Tokens come from `LeaseToken::random_many`, answers from
    /// `JobView::assemble`. `Turn` has the order of the lanes, `Bound` what limits allow.
    async fn reserve(&self, request: Reserve) -> Result<Reserved, DriverError> {
        self.check_open()?;
        // RES-6, TIM-3
        let _expires_at = request.check()?;
        not_implemented("reserve")
    }

    /// LEA-1, LEA-7 to LEA-10, CAN-2, REF-1 to REF-4. `Life::extend` has the rules.
    async fn extend_leases(&self, request: ExtendLeases) -> Answers<Extended, Refusal> {
        self.check_open()?;
        // REF-4, TIM-3
        let _expires_at = request.check()?;
        not_implemented("extend_leases")
    }

    /// SET-1 to SET-12, LIM-5, LEA-6, CAN-3 to CAN-5, REF-1 to REF-6, JOB-7. With flows also FLO-1, FLO-2,
    /// FLO-8, FAI-1 to FAI-5, POL-1 to POL-6 and EXP-1 to EXP-6. `Life::may_settle` and
    /// `Life::settle` have the rules of one job, `taskharbor_core::graph` those of several.
    async fn settle(&self, request: Settle) -> Answers<Settled, Refusal> {
        self.check_open()?;
        // REF-4, ENQ-6
        request.check()?;
        let limits = self.limits();
        // SET-11, EXP-3: an item that could be applied to no job is refused before the store is read.
        let _checked: Vec<_> =
            request.items.iter().map(|item| item.transition.check(&limits)).collect();
        not_implemented("settle")
    }

    /// OUT-1 to OUT-6. Without flows a job has no parents, and OUT-3 to OUT-5 remain.
    async fn outputs(&self, request: Outputs) -> Answers<OutputPage, Refusal> {
        self.check_open()?;
        // OUT-4
        request.check()?;
        not_implemented("outputs")
    }

    /// SCH-8. `ScheduleRecord::is_due` has the rule.
    async fn due_schedules(&self, request: DueSchedules) -> Result<Due, DriverError> {
        self.check_open()?;
        // SCH-8
        request.check()?;
        not_implemented("due_schedules")
    }

    /// SCH-2 to SCH-6, SCH-14, SCH-15, WAK-1. `ScheduleRecord::check_fire` and `record_firing` have
    /// the rules of the record.
    async fn fire(&self, request: Fire) -> Answers<Vec<Enqueued>, FireRefused> {
        self.check_open()?;
        // SCH-17
        request.check()?;
        not_implemented("fire")
    }

    /// WRK-1 to WRK-3, WRK-5, WRK-6. `WorkerRecord::new` puts together what is stored.
    async fn announce(&self, request: Announce) -> Result<(), DriverError> {
        self.check_open()?;
        // WRK-3, WRK-5: `None` withdraws what was announced.
        let _ends_at = request.check()?;
        not_implemented("announce")
    }

    /// WAK-1. A store that cannot tell when work arrives answers `Watch::never()`.
    async fn watch(&self, queues: Vec<QueueName>) -> Result<Watch, DriverError> {
        self.check_open()?;
        Ok(self.shared.hub.watch(queues))
    }

    /// WAK-2. `settle` and `manage` tell the hub with `wake_jobs`. The default is `Watch::never()`.
    async fn watch_job(&self, id: JobId) -> Result<Watch, DriverError> {
        self.check_open()?;
        Ok(self.shared.hub.watch_job(id))
    }

    /// STO-1: the clock of the store, not of this process.
    async fn store_time(&self) -> Result<Timestamp, DriverError> {
        self.check_open()?;
        not_implemented("store_time")
    }

    async fn close(&self) -> Result<(), DriverError> {
        // CLO-1
        self.shared.is_closed.store(true, Ordering::Release);
        self.shared.hub.close();
        Ok(())
    }
}

impl Admin for MyDriver {
    /// ADM-11.
    async fn migrate(&self) -> Result<(), DriverError> {
        self.check_open()?;
        not_implemented("migrate")
    }

    /// ADM-1, JOB-1, JOB-6 to JOB-8, LIM-4. `JobRecord::assemble` puts the answer together, and
    /// `QueueLimits::held_back` says what holds a ready job back.
    async fn inspect(&self, _id: JobId, _now: Timestamp) -> Result<Option<JobRecord>, DriverError> {
        self.check_open()?;
        not_implemented("inspect")
    }

    /// ADM-2, ADM-3, ADM-12, ADM-13. `Filter::matches` has the rules.
    async fn list(&self, request: List) -> Result<Page<JobSummary>, DriverError> {
        self.check_open()?;
        // ADM-2, ADM-12, ADM-13
        request.check()?;
        // ADM-13: a cursor says of which list and order it is; any other is refused.
        match request.after.as_ref().map(Cursor::as_str) {
            Some(text) if !text.starts_with("jobs:") => Err(InvalidRequest::Cursor.into()),
            _ => not_implemented("list"),
        }
    }

    /// ADM-4, ADM-14.
    async fn counts(&self, request: Counts) -> Result<Vec<QueueCounts>, DriverError> {
        self.check_open()?;
        // ADM-14
        request.check()?;
        not_implemented("counts")
    }

    /// `Life` has the rules of one job, `taskharbor_core::graph` those of several. Each item is
    /// answered on its own, in order: SET-9, REF-3.
    async fn manage(&self, request: Manage) -> Answers<State, Denied> {
        self.check_open()?;
        // REF-4
        request.check()?;
        match request.action {
            // REQ-1 to REQ-8, KEY-5, KEY-8, FAI-7, FAI-8
            Action::Requeue(_) => not_implemented("requeue"),
            // CAN-1 to CAN-6, CAN-9
            Action::Cancel => not_implemented("cancel"),
            // ADM-5
            Action::RunNow => not_implemented("run_now"),
            // ADM-6
            Action::SetPriority(_) => not_implemented("set_priority"),
            // ADM-7
            Action::Purge => not_implemented("purge"),
            // CAN-7, CAN-8, FAI-6
            Action::CancelFlow => not_implemented("cancel_flow"),
            // ADM-8
            Action::PurgeFlow => not_implemented("purge_flow"),
        }
    }

    /// PAU-1, PAU-2, PAU-4, SCH-1, SCH-6, SCH-7, SCH-9 to SCH-13, SCH-16, LIM-6, LIM-8, LIM-9, RAT-4. A
    /// queue that is resumed is woken (WAK-1), and one whose limits change or whose hold is ended
    /// (WAK-3).
    async fn configure(&self, request: Configure) -> Answers<(), Denied> {
        self.check_open()?;
        request.check()?;
        not_implemented("configure")
    }

    /// PAU-3.
    async fn settings(&self, request: ListSettings) -> Result<Page<Setting>, DriverError> {
        self.check_open()?;
        request.check()?;
        not_implemented("settings")
    }

    /// LAN-6. `ListLanes::begin` reads the cursor, `LaneStatus::cursor` makes it.
    async fn lanes(&self, request: ListLanes) -> Result<Page<LaneStatus>, DriverError> {
        self.check_open()?;
        // LAN-6
        request.check()?;
        let _begin = request.begin()?;
        not_implemented("lanes")
    }

    /// WRK-2. `ListWorkers::begin` reads the cursor, `WorkerRecord::cursor` makes it.
    async fn workers(&self, request: ListWorkers) -> Result<Page<WorkerRecord>, DriverError> {
        self.check_open()?;
        // WRK-2
        request.check()?;
        let _begin = request.begin()?;
        not_implemented("workers")
    }

    /// EVI-1 to EVI-5. `Life::evict` has the rule of one job. Wakes the queues of the leases that it
    /// ended: EVI-5.
    async fn evict(&self, _request: Evict) -> Result<Evicted, DriverError> {
        self.check_open()?;
        not_implemented("evict")
    }

    /// PRU-1 to PRU-4, KEY-3, KEY-9, WRK-4. `taskharbor_core::graph::prune` has the order.
    async fn prune(&self, request: Prune) -> Result<usize, DriverError> {
        self.check_open()?;
        request.check()?;
        not_implemented("prune")
    }

    /// ADM-9, FLO-7. Without flows the answer is `None`.
    async fn flow(&self, _id: JobId, _now: Timestamp) -> Result<Option<FlowRecord>, DriverError> {
        self.check_open()?;
        Ok(None)
    }

    /// ADM-9. Without flows the page is empty.
    async fn list_flows(&self, request: ListFlows) -> Result<Page<FlowRecord>, DriverError> {
        self.check_open()?;
        request.check()?;
        Ok(Page::new(Vec::new(), None))
    }

    /// MOV-1, MOV-2. `ExportedJob::new` puts a job together.
    async fn export(
        &self,
        _after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<ExportUnit>, DriverError> {
        self.check_open()?;
        // MOV-1
        ExportUnit::check_limit(limit)?;
        not_implemented("export")
    }

    /// MOV-2 to MOV-7. Wakes the queues of jobs that may run: WAK-1.
    async fn import(&self, units: Vec<ExportUnit>) -> Answers<Imported, ImportRefused> {
        self.check_open()?;
        let limits = self.limits();
        // MOV-6: a unit that contradicts itself is refused before the store is read.
        let _checked: Vec<_> = units.iter().map(|unit| unit.check(&limits)).collect();
        not_implemented("import")
    }

    /// ADM-10: everything that the layout of the store cannot express as a constraint.
    async fn check(&self) -> Result<Vec<Inconsistency>, DriverError> {
        self.check_open()?;
        not_implemented("check")
    }
}

fn main() {
    // Clients, workers and tools take the driver behind this handle.
    let _handle = AnyDriver::new(MyDriver::open());
}
