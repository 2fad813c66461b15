//! Bringing every job to an end after a round, and looking at what is stored then.

use std::{collections::HashMap, time::Duration};

use taskharbor_core::{
    Admin, AnyDriver, Driver, JobId, QueueName, State, Timestamp,
    admin::{Action, Change, Configure, Filter, List, Manage, Prune},
    driver::{Demand, Reserve, Settle, Settled, Settlement, Transition},
    export::Imported,
    flow::{FlowState, ListFlows},
    name::Holder,
};
use taskharbor_memory::MemoryDriver;

use super::{
    event::{Deed, Event, What},
    job::QUEUES,
    world::World,
};
use crate::Outcome;

/// Longer than any delay or lease of a session.
const LATER: Duration = Duration::from_secs(3_600);
const LEASE: Duration = Duration::from_secs(60);
const BATCH: usize = 300;

pub(crate) struct Drainer<'a> {
    driver: &'a AnyDriver,
    world: &'a World,
    now: Timestamp,
    pub(crate) events: Vec<Event>,
}

impl<'a> Drainer<'a> {
    pub(crate) fn new(driver: &'a AnyDriver, world: &'a World) -> Self {
        let now = world.tick().saturating_add(LATER);
        Self { driver, world, now, events: Vec::new() }
    }

    fn tick(&mut self) -> Timestamp {
        self.now = self.now.saturating_add(Duration::from_millis(1));
        self.now
    }

    fn note(&mut self, began: u64, now: Timestamp, seen: impl IntoIterator<Item = What>) {
        let ended = self.world.moment();
        self.events.extend(seen.into_iter().map(|what| Event { began, ended, now, what }));
    }

    /// Acks what can run, and cancels flows that wait for a person, until nothing is left.
    pub(crate) async fn drain(&mut self) -> Outcome {
        let queues = QUEUES.into_iter().map(QueueName::new).collect::<Result<Vec<_>, _>>()?;
        let resume = queues.iter().cloned().map(Change::ResumeQueue).collect();
        for answer in self.driver.configure(Configure::new(resume, self.now)).await? {
            answer?;
        }
        while self.run_some(&queues).await? || self.cancel_blocked().await? {}
        Ok(())
    }

    async fn run_some(&mut self, queues: &[QueueName]) -> Outcome<bool> {
        let (now, began) = (self.tick(), self.world.moment());
        let demands = queues.iter().map(|queue| Demand::new(queue.clone(), BATCH)).collect();
        let request = Reserve::new(demands, Holder::new("drain")?, now, LEASE);
        let jobs = self.driver.reserve(request).await?.jobs;
        self.note(
            began,
            now,
            jobs.iter().map(|leased| {
                let (id, token) = (leased.job.id.clone(), leased.lease.token);
                let expires_at = leased.lease.expires_at;
                What::Granted { id, token, expires_at, delivery: leased.job.deliveries }
            }),
        );
        if jobs.is_empty() {
            return Ok(false);
        }
        let (now, began) = (self.tick(), self.world.moment());
        let ack = Transition::Ack { output: None };
        let items: Vec<Settlement> = jobs
            .into_iter()
            .map(|leased| Settlement::new(leased.job.id, leased.lease.token, ack.clone()))
            .collect();
        let answers = self.driver.settle(Settle::new(items.clone(), now)).await?;
        let mut seen = Vec::new();
        for (Settlement { id, token, .. }, answer) in items.into_iter().zip(answers) {
            match answer {
                Ok(Settled::Applied) => seen.push(What::Settled { id, token, step: ack.step() }),
                other => {
                    return Err(format!("{id} is held, and its ack is answered {other:?}").into());
                }
            }
        }
        self.note(began, now, seen);
        Ok(true)
    }

    async fn cancel_blocked(&mut self) -> Outcome<bool> {
        let now = self.tick();
        let list = ListFlows::new(200, now).state(FlowState::Blocked);
        let page = self.driver.list_flows(list).await?;
        let flows: Vec<JobId> = page.items.into_iter().map(|flow| flow.id).collect();
        if flows.is_empty() {
            return Ok(page.next.is_some());
        }
        let began = self.world.moment();
        let request = Manage::new(flows.clone(), Action::CancelFlow, now);
        for answer in self.driver.manage(request).await? {
            answer?;
        }
        let deed = Deed::CancelFlow;
        self.note(began, now, flows.into_iter().map(|id| What::Managed { id, deed }));
        Ok(true)
    }

    /// Every job that is stored.
    pub(crate) async fn stored(&self) -> Outcome<HashMap<JobId, State>> {
        all_jobs(self.driver, self.now).await
    }

    /// Exports everything into another store, which has to agree.
    pub(crate) async fn copy_to_memory(&self, stored: usize) -> Outcome {
        let (copy, mut after) = (MemoryDriver::new(), None);
        loop {
            let page = self.driver.export(after, 200).await?;
            for answer in copy.import(page.items).await? {
                let imported =
                    answer.map_err(|refused| format!("an export is refused: {refused}"))?;
                if imported != Imported::Stored {
                    return Err("an export has a unit twice".into());
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        let copied = all_jobs(&copy, self.now).await?.len();
        if copied != stored {
            return Err(format!("{stored} jobs are stored, and {copied} were exported").into());
        }
        match copy.check().await?.first() {
            Some(problem) => Err(format!("the copy is inconsistent: {problem}").into()),
            None => Ok(()),
        }
    }

    /// Removes everything; answers the time for the next round.
    pub(crate) async fn empty(&mut self) -> Outcome<Timestamp> {
        self.now = self.now.saturating_add(LATER);
        let now = self.now;
        let prune = Prune::new(1_000, now).done_before(now).cancelled_before(now).dlq_before(now);
        while self.driver.prune(prune).await? > 0 {}
        match self.stored().await?.iter().next() {
            Some((id, state)) => Err(format!("{id} is {state} and cannot be pruned").into()),
            None => Ok(now),
        }
    }
}

async fn all_jobs(driver: &impl Admin, now: Timestamp) -> Outcome<HashMap<JobId, State>> {
    let (mut jobs, mut request) = (HashMap::new(), List::new(Filter::all(), 1_000, now));
    loop {
        let page = driver.list(request.clone()).await?;
        for job in page.items {
            if jobs.insert(job.id.clone(), job.state).is_some() {
                return Err(format!("{} is listed twice", job.id).into());
            }
        }
        match page.next {
            Some(next) => request = request.after(next),
            None => return Ok(jobs),
        }
    }
}
