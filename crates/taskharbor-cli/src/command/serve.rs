//! `taskharbor serve`: the dashboard and the HTTP API of some stores.

pub(super) mod access;
mod log;
mod named;
mod open;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use serde::Serialize;
use taskharbor::{AnyDriver, Retention, Worker};
use taskharbor_web::{LateStore, ServeError, Stores, Web};
use tokio::{net::TcpListener, task::JoinSet};

use super::worker::health;
use crate::{
    clean,
    failure::{Exit, Failure, Outcome, chain},
    interrupt::Signals,
    screen::Screen,
    stderr, value,
};
pub(super) use access::RoleName;
use named::Named;

/// What is said if browsers on other machines cannot be answered.
const UNKNOWN_HOSTS: &str = "programs with a token are answered under any host name, and browsers under \
    loopback names only: allow the name of this machine with --allow-host";

/// Serve the dashboard and the HTTP API
///
/// Without --url, it serves the same store as the other commands, and creates the file if it does not
/// exist. Without --tokens, it only starts on a loopback address, and every program on this machine that
/// can connect is an admin and may act as a worker. Payloads and outputs are hidden unless --payloads or a
/// token allows them. The server fires the schedules of its stores, as workers do. Ctrl-C or SIGTERM ends
/// it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor serve
  taskharbor serve --url eu=postgres://eu-db/jobs --url us=postgres://us-db/jobs
  taskharbor serve --bind 0.0.0.0:7450 --tokens tokens.json --allow-host jobs.example.com")]
pub(crate) struct Args {
    /// The address to listen on; port 0 chooses a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7450")]
    bind: SocketAddr,
    /// A store to serve, and its name; may be given more than once [default: TASKHARBOR_URL, else
    /// sqlite:taskharbor.db, with the name main]
    #[arg(id = "url", long = "url", value_name = "[NAME=]URL")]
    urls: Vec<String>,
    /// Accept the tokens in this file (see `taskharbor token`), and refuse requests without one
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Also answer browsers that use this host name; may be given more than once. Loopback names and the
    /// address of --bind are always allowed, and programs with a token may use any name
    #[arg(long, value_name = "HOST", value_parser = access::host)]
    allow_host: Vec<String>,
    /// Append every action to this file, one JSON object per line
    #[arg(long, value_name = "FILE")]
    action_log: Option<PathBuf>,
    /// Without --tokens: allow callers to see payloads and outputs
    #[arg(long, conflicts_with = "tokens")]
    payloads: bool,
    /// Without --tokens: the role of all callers. Only admins may act as workers [default: admin]
    #[arg(long, value_name = "ROLE", conflicts_with = "tokens")]
    role: Option<RoleName>,
    /// Remove done and cancelled jobs after this time; workers do it after 24h, and 0s removes them
    /// at once [default: leave it to the workers]
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    keep: Option<Duration>,
}

/// What the server says when it is ready, for programs.
#[derive(Serialize)]
struct Serving<'a> {
    /// The address of the dashboard.
    serving: &'a str,
    stores: &'a [Shown<'a>],
    /// `tokens` or `anonymous`.
    access: &'a str,
}

#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    store: String,
}

pub(crate) async fn run(args: Args, screen: &mut Screen) -> Outcome<ExitCode> {
    let mut signals = Signals::listen()?;
    // Everything that can be wrong with the options is found before a store is made.
    let named = named::read(&args.urls)?;
    let web = args.web()?;
    let listener = args.listen().await?;
    stderr::detach();
    log::begin();
    let opened = tokio::select! {
        biased;
        exit = signals.next() => return Ok(ended(exit)),
        opened = open::all(&named) => opened?,
    };
    let mut stores = Stores::new();
    let mut caretakers = JoinSet::new();
    for (named, driver) in named.iter().zip(opened) {
        let added = stores.add_late(&named.name, named.kind());
        let (more, late) = added.map_err(|it| Failure::usage(chain(&it)))?;
        stores = more;
        let (name, keep) = (named.name.clone(), args.keep);
        match driver {
            Some(driver) => {
                late.open(&driver);
                caretakers.spawn(take_care(driver, name, keep));
            }
            None => drop(caretakers.spawn(open_later(named.clone(), late, keep))),
        }
    }
    let address = listener.local_addr()?;
    say(&args, address, &named, screen)?;
    if address.ip().is_unspecified() && args.allow_host.is_empty() {
        log::say("hosts", UNKNOWN_HOSTS);
    }
    let mut exit = None;
    let shutdown = async { exit = Some(signals.next().await) };
    let served = taskharbor_web::serve(listener, stores, web, shutdown);
    served.await.map_err(|error| refused(&error))?;
    caretakers.shutdown().await;
    Ok(exit.map_or(ExitCode::SUCCESS, ended))
}

impl Args {
    fn web(&self) -> Outcome<Web> {
        let mut web = match &self.tokens {
            Some(path) => Web::new().tokens(access::tokens(path)?),
            None => Web::new().anonymous(access::anonymous(self.role, self.payloads)),
        };
        for host in &self.allow_host {
            web = web.allow_host(host);
        }
        match &self.action_log {
            Some(path) => {
                check_log(path)?;
                Ok(web.action_log(path))
            }
            None => Ok(web),
        }
    }

    async fn listen(&self) -> Outcome<TcpListener> {
        if self.tokens.is_none() && !self.bind.ip().to_canonical().is_loopback() {
            return Err(refused(&ServeError::NeedsTokens(self.bind)));
        }
        health::listen(self.bind, "--bind").await
    }
}

/// A log that cannot be written is found before anything is done that belongs into it.
fn check_log(path: &Path) -> Outcome {
    let mut options = std::fs::OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Ok(_) => Ok(()),
        Err(error) => {
            let text = format!("cannot write the action log {}: {error}", path.display());
            Err(Failure::new(Exit::Usage, "action_log", text))
        }
    }
}

/// Opens a store that was away at the start, and then takes care of it.
async fn open_later(named: Named, late: LateStore, keep: Option<Duration>) {
    let driver = open::later(&named).await;
    late.open(&driver);
    take_care(driver, named.name, keep).await;
}

/// Fires the schedules of a store, and removes old jobs if that was asked for.
async fn take_care(driver: AnyDriver, name: String, keep: Option<Duration>) {
    let retention = match keep {
        Some(keep) => Retention::new().done(keep).cancelled(keep),
        None => Retention::keep_all(),
    };
    let caretaker = Worker::builder(&driver).retention(retention).caretaker();
    let ended = match caretaker {
        Ok(caretaker) => caretaker.run(std::future::pending()).await.map_err(|it| chain(&it)),
        Err(error) => Err(chain(&error)),
    };
    if let Err(problem) = ended {
        log::say("schedules", &format!("{name}: no schedules are fired here: {problem}"));
    }
}

fn say(args: &Args, address: SocketAddr, named: &[Named], screen: &mut Screen) -> Outcome {
    let url = format!("http://{address}/");
    let stores: Vec<_> =
        named.iter().map(|it| Shown { name: &it.name, store: it.url.shown() }).collect();
    if screen.is_json {
        let access = if args.tokens.is_some() { "tokens" } else { "anonymous" };
        screen.document(&Serving { serving: &url, stores: &stores, access })?;
    } else {
        let names = match &stores[..] {
            [one] => one.store.clone(),
            many => many.iter().map(|it| it.name).collect::<Vec<_>>().join(", "),
        };
        screen.line(&clean::line(&format!("serving {names} at {url}")))?;
    }
    screen.flush()
}

fn ended(exit: Exit) -> ExitCode {
    match exit {
        // The usual end of a service.
        Exit::Terminated => ExitCode::SUCCESS,
        exit => ExitCode::from(exit as u8),
    }
}

fn refused(error: &ServeError) -> Failure {
    match error {
        ServeError::NeedsTokens(address) => {
            let text = format!(
                "refusing to serve {address} without tokens: other machines may reach it; run `taskharbor token add NAME --role admin` and add --tokens {}, or bind 127.0.0.1",
                super::token::DEFAULT_FILE
            );
            Failure::new(Exit::Usage, "needs_tokens", text)
        }
        error => Failure::error("serve", chain(error)),
    }
}
