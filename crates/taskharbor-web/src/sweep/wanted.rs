//! [`Wanted`]: which action on which jobs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taskharbor::{Action, Denied, Requeue, State};

use crate::{
    access::{Access, Needs, Role},
    filter::JobFilter,
    problem::Problem,
};

/// Which action on which jobs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SweepWanted")]
pub(super) struct Wanted {
    /// What is done.
    pub(super) action: SweepAction,
    /// To which jobs. Without a state: those whose state allows it, for a requeue dead-lettered ones.
    #[serde(default)]
    pub(super) filter: JobFilter,
    /// Those alone whose error has this fingerprint: the groups of the DLQ have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) fingerprint: Option<String>,
    /// How it is done.
    #[serde(default, skip_serializing_if = "Options::is_default")]
    options: Options,
}

/// What a sweep does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum SweepAction {
    /// Lets dead-lettered or cancelled jobs run again.
    Requeue,
    /// Lets scheduled jobs run without waiting for their time.
    RunNow,
    /// Cancels jobs, or asks their workers to stop them.
    Cancel,
    /// Gives jobs that are not terminal another priority.
    Priority,
    /// Removes terminal jobs that are in no flow.
    Purge,
}

/// How a sweep acts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SweepOptions")]
struct Options {
    /// The priority, for that action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<i16>,
    /// For a requeue: attempts are counted anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    reset_attempts: bool,
    /// For a requeue: a job whose flow is terminal leaves it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    detach: bool,
}

impl Options {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Wanted {
    /// Refuses invalid requests, and callers whose role is too low for the action.
    pub(super) fn check(&self, access: &Access) -> Result<(), Problem> {
        Needs { role: Some(self.action.role()), ..Needs::VIEWER }.check(access)?;
        let Options { priority, reset_attempts, detach } = self.options;
        if (self.action == SweepAction::Priority) != priority.is_some() {
            return Err(Problem::invalid(
                "options.priority goes with the action priority: give both, or neither",
            ));
        }
        if (reset_attempts || detach) && self.action != SweepAction::Requeue {
            return Err(Problem::invalid(
                "options.reset_attempts and options.detach are for the action requeue",
            ));
        }
        if let Some(state) = self.filter.state.filter(|state| !self.action.allows(*state)) {
            return Err(Problem::invalid(format!(
                "this action does nothing to jobs that are {state}: choose another state, or none"
            )));
        }
        let is_hash =
            |text: &String| text.len() == 16 && text.bytes().all(|it| it.is_ascii_hexdigit());
        if self.fingerprint.as_ref().is_some_and(|it| !is_hash(it)) {
            return Err(Problem::invalid("a fingerprint has 16 hexadecimal digits"));
        }
        self.filter.to_filter().map(drop)
    }

    /// The states in which jobs are looked for. A job that moves on while the sweep walks is met in a
    /// later state, so they are in the order of a job's life.
    pub(super) fn states(&self) -> Vec<State> {
        match (self.filter.state, self.action) {
            (Some(state), _) => vec![state],
            (None, SweepAction::Requeue) => vec![State::Dlq],
            (None, SweepAction::RunNow) => vec![State::Scheduled],
            (None, SweepAction::Cancel | SweepAction::Priority) => {
                vec![State::Blocked, State::Scheduled, State::Ready, State::Inflight]
            }
            (None, SweepAction::Purge) => vec![State::Done, State::Dlq, State::Cancelled],
        }
    }

    /// What a store is asked to do.
    pub(super) fn action(&self) -> Action {
        match self.action {
            SweepAction::Requeue => {
                let mut requeue = Requeue::new();
                requeue.reset_attempts = self.options.reset_attempts;
                requeue.detach = self.options.detach;
                Action::Requeue(requeue)
            }
            SweepAction::RunNow => Action::RunNow,
            SweepAction::Cancel => Action::Cancel,
            SweepAction::Priority => Action::SetPriority(self.options.priority.unwrap_or_default()),
            SweepAction::Purge => Action::Purge,
        }
    }
}

impl SweepAction {
    fn role(self) -> Role {
        match self {
            Self::Requeue | Self::RunNow | Self::Cancel | Self::Priority => Role::Operator,
            Self::Purge => Role::Admin,
        }
    }

    fn allows(self, state: State) -> bool {
        let is_terminal = matches!(state, State::Done | State::Dlq | State::Cancelled);
        match self {
            Self::Requeue => matches!(state, State::Dlq | State::Cancelled),
            Self::RunNow => matches!(state, State::Scheduled | State::Blocked),
            Self::Cancel | Self::Priority => !is_terminal,
            Self::Purge => is_terminal,
        }
    }

    /// Whether a job may be denied because the same call was made before, and its answer was lost.
    pub(super) fn may_have_led_to(self, denied: &Denied) -> bool {
        match (self, denied) {
            (Self::Requeue, Denied::WrongState(state)) => !self.allows(*state),
            (Self::Cancel, Denied::WrongState(state)) => *state == State::Cancelled,
            (Self::Purge, Denied::JobNotFound) => true,
            _ => false,
        }
    }
}
