//! Rounds: the sides of a part take turns, between two readings of the gate.

use super::{
    Outcome,
    case::{Case, Found, Part},
    database::Kind,
    gate::{Gate, Reading},
    program::Program,
    record::{Log, Record, time},
    size::Sizes,
    system::SYSTEMS,
};
use crate::{postgres::Server, stopwatch::now};

/// A part with all that is measured in a round of it.
struct Plan {
    part: Part,
    kind: Kind,
    rounds: usize,
    /// Whether the default setting is measured, too.
    defaults: bool,
    /// Whether full-page images are written.
    full_pages: bool,
}

/// Runs the chosen parts.
pub(crate) async fn run(
    server: &Server,
    sizes: &Sizes,
    programs: &[Program],
    chosen: &[String],
    log: &mut Log,
) -> Outcome {
    let mut gate = Gate::new(server, sizes.noise).await?;
    for name in chosen {
        for plan in plans(name, sizes) {
            let started = now();
            let store = if plan.kind == Kind::Sqlite { " on SQLite" } else { "" };
            println!("\n{}{store}, rounds: {}", plan.part.name(), plan.rounds);
            server.set_full_page_writes(plan.full_pages).await?;
            for round in 0..plan.rounds {
                Round { server, sizes, programs, plan: &plan, round }.run(&mut gate, log).await?;
            }
            println!("  {:.0} s", started.elapsed().as_secs_f64());
        }
    }
    Ok(())
}

fn plans(name: &str, sizes: &Sizes) -> Vec<Plan> {
    let (all, fewer) = (sizes.rounds, sizes.fewer_rounds());
    let plan = |part, kind, rounds, defaults| Plan {
        part,
        kind,
        rounds,
        defaults,
        full_pages: part != Part::Wal,
    };
    let postgres = Kind::Postgres;
    match name {
        "drain" => vec![plan(Part::Drain, postgres, all, true)],
        "single" => vec![plan(Part::Single, postgres, all, false)],
        "latency" => vec![plan(Part::Latency, postgres, fewer, true)],
        "wal" => vec![plan(Part::Wal, postgres, 1, false)],
        "growth" => vec![plan(Part::Growth, postgres, fewer, false)],
        "processes" => vec![plan(Part::Processes, postgres, fewer, false)],
        _ => vec![
            plan(Part::Drain, Kind::Sqlite, fewer, true),
            plan(Part::Single, Kind::Sqlite, fewer, false),
            plan(Part::Latency, Kind::Sqlite, fewer, true),
        ],
    }
}

struct Round<'a> {
    server: &'a Server,
    sizes: &'a Sizes,
    programs: &'a [Program],
    plan: &'a Plan,
    round: usize,
}

impl Round<'_> {
    /// Again while it is noisy, up to the number of attempts.
    async fn run(&self, gate: &mut Gate, log: &mut Log) -> Outcome {
        for attempt in 0..self.sizes.attempts {
            let before = gate.wait().await?;
            let mut found = Vec::new();
            for (program, is_best) in self.turns() {
                found.push((program, is_best, time(), self.one(program, is_best).await));
            }
            let reading = before.worst(gate.read().await?);
            let noisy = !gate.is_quiet(reading);
            for (program, is_best, time, found) in found {
                let record = self.record((program, is_best, time, found), attempt, log);
                log.push(Record { gate: reading, noisy, ..record })?;
            }
            if !noisy {
                break;
            }
            println!("  round {}: noisy {reading:?}", self.round);
        }
        Ok(())
    }

    /// The sides in the order of this round: each round begins with another one.
    fn turns(&self) -> Vec<(&Program, bool)> {
        let usable = |it: &&Program| {
            it.command.is_ok() && SYSTEMS[it.system].stores.contains(&self.plan.kind)
        };
        let mut programs: Vec<&Program> = self.programs.iter().filter(usable).collect();
        if !programs.is_empty() {
            let first = self.round % programs.len();
            programs.rotate_left(first);
        }
        // Defaults are slow, and vary less.
        let has_defaults = self.plan.defaults && self.round < self.sizes.fewer_rounds();
        let settings: &[bool] = if has_defaults { &[true, false] } else { &[true] };
        let of = |program| settings.iter().map(move |is_best| (program, *is_best));
        programs.into_iter().flat_map(of).collect()
    }

    async fn one(&self, program: &Program, is_best: bool) -> Outcome<Found> {
        let with = (self.server, self.sizes, program);
        let found = Case::run(self.plan.part, self.plan.kind, is_best, with).await;
        let setting = if is_best { "best" } else { "default" };
        let label = SYSTEMS[program.system].label;
        match &found {
            Ok(found) => {
                let rates = |it: &(&String, &f64)| {
                    ["rate", "_ms", "wal_bytes"].iter().any(|end| it.0.ends_with(end))
                };
                let figures = found.figures.iter().filter(rates);
                let figures: Vec<_> = figures.map(|(k, v)| format!("{k} {v:.1}")).collect();
                let stopped = if found.stopped { " (stopped)" } else { "" };
                println!("  {label:<16} {setting:<8} {}{stopped}", figures.join(", "));
            }
            Err(error) => println!("  {label:<16} {setting:<8} failed: {error}"),
        }
        found
    }

    fn record(
        &self,
        (program, is_best, time, found): (&Program, bool, String, Outcome<Found>),
        attempt: usize,
        log: &Log,
    ) -> Record {
        let side = SYSTEMS[program.system].name;
        let (found, error) = match found {
            Ok(found) => (found, None),
            Err(error) => (Found::default(), Some(error.to_string())),
        };
        Record {
            time,
            side: side.to_owned(),
            version: log.version(side),
            store: self.plan.kind,
            part: self.plan.part.name().to_owned(),
            setting: if is_best { "best" } else { "default" }.to_owned(),
            round: self.round,
            attempt,
            figures: found.figures,
            stopped: found.stopped,
            error,
            gate: Reading { processor_ms: 0.0, commits_ms: 0.0 },
            noisy: false,
        }
    }
}
