//! [`Keys`]: the idempotency keys that are held, by queue.

use std::collections::HashMap;

use taskharbor_core::{JobId, NewJob, QueueName, Timestamp, name::IdempotencyKey};

use crate::store::{JobRef, JobSlot, Store};

/// The keys that are held.
pub(crate) type Keys = HashMap<(QueueName, IdempotencyKey), HeldKey>;

/// A key that is held.
#[derive(Debug)]
pub(crate) struct HeldKey {
    /// The job that took it.
    pub(crate) job: JobId,
    /// Its record, which may be gone.
    pub(crate) record: JobRef,
    /// The first instant at which it is free, if it has a time of its own.
    pub(crate) until: Option<Timestamp>,
}

impl HeldKey {
    pub(crate) fn is_held(&self, now: Timestamp) -> bool {
        // KEY-10
        self.until.is_none_or(|until| now < until)
    }
}

impl Store {
    /// The job that holds the key of `job` at `now`.
    pub(crate) fn key_holder(&self, job: &NewJob, now: Timestamp) -> Option<&JobId> {
        let key = job.idempotency_key.clone()?;
        // KEY-1, KEY-2
        let held = self.keys.get(&(job.queue.clone(), key))?;
        held.is_held(now).then_some(&held.job)
    }

    /// Lets a job hold its key, in the place of a key whose time has ended.
    pub(crate) fn take_key(&mut self, slot: JobSlot) {
        let entry = &self.jobs[slot];
        if let Some(key) = entry.new.idempotency_key.clone() {
            let until = entry.new.key_hold.held_until(entry.created_at);
            let held = HeldKey { job: entry.new.id.clone(), record: self.job_ref(slot), until };
            self.keys.insert((entry.new.queue.clone(), key), held);
        }
    }

    pub(crate) fn holds_key(&self, slot: JobSlot) -> bool {
        let new = &self.jobs[slot].new;
        let key = new.idempotency_key.clone().map(|key| (new.queue.clone(), key));
        key.and_then(|key| self.keys.get(&key))
            .is_some_and(|held| held.record == self.job_ref(slot))
    }

    /// Frees the key that a job holds, if it does.
    pub(crate) fn drop_key(&mut self, slot: JobSlot) {
        if self.holds_key(slot) {
            let new = &self.jobs[slot].new;
            if let Some(key) = new.idempotency_key.clone() {
                self.keys.remove(&(new.queue.clone(), key));
            }
        }
    }

    /// Frees the key of a job whose record is removed, unless the key has a time of its own.
    pub(crate) fn drop_key_with_record(&mut self, slot: JobSlot) {
        let entry = &self.jobs[slot];
        // KEY-3, KEY-9
        match (entry.new.key_hold.held_until(entry.created_at), &entry.new.idempotency_key) {
            (Some(until), Some(key)) => {
                let orphan = (until, entry.new.queue.clone(), key.clone());
                if self.holds_key(slot) {
                    self.orphaned_keys.insert(orphan);
                }
            }
            _ => self.drop_key(slot),
        }
    }

    /// Forgets the keys whose time has ended and whose jobs are gone.
    pub(crate) fn forget_keys(&mut self, now: Timestamp) {
        while let Some((until, ..)) = self.orphaned_keys.first()
            && *until <= now
            && let Some((until, queue, key)) = self.orphaned_keys.pop_first()
        {
            let key = (queue, key);
            // Another job may have taken the key meanwhile.
            let is_orphan =
                |held: &HeldKey| held.until == Some(until) && self.resolve(held.record).is_none();
            if self.keys.get(&key).is_some_and(is_orphan) {
                self.keys.remove(&key);
            }
        }
    }
}
