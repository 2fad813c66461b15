//! Reserves disk space for the calls that free space.
//!
//! Recording an outcome and pruning take a little room before they free some. If producers could take
//! the last of it, a full store would stay full: the next enqueue would take all that is freed. So calls
//! that only add are refused while a reserve is left. Half of it is for the log to grow, and half for
//! writing the log back into the file: on a small disk the log is written back when it is smaller.

use rusqlite::Connection;

use crate::{Config, error::Fault};

/// The reserve, and which part of a small disk or file it is at most.
const RESERVE_BYTES: u64 = 16 * 1024 * 1024;
const RESERVE_PART: u64 = 8;

fn reserve(total: u64) -> u64 {
    RESERVE_BYTES.min(total / RESERVE_PART)
}

/// How large the log may grow before it is written back.
pub(crate) fn log_bytes(config: &Config) -> u64 {
    disk(config).map_or(RESERVE_BYTES, |(_, total)| reserve(total)) / 2
}

/// Fails if a call that adds jobs would take what is kept for others.
pub(crate) fn check(conn: &Connection, config: &Config) -> Result<(), Fault> {
    let number = |pragma: &str| -> Result<u64, Fault> {
        let mut statement = conn.prepare_cached(pragma)?;
        let number: i64 = statement.query_row([], |row| row.get(0))?;
        Ok(u64::try_from(number).unwrap_or(0))
    };
    let disk = disk(config);
    let is_scarce = |left: u64, total: u64| left < reserve(total);
    if config.max_bytes.is_none() && disk.is_none_or(|(left, total)| !is_scarce(left, total)) {
        return Ok(());
    }
    let page_bytes = number("PRAGMA page_size")?;
    let unused = number("PRAGMA freelist_count")? * page_bytes;
    let in_file = config.max_bytes.map(|max| {
        let used = (number("PRAGMA page_count")?) * page_bytes;
        Ok::<_, Fault>((max.saturating_sub(used) + unused, max))
    });
    let on_disk = disk.map(|(left, total)| Ok((left + unused, total)));
    for room in [in_file, on_disk].into_iter().flatten() {
        let (left, total) = room?;
        if is_scarce(left, total) {
            return Err(Fault::nearly_full(left));
        }
    }
    Ok(())
}

/// The bytes that are left on the disk of the file, and its size.
#[cfg(unix)]
fn disk(config: &Config) -> Option<(u64, u64)> {
    let disk = rustix::fs::statvfs(&config.path).ok()?;
    Some((disk.f_bavail.saturating_mul(disk.f_frsize), disk.f_blocks.saturating_mul(disk.f_frsize)))
}

#[cfg(not(unix))]
fn disk(_: &Config) -> Option<(u64, u64)> {
    None
}
