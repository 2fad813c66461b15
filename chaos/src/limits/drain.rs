//! Bringing every job to an end, and counting the places that are then free.

use std::time::Duration;

use taskharbor_core::{
    Admin, AnyDriver, Driver, State,
    admin::{Counts, Filter, List, StateCounts},
    driver::{Demand, Enqueue, Leased, Reserve, Settle, Settlement, Transition},
    job::JobSet,
    name::{Holder, LaneName},
};

use super::{
    history::{Lane, Places, Stored},
    observer::Observer,
    queue::{Kind, Maker},
    setting::Settings,
};
use crate::Outcome;

/// Longer than any delay, lease or hold.
const LATER: Duration = Duration::from_secs(3_600);
/// Long enough for any rate to grant a burst again.
const STEP: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(60);
const BATCH: usize = 300;
/// So often a call may grant nothing before jobs count as stuck.
const FRUITLESS: usize = 30;
/// More jobs than any final limit has places.
const PROBES: usize = 8;

pub(crate) struct Drainer<'a> {
    pub(crate) driver: &'a AnyDriver,
    pub(crate) observer: &'a Observer,
    pub(crate) settings: &'a Settings,
}

impl Drainer<'_> {
    /// Acks everything. What is never granted is left, for the verdict to tell.
    pub(crate) async fn drain(&self) -> Outcome {
        self.settings.resume(self.observer).await?;
        self.observer.advance(LATER);
        let mut fruitless = 0;
        while fruitless < FRUITLESS && self.live().await? > 0 {
            let mut granted = Vec::new();
            for kind in Kind::ALL {
                granted.extend(self.reserve(kind).await?);
            }
            fruitless = if granted.is_empty() { fruitless + 1 } else { 0 };
            self.ack(granted).await?;
            self.observer.advance(STEP);
        }
        Ok(())
    }

    async fn live(&self) -> Outcome<usize> {
        let counts = self.driver.counts(Counts::new(self.observer.now())).await?;
        let total: StateCounts = counts.into_iter().map(|of| of.states).sum();
        let live = State::ALL.iter().filter(|state| !state.is_terminal());
        Ok(live.map(|state| total.get(*state)).sum())
    }

    async fn reserve(&self, kind: Kind) -> Outcome<Vec<Leased>> {
        let sent = self.observer.send("reserve");
        let demands = vec![Demand::new(kind.queue()?, BATCH)];
        let request = Reserve::new(demands, Holder::new("drain")?, sent.at, LEASE);
        let reserved = self.driver.reserve(request).await?;
        self.observer.granted(sent, &reserved);
        Ok(reserved.jobs)
    }

    async fn ack(&self, jobs: Vec<Leased>) -> Outcome {
        let ack = Transition::Ack { output: None };
        let items = jobs
            .into_iter()
            .map(|leased| Settlement::new(leased.job.id, leased.lease.token, ack.clone()));
        let items: Vec<Settlement> = items.collect();
        let sent = self.observer.send_end(items.iter().map(|item| item.token));
        for items in items.chunks(BATCH) {
            let settle = Settle::new(items.to_vec(), sent.at);
            for (item, answer) in items.iter().zip(self.driver.settle(settle).await?) {
                answer
                    .map_err(|refusal| format!("the ack of {} is refused: {refusal}", item.id))?;
            }
        }
        Ok(())
    }

    /// Counts how many jobs are granted at once: when all leases have ended, when those of the first
    /// count have run out, and when those of the second were acked.
    pub(crate) async fn count_places(&self) -> Outcome {
        let mut maker = Maker::new(usize::MAX);
        for kind in Kind::ALL {
            let Some(limits) = kind.final_limits() else { continue };
            let lanes: Vec<Lane> = match limits.per_lane {
                Some(_) => ["a", "f"].iter().map(|lane| LaneName::new(lane).ok()).collect(),
                None => vec![None],
            };
            let limit = limits.per_lane.or(limits.inflight).ok_or("a final limit is missing")?;
            self.settings.set_limits(kind, limits, self.observer).await?;
            for lane in &lanes {
                self.enqueue(kind, lane, &mut maker).await?;
            }
            self.count(kind, &lanes, limit as usize).await?;
            self.observer.advance(LEASE);
            let jobs = self.count(kind, &lanes, limit as usize).await?;
            self.ack(jobs).await?;
            self.count(kind, &lanes, limit as usize).await?;
        }
        self.drain().await
    }

    async fn enqueue(&self, kind: Kind, lane: &Lane, maker: &mut Maker) -> Outcome {
        let jobs = (0..PROBES).map(|_| maker.job_of(kind, lane.clone()));
        let jobs = jobs.collect::<Result<Vec<_>, _>>()?;
        let sent = self.observer.send("enqueue");
        let sets = jobs.iter().cloned().map(JobSet::from).collect();
        for answer in self.driver.enqueue(Enqueue::new(sets, sent.at)).await? {
            answer?;
        }
        self.observer.answer(|history, moment| {
            for job in jobs {
                let (queue, lane, acknowledged) = (job.queue, job.lane, moment);
                history.jobs.insert(job.id, Stored { queue, lane, acknowledged, is_due: true });
            }
        });
        Ok(())
    }

    async fn count(&self, kind: Kind, lanes: &[Lane], limit: usize) -> Outcome<Vec<Leased>> {
        let (jobs, queue) = (self.reserve(kind).await?, kind.queue()?);
        self.observer.answer(|history, _| {
            for lane in lanes {
                let granted = jobs.iter().filter(|leased| leased.job.lane == *lane).count();
                let (queue, lane) = (queue.clone(), lane.clone());
                history.places.push(Places { queue, lane, limit, granted });
            }
        });
        Ok(jobs)
    }

    /// Writes down every job that is stored.
    pub(crate) async fn list(&self) -> Outcome {
        let mut request = List::new(Filter::all(), 1_000, self.observer.now());
        loop {
            let page = self.driver.list(request.clone()).await?;
            self.observer.answer(|history, _| {
                history.states.extend(page.items.into_iter().map(|job| (job.id, job.state)));
            });
            match page.next {
                Some(next) => request = request.after(next),
                None => return Ok(()),
            }
        }
    }
}
