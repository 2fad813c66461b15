//! The settings of the store.

use rusqlite::{Row, params};
use taskharbor_core::{
    QueueName, Timestamp,
    admin::{Change, Configure, ListSettings, Page, Setting, SettingKind},
    error::Denied,
    name::OwnerName,
};

use super::{Store, enqueue::place, limit, schedule};
use crate::{
    entry::{self, number, text, time},
    error::Fault,
    statement as sql,
};

/// Makes a setting of a row.
type Read = fn(&Row<'_>) -> Result<Setting, Fault>;

impl Store<'_> {
    pub(crate) fn configure(
        &mut self,
        request: &Configure,
    ) -> Result<Vec<Result<(), Denied>>, Fault> {
        // PAU-4
        let change = |change| self.configure_one(change, request.now);
        request.changes.iter().map(change).collect()
    }

    fn configure_one(
        &mut self,
        change: &Change,
        now: Timestamp,
    ) -> Result<Result<(), Denied>, Fault> {
        match change {
            // PAU-2
            Change::PauseQueue(queue) => {
                self.execute(sql::PAUSE, params![queue.as_str(), now.as_micros()])?;
            }
            Change::ResumeQueue(queue) => {
                if self.execute(sql::RESUME, [queue.as_str()])? > 0 {
                    self.execute(sql::DROP_QUEUE, [queue.as_str()])?;
                    self.wake_queue(queue);
                }
            }
            Change::SetOwnerVersion { owner, version } => {
                self.set_owner_version(owner, *version)?;
            }
            Change::PutSchedule(_)
            | Change::DeclareSchedules(_)
            | Change::PauseSchedule(_)
            | Change::ResumeSchedule { .. }
            | Change::RemoveSchedule(_)
            | Change::ImportSchedule(_) => return self.change_schedules(change, now),
            Change::SetLimits { .. }
            | Change::DeclareLimits(_)
            | Change::ImportLimits(_)
            | Change::Hold { .. } => return self.change_limits(change),
        }
        Ok(Ok(()))
    }

    pub(crate) fn settings(&self, request: &ListSettings) -> Result<Page<Setting>, Fault> {
        // ADM-13
        let begin = request.begin()?;
        let mut items = Vec::new();
        // PAU-3
        for &kind in SettingKind::ALL {
            let is_behind = begin.is_some_and(|(begun, _)| kind < begun);
            if is_behind || request.kind.is_some_and(|wanted| wanted != kind) {
                continue;
            }
            let after = begin.filter(|(begun, _)| *begun == kind).map(|(_, name)| name);
            let left = request.limit + 1 - items.len();
            self.settings_of(kind, after, request.name.as_deref(), left, &mut items)?;
        }
        let next = items.get(request.limit - 1).map(Setting::cursor);
        let next = next.filter(|_| items.len() > request.limit);
        items.truncate(request.limit);
        Ok(Page::new(items, next))
    }

    /// Adds settings of one kind, up to `limit`: behind a name, or of one name.
    fn settings_of(
        &self,
        kind: SettingKind,
        after: Option<&str>,
        name: Option<&str>,
        limit: usize,
        items: &mut Vec<Setting>,
    ) -> Result<(), Fault> {
        let (sql, read): (_, Read) = match kind {
            SettingKind::PausedQueue => (sql::PAUSES_FROM, paused_queue),
            SettingKind::Owner => (sql::OWNERS_FROM, owner),
            SettingKind::Limits => {
                (sql::LIMITS_FROM, |row| Ok(Setting::Limits(Box::new(limit::read(row)?))))
            }
            _ => (sql::SCHEDULES_FROM, |row| Ok(Setting::Schedule(Box::new(schedule::read(row)?)))),
        };
        // No character comes between a name and the same with a NUL, and no name has one.
        let behind = after.map(|after| format!("{after}\0"));
        let first = behind.as_deref().into_iter().chain(name).max().unwrap_or_default();
        // Longer than a name may be, of the last character there is.
        let end = "\u{10FFFF}".repeat(64);
        let mut statement = self.statement(sql)?;
        let mut rows = statement.query(params![first, name.unwrap_or(&end), place(limit)])?;
        while let Some(row) = rows.next()? {
            items.push(read(row)?);
        }
        Ok(())
    }
}

fn paused_queue(row: &Row<'_>) -> Result<Setting, Fault> {
    let queue = entry::name(QueueName::new(text(row, 0)?))?;
    Ok(Setting::PausedQueue { queue, since: time(row.get(1)?)? })
}

fn owner(row: &Row<'_>) -> Result<Setting, Fault> {
    let owner = entry::name(OwnerName::new(text(row, 0)?))?;
    Ok(Setting::Owner { owner, version: number(row, 1)? })
}
