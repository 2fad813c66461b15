//! Every expression in every zone from 2024 to 2030, against a matcher of its own.
//!
//! The matcher looks at each minute that a clock shows and asks whether its numbers are in the sets
//! that the expression names. The slots of an expression are found by walking from slot to slot, and
//! have to be exactly the minutes that match. Between slots it is asked at each minute near a change of
//! the clock, and at random elsewhere. Zones whose clocks agree share one walk.
//!
//! An expression that is due once or twice a day is walked over all years, and another one on the days
//! before and after every change of a clock. With `TASKHARBOR_CRON_EVERY_MINUTE` set to a zone or to
//! `all`, each is walked over all years, which takes seconds for a zone and minutes for all.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
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
const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;
const FROM: &str = "2024-01-01T00:00Z";
const TO: &str = "2031-01-01T00:00Z";
/// The day that [`Shown`] counts from, counted from the epoch: before the first that any clock shows.
const FIRST_DAY: i64 = 19_720;
const SEED: u64 = 0xc10c;

fn seconds_of(text: &str) -> i64 {
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

    /// When it is set forward or back.
    fn changes(&self) -> impl Iterator<Item = i64> {
        self.0[1..].iter().map(|(at, _)| *at)
    }

    /// What it shows at each minute from `from` to `to`.
    fn face(&self, from: i64, to: i64) -> Face {
        let is_whole = |it: &(i64, i64)| it.0 % MINUTE == 0 && it.1 % MINUTE == 0;
        assert!(self.0.iter().all(is_whole), "a clock is not set by whole minutes");
        let mut minutes = Vec::with_capacity(usize::try_from((to - from) / MINUTE).unwrap() + 1);
        let (mut segment, mut last) = (0, None);
        for at in (from..=to).step_by(60) {
            segment += usize::from(self.0.get(segment + 1).is_some_and(|(begin, _)| at >= *begin));
            let local = (at + self.0[segment].1) / MINUTE - FIRST_DAY * 1_440;
            let before = last.unwrap_or(local - 1);
            minutes.push(Shown::new(local, before));
            last = Some(local.max(before));
        }
        let skipped = |shown: &Shown| shown.gap().fold(0, |hours, shown| hours | 1 << shown.hour);
        let hours_of = |shown: &Shown| {
            let skipped = if shown.skipped > 0 { skipped(shown) } else { 0 };
            skipped | 1 << shown.hour
        };
        let hours_in = |some: &[Shown]| some.iter().fold(0, |hours, it| hours | hours_of(it));
        Face { from, hours: minutes.chunks(60).map(hours_in).collect(), minutes }
    }
}

/// What a clock shows at each minute from an instant on.
struct Face {
    from: i64,
    minutes: Vec<Shown>,
    /// For each sixty of these minutes: the hours that are shown or skipped in them, a bit for each.
    hours: Vec<u64>,
}

/// What a clock shows at one minute.
#[derive(Clone, Copy)]
struct Shown {
    /// Counted from [`FIRST_DAY`].
    day: u16,
    hour: u8,
    minute: u8,
    /// How many minutes before this one were not shown.
    skipped: u16,
    /// Whether it was shown before.
    is_repeated: bool,
}

impl Shown {
    /// The local minute `local`, where `before` was the latest one that was shown.
    fn new(local: i64, before: i64) -> Self {
        Self {
            day: u16::try_from(local / 1_440).unwrap(),
            hour: u8::try_from(local / 60 % 24).unwrap(),
            minute: u8::try_from(local % 60).unwrap(),
            skipped: u16::try_from((local - before - 1).max(0)).unwrap(),
            is_repeated: local <= before,
        }
    }

    /// The minutes before this one that were not shown.
    fn gap(self) -> impl Iterator<Item = Self> {
        let local = (i64::from(self.day) * 24 + i64::from(self.hour)) * 60 + i64::from(self.minute);
        (1..=i64::from(self.skipped)).map(move |back| Self::new(local - back, local - back - 1))
    }
}

/// An expression as sets of numbers, read without the parser that is tested. A bit stands for each
/// second, minute and hour.
struct Pattern {
    expression: &'static str,
    seconds: u64,
    minutes: u64,
    hours: u64,
    is_fixed: bool,
    /// Whether each day from [`FIRST_DAY`] on matches.
    days: Vec<bool>,
}

/// The fields of an expression that are about days.
struct Days {
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
    fn of(expression: &'static str) -> Self {
        let mut fields: Vec<&str> = expression.split(' ').collect();
        if fields.len() == 5 {
            fields.insert(0, "0");
        }
        let bits = |(field, max): (usize, i64)| -> u64 {
            Field::of(fields[field], 0, max).values.iter().map(|number| 1 << number).sum()
        };
        let [seconds, minutes, hours] = [(0, 59), (1, 59), (2, 23)].map(bits);
        let mut weekdays = Field::of(fields[5], 0, 6);
        if weekdays.values.remove(&7) {
            weekdays.values.insert(0);
        }
        let is_fixed = !fields[..3].concat().contains('*');
        let (days, months) = (Field::of(fields[3], 1, 31), Field::of(fields[4], 1, 12));
        let of_day = Days { days, months, weekdays };
        let end = seconds_of(TO) / DAY + 2;
        let days = (FIRST_DAY..=end).map(|day| of_day.contain(day)).collect();
        Self { expression, seconds, minutes, hours, is_fixed, days }
    }

    /// Whether it names at most two times of day.
    const fn is_sparse(&self) -> bool {
        self.seconds.count_ones() * self.minutes.count_ones() * self.hours.count_ones() <= 2
    }

    fn has(&self, shown: Shown) -> bool {
        self.minutes >> shown.minute & 1 == 1
            && self.hours >> shown.hour & 1 == 1
            && self.days[usize::from(shown.day)]
    }

    /// The seconds of a minute that are slots.
    fn slots_in(&self, shown: Shown) -> u64 {
        // A time of day that comes twice is due the first time.
        let is_due = self.has(shown) && !(self.is_fixed && shown.is_repeated);
        let seconds = if is_due { self.seconds } else { 0 };
        // One that is skipped is due when the clock goes on.
        let is_end_of_gap = shown.skipped > 0 && self.is_fixed;
        seconds | u64::from(is_end_of_gap && shown.gap().any(|shown| self.has(shown)))
    }

    /// All slots after `from` and up to `to`.
    fn slots(&self, face: &Face, (from, to): (i64, i64)) -> impl Iterator<Item = i64> {
        let index = |at: i64| usize::try_from((at - face.from) / MINUTE).unwrap();
        let sixties = index(from) / 60..=index(to) / 60;
        let sixties = sixties.filter(|sixty| face.hours[*sixty] & self.hours != 0);
        let due = sixties.flat_map(move |sixty| {
            let ats = (face.from + i64::try_from(sixty).unwrap() * HOUR..).step_by(60);
            let minutes = face.minutes[sixty * 60..].iter().take(60);
            ats.zip(minutes).map(|(at, shown)| (at, self.slots_in(*shown)))
        });
        let due = due.filter(|(_, seconds)| *seconds != 0).flat_map(|(at, mut seconds)| {
            iter::from_fn(move || {
                let second = (seconds != 0).then(|| seconds.trailing_zeros())?;
                seconds &= seconds - 1;
                Some(at + i64::from(second))
            })
        });
        due.filter(move |slot| (from + 1..=to).contains(slot))
    }
}

impl Days {
    /// Whether a day, counted from the epoch, matches.
    fn contain(&self, day: i64) -> bool {
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

/// Walks from slot to slot from `from` to `to`, and asks also at `instants`, which are in order. The
/// slots have to be these, and each answer the first of them after the instant; how often it asked.
fn ask(
    timing: &Timing,
    case: &str,
    (from, to): (i64, i64),
    slots: impl Iterator<Item = i64>,
    instants: &[i64],
) -> usize {
    let is_inside = |at: &i64| (from..=to).contains(at);
    let mut instants = instants.iter().copied().filter(is_inside).peekable();
    let (mut last, mut asked) = (from, 0);
    // No slot is left when the last one is found.
    for slot in slots.map(Some).chain([None]) {
        let others = iter::from_fn(|| instants.next_if(|at| slot.is_none_or(|slot| *at < slot)));
        for at in iter::once(last).chain(others) {
            let after = Timestamp::from_micros(at * MICROS_PER_SECOND).unwrap();
            let next = timing.next_after(after).unwrap_or_else(|it| panic!("{case}: {it}"));
            let next = next.map(|next| next.as_micros() / MICROS_PER_SECOND);
            match slot {
                Some(_) => assert_eq!(next, slot, "{case} after {after}"),
                None => assert!(next.is_none_or(|it| it > to), "{case} after {after}: {next:?}"),
            }
            asked += 1;
        }
        last = slot.unwrap_or(last);
    }
    asked
}

fn walk(name: &str, zone: &TimeZone, clock: &Clock, patterns: &[Pattern], is_full: bool) -> usize {
    let (from, to) = (seconds_of(FROM), seconds_of(TO));
    let face = clock.face(from, to);
    let mut random = fastrand::Rng::with_seed(SEED);
    let samples = if is_full { 1_000 } else { 50 };
    let mut instants: Vec<i64> = (0..samples).map(|_| random.i64(from..to)).collect();
    let changes: Vec<i64> = clock.changes().chain([from + 3 * DAY]).collect();
    for change in &changes {
        instants.extend((change - 2 * HOUR..=change + 2 * HOUR).step_by(60));
        instants.extend([change - 1, change + 1]);
    }
    instants.sort_unstable();
    let mut asked = 0;
    for pattern in patterns {
        let timing = Timing::cron(pattern.expression, zone.clone()).unwrap();
        let case = format!("{} in {name}, seed {SEED}", pattern.expression);
        let ranges = match is_full || pattern.is_sparse() {
            true => vec![(from, to)],
            false => {
                let around = |change: &i64| ((change - DAY).max(from), (change + DAY).min(to));
                changes.iter().map(around).filter(|(begin, end)| begin < end).collect()
            }
        };
        for range in ranges {
            let slots = pattern.slots(&face, range);
            asked += ask(&timing, &case, range, slots, &instants);
        }
    }
    asked
}

/// TRAPS F11: the slot after an instant in a repeated hour was that instant, in an endless loop.
#[test]
fn f11_slots_advance_and_agree_with_the_expression_in_all_zones() {
    let wanted = std::env::var("TASKHARBOR_CRON_EVERY_MINUTE").ok();
    let zone = wanted.as_deref().filter(|wanted| *wanted != "all");
    let range = (seconds_of("2023-12-31T00:00Z"), seconds_of("2031-01-10T00:00Z"));
    let clocks = clocks(range, zone);
    assert!(clocks.len() > 60 || zone.is_some() && clocks.len() == 1, "{} clocks", clocks.len());
    let patterns = EXPRESSIONS.map(Pattern::of);
    let (next, asked) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((name, zone, clock, _)) =
                    clocks.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let times = walk(name, zone, clock, &patterns, wanted.is_some());
                    asked.fetch_add(times, Ordering::Relaxed);
                }
            });
        }
    });
    let zones: usize = clocks.iter().map(|(.., zones)| zones).sum();
    println!("asked {asked:?} times for {zones} zones with {} clocks", clocks.len());
}
