//! Recording the outcomes of inflight jobs, and extending their leases.

use taskharbor_core::{
    NewJob, Timestamp,
    driver::{ExtendLeases, Extended, Extension, Settle, Settled, Settlement, Transition},
    error::{InvalidTransition, Refusal, Rejected},
    flow::ResolvedEdges,
    graph::{self, Graph},
    life::Consequence,
};

use super::{Store, members::Acked};
use crate::{entry::Entry, error::Fault};

impl Store<'_> {
    pub(crate) fn settle(
        &mut self,
        request: &Settle,
    ) -> Result<Vec<Result<Settled, Refusal>>, Fault> {
        let mut acked = Acked::default();
        let applied = self.ack_many(request)?;
        let mut acker = self.acker()?;
        let mut answers = Vec::with_capacity(request.items.len());
        // SET-9, REF-3
        for (item, applied) in request.items.iter().zip(applied) {
            answers.push(if applied || self.ack_one(item, &mut acker, request.now)? {
                Ok(Settled::Applied)
            } else {
                self.settle_one(item, &mut acked, request.now)?
            });
        }
        self.unblock_dependants(&mut acked, request.now)?;
        Ok(answers)
    }

    fn settle_one(
        &mut self,
        item: &Settlement,
        acked: &mut Acked,
        now: Timestamp,
    ) -> Result<Result<Settled, Refusal>, Fault> {
        // SET-11
        let edges = match item.transition.check(&self.limits) {
            Ok(edges) => edges,
            Err(invalid) => return Ok(Err(invalid.into())),
        };
        let Some(mut entry) = self.by_lease(&item.id, item.token)? else {
            return Ok(Err(Refusal::JobNotFound));
        };
        match entry.life.may_settle(item.token, &item.transition, now) {
            Err(refusal) => return Ok(Err(refusal)),
            // EXP-6
            Ok(Settled::AlreadyTerminal) => return Ok(Ok(Settled::AlreadyTerminal)),
            Ok(Settled::Applied) => {}
        }
        if self.ack_member(&mut entry, item, acked, now)? {
            return Ok(Ok(Settled::Applied));
        }
        if entry.flow.is_some() {
            // What happens to this job may depend on the results of those before it, which may have
            // changed it.
            self.unblock_dependants(acked, now)?;
            entry = self.take(entry.seq)?;
        }
        // CAN-5, EXP-3
        if let Transition::Expand(expansion) = &item.transition
            && entry.life.will_apply(&item.transition)
            && let Some(job) = self.first_stored(&expansion.jobs)?
        {
            let overlap = Rejected::Overlap { job: job.id.clone() };
            return Ok(Err(InvalidTransition::Expansion(overlap).into()));
        }
        self.apply(entry, item, edges.as_ref(), now)
    }

    fn apply(
        &mut self,
        entry: Entry,
        item: &Settlement,
        edges: Option<&ResolvedEdges>,
        now: Timestamp,
    ) -> Result<Result<Settled, Refusal>, Fault> {
        let seq = entry.seq;
        self.keep(entry);
        let settle =
            |life: &mut taskharbor_core::life::Life| life.settle(item.token, &item.transition, now);
        let consequence = match self.change(seq, settle)? {
            Ok(consequence) => consequence,
            Err(refusal) => return Ok(Err(refusal)),
        };
        match (consequence, &item.transition, edges) {
            (Consequence::Expanded, Transition::Expand(expansion), Some(edges)) => {
                graph::expanded(self, seq, expansion.clone(), edges, now)?;
            }
            (Consequence::Done, ..) => graph::succeeded(self, seq, now)?,
            (Consequence::Failed, ..) => graph::failed(self, seq, now)?,
            (Consequence::Waits, ..) => self.wake(seq)?,
            (Consequence::None | Consequence::Expanded, ..) => {}
        }
        Ok(Ok(consequence.answer()))
    }

    fn first_stored<'j>(&self, jobs: &'j [NewJob]) -> Result<Option<&'j NewJob>, Fault> {
        for job in jobs {
            if self.seq_of(&job.id)?.is_some() {
                return Ok(Some(job));
            }
        }
        Ok(None)
    }

    pub(crate) fn extend(
        &mut self,
        request: &ExtendLeases,
        expires_at: Timestamp,
    ) -> Result<Vec<Result<Extended, Refusal>>, Fault> {
        // REF-3
        let extend = |item| self.extend_one(item, expires_at, request.now);
        request.items.iter().map(extend).collect()
    }

    fn extend_one(
        &mut self,
        item: &Extension,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> Result<Result<Extended, Refusal>, Fault> {
        let Some(mut entry) = self.by_lease(&item.id, item.token)? else {
            return Ok(Err(Refusal::JobNotFound));
        };
        // LEA-8: the token stays.
        self.change_entry(&mut entry, |life| life.extend(item.clone(), expires_at, now))
    }
}
