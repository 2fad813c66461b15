//! [`WakeHub`] and [`Watch`]: waking workers that wait for jobs, and callers that wait for the end of a
//! job.
//!
//! A wake-up is a flag for each queue, not a message: any number of them before the next look count as
//! one, so nothing can pile up. It needs no runtime, so every driver can use it.

use std::{
    collections::{BTreeSet, HashMap},
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Poll, Waker},
};

use crate::{JobId, QueueName};

/// Passes wake-ups from the driver to the watches of a queue or a job.
#[derive(Clone, Debug, Default)]
pub struct WakeHub {
    registry: Arc<Mutex<Registry>>,
}

#[derive(Debug, Default)]
struct Registry {
    /// The watches of each queue, with the queue's place among those of the watch.
    watchers: HashMap<QueueName, Vec<(Weak<Watcher>, usize)>>,
    /// The watches of each job.
    waiters: HashMap<JobId, Vec<Weak<Watcher>>>,
    closed: bool,
    /// Whether wake-ups do not arrive at the moment.
    cut_off: bool,
    /// The reason why they do not, although they should.
    problem: Option<Arc<str>>,
}

/// The subject of a wake-up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Woken {
    /// There may be jobs in these queues of the watch.
    Queues(Vec<QueueName>),
    /// There may be jobs in every queue of the watch, or the job of the watch may have ended.
    All,
    /// The job of the watch was settled or cancelled.
    Job,
}

/// Waits for wake-ups about some queues, or about one job.
#[derive(Debug)]
pub struct Watch {
    queues: Vec<QueueName>,
    job: Option<JobId>,
    watcher: Arc<Watcher>,
    hub: WakeHub,
}

#[derive(Debug)]
struct Watcher {
    signal: Mutex<Signal>,
}

#[derive(Debug, Default)]
struct Signal {
    /// The places of the queues that were woken, each once.
    queues: BTreeSet<usize>,
    all: bool,
    job: bool,
    closed: bool,
    waker: Option<Waker>,
}

impl WakeHub {
    /// A hub without watches.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for wake-ups about these queues from now on.
    #[must_use]
    pub fn watch(&self, queues: Vec<QueueName>) -> Watch {
        let mut registry = lock(&self.registry);
        let watcher = registry.watcher();
        for (place, queue) in queues.iter().enumerate() {
            let of_queue = registry.watchers.entry(queue.clone()).or_default();
            of_queue.push((Arc::downgrade(&watcher), place));
        }
        drop(registry);
        Watch { queues, job: None, watcher, hub: self.clone() }
    }

    /// Waits for the end of this job from now on.
    #[must_use]
    pub fn watch_job(&self, job: JobId) -> Watch {
        let mut registry = lock(&self.registry);
        let watcher = registry.watcher();
        registry.waiters.entry(job.clone()).or_default().push(Arc::downgrade(&watcher));
        drop(registry);
        Watch { queues: Vec::new(), job: Some(job), watcher, hub: self.clone() }
    }

    /// Wakes every watch of one of these queues.
    pub fn wake<'a>(&self, queues: impl IntoIterator<Item = &'a QueueName>) {
        let mut woken = Vec::new();
        let registry = lock(&self.registry);
        for queue in queues {
            let of_queue = registry.watchers.get(queue).into_iter().flatten();
            let alive = of_queue.filter_map(|(watcher, place)| Some((watcher.upgrade()?, *place)));
            woken.extend(alive);
        }
        drop(registry);
        for (watcher, place) in woken {
            watcher.raise(|signal| {
                signal.queues.insert(place);
            });
        }
    }

    /// These jobs were settled or cancelled. Wakes their watches with [`Woken::Job`], and those of other
    /// jobs with [`Woken::All`]: the end of one job can end others.
    pub fn wake_jobs<'a>(&self, ended: impl IntoIterator<Item = &'a JobId>) {
        let registry = lock(&self.registry);
        if registry.waiters.is_empty() {
            return;
        }
        let of = |job| registry.waiters.get(job).into_iter().flatten().filter_map(Weak::upgrade);
        let named: Vec<_> = ended.into_iter().flat_map(of).collect();
        let all = registry.all_waiters();
        drop(registry);
        for watcher in named {
            watcher.raise(|signal| signal.job = true);
        }
        raise_all(&all);
    }

    /// Whether a caller waits for the end of a job.
    #[must_use]
    pub fn is_job_watched(&self) -> bool {
        !lock(&self.registry).waiters.is_empty()
    }

    /// Wakes every watch: there may be jobs in any queue, and any job may have ended.
    pub fn wake_all(&self) {
        let watchers = lock(&self.registry).all();
        raise_all(&watchers);
    }

    /// Whether there is a watch: a driver that has to do something to receive wake-ups need not do it
    /// otherwise.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        let registry = lock(&self.registry);
        !(registry.watchers.is_empty() && registry.waiters.is_empty())
    }

    /// The queues and the jobs that are watched, for a driver that asks another process for wake-ups about
    /// them.
    #[must_use]
    pub fn watched(&self) -> (BTreeSet<QueueName>, BTreeSet<JobId>) {
        let registry = lock(&self.registry);
        (registry.watchers.keys().cloned().collect(), registry.waiters.keys().cloned().collect())
    }

    /// Sets whether wake-ups arrive: `false` while the connection over which they come is broken.
    /// Workers then poll as often as without wake-ups. Each change wakes every watch, because
    /// wake-ups were lost meanwhile, and because workers have to choose a new polling interval.
    /// Initially `true`.
    pub fn set_reaching(&self, reaching: bool) {
        let mut registry = lock(&self.registry);
        let changes = registry.cut_off == reaching;
        registry.cut_off = !reaching;
        if reaching {
            registry.problem = None;
        }
        let watchers = if changes { registry.all() } else { Vec::new() };
        drop(registry);
        raise_all(&watchers);
    }

    /// Sets the reason why wake-ups do not arrive although they should. Workers report it to their
    /// observers. It is cleared when wake-ups arrive again ([`WakeHub::set_reaching`]).
    pub fn set_problem(&self, problem: impl Into<Arc<str>>) {
        lock(&self.registry).problem = Some(problem.into());
    }

    /// Ends every watch: the driver is closed.
    pub fn close(&self) {
        let mut registry = lock(&self.registry);
        registry.closed = true;
        let watchers = registry.all();
        registry.watchers.clear();
        registry.waiters.clear();
        drop(registry);
        for watcher in watchers {
            watcher.raise(|signal| signal.closed = true);
        }
    }
}

impl Registry {
    fn watcher(&self) -> Arc<Watcher> {
        let signal = Signal { closed: self.closed, ..Signal::default() };
        Arc::new(Watcher { signal: Mutex::new(signal) })
    }

    /// A watch of several queues is among them several times, which does no harm.
    fn all(&self) -> Vec<Arc<Watcher>> {
        let of_queues = self.watchers.values().flatten().filter_map(|(it, _)| it.upgrade());
        of_queues.chain(self.all_waiters()).collect()
    }

    fn all_waiters(&self) -> Vec<Arc<Watcher>> {
        self.waiters.values().flatten().filter_map(Weak::upgrade).collect()
    }
}

impl Watch {
    /// A watch that never wakes, for drivers without wake-ups.
    #[must_use]
    pub fn never() -> Self {
        WakeHub::new().watch(Vec::new())
    }

    /// Why wake-ups do not arrive although they should ([`WakeHub::set_problem`]).
    #[must_use]
    pub fn problem(&self) -> Option<Arc<str>> {
        lock(&self.hub.registry).problem.clone()
    }

    /// Whether wake-ups can arrive at the moment: not from [`Watch::never`], and not while the
    /// driver reports that they do not reach it ([`WakeHub::set_reaching`]). When that changes, the
    /// watch is woken.
    #[must_use]
    pub fn can_wake(&self) -> bool {
        let is_watch = self.job.is_some() || !self.queues.is_empty();
        is_watch && !lock(&self.hub.registry).cut_off
    }

    /// The number of jobs that are watched through this driver. The more there are, the more rarely
    /// a caller that is woken with [`Woken::All`] should read its job.
    #[must_use]
    pub fn watched_jobs(&self) -> usize {
        lock(&self.hub.registry).waiters.len()
    }

    /// Waits for a wake-up, and returns its subject: at once if there was one since the last call.
    /// `None` if the driver was closed, so that no more will come.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no wake-up.
    pub async fn woken(&mut self) -> Option<Woken> {
        poll_fn(|context| {
            let mut signal = lock(&self.watcher.signal);
            let places = std::mem::take(&mut signal.queues);
            if std::mem::take(&mut signal.job) {
                signal.all = false;
                return Poll::Ready(Some(Woken::Job));
            }
            if std::mem::take(&mut signal.all) {
                return Poll::Ready(Some(Woken::All));
            }
            if !places.is_empty() {
                let queues = places.iter().filter_map(|place| self.queues.get(*place)).cloned();
                return Poll::Ready(Some(Woken::Queues(queues.collect())));
            }
            if signal.closed {
                return Poll::Ready(None);
            }
            signal.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let gone = Arc::downgrade(&self.watcher);
        let mut registry = lock(&self.hub.registry);
        for queue in &self.queues {
            if let Some(of_queue) = registry.watchers.get_mut(queue) {
                of_queue.retain(|(it, _)| !it.ptr_eq(&gone));
                if of_queue.is_empty() {
                    registry.watchers.remove(queue);
                }
            }
        }
        if let Some(job) = &self.job
            && let Some(of_job) = registry.waiters.get_mut(job)
        {
            of_job.retain(|it| !it.ptr_eq(&gone));
            if of_job.is_empty() {
                registry.waiters.remove(job);
            }
        }
    }
}

impl Watcher {
    fn raise(&self, change: impl FnOnce(&mut Signal)) {
        let mut signal = lock(&self.signal);
        change(&mut signal);
        let waker = signal.waker.take();
        // Waking runs foreign code, which must not find the lock taken.
        drop(signal);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

fn raise_all(watchers: &[Arc<Watcher>]) {
    for watcher in watchers {
        watcher.raise(|signal| signal.all = true);
    }
}

/// Every critical section here leaves the data whole at every point, so that a panic elsewhere in
/// a thread that held the lock is no reason to stop waking others.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{future::Future, pin::pin, task::Context};

    use super::*;

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).unwrap()
    }

    fn poll(watch: &mut Watch) -> Poll<Option<Woken>> {
        pin!(watch.woken()).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn woken(names: &[&str]) -> Poll<Option<Woken>> {
        Poll::Ready(Some(Woken::Queues(names.iter().map(|name| queue(name)).collect())))
    }

    const ALL: Poll<Option<Woken>> = Poll::Ready(Some(Woken::All));

    #[test]
    fn wake_ups_reach_the_watches_of_the_queue_and_count_once() {
        let hub = WakeHub::new();
        let mut mail = hub.watch(vec![queue("mail"), queue("bulk")]);
        let mut other = hub.watch(vec![queue("other")]);
        assert_eq!(poll(&mut mail), Poll::Pending);
        hub.wake([&queue("mail"), &queue("bulk"), &queue("unwatched")]);
        hub.wake([&queue("mail")]);
        assert_eq!(poll(&mut mail), woken(&["mail", "bulk"]));
        assert_eq!(poll(&mut mail), Poll::Pending);
        hub.wake([&queue("bulk")]);
        assert_eq!(poll(&mut mail), woken(&["bulk"]));
        assert_eq!(poll(&mut other), Poll::Pending);
    }

    #[test]
    fn a_wake_up_about_all_queues_includes_those_that_were_named() {
        let hub = WakeHub::new();
        let mut watch = hub.watch(vec![queue("mail"), queue("bulk")]);
        hub.wake([&queue("mail")]);
        hub.wake_all();
        assert_eq!(poll(&mut watch), ALL);
        assert_eq!(poll(&mut watch), Poll::Pending);
    }

    #[test]
    fn closing_ends_every_watch_after_its_last_wake_up() {
        let hub = WakeHub::new();
        let mut watch = hub.watch(vec![queue("mail")]);
        hub.wake([&queue("mail")]);
        hub.close();
        assert_eq!(poll(&mut watch), woken(&["mail"]));
        assert_eq!(poll(&mut watch), Poll::Ready(None));
        assert_eq!(poll(&mut hub.watch(vec![queue("mail")])), Poll::Ready(None));
    }

    #[test]
    fn what_is_watched_is_known_until_the_watch_is_dropped() {
        let (hub, id) = (WakeHub::new(), JobId::new("a").unwrap());
        let mail = hub.watch(vec![queue("mail"), queue("bulk")]);
        let job = hub.watch_job(id.clone());
        let (queues, jobs) = hub.watched();
        assert!(queues.into_iter().eq([queue("bulk"), queue("mail")]));
        assert!(jobs.into_iter().eq([id]));
        drop((mail, job));
        let (queues, jobs) = hub.watched();
        assert!(queues.is_empty() && jobs.is_empty());
    }

    #[test]
    fn a_watch_knows_when_wake_ups_do_not_arrive() {
        let hub = WakeHub::new();
        let mut watch = hub.watch(vec![queue("mail"), queue("bulk")]);
        assert!(watch.can_wake());
        hub.set_reaching(false);
        assert!(!watch.can_wake());
        assert!(!hub.watch(vec![queue("mail")]).can_wake());
        assert_eq!(poll(&mut watch), ALL);
        assert_eq!(poll(&mut watch), Poll::Pending);
        hub.set_reaching(true);
        assert!(watch.can_wake());
        assert_eq!(poll(&mut watch), ALL);
    }

    #[test]
    fn a_watch_knows_why_wake_ups_do_not_arrive_until_they_do() {
        let hub = WakeHub::new();
        let watch = hub.watch(vec![queue("mail")]);
        hub.set_reaching(false);
        assert_eq!(watch.problem(), None);
        hub.set_problem("the connection ended");
        assert_eq!(watch.problem().as_deref(), Some("the connection ended"));
        hub.set_reaching(false);
        assert!(watch.problem().is_some());
        hub.set_reaching(true);
        assert_eq!(watch.problem(), None);
    }

    #[test]
    fn saying_again_whether_wake_ups_arrive_wakes_no_watch() {
        let hub = WakeHub::new();
        let mut watch = hub.watch(vec![queue("mail")]);
        hub.set_reaching(true);
        assert_eq!(poll(&mut watch), Poll::Pending);
        hub.set_reaching(false);
        assert_eq!(poll(&mut watch), ALL);
        hub.set_reaching(false);
        assert_eq!(poll(&mut watch), Poll::Pending);
    }

    #[test]
    fn every_watch_can_be_woken_but_one_that_never_wakes() {
        let hub = WakeHub::new();
        let mut watches = [hub.watch(vec![queue("mail")]), hub.watch(vec![queue("bulk")])];
        hub.wake_all();
        assert!(watches.iter_mut().all(|watch| poll(watch) == ALL));
        assert!(watches.iter_mut().all(|watch| poll(watch) == Poll::Pending));
        assert!(!Watch::never().can_wake());
    }

    #[test]
    fn the_end_of_a_job_names_its_watches_and_wakes_those_of_other_jobs() {
        let (hub, [a, b]) = (WakeHub::new(), ["a", "b"].map(|it| JobId::new(it).unwrap()));
        let mut watches = [hub.watch_job(a.clone()), hub.watch_job(a.clone()), hub.watch_job(b)];
        let mut mail = hub.watch(vec![queue("mail")]);
        assert!(watches.iter().all(|it| it.can_wake() && it.watched_jobs() == 2));
        hub.wake_jobs([&a]);
        let job = Poll::Ready(Some(Woken::Job));
        assert_eq!(watches.each_mut().map(poll), [job.clone(), job, ALL]);
        assert!(watches.iter_mut().all(|it| poll(it) == Poll::Pending));
        assert_eq!(poll(&mut mail), Poll::Pending);
        hub.wake_all();
        assert!(watches.iter_mut().all(|it| poll(it) == ALL));
        hub.close();
        assert!(watches.iter_mut().all(|it| poll(it) == Poll::Ready(None)));
    }

    #[test]
    fn a_dropped_watch_leaves_nothing_behind() {
        let hub = WakeHub::new();
        let of_queue: fn(&WakeHub) -> Watch = |hub| hub.watch(vec![queue("mail")]);
        for watch in [of_queue, |hub| hub.watch_job(JobId::new("a").unwrap())] {
            let watch = watch(&hub);
            assert!(hub.is_watched());
            drop(watch);
            assert!(!hub.is_watched());
        }
        assert_eq!(poll(&mut Watch::never()), Poll::Pending);
    }
}
