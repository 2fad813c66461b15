//! The suite.

use std::sync::Arc;

use taskharbor_sqlite::{SqliteDriver, Synchronous};

use crate::place::Place;

/// A driver in a place of its own.
#[derive(Clone)]
struct Store {
    driver: SqliteDriver,
    _place: Arc<Place>,
}

delegate_driver!(Store, driver);

/// Without waiting for the disk: the suite is about what the driver does, not how fast.
async fn open() -> Store {
    let place = Place::new();
    let config = place.config().synchronous(Synchronous::Normal);
    let driver = SqliteDriver::open_with(config).await.unwrap();
    Store { driver, _place: Arc::new(place) }
}

taskharbor_conformance::tests!(open);
