//! [`SharedAnswers`]: recent answers, so that many browsers on one page cost the store no more than one
//! browser.
//!
//! Requests for the same address wait for one answer, which is kept for a moment. A change through this server
//! drops the kept answers, so a caller sees what it has changed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    body::Body,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use tokio::{sync::OnceCell, time::Instant};

use crate::{
    access::{Access, Role},
    problem::Problem,
};

/// The most answers that are kept.
const MAX_KEPT: usize = 256;
/// A larger answer is not kept.
const MAX_BYTES: usize = 1024 * 1024;
/// What all answers that are kept may take.
const MAX_KEPT_BYTES: usize = 8 * 1024 * 1024;

/// What an answer depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    store: String,
    address: String,
    role: Role,
    payloads: bool,
}

impl Key {
    pub(crate) fn new(store: &str, address: String, access: &Access) -> Self {
        Self { store: store.to_owned(), address, role: access.role, payloads: access.payloads }
    }
}

#[derive(Clone)]
struct Answer {
    at: Instant,
    status: StatusCode,
    headers: HeaderMap,
    bytes: Bytes,
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.bytes));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

type Slot = Arc<OnceCell<Answer>>;

/// The answers of the last moment.
pub(crate) struct SharedAnswers {
    keep_for: Duration,
    slots: Mutex<HashMap<Key, Slot>>,
}

impl SharedAnswers {
    pub(crate) fn new(keep_for: Duration) -> Self {
        Self { keep_for, slots: Mutex::default() }
    }

    /// The answer under this key, from this work if there is none. A failure is not kept.
    pub(crate) async fn get(
        &self,
        key: Key,
        work: impl Future<Output = Result<Response, Problem>>,
    ) -> Result<Response, Problem> {
        if self.keep_for.is_zero() {
            return work.await;
        }
        let slot = self.slot(key.clone());
        let answer = slot.get_or_try_init(|| async { read(work.await?).await }).await;
        let is_small = answer.as_ref().is_ok_and(|answer| answer.bytes.len() <= MAX_BYTES);
        let answer = answer.cloned();
        let mut slots = self.slots();
        let has_room = is_small && kept_bytes(&slots) <= MAX_KEPT_BYTES;
        if !has_room && slots.get(&key).is_some_and(|kept| Arc::ptr_eq(kept, &slot)) {
            slots.remove(&key);
        }
        drop(slots);
        answer.map(IntoResponse::into_response)
    }

    /// Forgets what was answered about a store: it has been changed.
    pub(crate) fn forget(&self, store: &str) {
        self.slots().retain(|key, _| key.store != store);
    }

    fn slot(&self, key: Key) -> Slot {
        let now = Instant::now();
        let mut slots = self.slots();
        slots.retain(|_, slot| match slot.get() {
            Some(answer) => now.duration_since(answer.at) < self.keep_for,
            // A request that was dropped leaves a slot without an answer.
            None => Arc::strong_count(slot) > 1,
        });
        if let Some(slot) = slots.get(&key) {
            return Arc::clone(slot);
        }
        let slot = Slot::default();
        if slots.len() < MAX_KEPT {
            slots.insert(key, Arc::clone(&slot));
        }
        slot
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<Key, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the answers take.
fn kept_bytes(slots: &HashMap<Key, Slot>) -> usize {
    slots.values().filter_map(|slot| slot.get()).map(|answer| answer.bytes.len()).sum()
}

async fn read(response: Response) -> Result<Answer, Problem> {
    let (parts, body) = response.into_parts();
    let bytes = axum::body::to_bytes(body, usize::MAX).await;
    let bytes = bytes.map_err(|error| Problem::internal(&error))?;
    Ok(Answer { at: Instant::now(), status: parts.status, headers: parts.headers, bytes })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn key(address: &str) -> Key {
        Key::new("main", address.to_owned(), &Access::new("ada", Role::Viewer))
    }

    /// Asks, and answers how often the work was done before.
    async fn ask(answers: &SharedAnswers, key: Key, done: &AtomicUsize) -> String {
        let work = async {
            tokio::task::yield_now().await;
            Ok(done.fetch_add(1, Ordering::Relaxed).to_string().into_response())
        };
        let body = answers.get(key, work).await.unwrap().into_body();
        String::from_utf8(axum::body::to_bytes(body, 64).await.unwrap().to_vec()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_shared_for_a_moment_and_no_longer() {
        let (answers, done) = (SharedAnswers::new(Duration::from_secs(1)), AtomicUsize::new(0));
        let both = tokio::join!(ask(&answers, key("a"), &done), ask(&answers, key("a"), &done));
        assert_eq!(both, ("0".to_owned(), "0".to_owned()));
        assert_eq!(ask(&answers, key("b"), &done).await, "1");
        tokio::time::advance(Duration::from_millis(999)).await;
        assert_eq!(ask(&answers, key("a"), &done).await, "0");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(ask(&answers, key("a"), &done).await, "2");
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_seen_at_once() {
        let (answers, done) = (SharedAnswers::new(Duration::from_secs(1)), AtomicUsize::new(0));
        assert_eq!(ask(&answers, key("a"), &done).await, "0");
        answers.forget("other");
        assert_eq!(ask(&answers, key("a"), &done).await, "0");
        answers.forget("main");
        assert_eq!(ask(&answers, key("a"), &done).await, "1");
    }

    #[tokio::test(start_paused = true)]
    async fn answers_for_different_access_are_kept_apart() {
        let (answers, done) = (SharedAnswers::new(Duration::from_secs(1)), AtomicUsize::new(0));
        let with_payloads = Access::new("ada", Role::Viewer).with_payloads();
        assert_eq!(ask(&answers, key("a"), &done).await, "0");
        let key = Key::new("main", "a".to_owned(), &with_payloads);
        assert_eq!(ask(&answers, key, &done).await, "1");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_not_kept() {
        let (answers, done) = (SharedAnswers::new(Duration::from_secs(1)), AtomicUsize::new(0));
        let failed = answers.get(key("a"), async { Err(Problem::invalid("no")) }).await;
        assert!(failed.is_err());
        assert_eq!(ask(&answers, key("a"), &done).await, "0");
    }

    /// Asks for an answer of this size.
    async fn ask_for(answers: &SharedAnswers, key: Key, bytes: usize) {
        let work = async { Ok(vec![b' '; bytes].into_response()) };
        answers.get(key, work).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn answers_of_an_earlier_moment_are_not_kept() {
        let answers = SharedAnswers::new(Duration::from_secs(1));
        for at in 0..10 {
            ask_for(&answers, key(&at.to_string()), MAX_BYTES / 2).await;
        }
        assert_eq!(answers.slots().len(), 10);
        tokio::time::advance(Duration::from_secs(1)).await;
        ask_for(&answers, key("other"), 1).await;
        assert_eq!(kept_bytes(&answers.slots()), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_in_all_is_bounded() {
        let (answers, done) = (SharedAnswers::new(Duration::from_secs(1)), AtomicUsize::new(0));
        for at in 0..50 {
            ask_for(&answers, key(&at.to_string()), MAX_BYTES).await;
            assert!(kept_bytes(&answers.slots()) <= MAX_KEPT_BYTES);
        }
        assert_eq!(kept_bytes(&answers.slots()), MAX_KEPT_BYTES);
        // One that is not kept is answered all the same.
        assert_eq!(ask(&answers, key("a"), &done).await, "0");
        assert_eq!(ask(&answers, key("a"), &done).await, "1");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_dropped_leaves_nothing() {
        let (answers, done) = (SharedAnswers::new(Duration::from_secs(1)), AtomicUsize::new(0));
        for at in 0..MAX_KEPT {
            let never = answers.get(key(&at.to_string()), std::future::pending());
            let dropped = tokio::time::timeout(Duration::from_millis(1), never).await;
            assert!(dropped.is_err());
        }
        assert_eq!(ask(&answers, key("a"), &done).await, "0");
        assert_eq!(ask(&answers, key("a"), &done).await, "0", "it is kept");
        assert_eq!(answers.slots().len(), 1);
    }
}
