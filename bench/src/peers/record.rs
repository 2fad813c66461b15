//! A run as a file: a head, and one line of JSON for each measurement.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use serde::{Deserialize, Serialize};
use taskharbor_core::clock::StoreClock;

use super::{
    Outcome, database::Kind, gate::Reading, program::Program, size::Sizes, system::SYSTEMS,
};
use crate::postgres::Server;

/// What the figures of a run depend on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) date: String,
    /// The commit of TaskHarbor.
    pub(crate) commit: String,
    pub(crate) machine: BTreeMap<String, String>,
    pub(crate) postgres: BTreeMap<String, String>,
    pub(crate) sizes: BTreeMap<String, usize>,
    /// The version of each system, by name.
    pub(crate) versions: BTreeMap<String, String>,
    /// Why systems were left out, by name.
    pub(crate) missing: BTreeMap<String, String>,
}

/// One measurement of one side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) time: String,
    pub(crate) side: String,
    pub(crate) version: String,
    pub(crate) store: Kind,
    pub(crate) part: String,
    /// `best` or `default`.
    pub(crate) setting: String,
    pub(crate) round: usize,
    pub(crate) attempt: usize,
    pub(crate) figures: BTreeMap<String, f64>,
    /// It was stopped at its limit; the figures are those so far.
    pub(crate) stopped: bool,
    /// Why there are no figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// The slower reading of those before and after the round.
    pub(crate) gate: Reading,
    /// The gate was too slow.
    pub(crate) noisy: bool,
}

/// A line of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Line {
    Head(Box<Head>),
    Run(Box<Record>),
}

/// Reads a run.
pub(crate) fn read(path: &Path) -> Outcome<(Head, Vec<Record>)> {
    let cannot = |error| format!("cannot read {}: {error}", path.display());
    let text = fs::read_to_string(path).map_err(cannot)?;
    let (mut head, mut records) = (None, Vec::new());
    for (line, number) in text.lines().zip(1..) {
        let invalid = |error| format!("{}:{number}: not a line of a run: {error}", path.display());
        match serde_json::from_str(line).map_err(invalid)? {
            Line::Head(found) => head = Some(*found),
            Line::Run(record) => records.push(*record),
        }
    }
    let head = head.ok_or_else(|| format!("{} has no head", path.display()))?;
    Ok((head, records))
}

/// The file of this run.
pub(crate) struct Log {
    path: PathBuf,
    file: File,
    head: Head,
}

impl Log {
    /// A new file under `target/`.
    pub(crate) async fn create(
        server: &Server,
        sizes: &Sizes,
        programs: &[Program],
    ) -> Outcome<Self> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench-peers");
        fs::create_dir_all(&dir)?;
        let date = time();
        let name: String = date.chars().filter(char::is_ascii_alphanumeric).take(15).collect();
        let path = dir.canonicalize()?.join(format!("{name}.jsonl"));
        let mut head = Head {
            date,
            commit: commit(),
            machine: machine(),
            postgres: server.facts().await?,
            sizes: sizes.named(),
            versions: BTreeMap::new(),
            missing: BTreeMap::new(),
        };
        for program in programs {
            let system = &SYSTEMS[program.system];
            let name = system.name.to_owned();
            if let Err(reason) = &program.command {
                head.missing.insert(name.clone(), reason.clone());
            }
            head.versions.insert(name, system.version()?);
        }
        let mut log = Self { file: File::create(&path)?, path, head };
        log.write(&Line::Head(Box::new(log.head.clone())))?;
        Ok(log)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn version(&self, name: &str) -> String {
        self.head.versions.get(name).cloned().unwrap_or_default()
    }

    pub(crate) fn push(&mut self, record: Record) -> Outcome {
        self.write(&Line::Run(Box::new(record)))
    }

    fn write(&mut self, line: &Line) -> Outcome {
        let line = serde_json::to_string(line)?;
        Ok(writeln!(self.file, "{line}")?)
    }
}

/// The time of day, for people.
pub(crate) fn time() -> String {
    let time = StoreClock::wall_time().to_string();
    time.split_once('.').map_or(time.clone(), |(seconds, _)| format!("{seconds}Z"))
}

fn commit() -> String {
    let mut git = Command::new("git");
    git.args(["rev-parse", "--short=10", "HEAD"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = git.output().ok().filter(|it| it.status.success());
    output.map(|it| String::from_utf8_lossy(&it.stdout).trim().to_owned()).unwrap_or_default()
}

fn machine() -> BTreeMap<String, String> {
    let line = |path: &str, name: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let line =
            text.lines().find_map(|line| line.split_once(':').filter(|it| it.0.trim() == name));
        line.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let facts = [
        ("processor", line("/proc/cpuinfo", "model name")),
        ("cores", cores.to_string()),
        ("memory", line("/proc/meminfo", "MemTotal")),
        ("kernel", kernel.trim().to_owned()),
    ];
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
