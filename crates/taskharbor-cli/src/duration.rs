//! Durations as people read them: three digits at most, and always a unit.

use std::time::Duration;

/// This duration with the unit that suits it.
pub(crate) fn human(duration: Duration) -> String {
    let millis = duration.as_secs_f64() * 1_000.0;
    // The limits lie where rounding would add a digit, so that 999.7 ms is 1.00 s.
    match millis {
        0.0 => "0 ms".to_owned(),
        _ if millis < 0.1 => "<0.1 ms".to_owned(),
        _ if millis < 9.95 => format!("{millis:.1} ms"),
        _ if millis < 999.5 => format!("{millis:.0} ms"),
        _ if millis < 9_995.0 => format!("{:.2} s", millis / 1_000.0),
        _ if millis < 99_950.0 => format!("{:.1} s", millis / 1_000.0),
        _ => format!("{:.0} s", millis / 1_000.0),
    }
}

/// The middle one of these, or the mean of the two in the middle; `None` of none.
pub(crate) fn median(durations: &[Duration]) -> Option<Duration> {
    let mut sorted = durations.to_vec();
    sorted.sort_unstable();
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
    Some((lower + upper) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn durations_have_three_digits_at_most_and_a_unit() {
        for (duration, text) in [
            (micros(0), "0 ms"),
            (micros(3), "<0.1 ms"),
            (micros(100), "0.1 ms"),
            (micros(949), "0.9 ms"),
            (micros(1_340), "1.3 ms"),
            (micros(9_949), "9.9 ms"),
            (micros(9_951), "10 ms"),
            (micros(98_499), "98 ms"),
            (micros(999_499), "999 ms"),
            (micros(999_700), "1.00 s"),
            (micros(4_321_000), "4.32 s"),
            (micros(9_996_000), "10.0 s"),
            (micros(61_000_000), "61.0 s"),
            (micros(99_960_000), "100 s"),
        ] {
            assert_eq!(human(duration), text, "{duration:?}");
        }
    }

    #[test]
    fn the_median_does_not_depend_on_the_order() {
        let of = |all: &[u64]| median(&all.iter().copied().map(micros).collect::<Vec<_>>());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[7]), Some(micros(7)));
        assert_eq!(of(&[9, 1]), Some(micros(5)));
        assert_eq!(of(&[9, 1, 2]), Some(micros(2)));
        assert_eq!(of(&[100, 4, 1, 2]), Some(micros(3)));
    }
}
