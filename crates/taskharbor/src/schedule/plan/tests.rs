//! Which slots are fired, and with which jobs.

use taskharbor_core::{
    admin::Firing,
    driver::{Enqueued, Limits, SlotJobs},
    job::{KeyHold, SetKind},
    name::IdempotencyKey,
};

use super::*;
use crate::{
    Flow, Schedule,
    codec::Format,
    schedule::{template::text, timing::Timing},
};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn hourly() -> Schedule {
    Schedule::cron("hourly", "0 * * * *").raw("a:b", b"{}")
}

fn flow(members: usize) -> Flow<Vec<crate::Blob>> {
    Flow::group((0..members).map(|_| Flow::raw("a:b".to_owned(), b"{}".into())))
}

/// A record of this schedule, whose next slot is the first after `since`.
fn record(schedule: Schedule, since: &str) -> ScheduleRecord {
    let new = schedule.into_new(&Format::json(), &Limits::default(), at(since)).unwrap();
    ScheduleRecord::new(new, None, 7)
}

/// The plan with all slots counted that it leaves out, a few at a time.
fn complete(record: &ScheduleRecord, now: &str) -> Plan {
    let mut plan = plan(record, at(now)).unwrap();
    while !plan.count(3) {}
    plan
}

fn fire(record: &ScheduleRecord, now: &str) -> FireSchedule {
    let fire = complete(record, now).fire;
    assert_eq!((&fire.name, fire.revision), (&record.name, 7));
    taskharbor_core::driver::Fire::new(vec![fire.clone()], at(now)).check().unwrap();
    fire
}

/// The hours of the slots, those left out and the hour of the next slot, all of one day.
fn hours(fire: &FireSchedule) -> (Vec<String>, u64, Option<String>) {
    let hour = |at: Timestamp| text(at)[11..16].to_owned();
    (fire.slots.iter().map(|it| hour(it.at)).collect(), fire.missed, fire.next_slot.map(hour))
}

fn expected(slots: &[&str], missed: u64, next: &str) -> (Vec<String>, u64, Option<String>) {
    (slots.iter().map(|&it| it.to_owned()).collect(), missed, Some(next.to_owned()))
}

#[test]
fn a_new_schedule_does_not_fire_the_past() {
    let record = record(hourly(), "2026-11-16T10:00Z");
    assert_eq!(record.next_slot, Some(at("2026-11-16T11:00Z")));
    let early = fire(&record, "2026-11-16T10:59:59.999999Z");
    assert_eq!(hours(&early), expected(&[], 0, "11:00"));
    assert_eq!(hours(&fire(&record, "2026-11-16T11:00Z")), expected(&["11:00"], 0, "12:00"));
}

#[test]
fn slots_that_came_too_late_are_chosen_by_the_policy_and_the_rest_is_counted() {
    for (missed, slots, left_out) in [
        (Missed::Latest, &["15:00"][..], 4),
        (Missed::Skip, &[], 5),
        (Missed::All { at_most: 1 }, &["15:00"], 4),
        (Missed::All { at_most: 3 }, &["13:00", "14:00", "15:00"], 2),
        (Missed::All { at_most: 9 }, &["11:00", "12:00", "13:00", "14:00", "15:00"], 0),
    ] {
        let record = record(hourly().missed(missed), "2026-11-16T10:00Z");
        let fire = fire(&record, "2026-11-16T15:30Z");
        assert_eq!(hours(&fire), expected(slots, left_out, "16:00"), "{missed:?}");
    }
}

#[test]
fn slots_that_are_too_old_are_not_fired() {
    let all = |within| {
        let within = Duration::from_secs(within);
        record(hourly().missed(Missed::All { at_most: 9 }).within(within), "2026-11-16T10:00Z")
    };
    let fire_at = |within, now| hours(&fire(&all(within), now));
    let two = expected(&["13:00", "14:00"], 2, "15:00");
    assert_eq!(fire_at(3_600 + 1_800, "2026-11-16T14:30Z"), two);
    assert_eq!(fire_at(60, "2026-11-16T14:30Z"), expected(&[], 4, "15:00"));
    // By default a slot may be a day old.
    let daily = Schedule::cron("daily", "0 3 * * *").raw("a:b", b"{}");
    let daily = record(daily, "2026-11-16T00:00Z");
    assert_eq!(fire(&daily, "2026-11-17T02:59Z").slots.len(), 1);
}

#[test]
fn a_slot_is_on_time_for_a_minute() {
    let record = record(hourly().missed(Missed::Skip), "2026-11-16T10:00Z");
    let on_time = fire(&record, "2026-11-16T11:01:00Z");
    assert_eq!(hours(&on_time), expected(&["11:00"], 0, "12:00"));
    let late = fire(&record, "2026-11-16T11:01:00.000001Z");
    assert_eq!(hours(&late), expected(&[], 1, "12:00"));
}

#[test]
fn years_without_a_worker_are_planned_at_once() {
    let second = Schedule::every("s", Duration::from_secs(1)).raw("a:b", b"{}");
    let since_2020 = fire(&record(second, "2020-01-01T00:00Z"), "2026-01-01T00:00Z");
    assert_eq!((since_2020.slots.len(), since_2020.missed), (1, 2_192 * 86_400 - 1));
    let second = Schedule::cron("s", "* * * * * *").raw("a:b", b"{}");
    let since_2020 = fire(&record(second, "2020-01-01T00:00Z"), "2026-01-01T00:00Z");
    assert_eq!(since_2020.slots[0].at, at("2026-01-01T00:00Z"));
    assert_eq!(since_2020.missed, 100_000);
}

#[test]
fn a_queued_slot_waits_for_the_key_and_is_fired_alone() {
    let queue = hourly().overlap(Overlap::Queue);
    let latest = fire(&record(queue, "2026-11-16T10:00Z"), "2026-11-16T13:30Z");
    assert!(latest.waits_for_key);
    assert_eq!(hours(&latest), expected(&["13:00"], 2, "14:00"));
    let all = hourly().overlap(Overlap::Queue).missed(Missed::All { at_most: 2 });
    let oldest = fire(&record(all, "2026-11-16T10:00Z"), "2026-11-16T13:30Z");
    assert_eq!(hours(&oldest), expected(&["12:00"], 1, "13:00"));
}

#[test]
fn the_key_of_a_schedule_is_held_until_its_job_is_terminal() {
    for overlap in Overlap::ALL {
        let record = record(hourly().overlap(*overlap), "2026-11-16T10:00Z");
        let fire = fire(&record, "2026-11-16T11:00Z");
        let job = &fire.slots[0].set.jobs[0];
        let key = job.idempotency_key.as_ref().map(IdempotencyKey::as_str);
        let has_key = matches!(overlap, Overlap::Skip | Overlap::Queue);
        assert_eq!(key, has_key.then_some("th-schedule:hourly"), "{overlap:?}");
        assert_eq!(job.key_hold == KeyHold::UntilTerminal, has_key);
        assert_eq!(fire.waits_for_key, *overlap == Overlap::Queue);
    }
    let every = Schedule::every("e", Duration::from_secs(60)).raw("a:b", b"{}");
    let every = fire(&record(every, "2026-11-16T10:00Z"), "2026-11-16T10:01Z");
    assert!(every.slots[0].set.jobs[0].idempotency_key.is_some(), "intervals skip by default");
}

#[test]
fn replacing_cancels_the_previous_job_or_flow_and_fires_the_latest_slot() {
    let replace = || Schedule::cron("r", "0 * * * *").overlap(Overlap::Replace);
    let all = Missed::All { at_most: 9 };
    for (schedule, action) in [
        (replace().raw("a:b", b"{}").missed(all), Action::Cancel),
        (replace().flow(flow(2)).missed(all), Action::CancelFlow),
    ] {
        let mut record = record(schedule, "2026-11-16T10:00Z");
        assert_eq!(plan(&record, at("2026-11-16T11:00Z")).unwrap().replaces, None);
        let (slot, id) = (at("2026-11-16T10:00Z"), JobId::new("r@earlier").unwrap());
        record.firings.push(Firing::new(slot, slot, Enqueued::Inserted(id.clone())));
        let now = at("2026-11-16T13:00Z");
        let planned = complete(&record, "2026-11-16T13:00Z");
        assert_eq!(planned.replaces, Some((id, action)));
        assert_eq!(hours(&planned.fire), expected(&["13:00"], 2, "14:00"));
        let too_late = plan(&record, at("2026-12-16T12:59Z")).unwrap();
        assert_eq!(too_late.fire.slots.len(), 1, "the latest slot is an hour old");
        record.next_slot = Some(at("2027-01-01T00:00Z"));
        assert_eq!(plan(&record, now).unwrap().replaces, None, "it is not due");
    }
}

#[test]
fn an_ended_schedule_has_no_next_slot() {
    let ends = hourly().ends_at(at("2026-11-16T12:00Z")).missed(Missed::All { at_most: 9 });
    let fire = fire(&record(ends, "2026-11-16T10:00Z"), "2026-11-16T15:00Z");
    assert_eq!(hours(&fire), (vec!["11:00".to_owned(), "12:00".to_owned()], 0, None));
    assert_eq!(fire.error, None);
}

#[test]
fn large_firings_are_split_and_each_slot_is_fired_once() {
    let all = Missed::All { at_most: 20 };
    let large = Schedule::cron("large", "0 * * * *").flow(flow(1_999)).missed(all);
    let mut record = record(large, "2026-11-16T00:00Z");
    let (mut fired, mut firings) = (Vec::new(), 0);
    while record.is_due(at("2026-11-16T12:30Z")) {
        let fire = fire(&record, "2026-11-16T12:30Z");
        assert_eq!(fire.missed, 0);
        assert!(fire.slots.iter().map(|it| it.set.jobs.len()).sum::<usize>() <= MAX_JOBS);
        fired.extend(fire.slots.iter().map(|it| text(it.at)));
        record.next_slot = fire.next_slot;
        firings += 1;
    }
    let expected: Vec<_> = (1..=12).map(|hour| format!("2026-11-16T{hour:02}:00:00Z")).collect();
    assert_eq!((fired, firings), (expected, 3));
}

#[test]
fn a_definition_that_no_worker_can_use_sets_its_schedule_aside() {
    let mut record = record(hourly(), "2026-11-16T10:00Z");
    record.definition = b"{\"v\":1}".into();
    let fire = fire(&record, "2026-11-16T11:00Z");
    assert_eq!((fire.slots.len(), fire.next_slot), (0, None));
    let error = fire.error.unwrap();
    assert!(error.as_str().contains("define the schedule again"), "{error}");
}

/// The list of slots to fire ends, also for extreme time zones.
#[test]
fn a_slot_that_does_not_advance_is_an_error() {
    let record = record(hourly(), "2026-11-16T10:00Z");
    let mut definition = Definition::decode(&record.definition).unwrap();
    definition.calendar.timing = Timing::Every(-1);
    let error = firing(&definition, &record, at("2026-11-16T11:00Z")).unwrap_err();
    assert!(error.to_string().contains("is not later than"), "{error}");
}

#[test]
fn a_definition_for_a_newer_worker_is_left_to_it() {
    let mut record = record(hourly(), "2026-11-16T10:00Z");
    let definition = String::from_utf8(record.definition.to_vec()).unwrap();
    for (old, new) in [(r#""v":1"#, r#""v":2"#), ("UTC", "Mars/Olympus")] {
        record.definition = definition.replace(old, new).into_bytes().into();
        let error = plan(&record, at("2026-11-16T11:00Z")).unwrap_err().to_string();
        assert!(error.starts_with("cannot fire schedule \"hourly\""), "{error}");
        assert!(error.ends_with("update this worker"), "{error}");
    }
}

/// TRAPS F15: two schedules with one expression became one.
#[test]
fn f15_two_schedules_with_one_expression_both_fire() {
    let named = |name| Schedule::cron(name, "0 * * * *").raw("a:b", b"{}");
    let jobs = ["a", "b"].map(|name| {
        let fire = fire(&record(named(name), "2026-11-16T10:00Z"), "2026-11-16T11:00Z");
        fire.slots[0].set.jobs[0].id.clone()
    });
    assert_eq!(jobs.map(|id| id.to_string()), ["a@2026-11-16T11:00:00Z", "b@2026-11-16T11:00:00Z"]);
}

fn definition(schedule: Schedule) -> Definition {
    Definition::decode(&record(schedule, "2026-11-16T10:00Z").definition).unwrap()
}

#[test]
fn the_jobs_of_a_slot_have_its_ids_and_headers() {
    let name = "n".parse().unwrap();
    let slot = at("2026-11-16T11:00Z");
    let chord = Schedule::cron("n", "0 * * * *").flow(flow(2)).overlap(Overlap::Skip);
    let SlotJobs { set, at: of, .. } = definition(chord).slot(&name, slot).unwrap();
    let ids: Vec<_> = set.jobs.iter().map(|job| job.id.as_str()).collect();
    let id = "n@2026-11-16T11:00:00Z";
    assert_eq!((of, &ids[..]), (slot, &[&format!("{id}/1")[..], &format!("{id}/2"), id][..]));
    assert!(matches!(&set.kind, SetKind::Flow { name: Some(name) } if name.as_str() == "n"));
    let tail = set.jobs.last().unwrap();
    assert_eq!(tail.parents.iter().map(JobId::as_str).collect::<Vec<_>>(), ids[..2]);
    assert_eq!(tail.idempotency_key.as_ref().unwrap().as_str(), "th-schedule:n");
    for job in &set.jobs {
        let header = |name| job.headers.get(name);
        assert_eq!(header("th-schedule"), Some("n"));
        assert_eq!(header("th-slot"), Some("2026-11-16T11:00:00Z"));
        assert_eq!((header("th-codec"), job.run_at), (None, None));
    }
    let fraction = at("2026-11-16T11:00:00.25Z");
    let job = &definition(hourly()).slot(&name, fraction).unwrap().set.jobs[0];
    assert_eq!(job.id.as_str(), "n@2026-11-16T11:00:00.250000Z");
}

#[test]
fn a_backfilled_slot_has_the_ids_of_a_firing_and_no_key() {
    let (name, slot) = ("hourly".parse().unwrap(), at("2026-11-16T11:00Z"));
    let definition = definition(hourly().overlap(Overlap::Skip));
    let (fired, again) = (definition.slot(&name, slot), definition.backfill(&name, slot));
    let (fired, again) = (fired.unwrap().set, again.unwrap());
    assert_eq!(fired.jobs[0].id, again.jobs[0].id);
    assert_eq!(again.jobs[0].idempotency_key, None);
}

#[test]
fn a_run_by_hand_has_an_id_of_its_own_and_the_key() {
    let (name, now) = ("hourly".parse().unwrap(), at("2026-11-16T11:22:33Z"));
    let schedule = hourly().overlap(Overlap::Skip).jitter(Duration::from_secs(60));
    let definition = definition(schedule);
    let ids = [(); 2].map(|()| {
        let set = definition.run_now(&name, now).unwrap();
        assert_eq!(set.jobs[0].headers.get("th-slot"), Some("2026-11-16T11:22:33Z"));
        assert!(set.jobs[0].idempotency_key.is_some());
        assert_eq!(set.jobs[0].run_at, None, "no jitter");
        set.jobs[0].id.clone()
    });
    assert!(ids.iter().all(|id| id.as_str().starts_with("hourly@now:")), "{ids:?}");
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn jitter_is_the_same_on_every_worker_and_spreads_slots() {
    let jitter = Duration::from_secs(600);
    let definition = definition(hourly().jitter(jitter));
    let name = "hourly".parse().unwrap();
    let mut tenths = [0; 10];
    for n in 0..1_000 {
        let slot = at("2026-11-16T11:00Z").saturating_add(Duration::from_secs(n * 3_600));
        let set = definition.slot(&name, slot).unwrap().set;
        let delay = set.jobs[0].run_at.map_or(Duration::ZERO, |run_at| run_at.since(slot));
        assert!(delay < jitter, "{delay:?}");
        tenths[(delay.as_secs() / 60) as usize] += 1;
    }
    assert!(tenths.iter().all(|n| (60..140).contains(n)), "{tenths:?}");
    // Written down, because a worker of another version has to find the same.
    let first = definition.slot(&name, at("2026-11-16T11:00Z")).unwrap().set.jobs[0].run_at;
    assert_eq!(first.map(text).as_deref(), Some("2026-11-16T11:06:26.265503Z"));
}

#[test]
fn delays_count_from_the_slot() {
    let options = crate::Options::new().delay(Duration::from_secs(90));
    let definition = definition(hourly().options(options));
    let name = "hourly".parse().unwrap();
    let run_at = |set: &taskharbor_core::job::JobSet| set.jobs[0].run_at;
    let slot = definition.slot(&name, at("2026-11-16T11:00Z")).unwrap();
    assert_eq!(run_at(&slot.set), Some(at("2026-11-16T11:01:30Z")));
    let now = definition.run_now(&name, at("2026-11-16T11:10Z")).unwrap();
    assert_eq!(run_at(&now), Some(at("2026-11-16T11:11:30Z")));
}

#[test]
fn only_the_first_steps_of_a_flow_are_delayed_by_jitter() {
    let definition =
        definition(Schedule::cron("n", "0 * * * *").flow(flow(2)).jitter(Duration::from_secs(600)));
    let (name, slot) = ("n".parse().unwrap(), at("2026-11-16T11:00Z"));
    let delayed: Vec<_> = definition.slot(&name, slot).unwrap().set.jobs;
    let delayed: Vec<_> =
        delayed.iter().map(|job| job.run_at.is_some_and(|at| at > slot)).collect();
    assert_eq!(delayed, [true, true, false]);
}
