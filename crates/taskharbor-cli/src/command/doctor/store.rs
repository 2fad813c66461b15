//! The checks of the store: its answers, their time, and its wake-ups.

use std::time::Duration;

use taskharbor::{Admin, AnyDriver, Driver, DriverError, QueueName, Timestamp};
use taskharbor_core::admin::{Change, Configure, Diagnosis};
use tokio::time::{Instant, timeout};

use super::Checked;
use crate::{
    screen::span,
    store::{Missing, Url},
};

/// A call takes longer than this over a bad network, or on a server that is busy.
const SLOW: Duration = Duration::from_millis(250);
/// A clock that differs by less does no harm.
const CLOCK: Duration = Duration::from_secs(5);
const WAKE_UP: Duration = Duration::from_secs(1);

/// What a store that answers has said.
pub(super) struct Answered {
    pub(super) lines: Vec<Diagnosis>,
    pub(super) time: Timestamp,
}

pub(super) async fn time(url: &Url, driver: &AnyDriver) -> Result<Answered, DriverError> {
    let began = Instant::now();
    let theirs = driver.store_time().await?;
    let took = began.elapsed();
    let answered = format!("{} answered in {}", url.shown(), span(took));
    let answer = if took > SLOW {
        let advice = "each call waits for this: look at the network and at the load of the server";
        Diagnosis::warning("store", answered, advice)
    } else {
        Diagnosis::fine("store", answered)
    };
    Ok(Answered { lines: vec![answer, clock(theirs)], time: theirs })
}

fn clock(theirs: Timestamp) -> Diagnosis {
    #[expect(clippy::disallowed_methods, reason = "the machine's clock is what is looked at")]
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let ours = since_epoch.ok().and_then(|it| i64::try_from(it.as_micros()).ok());
    let ours = ours.and_then(|micros| Timestamp::from_micros(micros).ok()).unwrap_or(theirs);
    let ahead = ours.since(theirs).max(theirs.since(ours));
    let found = format!("this machine and the store differ by {}", span(ahead));
    if ahead > CLOCK {
        let advice = "jobs go by the store's clock, so nothing is lost: but times that programs here \
                      compute are wrong; set the clock of this machine (NTP)";
        return Diagnosis::warning("clock", found, advice);
    }
    Diagnosis::fine("clock", found)
}

/// Sends a wake-up through the store, by ending a hold that is not there, and waits for it.
pub(super) async fn wake_up(url: &Url, driver: &AnyDriver) -> Checked {
    let queue = QueueName::new("taskharbor-doctor").map_err(|it| backend(&it))?;
    let mut watch = driver.watch(vec![queue.clone()]).await?;
    // In this process a wake-up would not have to go through the store.
    let other = url.open(Missing::Refuse).await;
    let other = other.map_err(|failure| DriverError::unavailable(failure.text))?;
    let now = other.now().await?;
    let (began, mut found) = (Instant::now(), None);
    while found.is_none() && began.elapsed() < WAKE_UP {
        let end = Change::Hold { queue: queue.clone(), lane: None, until: None };
        for answer in other.configure(Configure::new(vec![end], now)).await? {
            answer.map_err(|denied| backend(&denied))?;
        }
        if let Ok(Some(_)) = timeout(WAKE_UP / 4, watch.woken()).await {
            found = Some(began.elapsed());
        }
    }
    let problem = watch.problem().map_or_else(String::new, |it| format!(": {it}"));
    Ok(vec![match found {
        Some(took) => Diagnosis::fine("wake-ups", format!("one arrived after {}", span(took))),
        None => Diagnosis::warning(
            "wake-ups",
            format!("none arrived within {}{problem}", span(WAKE_UP)),
            "workers find jobs by asking once a second; on PostgreSQL let them connect past a pooler \
             in transaction mode (docs/guides/postgres.md)",
        ),
    }])
}

fn backend(error: &impl ToString) -> DriverError {
    DriverError::backend(error.to_string())
}
