//! What the rounds of a run say together.

use std::collections::{BTreeMap, BTreeSet};

use super::{database::Kind, record::Record};
use crate::finding::Rounds;

/// Which figure of which side.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) store: Kind,
    pub(crate) setting: &'static str,
    pub(crate) side: String,
    pub(crate) figure: String,
}

/// A figure over all rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cell {
    pub(crate) median: f64,
    /// Half the distance from the least to the most, in hundredths of the median.
    pub(crate) spread: f64,
    pub(crate) stopped: bool,
    pub(crate) noisy: bool,
}

/// All figures of a run, and why some are missing.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    cells: BTreeMap<Key, Cell>,
    /// By store, setting, side and part.
    failures: BTreeMap<(Kind, String, String, String), String>,
}

impl Summary {
    pub(crate) fn of(records: &[Record]) -> Self {
        let mut summary = Self::default();
        let mut values: BTreeMap<Key, (Rounds, bool, bool)> = BTreeMap::new();
        let counted = counted(records);
        for record in &counted {
            if let Some(error) = &record.error {
                let key = (
                    record.store,
                    record.setting.clone(),
                    record.side.clone(),
                    record.part.clone(),
                );
                summary.failures.insert(key, error.clone());
            }
            for (figure, value) in figures(record) {
                let (side, setting) = (record.side.clone(), setting(record));
                let figure_name = figure.clone();
                let key = Key { store: record.store, setting, side, figure };
                let (rounds, stopped, noisy) = values.entry(key).or_default();
                rounds.push(value);
                *stopped |= record.stopped && !is_of_producers(&figure_name);
                *noisy |= record.noisy;
            }
        }
        for (key, (rounds, stopped, noisy)) in values {
            let (median, spread) = (rounds.median(), rounds.spread());
            summary.cells.insert(key, Cell { median, spread, stopped, noisy });
        }
        summary
    }

    pub(crate) fn get(
        &self,
        store: Kind,
        setting: &'static str,
        side: &str,
        figure: &str,
    ) -> Option<Cell> {
        let (side, figure) = (side.to_owned(), figure.to_owned());
        self.cells.get(&Key { store, setting, side, figure }).copied()
    }

    /// What failed, as sentences.
    pub(crate) fn failures(&self) -> Vec<String> {
        let sentence = |((store, setting, side, part), error): (&(Kind, _, _, _), &String)| {
            let store = if *store == Kind::Sqlite { " on SQLite" } else { "" };
            format!("{side}, {part}{store}, {setting} setting: {error}")
        };
        self.failures.iter().map(sentence).collect()
    }
}

/// Whether a drain that is stopped leaves this figure as it is.
fn is_of_producers(figure: &str) -> bool {
    ["bulk", "processes_single", "memory"].iter().any(|it| figure.starts_with(it))
}

fn setting(record: &Record) -> &'static str {
    if record.setting == "best" { "best" } else { "default" }
}

/// The figures of a record, and those that follow from them.
fn figures(record: &Record) -> Vec<(String, f64)> {
    let mut figures: Vec<_> = record.figures.iter().map(|(k, v)| (k.clone(), *v)).collect();
    let few = record.figures.get("few_rate").copied();
    for beside in ["waiting", "finished"] {
        let rate = record.figures.get(&format!("{beside}_rate")).copied();
        if let (Some(few), Some(rate)) = (few, rate) {
            figures.push((format!("{beside}_ratio"), rate / few));
        }
    }
    figures
}

/// The attempts that count: of each part those whose gate was quiet, or all of the last attempts if none was.
fn counted(records: &[Record]) -> Vec<&Record> {
    let part = |it: &Record| (it.store, it.part.clone());
    let quiet: BTreeSet<_> = records.iter().filter(|it| !it.noisy).map(part).collect();
    let last = |it: &Record| {
        let same = |other: &&Record| part(other) == part(it) && other.round == it.round;
        records.iter().filter(same).map(|other| other.attempt).max() == Some(it.attempt)
    };
    let counts = |it: &&Record| if quiet.contains(&part(it)) { !it.noisy } else { last(it) };
    records.iter().filter(counts).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::peers::gate::Reading;

    /// A record of the part `drain` with one figure.
    pub(crate) fn record(side: &str, round: usize, rate: f64, noisy: bool) -> Record {
        Record {
            time: String::new(),
            side: side.to_owned(),
            version: "1.0.0".to_owned(),
            store: Kind::Postgres,
            part: "drain".to_owned(),
            setting: "best".to_owned(),
            round,
            attempt: 0,
            figures: BTreeMap::from([("drain_rate".to_owned(), rate)]),
            stopped: false,
            error: None,
            gate: Reading { processor_ms: 1.0, commits_ms: 1.0 },
            noisy,
        }
    }

    fn drain(records: &[Record]) -> Option<Cell> {
        Summary::of(records).get(Kind::Postgres, "best", "awa", "drain_rate")
    }

    #[test]
    fn noisy_rounds_count_only_if_no_round_was_quiet() {
        let records = [record("awa", 0, 10.0, false), record("awa", 1, 90.0, true)];
        let cell = drain(&records);
        assert!(cell.is_some_and(|it| it.median == 10.0 && !it.noisy), "{cell:?}");
        let mut again = record("awa", 0, 30.0, true);
        again.attempt = 1;
        let cell = drain(&[record("awa", 0, 10.0, true), again]);
        assert!(cell.is_some_and(|it| it.median == 30.0 && it.noisy), "{cell:?}");
    }

    #[test]
    fn a_figure_that_was_stopped_or_failed_says_so() {
        let mut stopped = record("awa", 0, 10.0, false);
        stopped.stopped = true;
        stopped.figures.insert("bulk_rate".to_owned(), 9.0);
        let summary = Summary::of(&[stopped.clone()]);
        let bulk = summary.get(Kind::Postgres, "best", "awa", "bulk_rate");
        assert!(bulk.is_some_and(|it| !it.stopped), "{bulk:?}");
        assert!(drain(&[stopped, record("awa", 1, 12.0, false)]).is_some_and(|it| it.stopped));
        let mut failed = record("awa", 0, 10.0, false);
        failed.figures.clear();
        failed.error = Some("no table".to_owned());
        let failures = Summary::of(&[failed]).failures();
        assert_eq!(failures, ["awa, drain, best setting: no table"]);
    }

    #[test]
    fn growth_is_measured_against_few_jobs() {
        let mut growth = record("awa", 0, 10.0, false);
        growth.figures.extend([("few_rate".to_owned(), 20.0), ("waiting_rate".to_owned(), 5.0)]);
        let cell = Summary::of(&[growth]).get(Kind::Postgres, "best", "awa", "waiting_ratio");
        assert!(cell.is_some_and(|it| it.median == 0.25), "{cell:?}");
    }
}
