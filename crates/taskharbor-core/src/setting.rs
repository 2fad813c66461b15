//! Settings of a store: what operators and deploys configure beside the jobs.
//!
//! One pair of operations serves every kind of setting, so that a new kind adds a variant here and
//! no method to a driver.

use crate::{
    QueueName, Timestamp,
    admin::Cursor,
    check,
    driver::Limits,
    error::InvalidRequest,
    name::{LaneName, OwnerName, ScheduleName},
    queue_limit::{LimitsDeclaration, LimitsRecord, QueueLimits},
    schedule::{Declaration, NewSchedule, ScheduleRecord},
};

/// Asks to change settings.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Configure {
    /// The changes; they are made in this order.
    pub changes: Vec<Change>,
    /// The current time.
    pub now: Timestamp,
}

impl Configure {
    /// A request to make these changes.
    #[must_use]
    pub const fn new(changes: Vec<Change>, now: Timestamp) -> Self {
        Self { changes, now }
    }

    /// Checks the size of the call, and what does not depend on a store.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`] for too many changes, a definition that is too large, a schedule that is
    /// or queue that is named twice in a declaration, a version that is too great, and limits that
    /// cannot be.
    pub fn check(&self) -> Result<(), InvalidRequest> {
        let definitions = || self.changes.iter().flat_map(Change::definitions);
        let count = self.changes.len().max(definitions().count());
        check::range("the number of changes", count, 0, Limits::MAX_CALL_JOBS)?;
        check::call_size(0, definitions().sum())?;
        for bytes in definitions() {
            // SCH-17
            let max = Limits::MAX_DEFINITION_BYTES;
            check::range("the size of a schedule's definition", bytes, 0, max)?;
        }
        self.changes.iter().try_for_each(|change| match change {
            Change::DeclareSchedules(declaration) => declaration.check(),
            Change::SetOwnerVersion { version, .. } => Declaration::check_range(*version),
            Change::SetLimits { limits: Some(limits), .. } => limits.check(),
            Change::DeclareLimits(declaration) => declaration.check(),
            Change::ImportLimits(record) => record.limits.check(),
            _ => Ok(()),
        })
    }
}

/// One change to the settings of a store.
///
/// Exhaustive on purpose: a driver that does not know a change must not compile.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Change {
    /// Reserve grants nothing from this queue until it is resumed. Pausing a paused queue changes
    /// nothing.
    PauseQueue(QueueName),
    /// Reserve grants jobs of this queue again.
    ResumeQueue(QueueName),
    /// Stores a schedule without an owner, or replaces its definition and, unless it is kept, its next
    /// slot. An equal definition changes nothing.
    PutSchedule(NewSchedule),
    /// Stores, replaces and removes schedules of one owner, until it has exactly these.
    DeclareSchedules(Declaration),
    /// No slot of this schedule is fired until it is resumed. Pausing a paused one changes nothing.
    PauseSchedule(ScheduleName),
    /// Slots of a paused schedule are fired again, from `next_slot` on.
    ResumeSchedule {
        /// The schedule.
        name: ScheduleName,
        /// The revision of the record that the caller read.
        revision: u64,
        /// The next slot; `None` after the last one.
        next_slot: Option<Timestamp>,
    },
    /// Removes a schedule. Its jobs stay.
    RemoveSchedule(ScheduleName),
    /// Stores a schedule as another store had it, under a new revision.
    ImportSchedule(Box<ScheduleRecord>),
    /// Sets the limits of a queue, which then have no owner; `None` removes them. Jobs that are
    /// inflight stay so and count.
    SetLimits {
        /// The queue.
        queue: QueueName,
        /// The limits.
        limits: Option<QueueLimits>,
    },
    /// Sets and removes limits of one owner, until it has exactly these.
    DeclareLimits(LimitsDeclaration),
    /// Stores the limits of a queue as another store had them.
    ImportLimits(Box<LimitsRecord>),
    /// Nothing of a queue or lane is granted before an instant. A hold that lasts longer stays.
    Hold {
        /// The queue.
        queue: QueueName,
        /// The lane; the whole queue if `None`.
        lane: Option<LaneName>,
        /// The instant; `None` ends the hold.
        until: Option<Timestamp>,
    },
    /// Sets the version that an owner has declared. `None` removes it, so that the owner can declare
    /// any version.
    SetOwnerVersion {
        /// The owner.
        owner: OwnerName,
        /// The version.
        version: Option<u64>,
    },
}

impl Change {
    /// Whether it changes a schedule.
    #[must_use]
    pub const fn is_of_schedules(&self) -> bool {
        matches!(
            self,
            Self::PutSchedule(_)
                | Self::DeclareSchedules(_)
                | Self::PauseSchedule(_)
                | Self::ResumeSchedule { .. }
                | Self::RemoveSchedule(_)
                | Self::ImportSchedule(_)
        )
    }

    /// The sizes of the definitions that it carries.
    fn definitions(&self) -> Vec<usize> {
        match self {
            Self::PutSchedule(NewSchedule { definition, .. }) => vec![definition.len()],
            Self::DeclareSchedules(declaration) => {
                declaration.schedules.iter().map(|it| it.definition.len()).collect()
            }
            Self::ImportSchedule(record) => vec![record.definition.len()],
            Self::PauseQueue(_)
            | Self::ResumeQueue(_)
            | Self::PauseSchedule(_)
            | Self::ResumeSchedule { .. }
            | Self::RemoveSchedule(_)
            | Self::SetLimits { .. }
            | Self::DeclareLimits(_)
            | Self::ImportLimits(_)
            | Self::Hold { .. }
            | Self::SetOwnerVersion { .. } => Vec::new(),
        }
    }
}

/// A setting as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Setting {
    /// A queue that has been paused since this instant.
    PausedQueue {
        /// The queue.
        queue: QueueName,
        /// When it was paused.
        since: Timestamp,
    },
    /// A service that declared a version of its schedules and limits.
    Owner {
        /// The owner.
        owner: OwnerName,
        /// The version.
        version: u64,
    },
    /// A schedule.
    Schedule(Box<ScheduleRecord>),
    /// The limits of a queue.
    Limits(Box<LimitsRecord>),
}

/// The kind of a setting. A list has the kinds in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum SettingKind {
    /// [`Setting::PausedQueue`].
    PausedQueue,
    /// [`Setting::Owner`].
    Owner,
    /// [`Setting::Schedule`].
    Schedule,
    /// [`Setting::Limits`].
    Limits,
}

impl SettingKind {
    /// All kinds, in their order.
    pub const ALL: &[Self] = &[Self::PausedQueue, Self::Owner, Self::Schedule, Self::Limits];

    /// The kind's name, the same in every store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PausedQueue => "paused_queue",
            Self::Owner => "owner",
            Self::Schedule => "schedule",
            Self::Limits => "limits",
        }
    }
}

impl Setting {
    /// The kind.
    #[must_use]
    pub const fn kind(&self) -> SettingKind {
        match self {
            Self::PausedQueue { .. } => SettingKind::PausedQueue,
            Self::Owner { .. } => SettingKind::Owner,
            Self::Schedule(_) => SettingKind::Schedule,
            Self::Limits(_) => SettingKind::Limits,
        }
    }

    /// What it is about: the queue, owner or schedule.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::PausedQueue { queue, .. } => queue.as_str(),
            Self::Owner { owner, .. } => owner.as_str(),
            Self::Schedule(record) => record.name.as_str(),
            Self::Limits(record) => record.queue.as_str(),
        }
    }

    /// The cursor of the page after this setting.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        Cursor::new(format!("setting-{}:{}", self.kind().as_str(), self.name()))
    }
}

/// Asks for a page of settings.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListSettings {
    /// Settings of this kind alone.
    pub kind: Option<SettingKind>,
    /// The setting of this name alone.
    pub name: Option<String>,
    /// After the last setting of the page that gave this.
    pub after: Option<Cursor>,
    /// The greatest number of items to return.
    pub limit: usize,
}

impl ListSettings {
    /// The first page.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { kind: None, name: None, after: None, limit }
    }

    /// Settings of this kind alone.
    #[must_use]
    pub const fn kind(mut self, kind: SettingKind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Settings of this name alone: one of each kind at most.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
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

    /// Where the page begins: after the setting of this kind and name.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::Cursor`] for a cursor of another list.
    pub fn begin(&self) -> Result<Option<(SettingKind, &str)>, InvalidRequest> {
        let Some(cursor) = &self.after else { return Ok(None) };
        let text = cursor.as_str().strip_prefix("setting-");
        let parts = text.and_then(|text| text.split_once(':'));
        let kind = |text| SettingKind::ALL.iter().copied().find(|kind| kind.as_str() == text);
        let begin = parts.and_then(|(text, name)| Some((kind(text)?, name)));
        begin.map(Some).ok_or(InvalidRequest::Cursor)
    }
}
