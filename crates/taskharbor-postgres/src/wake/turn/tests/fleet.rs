//! Many drivers and one queue, in simulated time: how many look, how soon, and whether a job is
//! ever left.

use std::collections::BTreeMap;

use super::*;

/// How long a reserve takes, and a message.
const RESERVE_TIME: Duration = Duration::from_millis(2);
const DELIVERY: Duration = Duration::from_millis(1);

#[derive(Debug)]
enum Step {
    /// This many jobs are stored.
    Enqueue(usize),
    /// Time for a driver to see whether it is its turn.
    Turn(usize),
    /// The look of a driver reaches the store.
    Look(usize),
    /// A driver ends a job and looks again.
    Free(usize),
    /// A driver is told that the queue was found drained; the one that found it, too.
    Drained(usize, Drained),
    CameBack(usize),
    /// The end.
    Stop,
}

struct Driver {
    turns: Turns,
    free: usize,
    slots: usize,
    is_looking: bool,
}

struct Fleet {
    drivers: Vec<Driver>,
    steps: BTreeMap<(Instant, u64), Step>,
    planned: u64,
    start: Instant,
    random: Random,
    /// How many jobs are in the queue.
    waiting: usize,
    announcements: u64,
    looks: usize,
    first_grant: Option<Instant>,
    /// How likely a message about a look is lost.
    loss: f64,
    /// How long jobs run, and looks.
    run_for: Duration,
    look_for: Duration,
    /// How long a message about a look takes.
    tell_for: Duration,
}

impl Fleet {
    fn new(drivers: usize, slots: usize, seed: u64) -> Self {
        let listeners = u32::try_from(drivers).unwrap();
        let driver = |at: usize| {
            let sender = u64::try_from(at).unwrap() + 10;
            let mut turns = Turns::new(sender, seed.wrapping_mul(1_000_003) + sender);
            turns.serve(&queue());
            turns.set_listeners(&queue(), listeners, u32::try_from(at).unwrap());
            Driver { turns, free: slots, slots, is_looking: false }
        };
        Self {
            drivers: (0..drivers).map(driver).collect(),
            steps: BTreeMap::new(),
            planned: 0,
            start: Instant::now(),
            random: Random(seed),
            waiting: 0,
            announcements: seed,
            looks: 0,
            first_grant: None,
            loss: 0.0,
            run_for: Duration::from_secs(60),
            look_for: RESERVE_TIME,
            tell_for: DELIVERY,
        }
    }

    fn plan(&mut self, at: Instant, step: Step) {
        self.planned += 1;
        self.steps.insert((at, self.planned), step);
    }

    /// Runs until nothing happens any more or it is stopped; no driver polls.
    fn run(&mut self) {
        while let Some(((now, _), step)) = self.steps.pop_first() {
            match step {
                Step::Enqueue(count) => {
                    self.waiting += count;
                    self.announcements += 1;
                    let count = u32::try_from(count).unwrap();
                    let message = announced(id(OTHER, self.announcements), count);
                    for at in 0..self.drivers.len() {
                        self.drivers[at].turns.announced(&message, now + DELIVERY);
                        self.plan(now + DELIVERY, Step::Turn(at));
                    }
                }
                Step::Turn(at) => {
                    let driver = &mut self.drivers[at];
                    if !driver.turns.take(now).is_empty() && driver.free > 0 && !driver.is_looking {
                        driver.is_looking = true;
                        self.plan(now, Step::Look(at));
                    }
                    if let Some(next) = self.drivers[at].turns.next() {
                        self.plan(next.max(now + MS / 10), Step::Turn(at));
                    }
                }
                Step::Look(at) => self.look(at, now),
                Step::Stop => return,
                Step::Drained(at, told) => self.drivers[at].turns.drained(&told, now),
                Step::CameBack(at) => self.drivers[at].turns.came_back(now),
                Step::Free(at) => {
                    let driver = &mut self.drivers[at];
                    driver.free += 1;
                    if !driver.is_looking {
                        driver.is_looking = true;
                        self.plan(now, Step::Look(at));
                    }
                }
            }
        }
    }

    fn look(&mut self, at: usize, now: Instant) {
        self.looks += 1;
        let driver = &mut self.drivers[at];
        let seen = driver.turns.begin_look(&[queue()]);
        let granted = driver.free.min(self.waiting);
        let is_drained = granted < driver.free;
        driver.free -= granted;
        driver.is_looking = false;
        self.waiting -= granted;
        if granted > 0 {
            self.first_grant.get_or_insert(now + self.look_for);
        }
        for _ in 0..granted {
            self.plan(now + self.run_for, Step::Free(at));
        }
        let Some(seen) = seen.into_iter().next().filter(|_| is_drained) else { return };
        let own = id(self.drivers[at].turns.sender, 0);
        let times = (now, now + self.look_for);
        let (told, is_news) = self.drivers[at].turns.end_look(seen, own, None, times);
        for other in (0..self.drivers.len()).filter(|_| is_news) {
            if self.random.unit() > self.loss {
                let step = match other == at {
                    true => Step::CameBack(at),
                    false => Step::Drained(other, told.clone()),
                };
                self.plan(times.1 + self.tell_for, step);
            }
        }
    }
}

/// How many looks one job costs, and after how long it is granted, in a fleet of which some are
/// idle.
fn one_job(drivers: usize, idle: usize, slots: usize, seed: u64) -> (usize, Duration) {
    let mut fleet = Fleet::new(drivers, slots, seed);
    fleet.drivers[idle..].iter_mut().for_each(|driver| driver.free = 0);
    fleet.run_for = Duration::from_secs(3_600);
    let start = fleet.start;
    fleet.plan(start, Step::Enqueue(1));
    fleet.plan(start + Duration::from_secs(60), Step::Stop);
    fleet.run();
    assert_eq!(fleet.waiting, 0, "seed {seed}");
    (fleet.looks, fleet.first_grant.unwrap() - start)
}

/// The mean number of looks, the 99th percentile of them, and that of the time.
fn over_seeds(drivers: usize, idle: usize, slots: usize) -> (usize, usize, Duration) {
    let (mut looks, mut times): (Vec<_>, Vec<_>) =
        (0..1_000).map(|seed| one_job(drivers, idle, slots, seed)).unzip();
    looks.sort_unstable();
    times.sort_unstable();
    let mean = looks.iter().sum::<usize>() / looks.len();
    println!(
        "{drivers} drivers, {idle} idle, {slots} slots: {mean} looks, p99 {}, {:?}",
        looks[989], times[989]
    );
    (mean, looks[989], times[989])
}

#[test]
fn one_job_makes_few_of_many_idle_drivers_look() {
    for drivers in [2, 10, 100, 1_000] {
        for slots in [1, 10] {
            let (mean, most, time) = over_seeds(drivers, drivers, slots);
            assert!(mean <= 2 && most <= 3 && time <= RESERVE_TIME + DELIVERY);
        }
    }
}

#[test]
fn a_job_does_not_wait_for_drivers_that_are_busy() {
    for (drivers, idle) in [(10, 1), (100, 1), (100, 10), (1_000, 1)] {
        let (mean, _, time) = over_seeds(drivers, idle, 10);
        assert!(mean <= 5 && time <= RESERVE_TIME + DELIVERY + MIN_PACE * 7);
    }
}

#[test]
fn many_jobs_make_many_drivers_look_at_once() {
    for seed in 0..100 {
        let mut fleet = Fleet::new(100, 10, seed);
        fleet.plan(fleet.start, Step::Enqueue(1_000));
        fleet.plan(fleet.start + 5 * MS, Step::Stop);
        fleet.run();
        assert_eq!(fleet.waiting, 0, "seed {seed}");
    }
}

/// Jobs come in at random, run for a while, messages about looks get lost, and no driver polls.
#[test]
fn no_job_is_left_while_a_driver_is_idle() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let slots = if random.unit() < 0.5 { 1 } else { 5 };
        let mut fleet = Fleet::new(20, slots, seed);
        fleet.loss = if random.unit() < 0.5 { 0.0 } else { 0.3 };
        fleet.run_for = Duration::from_millis(20).mul_f64(random.unit());
        let mut at = fleet.start;
        for _ in 0..200 {
            at += Duration::from_millis(20).mul_f64(random.unit());
            fleet.plan(at, Step::Enqueue(1 + usize::from(random.unit() < 0.1) * 30));
        }
        fleet.run();
        assert_eq!(fleet.waiting, 0, "seed {seed}");
        assert!(fleet.drivers.iter().all(|it| it.free == it.slots), "seed {seed}");
    }
}

#[test]
fn a_store_that_is_slow_to_answer_or_to_tell_makes_drivers_wait_longer_for_their_turns() {
    for (seed, is_slow_to_tell) in (0..20).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut fleet = Fleet::new(100, 10, seed);
        let slow = if is_slow_to_tell { &mut fleet.tell_for } else { &mut fleet.look_for };
        *slow = Duration::from_millis(25);
        fleet.run_for = Duration::from_secs(3_600);
        for number in 0..20 {
            fleet.plan(fleet.start + Duration::from_secs(number), Step::Enqueue(1));
        }
        fleet.plan(fleet.start + Duration::from_millis(9_999), Step::Stop);
        fleet.run();
        let learning = fleet.looks;
        fleet.plan(fleet.start + Duration::from_secs(60), Step::Stop);
        fleet.run();
        let mean = (fleet.looks - learning) / 10;
        println!("seed {seed}: {learning} looks for ten jobs at first, then {mean} for one");
        assert!(mean <= 5, "seed {seed}");
        assert_eq!(fleet.waiting, 0, "seed {seed}");
    }
}
