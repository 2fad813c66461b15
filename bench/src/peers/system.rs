//! The systems that are compared: what they are, how they are set up, and what they promise.

use std::{fs, path::Path};

use super::{Outcome, database::Kind};

/// A system. The texts stand in the page.
#[derive(Debug)]
pub(crate) struct System {
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    pub(crate) link: &'static str,
    pub(crate) language: &'static str,
    pub(crate) stores: &'static [Kind],
    source: Source,
    pub(crate) default: &'static str,
    pub(crate) best: &'static str,
    pub(crate) ownership: &'static str,
    pub(crate) finished: &'static str,
    pub(crate) wake_up: &'static str,
}

/// Where its version stands.
#[derive(Debug)]
enum Source {
    /// This workspace.
    Ours,
    /// A crate in a lock file below `bench/peers`.
    Crate { lock: &'static str, name: &'static str },
    /// A package of npm.
    Package(&'static str),
}

const BOTH: &[Kind] = &[Kind::Postgres, Kind::Sqlite];
const POSTGRES: &[Kind] = &[Kind::Postgres];
const LOCK: &str = "Cargo.lock";

/// TaskHarbor is the first.
pub(crate) static SYSTEMS: [System; 8] = [
    System {
        name: "taskharbor",
        label: "TaskHarbor",
        link: "SEMANTICS.md",
        language: "Rust",
        stores: BOTH,
        source: Source::Ours,
        default: "16 handlers, as in the README",
        best: "2,000 handlers",
        ownership: "a token for each lease: a worker that has lost its job cannot complete it",
        finished: "kept for a time that each job chooses, then pruned",
        wake_up: "notifications",
    },
    System {
        name: "graphile_worker",
        label: "graphile_worker",
        link: "https://docs.rs/graphile_worker",
        language: "Rust",
        stores: POSTGRES,
        source: Source::Crate { lock: LOCK, name: "graphile_worker" },
        default: "as many handlers as processors, no local queue; polls once a second",
        best: "48 handlers, a local queue of 2,000 jobs, completions batched for 5 ms, a poll every 5 ms",
        ownership: "completes by id; a worker that has lost its job can complete it",
        finished: "deleted at once",
        wake_up: "notifications",
    },
    System {
        name: "riverqueue",
        label: "River",
        link: "https://docs.rs/riverqueue",
        language: "Rust",
        stores: BOTH,
        source: Source::Crate { lock: LOCK, name: "riverqueue" },
        default: "10 workers, as in its README",
        best: "2,000 workers, a fetch cooldown of 1 ms",
        ownership: "completes by id while the job is running; a worker that has lost its job can complete it",
        finished: "kept for 24 hours, then deleted",
        wake_up: "notifications, at most one in a fetch cooldown",
    },
    System {
        name: "apalis",
        label: "apalis",
        link: "https://docs.rs/apalis",
        language: "Rust",
        stores: BOTH,
        source: Source::Crate { lock: LOCK, name: "apalis-postgres" },
        default: "a worker as in its README: batches of 10, no poll strategy",
        best: "500 jobs at once in tasks of their own, batches of 500, notifications and a poll every 100 ms",
        ownership: "completes by id and name of the worker, without an attempt",
        finished: "kept until they are deleted by hand",
        wake_up: "a trigger that notifies at each insert; a worker listens if it is told to",
    },
    System {
        name: "awa",
        label: "awa",
        link: "https://docs.rs/awa",
        language: "Rust",
        stores: POSTGRES,
        source: Source::Crate { lock: "awa/Cargo.lock", name: "awa" },
        default: "50 workers, a poll every 200 ms",
        best: "1,000 workers, 2 claimers with batches of 500, no deadlines (its short path), a poll every 50 ms",
        ownership: "a claim for each attempt: a worker that has lost its job cannot complete it",
        finished: "kept in partitions that are rotated and truncated",
        wake_up: "notifications",
    },
    System {
        name: "worklane",
        label: "worklane",
        link: "https://docs.rs/worklane",
        language: "Rust",
        stores: BOTH,
        source: Source::Crate { lock: LOCK, name: "worklane" },
        default: "one worker, one job at a time",
        best: "8 workers with 4 jobs at once each and 32 connections, a poll every 5 ms",
        ownership: "a receipt for each reservation: a worker that has lost its job cannot complete it",
        finished: "deleted at once",
        wake_up: "polls",
    },
    System {
        name: "graphile-worker",
        label: "Graphile Worker",
        link: "https://worker.graphile.org",
        language: "TypeScript",
        stores: POSTGRES,
        source: Source::Package("graphile-worker"),
        default: "one job at a time, a poll every 2 s",
        best: "24 jobs at once, a local queue of 500 jobs, batched completions: its page on performance",
        ownership: "completes by id; a worker that has lost its job can complete it",
        finished: "deleted at once",
        wake_up: "notifications",
    },
    System {
        name: "pg-boss",
        label: "pg-boss",
        link: "https://pgboss.io",
        language: "TypeScript",
        stores: POSTGRES,
        source: Source::Package("pg-boss"),
        default: "one job at a time, a poll every 2 s",
        best: "4 workers with batches of 500, bursts while batches are full, notifications",
        ownership: "the number of the attempt: a worker that has lost its job cannot complete it",
        finished: "kept for 7 days, then deleted",
        wake_up: "polls; notifications if they are enabled",
    },
];

impl System {
    /// The version that is measured, from the lock file.
    pub(crate) fn version(&self) -> Outcome<String> {
        let (path, start) = match self.source {
            Source::Ours => return Ok(env!("CARGO_PKG_VERSION").to_owned()),
            Source::Crate { lock, name } => (lock, format!("name = \"{name}\"\n")),
            Source::Package(name) => {
                ("node/package-lock.json", format!("\"node_modules/{name}\": "))
            }
        };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(path);
        let text = fs::read_to_string(&path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let version = text.split_once(&start).and_then(|(_, rest)| {
            let (_, rest) = rest.split_once("version")?;
            rest.split('"').find(|it| it.starts_with(|c: char| c.is_ascii_digit()))
        });
        let version = version.ok_or_else(|| format!("{} has no {}", path.display(), self.name))?;
        Ok(version.to_owned())
    }
}

#[test]
fn every_version_stands_in_a_lock_file() {
    for system in &SYSTEMS {
        let version = system.version();
        assert!(version.as_ref().is_ok_and(|it| it.split('.').count() == 3), "{version:?}");
    }
}
