//! Where the demo keeps its file: a directory that is gone afterwards.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process,
};

/// A directory of the demo's own; removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    dir: PathBuf,
    file: PathBuf,
}

impl Place {
    pub(crate) fn make() -> io::Result<Self> {
        let dir = env::temp_dir().join(format!("taskharbor-demo-{}", process::id()));
        fs::create_dir(&dir)?;
        let file = dir.join("jobs.db");
        Ok(Self { dir, file })
    }

    /// The file, which somebody has to create.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}
