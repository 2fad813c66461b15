//! The log that workers write to a file of its own, which no store can lose: one line for each event, appended by
//! one write. The store's clock may be set back, so a line has two times: the machine's, and the store's.

use std::{
    fmt::Display,
    fs::{File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use taskharbor_core::{JobId, Timestamp, clock::StoreClock, driver::LeaseToken};

use crate::Outcome;

/// Where processes write what they do, and read by how much the store's clock was moved.
pub(crate) struct Log {
    file: File,
    clock: PathBuf,
}

impl Log {
    pub(crate) fn open(dir: &Path) -> Outcome<Self> {
        let file = OpenOptions::new().create(true).append(true).open(log_file(dir))?;
        Ok(Self { file, clock: clock_file(dir) })
    }

    /// This time of the machine by the store's clock.
    pub(crate) fn by_the_store(&self, time: Timestamp) -> Timestamp {
        let millis = std::fs::read_to_string(&self.clock).ok();
        let millis: i64 = millis.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        Timestamp::from_micros(time.as_micros() + millis * 1_000).unwrap_or(time)
    }

    /// The store's time, in microseconds.
    pub(crate) fn store_now(&self) -> i64 {
        self.by_the_store(StoreClock::wall_time()).as_micros()
    }

    /// Writes a line. A process that cannot is of no use to the test.
    pub(crate) fn write(&self, what: impl Display) {
        let line = format!("{} {} {what}\n", now(), self.store_now());
        if (&self.file).write_all(line.as_bytes()).is_err() {
            std::process::exit(4);
        }
    }
}

pub(crate) fn log_file(dir: &Path) -> PathBuf {
    dir.join("log")
}

/// The machine's time, in microseconds.
pub(crate) fn now() -> i64 {
    StoreClock::wall_time().as_micros()
}

/// Moves the store's clock: this many milliseconds ahead of the machine's, or behind it.
pub(crate) fn set_clock(dir: &Path, shift_ms: i64) -> Outcome {
    // Renamed, so that no process reads half of it.
    let partial = dir.join("clock.partial");
    std::fs::write(&partial, shift_ms.to_string())?;
    Ok(std::fs::rename(partial, clock_file(dir))?)
}

fn clock_file(dir: &Path) -> PathBuf {
    dir.join("clock")
}

/// A line as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// The machine's time.
    pub(crate) at: i64,
    /// The store's.
    pub(crate) clock: i64,
    pub(crate) job: JobId,
    pub(crate) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A reserve that was sent at `asked`, by the store's clock, was answered with the job.
    Grant {
        delivery: u32,
        token: LeaseToken,
        expires_at: i64,
        asked: i64,
    },
    /// A heartbeat was accepted.
    Extend {
        token: LeaseToken,
        expires_at: i64,
    },
    /// A handler began, or ended.
    Start {
        delivery: u32,
    },
    End {
        delivery: u32,
        succeeded: bool,
    },
    /// A settlement that was sent at `began`, by the machine's clock, was recorded.
    Settle {
        token: LeaseToken,
        began: i64,
        ends: bool,
    },
}

impl Display for What {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Grant { delivery, token, expires_at, asked } => {
                write!(f, "grant {delivery} {:x} {expires_at} {asked}", token.to_bits())
            }
            Self::Extend { token, expires_at } => {
                write!(f, "extend {:x} {expires_at}", token.to_bits())
            }
            Self::Start { delivery } => write!(f, "start {delivery}"),
            Self::End { delivery, succeeded } => write!(f, "end {delivery} {succeeded}"),
            Self::Settle { token, began, ends } => {
                write!(f, "settle {:x} {began} {ends}", token.to_bits())
            }
        }
    }
}

/// Reads the lines of a log.
pub(crate) fn read(text: &str) -> Outcome<Vec<Line>> {
    let unknown = |line: &str| format!("invalid line in the log: {line:?}");
    text.lines().map(|line| parse(line).ok_or_else(|| unknown(line).into())).collect()
}

fn parse(line: &str) -> Option<Line> {
    let words: Vec<&str> = line.split(' ').collect();
    let token = |word: &str| Some(LeaseToken::from_bits(u128::from_str_radix(word, 16).ok()?));
    let [at, clock, job, rest @ ..] = words.as_slice() else { return None };
    let what = match rest {
        ["grant", delivery, by, end, asked] => What::Grant {
            delivery: delivery.parse().ok()?,
            token: token(by)?,
            expires_at: end.parse().ok()?,
            asked: asked.parse().ok()?,
        },
        ["extend", by, end] => What::Extend { token: token(by)?, expires_at: end.parse().ok()? },
        ["start", delivery] => What::Start { delivery: delivery.parse().ok()? },
        ["end", delivery, succeeded] => {
            What::End { delivery: delivery.parse().ok()?, succeeded: succeeded.parse().ok()? }
        }
        ["settle", by, began, ends] => {
            What::Settle { token: token(by)?, began: began.parse().ok()?, ends: ends.parse().ok()? }
        }
        _ => return None,
    };
    Some(Line {
        at: at.parse().ok()?,
        clock: clock.parse().ok()?,
        job: JobId::new(job).ok()?,
        what,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read_as_it_was_written() {
        let (token, expires_at) = (LeaseToken::from_bits(u128::MAX), 7);
        for what in [
            What::Grant { delivery: 1, token, expires_at, asked: 6 },
            What::Extend { token, expires_at },
            What::Start { delivery: 2 },
            What::End { delivery: 2, succeeded: true },
            What::Settle { token, began: 5, ends: false },
        ] {
            let line = Line { at: 3, clock: -4, job: JobId::new("a").unwrap(), what };
            let text = format!("{} {} {} {}\n", line.at, line.clock, line.job, line.what);
            assert_eq!(read(&text).unwrap(), [line]);
        }
        assert!(read("3 4 a grant 1\n").is_err());
    }
}
