//! Schedules: racing firings, calls that change the same schedules in any order, and many at once.

use std::time::Duration;

use taskharbor_core::{
    Admin, Driver, DriverError, Timestamp,
    admin::{Change, Configure, Declaration, NewSchedule, ScheduleRecord},
    driver::{DueSchedules, Fire, FireSchedule, SlotJobs},
    error::FireRefused,
    job::{FailurePolicy, Headers, JobSet, KeyHold},
    name::{IdempotencyKey, OwnerName, ScheduleName},
};
use taskharbor_postgres::PostgresDriver;
use tokio::time::Instant;

use crate::{
    fixture::{after, configure, counts, flow, job, noon},
    harness::store::{Store, named},
};

/// As many as one call fires.
const BATCH: usize = 1_000;

fn schedule(name: impl AsRef<str>) -> NewSchedule {
    let definition = br#"{"every": "hour"}"#.as_slice();
    NewSchedule::new(ScheduleName::new(name).unwrap(), definition, Some(noon()))
}

/// Puts schedules that are due at noon.
async fn put(driver: &impl Admin, names: impl Iterator<Item = String>) {
    let changes: Vec<_> = names.map(|name| Change::PutSchedule(schedule(name))).collect();
    for batch in changes.chunks(BATCH) {
        let answers = driver.configure(Configure::new(batch.to_vec(), noon())).await.unwrap();
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    }
}

async fn due(driver: &impl Driver, now: Timestamp) -> Vec<ScheduleRecord> {
    driver.due_schedules(DueSchedules::new(BATCH, now)).await.unwrap().schedules
}

/// Fires the next slot of a schedule with this set; it is due again an hour later.
fn firing(record: &ScheduleRecord, set: JobSet) -> FireSchedule {
    let slot = record.next_slot.unwrap();
    let next = slot.saturating_add(Duration::from_secs(3_600));
    FireSchedule::new(record.name.clone(), record.revision, Some(next))
        .slots([SlotJobs::new(slot, set)])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_sixteen_racing_sessions_one_fires_each_schedule() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let on = named().await;
    put(&on, (0..BATCH).map(|number| format!("s{number}"))).await;
    let records = due(&on, noon()).await;
    assert_eq!(records.len(), BATCH);
    let mut sessions = Vec::new();
    for session in 0..16 {
        let (driver, mut records) = (on.another().await, records.clone());
        fastrand::Rng::with_seed(seed ^ session).shuffle(&mut records);
        sessions.push(tokio::spawn(async move {
            let job = |name| JobSet::plain(vec![job(format!("{session}-{name}"))]);
            let items = records.iter().map(|it| firing(it, job(&it.name))).collect();
            driver.fire(Fire::new(items, noon())).await.unwrap()
        }));
    }
    let mut fired = 0;
    for session in sessions {
        for answer in session.await.unwrap() {
            match answer {
                Ok(jobs) => fired += jobs.len(),
                Err(refused) => assert_eq!(refused, FireRefused::Changed),
            }
        }
    }
    assert_eq!(fired, BATCH);
    assert_eq!(counts(&on, noon()).await.unwrap()[0].states.ready, BATCH);
    assert_eq!(due(&on, noon()).await, []);
    assert_eq!(on.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_key_that_an_open_transaction_takes_holds_up_its_schedule_alone() {
    let on = named().await;
    put(&on, (0..20).map(|number| format!("s{number:02}"))).await;
    let mut sql = on.sql().await;
    let open = sql.transaction().await.unwrap();
    let enqueue = "SELECT th_enqueue('work', queue => 'q', idempotency_key => 'k07')";
    open.batch_execute(enqueue).await.unwrap();
    let fire = async || {
        let records = due(&on, noon()).await;
        let items = records.iter().map(|record| {
            let name = record.name.as_str();
            let key = IdempotencyKey::new(name.replace('s', "k")).unwrap();
            firing(record, JobSet::plain(vec![job(name).idempotency_key(key)]))
        });
        on.fire(Fire::new(items.collect(), noon())).await.unwrap()
    };
    let answers = fire().await;
    for (number, answer) in answers.iter().enumerate() {
        match number {
            7 => assert_eq!(*answer, Err(FireRefused::Changed)),
            _ => assert!(answer.is_ok(), "{number}: {answer:?}"),
        }
    }
    open.rollback().await.unwrap();
    assert!(matches!(&fire().await[..], [Ok(_)]));
    assert_eq!(on.check().await.unwrap(), []);
}

struct Caller {
    driver: PostgresDriver,
    random: fastrand::Rng,
    number: u64,
    calls: u64,
}

impl Caller {
    /// Some of the schedules, in any order.
    fn some(&mut self) -> Vec<NewSchedule> {
        let mut all: Vec<_> = (0..20).map(|number| schedule(format!("s{number}"))).collect();
        self.random.shuffle(&mut all);
        all.truncate(self.random.usize(1..20));
        for new in &mut all {
            new.definition = vec![self.random.u8(..3)].into();
        }
        all
    }

    async fn call(&mut self) -> Result<(), DriverError> {
        self.calls += 1;
        let some = self.some();
        let owner = OwnerName::new("owner").unwrap();
        let changes: Vec<Change> = match self.random.u8(..8) {
            0 => vec![Change::DeclareSchedules(Declaration::new(owner, None, some))],
            1 => some.into_iter().map(Change::PutSchedule).collect(),
            2 => some.into_iter().map(|new| Change::PauseSchedule(new.name)).collect(),
            3 => some.into_iter().map(|new| Change::RemoveSchedule(new.name)).collect(),
            _ => return self.fire().await,
        };
        self.driver.configure(Configure::new(changes, noon())).await.map(drop)
    }

    /// Single jobs and flows that take the same few keys.
    async fn fire(&mut self) -> Result<(), DriverError> {
        let mut records = due(&self.driver, after(Duration::from_secs(1 << 30))).await;
        self.random.shuffle(&mut records);
        let items = records.iter().map(|record| {
            let id = format!("{}-{}-{}", self.number, self.calls, record.name);
            let key = IdempotencyKey::new(format!("k{}", self.random.u8(..5))).unwrap();
            let hold = KeyHold::For(Duration::from_nanos(self.random.u64(1_000..9_000)));
            if self.random.u8(..5) == 0 {
                firing(record, JobSet::flow(flow(&id, FailurePolicy::Block)))
            } else {
                let job = job(&id).idempotency_key(key).key_hold(hold);
                firing(record, JobSet::plain(vec![job]))
            }
        });
        let items = items.collect();
        let now = after(Duration::from_micros(self.random.u64(..100)));
        let fire = Fire::new(items, now);
        self.driver.fire(fire).await.map(drop)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_change_and_fire_the_same_schedules_never_deadlock() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let on = named().await;
    put(&on, (0..20).map(|number| format!("s{number}"))).await;
    let mut callers = Vec::new();
    for number in 0..8 {
        let random = fastrand::Rng::with_seed(seed ^ number);
        let mut caller = Caller { driver: on.another().await, random, number, calls: 0 };
        callers.push(tokio::spawn(async move {
            for _ in 0..60 {
                caller.call().await.unwrap();
            }
        }));
    }
    for caller in callers {
        caller.await.unwrap();
    }
    assert_eq!(on.check().await.unwrap(), []);
}

async fn fire_all(driver: PostgresDriver) -> usize {
    let mut fired = 0;
    loop {
        let records = due(&driver, noon()).await;
        if records.is_empty() {
            return fired;
        }
        let key = |name| IdempotencyKey::new(format!("schedule-{name}")).unwrap();
        let items = records.iter().map(|record| {
            let id = format!("{}-{}", record.name, record.revision);
            firing(record, JobSet::plain(vec![job(id).idempotency_key(key(&record.name))]))
        });
        let answers = driver.fire(Fire::new(items.collect(), noon())).await.unwrap();
        fired += answers.iter().filter(|answer| answer.is_ok()).count();
    }
}

/// The bounds are far above what is measured on a busy machine, and far below what one statement for each schedule would
/// take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_schedules_are_put_and_fired_in_little_time() {
    const COUNT: usize = 10_000;
    let on = named().await;
    let start = Instant::now();
    put(&on, (0..COUNT).map(|number| format!("s{number:05}"))).await;
    let put_in = start.elapsed();
    let start = Instant::now();
    let mut workers = Vec::new();
    for _ in 0..4 {
        workers.push(tokio::spawn(fire_all(on.another().await)));
    }
    let mut fired = 0;
    for worker in workers {
        fired += worker.await.unwrap();
    }
    let fired_in = start.elapsed();
    eprintln!("{COUNT} schedules: put in {put_in:?}, fired by four in {fired_in:?}");
    assert_eq!(fired, COUNT);
    assert!(put_in < Duration::from_secs(20) && fired_in < Duration::from_secs(30));
    assert_eq!(on.check().await.unwrap(), []);
}

#[tokio::test]
async fn the_views_show_schedules_and_which_jobs_are_theirs() {
    let on: Store = named().await;
    put(&on, ["report".to_owned()].into_iter()).await;
    let records = due(&on, noon()).await;
    let headers = Headers::new().with_any("th-schedule", "report").unwrap();
    let headers = headers.with_any("th-slot", "2026-11-15T12:00:00Z").unwrap();
    let set = JobSet::plain(vec![job("r1").headers(headers)]);
    on.fire(Fire::new(vec![firing(&records[0], set)], noon())).await.unwrap();
    let name = ScheduleName::new("bytes").unwrap();
    let bytes = NewSchedule::new(name, [0xff].as_slice(), None);
    configure(&on, Change::PutSchedule(bytes), noon()).await.unwrap();
    let sql = on.sql().await;
    let job = sql.query_one("SELECT schedule, slot FROM th_jobs WHERE id = 'r1'", &[]).await;
    let job = job.unwrap();
    assert_eq!((job.get(0), job.get(1)), ("report", "2026-11-15T12:00:00Z"));
    let rows = "SELECT name, status, definition_json->>'every', firings->0->>'job', stored
        FROM th_schedules ORDER BY name";
    let rows = sql.query(rows, &[]).await.unwrap();
    let row = |at: usize| -> (&str, &str, Option<&str>, Option<&str>, i64) {
        let row = &rows[at];
        (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4))
    };
    assert_eq!(row(0), ("bytes", "ended", None, None, 0));
    // Its next slot is the time of the tests, which may have passed.
    let (name, _, every, first, stored) = row(1);
    assert_eq!((name, every, first, stored), ("report", Some("hour"), Some("r1"), 1));
}
