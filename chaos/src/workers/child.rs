//! A worker in a process of its own. It ends when its standard input does, so that none is left behind.

use std::{io::Write, path::Path, sync::Arc, time::Duration};

use taskharbor::{AnyDriver, Event, Exponential, Retention, Worker, connect};
use taskharbor_core::{
    DriverError, State,
    driver::{Settled, Transition},
};
use taskharbor_testkit::{Answer, Call, Hook, Intercept, Next};
use tokio::{io::AsyncReadExt, time::sleep};

use super::{
    LEASE,
    job::handlers,
    log::{self, Log, What},
    process::Recovery,
};
use crate::Outcome;

/// How long handlers may take to finish when the process is asked to end.
const GRACE: Duration = Duration::from_secs(2);

/// What workers with fast recovery have.
const LONG_LEASE: Duration = Duration::from_secs(600);
const FAST: Duration = Duration::from_secs(10);

/// Works on the store at this address until the process is asked to end.
pub(super) async fn work(url: &str, dir: &Path, slots: usize, recovery: Recovery) -> Outcome {
    tokio::spawn(async {
        let (mut input, mut nothing) = (tokio::io::stdin(), [0; 1]);
        // The parent never writes, so every result means that it has ended.
        let _ = input.read(&mut nothing).await;
        std::process::exit(3);
    });
    let log = Arc::new(Log::open(dir)?);
    let driver = loop {
        match connect(url).await {
            Ok(driver) => break driver,
            // The store may be away at the moment.
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    };
    let driver = AnyDriver::new(Intercept::new(driver, Witness(Arc::clone(&log))));
    let worker = Worker::builder(&driver);
    let worker = match recovery {
        Recovery::ByLease => worker.lease(LEASE),
        Recovery::Fast => worker.lease(LONG_LEASE).fast_recovery(FAST),
    };
    let worker = worker
        .handlers(handlers(log))
        .queue("default", slots)
        .poll(Duration::from_millis(200))
        .call_timeout(Duration::from_secs(2))
        .grace(GRACE)
        .cancel_wait(Duration::from_secs(1))
        // Processes die all the time here, and no job is to blame.
        .crash_limit(1_000_000)
        .retry(Exponential::new().base(Duration::from_millis(50)))
        .retention(Retention::keep_all())
        .observer(|event: &Event<'_>| {
            if let Event::WorkerStarted { .. } = event {
                // The parent waits for this line. If it has gone, so will this process.
                let _ = std::io::stdout().write_all(b"started\n");
            }
        })
        .build()?;
    Ok(worker.run().await?)
}

/// Writes down every grant, extension and settlement that the store has answered, and moves the store's
/// clock.
#[derive(Clone)]
pub(super) struct Witness(pub(super) Arc<Log>);

impl Hook<AnyDriver> for Witness {
    async fn around(&self, call: Call, next: Next<'_, AnyDriver>) -> Result<Answer, DriverError> {
        let Self(log) = self;
        let (began, asked) = (log::now(), log.store_now());
        let request = call.clone();
        let answer = next.make(call).await?;
        match (request, &answer) {
            (_, Answer::StoreTime(time)) => {
                return Ok(Answer::StoreTime(log.by_the_store(*time)));
            }
            (_, Answer::Reserve(reserved)) => {
                for leased in &reserved.jobs {
                    let (delivery, token) = (leased.job.deliveries, leased.lease.token);
                    let expires_at = leased.lease.expires_at.as_micros();
                    let what = What::Grant { delivery, token, expires_at, asked };
                    log.write(format_args!("{} {what}", leased.job.id));
                }
            }
            (Call::ExtendLeases { request }, Answer::ExtendLeases(answers)) => {
                for (item, answer) in request.items.iter().zip(answers) {
                    let Ok(extended) = answer else { continue };
                    let expires_at = extended.lease.expires_at.as_micros();
                    let what = What::Extend { token: item.token, expires_at };
                    log.write(format_args!("{} {what}", item.id));
                }
            }
            (Call::Settle { request }, Answer::Settle(answers)) => {
                for (item, answer) in request.items.iter().zip(answers) {
                    if !matches!(answer, Ok(Settled::Applied)) {
                        continue;
                    }
                    let what =
                        What::Settle { token: item.token, began, ends: ends(&item.transition) };
                    log.write(format_args!("{} {what}", item.id));
                }
            }
            _ => {}
        }
        Ok(answer)
    }
}

fn ends(transition: &Transition) -> bool {
    State::Inflight.after(transition.step()).is_some_and(State::is_terminal)
}
