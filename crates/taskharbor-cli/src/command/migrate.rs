//! `taskharbor migrate`: the schema of a store.

use serde::Serialize;
use taskharbor_postgres::{Config, PostgresDriver, migration};
use taskharbor_sqlite::SqliteDriver;

use crate::{
    failure::{Exit, Failure, Outcome, chain},
    screen::Screen,
    store::{Missing, Url},
};

/// Install, upgrade or show the schema of the store
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show the installed version; the exit code is 4 if it has to be upgraded
    #[command(after_help = "Example:\n  taskharbor migrate status --url postgres://db/jobs")]
    Status,
    /// Install the newest version, or upgrade an older one; repeating it changes nothing
    #[command(after_help = "Example:\n  taskharbor migrate up --url postgres://db/jobs")]
    Up,
    /// Print the SQL that installs the schema, for a database that is administered by others
    #[command(
        after_help = "Example:\n  taskharbor migrate print --url 'postgres:///?schema=jobs' > jobs.sql"
    )]
    Print,
}

#[derive(Debug, Serialize)]
struct Status {
    installed: Option<i64>,
    newest: i64,
    up_to_date: bool,
}

/// What is known of the store of a server.
#[derive(Serialize)]
struct Served {
    up_to_date: bool,
}

pub(crate) async fn run(command: &Command, url: &Url, screen: &mut Screen) -> Outcome {
    match command {
        Command::Status => status(url, screen).await,
        Command::Up => {
            // A file is created by the commands that fill it.
            let driver = url.open(Missing::Refuse).await?;
            if url.is_http() {
                driver.migrate().await?;
                return match screen.is_json {
                    true => screen.document(&Served { up_to_date: true }),
                    false => screen.line("up to date"),
                };
            }
            let before = found(url).await?;
            driver.migrate().await?;
            if screen.is_json {
                return status(url, screen).await;
            }
            let newest = before.newest;
            screen.line(&match before.installed {
                _ if before.up_to_date => "up to date".to_owned(),
                None => format!("installed version {newest}"),
                Some(older) => format!("upgraded from version {older} to {newest}"),
            })
        }
        Command::Print if url.is_http() => Err(behind_a_server()),
        Command::Print if url.is_postgres() => {
            let config = config(url)?;
            screen.line(&migration(config.schema_name()))
        }
        Command::Print => screen.line(taskharbor_sqlite::migration().trim_end()),
    }
}

fn config(url: &Url) -> Outcome<Config> {
    Config::from_url(url.as_str())
        .map_err(|error| Failure::new(Exit::Usage, "invalid_url", chain(&error)))
}

fn behind_a_server() -> Failure {
    Failure::usage(
        "a server does not tell the version of its store: give this command the URL of the store itself",
    )
}

/// The version that is installed, and the newest.
async fn found(url: &Url) -> Outcome<Status> {
    if url.is_http() {
        return Err(behind_a_server());
    }
    if !url.is_postgres() {
        return file_status(url).await;
    }
    let driver = PostgresDriver::open(config(url)?)
        .await
        .map_err(|error| Failure::new(Exit::Store, "unavailable", chain(&error)))?;
    let installed = driver.installed_version().await?;
    let newest = PostgresDriver::VERSION;
    // A newer one that this program can use is not for this program to change.
    Ok(Status { installed, newest, up_to_date: installed.is_some_and(|it| it >= newest) })
}

async fn status(url: &Url, screen: &mut Screen) -> Outcome {
    let status = found(url).await?;
    if screen.is_json {
        screen.document(&status)?;
    } else {
        let text = match status.installed {
            None => "nothing is installed".to_owned(),
            Some(version) => format!("version {version} is installed"),
        };
        screen.line(&format!("{text}; the newest is {}", status.newest))?;
    }
    screen.flush()?;
    if status.up_to_date {
        return Ok(());
    }
    Err(Failure::refused("outdated", "the schema is not up to date: run `taskharbor migrate up`"))
}

async fn file_status(url: &Url) -> Outcome<Status> {
    let installed = url.open_file(Missing::Refuse).await?.installed_version().await?;
    let newest = SqliteDriver::VERSION;
    Ok(Status { installed: Some(installed), newest, up_to_date: installed == newest })
}
