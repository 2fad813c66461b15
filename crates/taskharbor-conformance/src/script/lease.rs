//! The steps of a script that take jobs, extend their leases and settle them.

use std::time::Duration;

use taskharbor_core::{
    Blob, Driver, JobId, State, Text, Timestamp,
    driver::{
        Demand, ExtendLeases, Extension, LeaseMark, LeaseToken, Reserve, Settle, Settlement,
        Transition,
    },
    flow::Expansion,
    job::{FailedAttempt, ReleaseNote, ReleaseReason},
};

use super::{
    Pick, Turn,
    compare::{both, same},
    follow::follow,
    plan::{job_id, queue_name, seconds_from},
    replay::{Grant, Replay},
    worker::holder_name,
};
use crate::model::Model;

impl Replay<'_> {
    pub(super) async fn reserve(
        &mut self,
        demands: &[(u8, usize)],
        holder: u8,
        lease_for: Duration,
        now: Timestamp,
    ) -> Result<(), String> {
        let demands =
            demands.iter().map(|(queue, limit)| Demand::new(queue_name(*queue), *limit)).collect();
        let request = Reserve::new(demands, holder_name(holder), now, lease_for);
        let expires_at = request.check();
        let answers = both("reserve", self.driver.reserve(request.clone()).await, expires_at)?;
        let Some((answer, expires_at)) = answers else { return Ok(()) };
        let cancelled = self.cancelled_by(&request).await?;
        let mut states = follow(&self.model, &request, expires_at, &answer, &cancelled)
            .map_err(|reason| format!("{reason}\n  driver: {answer:?}"))?;
        let (at, matching) = self.matching(&states, &cancelled, now).await?;
        let turns: Vec<_> = matching.iter().map(|at| states[*at].turns.clone()).collect();
        self.model = states.swap_remove(at);
        for (queue, turns) in turns.into_iter().flatten() {
            self.model.turns.entry(queue).or_default().extend(turns);
        }
        for (id, reason) in std::mem::take(&mut self.reasons) {
            self.model.adopt_reason(&id, &reason);
        }
        for leased in answer.jobs {
            let (id, token) = (leased.job.id, leased.lease.token);
            if self.grants.iter().any(|grant| grant.token == token) {
                return Err(format!("the token of {id} was given before"));
            }
            self.grants.push(Grant { id, token, expires_at: leased.lease.expires_at });
        }
        Ok(())
    }

    /// The marked jobs with a lease that has ended that the driver cancelled in this call.
    async fn cancelled_by(&self, request: &Reserve) -> Result<Vec<JobId>, String> {
        let mut cancelled = Vec::new();
        for job in &self.model.jobs {
            let is_marked = job.life.active_lease().is_some_and(|it| it.cancel_requested);
            if is_marked && job.life.is_expired(request.now) {
                let record = self.inspect(&job.new.id, request.now).await?;
                if record.is_some_and(|it| it.state == State::Cancelled) {
                    cancelled.push(job.new.id.clone());
                }
            }
        }
        Ok(cancelled)
    }

    /// Which of these states the driver is in, as far as its records show, and all that look the
    /// same. Of several jobs that were cancelled in one call, the reason of a dependant may name any.
    async fn matching(
        &mut self,
        states: &[Model],
        cancelled: &[JobId],
        now: Timestamp,
    ) -> Result<(usize, Vec<usize>), String> {
        if cancelled.is_empty() {
            return Ok((0, (0..states.len()).collect()));
        }
        let mut records = Vec::new();
        for job in &self.model.jobs {
            records.push(self.inspect(&job.new.id, now).await?);
        }
        let names_one = |reason: &Text| {
            cancelled
                .iter()
                .any(|id| reason.as_str() == format!("job {id} of the same flow failed"))
        };
        let matches = |state: &&Model| {
            records.iter().enumerate().all(|(at, record)| {
                let mut expected = state.record(at, now);
                if let (Some(Some(reason)), Some(other)) =
                    (record.as_ref().map(|it| &it.reason), &expected.reason)
                    && names_one(reason)
                    && names_one(other)
                {
                    expected.reason = Some(reason.clone());
                }
                *record == Some(expected)
            })
        };
        let states = states.iter().enumerate();
        let matching: Vec<usize> =
            states.filter(|(_, state)| matches(state)).map(|(at, _)| at).collect();
        let at = matching.first().copied().unwrap_or(0);
        self.reasons = records
            .into_iter()
            .flatten()
            .filter_map(|it| Some((it.job.id, it.reason.filter(names_one)?)))
            .collect();
        Ok((at, matching))
    }

    pub(super) async fn extend(
        &mut self,
        picks: &[Pick],
        lease_for: Duration,
        now: Timestamp,
    ) -> Result<(), String> {
        let pick = |pick: &Pick| {
            let (id, token) = self.pick(*pick);
            let mut item = Extension::new(id, token).progress(Text::new(format!("at {now}")));
            item.mark =
                [None, Some(LeaseMark::Started), Some(LeaseMark::Leaving)][self.grants.len() % 3];
            item
        };
        let request = ExtendLeases::new(picks.iter().map(pick).collect(), now, lease_for);
        let model = self.model.extend(request.clone());
        let answers = both("extend", self.driver.extend_leases(request.clone()).await, model)?;
        let Some((driver, model)) = answers else { return Ok(()) };
        for (item, (driver, model)) in request.items.iter().zip(driver.iter().zip(&model)) {
            let bare = |answer: &Result<taskharbor_core::driver::Extended, _>| {
                answer.clone().map(|it| (it.lease.expires_at, it.cancel_requested))
            };
            same("extend", &bare(driver), &bare(model))?;
            if let Ok(extended) = driver {
                self.model.adopt(&item.id, extended.lease.token);
                let grants = self.grants.iter_mut();
                for grant in grants.filter(|grant| grant.token == item.token) {
                    grant.token = extended.lease.token;
                    grant.expires_at = extended.lease.expires_at;
                }
            }
        }
        same("extend: answers", &driver.len(), &model.len())
    }

    pub(super) async fn settle(
        &mut self,
        items: &[(Pick, Turn)],
        now: Timestamp,
    ) -> Result<(), String> {
        let settlement = |(pick, turn): &(Pick, Turn)| {
            let (id, token) = self.pick(*pick);
            Settlement::new(id, token, self.transition(turn, now))
        };
        let request = Settle::new(items.iter().map(settlement).collect(), now);
        let ids: Vec<JobId> = request.items.iter().map(|item| item.id.clone()).collect();
        let model = self.model.settle(request.clone());
        match both("settle", self.driver.settle(request).await, model)? {
            Some((driver, model)) => same(&format!("settle {ids:?}"), &driver, &model),
            None => Ok(()),
        }
    }

    fn pick(&self, pick: Pick) -> (JobId, LeaseToken) {
        let unknown = || (job_id(u8::MAX), LeaseToken::from_bits(1));
        let id = self.newest(pick.grant).map_or_else(|| unknown().0, |grant| grant.id.clone());
        let token = self.newest(pick.token_of).map_or_else(|| unknown().1, |grant| grant.token);
        (id, token)
    }

    fn transition(&self, turn: &Turn, now: Timestamp) -> Transition {
        let at = |offset: &Option<i64>| offset.map(|offset| seconds_from(now, offset));
        let attempts = u32::try_from(self.grants.len()).unwrap_or(1) % 7 + 1;
        let failure = || FailedAttempt::new(attempts, "it failed", now);
        match turn {
            Turn::Ack(output) => Transition::Ack { output: output.map(|byte| Blob::from(&[byte])) },
            Turn::Expand(plan) => Transition::Expand(Expansion::new(self.jobs(plan, now))),
            Turn::Retry(run_at) => Transition::Retry { failure: failure(), run_at: at(run_at) },
            Turn::Fail => {
                Transition::Fail { failure: failure(), reason: Text::new("no more attempts") }
            }
            Turn::Release(run_at) => {
                let (run_at, text) = (at(run_at), format!("at {now}"));
                let note = ReleaseNote::new(ReleaseReason::Snoozed, text).unfit_since(run_at);
                let note = (attempts % 3 > 0).then_some(note);
                Transition::Release { run_at, started: attempts % 2 == 0, note }
            }
        }
    }
}
