//! `taskharbor backup`: a copy of a store in a file.

use std::path::PathBuf;

use serde::Serialize;

use crate::{
    clean,
    failure::{Exit, Failure, Outcome, chain},
    screen::Screen,
    store::{Missing, Url},
};

/// Copy a store in a file to another file, while it is in use
///
/// The copy is a consistent snapshot in one file, without a WAL file beside it, and has the
/// permissions of the store's file. Workers go on meanwhile. For a store in PostgreSQL, use
/// pg_dump.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  taskharbor backup /var/backups/jobs-monday.db --url sqlite:jobs.db")]
pub(crate) struct Args {
    /// The file to create, which must not exist
    path: PathBuf,
}

#[derive(Serialize)]
struct Report<'a> {
    backup: &'a str,
    bytes: u64,
}

pub(crate) async fn run(args: &Args, url: &Url, screen: &mut Screen) -> Outcome {
    if url.path().is_none() {
        return Err(Failure::usage(
            "only stores in files are backed up by this command: use pg_dump for a database, and for a \
             store behind a server the command that fits the store itself",
        ));
    }
    let driver = url.open_file(Missing::Refuse).await?;
    let bytes = driver.backup(&args.path).await.map_err(|error| {
        let text = format!("cannot back up to {}: {}", args.path.display(), chain(&error));
        Failure::new(Exit::Store, "backup", text)
    })?;
    let backup = args.path.display().to_string();
    if screen.is_json {
        return screen.document(&Report { backup: &backup, bytes });
    }
    screen.line(&format!("{} has all jobs, in {bytes} bytes", clean::line(&backup)))
}
