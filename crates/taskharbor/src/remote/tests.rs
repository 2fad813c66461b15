//! Tickets between server and worker, and the decisions that are made with them.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use taskharbor_core::{
    JobId, NewJob, QueueName, State,
    driver::{Lease, LeaseToken},
    job::ReleaseNote,
    life::Life,
    name::LaneName,
};

use super::*;
use crate::{CancelReason, JobError, Outcome};

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Timestamp {
    Timestamp::EPOCH.saturating_add(Duration::from_secs(seconds))
}

fn worker() -> RemoteWorker {
    RemoteWorker::new(Holder::new("w-1").unwrap())
}

fn leased(change: impl FnOnce(&mut JobView)) -> Leased {
    let queue = QueueName::new("mail").unwrap();
    let new = NewJob::new(JobId::new("j").unwrap(), queue, JobType::new("send").unwrap(), b"1")
        .lane(LaneName::new("acme").unwrap());
    let mut job = JobView::assemble(&new, at(0), &Life::new(&new, 0, None, at(0)));
    change(&mut job);
    Leased::new(job, Lease::new(LeaseToken::from_bits(u128::MAX - 7), at(100)))
}

fn ticket(worker: &RemoteWorker, leased: &Leased) -> Ticket {
    match worker.admit(leased, at(10)) {
        Admission::Run(ticket) => ticket,
        Admission::Settle(transition) => panic!("not admitted: {transition:?}"),
    }
}

#[test]
fn a_ticket_is_read_as_it_was_written() {
    let retry = Exponential::new().base(SECOND).cap(SECOND * 60).multiplier(1.5).jitter(0.0);
    for worker in [worker(), worker().retry(retry).timeout(SECOND / 4)] {
        let ticket = ticket(&worker, &leased(|job| job.attempts = 3));
        assert_eq!(Ticket::parse(&ticket.to_text()), Ok(ticket));
    }
}

#[test]
fn what_is_no_ticket_is_refused() {
    let good = ticket(&worker(), &leased(|_| {})).to_text();
    let encode = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
    let json = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(&good).unwrap()).unwrap();
    let changed = [
        ("\"v\":1", "\"v\":2"),
        ("\"a\":0", "\"a\":4294967295"),
        ("\"a\":0", "\"a\":-1"),
        ("\"m\":20", "\"m\":0"),
        ("\"m\":20", "\"m\":9223372036854775808"),
        ("\"g\":10000000", "\"g\":-1"),
        ("\"h\":\"w-1\"", "\"h\":\"\""),
        ("\"t\":\"ff", "\"t\":\"+f"),
        ("\"v\":1", "\"v\":1,\"x\":1"),
        ("\"v\":1", "\"v\":1,\"r\":[5,1,2.0,0.0]"),
    ];
    let changed = changed.map(|(from, to)| {
        assert!(json.contains(from), "{json}");
        encode(&json.replace(from, to))
    });
    let long = "A".repeat(9 * 1024);
    let others = ["", "x", &good[1..], &long, &encode("[]"), &encode("{}")].map(str::to_owned);
    for text in changed.into_iter().chain(others) {
        assert_eq!(Ticket::parse(&text), Err(InvalidTicket), "{text}");
    }
}

#[test]
fn failures_are_retried_until_the_attempts_of_the_job_its_type_or_the_worker_are_used_up() {
    let job_type = JobType::new("send").unwrap();
    let typed = || worker().takes(job_type.clone(), RemoteType::new().max_attempts(3));
    let by_worker = worker().retry(Exponential::new().max_attempts(4));
    for (worker, own, max) in
        [(worker(), None, 20), (by_worker, None, 4), (typed(), None, 3), (typed(), Some(2), 2)]
    {
        for attempts in 0..max {
            let leased = leased(|job| (job.attempts, job.max_attempts) = (attempts, own));
            let ticket = Ticket::parse(&ticket(&worker, &leased).to_text()).unwrap();
            assert_eq!(ticket.max_attempts(), max);
            let decision = ticket.settle(Err(JobError::from("boom")), at(11), 0.0);
            let is_last = attempts + 1 == max;
            let state = if is_last { State::Dlq } else { State::Scheduled };
            assert_eq!(decision.state(at(11)), state);
            match decision.transition {
                Transition::Retry { failure, run_at } => {
                    assert_eq!((failure.attempts, failure.error.as_str()), (attempts + 1, "boom"));
                    let delay = Exponential::new().after(attempts + 1, 0.0);
                    assert_eq!(run_at, Some(at(11).saturating_add(delay)));
                }
                Transition::Fail { reason, .. } => {
                    assert_eq!(reason.as_str(), format!("failed {max} times; last error: boom"));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_job_that_was_throttled_holds_its_lane() {
    let ticket = ticket(&worker(), &leased(|_| {}));
    let decision = ticket.settle(Err(JobError::throttled(30 * SECOND)), at(20), 0.0);
    let Some(taskharbor_core::admin::Change::Hold { queue, lane, until }) = decision.hold else {
        panic!("no hold");
    };
    assert_eq!((queue.as_str(), lane.unwrap().as_str()), ("mail", "acme"));
    assert_eq!(until, Some(at(50)));
    let snoozed = ticket.settle(Ok(Outcome::Snooze(30 * SECOND)), at(20), 0.0);
    assert!(snoozed.hold.is_none());
    assert_eq!(snoozed.state(at(20)), State::Scheduled);
}

#[test]
fn an_execution_may_take_as_long_as_its_job_its_type_or_the_worker_says() {
    let typed =
        worker().takes(JobType::new("send").unwrap(), RemoteType::new().timeout(9 * SECOND));
    let typed = typed.timeout(SECOND);
    assert_eq!(ticket(&typed, &leased(|_| {})).timeout(), Some(9 * SECOND));
    let job = leased(|job| job.timeout = Some(4 * SECOND));
    let ticket = ticket(&typed, &job);
    let overtime = |seconds| ticket.overtime(at(seconds));
    assert_eq!(
        [13, 14, 18, 19].map(overtime),
        [Overtime::No, Overtime::TimedOut, Overtime::TimedOut, Overtime::Overdue]
    );
    let Transition::Retry { failure, .. } = ticket.time_out(at(14), 0.0).transition else {
        panic!("not retried");
    };
    assert_eq!(failure.error.as_str(), "timed out after 4s");
}

#[test]
fn a_job_whose_lease_ran_out_too_often_is_dead_lettered_and_not_run() {
    let worker = worker().crash_limit(3);
    let alone = |times| worker.runs_alone_for(&leased(|job| job.expirations = times).job);
    assert_eq!([0, 1, 2].map(|times| alone(times).is_some()), [false, false, true]);
    let admitted = worker.admit(&leased(|job| job.expirations = 3), at(1));
    let Admission::Settle(Transition::Fail { reason, failure }) = admitted else {
        panic!("not dead-lettered");
    };
    assert!(reason.as_str().contains("3 times in a row"), "{reason}");
    assert_eq!(failure.attempts, 1);
}

#[test]
fn a_job_of_an_unknown_type_waits_for_another_worker_and_is_dead_lettered_in_the_end() {
    let worker = worker().takes_named();
    let admit = |seconds| {
        let note = ReleaseNote::new(ReleaseReason::NoHandler, "").unfit_since(Some(at(0)));
        worker.admit(&leased(|job| job.released = Some(note)), at(seconds))
    };
    let Admission::Settle(Transition::Release { run_at, started, note }) = admit(100) else {
        panic!("not released");
    };
    assert_eq!((run_at, started), (Some(at(110)), false));
    assert_eq!(note.unwrap().unfit_since, Some(at(0)));
    let Admission::Settle(Transition::Fail { reason, .. }) = admit(600) else {
        panic!("not dead-lettered");
    };
    assert_eq!(reason.as_str(), "no handler for job type \"send\" is registered");
}

#[test]
fn a_handler_that_was_told_to_stop_is_charged_nothing() {
    let ticket = ticket(&worker(), &leased(|_| {}));
    for (reason, expected) in [
        (CancelReason::Requested, ReleaseReason::CancelRequested),
        (CancelReason::Shutdown, ReleaseReason::Shutdown),
    ] {
        let Transition::Release { started: true, note: Some(note), .. } =
            ticket.stop(reason).transition
        else {
            panic!("not released");
        };
        assert_eq!(note.reason, expected);
    }
    let Transition::Release { started, note, .. } = ticket.unstarted().transition else {
        panic!("not released");
    };
    assert!(!started && note.is_none());
}

#[test]
fn a_policy_that_cannot_work_is_refused() {
    let of_type = RemoteType::new().max_attempts(0);
    for worker in [
        worker().crash_limit(0),
        worker().retry(Exponential::new().max_attempts(0)),
        worker().takes(JobType::new("send").unwrap(), of_type),
    ] {
        assert!(worker.check().is_err(), "{worker:?}");
    }
    worker().check().unwrap();
}
