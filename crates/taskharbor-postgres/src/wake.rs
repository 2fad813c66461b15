//! [`Wakeups`]: wake-ups for workers in this process and in others.
//!
//! In this process a wake-up costs nothing. Other processes are notified by NOTIFY. In the
//! transaction that stores jobs it would be expensive: the server lets one notifying transaction
//! commit after another, each with its own flush to disk. So a driver notifies others in a
//! statement of its own after the commit, which has nothing to flush, for all queues at once and
//! with a pause after it ([`PAUSE_PER_NOTIFY`]). A process that dies between the two loses a wake-up and no
//! job: the next poll of any worker finds it.
//!
//! Two kinds of calls notify inside their transaction: those in the application's own transaction,
//! whose commit is not seen here, and the first one of a driver that has been quiet.
//!
//! A caller that waits for the end of a job makes its driver tell others so. They notify it of ends
//! for as long as they have heard of such a caller lately, and otherwise of none. So ends cost nothing
//! while no caller waits, and a process that died waiting is forgotten.
//!
//! Notifications arrive over a connection of its own (`listener`). Of many listeners a few wake
//! their workers at once, the others only if those leave jobs (`turn`). What is sent is in
//! `message`.

mod listener;
mod message;
mod outbox;
mod turn;
mod work;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use taskharbor_core::{
    DriverError, JobId, QueueName,
    driver::{Demand, LeaseToken, Leased, WakeHub, Watch},
};
use tokio::{
    runtime::Handle,
    sync::{Notify, watch},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

pub(crate) use self::work::Work;
use self::{
    listener::Listening,
    message::{Ended, Id},
    outbox::{Outbox, REPEAT_WAIT},
    turn::{Seen, Turns},
};
use crate::{session::Session, value::Value};

/// How long to wait between two statements that notify others: this many times as long as the first
/// one took, within bounds. Notifications so cost a producer a twentieth of its time at most.
const PAUSE_PER_NOTIFY: u32 = 20;
const MIN_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(200);
/// How long a caller that asks for wake-ups waits for the first attempt to listen.
const FIRST_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a statement may go on after its caller has stopped waiting for it.
const ABANDONED_STATEMENT_TIMEOUT: Duration = Duration::from_millis(400);
/// How long to wait for the last notification when the driver is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

const NOTIFY: &str = "SELECT pg_notify($1, payload) FROM unnest($2) AS payload";

/// Called when jobs were put in front of others in a queue by another process: in this queue, or in
/// any queue if notifications were lost. A scan must then begin at the front.
pub(crate) type OnInFront = Arc<dyn Fn(Option<&QueueName>) + Send + Sync>;

#[derive(Clone, Debug)]
pub(crate) struct Wakeups {
    inner: Arc<Inner>,
}

struct Inner {
    hub: WakeHub,
    session: Session,
    channel: String,
    /// Whether others are notified and listened to at all.
    enabled: bool,
    on_in_front: OnInFront,
    outbox: Mutex<Outbox>,
    /// Held while messages are sent.
    sending: tokio::sync::Mutex<()>,
    /// Notified when there are messages to send, and when the last handle is dropped.
    pending: Arc<Notify>,
    turns: Mutex<Turns>,
    /// Whether a worker has ever waited for wake-ups here.
    is_watched: AtomicBool,
    listening: watch::Sender<Listening>,
    tasks: Mutex<Tasks>,
}

#[derive(Debug, Default)]
struct Tasks {
    listener: Option<JoinHandle<()>>,
    notifier: Option<JoinHandle<()>>,
}

/// A look for jobs: what was announced when it began.
#[derive(Debug)]
pub(crate) struct Look {
    seen: Vec<Seen>,
    own: Id,
    began: Instant,
}

impl Look {
    /// Whether jobs of a queue were announced since the last look that left none of them.
    pub(crate) fn is_woken(&self, queue: &QueueName) -> bool {
        self.seen.iter().any(|seen| seen.queue == *queue)
    }
}

impl Wakeups {
    pub(crate) fn new(
        session: Session,
        channel: String,
        enabled: bool,
        on_in_front: OnInFront,
    ) -> Self {
        let hub = WakeHub::new();
        hub.set_reaching(false);
        let (listening, _) = watch::channel(Listening::Starting);
        let (sender, seed) = identity();
        let inner = Inner {
            hub,
            session,
            channel,
            enabled,
            on_in_front,
            outbox: Mutex::new(Outbox::new(sender)),
            sending: tokio::sync::Mutex::new(()),
            pending: Arc::new(Notify::new()),
            turns: Mutex::new(Turns::new(sender, seed)),
            is_watched: AtomicBool::new(false),
            listening,
            tasks: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Waits for wake-ups about these queues. Listens from the first time on.
    pub(crate) async fn watch(&self, queues: Vec<QueueName>) -> Watch {
        if self.inner.enabled {
            let mut turns = lock(&self.inner.turns);
            queues.iter().for_each(|queue| turns.serve(queue));
        }
        let watch = self.inner.hub.watch(queues);
        if self.inner.enabled {
            self.inner.is_watched.store(true, Ordering::Release);
            let mut listening = self.inner.listening.subscribe();
            self.start(|tasks| &mut tasks.listener, listener::listen);
            // So that most callers know at once whether there will be wake-ups.
            let started = listening.wait_for(|it| *it != Listening::Starting);
            let _ = timeout(FIRST_ATTEMPT_TIMEOUT, started).await;
        }
        watch
    }

    /// Waits for the end of a job. Until the driver listens, only ends in this process are known.
    pub(crate) fn watch_job(&self, id: JobId) -> Watch {
        let watch = self.inner.hub.watch_job(id);
        if self.inner.enabled {
            self.start(|tasks| &mut tasks.listener, listener::listen);
            lock(&self.inner.outbox).wait(Instant::now());
            self.send_soon();
        }
        watch
    }

    /// These jobs may have ended. Wakes the callers of this process that wait for them, and notifies
    /// others if a caller waits there, or with `always`. WAK-2.
    pub(crate) fn ended<'a>(&self, ids: impl Iterator<Item = &'a JobId> + Clone, always: bool) {
        self.inner.hub.wake_jobs(ids.clone());
        let mut outbox = lock(&self.inner.outbox);
        if self.inner.enabled && (always || outbox.is_awaited(Instant::now())) {
            outbox.end(ids);
            drop(outbox);
            self.send_soon();
        }
    }

    /// What the application's transaction should notify when it ends these jobs, if a caller waits.
    pub(crate) fn end_payload<'a>(&self, ids: impl Iterator<Item = &'a JobId>) -> Option<String> {
        let is_awaited = lock(&self.inner.outbox).is_awaited(Instant::now());
        (is_awaited || self.inner.hub.is_job_watched()).then(|| Ended::of(ids.cloned()).payload())
    }

    /// The channel that a call which stores jobs should notify inside its transaction, if it
    /// should. A driver with workers of its own lives long and notifies after the commit, so that
    /// its notification can be told from those of others.
    pub(crate) fn inline_notify_channel(&self) -> Option<&str> {
        let inner = &self.inner;
        if !inner.enabled || inner.is_watched.load(Ordering::Acquire) {
            return None;
        }
        let is_inline = lock(&inner.outbox).send_inline(Instant::now());
        is_inline.then_some(inner.channel.as_str())
    }

    /// There are jobs. Wakes the workers of this process, and notifies others unless the call that
    /// stored the jobs has done so.
    pub(crate) fn announce(&self, work: Vec<Work>, was_notified: bool) {
        if work.is_empty() {
            return;
        }
        self.inner.hub.wake(work.iter().map(|it| &it.queue));
        if !self.inner.enabled || was_notified {
            return;
        }
        let is_watched = self.inner.is_watched.load(Ordering::Acquire);
        for work in work {
            let queue = is_watched.then(|| work.queue.clone());
            let id = lock(&self.inner.outbox).announce(work);
            if let Some(queue) = queue {
                lock(&self.inner.turns).announced_here(&queue, id);
            }
        }
        self.send_soon();
    }

    /// A reserve begins.
    pub(crate) fn begin_look(&self, demands: &[Demand]) -> Look {
        let mut look =
            Look { seen: Vec::new(), own: Id { sender: 0, number: 0 }, began: Instant::now() };
        if self.inner.is_watched.load(Ordering::Acquire) {
            // In this order: what is announced in between counts as not seen.
            look.own = lock(&self.inner.outbox).latest();
            let queues = demands.iter().map(|demand| &demand.queue);
            look.seen = lock(&self.inner.turns).begin_look(queues);
        }
        look
    }

    /// The reserve was granted these jobs, and the next one falls due then. Tells others which
    /// queues it has left without a due job.
    pub(crate) fn end_look(
        &self,
        look: Look,
        demands: &[Demand],
        granted: &[Leased],
        next_due_in: Option<Duration>,
    ) {
        // A job that is due was left for another reason, as that the answer is large enough.
        if look.seen.is_empty() || next_due_in.is_some_and(|it| it < Duration::from_millis(1)) {
            return;
        }
        let (mut has_news, times) = (false, (look.began, Instant::now()));
        for seen in look.seen {
            let asked = demands.iter().filter(|it| it.queue == seen.queue).map(|it| it.limit).sum();
            let count = granted.iter().filter(|it| it.job.queue == seen.queue).count();
            if count < asked {
                let mut turns = lock(&self.inner.turns);
                let (drained, is_news) = turns.end_look(seen, look.own, next_due_in, times);
                drop(turns);
                lock(&self.inner.outbox).drained(drained, is_news);
                has_news |= is_news;
            }
        }
        if has_news {
            self.send_soon();
        }
    }

    /// A call begins that may make jobs available: in these queues, and perhaps in others.
    pub(crate) fn begin_call(&self, queues: Vec<QueueName>) -> UnansweredCall {
        UnansweredCall { wakeups: Some(self.clone()), queues }
    }

    /// Sends the last messages and ends all watches.
    pub(crate) async fn close(&self) {
        if self.inner.enabled {
            let _ = timeout(CLOSE_TIMEOUT, self.inner.send()).await;
        }
        for task in lock(&self.inner.tasks).all() {
            task.abort();
        }
        self.inner.hub.close();
    }

    fn send_soon(&self) {
        let pending = Arc::clone(&self.inner.pending);
        self.start(|tasks| &mut tasks.notifier, |inner| notify(inner, pending));
        self.inner.pending.notify_one();
    }

    /// Starts a task unless it runs; one that ended with its runtime is started again on another.
    fn start<F>(
        &self,
        slot: impl Fn(&mut Tasks) -> &mut Option<JoinHandle<()>>,
        run: impl FnOnce(Weak<Inner>) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut tasks = lock(&self.inner.tasks);
        let slot = slot(&mut tasks);
        if slot.as_ref().is_none_or(JoinHandle::is_finished) {
            *slot = Some(tokio::spawn(run(Arc::downgrade(&self.inner))));
        }
    }
}

/// A call that was not answered yet.
///
/// If it never is, because it was dropped or the connection lost, it may have happened all the
/// same, and a caller that repeats it is told that there was nothing left to do. So all workers
/// look once it is over, and other processes are notified.
#[derive(Debug)]
pub(crate) struct UnansweredCall {
    wakeups: Option<Wakeups>,
    queues: Vec<QueueName>,
}

impl UnansweredCall {
    /// Whether the call was applied is known, unless the store was unavailable.
    pub(crate) fn answered<T>(mut self, answer: &Result<T, DriverError>) {
        if !matches!(answer, Err(DriverError::Unavailable(_))) {
            self.wakeups = None;
        }
    }
}

impl Drop for UnansweredCall {
    fn drop(&mut self) {
        let (Some(wakeups), Ok(runtime)) = (self.wakeups.take(), Handle::try_current()) else {
            return;
        };
        let queues = std::mem::take(&mut self.queues);
        drop(runtime.spawn(async move {
            sleep(ABANDONED_STATEMENT_TIMEOUT).await;
            wakeups.inner.hub.wake_all();
            let work = queues.into_iter().map(|queue| Work::new(queue).in_front(true));
            wakeups.announce(work.collect(), false);
        }));
    }
}

impl Tasks {
    fn all(&mut self) -> impl Iterator<Item = JoinHandle<()>> {
        [self.listener.take(), self.notifier.take()].into_iter().flatten()
    }
}

impl Inner {
    /// Sends all messages that wait.
    async fn send(&self) -> Result<(), DriverError> {
        // Closing waits for messages that are in flight.
        let _sending = self.sending.lock().await;
        let payloads = lock(&self.outbox).take(Instant::now());
        send(&self.session, &self.channel, &payloads).await
    }

    fn set_listening(&self, listening: Listening) {
        if listening == Listening::Yes {
            // Notifications were lost until now.
            lock(&self.turns).reset();
            (self.on_in_front)(None);
        }
        self.listening.send_replace(listening);
        self.hub.set_reaching(listening == Listening::Yes);
    }
}

impl Drop for Inner {
    /// The messages that wait are sent, if there is time for it: [`Wakeups::close`] waits.
    fn drop(&mut self) {
        self.pending.notify_one();
        let payloads = lock(&self.outbox).take(Instant::now());
        if let (false, Ok(runtime)) = (payloads.is_empty(), Handle::try_current()) {
            let (session, channel) = (self.session.clone(), self.channel.clone());
            drop(runtime.spawn(async move { send(&session, &channel, &payloads).await }));
        }
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wakeups")
            .field("channel", &self.channel)
            .field("enabled", &self.enabled)
            .field("listening", &*self.listening.borrow())
            .finish_non_exhaustive()
    }
}

async fn send(session: &Session, channel: &str, payloads: &[String]) -> Result<(), DriverError> {
    if payloads.is_empty() {
        return Ok(());
    }
    let texts = Value::Texts(payloads.iter().map(|it| Some(it.as_str())).collect());
    session.query(NOTIFY, &[Value::Text(Some(channel)), texts]).await.map(drop)
}

/// Sends messages as they come, with a pause after each time.
async fn notify(inner: Weak<Inner>, pending: Arc<Notify>) {
    loop {
        let is_waiting = inner.upgrade().is_some_and(|it| it.hub.is_job_watched());
        let repeat = if is_waiting { REPEAT_WAIT } else { Duration::MAX };
        let is_repeated = timeout(repeat, pending.notified()).await.is_err();
        let Some(strong) = inner.upgrade() else { return };
        if is_repeated {
            lock(&strong.outbox).wait(Instant::now());
        }
        let began = Instant::now();
        if let Err(error) = strong.send().await {
            tracing::debug!(%error, "other processes were not notified, and find the jobs by polling");
        }
        drop(strong);
        sleep((began.elapsed() * PAUSE_PER_NOTIFY).clamp(MIN_PAUSE, MAX_PAUSE)).await;
    }
}

/// A name for this driver that no other has, and a seed. Zero stands for SQL functions.
fn identity() -> (u64, u64) {
    let process = u128::from(std::process::id()) << 64;
    let bits = LeaseToken::random().map_or(process, LeaseToken::to_bits).to_be_bytes();
    let (sender, seed) = bits.split_at(8);
    let number = |half: &[u8]| half.try_into().map_or(0, u64::from_be_bytes);
    (number(sender), number(seed))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
