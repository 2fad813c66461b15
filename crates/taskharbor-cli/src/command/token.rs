//! `taskharbor token`: the tokens that a server accepts.

use std::path::PathBuf;

use serde::Serialize;
use taskharbor_core::clock::StoreClock;
use taskharbor_web::{Access, Role, StoredToken, TokenFile};

use super::serve::{RoleName, access::unusable};
use crate::{
    clean,
    failure::{Failure, Outcome},
    screen::Screen,
    stderr::tell,
    table::{Align, Cell},
    terminal::Tone,
};

/// The token file by default.
pub(super) const DEFAULT_FILE: &str = "taskharbor-tokens.json";

/// Create, list and remove the tokens for `taskharbor serve --tokens FILE`
///
/// The file contains only the SHA-256 of each token. A running server applies a change at the next request.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Create a token and print it once: it cannot be shown again
    #[command(after_help = "Examples:
  taskharbor token add ada --role admin --payloads
  taskharbor token add python-workers --workers --tokens /etc/taskharbor/tokens.json")]
    Add {
        /// The name of the caller, which the action log shows
        name: String,
        /// What the caller may do
        #[arg(long, value_name = "ROLE", default_value = "viewer")]
        role: RoleName,
        /// The caller may see payloads and outputs
        #[arg(long)]
        payloads: bool,
        /// The caller may act as a worker: enqueue, reserve, extend and settle jobs
        #[arg(long)]
        workers: bool,
        #[command(flatten)]
        file: File,
    },
    /// List the tokens, and what each one allows
    #[command(after_help = "Example:\n  taskharbor token list")]
    List {
        #[command(flatten)]
        file: File,
    },
    /// Remove a token: the server refuses it from then on, and its sessions end
    #[command(after_help = "Example:\n  taskharbor token remove ada")]
    Remove {
        /// The name of the token
        name: String,
        #[command(flatten)]
        file: File,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct File {
    /// The file with the tokens
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    tokens: PathBuf,
}

impl File {
    fn open(&self) -> TokenFile {
        TokenFile::new(&self.tokens)
    }

    fn shown(&self) -> String {
        clean::line(&self.tokens.display().to_string())
    }
}

/// A token as one line of a list.
#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    role: Role,
    payloads: bool,
    workers: bool,
    created_at: &'a str,
}

/// A new token.
#[derive(Serialize)]
struct Added<'a> {
    name: &'a str,
    role: Role,
    payloads: bool,
    workers: bool,
    token: &'a str,
}

#[derive(Serialize)]
struct Removed<'a> {
    removed: &'a str,
}

pub(crate) fn run(command: Command, screen: &mut Screen) -> Outcome {
    match command {
        Command::Add { name, role, payloads, workers, file } => {
            let mut access = Access::new(name, role.into());
            if payloads {
                access = access.with_payloads();
            }
            if workers {
                access = access.with_workers();
            }
            add(&access, payloads, workers, &file, screen)
        }
        Command::List { file } => list(&file, screen),
        Command::Remove { name, file } => remove(&name, &file, screen),
    }
}

fn add(
    access: &Access,
    payloads: bool,
    workers: bool,
    file: &File,
    screen: &mut Screen,
) -> Outcome {
    let created_at = StoreClock::wall_time().to_string();
    let token = file.open().add(access, created_at).map_err(|error| unusable(&error))?;
    let (name, role) = (access.name(), access.role());
    if screen.is_json {
        return screen.document(&Added { name, role, payloads, workers, token: &token });
    }
    screen.line(&token)?;
    screen.flush()?;
    tell(&format!(
        "this is the token of {} ({role}); it cannot be shown again: {} has only its SHA-256",
        clean::line(name),
        file.shown()
    ));
    Ok(())
}

fn list(file: &File, screen: &mut Screen) -> Outcome {
    let tokens = file.open().list().map_err(|error| unusable(&error))?;
    if screen.is_json {
        return tokens.iter().try_for_each(|it| screen.document(&line(it)));
    }
    if tokens.is_empty() {
        tell(&format!("{} has no tokens: make one with taskharbor token add", file.shown()));
        return Ok(());
    }
    let yes_no = |it: bool| Cell::plain(if it { "yes" } else { "-" });
    let row = |it: &StoredToken| {
        vec![
            Cell::new(Tone::Strong, clean::line(&it.name)),
            Cell::plain(it.role.as_str()),
            yes_no(it.payloads),
            yes_no(it.workers),
            Cell::plain(shown(&it.created_at, screen)),
        ]
    };
    let rows = tokens.iter().map(row).collect();
    screen.table(&["NAME", "ROLE", "PAYLOADS", "WORKERS", "CREATED"], &[Align::Left; 5], rows)
}

fn line(token: &StoredToken) -> Line<'_> {
    let StoredToken { name, created_at, .. } = token;
    Line { name, role: token.role, payloads: token.payloads, workers: token.workers, created_at }
}

/// When a token was made, unless the file was written by hand and does not say so.
fn shown(created_at: &str, screen: &Screen) -> String {
    match created_at.parse() {
        Ok(at) => screen.time(at, StoreClock::wall_time()),
        Err(_) => clean::line(created_at),
    }
}

fn remove(name: &str, file: &File, screen: &mut Screen) -> Outcome {
    if !file.open().remove(name).map_err(|error| unusable(&error))? {
        return Err(Failure::not_found(format!(
            "{} has no token named {}: taskharbor token list shows the names",
            file.shown(),
            clean::line(name)
        )));
    }
    if screen.is_json {
        return screen.document(&Removed { removed: name });
    }
    screen.line(&format!("removed the token of {}: it is refused from now on", clean::line(name)))
}
