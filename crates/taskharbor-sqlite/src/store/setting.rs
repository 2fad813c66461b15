//! What is configured in the store beside the jobs.

use rusqlite::params;
use taskharbor_core::{
    QueueName, Timestamp,
    admin::{Change, Configure, Cursor, ListSettings, Page, Setting},
    error::{Denied, InvalidRequest},
};

use super::{Store, enqueue::place};
use crate::{
    entry::{self, text, time},
    error::Fault,
    statement as sql,
};

/// What the cursors of paused queues begin with.
const PAUSED: &str = "pause:";

impl Store<'_> {
    pub(crate) fn configure(
        &mut self,
        request: &Configure,
    ) -> Result<Vec<Result<(), Denied>>, Fault> {
        // PAU-4
        let change = |change| self.configure_one(change, request.now).map(Ok);
        request.changes.iter().map(change).collect()
    }

    fn configure_one(&mut self, change: &Change, now: Timestamp) -> Result<(), Fault> {
        match change {
            // PAU-2
            Change::PauseQueue(queue) => {
                self.execute(sql::PAUSE, params![queue.as_str(), now.as_micros()])?;
            }
            Change::ResumeQueue(queue) => {
                if self.execute(sql::RESUME, [queue.as_str()])? > 0 {
                    self.wake_queue(queue);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn settings(&self, request: &ListSettings) -> Result<Page<Setting>, Fault> {
        let after = match &request.after {
            Some(cursor) => {
                // ADM-13
                cursor.as_str().strip_prefix(PAUSED).ok_or(InvalidRequest::Cursor)?
            }
            None => "",
        };
        let mut statement = self.statement(sql::PAUSES_AFTER)?;
        // PAU-3
        let mut rows = statement.query(params![after, place(request.limit + 1)])?;
        let (mut items, mut next) = (Vec::new(), None);
        while let Some(row) = rows.next()? {
            if items.len() == request.limit {
                return Ok(Page::new(items, next));
            }
            let queue = entry::name(QueueName::new(text(row, 0)?))?;
            next = Some(Cursor::new(format!("{PAUSED}{queue}")));
            items.push(Setting::PausedQueue { queue, since: time(row.get(1)?)? });
        }
        Ok(Page::new(items, None))
    }
}
