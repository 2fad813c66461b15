//! What the store says stays on the server.

use taskharbor::{Admin, AnyDriver, Driver, DriverError};
use taskharbor_memory::MemoryDriver;
use taskharbor_testkit::{Answer, Call, Hook, Intercept, Next, Op};
use taskharbor_web::{Access, Role, Web};

use super::{A_JOB, get, post};
use crate::rig::Rig;

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

#[tokio::test]
async fn no_answer_has_the_error_of_the_store() {
    let reserve = r#"{"worker": "w", "queues": {"mail": 1}}"#;
    for failing in [Failing::Unavailable, Failing::Backend, Failing::Violation] {
        let rig = rig(failing);
        for path in PATHS {
            let reply = rig.send(get(path, &[])).await;
            assert!(!reply.text.contains("hunter2") && !reply.text.contains("th_job"), "{reply:?}");
            assert_ne!(reply.status.as_u16(), 500, "{path}: {reply:?}");
        }
        for (path, body) in [("/v1/main/work/enqueue", A_JOB), ("/v1/main/work/reserve", reserve)] {
            let reply = rig.send(post(path, body, &[])).await;
            assert!(!reply.text.contains("hunter2") && !reply.text.contains("th_job"), "{reply:?}");
            assert_ne!(reply.status.as_u16(), 500, "{path}: {reply:?}");
        }
    }
}

/// What reads from the store.
const PATHS: &[&str] = &["/v1/main/overview", "/v1/main/history", "/v1/main/actions"];

#[tokio::test]
async fn a_store_that_is_away_may_be_asked_again() {
    let rig = rig(Failing::Unavailable);
    let reply = rig.send(post("/v1/main/work/enqueue", A_JOB, &[])).await;
    assert_eq!(reply.problem(), (503, "store_unavailable".to_owned()));
    assert_eq!(reply.headers["retry-after"], "1");
}
