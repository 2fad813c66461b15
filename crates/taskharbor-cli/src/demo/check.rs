//! The comparison of a run with the plan.

use super::{
    finding::{Dead, Findings},
    job::report,
    plan::{self, Ending, KINDS, Kind},
    progress::Seen,
};

/// What differs from the plan, one sentence each; nothing if all went as planned.
pub(crate) fn differences(findings: &Findings) -> Vec<String> {
    let mut differences: Vec<String> =
        KINDS.iter().flat_map(|kind| of_kind(kind, findings)).collect();
    differences.extend(of_queues(findings));
    for (job_type, seen) in &findings.kinds {
        if Kind::of(job_type).is_none() {
            differences.push(format!("{job_type}: {} jobs that are not in the plan", seen.jobs));
        }
    }
    match findings.schedule {
        Some(schedule) if schedule.began >= schedule.due => {}
        Some(_) => differences.push("the scheduled job began before it was due".to_owned()),
        None => differences.push("the scheduled job has not begun".to_owned()),
    }
    let expected = Kind::of("report:build").map_or(0, |kind| kind.jobs);
    if !(0..).map(report).take(expected).eq(findings.reports.iter().cloned()) {
        differences.push("the reports are not those that were asked for".to_owned());
    }
    if findings.crash.is_none() {
        differences.push("the worker was not killed".to_owned());
    }
    for id in &findings.run_again {
        differences.push(format!("job {id} was over when the worker died and ran again"));
    }
    let wrong = findings.inconsistencies.iter();
    differences.extend(wrong.map(|wrong| format!("the store contradicts itself: {wrong}")));
    differences
}

/// What was observed of one kind, and how it lies in the DLQ.
fn of_kind(kind: &Kind, findings: &Findings) -> Vec<String> {
    let job_type = kind.job_type;
    let nothing = Seen::default();
    let seen = findings.kinds.get(job_type).unwrap_or(&nothing);
    let mut differences = Vec::new();
    for (what, found, expected) in [
        ("jobs", seen.jobs, kind.jobs),
        ("done", seen.done, kind.done()),
        ("retries", seen.retries, kind.retries()),
        ("dead-lettered", seen.dead, kind.dead()),
    ] {
        differences.extend(number(&format!("{job_type}, {what}"), found, expected));
    }
    let dead: Vec<&Dead> = findings.dead.iter().filter(|dead| dead.job_type == job_type).collect();
    differences.extend(number(&format!("{job_type}, in the DLQ"), dead.len(), kind.dead()));
    if let Ending::Dies { attempts, reason } = kind.ending {
        for dead in dead {
            let what = format!("{job_type}, attempts in the DLQ");
            differences.extend(number(&what, dead.attempts, attempts));
            if !dead.reason.contains(reason) {
                let found = &dead.reason;
                differences.push(format!("{job_type}: dead for {found:?}, planned {reason:?}"));
            }
        }
    }
    differences
}

/// What the store counts in each queue.
fn of_queues(findings: &Findings) -> Vec<String> {
    let mut differences = Vec::new();
    for queue in plan::queues() {
        let found = findings.queues.iter().find(|counts| counts.queue.as_str() == queue);
        let states = found.map(|counts| counts.states).unwrap_or_default();
        let planned = || KINDS.iter().filter(|kind| kind.queue == queue);
        for (what, found, expected) in [
            ("all", states.total(), planned().map(|kind| kind.jobs).sum()),
            ("done", states.done, planned().map(Kind::done).sum()),
            ("dlq", states.dlq, planned().map(Kind::dead).sum()),
        ] {
            differences.extend(number(&format!("queue {queue}, {what}"), found, expected));
        }
    }
    differences
}

fn number(what: &str, found: usize, expected: usize) -> Option<String> {
    (found != expected).then(|| format!("{what}: {found}, planned {expected}"))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use taskharbor::QueueCounts;
    use taskharbor::{QueueName, Timestamp};

    use super::*;
    use crate::demo::finding::{Crash, Schedule};

    /// What a run finds that goes exactly as planned.
    pub(crate) fn as_planned() -> Findings {
        let seen = |kind: &Kind| Seen {
            jobs: kind.jobs,
            done: kind.done(),
            retries: kind.retries(),
            dead: kind.dead(),
            took: vec![Duration::from_millis(98); kind.jobs],
        };
        let mut queues: Vec<QueueCounts> = Vec::new();
        for queue in plan::queues() {
            let mut counts = QueueCounts::new(QueueName::new(queue).unwrap());
            for kind in KINDS.iter().filter(|kind| kind.queue == queue) {
                counts.states.done += kind.done();
                counts.states.dlq += kind.dead();
            }
            queues.push(counts);
        }
        let dead = KINDS.iter().filter_map(|kind| match kind.ending {
            Ending::Dies { attempts, reason } => {
                let (job_type, reason) = (kind.job_type.to_owned(), reason.to_owned());
                Some(Dead { job_type, attempts, reason })
            }
            Ending::Succeeds { .. } => None,
        });
        let began = Timestamp::EPOCH.saturating_add(Duration::from_micros(1_300));
        let reports = Kind::of("report:build").unwrap().jobs;
        Findings {
            kinds: KINDS.iter().map(|kind| (kind.job_type.to_owned(), seen(kind))).collect(),
            queues,
            dead: dead.collect(),
            schedule: Some(Schedule { due: Timestamp::EPOCH, began }),
            reports: (0..).map(report).take(reports).collect(),
            crash: Some(Crash::new(4_711, Duration::from_secs(2), &[])),
            run_again: Vec::new(),
            inconsistencies: Vec::new(),
            elapsed: Duration::from_secs(4),
        }
    }

    fn after(change: impl FnOnce(&mut Findings)) -> Vec<String> {
        let mut findings = as_planned();
        change(&mut findings);
        differences(&findings)
    }

    #[test]
    fn a_run_as_planned_differs_in_nothing() {
        assert_eq!(differences(&as_planned()), [""; 0]);
    }

    #[test]
    fn every_difference_from_the_plan_is_reported() {
        let email = |change: fn(&mut Seen)| {
            after(|found| change(found.kinds.get_mut("email:send").unwrap()))
        };
        assert_eq!(email(|seen| seen.done -= 1), ["email:send, done: 239, planned 240"]);
        assert_eq!(email(|seen| seen.retries = 2), ["email:send, retries: 2, planned 0"]);
        let gone = after(|found| {
            found.kinds.remove("user:import");
        });
        assert_eq!(gone.len(), 2, "{gone:?}");
        let dead = |change: fn(&mut Dead)| after(|found| change(&mut found.dead[0]));
        let attempts = dead(|dead| dead.attempts = 3);
        assert_eq!(attempts, ["webhook:call, attempts in the DLQ: 3, planned 4"]);
        let reason = dead(|dead| dead.reason = "bored".to_owned());
        assert_eq!(reason, ["webhook:call: dead for \"bored\", planned \"connection refused\""]);
        for different in [
            after(|found| found.queues[0].states.ready += 1),
            after(|found| found.dead.truncate(4)),
            after(|found| found.schedule = None),
            after(|found| found.schedule.as_mut().unwrap().due = Timestamp::MAX),
            after(|found| found.reports[1].rows += 1),
            after(|found| found.reports.truncate(1)),
            after(|found| found.crash = None),
            after(|found| found.run_again.push("a job".to_owned())),
            after(|found| found.inconsistencies.push("a job is lost".to_owned())),
            after(|found| drop(found.kinds.insert("spam:send".to_owned(), Seen::default()))),
        ] {
            assert_eq!(different.len(), 1, "{different:?}");
        }
    }
}
