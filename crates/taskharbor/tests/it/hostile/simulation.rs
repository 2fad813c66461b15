//! Workers on a store whose answers come late and whose failures are permanent.
//!
//! As the other simulation: `TASKHARBOR_SEED` runs one again, `TASKHARBOR_SIMULATIONS` more of them.

use super::*;
use crate::seed;

#[derive(Default)]
struct Seen {
    running: Mutex<HashSet<String>>,
    overlaps: AtomicUsize,
}

struct Within(Arc<Seen>, String);
impl Drop for Within {
    fn drop(&mut self) {
        self.0.running.lock().unwrap().remove(&self.1);
    }
}

fn troubled<T>(hook: &Actions<T>, seed: u64, calm: &Arc<AtomicBool>, latest: u64) {
    let (mut random, calm) = (fastrand::Rng::with_seed(seed), Arc::clone(calm));
    set(hook, move |_| {
        if calm.load(Ordering::SeqCst) {
            return Action::None;
        }
        match random.u8(..6) {
            0 => Action::Fail(DriverError::backend("for good, it says")),
            1 => Action::Fail(DriverError::ContractViolation("cannot count".to_owned())),
            2 => Action::Late(Duration::from_millis(random.u64(..latest))),
            3 => Action::Fail(DriverError::unavailable("away")),
            _ => Action::None,
        }
    });
}

async fn harsh(seed: u64) {
    let (rig, driver) = rig_with_interference();
    let mut random = fastrand::Rng::with_seed(seed);
    let calm = Arc::new(AtomicBool::new(false));
    troubled(&driver.settle, random.u64(..), &calm, 40_000);
    troubled(&driver.extend, random.u64(..), &calm, 40_000);
    // Shorter, so that what is known already is not found again.
    troubled(&driver.reserve, random.u64(..), &calm, 7_000);
    let seen = Arc::new(Seen::default());
    let start = |seed| {
        let seen = Arc::clone(&seen);
        let run = rig.worker(handler(move |job, cx| {
            let seen = Arc::clone(&seen);
            async move {
                if !seen.running.lock().unwrap().insert(job.name.clone()) {
                    seen.overlaps.fetch_add(1, Ordering::SeqCst);
                }
                let _within = Within(Arc::clone(&seen), job.name.clone());
                let n: u32 = job.name.parse().unwrap();
                tokio::time::sleep(SECOND * (n % 7) * 5).await;
                match n % 5 {
                    0 if cx.attempt() < 3 => Err("twice".into()),
                    1 if cx.delivery() == 1 => Ok(Outcome::Snooze(SECOND)),
                    _ => DONE,
                }
            }
        }));
        run.crash_limit(u32::MAX).seed(seed).build().unwrap().start()
    };
    let mut ids = Vec::new();
    for n in 0..100 {
        ids.push(rig.enqueue(&n.to_string()).await);
    }
    let workers: Vec<_> = (0..2).map(|_| start(random.u64(..))).collect();
    tokio::time::sleep(300 * SECOND).await;
    calm.store(true, Ordering::SeqCst);
    for (n, id) in ids.iter().enumerate() {
        let record = finished_within(&rig, id, 3_600 * SECOND).await;
        let record = record.unwrap_or_else(|| panic!("{seed}: job {n} never ends"));
        let attempts = if n % 5 == 0 { 2 } else { 0 };
        assert_eq!((record.state, record.job.attempts), (State::Done, attempts), "{seed}: {n}");
    }
    for worker in &workers {
        worker.shutdown().await.unwrap();
    }
    rig.check().await;
    assert_eq!(seen.overlaps.load(Ordering::SeqCst), 0, "{seed}: overlaps");
}

#[test]
fn nothing_is_lost_and_nothing_overlaps_on_a_slow_store_with_permanent_failures() {
    // These six have found something once.
    seed::play(&[602, 2_241, 3_157, 4_190, 4_960, 4_998], 100, harsh);
}
