//! The rules one by one; `fleet` has many drivers at once.

mod fleet;

use super::*;

const MS: Duration = Duration::from_millis(1);
const ME: u64 = 1;
const OTHER: u64 = 2;

fn queue() -> QueueName {
    QueueName::new("q").unwrap()
}

fn id(sender: u64, number: u64) -> Id {
    Id { sender, number }
}

fn announced(id: Id, count: u32) -> Announced {
    Announced { id, queue: queue(), count, in_front: false, due_in: Duration::ZERO }
}

fn drained(own: Id, last: Option<Id>) -> Drained {
    Drained { queue: queue(), own, last, next_due_in: None, took: MS }
}

/// What a driver tells of a short look before it has measured how long a message takes.
fn unmeasured(own: Id, last: Option<Id>) -> Drained {
    Drained { took: MIN_PACE / LOOKS_IN_PACE, ..drained(own, last) }
}

/// One of this many listeners, the seed tells which, and the time.
fn one_of(listeners: u32, seed: u64) -> (Turns, Instant) {
    let mut turns = Turns::new(ME, seed);
    turns.serve(&queue());
    turns.set_listeners(&queue(), listeners, u32::try_from(seed).unwrap() % listeners);
    (turns, Instant::now())
}

/// One of a hundred that has to wait for its turn after this announcement.
fn waiting(first: Id) -> (Turns, Instant) {
    for seed in 0.. {
        let (mut turns, now) = one_of(100, seed);
        turns.announced(&announced(first, 1), now);
        if turns.take(now).is_empty() {
            println!("seed {seed}");
            return (turns, now);
        }
    }
    unreachable!("one of a hundred nearly always waits")
}

fn look(turns: &Turns) -> Seen {
    turns.begin_look(&[queue()]).pop().unwrap()
}

#[test]
fn a_listener_that_is_alone_looks_at_once() {
    for seed in 0..100 {
        let (mut turns, now) = one_of(1, seed);
        turns.announced(&announced(id(OTHER, 1), 1), now);
        assert_eq!(turns.take(now), [queue()]);
        assert_eq!(turns.take(now), []);
        assert_eq!(turns.next(), None);
    }
}

#[test]
fn as_many_jobs_as_listeners_make_all_of_them_look_at_once() {
    for seed in 0..100 {
        let (mut turns, now) = one_of(100, seed);
        turns.announced(&announced(id(OTHER, 1), 100), now);
        assert_eq!(turns.take(now), [queue()]);
    }
}

#[test]
fn two_of_many_listeners_look_at_once_for_a_job_and_mostly_others_for_the_next() {
    let mut looked = BTreeSet::new();
    for number in 0..100 {
        let at_once = |seed: &u64| {
            let (mut turns, now) = one_of(100, *seed);
            turns.announced(&announced(id(OTHER, number), 1), now);
            !turns.take(now).is_empty()
        };
        let first: Vec<u64> = (0..100).filter(at_once).collect();
        assert_eq!(first.len(), 2, "{number}");
        looked.extend(first);
    }
    assert!(looked.len() > 70, "{} of 100 have looked", looked.len());
}

#[test]
fn every_listener_has_its_turn_if_no_other_tells_of_a_look() {
    let longest = MIN_PACE.mul_f64(100_f64.ln());
    for seed in 0..1_000 {
        let (mut turns, now) = one_of(100, seed);
        turns.announced(&announced(id(OTHER, 1), 1), now);
        assert_eq!(turns.take(now + longest), [queue()], "seed {seed}");
    }
}

#[test]
fn a_listener_drops_its_turn_once_another_has_found_the_queue_drained() {
    let (mut turns, now) = waiting(id(3, 1));
    turns.drained(&drained(id(OTHER, 0), Some(id(3, 1))), now + MS);
    assert_eq!(turns.next(), None);
}

#[test]
fn a_look_that_began_before_an_announcement_does_not_resolve_it() {
    let (mut turns, now) = waiting(id(3, 1));
    turns.announced(&announced(id(3, 2), 1), now);
    turns.drained(&drained(id(OTHER, 0), Some(id(3, 1))), now + MS);
    assert!(turns.next().is_some());
    // Nor does one by a driver that has received other announcements, or none.
    turns.drained(&drained(id(OTHER, 0), Some(id(4, 9))), now + MS);
    turns.drained(&drained(id(OTHER, 0), None), now + MS);
    assert!(turns.next().is_some());
    turns.drained(&drained(id(OTHER, 0), Some(id(3, 2))), now + MS);
    assert_eq!(turns.next(), None);
}

#[test]
fn a_driver_resolves_what_it_announced_before_its_own_look() {
    let (mut turns, now) = waiting(id(OTHER, 4));
    turns.announced(&announced(id(OTHER, 5), 1), now);
    turns.drained(&drained(id(OTHER, 4), None), now + MS);
    assert!(turns.next().is_some());
    turns.drained(&drained(id(OTHER, 5), None), now + MS);
    assert_eq!(turns.next(), None);
}

#[test]
fn a_look_of_our_own_is_told_if_others_may_wait_for_the_same_jobs() {
    let (mut turns, now) = one_of(100, 7);
    assert_eq!(turns.begin_look(&[queue()]), []);
    turns.announced(&announced(id(OTHER, 1), 1), now);
    let seen = look(&turns);
    turns.announced(&announced(id(OTHER, 2), 1), now);
    let (told, is_news) = turns.end_look(seen, id(ME, 0), None, (now, now + MS));
    assert_eq!((told, is_news), (unmeasured(id(ME, 0), Some(id(OTHER, 1))), true));
    // The second one is still to be looked for.
    assert!(turns.next().is_some());
    let (_, is_news) = turns.end_look(look(&turns), id(ME, 0), None, (now, now + MS));
    assert!(is_news && turns.next().is_none());
    assert_eq!(turns.begin_look(&[queue()]), []);
}

#[test]
fn a_listener_that_is_alone_tells_nothing() {
    let (mut turns, now) = one_of(1, 7);
    turns.announced(&announced(id(OTHER, 1), 1), now);
    let (_, is_news) = turns.end_look(look(&turns), id(ME, 0), None, (now, now + MS));
    assert!(!is_news);
}

#[test]
fn an_announcement_of_our_own_makes_us_tell_and_not_wait() {
    let (mut turns, now) = one_of(100, 7);
    turns.announced_here(&queue(), id(ME, 1));
    let (told, is_news) = turns.end_look(look(&turns), id(ME, 1), None, (now, now + MS));
    assert_eq!((told, is_news), (unmeasured(id(ME, 1), None), true));
    // It comes back, and there is nothing more to tell.
    turns.announced(&announced(id(ME, 1), 1), now);
    assert_eq!((turns.next(), turns.begin_look(&[queue()])), (None, vec![]));
    // One that a look of ours has not covered stays open until another driver has looked.
    turns.announced_here(&queue(), id(ME, 2));
    turns.announced(&announced(id(ME, 2), 1), now);
    assert_eq!(turns.next(), None);
    turns.drained(&drained(id(OTHER, 0), Some(id(ME, 2))), now);
    assert_eq!(turns.begin_look(&[queue()]), []);
}

#[test]
fn a_job_for_later_is_looked_for_when_it_falls_due() {
    let later = Announced { due_in: 500 * MS, ..announced(id(OTHER, 1), 1) };
    let (mut turns, now) = one_of(1, 7);
    turns.announced(&later, now);
    assert_eq!(turns.take(now + 499 * MS), []);
    assert_eq!(turns.next(), Some(now + 500 * MS));
    assert_eq!(turns.take(now + 500 * MS), [queue()]);
    assert_eq!(turns.next(), None);
    // What is due in an hour is found by polls.
    turns.announced(&Announced { due_in: 3_600_000 * MS, ..later }, now);
    assert_eq!(turns.next(), None);
}

#[test]
fn a_look_that_finds_nothing_due_tells_when_to_look_next() {
    let (mut turns, now) = waiting(id(3, 1));
    let told = Drained { next_due_in: Some(5 * MS), ..drained(id(OTHER, 0), Some(id(3, 1))) };
    turns.drained(&told, now + MS);
    assert_eq!(turns.next(), Some(now + 6 * MS));
    let (told, _) = turns.end_look(
        Seen { queue: queue(), last: None },
        id(ME, 0),
        Some(HORIZON + MS),
        (now, now + MS),
    );
    assert_eq!(told.next_due_in, None);
}

#[test]
fn announcements_that_no_look_resolves_take_bounded_memory() {
    let (mut turns, now) = one_of(100, 7);
    for number in 0..10_000 {
        turns.announced(&announced(id(OTHER, number), 1), now);
        let later = Announced { due_in: 500 * MS, ..announced(id(OTHER, number), 1) };
        turns.announced(&later, now + u32::try_from(number).unwrap() * MS / 1_000);
        let turn = &turns.queues[&queue()];
        assert!(turn.open.len() <= MAX_OPEN && turn.due.len() <= MAX_DUE);
    }
    assert_eq!(turns.take(now), [queue()]);
}

#[test]
fn queues_without_workers_are_ignored() {
    let mut turns = Turns::new(ME, 7);
    let now = Instant::now();
    turns.announced(&announced(id(OTHER, 1), 1), now);
    turns.drained(&drained(id(OTHER, 1), None), now);
    turns.announced_here(&queue(), id(ME, 1));
    assert_eq!((turns.next(), turns.begin_look(&[queue()])), (None, vec![]));
    assert_eq!(turns.served().count(), 0);
}

#[test]
fn a_new_connection_begins_without_turns() {
    let (mut turns, _) = waiting(id(OTHER, 1));
    turns.reset();
    assert_eq!((turns.next(), turns.begin_look(&[queue()])), (None, vec![]));
}

#[test]
fn the_pace_follows_how_long_a_message_takes_to_come_back() {
    let (mut turns, now) = one_of(100, 7);
    for number in 0..50 {
        turns.announced(&announced(id(OTHER, number), 1), now);
        turns.end_look(look(&turns), id(ME, 0), None, (now, now + 5 * MS));
        turns.came_back(now + 20 * MS);
    }
    assert!(turns.pace().abs_diff(40 * MS) < MS, "{:?}", turns.pace());
    turns.came_back(now + 3_600_000 * MS);
    let (told, _) =
        turns.end_look(Seen { queue: queue(), last: None }, id(ME, 0), None, (now, now));
    assert!(told.took.abs_diff(15 * MS) < MS, "only what was sent comes back");
}

#[test]
fn the_pace_follows_how_long_looks_take() {
    let (mut turns, now) = one_of(100, 7);
    for (took, pace) in [(MS, MIN_PACE), (20 * MS, 40 * MS), (3_600_000 * MS, MAX_PACE)] {
        for _ in 0..50 {
            turns.drained(&Drained { took, ..drained(id(OTHER, 0), None) }, now);
        }
        assert!(turns.pace().abs_diff(pace) < MS, "{took:?}: {:?}", turns.pace());
    }
}
