//! The metrics, as they are scraped, compared with the store.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod bound;
mod ops;
mod scrape;

use std::collections::BTreeMap;

/// The samples of a scrape, each under its name and labels as they are written.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.filter_map(|line| line.rsplit_once(' '));
    samples.map(|(series, value)| (series.to_owned(), value.parse().unwrap())).collect()
}

/// The sum over all samples of this name that have all of these labels.
fn sum(samples: &BTreeMap<String, f64>, name: &str, labels: &[(&str, &str)]) -> f64 {
    let wanted = samples.iter().filter(|(series, _)| {
        let (found, rest) = series.split_once('{').unwrap_or((series, ""));
        let has = |(name, value): &(&str, &str)| rest.contains(&format!("{name}=\"{value}\""));
        found == name && labels.iter().all(has)
    });
    wanted.map(|(_, value)| value).sum()
}
