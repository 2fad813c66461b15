//! The processor time of this process, which other processes on the machine hardly change.

use std::time::Duration;

use super::Outcome;

/// Linux reports processor time to programs in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

/// What all threads of this process have used so far.
pub(crate) fn used() -> Outcome<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name of the program stands in parentheses and may hold anything.
    let (_, fields) = stat.rsplit_once(')').ok_or("/proc/self/stat has no name")?;
    let mut times = fields.split_whitespace().skip(11).map(str::parse::<u32>);
    match (times.next(), times.next()) {
        (Some(Ok(user)), Some(Ok(system))) => Ok(TICK * user.saturating_add(system)),
        _ => Err("/proc/self/stat has no times".into()),
    }
}
