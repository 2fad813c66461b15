//! The comparison of the logs of workers, the acknowledged enqueues and the stored jobs.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
};

use taskharbor_core::{JobId, State, driver::LeaseToken};

use super::{
    LEASE,
    log::{Line, What},
    producer::Acknowledged,
};
use crate::Outcome;

/// How exact the clock of a worker is: half of the round trip in which it asked the store, on a machine
/// with more to do than it can.
const CLOCK_ERROR_US: i64 = 100_000;
#[expect(clippy::cast_possible_truncation, reason = "a few seconds")]
const LEASE_US: i64 = LEASE.as_micros() as i64;
/// All handles have asked the store for its time after so long.
const NOTICED_US: i64 = 15_000_000;
/// How long a delayed job may take to start on workers that are broken all the time.
const SOON_US: i64 = 10_000_000;

/// What was found.
pub(crate) struct Verdict {
    problems: Vec<String>,
    stale: Vec<(JobId, LeaseToken)>,
    jobs: usize,
    chords: usize,
    programs: usize,
    runs: usize,
    lost: usize,
}

/// What happened to one job, by its deliveries.
#[derive(Default)]
struct History {
    deliveries: BTreeMap<u32, Delivery>,
    tokens: HashMap<LeaseToken, u32>,
    /// Settlements that were recorded: when they were sent, by which delivery, and whether they end the
    /// job.
    settled: Vec<(i64, LeaseToken, bool)>,
    succeeded: usize,
}

#[derive(Default)]
struct Delivery {
    granted_at: Option<i64>,
    /// The latest time by the store's clock from when its worker asked for the job until it started it.
    clock: i64,
    /// The latest end of its lease that its worker knew, by the store's clock.
    lease_end: i64,
    /// When its worker has stopped its handler unless a heartbeat is answered, by the machine's clock.
    given_up_at: i64,
    started_at: Option<i64>,
    ended_at: Option<i64>,
}

impl Verdict {
    pub(crate) fn of(
        lines: &[Line],
        acknowledged: &Acknowledged,
        stored: &HashMap<JobId, State>,
    ) -> Self {
        let mut problems = Vec::new();
        let mut jobs: HashMap<&JobId, History> = HashMap::new();
        let mut tokens = HashSet::new();
        for line in lines {
            if let What::Grant { token, .. } = &line.what
                && !tokens.insert(*token)
            {
                problems.push(format!("{}: a token was granted twice", line.job));
            }
            jobs.entry(&line.job).or_default().add(line, &mut problems);
        }
        for (id, job) in &jobs {
            job.check_overlaps(id, &mut problems);
            job.check_settlements(id, &mut problems);
        }
        let chords = acknowledged.chords.iter().map(|(id, _)| (id, State::Done));
        let expected = acknowledged.jobs.iter().map(|(id, state)| (id, *state)).chain(chords);
        for (id, expected) in expected {
            let state = stored.get(id).copied();
            if state != Some(expected) {
                problems.push(format!("{id}: acknowledged, and is {state:?}, not {expected}"));
            }
            let succeeded = jobs.get(id).map_or(0, |job| job.succeeded);
            if (expected == State::Done) != (succeeded > 0) {
                problems.push(format!("{id}: {expected} after {succeeded} runs that succeeded"));
            }
        }
        problems.sort();
        let runs = lines.iter().filter(|line| matches!(line.what, What::Start { .. })).count();
        let begun =
            jobs.values().filter(|job| job.deliveries.values().any(|it| it.started_at.is_some()));
        let lost = runs - begun.count();
        let stale =
            jobs.iter().flat_map(|(id, job)| job.stale().map(|token| ((*id).clone(), token)));
        let (jobs, chords, stale) =
            (acknowledged.jobs.len(), acknowledged.chords.len(), stale.collect());
        let programs = acknowledged.programs.len();
        Self { problems, stale, jobs, chords, programs, runs, lost }
    }

    /// Tokens of deliveries that were not the last of their job.
    pub(crate) fn stale_tokens(&self) -> Vec<(JobId, LeaseToken)> {
        self.stale.clone()
    }

    /// Work goes on soon after the store's clock was set back at these times: of the delayed jobs that
    /// were acknowledged once all handles must have noticed, one starts soon. Where the clock was set
    /// back again before that, nothing is expected: all workers that noticed may have been replaced, and
    /// what producers store until they notice is late.
    pub(crate) fn expect_work(
        &mut self,
        lines: &[Line],
        delayed: &[(JobId, i64)],
        set_back_at: &[i64],
    ) {
        let starts = lines.iter().filter(|line| matches!(line.what, What::Start { .. }));
        let mut first: HashMap<&JobId, i64> = HashMap::new();
        for line in starts {
            let at = first.entry(&line.job).or_insert(line.at);
            *at = line.at.min(*at);
        }
        let is_alone = |(at, back): &(usize, &i64)| {
            set_back_at.get(at + 1).is_none_or(|next| next - *back >= NOTICED_US + SOON_US)
        };
        for (_, back) in set_back_at.iter().enumerate().filter(is_alone) {
            let window = back + NOTICED_US..back + NOTICED_US + SOON_US;
            let mut enqueued = delayed.iter().filter(|(_, at)| window.contains(at)).peekable();
            let is_observed = enqueued.peek().is_some();
            let goes_on =
                enqueued.any(|(id, at)| first.get(id).is_some_and(|it| it - at < SOON_US));
            self.expect(goes_on || !is_observed, || {
                format!("no delayed job ran soon after the clock was set back at {back}")
            });
        }
    }

    pub(crate) fn expect(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.problems.push(otherwise());
        }
    }

    pub(crate) fn fail(self) -> Outcome {
        crate::fail_if_any(&self.problems)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { jobs, chords, programs, runs, lost, stale, .. } = self;
        let stale = stale.len();
        write!(
            f,
            "{jobs} jobs, {chords} chords and {programs} programs acknowledged, {runs} runs of which {lost} were "
        )?;
        write!(f, "repeats, {stale} stale tokens tried again")
    }
}

impl History {
    fn add(&mut self, Line { at, clock, job, what }: &Line, problems: &mut Vec<String>) {
        let by = |token: &LeaseToken| self.tokens.get(token).copied();
        match what {
            What::Grant { delivery, token, expires_at, asked } => {
                self.tokens.insert(*token, *delivery);
                let granted = self.deliveries.entry(*delivery).or_default();
                if granted.granted_at.replace(*at).is_some() {
                    problems.push(format!("{job}: delivery {delivery} was granted twice"));
                }
                granted.lease_end = granted.lease_end.max(*expires_at);
                granted.clock = *clock.max(asked);
                granted.given_up_at = *at + LEASE_US;
            }
            What::Extend { token, expires_at } => {
                if let Some(delivery) = by(token) {
                    let extended = self.deliveries.entry(delivery).or_default();
                    extended.lease_end = extended.lease_end.max(*expires_at);
                    extended.given_up_at = *at + LEASE_US;
                }
            }
            What::Start { delivery } => {
                let started = self.deliveries.entry(*delivery).or_default();
                started.clock = started.clock.max(*clock);
                if started.granted_at.is_none() || started.started_at.replace(*at).is_some() {
                    problems.push(format!("{job}: delivery {delivery} started twice or ungranted"));
                }
            }
            What::End { delivery, succeeded } => {
                self.deliveries.entry(*delivery).or_default().ended_at = Some(*at);
                self.succeeded += usize::from(*succeeded);
            }
            What::Settle { token, began, ends } => self.settled.push((*began, *token, *ends)),
        }
    }

    /// A run starts after the end of the run before it, or of that run's lease. The lease has ended by
    /// the store's clock, or by that of its worker: a clock that was set back makes it last longer than
    /// its worker relies on.
    fn check_overlaps(&self, id: &JobId, problems: &mut Vec<String>) {
        let runs: Vec<(&u32, &Delivery, i64)> = self
            .deliveries
            .iter()
            .filter_map(|(number, it)| Some((number, it, it.started_at?)))
            .collect();
        for ((_, before, _), (number, run, started_at)) in runs.iter().zip(runs.iter().skip(1)) {
            let has_ended = before.ended_at.is_some_and(|ended_at| ended_at <= *started_at);
            let early = (before.lease_end - run.clock).min(before.given_up_at - started_at);
            if !has_ended && early > CLOCK_ERROR_US {
                let early = early / 1_000;
                problems.push(format!(
                    "{id}: delivery {number} started {early} ms before the lease of the run before ended"
                ));
            }
        }
    }

    /// A worker that has lost its lease changes nothing, and a job ends once.
    fn check_settlements(&self, id: &JobId, problems: &mut Vec<String>) {
        let last = self.deliveries.keys().next_back().copied().unwrap_or_default();
        for (began, token, ends) in &self.settled {
            let Some(delivery) = self.tokens.get(token) else {
                problems.push(format!("{id}: settled by a token that was not granted"));
                continue;
            };
            let mut later = self.deliveries.range(delivery + 1..).map(|(_, later)| later);
            if later.any(|later| later.granted_at.is_some_and(|at| at < *began)) {
                problems.push(format!("{id}: delivery {delivery} settled it after it was lost"));
            }
            if *ends && *delivery != last {
                problems.push(format!("{id}: delivered after delivery {delivery} had ended it"));
            }
        }
        let ended = self.settled.iter().filter(|(.., ends)| *ends).count();
        if ended > 1 {
            problems.push(format!("{id}: ended {ended} times"));
        }
    }

    /// The tokens of all deliveries but the last.
    fn stale(&self) -> impl Iterator<Item = LeaseToken> {
        let last = self.deliveries.keys().next_back().copied();
        let stale = self.tokens.iter().filter(move |(_, delivery)| Some(**delivery) != last);
        stale.map(|(token, _)| *token)
    }
}
