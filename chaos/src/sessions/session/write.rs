//! The calls of clients and workers: enqueue, reserve, extend, settle, also in transactions.

use std::time::Duration;

use taskharbor_core::{
    Blob, Driver, JobId, QueueName, Timestamp,
    driver::{
        Demand, Enqueue, Enqueued, ExtendLeases, Extension, LeaseToken, Reserve, Settle, Settled,
        Settlement, Transition,
    },
    error::{Refusal, Rejected},
    job::FailedAttempt,
    name::Holder,
};

use super::{Held, Session};
use crate::{
    Outcome,
    sessions::{
        event::{Origin, Stored, What},
        job::{Draft, QUEUES, is_shared},
    },
    store::End,
};

impl Session {
    pub(super) fn queues(&self) -> Outcome<Vec<QueueName>> {
        Ok(QUEUES.into_iter().map(QueueName::new).collect::<Result<_, _>>()?)
    }

    fn lease(&mut self) -> Duration {
        Duration::from_millis(self.random.u64(5..600))
    }

    fn drafts(&mut self, now: Timestamp) -> Outcome<Vec<Draft>> {
        let sets = (0..self.random.usize(1..4)).map(|_| self.maker.set(&mut self.random, now));
        Ok(sets.collect::<Result<_, _>>()?)
    }

    pub(super) async fn enqueue(&mut self) -> Outcome {
        let begun = self.begin();
        let drafts = self.drafts(begun.now)?;
        let sets = drafts.iter().map(|(set, _)| set.clone()).collect();
        let answers = self.handle.driver.enqueue(Enqueue::new(sets, begun.now)).await?;
        let seen = self.stored(drafts, answers)?;
        self.end(begun, "enqueue", seen);
        Ok(())
    }

    /// What the answers to an enqueue say; tells other sessions about the jobs.
    fn stored(
        &self,
        drafts: Vec<Draft>,
        answers: Vec<Result<Vec<Enqueued>, Rejected>>,
    ) -> Outcome<Vec<What>> {
        let mut seen = Vec::new();
        for ((set, origin), answer) in drafts.into_iter().zip(answers) {
            let mut inserted = Vec::new();
            for (job, answer) in set.jobs.into_iter().zip(answer?) {
                match answer {
                    Enqueued::Inserted(id) if id == job.id => inserted.push(job),
                    Enqueued::Inserted(id) => {
                        return Err(format!("{} was inserted as {id}", job.id).into());
                    }
                    Enqueued::Existing(by) if by == job.id => {}
                    Enqueued::Existing(by) => seen.push(What::KeyHeld { job, by }),
                }
            }
            self.world.add_live(inserted.len() as i64);
            let mut recent = self.world.recent();
            inserted.iter().for_each(|job| recent.add_job(job.id.clone()));
            if let Origin::Flow(tail) = &origin {
                recent.add_flow(tail.clone());
            }
            drop(recent);
            seen.push(What::Stored(Stored { jobs: inserted, origin }));
        }
        Ok(seen)
    }

    pub(super) async fn reserve(&mut self) -> Outcome {
        let mut queues = self.queues()?;
        self.random.shuffle(&mut queues);
        queues.truncate(self.random.usize(1..=QUEUES.len()));
        let demands =
            queues.into_iter().map(|queue| Demand::new(queue, self.random.usize(1..20))).collect();
        let (lease, holder) = (self.lease(), Holder::new(format!("session-{}", self.number))?);
        let begun = self.begin();
        let request = Reserve::new(demands, holder, begun.now, lease);
        let reserved = self.handle.driver.reserve(request).await?;
        let mut seen = Vec::new();
        for leased in reserved.jobs {
            let (id, token) = (leased.job.id, leased.lease.token);
            if &*leased.job.payload != id.as_str().as_bytes() {
                return Err(format!("{id} has the payload of another job").into());
            }
            self.world.recent().add_token(id.clone(), token);
            self.held.push(Held { id: id.clone(), token, attempts: leased.job.attempts });
            let expires_at = leased.lease.expires_at;
            seen.push(What::Granted { id, token, expires_at, delivery: leased.job.deliveries });
        }
        self.end(begun, "reserve", seen);
        Ok(())
    }

    /// What this session makes of a job.
    fn transition(&mut self, held: &Held, now: Timestamp) -> Outcome<Transition> {
        let later = now.saturating_add(Duration::from_millis(self.random.u64(..200)));
        let run_at = self.random.bool().then_some(later);
        let failure = FailedAttempt::new(held.attempts + 1, "it failed", now);
        Ok(match self.random.u8(..20) {
            0..=2 => Transition::Retry { failure, run_at },
            3..=4 => Transition::Fail { failure, reason: "it failed".into() },
            5..=6 => Transition::Release { run_at, started: self.random.bool(), note: None },
            7 if !is_shared(&held.id) => {
                Transition::Expand(self.maker.expansion(&mut self.random, now)?)
            }
            _ => Transition::Ack { output: Some(Blob::from(held.id.as_str().as_bytes())) },
        })
    }

    fn settlements(&mut self, held: &[Held], now: Timestamp) -> Outcome<Vec<Settlement>> {
        let item = |held: &Held| {
            Ok(Settlement::new(held.id.clone(), held.token, self.transition(held, now)?))
        };
        held.iter().map(item).collect()
    }

    pub(super) async fn settle(&mut self) -> Outcome {
        let held = self.some_held();
        let begun = self.begin();
        let items = self.settlements(&held, begun.now)?;
        let answers = self.handle.driver.settle(Settle::new(items.clone(), begun.now)).await?;
        let seen = self.settled(held, items, answers);
        self.end(begun, "settle", seen);
        Ok(())
    }

    /// What the answers to a settle say. A job that was busy is settled another time.
    fn settled(
        &mut self,
        held: Vec<Held>,
        items: Vec<Settlement>,
        answers: Vec<Result<Settled, Refusal>>,
    ) -> Vec<What> {
        let mut seen = Vec::new();
        for ((held, item), answer) in held.into_iter().zip(items).zip(answers) {
            match answer {
                Ok(settled) => seen.extend(self.recorded(item, settled)),
                Err(Refusal::Busy) => {
                    self.world.count("busy", 1);
                    self.held.push(held);
                }
                Err(_) => self.world.count("refused", 1),
            }
        }
        seen
    }

    fn recorded(&self, item: Settlement, settled: Settled) -> Vec<What> {
        let Settlement { id, token, transition, .. } = item;
        if settled == Settled::AlreadyTerminal {
            return vec![What::SettledBefore { id, token }];
        }
        let step = transition.step();
        let mut seen = vec![What::Settled { id: id.clone(), token, step }];
        match transition {
            Transition::Expand(expansion) => {
                self.world.add_live(expansion.jobs.len() as i64 - 1);
                let mut recent = self.world.recent();
                expansion.jobs.iter().for_each(|job| recent.add_job(job.id.clone()));
                recent.add_flow(id.clone());
                drop(recent);
                let origin = Origin::Expansion(id);
                seen.push(What::Stored(Stored { jobs: expansion.jobs, origin }));
            }
            Transition::Ack { .. } | Transition::Fail { .. } => self.world.add_live(-1),
            Transition::Retry { .. } | Transition::Release { .. } => {}
        }
        seen
    }

    /// Tries tokens again that other sessions have used, or lost.
    pub(super) async fn settle_stale(&mut self) -> Outcome {
        let held: Vec<Held> = self.some_tokens().into_iter().map(stale).collect();
        let begun = self.begin();
        let items = self.settlements(&held, begun.now)?;
        let answers = self.handle.driver.settle(Settle::new(items.clone(), begun.now)).await?;
        let mut seen = Vec::new();
        for (item, answer) in items.into_iter().zip(answers) {
            match answer {
                Ok(settled) => seen.extend(self.recorded(item, settled)),
                Err(_) => self.world.count("refused", 1),
            }
        }
        self.end(begun, "settle", seen);
        Ok(())
    }

    /// Extends leases that this session holds, and some that it does not.
    pub(super) async fn extend(&mut self) -> Outcome {
        let tokens = match self.random.u8(..4) {
            0 => self.some_tokens(),
            _ => {
                let held = self.some_held();
                self.held.extend(held.iter().cloned());
                held.into_iter().map(|held| (held.id, held.token)).collect()
            }
        };
        let lease = self.lease();
        let begun = self.begin();
        let items: Vec<Extension> = tokens
            .iter()
            .map(|(id, token)| {
                let extension = Extension::new(id.clone(), *token);
                if self.random.bool() { extension.progress("half".into()) } else { extension }
            })
            .collect();
        let request = ExtendLeases::new(items, begun.now, lease);
        let answers = self.handle.driver.extend_leases(request).await?;
        let mut seen = Vec::new();
        for ((id, old), answer) in tokens.into_iter().zip(answers) {
            let Ok(extended) = answer else { continue };
            let (token, expires_at) = (extended.lease.token, extended.lease.expires_at);
            if token != old {
                return Err(format!("the token of {id} changed, which no driver here does").into());
            }
            seen.push(What::Extended { id, token, expires_at });
        }
        self.end(begun, "extend", seen);
        Ok(())
    }

    /// Enqueues and settles in a transaction of the application, every third of which is rolled back.
    pub(super) async fn transaction(&mut self) -> Outcome {
        let mut held = self.some_held();
        // So that the transaction does not hold up all others.
        self.held.extend(held.split_off(held.len().min(3)));
        let begun = self.begin();
        let drafts = self.drafts(begun.now)?;
        let items = self.settlements(&held, begun.now)?;
        let sets = drafts.iter().map(|(set, _)| set.clone()).collect();
        let enqueue = Enqueue::new(sets, begun.now);
        let settle = Settle::new(items.clone(), begun.now);
        let end = if self.random.u8(..3) == 0 { End::Rollback } else { End::Commit };
        let (enqueued, settled) = self.handle.in_transaction(enqueue, settle, end).await?;
        let (enqueued, settled) = (enqueued?, settled?);
        let seen = match end {
            End::Commit => {
                let mut seen = self.stored(drafts, enqueued)?;
                seen.extend(self.settled(held, items, settled));
                seen
            }
            End::Rollback => {
                self.held.extend(held);
                rolled_back(drafts, items)
            }
        };
        self.end(begun, if end == End::Commit { "commit" } else { "rollback" }, seen);
        Ok(())
    }
}

fn stale((id, token): (JobId, LeaseToken)) -> Held {
    Held { id, token, attempts: 0 }
}

/// The jobs that must not be there, because their transaction was rolled back.
fn rolled_back(drafts: Vec<Draft>, items: Vec<Settlement>) -> Vec<What> {
    let expansions = items.into_iter().filter_map(|item| match item.transition {
        Transition::Expand(expansion) => Some(expansion.jobs),
        _ => None,
    });
    let sets = drafts.into_iter().map(|(set, _)| set.jobs);
    let ids = sets.chain(expansions).flatten().map(|job| job.id);
    ids.filter(|id| !is_shared(id)).map(What::RolledBack).collect()
}
