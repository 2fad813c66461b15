//! Processor time, read from `/proc`.

use std::{fs, path::Path};

use super::{Outcome, server::Server};

/// Ticks in a second, as Linux reports them.
const TICKS: f64 = 100.0;

/// Seconds of processor time that were spent so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) server: f64,
    pub(crate) client: f64,
}

impl Usage {
    /// The server with all its processes, also those that have ended, and this process.
    pub(crate) fn now(server: &Server) -> Outcome<Self> {
        Self::of(server, &[std::process::id()])
    }

    /// The same with other processes as clients.
    pub(crate) fn of(server: &Server, clients: &[u32]) -> Outcome<Self> {
        let postmaster = server.pid()?;
        let mut client = 0.0;
        for pid in clients {
            client += stat(&Path::new("/proc").join(pid.to_string()).join("stat"))?.spent;
        }
        let mut spent = 0.0;
        for entry in fs::read_dir("/proc")? {
            // A process may end while we look.
            let Ok(stat) = stat(&entry?.path().join("stat")) else { continue };
            if stat.pid == postmaster {
                spent += stat.spent + stat.spent_by_ended;
            } else if stat.parent == postmaster {
                spent += stat.spent;
            }
        }
        Ok(Self { server: spent, client })
    }

    /// What was spent since.
    pub(crate) fn since(self, before: Self) -> Self {
        Self { server: self.server - before.server, client: self.client - before.client }
    }
}

struct Stat {
    pid: u32,
    parent: u32,
    spent: f64,
    spent_by_ended: f64,
}

fn stat(path: &Path) -> Outcome<Stat> {
    let text = fs::read_to_string(path)?;
    // The name of the program, in parentheses, may have anything in it.
    let (start, rest) = text.rsplit_once(')').ok_or("no name")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| -> Outcome<f64> { Ok(fields.get(at).ok_or("too short")?.parse()?) };
    Ok(Stat {
        pid: start.split(' ').next().ok_or("no id")?.parse()?,
        parent: fields.get(1).ok_or("no parent")?.parse()?,
        spent: (number(11)? + number(12)?) / TICKS,
        spent_by_ended: (number(13)? + number(14)?) / TICKS,
    })
}
