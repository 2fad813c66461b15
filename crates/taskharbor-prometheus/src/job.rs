//! Metrics of jobs, by queue and type.
//!
//! The handles of a queue and type are made once and kept, so that an event costs two look-ups and an
//! addition.

use std::{
    collections::{HashMap, HashSet},
    sync::{OnceLock, PoisonError, RwLock},
};

use prometheus_client::{
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        histogram::Histogram,
    },
    registry::Registry,
};
use taskharbor::{JobType, QueueName};
use taskharbor_core::job::JobView;

use crate::{
    MAX_NAMES,
    label::{Labels, OTHER, labels},
};

/// From 5 ms to an hour.
const SECONDS: [f64; 16] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0,
];

const ATTEMPTS: [f64; 8] = [1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0];

/// Makes histograms with these buckets.
#[derive(Clone, Copy)]
pub(crate) struct Buckets(pub(crate) &'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

/// How a delivery of a job ended.
#[derive(Clone, Copy)]
pub(crate) enum JobOutcome {
    Done,
    Retried,
    Dead,
    Released,
    Cancelled,
    Lost,
}

impl JobOutcome {
    /// All outcomes, in the order of their numbers.
    const ALL: [(Self, &'static str); 6] = [
        (Self::Done, "done"),
        (Self::Retried, "retried"),
        (Self::Dead, "dead"),
        (Self::Released, "released"),
        (Self::Cancelled, "cancelled"),
        (Self::Lost, "lost"),
    ];
}

pub(crate) struct Jobs {
    families: Families,
    seen: RwLock<Seen>,
}

struct Families {
    enqueued: Family<Labels, Counter>,
    started: Family<Labels, Counter>,
    finished: Family<Labels, Counter>,
    wait_seconds: Family<Labels, Histogram, Buckets>,
    run_seconds: Family<Labels, Histogram, Buckets>,
    attempts: Family<Labels, Histogram, Buckets>,
}

/// The queues and types that have handles.
struct Seen {
    queues: HashMap<QueueName, Queue>,
    other: Queue,
    types: HashSet<JobType>,
}

struct Queue {
    label: String,
    types: HashMap<JobType, Series>,
    other: Series,
}

impl Queue {
    fn new(families: &Families, label: &str) -> Self {
        let other = Series::new(families, label, OTHER);
        Self { label: label.to_owned(), types: HashMap::new(), other }
    }
}

/// The metrics of one queue and type. A process that only enqueues shows no metrics of runs, and the
/// other way round.
pub(crate) struct Series {
    queue: String,
    job_type: String,
    families: Families,
    enqueued: OnceLock<[Counter; 2]>,
    runs: OnceLock<Runs>,
}

pub(crate) struct Runs {
    pub(crate) started: Counter,
    finished: [Counter; 6],
    pub(crate) wait_seconds: Histogram,
    pub(crate) run_seconds: Histogram,
    pub(crate) attempts: Histogram,
}

impl Runs {
    pub(crate) fn finished(&self, outcome: JobOutcome) -> &Counter {
        &self.finished[outcome as usize]
    }
}

impl Families {
    fn share(&self) -> Self {
        Self {
            enqueued: self.enqueued.clone(),
            started: self.started.clone(),
            finished: self.finished.clone(),
            wait_seconds: self.wait_seconds.clone(),
            run_seconds: self.run_seconds.clone(),
            attempts: self.attempts.clone(),
        }
    }
}

impl Series {
    fn new(families: &Families, queue: &str, job_type: &str) -> Self {
        let (queue, job_type) = (queue.to_owned(), job_type.to_owned());
        let (enqueued, runs) = (OnceLock::new(), OnceLock::new());
        Self { queue, job_type, families: families.share(), enqueued, runs }
    }

    fn labels(&self) -> Labels {
        labels([("queue", &self.queue), ("type", &self.job_type)])
    }

    fn labels_and(&self, name: &'static str, value: &str) -> Labels {
        let mut labels = self.labels();
        labels.push((name, value.to_owned()));
        labels
    }

    pub(crate) fn enqueued(&self, is_new: bool) -> &Counter {
        let counters = self.enqueued.get_or_init(|| {
            ["false", "true"]
                .map(|new| self.families.enqueued.get_or_create_owned(&self.labels_and("new", new)))
        });
        &counters[usize::from(is_new)]
    }

    pub(crate) fn runs(&self) -> &Runs {
        self.runs.get_or_init(|| {
            let (families, labels) = (&self.families, self.labels());
            Runs {
                started: families.started.get_or_create_owned(&labels),
                finished: JobOutcome::ALL.map(|(_, outcome)| {
                    let labels = self.labels_and("outcome", outcome);
                    families.finished.get_or_create_owned(&labels)
                }),
                wait_seconds: families.wait_seconds.get_or_create_owned(&labels),
                run_seconds: families.run_seconds.get_or_create_owned(&labels),
                attempts: families.attempts.get_or_create_owned(&labels),
            }
        })
    }
}

impl Seen {
    /// The series of this queue and type, unless it has to be made.
    fn get(&self, queue: &QueueName, job_type: &JobType) -> Option<&Series> {
        let queue = match self.queues.get(queue) {
            Some(queue) => queue,
            None if self.queues.len() >= MAX_NAMES => &self.other,
            None => return None,
        };
        match queue.types.get(job_type) {
            Some(series) => Some(series),
            None if self.types.len() >= MAX_NAMES && !self.types.contains(job_type) => {
                Some(&queue.other)
            }
            None => None,
        }
    }

    /// Makes the series that [`Seen::get`] did not find.
    fn add(&mut self, families: &Families, queue: &QueueName, job_type: &JobType) {
        let has_room = self.queues.len() < MAX_NAMES;
        let queue = if has_room || self.queues.contains_key(queue) {
            let new = || Queue::new(families, queue.as_str());
            self.queues.entry(queue.clone()).or_insert_with(new)
        } else {
            &mut self.other
        };
        if self.types.len() < MAX_NAMES || self.types.contains(job_type) {
            self.types.insert(job_type.clone());
            let new = || Series::new(families, &queue.label, job_type.as_str());
            queue.types.entry(job_type.clone()).or_insert_with(new);
        }
    }
}

impl Jobs {
    pub(crate) fn new() -> Self {
        let families = Families {
            enqueued: Family::default(),
            started: Family::default(),
            finished: Family::default(),
            wait_seconds: Family::new_with_constructor(Buckets(&SECONDS)),
            run_seconds: Family::new_with_constructor(Buckets(&SECONDS)),
            attempts: Family::new_with_constructor(Buckets(&ATTEMPTS)),
        };
        let other = Queue::new(&families, OTHER);
        let seen = Seen { queues: HashMap::new(), other, types: HashSet::new() };
        Self { families, seen: RwLock::new(seen) }
    }

    /// Names of counters are given without `_total`, which the encoder adds.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let Families { enqueued, started, finished, wait_seconds, run_seconds, attempts } =
            self.families.share();
        let help = "Jobs that clients enqueued; new is false for a job that was stored already";
        registry.register("taskharbor_jobs_enqueued", help, enqueued);
        registry.register("taskharbor_jobs_started", "Handlers that began", started);
        let help = "Deliveries of jobs that ended, by outcome";
        registry.register("taskharbor_jobs_finished", help, finished);
        let help = "From the time a job became available until its handler began";
        registry.register("taskharbor_job_wait_seconds", help, wait_seconds);
        let help = "How long handlers ran until they succeeded or failed";
        registry.register("taskharbor_job_run_seconds", help, run_seconds);
        let help = "How many attempts a job took until it was done or dead-lettered";
        registry.register("taskharbor_job_attempts", help, attempts);
    }

    /// Hands out the series of this queue and type.
    pub(crate) fn of(&self, queue: &QueueName, job_type: &JobType, count: impl FnOnce(&Series)) {
        {
            let seen = self.seen.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(series) = seen.get(queue, job_type) {
                return count(series);
            }
        }
        let mut seen = self.seen.write().unwrap_or_else(PoisonError::into_inner);
        seen.add(&self.families, queue, job_type);
        if let Some(series) = seen.get(queue, job_type) {
            count(series);
        }
    }

    pub(crate) fn finished(&self, job: &JobView, outcome: JobOutcome) {
        self.of(&job.queue, &job.job_type, |job| {
            job.runs().finished(outcome).inc();
        });
    }
}
