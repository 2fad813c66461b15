//! Mistakes in storing jobs.

use taskharbor_core::{
    Blob, NewJob, QueueName, Timestamp,
    driver::{Answers, Enqueue, Enqueued},
    error::Rejected,
    job::{JobSet, SetKind},
    life::Life,
    name::IdempotencyKey,
};

use crate::{model::Model, reference::Behaviour};

/// Changes every job before it is stored.
fn bend(mut request: Enqueue, change: impl Fn(&mut NewJob)) -> Enqueue {
    request.sets.iter_mut().flat_map(|set| &mut set.jobs).for_each(change);
    request
}

/// Looks whether the key is free, then stores the job.
pub(super) struct CheckThenInsert;

impl Behaviour for CheckThenInsert {
    fn looks_first(&self) -> bool {
        true
    }

    fn enqueue_after_look(
        &self,
        mut then: Model,
        model: &mut Model,
        request: Enqueue,
    ) -> Answers<Vec<Enqueued>, Rejected> {
        let [JobSet { jobs, kind: SetKind::Plain, .. }] = request.sets.as_slice() else {
            return model.enqueue(request);
        };
        let [job] = jobs.as_slice() else { return model.enqueue(request) };
        if job.idempotency_key.is_none() || model.find(&job.id).is_some() {
            return model.enqueue(request);
        }
        let (job, now) = (job.clone(), request.now);
        let answers = then.enqueue(request)?;
        if answers.iter().flatten().flatten().any(Enqueued::is_new) {
            model.store(job, None, now);
        }
        Ok(answers)
    }
}

/// Queue and key are written one after the other with a colon between them.
pub(super) struct KeysRunTogether;

impl Behaviour for KeysRunTogether {
    fn enqueue(&self, model: &mut Model, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        request.check()?;
        let now = request.now;
        let written = |job: &NewJob| {
            let key = job.idempotency_key.as_ref().map(IdempotencyKey::as_str)?;
            Some(format!("{}:{key}", job.queue))
        };
        let mut answers = Vec::new();
        for set in request.sets {
            let twin = match set.jobs.as_slice() {
                [job] if written(job).is_some() => {
                    let mut stored = model.jobs.iter().filter(|other| other.holds_key);
                    stored.find(|other| written(&other.new) == written(job))
                }
                _ => None,
            };
            match twin {
                Some(twin) => answers.push(Ok(vec![Enqueued::Existing(twin.new.id.clone())])),
                None => answers.append(&mut model.enqueue(Enqueue::new(vec![set], now))?),
            }
        }
        Ok(answers)
    }
}

/// Every job is due at once.
pub(super) struct IgnoresRunAt;

impl Behaviour for IgnoresRunAt {
    fn enqueue(&self, model: &mut Model, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        model.enqueue(bend(request, |job| job.run_at = None))
    }
}

/// Enqueueing an id again makes the job ready again.
pub(super) struct StartsOver;

impl Behaviour for StartsOver {
    fn enqueue(&self, model: &mut Model, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        let now = request.now;
        let plain = request.sets.iter().filter(|set| set.kind == SetKind::Plain);
        let ids: Vec<_> = plain.flat_map(|set| &set.jobs).map(|job| job.id.clone()).collect();
        for job in model.jobs.iter_mut().filter(|job| ids.contains(&job.new.id)) {
            let flow = job.life.flow.clone();
            job.life = Life::new(&job.new, job.life.pending, flow, now);
        }
        model.enqueue(request)
    }
}

/// A bad job does not keep the good ones of its set from being stored.
pub(super) struct HalfStored;

impl Behaviour for HalfStored {
    fn enqueue(&self, model: &mut Model, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        let (now, sets) = (request.now, request.sets.clone());
        let answers = model.enqueue(request)?;
        for (set, answer) in sets.into_iter().zip(&answers) {
            if answer.is_err() && set.kind == SetKind::Plain {
                let good = set.jobs.into_iter().map(JobSet::from).collect();
                model.enqueue(Enqueue::new(good, now))?;
            }
        }
        Ok(answers)
    }
}

/// Times are kept as milliseconds.
pub(super) struct Milliseconds;

impl Behaviour for Milliseconds {
    fn enqueue(&self, model: &mut Model, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        let round = |at: Timestamp| {
            Timestamp::from_micros(at.as_micros() / 1_000 * 1_000).expect("earlier and positive")
        };
        model.enqueue(bend(request, |job| job.run_at = job.run_at.map(round)))
    }
}

/// Payloads are kept as text that ends at the first NUL.
pub(super) struct CutsAtNul;

impl Behaviour for CutsAtNul {
    fn enqueue(&self, model: &mut Model, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        model.enqueue(bend(request, |job| {
            let text = job.payload.split(|byte| *byte == 0).next().unwrap_or_default();
            job.payload = Blob::from(text);
        }))
    }
}

/// Queue names are compared without regard to case.
pub(super) struct LowersCase;

impl Behaviour for LowersCase {
    fn enqueue(&self, model: &mut Model, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        model.enqueue(bend(request, |job| {
            job.queue = QueueName::new(job.queue.as_str().to_lowercase()).expect("still a name");
        }))
    }
}

/// The jobs of a call are stored from the last to the first.
pub(super) struct NewestFirst;

impl Behaviour for NewestFirst {
    fn enqueue(&self, model: &mut Model, mut request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        request.sets.reverse();
        let mut answers = model.enqueue(request)?;
        answers.reverse();
        Ok(answers)
    }
}
