//! `doctor`: is all well.

use std::time::Duration;

use serde_json::Value;
use taskharbor::{Admin, AnyDriver, Driver, JobType, QueueName, Timestamp};
use taskharbor_core::{
    Blob, JobId, NewJob, Text,
    admin::{Change, Configure, NewSchedule, QueueLimits},
    driver::{
        Announce, Demand, Enqueue, Incarnation, Leased, Reserve, Settle, Settlement, Transition,
    },
    job::FailedAttempt,
    name::{Holder, LaneName, ScheduleName},
};

use super::{
    Answer, answer, program, until,
    worker::heard,
    workers::{free_port, workers},
};
use crate::store::Store;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// A store, and what is done to it.
struct Ward {
    store: Store,
    driver: AnyDriver,
    now: Timestamp,
}

impl Ward {
    async fn new() -> Self {
        let store = Store::new();
        let driver = store.open().await;
        let now = driver.now().await.unwrap();
        Self { store, driver, now }
    }

    fn ago(&self, time: Duration) -> Timestamp {
        self.now.saturating_sub(time)
    }

    async fn configure(&self, change: Change, now: Timestamp) {
        let answers = self.driver.configure(Configure::new(vec![change], now)).await.unwrap();
        assert_eq!(answers, [Ok(())]);
    }

    async fn enqueue(&self, jobs: Vec<NewJob>, now: Timestamp) {
        let sets = jobs.into_iter().map(Into::into).collect();
        self.driver.enqueue(Enqueue::new(sets, now)).await.unwrap();
    }

    async fn take(&self, queue: &str, count: usize, now: Timestamp) -> Vec<Leased> {
        let demands = vec![Demand::new(name(queue), count)];
        let holder = Holder::new("w").unwrap();
        self.driver.reserve(Reserve::new(demands, holder, now, DAY * 30)).await.unwrap().jobs
    }

    async fn dead_letter(&self, leased: &Leased, reason: &str, now: Timestamp) {
        let reason = Text::new(reason);
        let failure = FailedAttempt::new(1, reason.clone(), now);
        let fail = Transition::Fail { failure, reason };
        let settlement = Settlement::new(leased.job.id.clone(), leased.lease.token, fail);
        let settled = self.driver.settle(Settle::new(vec![settlement], now)).await.unwrap();
        assert!(settled[0].is_ok(), "{settled:?}");
    }

    async fn announce(&self, holder: &str, incarnation: u64, info: &str, now: Timestamp) {
        let info = Blob::from(info.as_bytes());
        let (holder, incarnation) =
            (Holder::new(holder).unwrap(), Incarnation::from_bits(incarnation));
        let valid_for = if now == self.now { HOUR } else { 30 * SECOND };
        let announced = Announce::new(holder, incarnation, info, valid_for, now);
        self.driver.announce(announced).await.unwrap();
    }

    fn doctor(&self) -> (Answer, Vec<Value>) {
        let answer = self.store.run(&["doctor", "--json"]);
        let lines = lines(&answer);
        (answer, lines)
    }

    /// The level of the line that has been found with these words.
    #[track_caller]
    fn assert_line(&self, what: &str, level: &str, words: &str) {
        let (_, lines) = self.doctor();
        let line = lines
            .iter()
            .find(|line| line["what"] == what && line["found"].as_str().unwrap().contains(words));
        let line = line.unwrap_or_else(|| panic!("no line {what}, {words}: {lines:#?}"));
        assert_eq!(line["level"], level, "{line}");
        assert_eq!(line["advice"].is_string(), level != "fine", "{line}");
    }
}

fn lines(answer: &Answer) -> Vec<Value> {
    answer.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn name(queue: &str) -> QueueName {
    QueueName::new(queue).unwrap()
}

fn job(queue: &str, id: &str, job_type: &str) -> NewJob {
    let job_type = JobType::new(job_type).unwrap();
    NewJob::new(JobId::new(id).unwrap(), name(queue), job_type, b"1".as_slice())
}

#[test]
fn a_store_that_is_well_has_a_line_for_each_check() {
    let store = Store::new();
    let well = store.run(&["doctor"]);
    // The server of the tests may be one that is not durable.
    let is_durable = !well.out.contains("fsync off");
    assert_eq!(well.code, Some(if is_durable { 0 } else { 4 }), "{well:?}");
    for check in [
        "store",
        "clock",
        "durability",
        "wake-ups",
        "workers",
        "leases",
        "queues",
        "types",
        "schedules",
        "limits",
        "crashes",
        "DLQ",
    ] {
        assert!(well.out.contains(check), "{check}: {well:?}");
    }
}

#[test]
fn a_store_that_cannot_be_reached_is_one_line_and_the_exit_code() {
    let store = Store::new();
    let (closed, missing) = (free_port(), store.dir().join("missing.db"));
    for (url, words) in [
        (format!("postgres://127.0.0.1:{closed}/none"), "cannot connect"),
        (format!("http://127.0.0.1:{closed}"), "cannot connect"),
        (format!("sqlite:{}", missing.display()), "there is no store at"),
    ] {
        let said = answer(program().args(["doctor", "--json", "--url", &url]));
        assert_eq!(said.code, Some(4), "{said:?}");
        let lines = lines(&said);
        assert_eq!(lines.len(), 1, "{said:?}");
        assert_eq!((&lines[0]["what"], &lines[0]["level"]), (&"store".into(), &"problem".into()));
        assert!(lines[0]["found"].as_str().unwrap().contains(words), "{said:?}");
        assert!(lines[0]["advice"].is_string(), "{said:?}");
        let shown = answer(program().args(["doctor", "--url", &url]));
        assert_eq!(shown.code, Some(4), "{shown:?}");
        assert!(shown.out.contains("PROBLEM") && shown.out.contains("->"), "{shown:?}");
    }
    let wrong = answer(program().args(["doctor", "--url", "jobs.db"]));
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
}

#[tokio::test]
async fn work_that_nothing_runs_is_found() {
    let ward = Ward::new().await;
    ward.enqueue(vec![job("mial", "a", "echo")], ward.now).await;
    // Others of a known type are newer.
    ward.enqueue(vec![job("other", "b", "nothing:knows")], ward.now).await;
    ward.configure(Change::PauseQueue(name("other")), ward.now).await;
    let newer = (0..600).map(|n| job("other", &format!("newer-{n}"), "echo"));
    ward.enqueue(newer.collect(), ward.now).await;
    ward.assert_line("workers", "problem", "none has announced itself; 602 jobs ready");
    let (mut worker, _said) = heard(&ward.store, &["--builtin", "--queue", "other"]);
    until("the announcement", || !workers(&ward.store).is_empty());
    let (said, _) = ward.doctor();
    assert_eq!(said.code, Some(4), "{said:?}");
    ward.assert_line("unserved queue", "problem", "queue mial has 1 ready jobs, and no worker");
    let unhandled = "no worker of queue other has a handler for nothing:knows";
    ward.assert_line("unhandled type", "problem", unhandled);
    let why = ward.store.ok(&["why", "a"]);
    assert!(why.contains("no worker serves queue mial: 1 worker serves other"), "{why}");
    worker.kill().unwrap();
    worker.wait().unwrap();
}

#[tokio::test]
async fn a_handler_in_another_queue_is_none() {
    let ward = Ward::new().await;
    let info = |queue: &str, job_type: &str| {
        format!(r#"{{"queues":[{{"name":"{queue}"}}],"types":["{job_type}"]}}"#)
    };
    ward.announce("a", 1, &info("mail", "send"), ward.now).await;
    ward.announce("b", 2, &info("other", "work"), ward.now).await;
    ward.enqueue(vec![job("mail", "1", "send")], ward.now).await;
    ward.assert_line("types", "fine", "workers have handlers for 1 ready job");
    ward.enqueue(vec![job("mail", "2", "work")], ward.now).await;
    ward.assert_line("unhandled type", "problem", "no worker of queue mail has a handler for work");
}

#[tokio::test]
async fn a_queue_that_was_forgotten_and_a_late_schedule_are_found() {
    let ward = Ward::new().await;
    ward.configure(Change::PauseQueue(name("young")), ward.ago(HOUR)).await;
    ward.assert_line("queues", "fine", "none forgotten");
    ward.configure(Change::PauseQueue(name("old")), ward.ago(DAY + HOUR)).await;
    ward.assert_line("paused queue", "warning", "queue old has been paused for 1d 1h");
    let (_, lines) = ward.doctor();
    assert!(!lines.iter().any(|line| line["found"].as_str().unwrap().contains("queue young")));

    let schedule = ScheduleName::new("nightly").unwrap();
    let new = |slot| NewSchedule::new(schedule.clone(), b"{}".as_slice(), Some(slot));
    ward.configure(Change::PutSchedule(new(ward.ago(SECOND))), ward.ago(HOUR)).await;
    ward.assert_line("schedules", "fine", "none is late");
    ward.configure(Change::RemoveSchedule(schedule.clone()), ward.now).await;
    ward.configure(Change::PutSchedule(new(ward.ago(HOUR))), ward.ago(HOUR)).await;
    ward.assert_line("schedules", "problem", "1 schedule late, nightly the most, by 1h 0m");
}

#[tokio::test]
async fn a_full_lane_is_reported_with_how_long_its_jobs_wait() {
    let ward = Ward::new().await;
    let mut limits = QueueLimits::new();
    limits.per_lane = Some(1);
    let set = Change::SetLimits { queue: name("mail"), limits: Some(limits) };
    ward.configure(set, ward.ago(3 * HOUR)).await;
    let in_lane = |id: &str| job("mail", id, "send").lane(LaneName::new("ada").unwrap());
    ward.enqueue(vec![in_lane("1"), in_lane("2")], ward.ago(HOUR / 2)).await;
    assert_eq!(ward.take("mail", 2, ward.ago(HOUR / 2)).await.len(), 1);
    ward.assert_line(
        "limits",
        "fine",
        "queue mail: 1 ready job held back in 1 lane; most in lane ada",
    );
    let old = job("mail", "0", "send").lane(LaneName::new("eve").unwrap());
    let next = job("mail", "3", "send").lane(LaneName::new("eve").unwrap());
    let more = job("mail", "4", "send").lane(LaneName::new("eve").unwrap());
    ward.enqueue(vec![old, next, more], ward.ago(2 * HOUR)).await;
    assert_eq!(ward.take("mail", 2, ward.ago(2 * HOUR)).await.len(), 1);
    ward.assert_line(
        "limits",
        "warning",
        "3 ready jobs held back in 2 lanes; most in lane eve, the oldest has been due for 2h 0m",
    );
}

#[tokio::test]
async fn workers_that_are_overdue_stuck_or_share_a_name_are_found() {
    let ward = Ward::new().await;
    let queue = r#""queues":[{"name":"q","lost":7,"started":9}]"#;
    ward.announce("gone", 1, "{}", ward.ago(HOUR)).await;
    ward.announce("old-loss", 2, &format!("{{{queue}}}"), ward.now).await;
    ward.assert_line(
        "overdue workers",
        "warning",
        "1 worker stopped announcing themselves, the last one 1h 0m ago (gone)",
    );
    // What was lost long ago is no reason to warn for ever.
    ward.assert_line("leases", "fine", "0 were lost in the last hour, 7 since the workers started");
    ward.announce("lossy", 3, &format!(r#"{{{queue},"lost_in_hour":2}}"#), ward.now).await;
    ward.assert_line("leases lost", "warning", "2 were lost in the last hour, 14 since");
    ward.announce("twin", 4, "{}", ward.now).await;
    ward.announce("twin", 5, r#"{"problems":["no reserve has succeeded"]}"#, ward.now).await;
    ward.assert_line("worker names", "warning", "two workers are called twin");
    ward.assert_line("stuck worker", "problem", "worker twin: no reserve has succeeded");
}

#[tokio::test]
async fn dead_lettered_jobs_are_reported_by_time() {
    let ward = Ward::new().await;
    let jobs = (0..4).map(|n| job("q", &format!("{n}"), "work")).collect();
    ward.enqueue(jobs, ward.ago(9 * DAY)).await;
    let leased = ward.take("q", 4, ward.ago(9 * DAY)).await;
    ward.dead_letter(&leased[0], "long ago", ward.ago(2 * DAY)).await;
    ward.assert_line("DLQ", "fine", "1 job, none of the last day");
    ward.assert_line("crashes", "fine", "no job died");
    ward.dead_letter(&leased[1], "no such address", ward.ago(HOUR)).await;
    ward.assert_line("DLQ", "warning", "2 jobs, 1 of them from the last day");
    let crashed =
        "its lease ran out 5 times in a row: each time its worker died or hung while running it";
    ward.dead_letter(&leased[2], crashed, ward.ago(HOUR)).await;
    ward.assert_line("crashes", "problem", "1 job died with their workers in the last day");
    ward.assert_line("DLQ", "warning", "3 jobs, 2 of them from the last day");
}
