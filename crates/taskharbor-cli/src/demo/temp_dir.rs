//! [`TempDir`]: the directory of the demo, which is removed afterwards.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process,
};

/// A directory of the demo's own; removed when it is dropped.
#[derive(Debug)]
pub(crate) struct TempDir {
    dir: PathBuf,
    file: PathBuf,
}

impl TempDir {
    pub(crate) fn make() -> io::Result<Self> {
        let dir = env::temp_dir().join(format!("taskharbor-demo-{}", process::id()));
        fs::create_dir(&dir)?;
        let file = dir.join("jobs.db");
        Ok(Self { dir, file })
    }

    /// The path of the file, which does not exist yet.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}
