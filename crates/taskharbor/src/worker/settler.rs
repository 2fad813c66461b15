//! The loop that records what became of jobs.
//!
//! Outcomes gather while a call is in the air and go together in the next one: full batches under
//! load, no delay when idle. What could not be sent is sent again while the lease lives.

use std::{sync::Arc, time::Duration};

use taskharbor_core::{
    Driver, DriverError, LeaseToken, Limits, Refusal, Settle, Settled, Settlement, Text, Transition,
};
use tokio::sync::mpsc;

use super::{
    outage::Part,
    shared::{Phase, Shared},
    verdict::{self, Report, Verdict},
};
use crate::{Event, LossReason, inflight::Inflight};

/// A call carries no more outcomes than this.
const BATCH: usize = 1_000;
/// A call stops taking outcomes when they reach a quarter of what a call may carry.
const BATCH_BYTES: usize = Limits::MAX_CALL_BYTES / 4;
const BATCH_JOBS: usize = Limits::MAX_CALL_JOBS / 4;
/// An outcome is worth more than a reservation, so it is tried again more often.
const MAX_BACKOFF: Duration = Duration::from_secs(1);

/// A job that has ended, and what is to be recorded.
#[derive(Debug)]
pub(super) struct Finished {
    inflight: Arc<Inflight>,
    verdict: Verdict,
    /// It was sent before, and nobody knows whether that arrived.
    unanswered: bool,
}

impl Finished {
    pub(super) fn new(inflight: Arc<Inflight>, verdict: Verdict) -> Self {
        inflight.end();
        Self { inflight, verdict, unanswered: false }
    }
}

pub(super) async fn run(shared: Arc<Shared>, inbox: mpsc::Receiver<Finished>) {
    let mut settler = Settler { shared, inbox, waiting: Vec::new(), failures: 0 };
    while settler.gather().await {
        settler.drop_lost();
        let batch = settler.take_batch();
        if batch.is_empty() {
            settler.let_keeper_finish().await;
        } else {
            settler.send(batch).await;
        }
    }
}

struct Settler {
    shared: Arc<Shared>,
    inbox: mpsc::Receiver<Finished>,
    waiting: Vec<Finished>,
    failures: u32,
}

impl Settler {
    /// Waits for something to record; `false` ends the loop.
    async fn gather(&mut self) -> bool {
        if self.shared.phase() == Phase::Ended {
            return false;
        }
        if self.waiting.is_empty() {
            tokio::select! {
                biased;
                () = self.shared.reached(Phase::Ended) => return false,
                got = self.inbox.recv_many(&mut self.waiting, BATCH) => return got > 0,
            }
        }
        while self.waiting.len() < BATCH
            && let Ok(finished) = self.inbox.try_recv()
        {
            self.waiting.push(finished);
        }
        true
    }

    /// Forgets what may not be recorded any more.
    fn drop_lost(&mut self) {
        let shared = &self.shared;
        let now = shared.now();
        let lost = self.waiting.extract_if(.., |finished| {
            let expired = now >= finished.inflight.expires_at();
            if expired {
                shared.lose(&finished.inflight, &LossReason::Unreachable);
            }
            expired || finished.inflight.is_lost()
        });
        let lost: Vec<_> = lost.map(|finished| finished.inflight).collect();
        if !lost.is_empty() {
            shared.registry.remove(&lost);
            if self.waiting.is_empty() {
                // Nothing is left for which a call could fail.
                shared.outage.answered(Part::Settler, &shared.observers);
            }
        }
    }

    /// What goes into the next call: all but what the keeper has in the air.
    fn take_batch(&mut self) -> Vec<(Finished, LeaseToken)> {
        let (mut batch, mut left) = (Vec::with_capacity(self.waiting.len()), Vec::new());
        let (mut bytes, mut jobs) = (0, 0);
        for finished in self.waiting.drain(..) {
            let full = batch.len() == BATCH || bytes > BATCH_BYTES || jobs > BATCH_JOBS;
            let token = if full { None } else { finished.inflight.begin_settling() };
            let Some(token) = token else {
                left.push(finished);
                continue;
            };
            let transition = &finished.verdict.transition;
            bytes += transition.bytes();
            jobs += transition.grown_jobs();
            batch.push((finished, token));
        }
        self.waiting = left;
        batch
    }

    async fn let_keeper_finish(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        tokio::select! {
            biased;
            () = self.shared.reached(Phase::Ended) => {}
            () = self.shared.registry.extended() => {}
        }
    }

    async fn send(&mut self, batch: Vec<(Finished, LeaseToken)>) {
        let shared = Arc::clone(&self.shared);
        match settle(&shared, &batch).await {
            Ok(answers) => {
                self.failures = 0;
                self.take_answers(batch, answers);
            }
            Err(DriverError::Closed) => {
                self.waiting.extend(batch.into_iter().map(|(finished, _)| finished));
            }
            Err(error) => self.send_again(batch, &error).await,
        }
    }

    /// The call as a whole failed. If one outcome may have spoilt it for all, each is sent alone.
    async fn send_again(&mut self, batch: Vec<(Finished, LeaseToken)>, error: &DriverError) {
        let unknown =
            matches!(error, DriverError::Unavailable(_) | DriverError::ContractViolation(_));
        let shared = Arc::clone(&self.shared);
        let is_single = batch.len() == 1;
        for (mut finished, token) in batch {
            finished.unanswered |= unknown;
            if !unknown && !is_single {
                let alone = [(finished, token)];
                let answer = settle(&shared, &alone).await;
                let [(mut again, token)] = alone;
                match answer {
                    Ok(answers) => {
                        self.take_answers(vec![(again, token)], answers);
                        continue;
                    }
                    Err(error) => {
                        again.unanswered |= matches!(error, DriverError::Unavailable(_));
                        finished = again;
                    }
                }
            }
            finished.inflight.end_settling();
            self.waiting.push(finished);
        }
        if self.waiting.is_empty() {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        let backoff = shared.backoff(self.failures).min(MAX_BACKOFF);
        tokio::select! {
            biased;
            () = shared.reached(Phase::Ended) => {}
            () = tokio::time::sleep(backoff) => {}
        }
    }

    fn take_answers(
        &mut self,
        batch: Vec<(Finished, LeaseToken)>,
        answers: Vec<Result<Settled, Refusal>>,
    ) {
        let mut over = Vec::with_capacity(batch.len());
        for ((mut finished, _), answer) in batch.into_iter().zip(answers) {
            match answer {
                Ok(Settled::Applied | Settled::AlreadyTerminal) => self.tell(&finished),
                Err(Refusal::Invalid(error)) => {
                    // No job can end like this, so it ends as what it is: a failure.
                    let text = Text::new(error.to_string());
                    let (job, now) = (&finished.inflight.job, self.shared.now());
                    finished.verdict = verdict::dead_letter(job, text.clone(), text, now);
                    finished.inflight.end_settling();
                    self.waiting.push(finished);
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
    }

    fn tell(&self, finished: &Finished) {
        let job = &finished.inflight.job;
        self.shared.tell(&match &finished.verdict.report {
            Report::Succeeded { took } => Event::Succeeded { job, took: *took },
            Report::Retried { run_at } => Event::Retried { job, run_at: *run_at },
            Report::DeadLettered { reason } => Event::DeadLettered { job, reason },
            Report::Released { why } => Event::Released { job, why: *why },
        });
    }
}

async fn settle(
    shared: &Shared,
    batch: &[(Finished, LeaseToken)],
) -> Result<Vec<Result<Settled, Refusal>>, DriverError> {
    let items = batch.iter().map(|(finished, token)| {
        let id = finished.inflight.job.id.clone();
        Settlement::new(id, *token, finished.verdict.transition.clone())
    });
    let request = Settle::new(items.collect(), shared.now());
    shared.call(Part::Settler, "settle", shared.driver.settle(request)).await
}

/// Whether the refusal means that an earlier call, whose answer was lost, has arrived. Success and
/// dead-lettering are answered as such when they are repeated; a retry or release has let the job
/// go, and whoever repeats it is refused.
fn was_recorded(finished: &Finished, refusal: &Refusal) -> bool {
    let lets_go = matches!(
        finished.verdict.transition,
        Transition::Retry { .. } | Transition::Release { .. }
    );
    let gone =
        matches!(refusal, Refusal::JobNotInflight | Refusal::LeaseMismatch | Refusal::JobNotFound);
    finished.unanswered && lets_go && gone
}
