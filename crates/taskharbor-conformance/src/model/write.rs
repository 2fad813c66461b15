//! The operations of the model for clients and workers.

use std::collections::BTreeSet;

use taskharbor_core::{
    JobId, NewJob, QueueName, Timestamp,
    driver::{
        Answers, Enqueue, Enqueued, ExtendLeases, Extended, Settle, Settled, Settlement, Transition,
    },
    error::{InvalidTransition, Refusal, Rejected},
    export::{EdgeState, ExportedKey},
    flow::{CheckedSet, Expansion, ResolvedEdges},
    job::{JobSet, SetKind},
    life::{Consequence, Life},
    name::{FlowName, IdempotencyKey},
};

use super::{Kept, KeptFlow, Model};

impl Model {
    pub(crate) fn enqueue(&mut self, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        request.check()?;
        let now = request.now;
        Ok(request.sets.into_iter().map(|set| self.enqueue_set(set, now)).collect())
    }

    pub(crate) fn enqueue_set(
        &mut self,
        set: JobSet,
        now: Timestamp,
    ) -> Result<Vec<Enqueued>, Rejected> {
        let checked = set.check(&self.limits)?;
        let (CheckedSet::Flow(shape), SetKind::Flow { name }) = (checked, set.kind) else {
            return Ok(set.jobs.into_iter().map(|job| self.enqueue_job(job, now)).collect());
        };
        let stored = |job: &NewJob| self.find(&job.id).is_some();
        match set.jobs.iter().filter(|job| stored(job)).count() {
            0 => {}
            n if n == set.jobs.len() => {
                return Ok(set.jobs.into_iter().map(|job| Enqueued::Existing(job.id)).collect());
            }
            _ => {
                let job = set.jobs.iter().find(|job| stored(job)).expect("counted above");
                return Err(Rejected::Overlap { job: job.id.clone() });
            }
        }
        if let Some(holder) = self.key_holder(&set.jobs[shape.tail], now) {
            return Ok(vec![Enqueued::Existing(holder); set.jobs.len()]);
        }
        let answers = set.jobs.iter().map(|job| Enqueued::Inserted(job.id.clone())).collect();
        let flow_id = set.jobs[shape.tail].id.clone();
        let serials = self.store_members(set.jobs, &shape, &flow_id, now);
        self.store_flow(flow_id, name, serials[shape.tail], now);
        self.start(&serials, now);
        Ok(answers)
    }

    fn enqueue_job(&mut self, job: NewJob, now: Timestamp) -> Enqueued {
        if self.find(&job.id).is_some() {
            return Enqueued::Existing(job.id);
        }
        if let Some(holder) = self.key_holder(&job, now) {
            return Enqueued::Existing(holder);
        }
        let id = job.id.clone();
        self.store(job, None, now);
        Enqueued::Inserted(id)
    }

    /// The job that took the key of `job`, while it is held.
    pub(crate) fn key_holder(&self, job: &NewJob, now: Timestamp) -> Option<JobId> {
        let key = job.idempotency_key.as_ref()?;
        let stored = self.jobs.iter().filter(|other| {
            let until = other.new.key_hold.held_until(other.created_at);
            other.holds_key && until.is_none_or(|until| now < until)
        });
        let stored = stored
            .filter(|other| {
                (&other.new.queue, other.new.idempotency_key.as_ref()) == (&job.queue, Some(key))
            })
            .map(|holder| &holder.new.id);
        let outlived = self.keys.iter().filter(|other| now < other.held_until);
        let outlived = outlived
            .filter(|other| (&other.queue, &other.key) == (&job.queue, key))
            .map(|holder| &holder.job);
        stored.chain(outlived).next().cloned()
    }

    /// As `key_holder`, without regard to times.
    pub(crate) fn any_key_holder(&self, job: &NewJob) -> Option<JobId> {
        self.any_holder(&job.queue, job.idempotency_key.as_ref()?)
    }

    pub(crate) fn any_holder(&self, queue: &QueueName, key: &IdempotencyKey) -> Option<JobId> {
        let holds = |other: &&Kept| {
            other.holds_key
                && other.new.queue == *queue
                && other.new.idempotency_key.as_ref() == Some(key)
        };
        let stored = self.jobs.iter().find(holds).map(|holder| &holder.new.id);
        let outlived = self.keys.iter().find(|it| it.queue == *queue && it.key == *key);
        stored.or(outlived.map(|it| &it.job)).cloned()
    }

    /// Lets a job hold its key. A holder whose time is up loses it.
    pub(crate) fn hold_key(&mut self, serial: u64) {
        let at = self.by_serial(serial).expect("it is stored");
        let job = &self.jobs[at];
        let Some(key) = job.new.idempotency_key.clone() else { return };
        let queue = job.new.queue.clone();
        self.keys.retain(|it| it.queue != queue || it.key != key);
        self.forgotten.retain(|it| it.queue != queue || it.key != key);
        for job in &mut self.jobs {
            if job.new.queue == queue && job.new.idempotency_key.as_ref() == Some(&key) {
                job.holds_key = job.serial == serial;
            }
        }
    }

    /// Removes the record of a job. Its key stays if it has a time of its own that is not up.
    pub(crate) fn remove(&mut self, at: usize, now: Timestamp) {
        let job = self.jobs.remove(at);
        if let Some(held_until) = job.new.key_hold.held_until(job.created_at)
            && let Some(key) = job.new.idempotency_key
            && job.holds_key
        {
            let key = ExportedKey::new(job.new.queue, key, job.new.id, held_until);
            if now < held_until {
                self.keys.push(key);
            } else {
                self.forgotten.push(key);
            }
        }
    }

    /// Whether a driver may or may not know that the key of this job is held.
    pub(crate) fn is_in_doubt(&self, job: &NewJob, now: Timestamp) -> bool {
        self.forgotten.iter().any(|it| {
            it.queue == job.queue
                && Some(&it.key) == job.idempotency_key.as_ref()
                && now < it.held_until
        })
    }

    /// As `is_in_doubt`, for the keys that a requeue of this job would take.
    pub(crate) fn is_requeue_in_doubt(&self, id: &JobId, now: Timestamp) -> bool {
        let Some(at) = self.find(id) else { return false };
        let keys = self.keys_of(self.jobs[at].serial);
        keys.into_iter().any(|key| self.is_in_doubt(&self.jobs[key].new, now))
    }

    pub(crate) fn store(&mut self, new: NewJob, flow: Option<JobId>, now: Timestamp) -> u64 {
        let serial = self.next_serial();
        let life = Life::new(&new, new.parents.len(), flow, now);
        let (parents, expansion, holds_key) = (Vec::new(), None, false);
        self.jobs.push(Kept { serial, new, created_at: now, life, parents, expansion, holds_key });
        self.hold_key(serial);
        serial
    }

    fn store_members(
        &mut self,
        jobs: Vec<NewJob>,
        shape: &ResolvedEdges,
        flow: &JobId,
        now: Timestamp,
    ) -> Vec<u64> {
        let first = self.jobs.len();
        let serials: Vec<u64> =
            jobs.into_iter().map(|job| self.store(job, Some(flow.clone()), now)).collect();
        for (member, parents) in shape.parents.iter().enumerate() {
            let parents =
                parents.iter().map(|parent| (serials[*parent], EdgeState::Open)).collect();
            self.jobs[first + member].parents = parents;
        }
        serials
    }

    fn store_flow(&mut self, id: JobId, name: Option<FlowName>, tail: u64, now: Timestamp) {
        let serial = self.next_serial();
        self.flows.push(KeptFlow { serial, id, name, created_at: now, tail });
    }

    /// Joins without parents are done as soon as they are stored.
    fn start(&mut self, serials: &[u64], now: Timestamp) {
        let is_over =
            |serial: &&u64| self.by_serial(**serial).is_some_and(|at| self.jobs[at].is_over());
        let done: Vec<u64> = serials.iter().filter(is_over).copied().collect();
        for serial in done {
            self.succeeded(serial, now);
        }
    }

    /// When the next job of a queue falls due, the next lease ends, or time lets a job go that is
    /// held back.
    pub(crate) fn next_due(&self, queue: &QueueName, now: Timestamp) -> Option<Timestamp> {
        let in_queue = self.jobs.iter().filter(|job| job.new.queue == *queue);
        let by_time = in_queue.filter_map(|job| job.life.grantable_at()).filter(|at| *at > now);
        let lanes: BTreeSet<_> =
            self.available(queue, now).map(|at| self.jobs[at].new.lane.clone()).collect();
        let by_limit = lanes.iter().filter_map(|lane| self.freed_at(queue, lane, now));
        by_time.chain(by_limit).min()
    }

    /// The latest time that Reserve may name for a queue: while a rate or hold of the queue lets nothing go, nothing else
    /// matters.
    pub(crate) fn latest_due(&self, queue: &QueueName, now: Timestamp) -> Option<Timestamp> {
        self.next_due(queue, now).map(|due| due.max(self.closed_until(queue, now).unwrap_or(due)))
    }

    /// The jobs of a queue that are due or whose lease has ended.
    pub(crate) fn available<'a>(
        &'a self,
        queue: &'a QueueName,
        now: Timestamp,
    ) -> impl Iterator<Item = usize> + 'a {
        (0..self.jobs.len()).filter(move |&at| {
            let job = &self.jobs[at];
            job.new.queue == *queue && job.life.grantable_at().is_some_and(|it| it <= now)
        })
    }

    pub(crate) fn extend(&mut self, request: ExtendLeases) -> Answers<Extended, Refusal> {
        let expires_at = request.check()?;
        let now = request.now;
        let extend = |item: taskharbor_core::driver::Extension| {
            let at = self.find(&item.id).ok_or(Refusal::JobNotFound)?;
            self.jobs[at].life.extend(item, expires_at, now)
        };
        Ok(request.items.into_iter().map(extend).collect())
    }

    pub(crate) fn settle(&mut self, request: Settle) -> Answers<Settled, Refusal> {
        request.check()?;
        let now = request.now;
        Ok(request.items.into_iter().map(|item| self.settle_one(&item, now)).collect())
    }

    pub(crate) fn settle_one(
        &mut self,
        item: &Settlement,
        now: Timestamp,
    ) -> Result<Settled, Refusal> {
        let shape = item.transition.check(&self.limits)?;
        let at = self.find(&item.id).ok_or(Refusal::JobNotFound)?;
        let mut life = self.jobs[at].life.clone();
        let consequence = life.settle(item.token, &item.transition, now)?;
        if let (Consequence::Expanded, Transition::Expand(expansion)) =
            (consequence, &item.transition)
            && let Some(job) = expansion.jobs.iter().find(|job| self.find(&job.id).is_some())
        {
            let overlap = Rejected::Overlap { job: job.id.clone() };
            return Err(InvalidTransition::Expansion(overlap).into());
        }
        self.jobs[at].life = life;
        let serial = self.jobs[at].serial;
        match (consequence, &item.transition, shape) {
            (Consequence::Expanded, Transition::Expand(expansion), Some(shape)) => {
                self.expand(at, expansion, &shape, now);
            }
            (Consequence::Done, ..) => self.succeeded(serial, now),
            (Consequence::Failed, ..) => self.failed(serial, now),
            _ => {}
        }
        Ok(consequence.answer())
    }

    fn expand(&mut self, at: usize, expansion: &Expansion, shape: &ResolvedEdges, now: Timestamp) {
        let (expanded, expanded_id) = (self.jobs[at].serial, self.jobs[at].new.id.clone());
        let flow = self.jobs[at].life.flow.clone().unwrap_or_else(|| {
            self.store_flow(expanded_id.clone(), None, expanded, now);
            expanded_id
        });
        let mut jobs = expansion.jobs.clone();
        jobs[shape.tail].on_failure = self.jobs[at].new.on_failure;
        let tail_id = jobs[shape.tail].id.clone();
        self.jobs[at].life.expand_into(tail_id.clone(), flow.clone());
        let serials = self.store_members(jobs, shape, &flow, now);
        let tail = serials[shape.tail];
        self.jobs[at].expansion = Some(tail);
        for job in self.jobs.iter_mut().filter(|job| job.life.flow.as_ref() == Some(&flow)) {
            for (order, parent) in job.parents.iter_mut().enumerate() {
                if *parent == (expanded, EdgeState::Open) {
                    parent.0 = tail;
                    job.new.parents[order] = tail_id.clone();
                }
            }
        }
        for flow in &mut self.flows {
            if flow.tail == expanded {
                flow.tail = tail;
            }
        }
        self.start(&serials, now);
    }
}
