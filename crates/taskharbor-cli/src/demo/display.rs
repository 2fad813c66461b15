//! [`Display`]: how far the run is, while it runs.
//!
//! On a terminal a block of bars is drawn over itself; where there is no room for it, or no
//! terminal, a line is printed now and then. Nothing of the terminal's state is changed, so there
//! is nothing to restore, however the process ends.

use std::{
    io::{self, Write},
    time::Duration,
};

use taskharbor::State;
use taskharbor::StateCounts;

use super::{
    plan,
    progress::{self, Kinds},
};
use crate::{
    table::{self, Align, Cell},
    terminal::{Palette, Size, Terminal, Tone},
};

/// How the run stands.
#[derive(Debug)]
pub(crate) struct Progress {
    /// What was observed.
    pub(crate) kinds: Kinds,
    /// What the store says.
    pub(crate) states: StateCounts,
    /// Since when it runs.
    pub(crate) elapsed: Duration,
}

/// Shows how the run stands.
#[derive(Debug)]
pub(crate) struct Display<W> {
    out: W,
    palette: Palette,
    /// How wide the bars are, if there is room for them.
    bar: Option<usize>,
    /// What the last progress that was shown has left above the cursor.
    left: Left,
}

/// What stands above the cursor.
#[derive(Clone, Copy, Debug)]
enum Left {
    /// Nothing of ours.
    Nothing,
    /// This many lines of bars, to be drawn over.
    Bars(usize),
    /// Lines that stay.
    Lines,
}

/// Columns that stand beside the bars, with some to spare.
const BESIDE_BARS: usize = 40;
/// The line below the bars needs as much room as bars of this width do.
const SHORTEST_BAR: usize = 24;
const LONGEST_BAR: usize = 36;
/// Rows that the bars need with what stands around them.
const ROWS: usize = plan::KINDS.len() + 6;

impl<W: Write> Display<W> {
    /// A display on `out`, which is this terminal.
    pub(crate) fn new(out: W, terminal: Terminal) -> Self {
        let bar = terminal.size.and_then(|Size { columns, rows }| {
            let room = columns.checked_sub(BESIDE_BARS).filter(|room| *room >= SHORTEST_BAR)?;
            (rows >= ROWS).then_some(room.min(LONGEST_BAR))
        });
        Self { out, palette: terminal.palette, bar, left: Left::Nothing }
    }

    /// Whether what is printed is coloured.
    pub(crate) const fn palette(&self) -> Palette {
        self.palette
    }

    /// How long to wait between two looks at the run.
    pub(crate) const fn interval(&self) -> Duration {
        Duration::from_millis(if self.bar.is_some() { 80 } else { 1_000 })
    }

    /// Prints lines that stay, in place of the bars or below the lines of progress.
    pub(crate) fn print(&mut self, lines: &[String]) -> io::Result<()> {
        let before = match std::mem::replace(&mut self.left, Left::Nothing) {
            Left::Nothing => String::new(),
            Left::Bars(lines) => up(lines) + "\x1b[J",
            Left::Lines => "\n".to_owned(),
        };
        self.write(&(before + &lines.join("\n") + "\n"))
    }

    /// Shows how the run stands now.
    pub(crate) fn show(&mut self, progress: &Progress) -> io::Result<()> {
        let Some(width) = self.bar else {
            self.left = Left::Lines;
            return self.write(&(line(progress) + "\n"));
        };
        let lines = block(progress, width, self.palette);
        let before = match std::mem::replace(&mut self.left, Left::Bars(lines.len())) {
            Left::Bars(lines) => up(lines),
            Left::Nothing | Left::Lines => String::new(),
        };
        self.write(&(before + &lines.join("\x1b[K\n") + "\x1b[K\n"))
    }

    /// All at once, so that no frame is seen half drawn.
    fn write(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }
}

/// Moves the cursor to the start of the line this many lines up.
fn up(lines: usize) -> String {
    format!("\r\x1b[{lines}A")
}

/// One line that says how the run stands.
fn line(progress: &Progress) -> String {
    let Progress { kinds, states, elapsed } = progress;
    let states: Vec<_> = shown(states).map(|(state, count)| format!("{count:3} {state}")).collect();
    let (seconds, jobs, over) = (elapsed.as_secs_f64(), plan::jobs(), progress::over(kinds));
    format!("  {seconds:4.1} s  {over:3} of {jobs} jobs finished: {}", states.join(", "))
}

/// The bars: one for each kind, one for all, and the states.
fn block(progress: &Progress, width: usize, palette: Palette) -> Vec<String> {
    let Progress { kinds, states, elapsed } = progress;
    let row = |name: Cell, done: usize, dead: usize, jobs: usize| {
        let bar = bar(width, done, dead, jobs);
        // As wide for all, so that nothing moves when a number grows.
        vec![name, bar, Cell::plain(format!("{:>3}/{jobs:<3}", done + dead))]
    };
    let mut rows = Vec::new();
    let (mut all_done, mut all_dead) = (0, 0);
    for kind in &plan::KINDS {
        let (done, dead) = kinds.get(kind.job_type).map_or((0, 0), |seen| (seen.done, seen.dead));
        rows.push(row(Cell::plain(kind.job_type), done, dead, kind.jobs));
        all_done += done;
        all_dead += dead;
    }
    let mut total = row(Cell::new(Tone::Strong, "all"), all_done, all_dead, plan::jobs());
    total.push(Cell::new(Tone::Faint, format!("{:.1} s", elapsed.as_secs_f64())));
    rows.extend([vec![], total]);
    let columns = [Align::Left, Align::Left, Align::Right, Align::Right];
    let mut lines = table::lines(&columns, &rows, palette);
    let counts = shown(states).map(|(state, count)| {
        let name = palette.paint(Tone::Faint, &state.to_string());
        format!("{name} {count:<3}")
    });
    let counts = counts.collect::<Vec<_>>().join("  ");
    lines.extend([String::new(), format!("  {}", counts.trim_end())]);
    lines
}

/// The states that jobs of the demo can be in, and how many are.
fn shown(states: &StateCounts) -> impl Iterator<Item = (State, usize)> {
    let names = [State::Ready, State::Scheduled, State::Inflight, State::Done, State::Dlq];
    names.into_iter().map(|state| (state, states.get(state)))
}

/// A bar of `width` for this many of `jobs`: what is done, then what is dead, then what is left.
fn bar(width: usize, done: usize, dead: usize, jobs: usize) -> Cell {
    let part = |count: usize| (count * width).checked_div(jobs).unwrap_or(0).min(width);
    let (over, dead_part) = (part(done + dead), part(dead));
    // One that is dead among many is seen all the same.
    let dead_part = if dead > 0 { dead_part.clamp(1, over.max(1)) } else { 0 };
    let over = over.max(dead_part);
    Cell::new(Tone::Good, "━".repeat(over - dead_part))
        .and(Tone::Bad, "━".repeat(dead_part))
        .and(Tone::Faint, "─".repeat(width - over))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::progress::Seen;

    fn drawn(done: usize, dead: usize, jobs: usize) -> String {
        let text = bar(10, done, dead, jobs).paint(Palette::Coloured);
        let text = text.replace("\x1b[32m", "good").replace("\x1b[31m", "bad");
        text.replace("\x1b[2m", "").replace("\x1b[0m", "")
    }

    #[test]
    fn a_bar_is_as_full_as_the_work_is_done_and_shows_what_died() {
        assert_eq!(drawn(0, 0, 7), "──────────");
        assert_eq!(drawn(35, 0, 100), "good━━━───────");
        assert_eq!(drawn(100, 0, 100), "good━━━━━━━━━━");
        assert_eq!(drawn(0, 1, 1), "bad━━━━━━━━━━");
        assert_eq!(drawn(99, 1, 100), "good━━━━━━━━━bad━");
        assert_eq!(drawn(0, 1, 100), "bad━─────────");
        assert_eq!(drawn(0, 0, 0), "──────────");
    }

    fn progress() -> Progress {
        let email = Seen { jobs: 240, done: 120, ..Seen::default() };
        let hopeless = Seen { jobs: 1, dead: 1, ..Seen::default() };
        let kinds = [("email:send", email), ("user:import", hopeless)];
        let kinds = kinds.into_iter().map(|(name, seen)| (name.to_owned(), seen)).collect();
        let mut states = StateCounts::default();
        (states.ready, states.done, states.dlq) = (200, 120, 1);
        Progress { kinds, states, elapsed: Duration::from_millis(1_500) }
    }

    fn shown_on(size: Option<Size>) -> (String, Display<Vec<u8>>) {
        let mut display = Display::new(Vec::new(), Terminal::with(size, true));
        display.show(&progress()).unwrap();
        (String::from_utf8(display.out.clone()).unwrap(), display)
    }

    #[test]
    fn without_room_a_line_is_printed_and_no_control_character() {
        let short = Size { columns: 200, rows: 10 };
        let narrow = Size { columns: 63, rows: 50 };
        for size in [None, Some(short), Some(narrow)] {
            let jobs = plan::jobs();
            let (text, _) = shown_on(size);
            let states = "200 ready,   0 scheduled,   0 inflight, 120 done,   1 dlq";
            assert_eq!(text, format!("   1.5 s  121 of {jobs} jobs finished: {states}\n"));
        }
    }

    #[test]
    fn with_room_the_block_fits_and_is_drawn_over_itself() {
        for columns in [64, 65, 80, 200] {
            let (text, mut display) = shown_on(Some(Size { columns, rows: 24 }));
            let lines: Vec<_> = text.lines().map(|line| line.trim_end_matches("\x1b[K")).collect();
            for line in &lines {
                assert!(line.chars().count() < columns, "{columns}: {line:?}");
            }
            assert!(lines.len() < 24);
            let start = display.out.len();
            display.show(&progress()).unwrap();
            let again = &display.out[start..];
            assert!(again.starts_with(format!("\r\x1b[{}A", lines.len()).as_bytes()));
        }
    }
}
