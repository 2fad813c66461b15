//! [`Failure`]: why a step has no output.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use taskharbor_core::{State, Text};

/// The failure of a step: it was dead-lettered or cancelled, and has no output.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// use taskharbor::{Context, Failure, Flow, Job, JobResult};
///
/// # #[derive(Serialize, Deserialize, Job)]
/// # #[job(type = "order:pay")]
/// # struct Pay { order: u64 }
/// /// Runs if a step of the order fails permanently.
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(type = "order:undo", input = Failure)]
/// struct Undo {
///     order: u64,
/// }
///
/// async fn undo(job: Undo, cx: Context) -> JobResult {
///     let failure = cx.input(&job)?;
///     println!("order {} is undone, because a step was {failure}", job.order);
///     Ok(())
/// }
///
/// let order = Flow::first(Pay { order: 42 }).on_failure(Undo { order: 42 });
/// # drop(order);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// Whether it was cancelled; otherwise it was dead-lettered.
    pub is_cancelled: bool,
    /// The reason that was recorded, if there is one.
    pub reason: Option<String>,
}

impl Failure {
    pub(crate) fn new(state: State, reason: Option<&Text>) -> Self {
        let reason = reason.map(|it| it.as_str().to_owned());
        Self { is_cancelled: state == State::Cancelled, reason }
    }

    /// Creates the failure of a step that was dead-lettered for this reason, for tests of handlers
    /// that take one.
    #[must_use]
    pub fn dead_lettered(reason: impl Into<String>) -> Self {
        Self { is_cancelled: false, reason: Some(reason.into()) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_cancelled { "cancelled" } else { "dead-lettered" })?;
        self.reason.iter().try_for_each(|reason| write!(f, ": {reason}"))
    }
}

impl std::error::Error for Failure {}

impl Serialize for Failure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.is_cancelled, &self.reason).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Failure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (is_cancelled, reason) = Deserialize::deserialize(deserializer)?;
        Ok(Self { is_cancelled, reason })
    }
}
