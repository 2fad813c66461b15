//! Figures as lines of a table: what was measured, the bound on it, and whether it is met.
//!
//! Machines are noisy. A bound is missed beyond noise when the best of the rounds misses it, too. Every
//! such figure is remembered, and the run fails in the end.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// What a figure has to be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
    /// It is printed for orientation.
    None,
}

/// What the rounds say about a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The median meets it.
    Met,
    /// The median misses it, the best round meets it.
    WithinNoise,
    /// Every round misses it.
    Missed,
}

impl Bound {
    fn verdict(self, rounds: &Rounds) -> Option<Verdict> {
        let (sorted, median) = (rounds.sorted(), rounds.median());
        let best = match self {
            Self::AtLeast(_) => sorted.last(),
            Self::AtMost(_) => sorted.first(),
            Self::None => return None,
        };
        // No round, or one without a value, meets nothing.
        let best = best.copied().unwrap_or(f64::NAN);
        Some(match (self.is_met(median), self.is_met(best)) {
            (true, _) => Verdict::Met,
            (false, true) => Verdict::WithinNoise,
            (false, false) => Verdict::Missed,
        })
    }

    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
            Self::None => true,
        }
    }
}

/// The values of all rounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounds(Vec<f64>);

impl Rounds {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The value in the middle, or the mean of the two in the middle.
    pub(crate) fn median(&self) -> f64 {
        let sorted = self.sorted();
        let middle = |at: usize| sorted.get(at).copied().unwrap_or(f64::NAN);
        let upper = sorted.len() / 2;
        if sorted.len().is_multiple_of(2) {
            f64::midpoint(middle(upper.saturating_sub(1)), middle(upper))
        } else {
            middle(upper)
        }
    }

    /// Half the distance from the least to the most, in hundredths of the median.
    pub(crate) fn spread(&self) -> f64 {
        let sorted = self.sorted();
        match sorted.as_slice() {
            [least, .., most] => (most - least) * 50.0 / self.median(),
            _ => 0.0,
        }
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

/// The heading that was printed last, and the figures that missed their bounds.
struct Record {
    heading: String,
    missed: Vec<String>,
}

static RECORD: Mutex<Record> = Mutex::new(Record { heading: String::new(), missed: Vec::new() });

fn record<T>(change: impl FnOnce(&mut Record) -> T) -> T {
    change(&mut RECORD.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The figures of this process that missed their bounds beyond noise.
pub(crate) fn missed() -> Vec<String> {
    record(|it| it.missed.clone())
}

/// A heading.
pub(crate) fn head(text: &str) {
    record(|it| text.clone_into(&mut it.heading));
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

/// A figure with its range.
pub(crate) fn finding(what: &str, rounds: &Rounds, unit: &str, digits: usize, bound: Bound) {
    let (sorted, median) = (rounds.sorted(), rounds.median());
    let range = match sorted.as_slice() {
        [least, .., most] => format!("{least:.digits$} to {most:.digits$}"),
        _ => String::new(),
    };
    let verdict = bound.verdict(rounds);
    let said = match verdict {
        Some(Verdict::Met) => "met",
        Some(Verdict::WithinNoise) => "met by the best round alone",
        Some(Verdict::Missed) => "NOT MET",
        None => "",
    };
    let bound = match bound {
        Bound::AtLeast(least) => format!("≥ {:<7}", hundredths(least)),
        Bound::AtMost(most) => format!("≤ {:<7}", hundredths(most)),
        Bound::None => String::new(),
    };
    let line = format!("  {what:<64} {median:>10.digits$}{unit:<4} {range:<18} {bound} {said}");
    println!("{}", line.trim_end());
    if verdict == Some(Verdict::Missed) {
        let figure =
            format!("{}: {median:.digits$}{unit}, wanted {}", what.trim(), bound.trim_end());
        record(|it| it.missed.push(format!("{}: {figure}", it.heading)));
    }
}

/// Rounds a computed bound to the digits that are worth reading.
fn hundredths(bound: f64) -> f64 {
    (bound * 100.0).round() / 100.0
}

/// Things done per second.
#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
pub(crate) fn per_second(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

/// The value below which this many of a hundred are.
pub(crate) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

/// The median of some durations, in milliseconds.
pub(crate) fn median_ms(samples: &[Duration]) -> f64 {
    percentile_ms(samples, 50)
}

/// The value below which this many of a hundred are, in milliseconds.
pub(crate) fn percentile_ms(samples: &[Duration], percent: usize) -> f64 {
    let mut sorted: Vec<f64> = samples.iter().map(|it| it.as_secs_f64() * 1e3).collect();
    sorted.sort_by(f64::total_cmp);
    percentile(&sorted, percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(bound: Bound, values: &[f64]) -> Option<Verdict> {
        bound.verdict(&Rounds(values.to_vec()))
    }

    #[test]
    fn a_bound_is_missed_when_the_best_round_misses_it() {
        let least = Bound::AtLeast(2.0);
        assert_eq!(verdict(least, &[1.0, 2.0, 3.0]), Some(Verdict::Met));
        assert_eq!(verdict(least, &[1.0, 1.0, 2.0]), Some(Verdict::WithinNoise));
        assert_eq!(verdict(least, &[1.0, 1.5, 1.9]), Some(Verdict::Missed));
        let most = Bound::AtMost(2.0);
        assert_eq!(verdict(most, &[9.0, 1.0, 2.0]), Some(Verdict::Met));
        assert_eq!(verdict(most, &[3.0, 9.0, 2.0]), Some(Verdict::WithinNoise));
        assert_eq!(verdict(most, &[3.0, 9.0, 2.1]), Some(Verdict::Missed));
        assert_eq!(verdict(Bound::None, &[3.0]), None);
    }

    #[test]
    fn a_figure_without_a_value_meets_no_bound() {
        for bound in [Bound::AtLeast(0.0), Bound::AtMost(f64::INFINITY)] {
            assert_eq!(verdict(bound, &[]), Some(Verdict::Missed));
            assert_eq!(verdict(bound, &[f64::NAN]), Some(Verdict::Missed));
        }
    }

    #[test]
    fn what_missed_its_bound_is_remembered_with_its_heading() {
        head("drain: 10 jobs");
        figure("fast enough", 2.0, "", 1, Bound::AtLeast(1.0));
        figure("too slow", 0.5, "", 1, Bound::AtLeast(1.0));
        assert_eq!(missed(), ["drain: 10 jobs: too slow: 0.5, wanted ≥ 1"]);
    }
}
