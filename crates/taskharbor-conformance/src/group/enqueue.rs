//! Storing jobs.

use taskharbor_core::{Enqueued, State};

use crate::trial::{T0, Trial, id, job};

pub(crate) async fn a_job_without_parents_is_ready_and_due_now(t: Trial) {
    assert_eq!(t.put(job("a"), T0).await, Enqueued::Inserted(id("a")));
    let record = t.record("a", T0).await;
    assert_eq!(record.state, State::Ready);
    assert_eq!(record.due_at, Some(T0));
    assert_eq!(record.job.run_at, None);
    assert_eq!(record.job.created_at, T0);
}
