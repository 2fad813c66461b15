//! `taskharbor conformance`: the published suite, on the user's own store.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde::Serialize;
use taskharbor::{Admin, AnyDriver};
use taskharbor_conformance::{Case, Level, cases};
use taskharbor_postgres::{Config, PostgresDriver, SchemaName};
use taskharbor_sqlite::SqliteDriver;

use crate::{
    clean,
    failure::{Exit, Failure, Outcome, chain},
    screen::{Screen, counted},
    stderr::tell,
    store::Url,
    table::{Align, Cell},
    terminal::Tone,
};

/// Run the conformance suite on a store and report the result of each clause
///
/// It works in a temporary schema, or in a temporary file beside the store, and removes it
/// afterwards. It does not touch the jobs in the store. The exit code is 1 if a clause does not
/// hold.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor conformance --url postgres://localhost/test
  taskharbor conformance --url memory: --only lease
  taskharbor conformance --url sqlite:taskharbor.db --level jobs")]
pub(crate) struct Args {
    /// Run only the cases whose group or name contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Run only the cases of this level: `jobs` leaves out flows, `flows` runs all
    #[arg(long, value_enum, default_value_t = Chosen::Flows)]
    level: Chosen,
}

/// A level of the contract.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Chosen {
    Jobs,
    Flows,
}

impl Chosen {
    const fn level(self) -> Level {
        match self {
            Self::Jobs => Level::Jobs,
            Self::Flows => Level::Flows,
        }
    }
}

#[derive(Debug, Serialize)]
struct Clause<'a> {
    clause: &'a str,
    cases: usize,
    failed: Vec<String>,
}

pub(crate) async fn run(args: &Args, url: &Url, screen: &mut Screen) -> Outcome {
    let only = args.only.as_deref().unwrap_or_default();
    let level = args.level.level();
    let is_chosen = |case: &&Case| {
        case.level <= level && (case.group.contains(only) || case.name.contains(only))
    };
    let chosen: Vec<&'static Case> = cases().filter(is_chosen).collect();
    if chosen.is_empty() {
        return Err(Failure::usage(format!(
            "no case of this level has {only:?} in its group or name"
        )));
    }
    let place = Target::find(url).await?;
    // What a case has to say when it fails is said by us.
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut clauses: BTreeMap<&'static str, (usize, Vec<String>)> = BTreeMap::new();
    for (at, case) in chosen.iter().copied().enumerate() {
        if at % 50 == 0 && !screen.is_json {
            tell(&format!("{at} of {} cases", chosen.len()));
        }
        let failure = place.run(case).await;
        for clause in case.clauses {
            let (cases, failed) = clauses.entry(clause).or_default();
            *cases += 1;
            if let Some(text) = &failure {
                failed.push(format!("{}::{}: {text}", case.group, case.name));
            }
        }
    }
    std::panic::set_hook(told);
    report(&clauses, chosen.len(), screen)
}

fn report(
    clauses: &BTreeMap<&'static str, (usize, Vec<String>)>,
    cases: usize,
    screen: &mut Screen,
) -> Outcome {
    let is_good = clauses.values().all(|(_, failed)| failed.is_empty());
    let mut rows = Vec::new();
    for (clause, (cases, failed)) in clauses {
        if screen.is_json {
            screen.document(&Clause { clause, cases: *cases, failed: failed.clone() })?;
            continue;
        }
        let verdict = if failed.is_empty() {
            Cell::new(Tone::Good, "holds")
        } else {
            Cell::new(Tone::Bad, "BROKEN")
        };
        rows.push(vec![Cell::plain(*clause), Cell::plain(cases.to_string()), verdict]);
        for text in failed.iter().take(3) {
            rows.push(vec![
                Cell::default(),
                Cell::default(),
                Cell::new(Tone::Faint, clean::cut(&clean::line(text), 160)),
            ]);
        }
    }
    if !screen.is_json {
        screen.table(&["CLAUSE", "CASES", ""], &[Align::Left, Align::Right, Align::Left], rows)?;
        let broken = clauses.values().filter(|(_, failed)| !failed.is_empty()).count();
        let (cases, clauses) = (counted(cases, "case"), counted(clauses.len(), "clause"));
        screen.line(&format!("{cases}, {clauses}, {broken} broken"))?;
    }
    screen.flush()?;
    if is_good { Ok(()) } else { Err(Failure::silent(Exit::Error)) }
}

/// Where the cases run.
enum Target {
    Memory,
    Postgres { config: Box<Config>, prefix: String, used: Arc<AtomicUsize> },
    File { dir: std::path::PathBuf, used: Arc<AtomicUsize> },
}

impl Target {
    async fn find(url: &Url) -> Outcome<Self> {
        let used = Arc::new(AtomicUsize::new(0));
        if url.is_memory() {
            return Ok(Self::Memory);
        }
        if url.is_postgres() {
            let config = Config::from_url(url.as_str())
                .map_err(|error| Failure::new(Exit::Usage, "invalid_url", chain(&error)))?;
            let prefix = format!("th_conformance_{}", std::process::id());
            // So that a server which is not there is told at once.
            PostgresDriver::open(config.clone())
                .await
                .map_err(|error| Failure::new(Exit::Store, "unavailable", chain(&error)))?;
            return Ok(Self::Postgres { config: Box::new(config), prefix, used });
        }
        let Some(path) = url.path() else {
            return Err(Failure::usage(
                "name a store with --url: memory:, sqlite:PATH or postgres://…",
            ));
        };
        if !path.try_exists().unwrap_or(false) {
            return Err(url.not_there(&path));
        }
        let beside = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let name = format!(".taskharbor-conformance-{}", std::process::id());
        let dir = beside.unwrap_or_else(|| std::path::Path::new(".")).join(name);
        std::fs::create_dir(&dir).map_err(|error| {
            let text = format!("{} cannot be made: {error}", dir.display());
            Failure::new(Exit::Store, "unavailable", text)
        })?;
        Ok(Self::File { dir, used })
    }

    /// Runs a case; why it failed, if it did.
    async fn run(&self, case: &'static Case) -> Option<String> {
        let task = match self {
            Self::Memory => tokio::spawn(async move { case.run(memory).await }),
            Self::Postgres { config, prefix, used } => {
                let (config, prefix, used) = (config.clone(), prefix.clone(), Arc::clone(used));
                tokio::spawn(async move {
                    let open = move || {
                        let at = used.fetch_add(1, Ordering::Relaxed);
                        postgres((*config).clone(), format!("{prefix}_{at}"))
                    };
                    case.run(open).await;
                })
            }
            Self::File { dir, used } => {
                let (dir, used) = (dir.clone(), Arc::clone(used));
                tokio::spawn(async move {
                    let open = move || {
                        let at = used.fetch_add(1, Ordering::Relaxed);
                        file(dir.join(format!("{at}.db")))
                    };
                    case.run(open).await;
                })
            }
        };
        let ended = task.await;
        self.remove().await;
        let panic = ended.err()?.try_into_panic().ok()?;
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Some(text.unwrap_or("it panicked").to_owned())
    }

    /// Removes what the last case has used.
    async fn remove(&self) {
        let Self::Postgres { config, prefix, used } = self else { return };
        for at in 0..used.swap(0, Ordering::Relaxed) {
            let Ok(schema) = SchemaName::new(format!("{prefix}_{at}")) else { continue };
            if let Ok(driver) = PostgresDriver::open((**config).clone().schema(schema)).await {
                let _ = driver.uninstall().await;
            }
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Self::File { dir, .. } = self {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

async fn memory() -> AnyDriver {
    opened(taskharbor::connect("memory:").await)
}

async fn postgres(config: Config, schema: String) -> AnyDriver {
    let schema = opened(SchemaName::new(schema));
    let driver = opened(PostgresDriver::open(config.schema(schema).pool_size(4)).await);
    opened(driver.migrate().await);
    AnyDriver::new(driver)
}

async fn file(path: std::path::PathBuf) -> AnyDriver {
    let config = taskharbor_sqlite::Config::new(&path).create(true);
    AnyDriver::new(opened(SqliteDriver::open_with(config).await))
}

/// A case cannot go on without its store; that it could not be opened is why it failed.
#[expect(clippy::panic, reason = "cases fail by panicking")]
fn opened<T, E: std::error::Error + 'static>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("the store cannot be opened: {}", chain(&error)))
}
