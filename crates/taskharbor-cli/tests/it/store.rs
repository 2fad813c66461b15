//! A file for each test.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicUsize, Ordering},
};

use taskharbor::AnyDriver;
use taskharbor_sqlite::{Config, SqliteDriver};

/// A file in a directory of its own, which is removed at the end.
pub(crate) struct Store {
    url: String,
    dir: PathBuf,
}

impl Store {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let store = Self::missing(NEXT.fetch_add(1, Ordering::Relaxed));
        // Every command but a few wants a store that is there.
        let made = crate::scenario::program()
            .args(["worker", "--builtin", "--until-idle", "--url", &store.url])
            .output();
        assert!(made.unwrap().status.success());
        store
    }

    /// A store whose file does not exist.
    pub(crate) fn missing(number: usize) -> Self {
        let dir = env::temp_dir().join(format!("taskharbor-cli-{}-{number}", process::id()));
        fs::create_dir_all(&dir).unwrap();
        Self { url: format!("sqlite:{}", dir.join("jobs.db").display()), dir }
    }

    pub(crate) async fn open(&self) -> AnyDriver {
        let config = Config::from_url(&self.url).unwrap();
        AnyDriver::new(SqliteDriver::open_with(config).await.unwrap())
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}
