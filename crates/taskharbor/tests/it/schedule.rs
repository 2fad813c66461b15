//! Recurring jobs: what a worker fires, when, and how often.

mod overlap;
mod redefine;
mod simulation;
mod trap;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use taskharbor::{
    Context, Flow, Handlers, Job, JobResult, ManageError, Missed, Overlap, Schedule, Schedules,
    State, Timestamp, testing::Harbor,
};
use taskharbor_core::{admin::SlotTotals, error::Denied};

use crate::{
    faulty_store::{Fault, Op},
    rig::{DONE, SECOND, WorkerRig, handler, work},
};

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);

#[derive(Debug, PartialEq, Serialize, Deserialize, Job)]
#[job(type = "report:make", queue = "reports")]
struct MakeReport {
    kind: String,
}

fn report() -> MakeReport {
    MakeReport { kind: "daily".into() }
}

/// The slots for which the handler ran, in their order.
type Ran = Arc<Mutex<Vec<String>>>;

fn recording(ran: &Ran) -> Handlers {
    let ran = Arc::clone(ran);
    Handlers::new().on(move |_: MakeReport, cx: Context| {
        let slot = cx.slot().expect("a schedule made it");
        ran.lock().unwrap().push(slot.to_string());
        async { JobResult::Ok(()) }
    })
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_report_runs_every_weekday_at_nine_in_berlin_for_a_year() {
    let ran = Ran::default();
    let weekdays = Schedule::cron("report", "0 9 * * MON-FRI").zone("Europe/Berlin").job(report());
    let ours = Schedules::owned_by("reports").add(weekdays);
    let harbor = Harbor::configured(recording(&ran), |worker| worker.schedules(ours));
    harbor.advance(365 * DAY).await;
    let ran = ran.lock().unwrap().clone();
    // The year 2030 has 261 weekdays. It begins on a Tuesday.
    assert_eq!(ran.len(), 261);
    assert_eq!(ran[0], "2030-01-01T08:00:00.000000Z");
    // Berlin changes to summer time on 31 March and back on 27 October.
    let summer = ran.iter().filter(|slot| slot.ends_with("T07:00:00.000000Z")).count();
    assert_eq!(summer, 150);
    assert!(ran.is_sorted());
    let info = harbor.client().schedules().get("report").await.unwrap().unwrap();
    assert_eq!(info.record.totals, SlotTotals::new(261, 0, 0));
    assert_eq!(info.record.firings.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_schedule_is_fired_by_a_worker_that_does_not_know_its_job() {
    let rig = WorkerRig::new();
    let worker = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    let nightly = Schedule::cron("nightly", "0 3 * * *").raw("of another service", b"{}");
    rig.client.schedules().put(nightly).await.unwrap();
    rig.log.until("fired nightly@").await;
    let slot = rig.log.time_of("fired nightly@");
    assert_eq!(slot.as_micros() % 86_400_000_000, 3 * 3_600_000_000);
    worker.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_flow_is_made_for_each_slot() {
    let rig = WorkerRig::new();
    let flow = Flow::group([work("a"), work("b")]).discard().then(work("c"));
    let hourly = Schedule::every("hourly", HOUR).flow(flow);
    rig.client.schedules().put(hourly).await.unwrap();
    let worker = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    rig.log.until_count("fired hourly@", 2).await;
    rig.log.until_count("succeeded hourly@", 6).await;
    worker.shutdown().await.unwrap();
    let info = rig.client.schedules().get("hourly").await.unwrap().unwrap();
    assert!(info.details.unwrap().jobs >= 4);
    let tail = info.record.firings[0].job.id();
    assert_eq!(rig.state(tail).await, State::Done);
    rig.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_deploy_that_changes_nothing_neither_skips_nor_repeats_a_slot() {
    let rig = WorkerRig::new();
    let ours = |version| {
        let hourly = Schedule::every("hourly", HOUR).job(work("x"));
        Schedules::owned_by("billing").version(version).add(hourly)
    };
    for version in 0..20 {
        let builder = rig.worker(handler(|_, _| async { DONE })).schedules(ours(version));
        let worker = builder.build().unwrap().start();
        // Deploys fall between slots, on slots, and over several.
        tokio::time::sleep(Duration::from_secs(1_000 + version * 331)).await;
        worker.shutdown().await.unwrap();
    }
    let info = rig.client.schedules().get("hourly").await.unwrap().unwrap();
    let elapsed = rig.now().as_micros() / 3_600_000_000 - 2_000_000_000 / 3_600;
    let fired = info.record.totals.stored + info.record.totals.missed;
    // The last slots may wait for the next worker.
    assert!(fired.abs_diff(elapsed.unsigned_abs()) <= 1, "{fired} of {elapsed}");
    assert_eq!(rig.log.count("fired"), usize::try_from(info.record.totals.stored).unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_old_process_does_not_undo_a_deploy() {
    let rig = WorkerRig::new();
    let start = |version: u64, names: &[&str]| {
        let add = |all: Schedules, name: &&str| {
            all.add(Schedule::every(*name, HOUR).job(work(version.to_string())))
        };
        let ours = names.iter().fold(Schedules::owned_by("billing").version(version), add);
        rig.worker(handler(|_, _| async { DONE })).schedules(ours).build().unwrap().start()
    };
    let new = start(2, &["a", "c"]);
    tokio::time::sleep(SECOND).await;
    let old = start(1, &["a", "b"]);
    rig.log.until("denied billing: the owner has declared version 2 already").await;
    let names: Vec<_> = rig.client.schedules().list(None, 10).await.unwrap().items;
    let names: Vec<_> = names.iter().map(|info| info.record.name.as_str()).collect();
    assert_eq!(names, ["a", "c"]);
    for worker in [new, old] {
        worker.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_missed_is_caught_up_as_the_policy_says() {
    let policies = [
        ("latest", Missed::Latest, 1),
        ("skip", Missed::Skip, 0),
        ("all", Missed::All { at_most: 100 }, 24),
        ("three", Missed::All { at_most: 3 }, 3),
    ];
    let rig = WorkerRig::new();
    for (name, missed, _) in policies {
        let hourly = Schedule::every(name, HOUR).job(work(name)).overlap(Overlap::Allow);
        rig.client.schedules().put(hourly.missed(missed)).await.unwrap();
    }
    // No worker for three days; what is older than a day is not caught up.
    tokio::time::sleep(3 * DAY + HOUR / 2).await;
    let worker = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    rig.log.until_count("fired", 28).await;
    tokio::time::sleep(60 * SECOND).await;
    for (name, _, stored) in policies {
        let record = rig.client.schedules().get(name).await.unwrap().unwrap().record;
        assert_eq!(record.totals, SlotTotals::new(stored, 0, 73 - stored), "{name}");
    }
    worker.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_cannot_be_stored_is_recorded_and_does_not_stop_the_schedule() {
    let rig = WorkerRig::new();
    // Its members overlap with a job that is stored already.
    let flow = Flow::first(work("a")).discard().then(work("b"));
    rig.client.schedules().put(Schedule::every("s", HOUR).flow(flow)).await.unwrap();
    let slot = rig.client.schedules().upcoming("s", 1).await.unwrap()[0];
    let slot = slot.to_string().replace(".000000", "");
    let taken = taskharbor::JobId::new(format!("s@{slot}/1")).unwrap();
    rig.client.enqueue(work("in the way")).id(taken).delay(DAY).await.unwrap();
    let worker = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    rig.log.until("not fired s: job s@").await;
    let record = rig.client.schedules().get("s").await.unwrap().unwrap().record;
    assert_eq!(record.totals, SlotTotals::new(0, 0, 1));
    assert!(record.error.unwrap().as_str().contains("is stored already"));
    rig.log.until("fired s@").await;
    let record = rig.client.schedules().get("s").await.unwrap().unwrap().record;
    assert_eq!((record.totals, record.error), (SlotTotals::new(1, 0, 1), None));
    worker.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_delays_a_slot_and_loses_none() {
    let rig = WorkerRig::new();
    rig.client.schedules().put(Schedule::every("s", HOUR).job(work("x"))).await.unwrap();
    let worker = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    rig.log.until("fired s@").await;
    rig.store.down(&[Op::Due, Op::Fire]);
    tokio::time::sleep(HOUR + HOUR / 2).await;
    rig.store.up();
    let back = rig.now();
    rig.log.until_count("fired s@", 2).await;
    assert!(rig.now().since(back) < 10 * SECOND);
    // The next slot is on time again.
    rig.log.until_count("fired s@", 3).await;
    assert_eq!(rig.now().as_micros() % 3_600_000_000 / 1_000_000, 0);
    let record = rig.client.schedules().get("s").await.unwrap().unwrap().record;
    assert_eq!(record.totals, SlotTotals::new(3, 0, 0));
    worker.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_firing_whose_reply_is_lost_fires_once() {
    let rig = WorkerRig::new();
    rig.client.schedules().put(Schedule::every("s", HOUR).job(work("x"))).await.unwrap();
    rig.store.next(Op::Fire, [Fault::LoseReply, Fault::Refuse, Fault::LoseReply]);
    let worker = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    tokio::time::sleep(4 * HOUR).await;
    worker.shutdown().await.unwrap();
    let record = rig.client.schedules().get("s").await.unwrap().unwrap().record;
    assert_eq!(record.totals, SlotTotals::new(4, 0, 0));
    assert_eq!(rig.log.count("started s@"), 4);
}

#[tokio::test(start_paused = true)]
async fn pausing_stops_slots_and_resuming_catches_up_none() {
    let ran = Ran::default();
    let harbor = Harbor::new(recording(&ran));
    let schedules = harbor.client().schedules();
    schedules.put(Schedule::every("s", HOUR).job(report())).await.unwrap();
    harbor.advance(2 * HOUR).await;
    schedules.pause("s").await.unwrap();
    harbor.advance(10 * HOUR + HOUR / 2).await;
    assert_eq!(ran.lock().unwrap().len(), 2);
    schedules.resume("s").await.unwrap();
    harbor.advance(HOUR).await;
    let hours = ["01", "02", "13"].map(|hour| format!("2030-01-01T{hour}:00:00.000000Z"));
    assert_eq!(*ran.lock().unwrap(), hours);
    schedules.remove("s").await.unwrap();
    harbor.advance(DAY).await;
    assert_eq!(ran.lock().unwrap().len(), 3);
    let gone = schedules.pause("s").await;
    assert!(matches!(gone, Err(ManageError::Denied(Denied::ScheduleNotFound))), "{gone:?}");
}

#[tokio::test(start_paused = true)]
async fn a_schedule_can_be_run_now_and_backfilled() {
    let ran = Ran::default();
    let harbor = Harbor::new(recording(&ran));
    let schedules = harbor.client().schedules();
    schedules.put(Schedule::cron("s", "0 3 * * *").job(report())).await.unwrap();
    let now = schedules.run_now("s").await.unwrap();
    assert!(now.is_new() && now.id().as_str().starts_with("s@now:"), "{now:?}");
    harbor.run_until_idle().await;
    assert_eq!(*ran.lock().unwrap(), ["2030-01-01T00:00:00.000000Z"]);
    let (from, to) = (time("2029-12-01T00:00:00Z"), time("2029-12-08T00:00:00Z"));
    let slots = schedules.slots("s", from, to).await.unwrap();
    assert_eq!((slots.len(), slots[0]), (7, time("2029-12-01T03:00:00Z")));
    for (stored, existing) in [(7, 0), (0, 7)] {
        let done = schedules.backfill("s", from, to).await.unwrap();
        assert_eq!((done.stored, done.existing), (stored, existing));
    }
    harbor.run_until_idle().await;
    assert_eq!(ran.lock().unwrap().len(), 8);
    let century = schedules.slots("s", Timestamp::EPOCH, to).await.unwrap_err();
    assert!(century.to_string().contains("more than 10000 slots"), "{century}");
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_dynamic_schedules_fire_at_their_times() {
    let rig = WorkerRig::new();
    let daily = |user: usize| {
        let minute = user % 1_440;
        let expression = format!("{} {} * * *", minute % 60, minute / 60);
        Schedule::cron(format!("user-{user}"), expression).raw("digest", b"{}")
    };
    rig.client.schedules().put_many((0..100_000).map(daily)).await.unwrap();
    let worker = rig.worker(handler(|_, _| async { DONE })).build().unwrap().start();
    tokio::time::sleep(2 * HOUR).await;
    // Seventy are due each minute, and a few more than that in the first forty.
    let fired = rig.log.count("fired user-");
    assert!((120 * 69..=120 * 70).contains(&fired), "{fired}");
    assert_eq!(rig.log.count("not fired"), 0);
    worker.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn invalid_schedules_are_refused_with_their_field_and_nothing_is_stored() {
    let rig = WorkerRig::new();
    let ok = |name: &str| Schedule::every(name, HOUR).job(work("x"));
    for (schedule, field, words) in [
        (Schedule::cron("s", "61 * * * *").job(work("x")), "cron", "61 * * * *"),
        (Schedule::cron("s", "0 0 31 2 *").job(work("x")), "cron", "never"),
        (ok("s").zone("Europe/Berlin"), "zone", "interval"),
        (Schedule::cron("s", "@daily").zone("Mars/Base").job(work("x")), "zone", "Mars/Base"),
        (Schedule::every("s", Duration::ZERO).job(work("x")), "every", "1 second"),
        (
            ok("s").starts_at(time("2031-01-01T00:00:00Z")).ends_at(time("2030-01-01T00:00:00Z")),
            "ends_at",
            "later end",
        ),
        (Schedule::every("s", HOUR).raw("big", vec![0; 2 << 20]), "job", "2097152 bytes"),
        (ok("s").missed(Missed::All { at_most: 10_000 }), "missed", "1 to 1000"),
        (Schedule::every("s", HOUR), "job", "needs a job"),
        (ok(""), "name", "empty"),
    ] {
        let error = rig.client.schedules().put(schedule).await.unwrap_err();
        let ManageError::Schedule(invalid) = &error else { panic!("{error}") };
        assert_eq!(invalid.field, field, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let twice = Schedules::owned_by("billing").add(ok("a")).add(ok("a"));
    let error = rig.client.schedules().declare(twice).await.unwrap_err();
    assert!(error.to_string().contains("two schedules"), "{error}");
    let twice = Schedules::owned_by("billing").add(ok("a")).add(ok("a"));
    let builder = rig.worker(handler(|_, _| async { DONE })).schedules(twice);
    assert!(builder.build().unwrap_err().to_string().contains("two schedules"));
    let listed = rig.client.schedules().list(None, 10).await.unwrap();
    assert!(listed.items.is_empty(), "{listed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_schedule_of_another_owner_is_not_touched() {
    let rig = WorkerRig::new();
    let ok = |name: &str| Schedule::every(name, HOUR).job(work("x"));
    let schedules = rig.client.schedules();
    schedules.declare(Schedules::owned_by("mail").add(ok("m"))).await.unwrap();
    let denied = schedules.put(ok("m")).await.unwrap_err().to_string();
    assert_eq!(denied, "schedule m belongs to owner mail: choose another name");
    let worker = rig.worker(handler(|_, _| async { DONE }));
    let worker = worker.schedules(Schedules::owned_by("billing").add(ok("m")).add(ok("b")));
    let worker = worker.build().unwrap().start();
    rig.log.until("denied billing: schedule m belongs to owner mail").await;
    // The worker goes on, and fires what is there.
    rig.log.until("fired m@").await;
    assert!(schedules.get("b").await.unwrap().is_none());
    worker.shutdown().await.unwrap();
}
