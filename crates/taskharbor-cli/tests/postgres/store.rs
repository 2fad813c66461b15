//! A schema for each test.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use taskharbor::AnyDriver;
use taskharbor_postgres::PostgresDriver;

use crate::{environment, scenario::program};

/// A schema of its own, and a directory for files; both are removed at the end.
pub(crate) struct Store {
    url: String,
    dir: PathBuf,
}

impl Store {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let server = environment::required("TASKHARBOR_TEST_POSTGRES");
        let name = format!("cli_{}_{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = env::temp_dir().join(format!("taskharbor-{name}"));
        fs::create_dir_all(&dir).unwrap();
        let url = format!("{server}?schema={name}");
        let migrate = program().args(["migrate", "up", "--url", &url]).output().unwrap();
        assert!(migrate.status.success(), "{migrate:?}");
        Self { url, dir }
    }

    pub(crate) async fn open(&self) -> AnyDriver {
        AnyDriver::new(PostgresDriver::connect(&self.url).await.unwrap())
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
        let url = self.url.clone();
        // In a thread, because the test may run on a runtime.
        let removed = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                if let Ok(driver) = PostgresDriver::connect(&url).await {
                    let _ = driver.uninstall().await;
                }
            });
        });
        let _ = removed.join();
        let _ = fs::remove_dir_all(&self.dir);
    }
}
