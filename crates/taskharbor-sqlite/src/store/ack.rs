//! Acks of jobs that are in no flow, under valid leases: the most frequent ends.
//!
//! One statement checks the lease and writes, for many jobs at once if they were granted together.
//! Jobs that it does not find are settled by the rules in core.

use rusqlite::{CachedStatement, params};
use taskharbor_core::{
    QueueName, Timestamp,
    driver::{Settle, Settlement, Transition},
};

use super::{Store, number_list};
use crate::{
    entry::{self, state},
    error::Fault,
    statement as sql,
    token::{Secret, seq_in},
};

/// Acks one after the other.
pub(super) struct Acker<'c> {
    statement: CachedStatement<'c>,
    /// The queue of the last one. The counts need to know it, and it mostly stays the same.
    queue: Option<QueueName>,
}

impl<'c> Store<'c> {
    /// Acks jobs without outputs that were granted together; tells for each item whether it was
    /// applied. None of them affects another item, so the order of the items does not matter (SET-9).
    pub(super) fn ack_many(&mut self, request: &Settle) -> Result<Vec<bool>, Fault> {
        let plain = |(at, item): (usize, &Settlement)| {
            let secret = Secret::of(item.token, &item.id);
            let is_ack = matches!(item.transition, Transition::Ack { output: None });
            (is_ack && secret.is_plain()).then_some((secret, at))
        };
        let mut acks: Vec<_> = request.items.iter().enumerate().filter_map(plain).collect();
        acks.sort_unstable();
        let mut applied = vec![false; request.items.len()];
        for group in acks.chunk_by(|(one, _), (other, _)| one == other) {
            if group.len() > 1 && self.ack_group(request, group)? {
                group.iter().for_each(|&(_, at)| applied[at] = true);
            }
        }
        Ok(applied)
    }

    /// Acks jobs with this secret, which are of one queue, all of them or none.
    fn ack_group(&mut self, request: &Settle, group: &[(Secret, usize)]) -> Result<bool, Fault> {
        let [(secret, first), ..] = group else { return Ok(false) };
        let Some(queue) = self.queue_of(&request.items[*first])? else { return Ok(false) };
        let seqs: Vec<i64> = group.iter().map(|&(_, at)| seq_in(request.items[at].token)).collect();
        let (list, now) = (number_list(&seqs), request.now.as_micros());
        self.execute("SAVEPOINT th_acks", [])?;
        let row = params![list, now, None::<&[u8]>, secret.to_bytes(), queue.as_str()];
        let is_complete = self.execute(sql::ACK_MANY, row)? == seqs.len();
        if is_complete {
            for _ in &seqs {
                self.recount.moved(&queue, state::INFLIGHT, state::DONE);
            }
            self.last.take();
        } else {
            self.execute("ROLLBACK TO th_acks", [])?;
        }
        self.execute("RELEASE th_acks", [])?;
        Ok(is_complete)
    }

    pub(super) fn acker(&self) -> Result<Acker<'c>, Fault> {
        Ok(Acker { statement: self.statement(sql::ACK_ONE)?, queue: None })
    }

    /// Acks a job; `false` if it is not one that can be acked so.
    pub(super) fn ack_one(
        &mut self,
        item: &Settlement,
        acker: &mut Acker<'_>,
        now: Timestamp,
    ) -> Result<bool, Fault> {
        let Transition::Ack { output } = &item.transition else { return Ok(false) };
        let secret = Secret::of(item.token, &item.id);
        // SET-11
        if !secret.is_plain() || item.transition.check(&self.limits).is_err() {
            return Ok(false);
        }
        let (seq, secret, output) = (seq_in(item.token), secret.to_bytes(), output.as_deref());
        loop {
            if let Some(queue) = &acker.queue {
                let (id, at) = (item.id.as_str(), now.as_micros());
                let row = params![seq, at, output, secret, queue.as_str(), id];
                if acker.statement.execute(row)? > 0 {
                    self.forget(seq);
                    self.recount.moved(queue, state::INFLIGHT, state::DONE);
                    return Ok(true);
                }
            }
            match self.queue_of(item)? {
                Some(queue) if acker.queue.as_ref() != Some(&queue) => acker.queue = Some(queue),
                _ => return Ok(false),
            }
        }
    }

    /// The queue of the job that a settlement's token leads to.
    fn queue_of(&self, item: &Settlement) -> Result<Option<QueueName>, Fault> {
        let row = params![seq_in(item.token), item.id.as_str()];
        let queue: Option<String> = self.find(sql::QUEUE_OF, row)?;
        queue.map(|queue| entry::name(QueueName::new(queue))).transpose()
    }
}
