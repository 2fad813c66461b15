//! [`QueueMemory`]: what a handle remembers of a queue from one call to the next.
//!
//! Nothing of it has to survive the handle: turns may be remembered for each handle (LAN-5), and a watch
//! of another handle is woken by every commit that is not its own.

use std::{
    collections::HashMap,
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use taskharbor_core::{QueueName, Timestamp, admin::QueueLimits, driver::Turn, name::LaneName};

/// A lane; `None` for the jobs without one.
pub(crate) type Lane = Option<LaneName>;

/// A range of lanes by name.
pub(crate) type Lanes = (Bound<Lane>, Bound<Lane>);

/// What a handle remembers of a queue.
#[derive(Debug, Default)]
pub(crate) struct QueueMemory {
    pub(crate) turn: Turn,
    pub(crate) stopped: Option<Stopped>,
    /// Whether the number of jobs inflight kept a job from a reserve that asked for more.
    pub(crate) is_starved: bool,
    /// The limits that were read last.
    pub(crate) limits: LimitsCache,
}

/// Where a reserve stopped that had looked at as many lanes as it may, and had granted nothing.
#[derive(Debug)]
pub(crate) struct Stopped {
    pub(crate) priority: i64,
    /// The lanes it had not looked at, in the order of their turns.
    pub(crate) left: Vec<Lanes>,
    /// When the first job may be granted of the lanes that were looked at since the first such reserve.
    pub(crate) due: Option<Timestamp>,
    /// Whether a job may have become available in them since.
    pub(crate) is_disturbed: bool,
}

/// Limits with the text that they were read from: it mostly stays the same.
pub(crate) type LimitsCache = Option<(String, Arc<QueueLimits>)>;

/// The memory of each queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueueMemories(Arc<Mutex<HashMap<QueueName, QueueMemory>>>);

impl QueueMemories {
    /// The thread that writes has them during a call, and no other asks.
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<QueueName, QueueMemory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Jobs may have become available in these queues.
    pub(crate) fn disturb(&self, queues: &[QueueName]) {
        let mut memories = self.lock();
        for queue in queues {
            if let Some(stopped) = memories.get_mut(queue).and_then(|it| it.stopped.as_mut()) {
                stopped.is_disturbed = true;
            }
        }
    }

    /// Jobs may have become available in any queue.
    pub(crate) fn disturb_all(&self) {
        for stopped in self.lock().values_mut().filter_map(|it| it.stopped.as_mut()) {
            stopped.is_disturbed = true;
        }
    }
}
