//! The arguments of the command: stores, parts, a time, numbers of kills and jobs, and a seed.

use std::{fmt, str::FromStr, time::Duration};

pub(crate) const USAGE: &str = "\
usage: cargo xtask chaos [memory | sqlite | postgres]… [sessions | workers | recovery | schedules | limits]…
       [--minutes N] [--kills N] [--jobs N] [--seed S]
Each chosen part runs on each chosen store for N minutes (default 3, fractions allowed), recovery once. Without names,
all run.
`schedules` goes on until N processes are killed (default: one for each second).
`limits` goes on until N jobs have ended (default 20000).
exit code: 0 if every promise was kept, 1 if one was broken or a part hung, 2 for a wrong call";

/// Where jobs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Memory,
    Sqlite,
    Postgres,
}

/// What is done to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Sessions,
    Workers,
    Recovery,
    Schedules,
    Limits,
}

/// How many jobs `limits` enqueues, if nothing was said.
const JOBS: usize = 20_000;

/// What was asked for.
#[derive(Debug, PartialEq)]
pub(crate) struct Choice {
    stores: Vec<StoreKind>,
    parts: Vec<Part>,
    pub(crate) time: Duration,
    kills: Option<usize>,
    pub(crate) jobs: usize,
    pub(crate) seed: Option<u64>,
}

impl Choice {
    pub(crate) fn read(arguments: &[String]) -> Result<Self, String> {
        let (stores, parts, time) = (Vec::new(), Vec::new(), Duration::from_secs(180));
        let mut choice = Self { stores, parts, time, kills: None, jobs: JOBS, seed: None };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "memory" => choice.stores.push(StoreKind::Memory),
                "sqlite" => choice.stores.push(StoreKind::Sqlite),
                "postgres" => choice.stores.push(StoreKind::Postgres),
                "sessions" => choice.parts.push(Part::Sessions),
                "workers" => choice.parts.push(Part::Workers),
                "recovery" => choice.parts.push(Part::Recovery),
                "schedules" => choice.parts.push(Part::Schedules),
                "limits" => choice.parts.push(Part::Limits),
                "--minutes" => choice.time = minutes(arguments.next())?,
                "--kills" => choice.kills = Some(number(argument, arguments.next())?),
                "--jobs" => choice.jobs = number(argument, arguments.next())?,
                "--seed" => choice.seed = Some(number(argument, arguments.next())?),
                other => return Err(format!("unknown argument {other:?}")),
            }
        }
        if choice.stores.is_empty() {
            choice.stores = vec![StoreKind::Memory, StoreKind::Sqlite, StoreKind::Postgres];
        }
        if choice.parts.is_empty() {
            choice.parts =
                vec![Part::Sessions, Part::Workers, Part::Recovery, Part::Schedules, Part::Limits];
        }
        if choice.runs().is_empty() {
            return Err("workers are processes, which a store in memory does not outlive: choose \
                        sqlite or postgres"
                .to_owned());
        }
        Ok(choice)
    }

    /// Each part on each store. A store in memory has no workers in other processes.
    pub(crate) fn runs(&self) -> Vec<(StoreKind, Part)> {
        let pairs =
            self.stores.iter().flat_map(|store| self.parts.iter().map(|part| (*store, *part)));
        let is_possible = |(store, part): &(StoreKind, Part)| {
            *store != StoreKind::Memory || matches!(part, Part::Sessions | Part::Limits)
        };
        pairs.filter(is_possible).collect()
    }

    /// How many processes are killed around slots: one for each second, if nothing was said.
    pub(crate) fn kills(&self) -> usize {
        self.kills.unwrap_or_else(|| usize::try_from(self.time.as_secs()).unwrap_or(usize::MAX))
    }
}

fn number<N: FromStr>(option: &str, value: Option<&String>) -> Result<N, String> {
    let number = value.and_then(|value| value.parse().ok());
    number.ok_or_else(|| format!("`{option}` is followed by a number"))
}

fn minutes(value: Option<&String>) -> Result<Duration, String> {
    let minutes = value.and_then(|value| value.parse::<f64>().ok());
    let time = minutes.and_then(|minutes| Duration::try_from_secs_f64(minutes * 60.0).ok());
    time.filter(|time| *time >= Duration::from_secs(5))
        .ok_or_else(|| "`--minutes` is followed by a number of minutes, 0.1 or more".to_owned())
}

impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        })
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sessions => "sessions",
            Self::Workers => "workers",
            Self::Recovery => "recovery",
            Self::Schedules => "schedules",
            Self::Limits => "limits",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Choice, String> {
        Choice::read(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn without_names_everything_runs_that_can() {
        let choice = read("").unwrap();
        assert_eq!((choice.time, choice.seed), (Duration::from_secs(180), None));
        assert_eq!(choice.runs().len(), 12);
        assert_eq!(choice.kills(), 180);
    }

    #[test]
    fn names_choose() {
        let choice = read("workers postgres --minutes 0.75 --seed 7").unwrap();
        assert_eq!(choice.runs(), [(StoreKind::Postgres, Part::Workers)]);
        assert_eq!((choice.time, choice.seed), (Duration::from_secs(45), Some(7)));
        let choice = read("sqlite schedules --kills 200").unwrap();
        assert_eq!((choice.runs()[0].1, choice.kills()), (Part::Schedules, 200));
        let memory = [Part::Sessions, Part::Limits].map(|part| (StoreKind::Memory, part));
        assert_eq!(read("memory").unwrap().runs(), memory);
        let choice = read("memory limits --jobs 1500").unwrap();
        assert_eq!((choice.runs(), choice.jobs), (memory[1..].to_vec(), 1_500));
    }

    #[test]
    fn a_wrong_call_is_refused() {
        for line in [
            "mysql",
            "--minutes",
            "--minutes 0",
            "--minutes x",
            "--seed x",
            "--kills x",
            "--jobs x",
            "memory workers",
            "memory recovery",
            "memory schedules",
        ] {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
