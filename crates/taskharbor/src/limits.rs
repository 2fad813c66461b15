//! [`DeclaredLimits`]: the limits of all queues of one service.

use std::collections::HashSet;

use taskharbor_core::{
    QueueName,
    admin::{Declaration, LimitsDeclaration, QueueLimits},
    debug_as_display,
    error::InvalidRequest,
    name::{NameError, OwnerName},
};

/// The limits of all queues of one service, the owner. Declaring them removes the limits of this owner
/// that are not in the list. Limits of other owners are not touched.
///
/// ```
/// use std::time::Duration;
///
/// use taskharbor::{DeclaredLimits, QueueLimits, Rate};
///
/// let mail = QueueLimits::new()
///     .inflight(50)
///     .per_lane(2)
///     .rate(Rate::per(90, Duration::from_secs(10)).burst(10))
///     .weight("gold", 3);
/// let ours = DeclaredLimits::owned_by("billing").version(7).queue("mail", mail);
/// ```
#[derive(Clone, Debug)]
#[must_use = "limits do nothing until they are declared"]
pub struct DeclaredLimits {
    owner: String,
    version: Option<u64>,
    queues: Vec<(String, QueueLimits)>,
}

/// Limits cannot be declared. Nothing was changed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum InvalidLimits {
    /// Invalid name of the owner.
    #[error("limits cannot be declared: {0}")]
    Owner(NameError),
    /// The version is greater than can be stored.
    #[error(
        "limits of {owner:?}: version {version} is out of range: choose at most {}",
        Declaration::MAX_VERSION
    )]
    Version {
        /// The owner.
        owner: String,
        /// The version.
        version: u64,
    },
    /// Invalid queue name.
    #[error("limits of queue {queue:?}: {cause}")]
    Queue {
        /// The name.
        queue: String,
        /// What is wrong with it.
        cause: NameError,
    },
    /// One queue is named twice.
    #[error("limits of queue {0:?} are given twice: keep one of them")]
    DuplicateQueue(String),
    /// A limit is zero or too great, a rate cannot be counted, or the name of a lane is invalid.
    #[error("limits of queue {queue:?}: {cause}")]
    Limit {
        /// The queue.
        queue: String,
        /// What is wrong with its limits.
        cause: InvalidRequest,
    },
}

debug_as_display!(InvalidLimits);

impl DeclaredLimits {
    /// An empty list of this owner.
    pub fn owned_by(owner: impl Into<String>) -> Self {
        Self { owner: owner.into(), version: None, queues: Vec::new() }
    }

    /// The version of this list, such as the number of a build. A list with a lower version than
    /// the stored one changes nothing, so that an old process that is still running does not undo a
    /// deploy. Schedules of the same owner share its version. Defaults to none: the process that starts
    /// last decides.
    pub const fn version(mut self, version: u64) -> Self {
        self.version = Some(version);
        self
    }

    /// Adds the limits of a queue.
    pub fn queue(mut self, name: impl Into<String>, limits: QueueLimits) -> Self {
        self.queues.push((name.into(), limits));
        self
    }

    /// What is declared.
    pub(crate) fn into_declaration(self) -> Result<LimitsDeclaration, InvalidLimits> {
        let owner = OwnerName::new(&self.owner).map_err(InvalidLimits::Owner)?;
        if let Some(version) = self.version.filter(|it| *it > Declaration::MAX_VERSION) {
            return Err(InvalidLimits::Version { owner: self.owner, version });
        }
        let mut names = HashSet::new();
        let mut queues = Vec::with_capacity(self.queues.len());
        for (queue, limits) in self.queues {
            let name = match QueueName::new(&queue) {
                Ok(name) => name,
                Err(cause) => return Err(InvalidLimits::Queue { queue, cause }),
            };
            if !names.insert(name.clone()) {
                return Err(InvalidLimits::DuplicateQueue(queue));
            }
            if let Err(cause) = limits.check() {
                return Err(InvalidLimits::Limit { queue, cause });
            }
            queues.push((name, limits));
        }
        Ok(LimitsDeclaration::new(owner, self.version, queues))
    }
}
