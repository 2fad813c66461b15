//! A directory of its own for each test, removed when the test is over.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
};

use taskharbor_sqlite::Config;

/// A directory that no other test uses.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("taskharbor-sqlite-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    pub(crate) fn dir(&self) -> &std::path::Path {
        &self.0
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.join("jobs.db")
    }

    /// The file of this temp, to be made if it is not there.
    pub(crate) fn config(&self) -> Config {
        Config::new(self.file()).create(true)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
