//! The suite.

use std::sync::Arc;

use taskharbor_sqlite::{SqliteDriver, Synchronous};
use taskharbor_testkit::{Intercept, KeepAlive};

use crate::place::Place;

/// A driver in a place of its own.
type Store = Intercept<SqliteDriver, KeepAlive<Arc<Place>>>;

/// Without waiting for the disk: the suite is about what the driver does, not how fast.
async fn open() -> Store {
    let place = Place::new();
    let config = place.config().synchronous(Synchronous::Normal);
    let driver = SqliteDriver::open_with(config).await.unwrap();
    Store::new(driver, KeepAlive(Arc::new(place)))
}

taskharbor_conformance::tests!(open);
