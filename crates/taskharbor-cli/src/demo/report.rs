//! The report at the end of the demo, line by line.

use unicode_width::UnicodeWidthStr;

use super::{
    finding::Findings,
    plan,
    progress::{self, Seen},
};
use crate::{
    duration::{human, median},
    table::{self, Align, Cell, headings, wrap},
    terminal::{Palette, Terminal, Tone},
};

/// All of it; `differences` is what did not go as planned.
pub(crate) fn lines(
    findings: &Findings,
    differences: &[String],
    terminal: &Terminal,
) -> Vec<String> {
    let mut lines = kinds(findings, terminal.palette);
    lines.push(String::new());
    lines.extend(dead_letters(findings, terminal));
    lines.push(String::new());
    let sentences = [crash(findings), schedule(findings), reports(findings)];
    for sentence in sentences.into_iter().flatten() {
        lines.extend(paragraph(&sentence, terminal));
    }
    lines.push(String::new());
    lines.extend(verdict(findings, differences, terminal));
    lines
}

/// The result for each kind.
fn kinds(findings: &Findings, palette: Palette) -> Vec<String> {
    let names = ["kind", "jobs", "done", "retries", "DLQ", "median", "max", "each of them"];
    let mut rows = vec![headings(&names)];
    for (job_type, seen) in in_order(findings) {
        let time = |time: Option<_>| match time {
            Some(time) => Cell::plain(human(time)),
            None => Cell::new(Tone::Faint, "-"),
        };
        let words = plan::Kind::of(job_type).map_or("", |kind| kind.words);
        rows.push(vec![
            Cell::plain(job_type),
            Cell::plain(seen.jobs.to_string()),
            Cell::count(Tone::Good, seen.done),
            Cell::count(Tone::Warning, seen.retries),
            Cell::count(Tone::Bad, seen.dead),
            time(median(&seen.took)),
            time(seen.took.iter().copied().max()),
            Cell::new(Tone::Faint, words),
        ]);
    }
    let columns = [
        Align::Left,
        Align::Right,
        Align::Right,
        Align::Right,
        Align::Right,
        Align::Right,
        Align::Right,
        Align::Left,
    ];
    table::lines(&columns, &rows, palette)
}

/// The jobs by type, in the order of the plan; types that are not in the plan come last.
fn in_order(findings: &Findings) -> Vec<(&str, &Seen)> {
    let place = |job_type: &str| plan::KINDS.iter().position(|kind| kind.job_type == job_type);
    let mut kinds: Vec<_> =
        findings.kinds.iter().map(|(job_type, seen)| (&**job_type, seen)).collect();
    kinds.sort_by_key(|(job_type, _)| place(job_type).unwrap_or(usize::MAX));
    kinds
}

/// What lies in the DLQ, and why.
fn dead_letters(findings: &Findings, terminal: &Terminal) -> Vec<String> {
    let longest = findings.dead.iter().map(|dead| dead.job_type.width()).max();
    // Two columns with their gaps stand before the reasons; a narrow terminal wraps by itself.
    let before = longest.unwrap_or(0) + "attempts".len() + 6;
    let room = terminal.width().saturating_sub(before).max(20);
    let mut rows = vec![headings(&["in the DLQ", "attempts", "reason"])];
    for dead in &findings.dead {
        let mut reason = wrap(&dead.reason, room).into_iter();
        rows.push(vec![
            Cell::plain(&*dead.job_type),
            Cell::plain(dead.attempts.to_string()),
            Cell::plain(reason.next().unwrap_or_default()),
        ]);
        rows.extend(reason.map(|rest| vec![Cell::default(), Cell::default(), Cell::plain(rest)]));
    }
    table::lines(&[Align::Left, Align::Right, Align::Left], &rows, terminal.palette)
}

fn crash(findings: &Findings) -> Option<String> {
    let crash = findings.crash.as_ref()?;
    let (pid, running, seconds) = (crash.pid, crash.running.len(), crash.at.as_secs_f64());
    let killed =
        format!("Process {pid} was killed after {seconds:.1} s with {running} jobs running");
    let is_all_there =
        progress::over(&findings.kinds) == plan::jobs() && findings.run_again.is_empty();
    Some(if is_all_there {
        format!(
            "{killed}: they came back when their leases ended. Nothing was lost, and nothing that was done ran again."
        )
    } else {
        format!("{killed}.")
    })
}

fn schedule(findings: &Findings) -> Option<String> {
    let schedule = findings.schedule?;
    let (due, began) = (schedule.due, schedule.began);
    let (distance, side) =
        if began >= due { (began.since(due), "after") } else { (due.since(began), "before") };
    let (ahead, distance) = (plan::AHEAD.as_secs(), human(distance));
    Some(format!(
        "reminder:send was scheduled {ahead} s ahead and started {distance} {side} it was due."
    ))
}

fn reports(findings: &Findings) -> Option<String> {
    let reports = &findings.reports;
    let rows: u32 = reports.iter().map(|report| report.rows).sum();
    let count = reports.len();
    let text = format!("report:build returned {count} typed reports, {rows} rows in all.");
    (!reports.is_empty()).then_some(text)
}

/// The totals, whether all went as planned, and what to do next.
fn verdict(findings: &Findings, differences: &[String], terminal: &Terminal) -> Vec<String> {
    let jobs: usize = findings.kinds.values().map(|seen| seen.jobs).sum();
    let over = progress::over(&findings.kinds);
    let seconds = findings.elapsed.as_secs_f64();
    let rate = if seconds > 0.0 { format!("{:.0}", over as f64 / seconds) } else { "-".to_owned() };
    let totals = format!("{jobs} jobs in {seconds:.1} s, {rate} jobs per second");
    let palette = terminal.palette;
    if differences.is_empty() {
        let planned = palette.paint(Tone::Good, "all as planned");
        let mut lines = vec![format!("  {}: {planned}.", palette.paint(Tone::Strong, &totals))];
        lines.extend(paragraph(WHY_SLOW, terminal));
        lines.push(String::new());
        lines.extend(NEXT.iter().map(|line| format!("  {line}")));
        return lines;
    }
    let not_planned = palette.paint(Tone::Bad, "not as planned");
    let mut lines = vec![format!("  {}: {not_planned}.", palette.paint(Tone::Strong, &totals))];
    lines.extend(differences.iter().map(|difference| format!("    {difference}")));
    lines
}

const WHY_SLOW: &str =
    "The handlers wait on purpose; `cargo xtask bench` shows what the store can do.";

const NEXT: [&str; 3] = [
    "Next: docs/guides/workers.md explains each state of a job. DLQ is the",
    "dead-letter queue: what is not tried again. Programs to start from are in",
    "crates/taskharbor/examples/: cargo run -p taskharbor --example email",
];

/// A sentence, indented and within the width of the terminal.
fn paragraph(text: &str, terminal: &Terminal) -> Vec<String> {
    let room = terminal.width().saturating_sub(2);
    wrap(text, room).into_iter().map(|line| format!("  {line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{demo::check::tests::as_planned, terminal::Size};

    fn on(terminal: Terminal, differences: &[String]) -> Vec<String> {
        lines(&as_planned(), differences, &terminal)
    }

    #[test]
    fn every_kind_has_its_line_and_every_number_its_column() {
        let lines = on(Terminal::with(None, false), &[]);
        let line = |start: &str| lines.iter().find(|line| line.trim().starts_with(start)).unwrap();
        for kind in &plan::KINDS {
            let fields: Vec<_> = line(kind.job_type).split_whitespace().collect();
            let numbers = [kind.jobs, kind.done(), kind.retries(), kind.dead()];
            assert_eq!(fields[1..5], numbers.map(|number| number.to_string()));
            assert!(line(kind.job_type).ends_with(kind.words));
        }
        let end = |name: &str| line("kind").find(name).unwrap() + name.len();
        assert!(line("email:send")[..end("jobs")].ends_with(" 240"));
        assert!(line("sms:send")[..end("retries")].ends_with(" 40"));
        assert!(line("webhook:call")[..end("DLQ")].ends_with(" 1"));
        assert!(line("email:send")[..end("max")].ends_with(" 98 ms"));
        assert!(line("reminder:send was").ends_with("started 1.3 ms after it was due."));
        let totals = line(&format!("{} jobs in 4.0 s", plan::jobs()));
        assert!(totals.ends_with("jobs per second: all as planned."), "{totals}");
    }

    #[test]
    fn all_fits_eighty_columns_and_long_reasons_are_broken() {
        let size = Size { columns: 80, rows: 24 };
        let mut findings = as_planned();
        findings.dead[1].reason = "failed 3 times; last error: panicked: and so on ".repeat(3);
        let lines = lines(&findings, &[], &Terminal::with(Some(size), true));
        for line in &lines {
            assert!(line.chars().count() <= 80, "{line:?}");
        }
        let at = lines.iter().position(|line| line.contains("failed 3 times")).unwrap();
        let column = lines[at].find("failed").unwrap();
        let next = lines[at + 1].len() - lines[at + 1].trim_start().len();
        assert_eq!(column, next, "{lines:#?}");
    }

    #[test]
    fn differences_from_the_plan_are_reported_without_next_steps() {
        let difference = "email:send, done: 239, planned 240".to_owned();
        let text = on(Terminal::with(None, false), &[difference]).join("\n");
        assert!(text.contains("not as planned.\n    email:send, done: 239, planned 240"), "{text}");
        assert!(!text.contains("Next:"), "{text}");
    }
}
