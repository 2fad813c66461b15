//! The loop that records the outcomes of jobs.
//!
//! Outcomes are batched while a call is in flight and go together in the next one: full batches
//! under load, no delay when idle. A call that failed is repeated while the leases are valid. After a
//! call that the store refused as a whole, each outcome is sent alone, so that one cannot hold up the
//! others. An outcome that waits for another transaction is sent in a call of its own.

use std::{
    collections::HashSet,
    panic::resume_unwind,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use taskharbor_core::{
    Driver, DriverError, JobId, Text, Timestamp,
    driver::{
        LeaseToken, Limits, LockWait, OutputEntry, OutputPage, OutputQuery, Outputs, Settle,
        Settled, Settlement, Transition,
    },
    error::Refusal,
};
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinSet},
    time::Instant,
};

use super::{
    outage::Part,
    resolution::{self, Report, Resolution},
    shared::{Phase, Shared},
};
use crate::{Event, LossReason, Operation, header, inflight::Inflight};

/// A call carries no more outcomes than this.
const BATCH: usize = 1_000;
/// A call stops taking outcomes when they reach a quarter of what a call may carry.
const BATCH_BYTES: usize = Limits::MAX_CALL_BYTES / 4;
const BATCH_JOBS: usize = Limits::MAX_CALL_JOBS / 4;
/// This many jobs that were acknowledged in transactions are asked about in one call, which reads
/// their outputs.
const ACKED_AT_ONCE: usize = 100;
/// How often to step aside for handlers that end at the same time.
const YIELDS: usize = 1;
/// An outcome is worth more than a reservation, so it is tried again more often.
const MAX_BACKOFF: Duration = Duration::from_secs(1);
/// So often a store may fail on an outcome that is alone in its call, about half a minute, before it
/// is recorded as a failure; and so often on that, before it is given up.
const REFUSALS: u32 = 12;

/// A job whose execution has ended, and the resolution that is to be recorded.
#[derive(Debug)]
pub(super) struct Finished {
    inflight: Arc<Inflight>,
    resolution: Resolution,
    /// Whether it was sent before without an answer, so that it may have been recorded.
    unanswered: bool,
    /// How often the store has refused a call because of it, or because of one sent with it.
    refused: u32,
    /// How often another transaction was in its way.
    busy_count: u32,
    /// When it may be sent again.
    resume_at: Option<Instant>,
}

impl Finished {
    pub(super) fn new(inflight: Arc<Inflight>, resolution: Resolution) -> Self {
        inflight.end();
        Self { inflight, resolution, unanswered: false, refused: 0, busy_count: 0, resume_at: None }
    }

    /// The job ends as a failure, because the store refuses its outcome.
    fn dead_letter(&mut self, text: Text, now: Timestamp) {
        let acked = self.resolution.acked.take();
        self.resolution =
            resolution::dead_letter(self.inflight.job.attempts, text.clone(), text, now);
        self.resolution.acked = acked;
    }
}

/// Outcomes on their way, each with the token it is sent with.
type Batch = Vec<(Finished, LeaseToken)>;
type Answers = Result<Vec<Result<Settled, Refusal>>, DriverError>;

pub(super) async fn run(shared: Arc<Shared>, inbox: mpsc::Receiver<Finished>) {
    let mut settler = Settler {
        shared,
        inbox,
        waiting: Vec::new(),
        held: Vec::new(),
        aside: JoinSet::new(),
        failures: 0,
        resume_at: None,
    };
    while settler.gather().await {
        settler.drop_lost();
        let batch = take_batch(&mut settler.waiting);
        if !batch.is_empty() {
            settler.send(batch).await;
        }
    }
}

struct Settler {
    shared: Arc<Shared>,
    inbox: mpsc::Receiver<Finished>,
    waiting: Vec<Finished>,
    /// Those that another transaction holds up, and a call with some of them, which may take
    /// long.
    held: Vec<Finished>,
    aside: JoinSet<(Batch, Answers)>,
    /// Calls in a row that did not get through, and until when to leave the store alone for it.
    failures: u32,
    resume_at: Option<Instant>,
}

impl Settler {
    /// Waits until there is something to record, and time for it; `false` ends the loop.
    async fn gather(&mut self) -> bool {
        loop {
            if self.shared.phase() == Phase::Ended {
                return false;
            }
            while let Some(ended) = self.aside.try_join_next() {
                self.finish_deferred_call(ended).await;
            }
            self.send_aside();
            let left = BATCH.saturating_sub(self.waiting.len());
            if self.can_send() {
                // Other handlers may end at the same moment, and their outcomes go in the same
                // call. If there are none, nothing waits.
                for _ in 0..YIELDS {
                    self.take_more();
                    let few = self.waiting.len() < BATCH / 4;
                    if !few || self.shared.registry.len() == self.waiting.len() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
                self.take_more();
                return true;
            }
            let now = Instant::now();
            let (inbox, waiting) = (&mut self.inbox, &mut self.waiting);
            let outcomes = waiting.iter().chain(&self.held);
            let pauses = self.resume_at.into_iter().chain(outcomes.filter_map(|it| it.resume_at));
            // What is over already waits for something else.
            let next = pauses.filter(|at| *at > now).min();
            let pause = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.shared.reached(Phase::Ended) => return false,
                got = inbox.recv_many(waiting, left), if left > 0 => {
                    if got == 0 {
                        return false;
                    }
                }
                Some(ended) = self.aside.join_next() => self.finish_deferred_call(ended).await,
                // Outcomes of jobs that the keeper had in flight can go now.
                () = self.shared.registry.extended() => {}
                () = pause => {}
            }
        }
    }

    fn take_more(&mut self) {
        while self.waiting.len() < BATCH
            && let Ok(finished) = self.inbox.try_recv()
        {
            self.waiting.push(finished);
        }
    }

    /// Whether an outcome can be sent now.
    fn can_send(&self) -> bool {
        let now = Instant::now();
        let is_over = |at: Option<Instant>| at.is_none_or(|at| at <= now);
        is_over(self.resume_at)
            && self.waiting.iter().any(|finished| {
                let inflight = &finished.inflight;
                is_over(finished.resume_at) && (inflight.is_lost() || !inflight.is_being_extended())
            })
    }

    /// Drops the outcomes of jobs whose leases are lost.
    fn drop_lost(&mut self) {
        let shared = &self.shared;
        let (now, was_tried) = (shared.now(), self.failures > 0);
        let is_lost = |finished: &mut Finished| {
            let expired = now >= finished.inflight.expires_at();
            if expired {
                let was_tried = was_tried || finished.unanswered;
                let why = if was_tried { LossReason::Unreachable } else { LossReason::Stalled };
                shared.lose(&finished.inflight, &why);
            }
            expired || finished.inflight.is_lost()
        };
        let lost = self.waiting.extract_if(.., is_lost).chain(self.held.extract_if(.., is_lost));
        let lost: Vec<_> = lost.map(|finished| finished.inflight).collect();
        if !lost.is_empty() {
            shared.registry.remove(&lost);
        }
    }

    /// Sends those that another transaction holds up, unless such a call is in flight.
    fn send_aside(&mut self) {
        let now = Instant::now();
        let may_go = |it: &Finished| it.resume_at.is_none_or(|at| at <= now);
        if self.aside.is_empty() && self.held.iter().any(may_go) {
            self.drop_lost();
            let batch = take_batch(&mut self.held);
            if !batch.is_empty() {
                let shared = Arc::clone(&self.shared);
                self.aside.spawn(async move {
                    let answers = settle(&shared, request(&shared, &batch)).await;
                    (batch, answers)
                });
            }
        }
    }

    async fn finish_deferred_call(&mut self, ended: Result<(Batch, Answers), JoinError>) {
        match ended {
            Ok((batch, Ok(answers))) => self.take_answers(batch, answers).await,
            Ok((batch, Err(error @ (DriverError::Invalid(_) | DriverError::Backend(_))))) => {
                self.retry_individually(batch, &error);
            }
            Ok((batch, Err(_))) => {
                for (mut finished, _) in batch {
                    finished.unanswered = true;
                    self.defer_busy(finished);
                }
            }
            Err(failed) if failed.is_panic() => resume_unwind(failed.into_panic()),
            Err(_) => {}
        }
    }

    /// Another transaction is in its way.
    fn defer_busy(&mut self, mut finished: Finished) {
        finished.inflight.end_settling();
        finished.busy_count = finished.busy_count.saturating_add(1);
        let backoff = self.shared.backoff(finished.busy_count).min(MAX_BACKOFF);
        finished.resume_at = Some(Instant::now() + backoff);
        self.held.push(finished);
        // Its lease could not be extended while it was in flight.
        self.shared.registry.call_keeper();
    }

    async fn send(&mut self, batch: Batch) {
        let shared = Arc::clone(&self.shared);
        match settle(&shared, request(&shared, &batch).lock_wait(LockWait::Short)).await {
            Ok(answers) => {
                (self.failures, self.resume_at) = (0, None);
                self.take_answers(batch, answers).await;
            }
            Err(error) => {
                match error {
                    DriverError::Invalid(_) | DriverError::Backend(_) => {
                        self.retry_individually(batch, &error);
                    }
                    _ => self.put_back(batch),
                }
                // Their leases could not be extended while they were in flight.
                shared.registry.call_keeper();
            }
        }
    }

    /// The call got no answer, so it may have been applied or not.
    fn put_back(&mut self, batch: Batch) {
        self.failures = self.failures.saturating_add(1);
        let backoff = self.shared.backoff(self.failures).min(MAX_BACKOFF);
        self.resume_at = Some(Instant::now() + backoff);
        for (mut finished, _) in batch {
            finished.unanswered = true;
            finished.inflight.end_settling();
            self.waiting.push(finished);
        }
    }

    /// The store refuses the call as a whole. One outcome may have made it invalid, so each is sent
    /// alone.
    fn retry_individually(&mut self, batch: Batch, error: &DriverError) {
        let was_alone = batch.len() == 1;
        for (mut finished, _) in batch {
            finished.inflight.end_settling();
            if !was_alone {
                finished.refused = 1;
            } else if matches!(error, DriverError::Invalid(_)) {
                // It breaks a rule, and will break it each time.
                finished.refused = (finished.refused / REFUSALS + 1) * REFUSALS + 1;
            } else {
                finished.refused += 1;
            }
            if was_alone && !self.escalate_refusal(&mut finished) {
                continue;
            }
            self.waiting.push(finished);
        }
    }

    /// An outcome that is refused again and again is recorded as a failure; if not even that is
    /// taken it is given up, and the job comes back when its lease ends. `false` if so.
    fn escalate_refusal(&self, finished: &mut Finished) -> bool {
        if finished.refused > 2 * REFUSALS {
            self.shared.lose(&finished.inflight, &LossReason::Unrecordable);
            self.shared.registry.remove([&finished.inflight]);
            return false;
        }
        if finished.refused > REFUSALS {
            let text = Text::new("the store refuses the outcome of the job");
            finished.dead_letter(text, self.shared.now());
        }
        let backoff = self.shared.backoff(finished.refused);
        finished.resume_at = Some(Instant::now() + backoff);
        true
    }

    async fn take_answers(&mut self, batch: Batch, answers: Vec<Result<Settled, Refusal>>) {
        let mut over = Vec::with_capacity(batch.len());
        let mut acked = Vec::new();
        for ((mut finished, _), answer) in batch.into_iter().zip(answers) {
            match answer {
                Ok(Settled::Applied | Settled::AlreadyTerminal) => self.tell(&finished),
                Err(Refusal::Invalid(error)) => {
                    // The outcome is invalid for every store, so the job fails.
                    let text = Text::new(error.to_string());
                    finished.dead_letter(text, self.shared.now());
                    finished.inflight.end_settling();
                    finished.refused += 1;
                    if self.escalate_refusal(&mut finished) {
                        finished.resume_at = None;
                        self.waiting.push(finished);
                    }
                    continue;
                }
                Err(Refusal::Busy) => {
                    self.defer_busy(finished);
                    continue;
                }
                Err(Refusal::JobNotInflight) if finished.resolution.acked.is_some() => {
                    acked.push(finished);
                    continue;
                }
                Err(refusal) if was_recorded(&finished, &refusal) => self.tell(&finished),
                Err(refusal) => {
                    self.shared.lose(&finished.inflight, &LossReason::Refused(refusal));
                }
            }
            over.push(finished.inflight);
        }
        self.shared.registry.remove(&over);
        self.resolve_acked(acked).await;
    }

    /// Takes jobs that their handlers acknowledged in a transaction and that are not inflight any
    /// more. If the job is done, the transaction was committed: under a valid lease no other worker
    /// can have completed it.
    async fn resolve_acked(&mut self, acked: Vec<Finished>) {
        let mut acked = acked.into_iter();
        loop {
            let some: Vec<Finished> = acked.by_ref().take(ACKED_AT_ONCE).collect();
            if some.is_empty() {
                return;
            }
            let queries = some.iter().map(|it| OutputQuery::of(it.inflight.job.id.clone()));
            let call = self.shared.driver.outputs(Outputs::new(queries.collect(), 1));
            let call = self.shared.call(Part::Settler, Operation::Outputs, some.len(), call);
            let Ok(pages) = call.await else {
                some.into_iter().for_each(|finished| self.ask_again(finished));
                continue;
            };
            for (finished, page) in some.iter().zip(pages) {
                let refusal = Refusal::JobNotInflight;
                let is_done = |page: OutputPage| {
                    matches!(page.entries[..], [OutputEntry::Done(_) | OutputEntry::List(_)])
                };
                if page.is_ok_and(is_done) {
                    self.tell_committed(finished);
                } else if was_recorded(finished, &refusal) {
                    self.tell(finished);
                } else {
                    self.shared.lose(&finished.inflight, &LossReason::Refused(refusal));
                }
            }
            self.shared.registry.remove(some.iter().map(|finished| &finished.inflight));
        }
    }

    /// The store was asked about a job and did not answer: settling it again asks again.
    fn ask_again(&mut self, mut finished: Finished) {
        finished.inflight.end_settling();
        finished.resume_at = Some(Instant::now() + self.shared.backoff(1).min(MAX_BACKOFF));
        self.waiting.push(finished);
    }

    /// Reports that the handler completed the job in its own transaction, so that no other outcome
    /// was recorded.
    fn tell_committed(&self, finished: &Finished) {
        if let Some(acked) = &finished.resolution.acked {
            let job = &finished.inflight.job;
            self.shared.tell(&Event::Succeeded { job, took: acked.took });
        }
    }

    fn tell(&self, finished: &Finished) {
        let job = &finished.inflight.job;
        if let Some(acked) = &finished.resolution.acked
            && let Some(error) = &acked.failure
        {
            self.shared.tell(&Event::Failed { job, error, took: acked.took });
        }
        self.shared.tell(&match &finished.resolution.report {
            Report::Succeeded { took } => Event::Succeeded { job, took: *took },
            Report::Retried { run_at } => Event::Retried { job, run_at: *run_at },
            Report::DeadLettered { reason } => Event::DeadLettered { job, reason },
            Report::Released { why } => Event::Released { job, why: *why },
        });
        let is_terminal = matches!(
            finished.resolution.report,
            Report::Succeeded { .. } | Report::DeadLettered { .. }
        );
        if is_terminal
            && self.shared.key_waits.load(Ordering::SeqCst)
            && job.headers.get(header::SCHEDULE).is_some()
        {
            self.shared.key_freed.notify_one();
        }
    }
}

/// What goes into the next call: all that may go together, or one that goes alone.
fn take_batch(waiting: &mut Vec<Finished>) -> Batch {
    let now = Instant::now();
    let (mut batch, mut left) = (Vec::with_capacity(waiting.len()), Vec::new());
    let (mut bytes, mut jobs, mut ids) = (0, 0, HashSet::<JobId>::new());
    let mut is_full = false;
    // A job that has come back while an earlier outcome of it waits may be here twice.
    let may_repeat = waiting.iter().any(|it| it.unanswered || it.refused > 0);
    for finished in waiting.drain(..) {
        let alone = finished.refused > 0;
        let fits = !is_full && (!alone || batch.is_empty());
        let is_time = finished.resume_at.is_none_or(|at| at <= now);
        // A call names a job once.
        let repeats = may_repeat && ids.contains(&finished.inflight.job.id);
        let goes = fits && is_time && !repeats;
        let token = if goes { finished.inflight.begin_settling() } else { None };
        let Some(token) = token else {
            left.push(finished);
            continue;
        };
        let transition = &finished.resolution.transition;
        bytes += transition.bytes();
        jobs += 1 + transition.expansion_jobs();
        if may_repeat {
            ids.insert(finished.inflight.job.id.clone());
        }
        batch.push((finished, token));
        is_full = alone || batch.len() == BATCH || bytes > BATCH_BYTES || jobs > BATCH_JOBS;
    }
    *waiting = left;
    batch
}

async fn settle(shared: &Shared, request: Settle) -> Answers {
    let items = request.items.len();
    shared.call(Part::Settler, Operation::Settle, items, shared.driver.settle(request)).await
}

fn request(shared: &Shared, batch: &[(Finished, LeaseToken)]) -> Settle {
    let items = batch.iter().map(|(finished, token)| {
        let id = finished.inflight.job.id.clone();
        Settlement::new(id, *token, finished.resolution.transition.clone())
    });
    Settle::new(items.collect(), shared.now())
}

/// Whether the refusal means that an earlier call, whose answer was lost, has arrived. A repeated ack
/// or dead-lettering is answered as such; a repeated retry or release is refused, since the job is
/// not inflight any more.
fn was_recorded(finished: &Finished, refusal: &Refusal) -> bool {
    let ends_lease = matches!(
        finished.resolution.transition,
        Transition::Retry { .. } | Transition::Release { .. }
    );
    let gone =
        matches!(refusal, Refusal::JobNotInflight | Refusal::LeaseMismatch | Refusal::JobNotFound);
    finished.unanswered && ends_lease && gone
}
