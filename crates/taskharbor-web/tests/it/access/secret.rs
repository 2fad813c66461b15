//! The text of the store's errors stays on the server.

use taskharbor::{Admin, AnyDriver, Driver, DriverError};
use taskharbor_memory::MemoryDriver;
use taskharbor_testkit::{Answer, Call, Hook, Intercept, Next, Op};
use taskharbor_web::{Access, Role, Web};

use super::{A_JOB, post};
use crate::rig::{Reply, Rig};

/// Where the store is, and what it says.
const SECRET: &str = "postgres://ada:hunter2@db-7/jobs: relation th_job does not exist";

/// Refuses every call but those for the time, with the secret in the error.
#[derive(Clone, Copy)]
enum Failing {
    Unavailable,
    Backend,
    Violation,
}

impl<D: Driver + Admin> Hook<D> for Failing {
    async fn around(&self, call: Call, next: Next<'_, D>) -> Result<Answer, DriverError> {
        if call.op() == Op::StoreTime {
            return next.make(call).await;
        }
        Err(match self {
            Self::Unavailable => DriverError::unavailable(SECRET),
            Self::Backend => DriverError::backend(SECRET),
            Self::Violation => DriverError::ContractViolation(SECRET.to_owned()),
        })
    }
}

fn rig(failing: Failing) -> Rig {
    let access = Access::new("ada", Role::Admin).with_payloads().with_workers();
    let driver = AnyDriver::new(Intercept::new(MemoryDriver::new(), failing));
    Rig::on(driver, Web::new().anonymous(access))
}

/// What reads from the store.
const READS: &[&str] = &[
    "overview",
    "history",
    "actions",
    "jobs",
    "jobs/1",
    "jobs/1/payload",
    "jobs/1/output",
    "dlq/groups",
    "flows",
    "flows/1",
    "flows/1/graph",
    "queues/mail/limits",
    "queues/mail/lanes",
    "schedules",
    "schedules/nightly",
    "workers",
    "sweeps",
];

/// What changes something in the store.
const CHANGES: &[(&str, &str)] = &[
    ("work/enqueue", A_JOB),
    ("work/reserve", r#"{"worker": "w", "queues": {"mail": 1}}"#),
    ("jobs", r#"{"queue": "mail", "type": "email:send"}"#),
    ("jobs/1/cancel", "{}"),
    ("jobs/1/requeue", "{}"),
    ("jobs/1/purge", "{}"),
    ("flows/1/cancel", "{}"),
    ("queues/mail/pause", "{}"),
    ("queues/mail/resume", "{}"),
    ("schedules/nightly/pause", "{}"),
    ("schedules/nightly/remove", "{}"),
    ("workers/w/evict", "{}"),
    ("sweeps/preview", r#"{"action": "cancel", "filter": {"queue": "mail"}}"#),
    ("admin/check", "{}"),
    ("admin/diagnose", "{}"),
];

#[tokio::test(start_paused = true)]
async fn no_answer_has_the_error_of_the_store() {
    for failing in [Failing::Unavailable, Failing::Backend, Failing::Violation] {
        let rig = rig(failing);
        let mut failed = 0;
        for path in READS {
            failed += check(failing, &rig.get(path).await, path);
        }
        for (path, body) in CHANGES {
            let reply = rig.send(post(&format!("/v1/main/{path}"), body, &[])).await;
            failed += check(failing, &reply, path);
        }
        assert!(failed > 25, "most of them ask the store: {failed}");
    }
}

/// Looks for the secret; 1 if the store's failure was told without it.
fn check(failing: Failing, reply: &Reply, path: &str) -> usize {
    for secret in ["hunter2", "db-7", "th_job"] {
        assert!(!reply.text.contains(secret), "{path}: {reply:?}");
    }
    let is_server_error = reply.status.is_server_error();
    if is_server_error {
        let expected = match failing {
            Failing::Unavailable => "store_unavailable",
            Failing::Backend | Failing::Violation => "store_failed",
        };
        assert_eq!(reply.problem().1, expected, "{path}");
    }
    usize::from(is_server_error)
}

#[tokio::test]
async fn a_store_that_is_away_may_be_asked_again() {
    let rig = rig(Failing::Unavailable);
    let reply = rig.send(post("/v1/main/work/enqueue", A_JOB, &[])).await;
    assert_eq!(reply.problem(), (503, "store_unavailable".to_owned()));
    assert_eq!(reply.headers["retry-after"], "1");
}
