//! Workers that reserve ahead, come, go and die on a store that misbehaves at random.

use super::*;
use crate::seed;

const ROUNDS: usize = 8;

async fn simulate(seed: u64, most: &Mutex<usize>) {
    let (rig, waiting) = (slow_rig(), Arc::new(Waiting::default()));
    let mut random = fastrand::Rng::with_seed(seed);
    let running: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let start = |seed| {
        let running = Arc::clone(&running);
        let run = rig.worker(handler(move |job, cx| {
            let running = Arc::clone(&running);
            async move {
                let id = cx.id().to_string();
                *running.lock().unwrap().entry(id.clone()).or_default() += 1;
                let at_once = running.lock().unwrap()[&id];
                let _guard = Within(Arc::clone(&running), id);
                assert_eq!(at_once, 1, "{} runs twice at the same time", job.name);
                let millis: u32 = job.name.parse().unwrap();
                if millis > 0 {
                    tokio::time::sleep(MS * millis).await;
                }
                DONE
            }
        }));
        let run = run.observer(Arc::clone(&waiting)).crash_limit(u32::MAX);
        run.call_timeout(5 * SECOND).seed(seed).build().unwrap().start()
    };
    let mut workers: Vec<_> = (0..2).map(|_| start(random.u64(..))).collect();
    let mut ids = Vec::new();
    for _ in 0..ROUNDS {
        rig.store.calm();
        rig.store.takes(Duration::from_micros(random.u64(100..3_000)));
        // Short jobs, so that the worker learns to reserve ahead, and behind them some that are not.
        let short = random.u32(..3);
        ids.extend(enqueue(&rig, random.usize(200..800), short).await);
        ids.extend(enqueue(&rig, random.usize(..40), random.u32(..5_000)).await);
        tokio::time::sleep(Duration::from_millis(random.u64(..40))).await;
        if random.bool() {
            rig.store.chaos(random.u64(..), 0.05);
        }
        let failing: Vec<Op> =
            Op::ALL.into_iter().filter(|op| *op != Op::Enqueue && random.u8(..6) == 0).collect();
        rig.store.down(&failing);
        tokio::time::sleep(Duration::from_millis(random.u64(..2_000))).await;
        rig.store.up();
        let at = random.usize(..workers.len());
        match random.u8(..3) {
            0 => workers[at].abort(),
            1 => tokio::time::sleep(Duration::from_millis(random.u64(..60_000))).await,
            _ => {}
        }
        // Dropping one that was not aborted shuts it down meanwhile.
        workers[at] = start(random.u64(..));
    }
    rig.store.calm();
    for id in &ids {
        let record = rig.finished(id).await;
        assert_eq!((record.state, record.job.attempts), (State::Done, 0), "{id}");
    }
    for worker in &workers {
        worker.shutdown().await.unwrap();
    }
    rig.check().await;
    let mut most = most.lock().unwrap();
    *most = waiting.most().max(*most);
}

struct Within(Arc<Mutex<HashMap<String, usize>>>, String);

impl Drop for Within {
    fn drop(&mut self) {
        *self.0.lock().unwrap().entry(self.1.clone()).or_default() -= 1;
    }
}

#[test]
fn nothing_is_lost_and_nothing_overlaps_when_jobs_are_reserved_ahead() {
    let most = Mutex::new(0);
    seed::play(&[], 20, async |seed| simulate(seed, &most).await);
    let most = most.into_inner().unwrap();
    assert!(most > 32, "no job waited for a slot: {most}");
}
