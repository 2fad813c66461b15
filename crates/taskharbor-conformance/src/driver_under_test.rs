//! [`DriverUnderTest`]: short calls to a driver, for cases.
//!
//! Helpers unwrap what a case is not about: a case that expects an answer to be refused asks for
//! the answer itself. Names are short because cases are read far more often than this file.

use std::{sync::Arc, time::Duration};

use taskharbor_core::{
    Admin, AnyDriver, Driver, DriverError, NewJob, State, Timestamp,
    admin::{Action, Counts, Filter, List, Manage, QueueCounts},
    driver::{
        Demand, Enqueue, Enqueued, ExtendLeases, Extended, Extension, JoinList, Leased,
        OutputEntry, OutputQuery, Outputs, Reserve, Reserved, Settle, Settled, Settlement,
        Transition,
    },
    error::{Denied, Refusal, Rejected},
    export::{ExportUnit, ImportRefused, Imported},
    flow::{FlowRecord, FlowState, ListFlows},
    job::{JobRecord, JobSet, JobSummary},
};
use tokio::sync::Barrier;

use crate::{
    case::Opener,
    fixture::{
        LEASE, T0, ack_with, at, expand, extension, fail, holder, id, ids, job, job_in, list,
        queue, settlement, transitions,
    },
};

/// A driver under test, on a store that was empty when the case began.
#[derive(Clone)]
pub(crate) struct DriverUnderTest {
    pub(crate) driver: AnyDriver,
    /// Opens further drivers, each on an empty store of its own.
    pub(crate) open: Opener,
}

impl DriverUnderTest {
    pub(crate) fn new(driver: AnyDriver, open: Opener) -> Self {
        Self { driver, open }
    }

    /// Whether the driver keeps flows.
    pub(crate) fn has_flows(&self) -> bool {
        self.driver.limits().has_flows()
    }

    /// The states that [`DriverUnderTest::bring`] can bring a job into.
    pub(crate) fn job_states(&self) -> Vec<State> {
        let is_there = |state: &State| *state != State::Blocked || self.has_flows();
        State::ALL.iter().copied().filter(is_there).collect()
    }

    /// Another driver, on an empty store of its own.
    pub(crate) async fn another(&self) -> Self {
        Self::new((self.open)().await, Arc::clone(&self.open))
    }

    /// Everything that is stored, in pages of this size.
    pub(crate) async fn export(&self, limit: usize) -> Vec<ExportUnit> {
        let (mut units, mut after) = (Vec::new(), None);
        loop {
            let page = self.driver.export(after, limit).await.expect("export");
            assert!(page.items.len() <= limit, "more than a page");
            units.extend(page.items);
            match page.next {
                Some(cursor) => after = Some(cursor),
                None => return units,
            }
        }
    }

    /// Imports units; the answers as they are.
    pub(crate) async fn import(
        &self,
        units: Vec<ExportUnit>,
    ) -> Vec<Result<Imported, ImportRefused>> {
        self.driver.import(units).await.expect("import")
    }

    /// Enqueues one set; the answer as it is.
    pub(crate) async fn enqueue_set(
        &self,
        set: impl Into<JobSet>,
        now: Timestamp,
    ) -> Result<Vec<Enqueued>, Rejected> {
        let mut answers = self.enqueue_sets(vec![set.into()], now).await;
        assert_eq!(answers.len(), 1, "one set, one answer");
        answers.remove(0)
    }

    /// Enqueues several sets in one call; the answers as they are.
    pub(crate) async fn enqueue_sets(
        &self,
        sets: Vec<JobSet>,
        now: Timestamp,
    ) -> Vec<Result<Vec<Enqueued>, Rejected>> {
        self.driver.enqueue(Enqueue::new(sets, now)).await.expect("enqueue")
    }

    /// Enqueues a job that is not rejected.
    pub(crate) async fn put(&self, job: NewJob, now: Timestamp) -> Enqueued {
        self.driver.enqueue_job(job, now).await.expect("enqueue_job")
    }

    /// Enqueues jobs that are not rejected in one call, each a set of its own.
    pub(crate) async fn put_all(
        &self,
        jobs: impl IntoIterator<Item = NewJob>,
        now: Timestamp,
    ) -> Vec<Enqueued> {
        let sets = jobs.into_iter().map(JobSet::from).collect();
        let answers = self.enqueue_sets(sets, now).await;
        answers.into_iter().flat_map(|answer| answer.expect("not rejected")).collect()
    }

    /// Enqueues a flow that is not rejected.
    pub(crate) async fn put_flow(
        &self,
        jobs: impl IntoIterator<Item = NewJob>,
        now: Timestamp,
    ) -> Vec<Enqueued> {
        let set = JobSet::flow(jobs.into_iter().collect());
        self.enqueue_set(set, now).await.expect("not rejected")
    }

    /// Reserves; the answer as it is.
    pub(crate) async fn reserve(
        &self,
        demands: &[(&str, usize)],
        now: Timestamp,
        lease_for: Duration,
    ) -> Result<Reserved, DriverError> {
        let demands =
            demands.iter().map(|(name, limit)| Demand::new(queue(name), *limit)).collect();
        self.driver.reserve(Reserve::new(demands, holder(), now, lease_for)).await
    }

    /// Reserves at most `limit` jobs from the queue `q`.
    pub(crate) async fn take_many(&self, limit: usize, now: Timestamp) -> Vec<Leased> {
        self.reserve(&[("q", limit)], now, LEASE).await.expect("reserve").jobs
    }

    /// Reserves the next job of the queue `q`, if there is one.
    pub(crate) async fn take(&self, now: Timestamp) -> Option<Leased> {
        self.take_from("q", now).await
    }

    /// Reserves the next job of a queue, if there is one.
    pub(crate) async fn take_from(&self, name: &str, now: Timestamp) -> Option<Leased> {
        self.driver.reserve_job(queue(name), holder(), now, LEASE).await.expect("reserve_job")
    }

    /// Reserves the next job of the queue `q`, which must be this one.
    pub(crate) async fn take_the(&self, text: &str, now: Timestamp) -> Leased {
        let leased = self.take(now).await.unwrap_or_else(|| panic!("{text} is not granted"));
        assert_eq!(leased.job.id.as_str(), text, "another job is granted");
        leased
    }

    /// Reserves everything that is ready in the queue `q`; the ids in the order of the grants.
    pub(crate) async fn take_order(&self, now: Timestamp) -> Vec<String> {
        let jobs = self.take_many(1_000, now).await;
        jobs.iter().map(|leased| leased.job.id.to_string()).collect()
    }

    /// Settles one job; the answer as it is.
    pub(crate) async fn settle(
        &self,
        leased: &Leased,
        transition: Transition,
        now: Timestamp,
    ) -> Result<Settled, Refusal> {
        let mut answers = self.settle_all(vec![settlement(leased, transition)], now).await;
        assert_eq!(answers.len(), 1, "one item, one answer");
        answers.remove(0)
    }

    /// Settles several jobs in one call; the answers as they are.
    pub(crate) async fn settle_all(
        &self,
        items: Vec<Settlement>,
        now: Timestamp,
    ) -> Vec<Result<Settled, Refusal>> {
        self.driver.settle(Settle::new(items, now)).await.expect("settle")
    }

    /// Settles one job; it must be applied.
    pub(crate) async fn apply(&self, leased: &Leased, transition: Transition, now: Timestamp) {
        assert_eq!(self.settle(leased, transition, now).await, Ok(Settled::Applied));
    }

    /// Settles several jobs in one way in one call; all must be applied.
    pub(crate) async fn apply_all(&self, jobs: &[Leased], transition: Transition, now: Timestamp) {
        let settled = |leased| settlement(leased, transition.clone());
        let answers = self.settle_all(jobs.iter().map(settled).collect(), now).await;
        assert_eq!(answers, vec![Ok(Settled::Applied); jobs.len()]);
    }

    /// Reserves the next job of `q`, which must be this one, and settles it at the same instant.
    pub(crate) async fn run(&self, text: &str, transition: Transition, now: Timestamp) -> Leased {
        let leased = self.take_the(text, now).await;
        self.apply(&leased, transition, now).await;
        leased
    }

    /// Stores a job and brings it into this state at the beginning, if its queue has no others;
    /// the lease it was last under, if there was one.
    pub(crate) async fn bring(&self, job: NewJob, state: State) -> Option<Leased> {
        let (name, text) = (job.queue.to_string(), job.id.to_string());
        let parent = format!("the parent of {text}");
        match state {
            State::Scheduled => self.put_all([job.run_at(at(1_000))], T0).await,
            State::Blocked => {
                let child = job.after(ids(&[&parent]));
                self.put_flow([job_in(&parent, &parent), child], T0).await
            }
            _ => self.put_all([job], T0).await,
        };
        let transition = match state {
            State::Inflight => return self.take_from(&name, T0).await,
            State::Done => ack_with("output"),
            State::Dlq => fail(T0),
            State::Cancelled => {
                let cancelled = self.act(&text, Action::Cancel, T0).await;
                assert_eq!(cancelled, State::Cancelled);
                return None;
            }
            _ => return None,
        };
        let leased = self.take_from(&name, T0).await.expect("a grant");
        self.apply(&leased, transition, T0).await;
        Some(leased)
    }

    /// Every use of this lease at `now` is refused for this reason, and nothing changes.
    pub(crate) async fn refuses(&self, leased: &Leased, reason: Refusal, now: Timestamp) {
        let stored = self.snapshot(now).await;
        let expansion = self.has_flows().then(|| expand([job("a job of the expansion")]));
        for transition in transitions(now).into_iter().chain(expansion) {
            let what = format!("{transition:?}");
            let answer = self.settle(leased, transition, now).await;
            assert_eq!(answer, Err(reason.clone()), "{what}");
        }
        let answer = self.extend(leased, now, LEASE).await;
        assert_eq!(answer, Err(reason), "an extension");
        assert_eq!(self.snapshot(now).await, stored, "something changed");
    }

    /// Extends one lease; the answer as it is.
    pub(crate) async fn extend(
        &self,
        leased: &Leased,
        now: Timestamp,
        lease_for: Duration,
    ) -> Result<Extended, Refusal> {
        let mut answers = self.extend_all(vec![extension(leased)], now, lease_for).await;
        assert_eq!(answers.len(), 1, "one item, one answer");
        answers.remove(0)
    }

    /// Extends a lease, which is not refused; the job with the lease of the answer, whose token is
    /// the one that counts from then on.
    pub(crate) async fn keep(
        &self,
        leased: &Leased,
        now: Timestamp,
        lease_for: Duration,
    ) -> Leased {
        let extended = self.extend(leased, now, lease_for).await.expect("not refused");
        Leased::new(leased.job.clone(), extended.lease)
    }

    /// Extends several leases in one call; the answers as they are.
    pub(crate) async fn extend_all(
        &self,
        items: Vec<Extension>,
        now: Timestamp,
        lease_for: Duration,
    ) -> Vec<Result<Extended, Refusal>> {
        let request = ExtendLeases::new(items, now, lease_for);
        self.driver.extend_leases(request).await.expect("extend_leases")
    }

    /// Does something to one job as a person would; the answer as it is.
    pub(crate) async fn manage(
        &self,
        text: &str,
        action: Action,
        now: Timestamp,
    ) -> Result<State, Denied> {
        let request = Manage::new(vec![id(text)], action, now);
        let mut answers = self.driver.manage(request).await.expect("manage");
        assert_eq!(answers.len(), 1, "one id, one answer");
        answers.remove(0)
    }

    /// Does something to one job as a person would, who is not denied it; the job's state.
    pub(crate) async fn act(&self, text: &str, action: Action, now: Timestamp) -> State {
        self.manage(text, action, now).await.expect("not denied")
    }

    /// The record of a job, if it is stored.
    pub(crate) async fn find(&self, text: &str, now: Timestamp) -> Option<JobRecord> {
        self.driver.inspect(id(text), now).await.expect("inspect")
    }

    /// The record of a job that is stored.
    pub(crate) async fn record(&self, text: &str, now: Timestamp) -> JobRecord {
        self.find(text, now).await.unwrap_or_else(|| panic!("{text} is not stored"))
    }

    /// The state of a job that is stored.
    pub(crate) async fn state(&self, text: &str, now: Timestamp) -> State {
        self.record(text, now).await.state
    }

    /// The states of several jobs that are stored.
    pub(crate) async fn states(&self, texts: &[&str], now: Timestamp) -> Vec<State> {
        let mut states = Vec::new();
        for text in texts {
            states.push(self.state(text, now).await);
        }
        states
    }

    /// A flow that is stored.
    pub(crate) async fn flow(&self, text: &str, now: Timestamp) -> FlowRecord {
        let flow = self.driver.flow(id(text), now).await.expect("flow");
        flow.unwrap_or_else(|| panic!("flow {text} is not stored"))
    }

    /// Where a flow stands.
    pub(crate) async fn flow_state(&self, text: &str, now: Timestamp) -> FlowState {
        self.flow(text, now).await.state
    }

    /// What a job reads of its parents, and what joins among them stand for, all of it: each list
    /// before its members, the list that the parents are first.
    pub(crate) async fn inputs(&self, text: &str) -> Vec<OutputEntry> {
        let parents = self.read(OutputQuery::parents_of(id(text))).await;
        let mut all = vec![list(parents.len())];
        all.extend(self.read_joins(parents).await);
        all
    }

    /// What a job produced, and what it stands for if it is a join.
    pub(crate) async fn output(&self, text: &str) -> Vec<OutputEntry> {
        let entries = self.read(OutputQuery::of(id(text))).await;
        assert_eq!(entries.len(), 1, "one job, one output");
        self.read_joins(entries).await
    }

    async fn read_joins(&self, mut entries: Vec<OutputEntry>) -> Vec<OutputEntry> {
        let mut all = Vec::new();
        entries.reverse();
        while let Some(entry) = entries.pop() {
            let OutputEntry::List(JoinList { join, len, .. }) = entry else {
                all.push(entry);
                continue;
            };
            let parents = self.read(OutputQuery::parents_of(join)).await;
            assert_eq!(parents.len(), len, "a list is as long as it says");
            all.push(list(len));
            entries.extend(parents.into_iter().rev());
        }
        all
    }

    /// All pages of what a query reads.
    async fn read(&self, mut query: OutputQuery) -> Vec<OutputEntry> {
        let mut all = Vec::new();
        loop {
            let request = Outputs::new(vec![query.clone()], 1_000);
            let mut answers = self.driver.outputs(request).await.expect("outputs");
            assert_eq!(answers.len(), 1, "one query, one answer");
            let page = answers.remove(0).expect("not refused");
            all.extend(page.entries);
            match page.next {
                Some(next) if next == all.len() => query = query.from(next),
                Some(next) => panic!("the next page starts at {next} after {}", all.len()),
                None => return all,
            }
        }
    }

    /// All jobs that match, page by page.
    pub(crate) async fn list(
        &self,
        filter: Filter,
        limit: usize,
        now: Timestamp,
    ) -> Vec<JobSummary> {
        let mut request = List::new(filter, limit, now);
        let mut all = Vec::new();
        loop {
            let page = self.driver.list(request.clone()).await.expect("list");
            assert!(page.items.len() <= limit, "more than a page");
            all.extend(page.items);
            assert!(all.len() <= 1_000_000, "the list does not end");
            match page.next {
                Some(cursor) => request = request.after(cursor),
                None => return all,
            }
        }
    }

    /// How many jobs of each queue are in each state.
    pub(crate) async fn counts(&self, now: Timestamp) -> Vec<QueueCounts> {
        self.driver.counts(Counts::new(now)).await.expect("counts")
    }

    /// Everything that is stored, to compare with what is stored later at the same `now`.
    pub(crate) async fn snapshot(&self, now: Timestamp) -> Snapshot {
        let mut records = Vec::new();
        for job in self.list(Filter::all(), 1_000, now).await {
            records.push(self.record(job.id.as_str(), now).await);
        }
        let flows = self.driver.list_flows(ListFlows::new(1_000, now)).await.expect("list_flows");
        let counts = self.counts(now).await;
        Snapshot { records, flows: flows.items, counts }
    }
}

/// Runs all of these at the same time, each in a task of its own that starts when all are there;
/// the answers in the order given.
pub(crate) async fn at_once<F>(tasks: impl IntoIterator<Item = F>) -> Vec<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let tasks: Vec<F> = tasks.into_iter().collect();
    let barrier = Arc::new(Barrier::new(tasks.len()));
    let running: Vec<_> = tasks
        .into_iter()
        .map(|task| {
            let barrier = Arc::clone(&barrier);
            tokio::spawn(async move {
                barrier.wait().await;
                task.await
            })
        })
        .collect();
    let mut answers = Vec::new();
    for task in running {
        answers.push(task.await.expect("a task that does not panic"));
    }
    answers
}

/// Everything that a store holds, as people see it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) records: Vec<JobRecord>,
    pub(crate) flows: Vec<FlowRecord>,
    pub(crate) counts: Vec<QueueCounts>,
}
