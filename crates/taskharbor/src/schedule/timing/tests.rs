//! The slots of expressions, above all when clocks change.

use super::*;
use crate::schedule::{calendar::Calendar, template::text};

fn cron(expression: &str, zone_name: &str) -> Timing {
    Timing::cron(expression, zone(zone_name).unwrap()).unwrap()
}

/// The slots after an instant.
fn slots<const N: usize>(timing: &Timing, after: &str) -> [String; N] {
    let calendar = Calendar { timing: timing.clone(), starts_at: None, ends_at: None };
    let slots = calendar.upcoming(after.parse().unwrap(), N).unwrap();
    slots.into_iter().map(text).collect::<Vec<_>>().try_into().unwrap()
}

#[test]
fn fixed_times_run_once_a_day_across_clock_changes() {
    for (case, expression, zone, after, expected) in [
        (
            "a time in a gap runs at its end",
            "30 2 * * *",
            "America/New_York",
            "2026-03-08T05:00Z",
            ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"],
        ),
        (
            "a time that comes twice runs the first time",
            "30 1 * * *",
            "America/New_York",
            "2026-11-01T05:00Z",
            ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"],
        ),
        (
            "midnight in a gap",
            "0 0 * * *",
            "America/Santiago",
            "2026-09-05T12:00Z",
            ["2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"],
        ),
        (
            "a gap of half an hour",
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T12:00Z",
            ["2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"],
        ),
    ] {
        assert_eq!(slots(&cron(expression, zone), after), expected, "{case}");
    }
}

/// The cron library itself would run a time before a gap again at its end.
#[test]
fn a_time_before_a_gap_runs_once() {
    let new_york = cron("30 1 * * *", "America/New_York");
    let expected = ["2026-03-08T06:30:00Z", "2026-03-09T05:30:00Z"];
    assert_eq!(slots(&new_york, "2026-03-08T05:00Z"), expected);
}

#[test]
fn each_of_several_times_of_day_runs_once() {
    let both = cron("0 2,14 * * *", "America/New_York");
    let spring = ["2026-03-08T07:00:00Z", "2026-03-08T18:00:00Z"];
    assert_eq!(slots(&both, "2026-03-08T05:00Z"), spring);
    let twice = cron("15,45 1 * * *", "America/New_York");
    let autumn = ["2026-11-01T05:15:00Z", "2026-11-01T05:45:00Z", "2026-11-02T06:15:00Z"];
    assert_eq!(slots(&twice, "2026-11-01T04:00Z"), autumn);
}

#[test]
fn other_expressions_follow_the_clock() {
    let new_york = |expression| cron(expression, "America/New_York");
    // The hour does not exist, so nothing is due on that day.
    assert_eq!(slots(&new_york("*/15 2 * * *"), "2026-03-08T05:00Z"), ["2026-03-09T06:00:00Z"]);
    // The hour comes twice, in order.
    let twice = slots(&new_york("*/30 1 * * *"), "2026-11-01T04:59Z");
    let clock = ["05:00", "05:30", "06:00", "06:30"];
    assert_eq!(twice, clock.map(|time| format!("2026-11-01T{time}:00Z")));
}

#[test]
fn one_of_day_of_month_and_weekday_has_to_match() {
    let days = slots(&cron("0 0 13 * 5", "UTC"), "2026-12-01T00:00Z");
    assert_eq!(days, ["04", "11", "13", "18"].map(|day| format!("2026-12-{day}T00:00:00Z")));
}

/// TRAPS F10: a fixed time was skipped in spring and ran twice in autumn.
#[test]
fn f10_both_changes_of_the_clock_are_survived_by_fixed_times_and_intervals() {
    let berlin = cron("30 2 * * *", "Europe/Berlin");
    let spring = ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"];
    assert_eq!(slots(&berlin, "2026-03-28T00:00Z"), spring);
    let autumn = ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"];
    assert_eq!(slots(&berlin, "2026-10-24T00:00Z"), autumn);
    let hourly = Timing::every(Duration::from_secs(3_600)).unwrap();
    let hours = slots(&hourly, "2026-10-25T00:30Z");
    assert_eq!(hours, ["01", "02", "03"].map(|hour| format!("2026-10-25T{hour}:00:00Z")));
}

/// TRAPS F13: gaps were right for western zones only.
#[test]
fn f13_gaps_and_folds_are_right_on_both_sides_of_the_world() {
    for (zone, after, expected) in [
        ("Australia/Sydney", "2026-10-03T12:00Z", ["2026-10-03T16:00:00Z", "2026-10-04T15:30:00Z"]),
        ("Australia/Sydney", "2026-04-04T12:00Z", ["2026-04-04T15:30:00Z", "2026-04-05T16:30:00Z"]),
        (
            "Africa/Casablanca",
            "2026-02-15T00:00Z",
            ["2026-02-15T01:30:00Z", "2026-02-16T02:30:00Z"],
        ),
        (
            "Africa/Casablanca",
            "2026-03-22T00:00Z",
            ["2026-03-22T02:00:00Z", "2026-03-23T01:30:00Z"],
        ),
        // The 30th of December 2011 did not exist in Samoa: a gap of a day.
        ("Pacific/Apia", "2011-12-29T20:00Z", ["2011-12-30T10:00:00Z", "2011-12-30T12:30:00Z"]),
    ] {
        assert_eq!(slots(&cron("30 2 * * *", zone), after), expected, "{zone} after {after}");
    }
}

/// TRAPS F14: the zone was ignored.
#[test]
fn f14_the_zone_of_a_schedule_decides_and_not_that_of_the_host() {
    for (zone, expected) in [
        ("Asia/Kolkata", "2026-11-16T03:30:00Z"),
        ("asia/kolkata", "2026-11-16T03:30:00Z"),
        ("America/Los_Angeles", "2026-11-16T17:00:00Z"),
        ("UTC", "2026-11-16T09:00:00Z"),
    ] {
        assert_eq!(slots(&cron("0 9 * * *", zone), "2026-11-16T00:00Z"), [expected], "{zone}");
    }
}

#[test]
fn nicknames_and_six_fields_are_understood() {
    for (expression, expected) in [
        ("@hourly", "2026-11-16T11:00:00Z"),
        ("@daily", "2026-11-17T00:00:00Z"),
        (" @Midnight ", "2026-11-17T00:00:00Z"),
        ("@weekly", "2026-11-22T00:00:00Z"),
        ("@monthly", "2026-12-01T00:00:00Z"),
        ("@yearly", "2027-01-01T00:00:00Z"),
        ("@annually", "2027-01-01T00:00:00Z"),
        ("*/20 * * * * *", "2026-11-16T10:44:40Z"),
        ("0 8 15W NOV-DEC *", "2026-12-15T08:00:00Z"),
        ("0 0 L * *", "2026-11-30T00:00:00Z"),
        ("0 9 * * MON#4", "2026-11-23T09:00:00Z"),
        ("0 9 * * FRI-SUN", "2026-11-20T09:00:00Z"),
    ] {
        assert_eq!(slots(&cron(expression, "UTC"), "2026-11-16T10:44:34.5Z"), [expected]);
    }
}

#[test]
fn an_interval_is_aligned_to_the_epoch() {
    let timing = Timing::every(Duration::from_millis(1_500)).unwrap();
    let expected = ["1970-01-01T00:00:01.500000Z", "1970-01-01T00:00:03Z"];
    assert_eq!(slots(&timing, "1970-01-01T00:00:00.000001Z"), expected);
    assert_eq!(timing.next_after(Timestamp::MAX), Ok(None));
    let shortest = Timing::every(Duration::from_secs(1)).unwrap();
    assert_eq!(slots(&shortest, "2026-11-16T10:44:34Z"), ["2026-11-16T10:44:35Z"]);
    for interval in [0, 999_999_999].map(Duration::from_nanos).into_iter().chain([Duration::MAX]) {
        let error = Timing::every(interval).unwrap_err().to_string();
        assert!(error.contains("choose 1 second"), "{error}");
    }
}

#[test]
fn the_end_of_time_is_no_slot() {
    let daily = cron("0 0 * * *", "Europe/Berlin");
    for after in [Timestamp::MAX, "9998-01-01T00:00Z".parse().unwrap()] {
        assert_eq!(daily.next_after(after), Ok(None), "{after}");
    }
}

/// Text that is almost an expression, put together from the parts of expressions.
#[test]
fn hostile_expressions_are_refused_or_advance() {
    const PARTS: [&str; 32] = [
        " ",
        " ",
        " ",
        " ",
        " ",
        "*",
        "*",
        "*",
        "/",
        "-",
        ",",
        "0",
        "1",
        "5",
        "7",
        "59",
        "60",
        "99999999999999999999",
        "L",
        "W",
        "#",
        "?",
        "+",
        "@daily",
        "MON",
        "-SUN",
        "JAN",
        "\0",
        "ß",
        "\u{202e}",
        "\n",
        "",
    ];
    let seed = 0x5eed;
    let mut random = fastrand::Rng::with_seed(seed);
    let utc = zone("UTC").unwrap();
    let after: Timestamp = "2026-11-16T10:44:34Z".parse().unwrap();
    let mut accepted = 0;
    for _ in 0..20_000 {
        let text: String = (0..random.usize(..16)).map(|_| PARTS[random.usize(..32)]).collect();
        let Ok(timing) = Timing::cron(&text, utc.clone()) else { continue };
        accepted += 1;
        let next = timing.next_after(after).unwrap_or_else(|it| panic!("{text:?}: {it}, {seed}"));
        assert!(next.is_none_or(|next| next > after), "{text:?}, seed {seed}");
    }
    assert!(accepted > 10, "only {accepted} of 20,000 were expressions");
}
