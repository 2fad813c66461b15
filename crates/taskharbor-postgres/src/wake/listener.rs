//! The connection over which notifications arrive.
//!
//! The connection is tested when it is made, because a pooler accepts LISTEN and passes nothing on.
//! It is probed from then on, because a connection can die silently. While no connection listens,
//! workers are told so and poll.
//!
//! Each listener holds shared advisory locks that stand for the queues it serves, so that all of
//! them can count how many listen and how many stand before them: that decides how they take turns.
//! The locks end with the connection.

use std::{
    collections::{BTreeSet, HashMap},
    future::{pending, poll_fn},
    sync::{Arc, Weak},
    time::Duration,
};

use taskharbor_core::{DriverError, QueueName, driver::LeaseToken};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until, timeout},
};
use tokio_postgres::{AsyncMessage, Client};

use super::{Inner, NOTIFY, lock, message::Message};
use crate::{session::Connected, value::Value};

/// How often the connection is asked for a sign of life, and the listeners are counted: this often
/// at first, while a fleet may be starting, and ever more rarely up to the second.
const FIRST_CHECK_INTERVAL: Duration = Duration::from_secs(1);
const CHECK_INTERVAL: Duration = Duration::from_secs(20);
/// How long the connection may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait before trying to listen again, at first and at most.
const MIN_BACKOFF: Duration = Duration::from_millis(250);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// A driver that serves more queues is counted as a listener of all queues. Locks are scarce.
const MAX_LOCKS: usize = 8;
/// Stands for all queues; no queue has this name.
const ALL_QUEUES: &str = "";

const JOIN: &str = "/* LISTEN */ SELECT count(pg_try_advisory_lock_shared(hashtext($1), hashtext(queue))) \
                    FROM unnest($2) AS queue";
const COUNT: &str = "
    /* LISTEN */ SELECT queue, count(*), count(*) FILTER (WHERE pid < pg_backend_pid())
    FROM unnest($2) AS queue
    JOIN pg_locks ON objid::bigint = (hashtext(queue)::bigint & 4294967295)
    WHERE locktype = 'advisory' AND objsubid = 2 AND granted
      AND classid::bigint = (hashtext($1)::bigint & 4294967295)
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    GROUP BY queue";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listening {
    Starting,
    Yes,
    No,
}

#[derive(Debug, thiserror::Error)]
enum Deaf {
    #[error(
        "notifications do not arrive, as behind a pooler in transaction mode: give the driver a \
         direct URL, or add `listen=off` to it"
    )]
    NotPassedOn,
    #[error("the connection gave no sign of life for {ANSWER_TIMEOUT:?}")]
    Silent,
    #[error("the connection ended")]
    Ended,
    #[error(transparent)]
    Failed(#[from] DriverError),
    #[error(transparent)]
    Refused(#[from] tokio_postgres::Error),
}

/// Listens to others for as long as the driver lives.
pub(super) async fn listen(inner: Weak<Inner>) {
    let mut backoff = MIN_BACKOFF;
    // A channel that no other driver has, for the test. Always the same one, so that connections
    // which a pooler passes around do not collect channels.
    let Ok(random) = LeaseToken::random() else { return };
    let test_channel = format!("th_{:032x}", random.to_bits());
    loop {
        let Some(strong) = inner.upgrade() else { return };
        let mut alive = strong.listening.subscribe();
        let connected = strong.session.connect_detached().await;
        let (end, listened) = match connected {
            // The application makes the connections, and none of them is ours to keep.
            Ok(None) => return strong.set_listening(Listening::No),
            Ok(Some(connected)) => listen_over(strong, connected, &test_channel, &inner).await,
            Err(DriverError::Closed) => return,
            Err(error) => {
                let end = Deaf::from(error);
                strong.lose_connection(&end);
                drop(strong);
                (end, false)
            }
        };
        tracing::debug!(error = %end, "not listening for notifications");
        if listened {
            backoff = MIN_BACKOFF;
        }
        if matches!(end, Deaf::NotPassedOn) {
            backoff = MAX_BACKOFF;
        }
        let _ = timeout(backoff, end_of(&mut alive)).await;
        backoff = (backoff * 2).min(MAX_BACKOFF);
    }
}

/// Listens over one connection until it ends; answers why, and whether it ever listened.
async fn listen_over(
    strong: Arc<Inner>,
    (client, mut connection): Connected,
    test_channel: &str,
    inner: &Weak<Inner>,
) -> (Deaf, bool) {
    let arrived = Arc::new(Notify::new());
    let (tested, test) = (Arc::clone(&arrived), test_channel.to_owned());
    let (receiver, channel) = (inner.clone(), strong.channel.clone());
    let mut drive = tokio::spawn(async move {
        let mut next_turn = None;
        loop {
            let message = tokio::select! {
                biased;
                message = poll_fn(|context| connection.poll_message(context)) => message,
                () = sleep_until_some(next_turn) => {
                    let Some(strong) = receiver.upgrade() else { return };
                    next_turn = strong.take_turns();
                    continue;
                }
            };
            match message {
                Some(Ok(AsyncMessage::Notification(it))) if it.channel() == test => {
                    tested.notify_one();
                }
                Some(Ok(AsyncMessage::Notification(it))) if it.channel() == channel => {
                    let Some(strong) = receiver.upgrade() else { return };
                    strong.receive(&Message::parse(it.payload()));
                    next_turn = strong.take_turns();
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            }
        }
    });
    let end = tokio::select! {
        end = keep_listening(&client, strong, test_channel, &arrived) => end,
        _ = &mut drive => Deaf::Ended,
    };
    drive.abort();
    let Some(strong) = inner.upgrade() else { return (end, false) };
    let listened = *strong.listening.borrow() == Listening::Yes;
    strong.lose_connection(&end);
    (end, listened)
}

impl Inner {
    /// A notification has arrived.
    fn receive(&self, message: &Message) {
        let now = Instant::now();
        match message {
            Message::Announced(announced) => {
                if announced.in_front && announced.id.sender != lock(&self.outbox).latest().sender {
                    (self.on_in_front)(Some(&announced.queue));
                }
                lock(&self.turns).announced(announced, now);
            }
            Message::Drained(drained) => {
                let mut outbox = lock(&self.outbox);
                if drained.own.sender == outbox.latest().sender {
                    drop(outbox);
                    lock(&self.turns).came_back(now);
                } else {
                    outbox.was_told(drained);
                    drop(outbox);
                    lock(&self.turns).drained(drained, now);
                }
            }
            Message::Waits(sender) => {
                let mut outbox = lock(&self.outbox);
                if *sender != outbox.latest().sender {
                    outbox.note_wait(now);
                }
            }
            Message::Ended(ended) => self.hub.wake_jobs(&ended.ids),
            Message::Queue(queue) => {
                (self.on_in_front)(Some(queue));
                self.hub.wake([queue]);
            }
            Message::Unknown => {
                (self.on_in_front)(None);
                self.hub.wake_all();
            }
        }
    }

    /// There is no connection over which notifications could arrive. Workers tell their observers.
    fn lose_connection(&self, end: &Deaf) {
        self.hub.set_problem(end.to_string());
        self.set_listening(Listening::No);
    }

    /// Wakes the workers whose turn it is; returns when to do so next.
    fn take_turns(&self) -> Option<Instant> {
        let mut turns = lock(&self.turns);
        let queues = turns.take(Instant::now());
        let next = turns.next();
        drop(turns);
        self.hub.wake(&queues);
        next
    }
}

async fn keep_listening(
    client: &Client,
    strong: Arc<Inner>,
    test_channel: &str,
    arrived: &Notify,
) -> Deaf {
    let listen = format!("LISTEN \"{}\"; LISTEN \"{test_channel}\"", strong.channel);
    match timeout(ANSWER_TIMEOUT, client.batch_execute(&listen)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return error.into(),
        Err(_) => return Deaf::Silent,
    }
    // Sent over another connection: what a session tells itself arrives even through a pooler.
    let payloads = Value::Texts(vec![Some("")]);
    let values = [Value::Text(Some(test_channel)), payloads];
    if let Err(error) = strong.session.query(NOTIFY, &values).await {
        return error.into();
    }
    if timeout(ANSWER_TIMEOUT, arrived.notified()).await.is_err() {
        let unlisten = format!("UNLISTEN \"{}\"; UNLISTEN \"{test_channel}\"", strong.channel);
        let _ = timeout(ANSWER_TIMEOUT, client.batch_execute(&unlisten)).await;
        return Deaf::NotPassedOn;
    }
    strong.set_listening(Listening::Yes);
    let mut alive = strong.listening.subscribe();
    let (weak, channel) = (Arc::downgrade(&strong), strong.channel.clone());
    drop(strong);
    let mut joined = BTreeSet::new();
    let mut interval = FIRST_CHECK_INTERVAL;
    loop {
        // It is the sign of life as well.
        match timeout(ANSWER_TIMEOUT, count_listeners(client, &channel, &weak, &mut joined)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error.into(),
            Err(_) => return Deaf::Silent,
        }
        if timeout(interval, end_of(&mut alive)).await.is_ok() {
            return Deaf::Ended;
        }
        interval = (interval * 2).min(CHECK_INTERVAL);
    }
}

/// Joins the listeners of all queues that are served here, and counts them.
async fn count_listeners(
    client: &Client,
    channel: &str,
    inner: &Weak<Inner>,
    joined: &mut BTreeSet<String>,
) -> Result<(), tokio_postgres::Error> {
    let Some(strong) = inner.upgrade() else { return Ok(()) };
    let mut served: Vec<QueueName> = lock(&strong.turns).served().cloned().collect();
    drop(strong);
    served.sort_unstable();
    let mut names: Vec<&str> = served.iter().map(QueueName::as_str).collect();
    let to_join: Vec<&str> = if names.len() > MAX_LOCKS { vec![ALL_QUEUES] } else { names.clone() };
    let new: Vec<&str> = to_join.into_iter().filter(|it| !joined.contains(*it)).collect();
    if !new.is_empty() {
        query(client, JOIN, channel, &new).await?;
        joined.extend(new.into_iter().map(str::to_owned));
    }
    names.push(ALL_QUEUES);
    let rows = query(client, COUNT, channel, &names).await?;
    let count =
        |row: &tokio_postgres::Row| Ok((row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?)));
    let counts: HashMap<String, (i64, i64)> =
        rows.iter().map(count).collect::<Result<_, tokio_postgres::Error>>()?;
    let of = |name: &str| counts.get(name).copied().unwrap_or_default();
    let number = |count: i64| u32::try_from(count).unwrap_or(u32::MAX);
    let Some(strong) = inner.upgrade() else { return Ok(()) };
    let mut turns = lock(&strong.turns);
    for queue in &served {
        let (of_queue, of_all) = (of(queue.as_str()), of(ALL_QUEUES));
        let [listeners, before] = [of_queue.0 + of_all.0, of_queue.1 + of_all.1];
        turns.set_listeners(queue, number(listeners), number(before));
    }
    Ok(())
}

async fn query(
    client: &Client,
    sql: &str,
    channel: &str,
    queues: &[&str],
) -> Result<Vec<tokio_postgres::Row>, tokio_postgres::Error> {
    let queues = Value::Texts(queues.iter().map(|it| Some(*it)).collect());
    let values = [Value::Text(Some(channel)), queues];
    let values: Vec<_> = values.iter().map(|it| (it.bind(), it.sql_type())).collect();
    client.query_typed(sql, &values).await
}

/// Waits until the last handle of the driver is dropped.
async fn end_of(alive: &mut watch::Receiver<Listening>) {
    while alive.changed().await.is_ok() {}
}

async fn sleep_until_some(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}
