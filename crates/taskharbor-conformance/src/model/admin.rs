//! What people do and see.

use std::collections::BTreeSet;

use taskharbor_core::{
    DriverError, JobId, QueueName, State, Timestamp,
    admin::{Action, Cursor, List, Manage, Page, Prune, QueueCounts, Requeue, StateCounts},
    driver::Answers,
    error::{Denied, InvalidRequest},
    flow::{FlowRecord, ListFlows},
    job::JobSummary,
};

use super::{Model, Tie};

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
                        self.jobs.remove(at);
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
        let flow = job.life.flow.as_ref().and_then(|flow| self.flow(flow));
        let tail = flow.map(|flow| self.tail(flow)).filter(|tail| tail.serial != serial);
        let tail_state = tail.map(|tail| tail.life.state(now));
        if let Some(State::Done | State::Cancelled) = tail_state {
            if !request.detach {
                return Err(Denied::FlowOver);
            }
            self.release(at, now);
            let job = &mut self.jobs[at];
            job.life.detach();
            for parent in job.parents.iter_mut().filter(|parent| parent.1 == Tie::Open) {
                parent.1 = Tie::Closed;
            }
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
            self.remove_flow(flow);
            return Ok(state);
        }
        for job in self.jobs.iter_mut().filter(|job| job.life.flow.as_ref() == Some(id)) {
            // Members that are over are denied, and stay as they are.
            let _ = job.life.cancel(now);
        }
        Ok(self.tail(flow).life.state(now))
    }

    fn remove_flow(&mut self, flow: usize) -> usize {
        let id = self.flows.remove(flow).id;
        let before = self.jobs.len();
        self.jobs.retain(|job| job.life.flow.as_ref() != Some(&id));
        before - self.jobs.len()
    }

    pub(crate) fn prune(&mut self, request: &Prune) -> Result<usize, DriverError> {
        request.check()?;
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
                self.jobs.remove(at);
                removed += 1;
            } else {
                let flow = self.flows.iter().position(|flow| flow.serial == oldest);
                removed += self.remove_flow(flow.expect("found just now"));
            }
        }
        Ok(removed)
    }

    pub(crate) fn list(&self, request: &List) -> Result<Page<JobSummary>, DriverError> {
        request.check()?;
        let all = self
            .jobs
            .iter()
            .enumerate()
            .map(|(at, job)| (job.serial, self.record(at, request.now).summary()));
        let matching = all.filter(|(_, job)| request.filter.matches(job));
        Ok(page("job", matching, request.after.as_ref(), request.limit)?)
    }

    pub(crate) fn list_flows(&self, request: &ListFlows) -> Result<Page<FlowRecord>, DriverError> {
        request.check()?;
        let all = (0..self.flows.len())
            .map(|flow| (self.flows[flow].serial, self.flow_record(flow, request.now)));
        let matching = all.filter(|(_, flow)| request.matches(flow));
        Ok(page("flow", matching, request.after.as_ref(), request.limit)?)
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

    pub(crate) fn counts(&self, now: Timestamp) -> Vec<QueueCounts> {
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
        counted.collect()
    }
}

fn page<T>(
    of: &str,
    matching: impl Iterator<Item = (u64, T)>,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<Page<T>, InvalidRequest> {
    let after: u64 = match after.map(|cursor| cursor.as_str().strip_prefix(of)) {
        Some(serial) => {
            serial.and_then(|serial| serial.parse().ok()).ok_or(InvalidRequest::Cursor)?
        }
        None => 0,
    };
    let mut left: Vec<(u64, T)> = matching.filter(|(serial, _)| *serial > after).collect();
    let next = left.get(limit - 1).map(|(serial, _)| Cursor::new(format!("{of}{serial}")));
    left.truncate(limit);
    Ok(Page::new(left.into_iter().map(|(_, item)| item).collect(), next))
}
