//! `taskharbor man`: manual pages for `man`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap_mangen::Man;
use serde::Serialize;

use crate::{
    clean,
    failure::{Failure, Outcome},
    screen::{Screen, counted},
};

/// What the foot of each page names.
const SOURCE: &str = concat!("taskharbor ", env!("CARGO_PKG_VERSION"));

/// Write a manual page for each command to a directory
///
/// The directory is created if it is missing. Pages of the same names are replaced. `man` finds the
/// pages if the directory is called `man1` and the directory above it is in its search path.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  taskharbor man ~/.local/share/man/man1
  man taskharbor-worker")]
pub(crate) struct Args {
    /// The directory, for example ~/.local/share/man/man1
    dir: PathBuf,
}

#[derive(Serialize)]
struct Report<'a> {
    man: &'a str,
    pages: usize,
}

pub(crate) fn run(args: &Args, command: clap::Command, screen: &mut Screen) -> Outcome {
    let pages = write(command, &args.dir).map_err(|error| {
        let dir = args.dir.display();
        Failure::error("man", format!("cannot write manual pages to {dir}: {error}"))
    })?;
    let man = args.dir.display().to_string();
    if screen.is_json {
        return screen.document(&Report { man: &man, pages });
    }
    screen.line(&format!("{} has {}", clean::line(&man), counted(pages, "manual page")))
}

/// Writes a page for this command and one for each command below it; returns their number.
pub(crate) fn write(command: clap::Command, dir: &Path) -> io::Result<usize> {
    fs::create_dir_all(dir)?;
    let mut command = command.disable_help_subcommand(true);
    // Gives commands their full names and the global options.
    command.build();
    write_all(&command, dir)
}

fn write_all(command: &clap::Command, dir: &Path) -> io::Result<usize> {
    let mut pages = 1;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        pages += write_all(below, dir)?;
    }
    Man::new(command.clone()).source(SOURCE).generate_to(dir)?;
    Ok(pages)
}
