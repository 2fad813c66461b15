//! A transaction on the store of the tests: what is asked for is kept, and done when it commits.

use taskharbor::{
    Admin, Driver, Filter, IdempotencyKey, JobId, Limits, List, QueueName, Timestamp, Transaction,
};
use taskharbor_core::{
    NewJob,
    driver::{Answers, DriverId, Enqueue, Enqueued, ExtendLeases, Extension, Settle, Settled},
    error::{Refusal, Rejected},
};

use crate::faulty_store::{FaultyStore, Op};

pub(super) struct Open {
    store: FaultyStore,
    requests: Vec<Request>,
}

enum Request {
    Enqueue(Enqueue),
    Settle(Settle),
}

impl FaultyStore {
    /// Dropping the transaction rolls it back.
    pub(super) fn begin(&self) -> Open {
        Open { store: self.clone(), requests: Vec::new() }
    }
}

impl Open {
    pub(super) async fn commit(self) {
        for request in self.requests {
            match request {
                Request::Enqueue(enqueue) => {
                    let answers = self.store.store.enqueue(enqueue).await.unwrap();
                    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
                }
                Request::Settle(settle) => {
                    let answers = self.store.store.settle(settle).await.unwrap();
                    assert_eq!(answers, [Ok(Settled::Applied)]);
                }
            }
        }
    }

    /// The job that this one would meet, in the transaction or in the store.
    async fn existing(&self, job: &NewJob, now: Timestamp) -> Option<JobId> {
        let key = job.idempotency_key.as_ref()?;
        if let Some(mine) = self.mine(key, &job.queue) {
            return Some(mine);
        }
        let request = List::new(Filter::all(), Limits::MAX_PAGE, now);
        for summary in self.store.store.list(request).await.unwrap().items {
            let found = self.store.store.inspect(summary.id, now).await.unwrap().unwrap().job;
            if found.idempotency_key.as_ref() == Some(key) && found.queue == job.queue {
                return Some(found.id);
            }
        }
        None
    }

    fn mine(&self, key: &IdempotencyKey, queue: &QueueName) -> Option<JobId> {
        let sets = self.requests.iter().filter_map(|request| match request {
            Request::Enqueue(enqueue) => Some(&enqueue.sets),
            Request::Settle(_) => None,
        });
        let mut jobs = sets.flatten().flat_map(|set| &set.jobs);
        let holder = jobs.find(|it| it.idempotency_key.as_ref() == Some(key) && it.queue == *queue);
        holder.map(|job| job.id.clone())
    }
}

impl Transaction for Open {
    fn driver(&self) -> DriverId {
        self.store.id
    }

    async fn enqueue(&mut self, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        let mut answers = Vec::new();
        for set in &request.sets {
            let mut jobs = Vec::new();
            for job in &set.jobs {
                jobs.push(match self.existing(job, request.now).await {
                    Some(existing) => Enqueued::Existing(existing),
                    None => Enqueued::Inserted(job.id.clone()),
                });
            }
            answers.push(Ok(jobs));
        }
        let store = self.store.clone();
        self.requests.push(Request::Enqueue(request));
        store.call(Op::Transaction, async { Ok(answers) }).await
    }

    /// The store extends a lease if and only if it would settle the job, and never shortens one.
    async fn settle(&mut self, mut request: Settle) -> Answers<Settled, Refusal> {
        for item in &mut request.items {
            item.token = self.store.inner(&item.id, item.token);
        }
        let items = request.items.iter().map(|item| Extension::new(item.id.clone(), item.token));
        let moment = std::time::Duration::from_micros(1);
        let probe = ExtendLeases::new(items.collect(), request.now, moment);
        let store = self.store.clone();
        let probed = store.call(Op::Transaction, store.store.extend_leases(probe)).await?;
        self.requests.push(Request::Settle(request));
        Ok(probed.into_iter().map(|answer| answer.map(|_| Settled::Applied)).collect())
    }
}
