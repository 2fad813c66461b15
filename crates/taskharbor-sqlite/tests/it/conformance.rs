//! The suite.

use std::sync::Arc;

use taskharbor_sqlite::{SqliteDriver, Synchronous};
use taskharbor_testkit::{Intercept, KeepAlive};

use crate::temp_dir::TempDir;

/// A driver in a place of its own.
type Store = Intercept<SqliteDriver, KeepAlive<Arc<TempDir>>>;

/// Without waiting for the disk: the suite is about what the driver does, not how fast.
async fn open() -> Store {
    let temp = TempDir::new();
    let config = temp.config().synchronous(Synchronous::Normal);
    let driver = SqliteDriver::open_with(config).await.unwrap();
    Store::new(driver, KeepAlive(Arc::new(temp)))
}

taskharbor_conformance::tests!(open);
