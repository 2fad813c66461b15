//! The loop that fires schedules.
//!
//! Every worker runs it, and there is no leader. Each worker asks which schedules are due, makes the
//! jobs of their slots and sends them. The store applies the first firing of a slot and refuses the
//! others. So no slot is lost when a worker dies, and no slot is fired twice when a worker is slow.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use taskharbor_core::{
    Admin, Driver, DriverError, JobId, Text, Timestamp,
    admin::{Action, Change, Configure, Declaration, Manage, ScheduleRecord},
    driver::{Answers, Due, DueSchedules, Enqueued, Fire, FireSchedule, Watch},
    error::FireRefused,
    name::ScheduleName,
};
use tokio::time::sleep;

use super::{
    outage::Part,
    shared::{Phase, Shared},
};
use crate::{
    Event, Operation,
    schedule::{first_slots, keep_due_slots, plan},
};

/// One call asks for no more schedules than this.
const PAGE: usize = 500;
/// One call stores no more jobs, and no more bytes of them, than these.
const CALL_JOBS: usize = 10_000;
const CALL_BYTES: usize = 16 * 1024 * 1024;
/// A worker fires a random time after the slot, up to this. Otherwise all workers would call at once.
const SPREAD: Duration = Duration::from_millis(100);
/// Time between two looks if nothing is due, as a multiple of the polling interval. A worker sees
/// schedules that another process has stored at the next look.
const POLLS: u32 = 30;

/// After this many missed slots the loop yields to other tasks: the slots of a cron expression are found
/// one by one.
const TURN_SLOTS: u64 = 1_000;

pub(super) async fn run(shared: Arc<Shared>) {
    let mut scheduler = Scheduler::new(&shared);
    tokio::select! {
        biased;
        () = shared.reached(Phase::Draining) => {}
        () = scheduler.run() => {}
    }
}

struct Scheduler<'a> {
    shared: &'a Shared,
    /// Wakes when this process changes schedules.
    changes: Watch,
    /// The declaration, until it has been made.
    declaration: Option<Declaration>,
    /// The schedules that this worker cannot read, so that each is reported once.
    unreadable: HashSet<ScheduleName>,
}

impl<'a> Scheduler<'a> {
    fn new(shared: &'a Shared) -> Self {
        let declaration = shared.declaration.lock().ok().and_then(|mut it| it.take());
        let changes = shared.driver.watch_schedules();
        Self { shared, changes, declaration, unreadable: HashSet::new() }
    }

    async fn run(&mut self) {
        let mut failures = 0;
        loop {
            let pause = match self.pass().await {
                Ok(next) => {
                    failures = 0;
                    self.pause(next)
                }
                Err(_) => {
                    failures = u32::saturating_add(failures, 1);
                    self.shared.backoff(failures)
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                Some(_) = self.changes.woken() => {}
                () = self.shared.key_freed.notified() => {}
            }
        }
    }

    /// How long to wait when the next slot is at `next`.
    fn pause(&self, next: Option<Timestamp>) -> Duration {
        let poll = self.shared.config.poll * POLLS;
        let poll = poll.mul_f64(0.9 + self.shared.chance() / 5.0);
        let Some(next) = next else { return poll };
        // In a test there is one worker, and it fires a slot at the very instant of the slot.
        let is_alone = self.shared.driver.has_own_clock();
        let spread = if is_alone { Duration::ZERO } else { SPREAD.mul_f64(self.shared.chance()) };
        next.since(self.shared.now()).saturating_add(spread).min(poll)
    }

    /// Fires all due slots, and makes the declaration if there is one. Returns the next slot.
    async fn pass(&mut self) -> Result<Option<Timestamp>, DriverError> {
        // Due slots of a schedule that the declaration replaces are fired first, as they were defined.
        let next = self.fire_due().await?;
        if self.declaration.is_none() {
            return Ok(next);
        }
        self.declare().await?;
        self.fire_due().await
    }

    async fn declare(&mut self) -> Result<(), DriverError> {
        let Some(declaration) = &self.declaration else { return Ok(()) };
        let now = self.shared.now();
        let mut declared = first_slots(declaration.clone(), now);
        // Slots that wait for an earlier job are still due, and some may have fallen due since.
        let mut page = Some(DueSchedules::new(PAGE, now));
        while let Some(request) = page {
            let due = self.due(request.clone()).await?;
            keep_due_slots(&mut declared.schedules, &due.schedules);
            page = request.next_page(&due);
        }
        let request = Configure::new(vec![Change::DeclareSchedules(declared)], now);
        let configure = self.shared.driver.configure(request);
        let answers = self.call(Operation::Configure, 1, configure).await?;
        if let Some(Err(denied)) = answers.first() {
            let owner = declaration.owner.as_str();
            self.shared.tell(&Event::SchedulesDenied { owner, denied });
        }
        self.declaration = None;
        Ok(())
    }

    /// Fires all slots that are due now. Returns the next slot of all schedules.
    async fn fire_due(&mut self) -> Result<Option<Timestamp>, DriverError> {
        let shared = self.shared;
        let now = shared.now();
        shared.key_waits.store(false, Ordering::SeqCst);
        let mut next: Option<Timestamp> = None;
        let mut page = Some(DueSchedules::new(PAGE, now));
        while let Some(request) = page {
            let due = self.due(request.clone()).await?;
            page = request.next_page(&due);
            let fired = self.fire(&due.schedules, now).await?;
            next = next.into_iter().chain(due.next).chain(fired).min();
            if page.is_some() {
                tokio::task::yield_now().await;
            }
        }
        Ok(next)
    }

    async fn due(&self, request: DueSchedules) -> Result<Due, DriverError> {
        let call = self.shared.driver.due_schedules(request);
        self.call(Operation::DueSchedules, 0, call).await
    }

    /// Fires these schedules. Returns the earliest of their next slots.
    async fn fire(
        &mut self,
        due: &[ScheduleRecord],
        now: Timestamp,
    ) -> Result<Option<Timestamp>, DriverError> {
        let mut items = Vec::with_capacity(due.len());
        let mut replaced = Vec::new();
        let mut walked = 0_u64;
        for record in due {
            if walked >= TURN_SLOTS {
                walked = 0;
                tokio::task::yield_now().await;
            }
            match plan(record, now) {
                Ok(mut plan) => {
                    while !plan.count(TURN_SLOTS) {
                        tokio::task::yield_now().await;
                    }
                    walked = walked.saturating_add(plan.fire.missed);
                    items.push(plan.fire);
                    replaced.extend(plan.replaces);
                }
                Err(error) if self.unreadable.insert(record.name.clone()) => {
                    let schedule = record.name.as_str();
                    let error = &error.to_string();
                    self.shared.tell(&Event::ScheduleFailed { schedule, error });
                }
                Err(_) => {}
            }
        }
        self.cancel(replaced, now).await?;
        let mut next: Option<Timestamp> = None;
        while !items.is_empty() {
            let rest = items.split_off(fitting(&items));
            let call = std::mem::replace(&mut items, rest);
            next = next.into_iter().chain(self.send(call, now).await?).min();
        }
        Ok(next)
    }

    /// Cancels the jobs that new ones replace. For a terminal job the store denies it, which is not a
    /// failure.
    async fn cancel(
        &self,
        replaced: Vec<(JobId, Action)>,
        now: Timestamp,
    ) -> Result<(), DriverError> {
        for action in [Action::Cancel, Action::CancelFlow] {
            let ids = replaced.iter().filter(|it| it.1 == action).map(|it| it.0.clone());
            let ids: Vec<_> = ids.collect::<HashSet<_>>().into_iter().collect();
            if !ids.is_empty() {
                let (count, request) = (ids.len(), Manage::new(ids, action, now));
                self.call(Operation::Manage, count, self.shared.driver.manage(request)).await?;
            }
        }
        Ok(())
    }

    /// Sends firings in one call. If the store refuses the call, one of them may be the cause, and each
    /// is sent alone. A firing that is refused alone is recorded as the error of its schedule.
    async fn send(
        &self,
        items: Vec<FireSchedule>,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, DriverError> {
        let mut next: Option<Timestamp> = None;
        let mut failed = Vec::new();
        match self.fire_call(items.clone(), now).await {
            Ok(answers) => {
                for (item, answer) in items.into_iter().zip(answers) {
                    next = next.into_iter().chain(self.take(item, answer, &mut failed)).min();
                }
            }
            Err(DriverError::Invalid(_) | DriverError::Backend(_)) if items.len() > 1 => {
                for item in items {
                    let sent = Box::pin(self.send(vec![item], now)).await?;
                    next = next.into_iter().chain(sent).min();
                }
            }
            Err(DriverError::Invalid(rule)) => {
                failed.extend(items.into_iter().map(|item| (item, rule.to_string())));
            }
            Err(error) => return Err(error),
        }
        for (item, error) in failed {
            let schedule = item.name.as_str();
            self.shared.tell(&Event::ScheduleFailed { schedule, error: &error });
            let left_out = u64::try_from(item.slots.len()).unwrap_or(u64::MAX);
            let fire = FireSchedule::new(item.name.clone(), item.revision, item.next_slot);
            let fire = fire.missed(item.missed.saturating_add(left_out)).error(Text::new(error));
            self.fire_call(vec![fire], now).await?;
            next = next.into_iter().chain(item.next_slot).min();
        }
        Ok(next)
    }

    /// Takes the store's answer to one firing. Returns the next slot of the schedule.
    fn take(
        &self,
        item: FireSchedule,
        answer: Result<Vec<Enqueued>, FireRefused>,
        failed: &mut Vec<(FireSchedule, String)>,
    ) -> Option<Timestamp> {
        let schedule = item.name.as_str();
        match answer {
            Ok(jobs) => {
                for (slot, job) in item.slots.iter().zip(&jobs) {
                    let (slot, is_new) = (slot.at, job.is_new());
                    let job = job.id();
                    self.shared.tell(&Event::ScheduleFired { schedule, slot, job, is_new });
                }
                if let Some(error) = &item.error {
                    let error = error.as_str();
                    self.shared.tell(&Event::ScheduleFailed { schedule, error });
                }
                item.next_slot
            }
            // Another worker was first, and has moved the schedule to the same slot.
            Err(FireRefused::Changed) => item.next_slot,
            Err(FireRefused::KeyHeld(_)) => {
                self.shared.key_waits.store(true, Ordering::SeqCst);
                None
            }
            Err(FireRefused::Rejected(rejected)) => {
                let text = rejected.to_string();
                failed.push((item, text));
                None
            }
            Err(_) => None,
        }
    }

    async fn fire_call(
        &self,
        items: Vec<FireSchedule>,
        now: Timestamp,
    ) -> Answers<Vec<Enqueued>, FireRefused> {
        let count = items.len();
        self.call(Operation::Fire, count, self.shared.driver.fire(Fire::new(items, now))).await
    }

    async fn call<T>(
        &self,
        operation: Operation,
        items: usize,
        call: impl Future<Output = Result<T, DriverError>>,
    ) -> Result<T, DriverError> {
        self.shared.call_or_recover(Part::Scheduler, operation, items, call).await
    }
}

/// How many of these firings fit into one call: at least one.
fn fitting(items: &[FireSchedule]) -> usize {
    let (mut jobs, mut bytes) = (0, 0);
    let fits = |item: &&FireSchedule| {
        let new = || item.slots.iter().flat_map(|slot| &slot.set.jobs);
        jobs += new().count();
        bytes += new().map(|job| job.payload.len() + job.headers.bytes()).sum::<usize>();
        jobs <= CALL_JOBS && bytes <= CALL_BYTES
    };
    items.iter().take_while(fits).count().max(1)
}
