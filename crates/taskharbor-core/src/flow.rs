//! Flows as operators see them: their state, which follows from those of the members, and lists of
//! them.

pub use crate::set::{CheckedSet, Expansion, ResolvedEdges, parents_first};

use crate::{
    JobId, State, Timestamp,
    admin::{Cursor, Order, StateCounts},
    check,
    driver::Limits,
    error::InvalidRequest,
    name::FlowName,
};

/// Asks for a page of flows.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListFlows {
    /// Only flows in this state.
    pub state: Option<FlowState>,
    /// Only flows with this name.
    pub name: Option<FlowName>,
    /// The order of the list.
    #[cfg_attr(feature = "serde", serde(default))]
    pub order: Order,
    /// After the last flow of the page that gave this.
    pub after: Option<Cursor>,
    /// The greatest number of items to return.
    pub limit: usize,
    /// The current time.
    pub now: Timestamp,
}

impl ListFlows {
    /// The first page of all flows, in the order in which they began.
    #[must_use]
    pub const fn new(limit: usize, now: Timestamp) -> Self {
        Self { state: None, name: None, order: Order::OldestFirst, after: None, limit, now }
    }

    /// Only flows in this state.
    #[must_use]
    pub fn state(mut self, state: FlowState) -> Self {
        self.state = Some(state);
        self
    }

    /// Only flows with this name.
    #[must_use]
    pub fn name(mut self, name: FlowName) -> Self {
        self.name = Some(name);
        self
    }

    /// The flow that began last first.
    #[must_use]
    pub const fn newest_first(mut self) -> Self {
        self.order = Order::NewestFirst;
        self
    }

    /// The page after the one that gave `cursor`.
    #[must_use]
    pub fn after(mut self, cursor: Cursor) -> Self {
        self.after = Some(cursor);
        self
    }

    /// Checks the limit.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::OutOfRange`].
    pub const fn check(&self) -> Result<(), InvalidRequest> {
        check::range("limit", self.limit, 1, Limits::MAX_PAGE)
    }

    /// Whether a flow matches.
    #[must_use]
    pub fn matches(&self, flow: &FlowRecord) -> bool {
        self.state.is_none_or(|state| state == flow.state)
            && (self.name.is_none() || self.name == flow.name)
    }
}

/// The state of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum FlowState {
    /// A member is ready, scheduled or inflight.
    Running,
    /// No member is ready, scheduled or inflight, and a member is blocked: the flow goes on only if
    /// an operator acts, for example requeues a dead-lettered member.
    Blocked,
    /// All members are terminal, and its last job is done: the flow has its output.
    Done,
    /// All members are terminal, and its last job was dead-lettered.
    Failed,
    /// All members are terminal, and its last job was cancelled.
    Cancelled,
}

impl FlowState {
    /// The state of a flow with such members whose tail is in the state `tail`.
    #[must_use]
    pub const fn of(members: &StateCounts, tail: State) -> Self {
        // FLO-7
        if members.ready + members.scheduled + members.inflight > 0 {
            return Self::Running;
        }
        match tail {
            _ if members.blocked > 0 => Self::Blocked,
            State::Done => Self::Done,
            State::Cancelled => Self::Cancelled,
            _ => Self::Failed,
        }
    }
}

/// A flow as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlowRecord {
    /// Identifies it: the id of its first tail, or of the job that expanded into it. It never changes.
    pub id: JobId,
    /// Its name, for people.
    pub name: Option<FlowName>,
    /// Its state.
    pub state: FlowState,
    /// The member whose output is now the flow's: the first tail, or the tail of its expansion.
    pub tail: JobId,
    /// How many members are in each state.
    pub members: StateCounts,
    /// When it began.
    pub created_at: Timestamp,
    /// When its last member ended, if all have.
    pub finished_at: Option<Timestamp>,
}

impl FlowRecord {
    /// The record of a flow that began at `created_at`, with such members, whose `tail` is in this
    /// state. `last_finish` is when the last of the terminal members ended.
    #[must_use]
    pub fn new(
        id: JobId,
        created_at: Timestamp,
        (tail, tail_state): (JobId, State),
        members: StateCounts,
        last_finish: Option<Timestamp>,
    ) -> Self {
        let state = FlowState::of(&members, tail_state);
        let over = !matches!(state, FlowState::Running | FlowState::Blocked);
        let finished_at = last_finish.filter(|_| over);
        Self { id, name: None, state, tail, members, created_at, finished_at }
    }

    /// With the name that people gave it.
    #[must_use]
    pub fn named(mut self, name: Option<FlowName>) -> Self {
        self.name = name;
        self
    }
}
