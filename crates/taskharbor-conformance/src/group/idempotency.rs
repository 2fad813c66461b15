//! Idempotency keys: one job for each key of a queue, for as long as the key is held.

use std::collections::HashSet;

use taskharbor_core::{
    Admin, NewJob, State,
    admin::{Action, Filter, Prune},
    driver::Enqueued,
    job::{JobSet, KeyHold},
};

use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{LEASE, T0, ack, at, expand, fail, id, job, job_in, key, release, requeue, retry},
};

group! {
    idempotency {
        a_held_key_answers_the_id_of_its_holder_and_changes_nothing ["KEY-1"]
        a_job_that_is_not_stored_for_its_key_leaves_its_id_free ["KEY-1"]
        the_id_is_looked_at_before_the_key ["KEY-1"]
        a_job_whose_id_is_stored_does_not_take_the_key_it_brings ["KEY-1" "ENQ-4"]
        a_key_belongs_to_its_queue ["KEY-2"]
        a_separator_in_a_name_does_not_mix_queue_and_key ["KEY-2"]
        no_two_pairs_are_taken_for_one ["KEY-2"]
        keys_are_compared_byte_for_byte ["KEY-2" "JOB-3"]
        names_of_the_greatest_length_are_told_apart_by_their_last_byte ["KEY-2" "JOB-3"]
        a_key_is_held_in_every_state_of_its_job ["KEY-3" "KEY-5"]
        a_purged_job_gives_its_key_back ["KEY-3"]
        a_pruned_job_gives_its_key_back ["KEY-3" "PRU-3"]
        a_key_until_done_is_free_as_soon_as_its_job_is ["KEY-4"]
        a_key_until_done_is_held_in_every_other_state ["KEY-4" "KEY-5"]
        how_long_a_key_is_held_is_the_holders_to_say ["KEY-3" "KEY-4"]
        a_key_taken_by_another_is_not_freed_with_its_first_job ["KEY-3" "KEY-4"]
        a_job_does_not_collide_with_itself_on_any_way ["KEY-5"]
        a_requeued_job_frees_its_key_when_it_is_done ["KEY-4" "KEY-5"]
        a_key_repeated_inside_one_call_is_existing ["KEY-1" "ENQ-5"]
        a_rejected_set_does_not_take_its_keys ["KEY-1" "ENQ-2"]
        racing_enqueues_with_one_key_store_one_job ["KEY-6"]
        racing_batches_with_keys_in_opposite_orders_store_each_once ["KEY-6"]
        enqueues_racing_the_ack_that_frees_a_key_store_at_most_one ["KEY-4" "KEY-6"]
    }
    flows {
        a_key_until_done_waits_for_the_expansion_of_its_job ["KEY-4" "EXP-1"]
    }
}

fn inserted(text: &str) -> Enqueued {
    Enqueued::Inserted(id(text))
}

fn existing(text: &str) -> Enqueued {
    Enqueued::Existing(id(text))
}

/// A job in the queue `q` with a key.
fn keyed(text: &str, key_text: &str) -> NewJob {
    job(text).idempotency_key(key(key_text))
}

/// A job whose key is held until it is done.
fn until_done(text: &str, key_text: &str) -> NewJob {
    keyed(text, key_text).key_hold(KeyHold::UntilDone)
}

async fn a_held_key_answers_the_id_of_its_holder_and_changes_nothing(t: DriverUnderTest) {
    assert_eq!(t.put(keyed("a", "k"), T0).await, inserted("a"));
    let stored = t.snapshot(T0).await;
    let second = keyed("b", "k").priority(5).run_at(at(9)).max_attempts(2);
    assert_eq!(t.put(second, at(1)).await, existing("a"));
    assert_eq!(t.snapshot(T0).await, stored);
}

async fn a_job_that_is_not_stored_for_its_key_leaves_its_id_free(t: DriverUnderTest) {
    t.put(keyed("a", "k"), T0).await;
    assert_eq!(t.put(keyed("b", "k"), T0).await, existing("a"));
    assert_eq!(t.put(keyed("b", "other"), T0).await, inserted("b"));
}

async fn the_id_is_looked_at_before_the_key(t: DriverUnderTest) {
    t.put(keyed("a", "k"), T0).await;
    t.put(keyed("b", "l"), T0).await;
    assert_eq!(t.put(keyed("b", "k"), T0).await, existing("b"));
    assert_eq!(t.put(keyed("a", "l"), T0).await, existing("a"));
    assert_eq!(t.put(job("a"), T0).await, existing("a"));
}

async fn a_job_whose_id_is_stored_does_not_take_the_key_it_brings(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    assert_eq!(t.put(keyed("a", "k"), T0).await, existing("a"));
    assert_eq!(t.put(keyed("b", "k"), T0).await, inserted("b"));
}

async fn a_key_belongs_to_its_queue(t: DriverUnderTest) {
    for name in ["x", "y", "z"] {
        let first = job_in(name, name).idempotency_key(key("k"));
        assert_eq!(t.put(first, T0).await, inserted(name));
    }
    for name in ["x", "y", "z"] {
        let again = job_in(name, "again").idempotency_key(key("k"));
        assert_eq!(t.put(again, T0).await, existing(name));
    }
}

/// Every one of these pairs of queue and key is another; then every one again.
async fn assert_all_different(t: &DriverUnderTest, pairs: &[(&str, &str)]) {
    for (n, (name, key_text)) in pairs.iter().enumerate() {
        let first = job_in(name, &n.to_string()).idempotency_key(key(key_text));
        let answer = t.put(first, T0).await;
        assert_eq!(answer, inserted(&n.to_string()), "{name:?} {key_text:?}");
    }
    for (n, (name, key_text)) in pairs.iter().enumerate() {
        let again = job_in(name, "again").idempotency_key(key(key_text));
        let answer = t.put(again, T0).await;
        assert_eq!(answer, existing(&n.to_string()), "{name:?} {key_text:?}");
    }
}

async fn a_separator_in_a_name_does_not_mix_queue_and_key(t: DriverUnderTest) {
    let separators = [
        ":", "::", "/", "|", "-", "_", ".", ",", ";", " ", "#", "\\", "'", "\"", "\u{a0}",
        "\u{2028}",
    ];
    for separator in separators {
        let (left, right) = (format!("a{separator}b"), format!("b{separator}c"));
        let (before, after) = (format!("a{separator}"), format!("{separator}b"));
        let pairs = [(&*left, "c"), ("a", &*right), (&*before, "b"), ("a", &*after)];
        for (name, key_text) in pairs {
            let text = format!("{name}\u{2060}{key_text}");
            let first = job_in(name, &text).idempotency_key(key(key_text));
            assert_eq!(t.put(first, T0).await, inserted(&text));
        }
    }
}

async fn no_two_pairs_are_taken_for_one(t: DriverUnderTest) {
    assert_all_different(
        &t,
        &[
            ("a", "b:c"),
            ("a:b", "c"),
            ("ab", "c"),
            ("a", "bc"),
            ("1:a", "b"),
            ("1", "a:b"),
            ("1:a1", "b"),
            ("1:a", "1:b"),
            ("1", ":a1:b"),
            ("11", "ab"),
            ("1", "1ab"),
            ("{a}", "b"),
            ("a", "{b}"),
            ("(a,b)", "c"),
            ("(a", "b),c"),
            ("null", "null"),
            ("NULL", "null"),
            ("0", "00"),
            ("00", "0"),
        ],
    )
    .await;
}

async fn keys_are_compared_byte_for_byte(t: DriverUnderTest) {
    let names =
        ["k", "K", "k ", " k", "k\u{301}", "ḱ", "ſ", "s", "ß", "ss", "%", "_", "1", "1.0", "01"];
    let pairs: Vec<_> = names.iter().map(|name| ("q", *name)).collect();
    assert_all_different(&t, &pairs).await;
}

async fn names_of_the_greatest_length_are_told_apart_by_their_last_byte(t: DriverUnderTest) {
    let long = |bytes: usize, last: char| format!("{}{last}", "x".repeat(bytes - 1));
    for (name, key_text) in [('a', 'a'), ('a', 'b'), ('b', 'a'), ('b', 'b')] {
        let (name, key_text) = (long(255, name), long(1_024, key_text));
        let text = format!("{}{}", &name[253..], &key_text[771..]);
        assert_eq!(text.len(), 255);
        let first = job_in(&name, &text).idempotency_key(key(&key_text));
        assert_eq!(t.put(first, T0).await, inserted(&text));
        let again = job_in(&name, "again").idempotency_key(key(&key_text));
        assert_eq!(t.put(again, T0).await, existing(&text));
        let stored = t.record(&text, T0).await.job.idempotency_key;
        assert_eq!(stored, Some(key(&key_text)));
    }
}

async fn a_key_is_held_in_every_state_of_its_job(t: DriverUnderTest) {
    for state in t.job_states() {
        let name = state.as_str();
        t.bring(job_in(name, name).idempotency_key(key("k")), state).await;
        let second = job_in(name, "second").idempotency_key(key("k"));
        assert_eq!(t.put(second, at(1)).await, existing(name));
    }
}

async fn a_purged_job_gives_its_key_back(t: DriverUnderTest) {
    t.bring(keyed("a", "k"), State::Done).await;
    t.act("a", Action::Purge, at(1)).await;
    assert_eq!(t.put(keyed("b", "k"), at(1)).await, inserted("b"));
    assert_eq!(t.put(keyed("c", "k"), at(1)).await, existing("b"));
}

async fn a_pruned_job_gives_its_key_back(t: DriverUnderTest) {
    t.bring(keyed("a", "k"), State::Done).await;
    let end = T0.saturating_add(LEASE);
    let request = Prune::new(10, end).done_before(end);
    assert_eq!(t.driver.prune(request).await.expect("prune"), 1);
    assert_eq!(t.put(keyed("b", "k"), end).await, inserted("b"));
}

async fn a_key_until_done_is_free_as_soon_as_its_job_is(t: DriverUnderTest) {
    t.bring(until_done("a", "k"), State::Done).await;
    assert_eq!(t.put(until_done("b", "k"), T0).await, inserted("b"));
    assert_eq!(t.put(until_done("c", "k"), T0).await, existing("b"));
    assert_eq!(t.record("a", T0).await.job.idempotency_key, Some(key("k")));
}

async fn a_key_until_done_is_held_in_every_other_state(t: DriverUnderTest) {
    for state in t.job_states().into_iter().filter(|it| *it != State::Done) {
        let name = state.as_str();
        let first = job_in(name, name).idempotency_key(key("k"));
        t.bring(first.key_hold(KeyHold::UntilDone), state).await;
        let second = job_in(name, "second").idempotency_key(key("k"));
        assert_eq!(t.put(second, at(1)).await, existing(name));
    }
}

async fn how_long_a_key_is_held_is_the_holders_to_say(t: DriverUnderTest) {
    t.bring(keyed("a", "k"), State::Done).await;
    assert_eq!(t.put(until_done("b", "k"), T0).await, existing("a"));
    t.bring(until_done("c", "l"), State::Done).await;
    t.bring(keyed("d", "l"), State::Done).await;
    assert_eq!(t.put(until_done("e", "l"), T0).await, existing("d"));
}

async fn a_key_taken_by_another_is_not_freed_with_its_first_job(t: DriverUnderTest) {
    t.bring(until_done("a", "k"), State::Done).await;
    t.put(keyed("b", "k"), T0).await;
    t.act("a", Action::Purge, at(1)).await;
    assert_eq!(t.put(keyed("c", "k"), at(1)).await, existing("b"));
}

async fn a_job_does_not_collide_with_itself_on_any_way(t: DriverUnderTest) {
    t.put(keyed("a", "k"), T0).await;
    t.run("a", retry(None, T0), T0).await;
    t.run("a", retry(Some(at(5)), at(1)), at(1)).await;
    t.run("a", release(Some(at(7))), at(5)).await;
    t.take_the("a", at(7)).await;
    t.run("a", fail(at(100)), at(100)).await;
    for now in [at(200), at(300)] {
        assert_eq!(t.act("a", requeue(), now).await, State::Ready);
        assert_eq!(t.put(keyed("b", "k"), now).await, existing("a"));
        assert_eq!(t.act("a", Action::Cancel, now).await, State::Cancelled);
        assert_eq!(t.put(keyed("b", "k"), now).await, existing("a"));
    }
    assert_eq!(t.act("a", requeue(), at(400)).await, State::Ready);
    t.run("a", ack(), at(400)).await;
    assert_eq!(t.put(keyed("b", "k"), at(400)).await, existing("a"));
}

async fn a_requeued_job_frees_its_key_when_it_is_done(t: DriverUnderTest) {
    t.bring(until_done("a", "k"), State::Dlq).await;
    t.act("a", requeue(), at(1)).await;
    assert_eq!(t.put(until_done("b", "k"), at(1)).await, existing("a"));
    t.run("a", ack(), at(1)).await;
    assert_eq!(t.put(until_done("b", "k"), at(1)).await, inserted("b"));
}

async fn a_key_until_done_waits_for_the_expansion_of_its_job(t: DriverUnderTest) {
    t.put(until_done("a", "k"), T0).await;
    t.run("a", expand([job("expansion")]), T0).await;
    assert_eq!(t.put(until_done("b", "k"), T0).await, existing("a"));
    t.run("expansion", ack(), T0).await;
    assert_eq!(t.put(until_done("b", "k"), T0).await, inserted("b"));
}

async fn a_key_repeated_inside_one_call_is_existing(t: DriverUnderTest) {
    let sets = vec![
        JobSet::plain(vec![keyed("a", "k"), keyed("b", "k"), keyed("c", "l")]),
        JobSet::plain(vec![keyed("d", "l"), keyed("b", "m")]),
    ];
    let answers = t.enqueue_sets(sets, T0).await;
    let first = vec![inserted("a"), existing("a"), inserted("c")];
    assert_eq!(answers, [Ok(first), Ok(vec![existing("c"), inserted("b")])]);
    assert_eq!(t.take_order(T0).await, ["a", "c", "b"]);
}

async fn a_rejected_set_does_not_take_its_keys(t: DriverUnderTest) {
    let bad = JobSet::plain(vec![keyed("a", "k"), job("bad").max_attempts(0)]);
    let answers = t.enqueue_sets(vec![bad, keyed("b", "k").into()], T0).await;
    assert!(answers[0].is_err(), "{answers:?}");
    assert_eq!(answers[1], Ok(vec![inserted("b")]));
}

async fn racing_enqueues_with_one_key_store_one_job(t: DriverUnderTest) {
    for round in 0..8 {
        let answers = at_once((0..16).map(|nth| {
            let job = keyed(&format!("job {round}.{nth}"), &format!("key {round}"));
            let t = t.clone();
            async move { t.put(job, T0).await }
        }))
        .await;
        assert_eq!(answers.iter().filter(|it| it.is_new()).count(), 1);
        let named: HashSet<_> = answers.iter().map(Enqueued::id).collect();
        assert_eq!(named.len(), 1, "{named:?}");
        assert!(t.find(answers[0].id().as_str(), T0).await.is_some());
    }
    assert_eq!(t.list(Filter::all(), 1_000, T0).await.len(), 8);
}

async fn racing_batches_with_keys_in_opposite_orders_store_each_once(t: DriverUnderTest) {
    let answers = at_once((0..8).map(|nth| {
        let keyed = |n: usize| keyed(&format!("job {nth}.{n}"), &format!("key {n}"));
        let mut jobs: Vec<_> = (0..40).map(keyed).collect();
        if nth % 2 == 1 {
            jobs.reverse();
        }
        let t = t.clone();
        async move { t.put_all(jobs, T0).await }
    }))
    .await;
    let answers: Vec<_> = answers.into_iter().flatten().collect();
    let named: HashSet<_> = answers.iter().map(Enqueued::id).collect();
    let new = answers.iter().filter(|it| it.is_new()).count();
    assert_eq!((new, named.len()), (40, 40));
    assert_eq!(t.take_order(T0).await.len(), 40);
}

async fn enqueues_racing_the_ack_that_frees_a_key_store_at_most_one(t: DriverUnderTest) {
    for round in 0..8 {
        let (first, key_text) = (format!("first {round}"), format!("key {round}"));
        t.put(until_done(&first, &key_text), T0).await;
        let leased = t.take_the(&first, T0).await;
        let answers = at_once((0..12).map(|nth| {
            let job = until_done(&format!("job {round}.{nth}"), &key_text);
            let (t, leased) = (t.clone(), leased.clone());
            async move {
                match nth {
                    0 => t.apply(&leased, ack(), T0).await,
                    _ => return Some(t.put(job, T0).await),
                }
                None
            }
        }))
        .await;
        let answers: Vec<_> = answers.into_iter().flatten().collect();
        let new: Vec<_> = answers.iter().filter(|it| it.is_new()).collect();
        assert!(new.len() <= 1, "{new:?}");
        let known =
            |it: &&Enqueued| it.id() == &id(&first) || new.iter().any(|n| n.id() == it.id());
        assert_eq!(answers.iter().filter(known).count(), answers.len());
        // Takes all stored jobs, so that the next round starts empty.
        t.take_order(T0).await;
    }
}
