//! The facts about the file that `doctor` reports.

use std::{fs, path::PathBuf};

use taskharbor_core::admin::Diagnosis;

use crate::{SqliteDriver, Synchronous};

/// A log that is larger than this is not written back into the file: a reader holds it up.
const LARGE_LOG: u64 = 256 * 1024 * 1024;

impl SqliteDriver {
    pub(crate) fn diagnose_file(&self) -> Vec<Diagnosis> {
        vec![self.durability(), self.sizes()]
    }

    fn durability(&self) -> Diagnosis {
        match self.config().synchronous {
            Synchronous::Full => {
                Diagnosis::fine("durability", "synchronous full: each commit is on disk")
            }
            Synchronous::Normal => Diagnosis::warning(
                "durability",
                "synchronous normal: the last commits can be lost when the machine loses power",
                "leave out synchronous=normal in the URL if jobs must not be lost then",
            ),
        }
    }

    fn sizes(&self) -> Diagnosis {
        let path = self.config().path().to_owned();
        let size = |path: PathBuf| fs::metadata(path).map_or(0, |it| it.len());
        let mut log = path.clone().into_os_string();
        log.push("-wal");
        let (file, log) = (size(path), size(log.into()));
        let megabytes = |bytes: u64| bytes.div_ceil(1024 * 1024);
        let found = format!("file of {} MiB, log of {} MiB", megabytes(file), megabytes(log));
        if log > LARGE_LOG {
            let advice = "a reader that does not end keeps the log from being written back: look for programs \
                          that have the file open";
            return Diagnosis::warning("file", found, advice);
        }
        Diagnosis::fine("file", found)
    }
}
