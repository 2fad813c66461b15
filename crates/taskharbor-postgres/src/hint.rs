//! [`Hints`]: telling those who wait for work, in this process and in others.
//!
//! In this process a hint costs nothing. Others are told by NOTIFY, of which a server can take few:
//! it makes the commits of all who use it wait for each other. So a queue is told about at most
//! once in [`GAP`]: by the statement that stores jobs itself if it was quiet before, else by a
//! statement of its own a moment later, which tells about all queues that have gathered.
//!
//! Hints from others come over a connection of its own. It is tried out when it is made, since a
//! pooler takes LISTEN and passes nothing on, and asked for a sign of life from then on, since a
//! connection can die without a word. While there is none, workers are told so and look for
//! themselves.

use std::{
    collections::{BTreeSet, HashMap},
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use taskharbor_core::{
    DriverError, QueueName,
    driver::{LeaseToken, WakeHub, Watch},
};
use tokio::{
    runtime::Handle,
    sync::{Notify, watch},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_postgres::{AsyncMessage, Client};

use crate::{
    session::{Apart, Session},
    value::Value,
};

/// How long a queue that was told about is not told about again.
const GAP: Duration = Duration::from_millis(5);
/// How often the connection is asked for a sign of life, and how long it may take to give one.
const SIGN_OF_LIFE: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait before trying to listen again, at first and at most.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How long whoever asks for hints waits for the first attempt to listen.
const START: Duration = Duration::from_secs(2);
/// After how long a statement that nobody waits for any more is over.
const OVER: Duration = Duration::from_millis(400);
/// More queues than this are not remembered as told.
const REMEMBERED: usize = 1_000;

const TELL: &str = "SELECT pg_notify($1, queue) FROM unnest($2) AS queue";

#[derive(Clone, Debug)]
pub(crate) struct Hints {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    hub: WakeHub,
    session: Session,
    channel: String,
    /// Whether others are told and listened to at all.
    enabled: bool,
    outbox: Mutex<Outbox>,
    /// There is something to tell; or nobody is left who could have something.
    gathered: Arc<Notify>,
    listening: watch::Sender<Listening>,
    tasks: Mutex<Tasks>,
}

#[derive(Debug, Default)]
struct Outbox {
    /// To be told about.
    queues: BTreeSet<QueueName>,
    /// When each was told about.
    told: HashMap<QueueName, Instant>,
}

#[derive(Debug, Default)]
struct Tasks {
    listener: Option<JoinHandle<()>>,
    teller: Option<JoinHandle<()>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listening {
    Starting,
    Yes,
    No,
}

#[derive(Debug, thiserror::Error)]
enum Deaf {
    #[error("notifications do not arrive, as behind a pooler in transaction mode")]
    NotPassedOn,
    #[error("the connection gave no sign of life for {PATIENCE:?}")]
    Silent,
    #[error("the connection ended")]
    Ended,
    #[error(transparent)]
    Failed(#[from] DriverError),
    #[error(transparent)]
    Refused(#[from] tokio_postgres::Error),
}

impl Hints {
    pub(crate) fn new(session: Session, channel: String, enabled: bool) -> Self {
        let hub = WakeHub::new();
        hub.set_reaching(false);
        let (listening, _) = watch::channel(Listening::Starting);
        let inner = Inner {
            hub,
            session,
            channel,
            enabled,
            outbox: Mutex::default(),
            gathered: Arc::new(Notify::new()),
            listening,
            tasks: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Waits for hints about these queues. Listens from the first time on.
    pub(crate) async fn watch(&self, queues: Vec<QueueName>) -> Watch {
        let watch = self.inner.hub.watch(queues);
        if self.inner.enabled {
            let mut listening = self.inner.listening.subscribe();
            self.start(|tasks| &mut tasks.listener, listen);
            // So that most get to know at once whether there will be hints.
            let _ = timeout(START, listening.wait_for(|it| *it != Listening::Starting)).await;
        }
        watch
    }

    /// The channel on which a statement that puts jobs into these queues should tell so itself, if
    /// it should.
    pub(crate) fn lead(&self, queues: &[&QueueName]) -> Option<&str> {
        if !self.inner.enabled {
            return None;
        }
        let now = Instant::now();
        let mut outbox = lock(&self.inner.outbox);
        let is_quiet = |queue: &&QueueName| {
            outbox.told.get(*queue).is_none_or(|told| now.duration_since(*told) >= GAP)
        };
        if !queues.iter().any(is_quiet) {
            return None;
        }
        outbox.note(queues.iter().copied(), now);
        Some(&self.inner.channel)
    }

    /// There is work in these queues. Others are told too, unless a statement did so itself.
    pub(crate) fn wake(&self, queues: Vec<QueueName>, told: bool) {
        if queues.is_empty() {
            return;
        }
        self.inner.hub.wake(&queues);
        if self.inner.enabled && !told {
            lock(&self.inner.outbox).queues.extend(queues);
            let gathered = Arc::clone(&self.inner.gathered);
            self.start(|tasks| &mut tasks.teller, |inner| tell(inner, gathered));
            self.inner.gathered.notify_one();
        }
    }

    /// A call sets out that may put jobs in line: in these queues, and perhaps in others.
    pub(crate) fn set_out(&self, queues: Vec<QueueName>) -> Unanswered {
        Unanswered { hints: Some(self.clone()), queues }
    }

    /// Tells others what is still to be told, and ends all watches.
    pub(crate) async fn close(&self) {
        if self.inner.enabled {
            let _ = timeout(Duration::from_secs(1), self.inner.tell()).await;
        }
        for task in lock(&self.inner.tasks).all() {
            task.abort();
        }
        self.inner.hub.close();
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
/// same, and whoever makes it again is told that there was nothing left to do. So those who wait
/// look once it is over, and others are told.
#[derive(Debug)]
pub(crate) struct Unanswered {
    hints: Option<Hints>,
    queues: Vec<QueueName>,
}

impl Unanswered {
    /// What became of the call is known, unless the store was unavailable.
    pub(crate) fn answered<T>(mut self, answer: &Result<T, DriverError>) {
        if !matches!(answer, Err(DriverError::Unavailable(_))) {
            self.hints = None;
        }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        let (Some(hints), Ok(runtime)) = (self.hints.take(), Handle::try_current()) else { return };
        let queues = std::mem::take(&mut self.queues);
        drop(runtime.spawn(async move {
            sleep(OVER).await;
            hints.inner.hub.wake_all();
            hints.wake(queues, false);
        }));
    }
}

impl Tasks {
    fn all(&mut self) -> impl Iterator<Item = JoinHandle<()>> {
        [self.listener.take(), self.teller.take()].into_iter().flatten()
    }
}

impl Outbox {
    fn note<'a>(&mut self, queues: impl Iterator<Item = &'a QueueName>, now: Instant) {
        if self.told.len() > REMEMBERED {
            self.told.retain(|_, told| now.duration_since(*told) < GAP);
        }
        self.told.extend(queues.map(|queue| (queue.clone(), now)));
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.gathered.notify_one();
    }
}

impl Inner {
    /// Tells others about all queues that have gathered.
    async fn tell(&self) -> Result<(), DriverError> {
        let queues = {
            let mut outbox = lock(&self.outbox);
            let queues = std::mem::take(&mut outbox.queues);
            outbox.note(queues.iter(), Instant::now());
            queues
        };
        if queues.is_empty() {
            return Ok(());
        }
        let names = Value::Texts(queues.iter().map(|queue| Some(queue.as_str())).collect());
        self.session.query(TELL, &[Value::Text(Some(&self.channel)), names]).await.map(drop)
    }

    fn set_listening(&self, listening: Listening) {
        self.listening.send_replace(listening);
        self.hub.set_reaching(listening == Listening::Yes);
    }
}

/// Tells others what gathers, with a pause after each time.
async fn tell(inner: Weak<Inner>, gathered: Arc<Notify>) {
    loop {
        gathered.notified().await;
        let Some(strong) = inner.upgrade() else { return };
        if let Err(error) = strong.tell().await {
            tracing::debug!(%error, "others were not told about work, and look for themselves");
        }
        drop(strong);
        sleep(GAP).await;
    }
}

/// Listens to others for as long as the driver lives.
async fn listen(inner: Weak<Inner>) {
    let mut wait = FIRST_WAIT;
    let mut said = false;
    // A channel that nobody else has, to try out whether anything arrives. Always the same one, so
    // that connections which are passed around by a pooler do not gather channels.
    let Ok(random) = LeaseToken::random() else { return };
    let own = format!("th_{:032x}", random.to_bits());
    loop {
        let Some(strong) = inner.upgrade() else { return };
        let mut alive = strong.listening.subscribe();
        let connected = strong.session.connect_apart().await;
        let started = Instant::now();
        let (end, listened) = match connected {
            // Somebody else makes the connections, and none of them is ours to keep.
            Ok(None) => return strong.set_listening(Listening::No),
            Ok(Some(apart)) => listen_over(strong, apart, &own, &inner).await,
            Err(DriverError::Closed) => return,
            Err(error) => {
                strong.set_listening(Listening::No);
                drop(strong);
                (Deaf::from(error), false)
            }
        };
        if listened {
            wait = FIRST_WAIT;
        }
        if started.elapsed() > LONGEST_WAIT {
            said = false;
        }
        if !std::mem::replace(&mut said, true) {
            tracing::warn!(error = %end, "not listening for work, so workers look for it every poll");
        }
        if matches!(end, Deaf::NotPassedOn) {
            wait = LONGEST_WAIT;
        }
        let _ = timeout(wait, end_of(&mut alive)).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// Listens over one connection until it ends; answers why, and whether it ever did listen.
async fn listen_over(
    strong: Arc<Inner>,
    (client, mut connection): Apart,
    own: &str,
    inner: &Weak<Inner>,
) -> (Deaf, bool) {
    let (hub, channel) = (strong.hub.clone(), strong.channel.clone());
    let arrived = Arc::new(Notify::new());
    let (tried, trial) = (Arc::clone(&arrived), own.to_owned());
    let mut drive = tokio::spawn(async move {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            match message {
                Ok(AsyncMessage::Notification(it)) if it.channel() == trial => tried.notify_one(),
                Ok(AsyncMessage::Notification(it)) if it.channel() == channel => {
                    hub.wake(QueueName::new(it.payload()).ok().as_ref());
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    });
    let end = tokio::select! {
        end = keep_listening(&client, strong, own, &arrived) => end,
        _ = &mut drive => Deaf::Ended,
    };
    drive.abort();
    let Some(strong) = inner.upgrade() else { return (end, false) };
    let listened = *strong.listening.borrow() == Listening::Yes;
    strong.set_listening(Listening::No);
    (end, listened)
}

async fn keep_listening(client: &Client, strong: Arc<Inner>, own: &str, arrived: &Notify) -> Deaf {
    let listen = format!("LISTEN \"{}\"; LISTEN \"{own}\"", strong.channel);
    match timeout(PATIENCE, client.batch_execute(&listen)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return error.into(),
        Err(_) => return Deaf::Silent,
    }
    // Sent over another connection: what a session tells itself arrives even through a pooler.
    let names = Value::Texts(vec![Some("")]);
    if let Err(error) = strong.session.query(TELL, &[Value::Text(Some(own)), names]).await {
        return error.into();
    }
    if timeout(PATIENCE, arrived.notified()).await.is_err() {
        let unlisten = format!("UNLISTEN \"{}\"; UNLISTEN \"{own}\"", strong.channel);
        let _ = timeout(PATIENCE, client.batch_execute(&unlisten)).await;
        return Deaf::NotPassedOn;
    }
    strong.set_listening(Listening::Yes);
    let mut alive = strong.listening.subscribe();
    drop(strong);
    loop {
        if timeout(SIGN_OF_LIFE, end_of(&mut alive)).await.is_ok() {
            return Deaf::Ended;
        }
        match timeout(PATIENCE, client.batch_execute("SELECT 1")).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error.into(),
            Err(_) => return Deaf::Silent,
        }
    }
}

/// Waits until nobody has the driver any more.
async fn end_of(alive: &mut watch::Receiver<Listening>) {
    while alive.changed().await.is_ok() {}
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
