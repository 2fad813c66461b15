//! Figures as lines of a table: what was measured, the bound on it, and whether it is met.

/// What a figure has to be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
    /// It is printed for orientation.
    None,
}

/// The values of all rounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounds(Vec<f64>);

impl Rounds {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    pub(crate) fn median(&self) -> f64 {
        let sorted = self.sorted();
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// What this was in proportion to another, round by round.
    pub(crate) fn over(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(mine, others)| mine / others).collect())
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

/// A heading.
pub(crate) fn head(text: &str) {
    println!("\n{text}");
}

/// A rate, for orientation.
pub(crate) fn rate(what: &str, rounds: &Rounds) {
    finding(what, rounds, "/s", 0, Bound::None);
}

/// A proportion that has a bound.
pub(crate) fn ratio(what: &str, rounds: &Rounds, bound: Bound) {
    finding(what, rounds, "", 2, bound);
}

/// One figure.
pub(crate) fn figure(what: &str, value: f64, unit: &str, digits: usize, bound: Bound) {
    finding(what, &Rounds(vec![value]), unit, digits, bound);
}

fn finding(what: &str, rounds: &Rounds, unit: &str, digits: usize, bound: Bound) {
    let (sorted, median) = (rounds.sorted(), rounds.median());
    let range = match sorted.as_slice() {
        [least, .., most] => format!("{least:.digits$} to {most:.digits$}"),
        _ => String::new(),
    };
    let verdict = match bound {
        Bound::AtLeast(least) => format!("≥ {least:<7} {}", met(median >= least)),
        Bound::AtMost(most) => format!("≤ {most:<7.1} {}", met(median <= most)),
        Bound::None => String::new(),
    };
    let line = format!("  {what:<58} {median:>10.digits$}{unit:<4} {range:<18} {verdict}");
    println!("{}", line.trim_end());
}

fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "NOT MET" }
}

/// Things done per second.
#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
pub(crate) fn per_second(count: usize, took: std::time::Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

/// The value below which so many of a hundred are.
pub(crate) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or(f64::NAN)
}
