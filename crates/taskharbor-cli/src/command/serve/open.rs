//! Opening the stores of a server. Those that are there are served at once, and the others when they are.

use std::time::Duration;

use taskharbor::{AnyDriver, Driver, DriverError};
use tokio::{task::JoinSet, time::timeout};

use super::{log, named::Named};
use crate::{
    failure::{Failure, Outcome},
    store::{Missing, Opened},
};

/// How long a server starts without a store that does not answer.
const START: Duration = Duration::from_secs(2);
/// How long to wait before a store that answered with an error is opened again.
const PAUSE: Duration = Duration::from_secs(30);

/// Opens all stores at once; `None` for those that are away. One that cannot be used is an error: it would
/// stay so until an operator does something about it.
pub(super) async fn all(named: &[Named]) -> Outcome<Vec<Option<AnyDriver>>> {
    let mut opening = JoinSet::new();
    for (place, named) in named.iter().cloned().enumerate() {
        opening.spawn(async move {
            // A file is there or is made, however long that takes.
            let opened = match named.url.path() {
                Some(_) => once(&named).await,
                None => timeout(START, once(&named)).await.unwrap_or(Ok(None)),
            };
            (place, opened)
        });
    }
    let mut opened = vec![None; named.len()];
    for (place, driver) in opening.join_all().await {
        opened[place] = driver?;
    }
    Ok(opened)
}

async fn once(named: &Named) -> Outcome<Option<AnyDriver>> {
    match named.url.try_open(Missing::Create).await? {
        Opened::Driver(driver) => usable(driver).await.map(Some),
        Opened::Away(_) => Ok(None),
    }
}

/// Waits for a store that is away, and says so.
pub(super) async fn later(named: &Named) -> AnyDriver {
    let name = &named.name;
    loop {
        let say = |event: &'static str, text: &str| log::say(event, &format!("{name}: {text}"));
        let opened = match named.url.open_when_there(None, say).await {
            Ok(driver) => usable(driver).await,
            Err(failure) => Err(failure),
        };
        match opened {
            Ok(driver) => return driver,
            Err(failure) => log::say("store_failed", &format!("{name}: {}", failure.text)),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Refuses a store that answers with an error: without a schema, say, it would not answer later either.
async fn usable(driver: AnyDriver) -> Outcome<AnyDriver> {
    match driver.now().await {
        Err(error @ DriverError::Backend(_)) => {
            // Nothing was done with it.
            let _ = driver.close().await;
            Err(Failure::from(error))
        }
        // One that is away again is shown as that.
        Ok(_) | Err(_) => Ok(driver),
    }
}
