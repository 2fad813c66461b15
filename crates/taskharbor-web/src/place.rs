//! [`Places`]: how many requests are answered at once.
//!
//! A request that waits for jobs takes little and lasts long. Such requests have places of their own, so that
//! those of many idle workers keep no other request out.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::Problem;

/// The places of requests. None is waited for.
#[derive(Clone)]
pub(crate) struct Places {
    answered: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

/// The place of one request, until it is dropped.
pub(crate) struct Place {
    places: Places,
    taken: Mutex<Taken>,
}

struct Taken {
    is_waiting: bool,
    /// `None` if it needs none.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Places {
    /// For so many requests that are answered, and as many that wait.
    pub(crate) fn new(requests: usize) -> Self {
        let room = || Arc::new(Semaphore::new(requests.clamp(1, Semaphore::MAX_PERMITS)));
        Self { answered: room(), waiting: room() }
    }

    /// A place among the requests that are answered.
    pub(crate) fn take(&self) -> Result<Place, Problem> {
        let permit = Arc::clone(&self.answered).try_acquire_owned().map_err(|_| busy())?;
        Ok(self.of(Some(permit)))
    }

    /// A place beside all others, for a request that is answered however many there are.
    pub(crate) fn beside(&self) -> Place {
        self.of(None)
    }

    fn of(&self, permit: Option<OwnedSemaphorePermit>) -> Place {
        let taken = Taken { is_waiting: false, _permit: permit };
        Place { places: self.clone(), taken: Mutex::new(taken) }
    }
}

impl Place {
    /// Moves to the requests that wait.
    pub(crate) fn wait(&self) -> Result<(), Problem> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if !taken.is_waiting {
            let permit = Arc::clone(&self.places.waiting).try_acquire_owned();
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
        let places = Places::new(1);
        let first = places.take().unwrap();
        assert_eq!(places.take().err().map(|it| it.code), Some("busy"));
        let _probe = places.beside();
        first.wait().unwrap();
        first.wait().unwrap();
        let second = places.take().unwrap();
        assert_eq!(second.wait().err().map(|it| it.code), Some("busy"));
        assert!(places.take().is_err(), "it has kept its place");
        drop(first);
        second.wait().unwrap();
        places.take().unwrap();
    }
}
