//! Every expression in every zone from 2024 to 2030, against a matcher of its own.
//!
//! Zones whose clocks agree share one walk. An expression that is due once or twice a day is walked
//! from slot to slot over all years, and another one on the days before and after every change of a
//! clock. For two hours before and after a change, each expression is asked at each minute. With
//! `TASKHARBOR_CRON_EVERY_MINUTE` set to a zone or to `all`, it is asked at each minute of the
//! seven years, which takes minutes for a zone and hours for all.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicUsize, Ordering},
};

use super::*;

const EXPRESSIONS: [&str; 44] = [
    "0 0 * * *",
    "30 2 * * *",
    "0 2 * * *",
    "15 2 * * *",
    "30 1 * * *",
    "0 1 * * *",
    "45 23 * * *",
    "59 23 31 12 *",
    "0 0 1 * *",
    "0 0 1 1 *",
    "0 12 29 2 *",
    "0 3 * * 0",
    "0 3 * * 7",
    "30 2 * * 0",
    "0 9 * * 1-5",
    "0 0 13 * 5",
    "0 0 L * *",
    "0 4 * * 5L",
    "0 4 * * 1#1",
    "0 0 */2 * *",
    "0 0 */2 * 1",
    "30 2 15 3,10 *",
    "0 0 31 * *",
    "5 1 * 3-4 0",
    "0 6,18 * * *",
    "0 2,14 * * *",
    "15,45 1 * * *",
    "30 30 2 * * *",
    "59 59 23 * * *",
    "0 0 0 * * *",
    "* * * * *",
    "*/5 * * * *",
    "*/15 2 * * *",
    "*/30 1 * * *",
    "0 * * * *",
    "30 * * * *",
    "7-59/13 * * * *",
    "*/10 9-17 * * 1-5",
    "0 */3 * * *",
    "* 1-3 * * *",
    "*/20 * * * * *",
    "15 */7 * * * *",
    "0 0-5,22 * * *",
    "59 * * * *",
];

const MINUTE: i64 = 60;
const DAY: i64 = 86_400;

fn seconds(text: &str) -> i64 {
    text.parse::<Timestamp>().unwrap().as_micros() / MICROS_PER_SECOND
}

/// The offsets of a zone, each from an instant on. The first begins long before the range.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Clock(Vec<(i64, i64)>);

impl Clock {
    fn of(zone: &TimeZone, range: (i64, i64)) -> Self {
        let at = |second| jiff::Timestamp::from_second(second).unwrap();
        let mut offsets = vec![(range.0, i64::from(zone.to_offset(at(range.0)).seconds()))];
        for change in zone.following(at(range.0)) {
            let (second, offset) = (change.timestamp().as_second(), change.offset().seconds());
            if second > range.1 {
                break;
            }
            if offsets.last().is_some_and(|(_, last)| *last != i64::from(offset)) {
                offsets.push((second, i64::from(offset)));
            }
        }
        Self(offsets)
    }

    /// Each change: when, the offset before and the offset after.
    fn changes(&self) -> impl Iterator<Item = (i64, i64, i64)> {
        self.0.windows(2).map(|pair| (pair[1].0, pair[0].1, pair[1].1))
    }
}

/// An expression as sets of numbers, read without the parser that is tested.
struct Pattern {
    /// The seconds of a day that match.
    times: Vec<i64>,
    is_fixed: bool,
    days: Field,
    months: Field,
    weekdays: Field,
}

#[derive(Default)]
struct Field {
    is_star: bool,
    values: BTreeSet<i64>,
    has_last: bool,
    last: BTreeSet<i64>,
    nth: BTreeSet<(i64, i64)>,
}

impl Field {
    fn of(text: &str, min: i64, max: i64) -> Self {
        let mut field = Self { is_star: text == "*", ..Self::default() };
        let number = |text: &str| text.parse::<i64>().unwrap();
        for part in text.split(',') {
            let (range, step) = part.split_once('/').map_or((part, 1), |it| (it.0, number(it.1)));
            let (first, last) = match range.split_once('-') {
                _ if range == "*" => (min, max),
                Some((first, last)) => (number(first), number(last)),
                None if range == "L" => {
                    field.has_last = true;
                    continue;
                }
                None if range.ends_with('L') => {
                    field.last.insert(number(range.trim_end_matches('L')));
                    continue;
                }
                None => match range.split_once('#') {
                    Some((weekday, nth)) => {
                        field.nth.insert((number(weekday), number(nth)));
                        continue;
                    }
                    None => (number(range), number(range)),
                },
            };
            let step = usize::try_from(step).unwrap();
            field.values.extend((first..=last).step_by(step));
        }
        field
    }
}

impl Pattern {
    fn of(expression: &str) -> Self {
        let mut fields: Vec<&str> = expression.split(' ').collect();
        if fields.len() == 5 {
            fields.insert(0, "0");
        }
        let clock = [(0, 59), (1, 59), (2, 23)].map(|(n, max)| Field::of(fields[n], 0, max).values);
        let [second, minute, hour] = &clock;
        let mut times = Vec::new();
        for h in hour {
            for m in minute {
                times.extend(second.iter().map(|s| h * 3_600 + m * MINUTE + s));
            }
        }
        let mut weekdays = Field::of(fields[5], 0, 6);
        if weekdays.values.remove(&7) {
            weekdays.values.insert(0);
        }
        Self {
            times,
            is_fixed: !fields[..3].concat().contains('*'),
            days: Field::of(fields[3], 1, 31),
            months: Field::of(fields[4], 1, 12),
            weekdays,
        }
    }

    /// Whether a day, counted from the epoch, matches.
    fn has_day(&self, day: i64) -> bool {
        let (year, month, date) = civil(day);
        let weekday = (day + 4).rem_euclid(7);
        let length = (28..=31).rev().find(|n| civil(day - date + n).1 == month).unwrap();
        debug_assert_eq!(civil(day - date + 1), (year, month, 1));
        let is_day = self.days.values.contains(&date) || self.days.has_last && date == length;
        let is_weekday = self.weekdays.values.contains(&weekday)
            || self.weekdays.last.contains(&weekday) && date + 7 > length
            || self.weekdays.nth.contains(&(weekday, (date - 1) / 7 + 1));
        let matches = match (self.days.is_star, self.weekdays.is_star) {
            (true, _) => is_weekday,
            (false, true) => is_day,
            (false, false) => is_day || is_weekday,
        };
        matches && self.months.values.contains(&month)
    }

    /// All slots after `from` and up to `to`.
    fn slots(&self, clock: &Clock, from: i64, to: i64) -> Vec<i64> {
        let mut slots = Vec::new();
        let ends = clock.0[1..].iter().map(|(at, _)| *at).chain([i64::MAX]);
        let mut previous_offset = None;
        for (&(begin, offset), end) in clock.0.iter().zip(ends) {
            // A time of day that comes twice is due the first time.
            let repeated = previous_offset.map_or(0, |previous: i64| previous - offset).max(0);
            let begin_of_new = if self.is_fixed { begin + repeated } else { begin };
            let (low, high) = (begin_of_new.max(from + 1), end.min(to + 1));
            for day in (low + offset).div_euclid(DAY)..=(high + offset).div_euclid(DAY) {
                if low < high && self.has_day(day) {
                    let instants = self.times.iter().map(|time| day * DAY + time - offset);
                    slots.extend(instants.filter(|at| (low..high).contains(at)));
                }
            }
            previous_offset = Some(offset);
        }
        let ends = clock.changes().filter(|change| self.is_fixed && self.is_due_at_end_of(*change));
        slots.extend(ends.map(|(at, ..)| at).filter(|at| (from + 1..=to).contains(at)));
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Whether a time lies in the gap of this change.
    fn is_due_at_end_of(&self, (at, before, after): (i64, i64, i64)) -> bool {
        let gap = at + before..at + after;
        let days = gap.start.div_euclid(DAY)..=gap.end.div_euclid(DAY);
        let is_skipped = |day: i64| {
            self.has_day(day) && self.times.iter().any(|time| gap.contains(&(day * DAY + time)))
        };
        days.into_iter().any(is_skipped)
    }
}

/// Year, month and day of a day counted from the epoch, by counting.
fn civil(day: i64) -> (i64, i64, i64) {
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    // 2023-01-01, before all days that are asked for.
    let (mut year, mut left) = (2023, day - 19_358);
    while left >= 365 + i64::from(is_leap(year)) {
        left -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + i64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

/// One zone for each way in which clocks run in the range, with how many zones it stands for.
fn clocks(range: (i64, i64), wanted: Option<&str>) -> Vec<(String, TimeZone, Clock, usize)> {
    let mut found: BTreeMap<Clock, Vec<String>> = BTreeMap::new();
    for name in zones().available().map(|name| name.to_string()) {
        if wanted.is_none_or(|wanted| wanted == name) {
            found.entry(Clock::of(&zone(&name).unwrap(), range)).or_default().push(name);
        }
    }
    let first = |(clock, names): (Clock, Vec<String>)| {
        (names[0].clone(), zone(&names[0]).unwrap(), clock, names.len())
    };
    found.into_iter().map(first).collect()
}

/// Asks at each instant, and compares with the first of `slots` after it.
fn ask(timing: &Timing, slots: &[i64], instants: impl Iterator<Item = i64>, case: &str) -> usize {
    let (mut at, mut asked) = (0, 0);
    for instant in instants {
        at += slots[at..].iter().take_while(|slot| **slot <= instant).count();
        let after = Timestamp::from_micros(instant * MICROS_PER_SECOND).unwrap();
        let next = timing.next_after(after).unwrap_or_else(|it| panic!("{case}: {it}"));
        // The last slots of the list are followed by others that are not in it.
        if let Some(slot) = slots.get(at) {
            let next = next.map(|next| next.as_micros() / MICROS_PER_SECOND);
            assert_eq!(next, Some(*slot), "{case} after {after}");
        }
        asked += 1;
    }
    asked
}

fn walk(name: &str, zone: &TimeZone, clock: &Clock, every_minute: bool) -> usize {
    let (from, to) = (seconds("2024-01-01T00:00Z"), seconds("2031-01-01T00:00Z"));
    let around: Vec<i64> = clock.changes().map(|(at, ..)| at).chain([from + 3 * DAY]).collect();
    let mut asked = 0;
    for expression in EXPRESSIONS {
        let timing = Timing::cron(expression, zone.clone()).unwrap();
        let (pattern, case) = (Pattern::of(expression), format!("{expression} in {name}"));
        if every_minute {
            let slots = pattern.slots(clock, from, to);
            asked += ask(&timing, &slots, (from..to).step_by(60), &case);
            asked += ask(&timing, &slots, slots.iter().copied(), &case);
            continue;
        }
        let is_sparse = pattern.times.len() <= 2;
        let all = if is_sparse { pattern.slots(clock, from, to) } else { Vec::new() };
        asked += ask(&timing, &all, [from].into_iter().chain(all.iter().copied()), &case);
        for &change in &around {
            let near = match is_sparse {
                true => Vec::new(),
                false => pattern.slots(clock, change - DAY, change + 4 * DAY),
            };
            let days = near.iter().copied().take_while(|slot| *slot < change + DAY);
            asked += ask(&timing, &near, days, &case);
            let slots = if is_sparse { &all } else { &near };
            let minutes = (change - 2 * 3_600..=change + 2 * 3_600).step_by(60);
            asked += ask(&timing, slots, minutes, &case);
        }
    }
    asked
}

/// TRAPS F11: the slot after an instant in a repeated hour was that instant, in an endless loop.
#[test]
fn f11_slots_advance_and_agree_with_the_expression_in_all_zones() {
    let wanted = std::env::var("TASKHARBOR_CRON_EVERY_MINUTE").ok();
    let zone = wanted.as_deref().filter(|wanted| *wanted != "all");
    let range = (seconds("2023-12-31T00:00Z"), seconds("2031-01-10T00:00Z"));
    let clocks = clocks(range, zone);
    assert!(clocks.len() > 60 || zone.is_some() && clocks.len() == 1, "{} clocks", clocks.len());
    let (next, asked) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((name, zone, clock, _)) =
                    clocks.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    asked.fetch_add(walk(name, zone, clock, wanted.is_some()), Ordering::Relaxed);
                }
            });
        }
    });
    let zones: usize = clocks.iter().map(|(.., zones)| zones).sum();
    println!("asked {asked:?} times for {zones} zones with {} clocks", clocks.len());
}
