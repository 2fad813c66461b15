//! Workers that have announced themselves, and their eviction.

use rusqlite::{Row, params};
use taskharbor_core::{
    Blob, QueueName, Timestamp,
    admin::{Evict, Evicted, ListWorkers, Page, WorkerRecord},
    driver::{Announce, Incarnation, Limits},
    graph::Graph,
    name::Holder,
};

use super::Store;
use crate::{
    entry::{self, text, time},
    error::Fault,
    statement as sql,
};

impl Store<'_> {
    /// Stores an announcement that ends at `expires_at`, or withdraws it.
    pub(crate) fn announce(
        &mut self,
        request: &Announce,
        expires_at: Option<Timestamp>,
    ) -> Result<(), Fault> {
        let (holder, incarnation) = (request.holder.as_str(), request.incarnation.to_string());
        let Some(expires_at) = expires_at else {
            // WRK-3
            return self.execute(sql::WITHDRAW, params![holder, incarnation]).map(drop);
        };
        // WRK-1
        let (now, end) = (request.now.as_micros(), expires_at.as_micros());
        let row = params![holder, incarnation, now, end, &request.info[..]];
        self.execute(sql::ANNOUNCE, row).map(drop)
    }

    pub(crate) fn workers(&self, request: &ListWorkers) -> Result<Page<WorkerRecord>, Fault> {
        // ADM-13
        let begin = request.begin()?;
        let begin = begin.map(|(holder, incarnation)| (holder, incarnation.to_string()));
        let (holder, incarnation) =
            begin.as_ref().map_or(("", ""), |(holder, text)| (holder.as_str(), text.as_str()));
        let mut statement = self.statement(sql::WORKERS_FROM)?;
        let mut rows = statement.query([holder, incarnation])?;
        let (mut page, mut next) = (Vec::new(), None);
        while let Some(row) = rows.next()? {
            let worker = read(row)?;
            // WRK-2
            if !request.wants(&worker) {
                continue;
            }
            if page.len() == request.limit {
                next = page.last().map(WorkerRecord::cursor);
                break;
            }
            page.push(worker);
        }
        Ok(Page::new(page, next))
    }

    pub(crate) fn evict(&mut self, request: &Evict) -> Result<Evicted, Fault> {
        let (holder, now) = (&request.holder, request.now);
        let meant = request.incarnation.map(|it| it.to_string());
        // EVI-4
        if let Some(meant) = &meant {
            let row = params![holder.as_str(), meant, now.as_micros()];
            if self.find::<i64>(sql::OTHER_INCARNATION, row)?.is_some() {
                return Ok(Evicted::Replaced);
            }
        }
        // EVI-3
        self.execute(sql::FORGET_WORKER, params![holder.as_str(), meant])?;
        let mut leases = 0;
        for kind in [PLAIN, LANED] {
            let mut name = String::new();
            while let Some(next) = self.find::<String>(kind.next_queue, [&name])? {
                name = next;
                let found = self.leases_of(holder, &name, &kind, now)?;
                let mut ended = 0;
                for seq in found {
                    // EVI-1, EVI-2: where its lease ends, the row says when it may be granted again.
                    ended += usize::from(self.change(seq, |life| life.evict(holder, now))?);
                }
                if ended > 0 {
                    // EVI-5
                    self.wake_queue(&entry::name(QueueName::new(name.as_str()))?);
                }
                leases += ended;
            }
        }
        Ok(Evicted::Leases(leases))
    }

    /// The jobs of a queue on which a holder has a lease that is valid at `now`.
    fn leases_of(
        &self,
        holder: &Holder,
        queue: &str,
        kind: &Kind,
        now: Timestamp,
    ) -> Result<Vec<i64>, Fault> {
        let (holder, now) = (holder.as_str(), now.as_micros());
        let mut found = match kind.in_line {
            Some(in_line) => self.find_all(in_line, params![queue, now, holder])?,
            None => Vec::new(),
        };
        let mut below = i64::from(i16::MAX) + 1;
        while let Some(priority) = self.find(kind.next_priority, params![queue, below])? {
            below = priority;
            found.extend(self.find_all(kind.leases, params![queue, priority, now, holder])?);
        }
        Ok(found)
    }

    /// Forgets workers whose announcement ended long ago.
    pub(super) fn forget_workers(&self, now: Timestamp) -> Result<(), Fault> {
        // WRK-4
        let kept_for = Limits::OVERDUE_WORKERS_KEPT.as_micros();
        let before = now.as_micros().saturating_sub(i64::try_from(kept_for).unwrap_or(i64::MAX));
        self.execute(sql::FORGET_WORKERS, [before]).map(drop)
    }
}

/// The statements that find leases: on jobs without a lane or with one.
struct Kind {
    next_queue: &'static str,
    next_priority: &'static str,
    leases: &'static str,
    in_line: Option<&'static str>,
}

const PLAIN: Kind = Kind {
    next_queue: sql::NEXT_QUEUE,
    next_priority: sql::NEXT_PRIORITY,
    leases: sql::PLAIN_LEASES_OF,
    in_line: None,
};

const LANED: Kind = Kind {
    next_queue: sql::NEXT_LANED_QUEUE,
    next_priority: sql::NEXT_LANED_PRIORITY,
    leases: sql::LANED_LEASES_OF,
    in_line: Some(sql::LINED_LEASES_OF),
};

fn read(row: &Row<'_>) -> Result<WorkerRecord, Fault> {
    let holder = entry::name(Holder::new(text(row, 0)?))?;
    let incarnation =
        Incarnation::parse(text(row, 1)?).ok_or_else(|| Fault::damaged("an incarnation"))?;
    let info = row.get_ref(5)?.as_blob().map_err(|_| Fault::damaged("a blob"))?;
    let (started_at, seen_at) = (time(row.get(2)?)?, time(row.get(3)?)?);
    let expires_at = time(row.get(4)?)?;
    // How long it was valid for is told by when it ends.
    let announced =
        Announce::new(holder, incarnation, Blob::from(info), std::time::Duration::ZERO, seen_at);
    Ok(WorkerRecord::new(announced, started_at, expires_at))
}
