//! [`RequestPermits`]: the limit of requests that are answered at the same time.
//!
//! A request that waits for jobs costs little and takes long. Such requests have permits of their own, so that
//! idle workers, however many, do not block other requests.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::Problem;

/// The permits of requests. A request without a free permit is refused at once.
#[derive(Clone)]
pub(crate) struct RequestPermits {
    answered: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

/// The permit of one request, until it is dropped.
pub(crate) struct RequestPermit {
    permits: RequestPermits,
    taken: Mutex<Taken>,
}

struct Taken {
    is_waiting: bool,
    /// `None` if it needs none.
    _permit: Option<OwnedSemaphorePermit>,
}

impl RequestPermits {
    /// Permits for this number of requests that are answered, and for the same number that wait.
    pub(crate) fn new(requests: usize) -> Self {
        let room = || Arc::new(Semaphore::new(requests.clamp(1, Semaphore::MAX_PERMITS)));
        Self { answered: room(), waiting: room() }
    }

    /// A permit among the requests that are answered.
    pub(crate) fn take(&self) -> Result<RequestPermit, Problem> {
        let permit = Arc::clone(&self.answered).try_acquire_owned().map_err(|_| busy())?;
        Ok(self.of(Some(permit)))
    }

    /// A permit that is not counted, for a request that is always answered.
    pub(crate) fn beside(&self) -> RequestPermit {
        self.of(None)
    }

    fn of(&self, permit: Option<OwnedSemaphorePermit>) -> RequestPermit {
        let taken = Taken { is_waiting: false, _permit: permit };
        RequestPermit { permits: self.clone(), taken: Mutex::new(taken) }
    }
}

impl RequestPermit {
    /// Moves to the requests that wait.
    pub(crate) fn wait(&self) -> Result<(), Problem> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if !taken.is_waiting {
            let permit = Arc::clone(&self.permits.waiting).try_acquire_owned();
            let permit = permit.map_err(|_| busy())?;
            *taken = Taken { is_waiting: true, _permit: Some(permit) };
        }
        Ok(())
    }
}

fn busy() -> Problem {
    let detail = "the server answers as many requests as it may: try again";
    Problem::unavailable("busy", "the server is busy", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_waits_makes_room_for_another() {
        let permits = RequestPermits::new(1);
        let first = permits.take().unwrap();
        assert_eq!(permits.take().err().map(|it| it.code), Some("busy"));
        let _probe = permits.beside();
        first.wait().unwrap();
        first.wait().unwrap();
        let second = permits.take().unwrap();
        assert_eq!(second.wait().err().map(|it| it.code), Some("busy"));
        assert!(permits.take().is_err(), "it has kept its permit");
        drop(first);
        second.wait().unwrap();
        permits.take().unwrap();
    }
}
