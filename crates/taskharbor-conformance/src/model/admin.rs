//! The operations of the model for operators.

use std::collections::BTreeSet;

use taskharbor_core::{
    DriverError, JobId, QueueName, State, Timestamp,
    admin::{
        Action, Counts, Cursor, List, Manage, Order, Page, Prune, QueueCounts, Requeue, StateCounts,
    },
    driver::Answers,
    error::{Denied, InvalidRequest},
    export::EdgeState,
    flow::{FlowRecord, ListFlows},
    job::JobSummary,
};

use super::Model;

impl Model {
    pub(crate) fn manage(&mut self, request: &Manage) -> Answers<State, Denied> {
        request.check()?;
        let now = request.now;
        Ok(request.ids.iter().map(|id| self.manage_one(id, &request.action, now)).collect())
    }

    fn manage_one(&mut self, id: &JobId, action: &Action, now: Timestamp) -> Result<State, Denied> {
        if let Action::CancelFlow | Action::PurgeFlow = action {
            return self.manage_flow(id, action, now);
        }
        let at = self.find(id).ok_or(Denied::JobNotFound)?;
        let serial = self.jobs[at].serial;
        match action {
            Action::Requeue(requeue) => self.requeue(at, requeue, now),
            Action::Cancel => {
                let state = self.jobs[at].life.cancel(now)?;
                if state == State::Cancelled {
                    self.failed(serial, now);
                }
                Ok(state)
            }
            Action::RunNow => self.jobs[at].life.run_now(now),
            Action::SetPriority(priority) => self.jobs[at].life.set_priority(*priority, now),
            Action::Purge | Action::CancelFlow | Action::PurgeFlow => {
                let job = &self.jobs[at];
                let state = job.life.state(now);
                match &job.life.flow {
                    _ if !job.is_over() => Err(Denied::WrongState(state)),
                    Some(flow) => Err(Denied::InFlow(flow.clone())),
                    None => {
                        self.remove(at, now);
                        Ok(state)
                    }
                }
            }
        }
    }

    fn requeue(&mut self, at: usize, request: &Requeue, now: Timestamp) -> Result<State, Denied> {
        let job = &self.jobs[at];
        let state = job.life.state(now);
        if state != State::Dlq && state != State::Cancelled {
            return Err(Denied::WrongState(state));
        }
        let (serial, kind) = (job.serial, job.new.kind);
        let was_not_needed = job.is_failure_job()
            && job.life.flow.is_some()
            && job.parents.iter().any(|(_, edge)| *edge == EdgeState::Closed);
        let flow = job.life.flow.as_ref().and_then(|flow| self.flow(flow));
        let tail = flow.map(|flow| self.tail(flow)).filter(|tail| tail.serial != serial);
        let tail_state = tail.map(|tail| tail.life.state(now));
        let was_needed = job.is_failure_job() && !was_not_needed && job.life.pending == 0;
        let is_tail_over = matches!(tail_state, Some(State::Done | State::Cancelled));
        let is_over = was_not_needed || is_tail_over && !was_needed;
        if is_over && !request.detach {
            return Err(Denied::FlowOver);
        }
        let keys = self.keys_to_take(serial, now).map_err(Denied::KeyHeld)?;
        if is_over {
            self.spend_edges(serial, now, |_| true);
            let job = &mut self.jobs[at];
            job.life.detach();
            for edge in job.parents.iter_mut().filter(|edge| edge.1 == EdgeState::Open) {
                edge.1 = EdgeState::Closed;
            }
        }
        for key in keys {
            self.hold_key(self.jobs[key].serial);
        }
        let state = self.jobs[at].life.requeue(request, kind, now)?;
        if state == State::Done {
            self.succeeded(serial, now);
        }
        Ok(state)
    }

    fn manage_flow(
        &mut self,
        id: &JobId,
        action: &Action,
        now: Timestamp,
    ) -> Result<State, Denied> {
        let flow = self.flow(id).ok_or(Denied::JobNotFound)?;
        let all_over = self.members(id).all(super::Kept::is_over);
        let state = self.tail(flow).life.state(now);
        let is_purge = matches!(action, Action::PurgeFlow);
        if all_over != is_purge {
            return Err(Denied::WrongState(state));
        }
        if is_purge {
            self.remove_flow(flow, now);
            return Ok(state);
        }
        for at in 0..self.jobs.len() {
            // Terminal members are denied, and stay as they are.
            if self.jobs[at].life.flow.as_ref() == Some(id)
                && self.jobs[at].life.cancel(now) == Ok(State::Cancelled)
            {
                self.free_keys(self.jobs[at].serial, State::Cancelled);
            }
        }
        Ok(self.tail(flow).life.state(now))
    }

    fn remove_flow(&mut self, flow: usize, now: Timestamp) -> usize {
        let id = self.flows.remove(flow).id;
        let before = self.jobs.len();
        while let Some(at) = self.jobs.iter().position(|job| job.life.flow.as_ref() == Some(&id)) {
            self.remove(at, now);
        }
        before - self.jobs.len()
    }

    pub(crate) fn prune(&mut self, request: &Prune) -> Result<usize, DriverError> {
        request.check()?;
        self.forget_ended(request.now);
        self.forget_workers(request.now);
        let mut removed = 0;
        while removed < request.limit {
            let jobs = self.jobs.iter().filter(|job| job.life.flow.is_none()).filter_map(|job| {
                let finish = job.life.finish()?;
                let until = job.life.kept_until()?;
                (until <= request.before(finish.state)?).then_some((until, job.serial))
            });
            let flows = self.flows.iter().filter_map(|flow| {
                let until = self.members(&flow.id).map(|job| job.life.kept_until());
                let until = until.collect::<Option<Vec<_>>>()?.into_iter().max()?;
                let at = self.by_serial(flow.tail)?;
                let state = self.jobs[at].life.finish()?.state;
                (until <= request.before(state)?).then_some((until, flow.serial))
            });
            let Some((_, oldest)) = jobs.chain(flows).min() else { break };
            if let Some(at) = self.by_serial(oldest) {
                self.remove(at, request.now);
                removed += 1;
            } else {
                let flow = self.flows.iter().position(|flow| flow.serial == oldest);
                removed += self.remove_flow(flow.expect("found just now"), request.now);
            }
        }
        Ok(removed)
    }

    pub(crate) fn list(&self, request: &List) -> Result<Page<JobSummary>, DriverError> {
        request.check()?;
        let after = parse("jobs", request.order, request.after.as_ref())?;
        let mut left = in_order(0..self.jobs.len(), request.order, |at| self.jobs[at].serial);
        left.retain(|&at| is_after(self.jobs[at].serial, after, request.order));
        let (mut items, mut looked) = (Vec::new(), 0_usize);
        for &at in left.iter().take(request.scan) {
            if items.len() == request.limit {
                break;
            }
            looked += 1;
            let (job, summary) = (&self.jobs[at], self.record(at, request.now).summary());
            let key = job.new.idempotency_key.as_ref();
            if request.filter.matches(&summary, key, &job.new.headers) {
                items.push(summary);
            }
        }
        let last = looked.checked_sub(1).map(|last| &self.jobs[left[last]]);
        let last = last.filter(|_| looked < left.len());
        let next = last.map(|last| cursor("jobs", request.order, last.serial));
        Ok(Page::new(items, next).looked_at(last.map(|last| last.created_at)))
    }

    pub(crate) fn list_flows(&self, request: &ListFlows) -> Result<Page<FlowRecord>, DriverError> {
        request.check()?;
        let after = parse("flows", request.order, request.after.as_ref())?;
        let mut left = in_order(0..self.flows.len(), request.order, |at| self.flows[at].serial);
        left.retain(|&at| {
            is_after(self.flows[at].serial, after, request.order)
                && request.matches(&self.flow_record(at, request.now))
        });
        let next = (left.len() > request.limit)
            .then(|| cursor("flows", request.order, self.flows[left[request.limit - 1]].serial));
        left.truncate(request.limit);
        let items = left.into_iter().map(|at| self.flow_record(at, request.now)).collect();
        Ok(Page::new(items, next))
    }

    pub(crate) fn flow_record(&self, flow: usize, now: Timestamp) -> FlowRecord {
        let kept = &self.flows[flow];
        let mut members = StateCounts::default();
        for job in self.members(&kept.id) {
            *members.get_mut(job.life.state(now)) += 1;
        }
        let finishes = self.members(&kept.id).filter_map(|job| job.life.finish());
        let last_finish = finishes.map(|finish| finish.at).max();
        let tail = self.tail(flow);
        let ending = (tail.new.id.clone(), tail.life.state(now));
        FlowRecord::new(kept.id.clone(), kept.created_at, ending, members, last_finish)
            .named(kept.name.clone())
    }

    pub(crate) fn counts(&self, request: Counts) -> Result<Vec<QueueCounts>, DriverError> {
        request.check()?;
        let now = request.now;
        let mut queues: BTreeSet<&QueueName> = self.paused.keys().collect();
        queues.extend(self.jobs.iter().map(|job| &job.new.queue));
        let counted = queues.into_iter().map(|queue| {
            let mut counts = QueueCounts::new(queue.clone());
            counts.paused_since = self.paused.get(queue).copied();
            for job in self.jobs.iter().filter(|job| job.new.queue == *queue) {
                let state = job.life.state(now);
                *counts.states.get_mut(state) += 1;
                if state == State::Ready {
                    let due_at = Some(job.life.due_at);
                    counts.oldest_ready = [counts.oldest_ready, due_at].into_iter().flatten().min();
                }
            }
            counts
        });
        Ok(counted.collect())
    }
}

fn in_order(
    all: std::ops::Range<usize>,
    order: Order,
    serial: impl Fn(usize) -> u64,
) -> Vec<usize> {
    let mut all: Vec<usize> = all.collect();
    all.sort_by_key(|&at| serial(at));
    if order == Order::NewestFirst {
        all.reverse();
    }
    all
}

fn is_after(serial: u64, after: Option<u64>, order: Order) -> bool {
    after.is_none_or(|after| match order {
        Order::OldestFirst => serial > after,
        Order::NewestFirst => serial < after,
    })
}

fn cursor(of: &str, order: Order, serial: u64) -> Cursor {
    Cursor::new(format!("{of} {order:?} {serial}"))
}

/// The serial after which a list goes on.
fn parse(of: &str, order: Order, after: Option<&Cursor>) -> Result<Option<u64>, InvalidRequest> {
    let Some(after) = after else { return Ok(None) };
    let serial = after.as_str().strip_prefix(&format!("{of} {order:?} "));
    serial.and_then(|serial| serial.parse().ok()).map(Some).ok_or(InvalidRequest::Cursor)
}
