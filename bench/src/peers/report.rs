//! The page of a run, with its plots.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    Outcome,
    database::Kind,
    page::{GUARANTEES, INTRODUCTION, METHOD, SETTINGS},
    plot::{Chart, Group},
    record::{Head, Record, read},
    summary::Summary,
    system::{SYSTEMS, System},
    table::{self, Row, defeats, table},
};

/// Where the page, the run and the plots are, below `docs/`.
const PAGE: &str = "BENCHMARKS.md";
const RUN: &str = "benchmarks/run.jsonl";
const IMAGES: &str = "image/benchmarks";

/// Makes the page and its plots from a run, and keeps the run beside it.
pub(crate) fn write(file: &str) -> Outcome {
    let file = Path::new(file);
    let (head, records) = read(file)?;
    let docs = docs();
    let run = docs.join(RUN);
    for dir in [docs.join(IMAGES), docs.join("benchmarks")] {
        fs::create_dir_all(dir)?;
    }
    if !run.exists() || run.canonicalize()? != file.canonicalize()? {
        fs::copy(file, &run)?;
    }
    let summary = Summary::of(&records);
    fs::write(docs.join(PAGE), page(&head, &records, &summary))?;
    for (name, chart) in charts(&summary) {
        fs::write(docs.join(IMAGES).join(format!("{name}.svg")), chart.svg())?;
    }
    println!("written: docs/{PAGE}, docs/{RUN} and the plots in docs/{IMAGES}");
    Ok(())
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// The whole page.
fn page(head: &Head, records: &[Record], summary: &Summary) -> String {
    let image = |name: &str, text: &str| format!("![{text}]({IMAGES}/{name}.svg)\n");
    let parts = [
        INTRODUCTION.to_owned(),
        facts(head, records),
        lost(summary),
        "## PostgreSQL\n\nThe best figure of each row is bold. † stopped at the time limit, ‡ noisy, – not measured.\n"
            .to_owned(),
        table(summary, Kind::Postgres, &table::POSTGRES),
        image("drain", "Bars: jobs per second that each system drains, best and default setting"),
        image("enqueue", "Bars: jobs per second that each system stores, in bulk and one by one"),
        image("latency", "Bars: milliseconds from enqueue to start on an idle worker"),
        image("wal", "Bars: bytes of write-ahead log for the whole life of a job"),
        image("processor", "Bars: processor time per drained job, server and worker"),
        image("growth", "Bars: drain with many waiting or finished jobs, compared with few"),
        "## SQLite\n".to_owned(),
        table(summary, Kind::Sqlite, &table::SQLITE),
        image("sqlite", "Bars: jobs per second that each system drains on SQLite"),
        guarantees(),
        settings(),
        METHOD.to_owned(),
    ];
    parts.join("\n")
}

/// What the figures depend on.
fn facts(head: &Head, records: &[Record]) -> String {
    let of = |map: &std::collections::BTreeMap<String, String>, name: &str| {
        map.get(name).cloned().unwrap_or_default()
    };
    let size = |name: &str| head.sizes.get(name).copied().unwrap_or_default();
    let noisy = records.iter().filter(|it| it.noisy).count();
    let settings: Vec<String> = head
        .postgres
        .iter()
        .filter(|it| it.0 != "server_version")
        .map(|(k, v)| format!("`{k} = {v}`"))
        .collect();
    let versions = SYSTEMS.iter().map(|it| format!("{} {}", it.label, of(&head.versions, it.name)));
    let versions: Vec<String> = versions.collect();
    let rows = [
        ("date", format!("{}, commit {}", head.date, head.commit)),
        (
            "machine",
            format!(
                "{}, {} cores, {}, Linux {}",
                of(&head.machine, "processor"),
                of(&head.machine, "cores"),
                gibibytes(&of(&head.machine, "memory")),
                of(&head.machine, "kernel"),
            ),
        ),
        (
            "PostgreSQL",
            format!("{}, {}", of(&head.postgres, "server_version"), settings.join(", ")),
        ),
        ("versions", versions.join(", ")),
        (
            "sizes",
            format!(
                "{} jobs with payloads of {} bytes, {} in a call to enqueue; drains end after {} s; rounds: {}; growth: {} \
                 jobs beside {}; {} processes; latency: {} jobs/s",
                size("jobs"),
                size("payload"),
                size("bulk"),
                size("limit"),
                size("rounds"),
                size("few"),
                size("backlog"),
                size("processes"),
                size("rate"),
            ),
        ),
        (
            "noise",
            format!(
                "gates up to {} % slower than the best one are quiet; {noisy} of {} measurements were noisy",
                size("noise"),
                records.len()
            ),
        ),
    ];
    let mut text = "## The run\n\n| | |\n|---|---|\n".to_owned();
    for (name, value) in rows {
        text.push_str(&format!("| {name} | {value} |\n"));
    }
    for (name, reason) in &head.missing {
        text.push_str(&format!("\n{name} is missing: {reason}.\n"));
    }
    text
}

/// The memory of the machine, from kB as `/proc/meminfo` has them.
fn gibibytes(memory: &str) -> String {
    let kib: Option<f64> = memory.trim_end_matches(" kB").parse().ok();
    kib.map_or(memory.to_owned(), |it| format!("{:.0} GiB", it / 1_048_576.0))
}

/// Where another system has the best figure, and what failed.
fn lost(summary: &Summary) -> String {
    let mut rows = defeats(summary, Kind::Postgres, &table::POSTGRES);
    rows.extend(defeats(summary, Kind::Sqlite, &table::SQLITE));
    let count = table::POSTGRES.len() + table::SQLITE.len();
    let mut text = "## Where another system is ahead\n\n".to_owned();
    if rows.is_empty() {
        text.push_str(&format!("In none of the {count} rows below.\n"));
    } else {
        text.push_str(&format!("In {} of the {count} rows below:\n\n", rows.len()));
        text.extend(rows.iter().map(|row| format!("- {row}\n")));
    }
    let failures = summary.failures();
    if !failures.is_empty() {
        text.push_str("\nMeasurements without a result:\n\n");
        text.extend(failures.iter().map(|it| format!("- {it}\n")));
    }
    text
}

fn guarantees() -> String {
    let row = |it: &System| {
        let System { label, link, ownership, finished, wake_up, .. } = it;
        format!("| [{label}]({link}) | {ownership} | {finished} | {wake_up} |\n")
    };
    let rows: String = SYSTEMS.iter().map(row).collect();
    let head = "| | who may complete a job | finished jobs | how workers learn of jobs |";
    format!("{GUARANTEES}\n{head}\n|---|---|---|---|\n{rows}")
}

fn settings() -> String {
    let row = |it: &System| {
        format!("| {} ({}) | {} | {} |\n", it.label, it.language, it.default, it.best)
    };
    let rows: String = SYSTEMS.iter().map(row).collect();
    format!("{SETTINGS}\n| | default | best |\n|---|---|---|\n{rows}")
}

/// The plots by the names of their files.
fn charts(summary: &Summary) -> Vec<(&'static str, Chart)> {
    use table::{
        BULK, DRAIN, DRAIN_CLIENT, DRAIN_DEFAULT, DRAIN_SERVER, FINISHED, MEDIAN, SINGLE, TAIL,
        WAITING, WAL,
    };
    let postgres = Kind::Postgres;
    let chart = |title: &str, series: &[(&'static str, Row)], store, is_logarithmic| {
        let systems = SYSTEMS.iter().filter(|it| it.stores.contains(&store));
        let values = |system: &System| {
            series.iter().map(|(_, row)| Some(row.cell(summary, store, system)?.median)).collect()
        };
        Chart {
            title: title.to_owned(),
            series: series.iter().map(|(name, _)| *name).collect(),
            groups: systems.map(|it| Group { label: it.label, values: values(it) }).collect(),
            digits: series.first().map_or(0, |(_, row)| row.digits),
            is_logarithmic,
        }
    };
    let drain = [("best setting", DRAIN), ("default setting", DRAIN_DEFAULT)];
    let enqueue = [("in bulk", BULK), ("one by one", SINGLE)];
    let latency = [("p50", MEDIAN), ("p99", TAIL)];
    let processor = [("server", DRAIN_SERVER), ("worker", DRAIN_CLIENT)];
    let growth = [("many waiting", WAITING), ("many finished", FINISHED)];
    vec![
        ("drain", chart("Drain, jobs per second", &drain, postgres, false)),
        ("enqueue", chart("Enqueue, jobs per second", &enqueue, postgres, false)),
        (
            "latency",
            chart("Enqueue to start on an idle worker, ms (logarithmic)", &latency, postgres, true),
        ),
        ("wal", chart("Write-ahead log per job, bytes", &[("", WAL)], postgres, false)),
        ("processor", chart("Processor time per drained job, µs", &processor, postgres, false)),
        ("growth", chart("Drain compared with few jobs", &growth, postgres, false)),
        ("sqlite", chart("Drain on SQLite, jobs per second", &drain, Kind::Sqlite, false)),
    ]
}

#[test]
fn the_page_is_that_of_its_run() -> Outcome {
    let (head, records) = read(&docs().join(RUN))?;
    let summary = Summary::of(&records);
    let same = |path: &str, text: &str| -> Outcome {
        let found = fs::read_to_string(docs().join(path))?;
        assert!(found == text, "docs/{path}: run `cargo xtask bench peers report docs/{RUN}`");
        Ok(())
    };
    same(PAGE, &page(&head, &records, &summary))?;
    for (name, chart) in charts(&summary) {
        same(&format!("{IMAGES}/{name}.svg"), &chart.svg())?;
    }
    Ok(())
}
