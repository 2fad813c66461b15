//! The tables of the page: a row for each figure, a column for each system, the best figure in bold.

use super::{
    database::Kind,
    summary::{Cell, Summary},
    system::{SYSTEMS, System},
};

/// Which figure of a row is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    Most,
    Least,
}

/// A row of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) title: &'static str,
    pub(crate) figure: &'static str,
    pub(crate) setting: &'static str,
    pub(crate) digits: usize,
    pub(crate) better: Better,
}

const fn row(title: &'static str, figure: &'static str, digits: usize, better: Better) -> Row {
    Row { title, figure, setting: "best", digits, better }
}

const fn by_default(row: Row) -> Row {
    Row { setting: "default", ..row }
}

use Better::{Least, Most};

pub(crate) const DRAIN: Row = row("drain, jobs/s", "drain_rate", 0, Most);
pub(crate) const DRAIN_DEFAULT: Row =
    by_default(row("drain in the default setting, jobs/s", "drain_rate", 0, Most));
pub(crate) const SINGLE: Row = row("enqueue one by one, jobs/s", "single_rate", 0, Most);
pub(crate) const BULK: Row = row("enqueue in bulk, jobs/s", "bulk_rate", 0, Most);
pub(crate) const MEDIAN: Row = row("enqueue to start, p50, ms", "latency_p50_ms", 1, Least);
pub(crate) const TAIL: Row = row("enqueue to start, p99, ms", "latency_p99_ms", 1, Least);
pub(crate) const WAL: Row = row("write-ahead log per job, bytes", "wal_bytes", 0, Least);
pub(crate) const DRAIN_SERVER: Row =
    row("drain, processor time of the server per job, µs", "drain_server_us", 1, Least);
pub(crate) const DRAIN_CLIENT: Row =
    row("drain, processor time of the worker per job, µs", "drain_client_us", 1, Least);
const MEMORY: Row = row("peak memory of the process, MiB", "memory_mib", 0, Least);
pub(crate) const WAITING: Row =
    row("drain with many waiting jobs, compared with few", "waiting_ratio", 2, Most);
pub(crate) const FINISHED: Row =
    row("drain after many finished jobs, compared with few", "finished_ratio", 2, Most);

/// The rows on PostgreSQL.
pub(crate) const POSTGRES: [Row; 20] = [
    DRAIN,
    DRAIN_DEFAULT,
    SINGLE,
    BULK,
    MEDIAN,
    TAIL,
    by_default(row("enqueue to start in the default setting, p50, ms", "latency_p50_ms", 1, Least)),
    by_default(row("enqueue to start in the default setting, p99, ms", "latency_p99_ms", 1, Least)),
    WAL,
    DRAIN_SERVER,
    DRAIN_CLIENT,
    row("bulk, processor time of the server per job, µs", "bulk_server_us", 1, Least),
    row("bulk, processor time of the producer per job, µs", "bulk_client_us", 1, Least),
    row("one by one, processor time of the server per job, µs", "single_server_us", 1, Least),
    row("one by one, processor time of the producer per job, µs", "single_client_us", 1, Least),
    MEMORY,
    row("several processes: enqueue one by one, jobs/s", "processes_single_rate", 0, Most),
    row("several processes: drain, jobs/s", "processes_drain_rate", 0, Most),
    WAITING,
    FINISHED,
];

/// The rows on SQLite.
pub(crate) const SQLITE: [Row; 10] = [
    DRAIN,
    DRAIN_DEFAULT,
    SINGLE,
    BULK,
    MEDIAN,
    TAIL,
    by_default(row("enqueue to start in the default setting, p50, ms", "latency_p50_ms", 1, Least)),
    by_default(row("enqueue to start in the default setting, p99, ms", "latency_p99_ms", 1, Least)),
    row("drain, processor time per job, µs", "drain_client_us", 1, Least),
    MEMORY,
];

impl Row {
    pub(crate) fn cell(&self, summary: &Summary, store: Kind, system: &System) -> Option<Cell> {
        summary.get(store, self.setting, system.name, self.figure)
    }

    /// The system with the best figure, unless it has to share the place.
    pub(crate) fn best(&self, summary: &Summary, store: Kind) -> Option<&'static System> {
        let figure = |system: &'static System| {
            self.cell(summary, store, system).map(|it| (system, it.median))
        };
        let order = |a: &(_, f64), b: &(_, f64)| match self.better {
            Better::Most => b.1.total_cmp(&a.1),
            Better::Least => a.1.total_cmp(&b.1),
        };
        let mut all: Vec<_> = SYSTEMS.iter().filter_map(figure).filter(|it| it.1 > 0.0).collect();
        all.sort_by(order);
        all.first().map(|(system, _)| *system)
    }

    fn text(&self, cell: Option<Cell>, is_best: bool) -> String {
        let Some(cell) = cell else { return "–".to_owned() };
        let mut text = number(cell.median, self.digits);
        if is_best {
            text = format!("**{text}**");
        }
        if cell.spread >= 0.5 {
            text.push_str(&format!(" ±{:.0} %", cell.spread));
        }
        text.push_str(if cell.stopped { " †" } else { "" });
        text.push_str(if cell.noisy { " ‡" } else { "" });
        text
    }
}

/// A table of these rows, for the systems that have the store.
pub(crate) fn table(summary: &Summary, store: Kind, rows: &[Row]) -> String {
    let systems: Vec<&'static System> =
        SYSTEMS.iter().filter(|it| it.stores.contains(&store)).collect();
    let labels: Vec<&str> = systems.iter().map(|it| it.label).collect();
    let mut text = format!("| | {} |\n|---|{}\n", labels.join(" | "), "---:|".repeat(labels.len()));
    for row in rows {
        let best = row.best(summary, store).map(|it| it.name);
        let cell = |system: &&'static System| {
            row.text(row.cell(summary, store, system), best == Some(system.name))
        };
        let cells: Vec<String> = systems.iter().map(cell).collect();
        text.push_str(&format!("| {} | {} |\n", row.title, cells.join(" | ")));
    }
    text
}

/// The rows in which another system has the best figure, as a list.
pub(crate) fn defeats(summary: &Summary, store: Kind, rows: &[Row]) -> Vec<String> {
    let ours = &SYSTEMS[0];
    let defeat = |row: &Row| {
        let best = row.best(summary, store).filter(|it| it.name != ours.name)?;
        let theirs = number(row.cell(summary, store, best)?.median, row.digits);
        let ours = row.cell(summary, store, ours);
        let ours = ours.map_or("–".to_owned(), |it| number(it.median, row.digits));
        let store = if store == Kind::Sqlite { "SQLite, " } else { "" };
        Some(format!("{store}{}: {} {theirs}, TaskHarbor {ours}", row.title, best.label))
    };
    rows.iter().filter_map(defeat).collect()
}

/// A number with a comma between thousands.
pub(crate) fn number(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if rest.is_empty() { grouped } else { format!("{grouped}.{rest}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::summary::tests::record;

    #[test]
    fn the_best_figure_of_a_row_is_bold_and_a_defeat_is_listed() {
        let records = [record("taskharbor", 0, 1_000.0, false), record("awa", 0, 2_500.0, false)];
        let summary = Summary::of(&records);
        let text = table(&summary, Kind::Postgres, &[DRAIN]);
        assert!(text.contains("| drain, jobs/s | 1,000 | – | – | – | **2,500** |"), "{text}");
        let defeats = defeats(&summary, Kind::Postgres, &[DRAIN]);
        assert_eq!(defeats, ["drain, jobs/s: awa 2,500, TaskHarbor 1,000"]);
    }

    #[test]
    fn marks_follow_the_figure() {
        let cell = Cell { median: 3.0, spread: 4.6, stopped: true, noisy: true };
        assert_eq!(DRAIN.text(Some(cell), false), "3 ±5 % † ‡");
    }

    #[test]
    fn thousands_are_separated() {
        let numbers = [(0.25, 2), (999.0, 0), (1_000.0, 0), (1_234_567.89, 1)];
        let texts = numbers.map(|(value, digits)| number(value, digits));
        assert_eq!(texts, ["0.25", "999", "1,000", "1,234,567.9"]);
    }
}
