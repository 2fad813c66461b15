//! The calls of operators: cancel, requeue, purge, pause, and other changes of jobs from outside.

use std::time::Duration;

use taskharbor_core::{
    Admin, JobId, QueueName,
    admin::{Action, Change, Configure, Manage, Prune, Requeue},
};

use super::Session;
use crate::{
    Outcome,
    sessions::{
        event::{Deed, What},
        job::QUEUES,
    },
};

impl Session {
    pub(super) async fn manage(&mut self) -> Outcome {
        let ids = self.some_jobs();
        let (action, deed) = match self.random.u8(..12) {
            0..=2 => (Action::Requeue(Requeue::new().reset_attempts()), Some(Deed::Requeue)),
            3 => (Action::Requeue(Requeue::new().detach()), Some(Deed::Detach)),
            4..=5 => (Action::Cancel, Some(Deed::Cancel)),
            6..=7 => (Action::RunNow, None),
            8..=9 => (Action::SetPriority(self.random.i16(0..3)), None),
            _ => (Action::Purge, Some(Deed::Purge)),
        };
        self.manage_all(ids, action, deed).await
    }

    pub(super) async fn manage_flows(&mut self) -> Outcome {
        let flows = self.some_flows();
        match self.random.bool() {
            true => self.manage_all(flows, Action::CancelFlow, Some(Deed::CancelFlow)).await,
            false => self.manage_all(flows, Action::PurgeFlow, Some(Deed::PurgeFlow)).await,
        }
    }

    async fn manage_all(&mut self, ids: Vec<JobId>, action: Action, deed: Option<Deed>) -> Outcome {
        let begun = self.begin();
        let request = Manage::new(ids.clone(), action, begun.now);
        let answers = self.handle.driver.manage(request).await?;
        let done = ids.into_iter().zip(answers).filter(|(_, answer)| answer.is_ok());
        let seen = done.filter_map(|(id, _)| Some(What::Managed { id, deed: deed? }));
        let seen: Vec<What> = seen.collect();
        self.end(begun, "manage", seen);
        Ok(())
    }

    pub(super) async fn prune(&mut self) -> Outcome {
        let begun = self.begin();
        let before = begun.now.saturating_sub(Duration::from_millis(self.random.u64(..400)));
        let mut request = Prune::new(self.random.usize(1..60), begun.now).done_before(before);
        if self.random.bool() {
            request = request.cancelled_before(before);
        }
        if self.random.u8(..4) == 0 {
            request = request.dlq_before(before);
        }
        let pruned = self.handle.driver.prune(request).await?;
        self.end(begun, "prune", [What::Pruned(pruned)]);
        Ok(())
    }

    /// Pauses a queue, or resumes all.
    pub(super) async fn configure(&mut self) -> Outcome {
        let changes = match self.random.u8(..3) {
            0 => {
                vec![Change::PauseQueue(QueueName::new(QUEUES[self.random.usize(..QUEUES.len())])?)]
            }
            _ => self.queues()?.into_iter().map(Change::ResumeQueue).collect(),
        };
        let begun = self.begin();
        for answer in self.handle.driver.configure(Configure::new(changes, begun.now)).await? {
            answer?;
        }
        self.end(begun, "configure", []);
        Ok(())
    }
}
