//! Recording what became of inflight jobs, and keeping them.

use rusqlite::params;
use taskharbor_core::{
    NewJob, Timestamp,
    driver::{ExtendLeases, Extended, Extension, Settle, Settled, Settlement, Transition},
    error::{InvalidTransition, Refusal, Rejected},
    flow::{Expansion, ResolvedEdges},
    job::KeyHold,
    life::Consequence,
};

use super::{Store, enqueue::place, flow::live, members::Acked, micros};
use crate::{entry::Entry, error::Fault, statement as sql};

impl Store<'_> {
    pub(crate) fn settle(
        &mut self,
        request: &Settle,
    ) -> Result<Vec<Result<Settled, Refusal>>, Fault> {
        let mut acked = Acked::default();
        let mut answers = Vec::with_capacity(request.items.len());
        for item in &request.items {
            answers.push(self.settle_one(item, &mut acked, request.now)?);
        }
        self.let_go(&mut acked, request.now)?;
        Ok(answers)
    }

    fn settle_one(
        &mut self,
        item: &Settlement,
        acked: &mut Acked,
        now: Timestamp,
    ) -> Result<Result<Settled, Refusal>, Fault> {
        let shape = match item.transition.check(&self.limits) {
            Ok(shape) => shape,
            Err(invalid) => return Ok(Err(invalid.into())),
        };
        let Some(mut entry) = self.by_id(&item.id)? else {
            return Ok(Err(Refusal::JobNotFound));
        };
        match entry.life.authorize(item.token, now) {
            Err(refusal) => return Ok(Err(refusal)),
            Ok(Settled::AlreadyTerminal) => return Ok(Ok(Settled::AlreadyTerminal)),
            Ok(Settled::Applied) => {}
        }
        if self.ack_member(&mut entry, item, acked, now)? {
            return Ok(Ok(Settled::Applied));
        }
        if entry.flow.is_some() {
            // What happens to this one may depend on what became of those before it, which may have
            // changed it.
            self.let_go(acked, now)?;
            entry = self.member(entry.seq)?;
        }
        if let Transition::Expand(expansion) = &item.transition
            && entry.life.will_apply(&item.transition)
            && let Some(job) = self.first_stored(&expansion.jobs)?
        {
            let overlap = Rejected::Overlap { job: job.id.clone() };
            return Ok(Err(InvalidTransition::Expansion(overlap).into()));
        }
        self.apply(&mut entry, item, shape.as_ref(), now)
    }

    fn apply(
        &mut self,
        entry: &mut Entry,
        item: &Settlement,
        shape: Option<&ResolvedEdges>,
        now: Timestamp,
    ) -> Result<Result<Settled, Refusal>, Fault> {
        if entry.flow.is_none() && matches!(item.transition, Transition::Ack { .. }) {
            return self.ack_alone(entry, item, now);
        }
        let aftermath = match entry.life.settle(item.token, &item.transition, now) {
            Ok(aftermath) => aftermath,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if let (Consequence::Expanded, Transition::Expand(expansion), Some(shape)) =
            (aftermath, &item.transition, shape)
        {
            self.grow(entry, expansion, shape, now)?;
            return Ok(Ok(aftermath.answer()));
        }
        self.write(entry)?;
        self.count_in_flow(entry, false)?;
        match aftermath {
            Consequence::Done => self.spread_success(entry, now)?,
            Consequence::Failed => self.spread_failure(entry, now)?,
            Consequence::Waits => self.wake(&entry.queue),
            Consequence::None | Consequence::Expanded => {}
        }
        Ok(Ok(aftermath.answer()))
    }

    /// The most frequent end: nobody waits for the job, and little of its row changes.
    fn ack_alone(
        &mut self,
        entry: &mut Entry,
        item: &Settlement,
        now: Timestamp,
    ) -> Result<Result<Settled, Refusal>, Fault> {
        let aftermath = match entry.life.settle(item.token, &item.transition, now) {
            Ok(aftermath) => aftermath,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let (ended_at, kept) = (entry.life.finish().map(|it| it.at), entry.life.kept_until());
        let output = entry.life.output.as_deref();
        self.execute(sql::ACK, params![entry.seq, micros(ended_at), micros(kept), output])?;
        if entry.key_hold == KeyHold::UntilDone {
            self.release_key(entry)?;
        }
        Ok(Ok(aftermath.answer()))
    }

    fn first_stored<'j>(&self, jobs: &'j [NewJob]) -> Result<Option<&'j NewJob>, Fault> {
        for job in jobs {
            if self.is_stored(&job.id)? {
                return Ok(Some(job));
            }
        }
        Ok(None)
    }

    fn grow(
        &mut self,
        grower: &mut Entry,
        expansion: &Expansion,
        shape: &ResolvedEdges,
        now: Timestamp,
    ) -> Result<(), Fault> {
        let mut jobs = expansion.jobs.clone();
        // Whoever waits for the grower cares about its policy, and waits for the tail from now on.
        jobs[shape.tail].on_failure = grower.on_failure;
        let (flow, is_new) = match grower.flow {
            Some(flow) => (flow, false),
            None => (self.next_seq()?, true),
        };
        // The new jobs are numbered one after the other.
        let tail = self.last_seq()? + 1 + place(shape.tail);
        if is_new {
            self.begin_flow(flow, &grower.id, None, tail, now)?;
        } else if self.flow(flow)?.tail == grower.seq {
            self.execute(sql::SET_TAIL, [flow, tail])?;
        }
        let tail_id = jobs[shape.tail].id.clone();
        let flow_id = self.flow(flow)?.id;
        grower.flow = Some(flow);
        grower.grown = Some(tail);
        grower.life.expand_into(tail_id.clone(), flow_id);
        self.write(grower)?;
        self.execute(sql::STEP_ASIDE, params![grower.seq, tail, tail_id.as_str()])?;
        let mut inserter = self.inserter()?;
        let members = self.insert_members(&jobs, shape, flow, &mut inserter, now)?;
        // The grower is over as a member, or was none.
        self.count_live(flow, live(&members) - i64::from(!is_new))?;
        self.start_members(&members, now)
    }

    pub(crate) fn extend(
        &mut self,
        request: &ExtendLeases,
        expires_at: Timestamp,
    ) -> Result<Vec<Result<Extended, Refusal>>, Fault> {
        let extend = |item| self.extend_one(item, expires_at, request.now);
        request.items.iter().map(extend).collect()
    }

    fn extend_one(
        &mut self,
        item: &Extension,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> Result<Result<Extended, Refusal>, Fault> {
        let Some(mut entry) = self.by_id(&item.id)? else {
            return Ok(Err(Refusal::JobNotFound));
        };
        let progress = item.progress.clone();
        self.change(&mut entry, |life| life.extend(item.token, progress, expires_at, now))
    }
}
