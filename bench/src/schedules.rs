//! Schedules on any store: how long after its slot a job is stored, and how long it takes to fire many
//! schedules that are due in one second.

use std::{
    error::Error,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use taskharbor::{
    AnyDriver, Client, Context, Event, Handlers, JobResult, Overlap, Running, Schedule, Timestamp,
    Worker,
};
use taskharbor_core::clock::StoreClock;
use tokio::time::sleep;

use crate::{
    finding::{Bound, figure, head, percentile_ms},
    noop::Noop,
};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Workers that all fire the same schedules.
pub(crate) const WORKERS: usize = 20;
const SCHEDULES: usize = 10;
const MOST_LATE_MS: f64 = 250.0;
/// Workers that share a burst.
pub(crate) const BURST_WORKERS: usize = 4;
const BURST: usize = 10_000;
const MOST_BURST_S: f64 = 3.0;
/// The time to store the schedules of a burst and to start the workers.
const LEAD: Duration = Duration::from_secs(30);

/// How long after its slot each job was stored.
type Fired = Arc<Mutex<Vec<Duration>>>;

/// Starts a worker on each handle. Their clock is that of this machine, and so is the store's.
fn start(drivers: &[AnyDriver], fired: &Fired) -> Outcome<Vec<Running>> {
    let start = |driver: &AnyDriver| {
        let fired = Arc::clone(fired);
        let observe = move |event: &Event<'_>| {
            if let Event::ScheduleFired { slot, is_new: true, .. } = event {
                let late = StoreClock::wall_time().since(*slot);
                fired.lock().unwrap_or_else(PoisonError::into_inner).push(late);
            }
        };
        let handlers = Handlers::new().on(|_: Noop, _: Context| async { JobResult::Ok(()) });
        let worker = Worker::builder(driver).handlers(handlers).queue("default", 4);
        Ok(worker.observer(observe).build()?.start())
    };
    drivers.iter().map(start).collect()
}

async fn end(workers: Vec<Running>) -> Outcome {
    for worker in workers {
        worker.shutdown().await?;
    }
    Ok(())
}

fn taken(fired: &Fired) -> Vec<Duration> {
    fired.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Slots of every second, for this many seconds.
pub(crate) async fn on_time(drivers: &[AnyDriver], seconds: usize) -> Outcome {
    let (workers, fired) = (drivers.len(), Fired::default());
    head(&format!("schedules: {SCHEDULES} due every second, {workers} workers, for {seconds} s"));
    let client = Client::new(drivers.first().ok_or("no handle")?);
    let every = |n: usize| {
        let schedule = Schedule::every(format!("every-{n}"), Duration::from_secs(1));
        schedule.job(Noop::of_length(100)).overlap(Overlap::Allow)
    };
    client.schedules().put_many((0..SCHEDULES).map(every)).await?;
    let running = start(drivers, &fired)?;
    // Slots that fall into the start of twenty workers are not counted.
    sleep(Duration::from_secs(3)).await;
    let before = taken(&fired).len();
    sleep(Duration::from_secs(u64::try_from(seconds)?)).await;
    let late = taken(&fired).split_off(before);
    end(running).await?;
    for n in 0..SCHEDULES {
        client.schedules().remove(&format!("every-{n}")).await?;
    }
    if late.len() < SCHEDULES * seconds.saturating_sub(1) {
        return Err(format!("{} jobs in {seconds} s", late.len()).into());
    }
    for (percent, bound) in [(50, Bound::None), (99, Bound::AtMost(MOST_LATE_MS))] {
        let what = format!("slot to stored job, p{percent} of {}", late.len());
        figure(&what, percentile_ms(&late, percent), " ms", 1, bound);
    }
    Ok(())
}

/// Many schedules that are due in one second.
pub(crate) async fn burst(drivers: &[AnyDriver]) -> Outcome {
    let (workers, fired) = (drivers.len(), Fired::default());
    head(&format!("schedules: {BURST} due at once, {workers} workers"));
    let client = Client::new(drivers.first().ok_or("no handle")?);
    let slot = StoreClock::wall_time().saturating_add(LEAD);
    let expression = daily_at(slot);
    let daily = |n: usize| {
        let schedule = Schedule::cron(format!("daily-{n}"), &expression);
        schedule.job(Noop::of_length(100)).overlap(Overlap::Allow)
    };
    client.schedules().put_many((0..BURST).map(daily)).await?;
    let running = start(drivers, &fired)?;
    sleep(Duration::from_secs(2)).await;
    if !taken(&fired).is_empty() {
        return Err(format!("storing {BURST} schedules took longer than {LEAD:?}").into());
    }
    let deadline = slot.saturating_add(4 * LEAD);
    while taken(&fired).len() < BURST {
        if StoreClock::wall_time() > deadline {
            return Err(format!("{} of {BURST} slots were fired", taken(&fired).len()).into());
        }
        sleep(Duration::from_millis(100)).await;
    }
    end(running).await?;
    let last = taken(&fired).into_iter().max().unwrap_or_default().as_secs_f64();
    figure("slot to the last stored job", last, " s", 2, Bound::AtMost(MOST_BURST_S));
    Ok(())
}

/// The expression of this second of each day.
fn daily_at(slot: Timestamp) -> String {
    let second = slot.as_micros() / 1_000_000;
    format!("{} {} {} * * *", second % 60, second / 60 % 60, second / 3_600 % 24)
}
