//! Storing jobs.

use std::{collections::HashSet, time::Duration};

use taskharbor_core::{
    Blob, Driver, NewJob, State,
    admin::Filter,
    driver::{Enqueue, Enqueued, Limits},
    error::{InvalidRequest, Rejected},
    job::JobSet,
};

use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{T0, at, before, id, invalid, job, job_in, key, queue},
};

group! {
    enqueue {
        a_job_without_parents_is_ready_and_due_now ["ENQ-1"]
        a_job_whose_time_lies_ahead_is_scheduled_until_then ["ENQ-1"]
        a_job_whose_time_is_past_is_ready_and_due_now ["ENQ-1" "ORD-3"]
        a_set_is_stored_whole ["ENQ-2" "ENQ-3"]
        a_rejected_set_leaves_nothing_behind ["ENQ-2"]
        a_rejected_set_does_not_disturb_the_others_of_its_call ["ENQ-2" "ENQ-3"]
        a_rejected_set_does_not_take_its_ids ["ENQ-2" "ENQ-5"]
        every_set_and_every_job_is_answered_in_order ["ENQ-3" "ENQ-4"]
        a_call_without_sets_has_no_answers ["ENQ-3"]
        a_stored_id_is_existing_in_every_state_and_stays_as_it_is ["ENQ-4"]
        ids_are_compared_byte_for_byte ["ENQ-4" "JOB-3"]
        a_repeat_inside_one_set_is_existing ["ENQ-5"]
        a_repeat_in_another_set_of_the_call_is_existing ["ENQ-5"]
        a_call_with_too_many_jobs_fails_as_a_whole ["ENQ-6"]
        a_call_with_too_many_bytes_fails_as_a_whole ["ENQ-6"]
        a_call_of_just_the_greatest_size_does_not_fail ["ENQ-6"]
        racing_enqueues_of_one_id_store_one_job ["ENQ-7"]
        racing_batches_in_opposite_orders_store_every_id_once ["ENQ-7"]
        jobs_of_one_call_are_inserted_in_the_order_given ["ORD-4"]
        a_large_call_keeps_its_order ["ORD-4" "ORD-1"]
    }
    flows {}
}

fn inserted(text: &str) -> Enqueued {
    Enqueued::Inserted(id(text))
}

fn existing(text: &str) -> Enqueued {
    Enqueued::Existing(id(text))
}

/// A job that no store takes.
fn bad(text: &str) -> NewJob {
    job(text).max_attempts(0)
}

fn rejected_for(text: &str) -> Rejected {
    Rejected::MaxAttemptsOutOfRange { job: id(text) }
}

async fn a_job_without_parents_is_ready_and_due_now(t: DriverUnderTest) {
    assert_eq!(t.put(job("a"), T0).await, inserted("a"));
    let record = t.record("a", T0).await;
    assert_eq!(record.state, State::Ready);
    assert_eq!(record.due_at, Some(T0));
    assert_eq!(record.job.run_at, None);
    assert_eq!(record.job.created_at, T0);
}

async fn a_job_whose_time_lies_ahead_is_scheduled_until_then(t: DriverUnderTest) {
    t.put(job("a").run_at(at(10)), T0).await;
    for (now, state) in
        [(T0, State::Scheduled), (before(at(10)), State::Scheduled), (at(10), State::Ready)]
    {
        let record = t.record("a", now).await;
        assert_eq!(record.state, state, "at {now}");
        assert_eq!(record.due_at, Some(at(10)));
        assert_eq!(record.job.run_at, Some(at(10)));
    }
}

async fn a_job_whose_time_is_past_is_ready_and_due_now(t: DriverUnderTest) {
    t.put(job("a").run_at(at(3)), at(10)).await;
    t.put(job("b").run_at(at(10)), at(10)).await;
    for (text, run_at) in [("a", at(3)), ("b", at(10))] {
        let record = t.record(text, at(10)).await;
        assert_eq!(record.state, State::Ready);
        assert_eq!(record.due_at, Some(at(10)));
        assert_eq!(record.job.run_at, Some(run_at));
    }
}

async fn a_set_is_stored_whole(t: DriverUnderTest) {
    let set = JobSet::plain(vec![job("c"), job_in("other", "a"), job("b").run_at(at(9))]);
    let answer = t.enqueue_set(set, T0).await;
    assert_eq!(answer, Ok(vec![inserted("c"), inserted("a"), inserted("b")]));
    let states = t.states(&["c", "a", "b"], T0).await;
    assert_eq!(states, [State::Ready, State::Ready, State::Scheduled]);
}

async fn a_rejected_set_leaves_nothing_behind(t: DriverUnderTest) {
    t.put(job("there before"), T0).await;
    let stored = t.snapshot(T0).await;
    for position in 0..3 {
        let mut jobs = vec![job("a"), job_in("new queue", "b"), job("c")];
        jobs[position].max_attempts = Some(0);
        let rejected = rejected_for(jobs[position].id.as_str());
        assert_eq!(t.enqueue_set(JobSet::plain(jobs), T0).await, Err(rejected));
        assert_eq!(t.snapshot(T0).await, stored, "bad job at {position}");
    }
}

async fn a_rejected_set_does_not_disturb_the_others_of_its_call(t: DriverUnderTest) {
    for position in 0..3 {
        let text = |name: &str| format!("{name}{position}");
        let mut sets: Vec<JobSet> = ["a", "b", "c"].map(|it| job(&text(it)).into()).into();
        sets[position].jobs.push(bad("bad"));
        let answers = t.enqueue_sets(sets, T0).await;
        for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
            let (is_bad, found) = (at == position, t.find(&text(name), T0).await);
            assert_eq!(found.is_none(), is_bad, "{name} with a bad set at {position}");
            let expected = vec![inserted(&text(name))];
            let expected = if is_bad { Err(rejected_for("bad")) } else { Ok(expected) };
            assert_eq!(answers[at], expected);
        }
    }
}

async fn a_rejected_set_does_not_take_its_ids(t: DriverUnderTest) {
    let sets = vec![JobSet::plain(vec![job("a"), bad("b")]), job("a").into()];
    let answers = t.enqueue_sets(sets, T0).await;
    assert_eq!(answers, [Err(rejected_for("b")), Ok(vec![inserted("a")])]);
    assert_eq!(t.put(job("b"), T0).await, inserted("b"));
}

async fn every_set_and_every_job_is_answered_in_order(t: DriverUnderTest) {
    t.put(job("old"), T0).await;
    let sets = vec![
        JobSet::plain(vec![job("d"), job("old"), job("c")]),
        JobSet::plain(Vec::new()),
        JobSet::from(bad("x")),
        JobSet::plain(vec![job("old"), job("b")]),
        JobSet::from(job("a")),
    ];
    let answers = t.enqueue_sets(sets, T0).await;
    let expected = [
        Ok(vec![inserted("d"), existing("old"), inserted("c")]),
        Ok(Vec::new()),
        Err(rejected_for("x")),
        Ok(vec![existing("old"), inserted("b")]),
        Ok(vec![inserted("a")]),
    ];
    assert_eq!(answers, expected);
}

async fn a_call_without_sets_has_no_answers(t: DriverUnderTest) {
    assert_eq!(t.enqueue_sets(Vec::new(), T0).await, []);
    assert_eq!(t.snapshot(T0).await.counts, []);
}

async fn a_stored_id_is_existing_in_every_state_and_stays_as_it_is(t: DriverUnderTest) {
    for state in t.job_states() {
        t.bring(job_in(state.as_str(), state.as_str()), state).await;
    }
    let stored = t.snapshot(T0).await;
    for state in t.job_states() {
        let again = job_in("another queue", state.as_str())
            .priority(9)
            .run_at(at(5))
            .timeout(Duration::from_secs(1))
            .max_attempts(7)
            .idempotency_key(key("k"));
        assert_eq!(t.put(again, at(1)).await, existing(state.as_str()));
    }
    assert_eq!(t.snapshot(T0).await, stored);
}

async fn ids_are_compared_byte_for_byte(t: DriverUnderTest) {
    for text in ["a", "A", "a ", " a", "a\u{301}", "á", "a%", "a_", "a\u{200b}"] {
        assert_eq!(t.put(job(text), T0).await, inserted(text));
    }
    assert_eq!(t.list(Filter::all(), 100, T0).await.len(), 9);
}

async fn a_repeat_inside_one_set_is_existing(t: DriverUnderTest) {
    let set = JobSet::plain(vec![job("a").priority(1), job("a").priority(2), job("b")]);
    let answer = t.enqueue_set(set, T0).await;
    assert_eq!(answer, Ok(vec![inserted("a"), existing("a"), inserted("b")]));
    assert_eq!(t.record("a", T0).await.job.priority, 1);
    assert_eq!(t.take_order(T0).await, ["a", "b"]);
}

async fn a_repeat_in_another_set_of_the_call_is_existing(t: DriverUnderTest) {
    let jobs = (1..=4).map(|priority| job("a").priority(priority));
    let answers = t.put_all(jobs, T0).await;
    let expected = [inserted("a"), existing("a"), existing("a"), existing("a")];
    assert_eq!(answers, expected);
    assert_eq!(t.record("a", T0).await.job.priority, 1);
    assert_eq!(t.take_order(T0).await, ["a"]);
}

async fn a_call_with_too_many_jobs_fails_as_a_whole(t: DriverUnderTest) {
    let jobs: Vec<NewJob> = (0..=Limits::MAX_CALL_JOBS).map(|n| job(&n.to_string())).collect();
    let (half, rest) = jobs.split_at(50_000);
    let sets = vec![JobSet::plain(half.to_vec()), JobSet::plain(rest.to_vec())];
    let rule = invalid(t.driver.enqueue(Enqueue::new(sets, T0)).await);
    let is_right = matches!(rule, InvalidRequest::OutOfRange { value: 100_001, max: 100_000, .. });
    assert!(is_right, "{rule:?}");
    assert_eq!(t.snapshot(T0).await.counts, []);
}

/// This many jobs with a payload of 1 MiB, after a first one that makes their set bad.
fn mebibytes(count: usize) -> JobSet {
    let mebibyte = Blob::from(vec![b'x'; 1024 * 1024]);
    let mut jobs = vec![bad("bad")];
    jobs.extend((0..count).map(|n| job(&n.to_string())));
    for job in &mut jobs {
        job.payload = mebibyte.clone();
    }
    jobs[0].payload = Blob::from(&[]);
    JobSet::plain(jobs)
}

async fn a_call_with_too_many_bytes_fails_as_a_whole(t: DriverUnderTest) {
    let sets = vec![job("small").into(), mebibytes(256)];
    let rule = invalid(t.driver.enqueue(Enqueue::new(sets, T0)).await);
    let max = 256 * 1024 * 1024;
    let is_right = matches!(&rule, InvalidRequest::OutOfRange { value, max: limit, .. }
        if *value == max + "small".len() && *limit == max);
    assert!(is_right, "{rule:?}");
    assert_eq!(t.snapshot(T0).await.counts, []);
}

async fn a_call_of_just_the_greatest_size_does_not_fail(t: DriverUnderTest) {
    // The sets are bad, so that no store has to write this much: each is answered for itself.
    let answers = t.enqueue_sets(vec![mebibytes(256)], T0).await;
    assert_eq!(answers, [Err(rejected_for("bad"))]);
    let mut jobs = vec![bad("bad")];
    jobs.extend((1..Limits::MAX_CALL_JOBS).map(|n| job(&n.to_string())));
    let answers = t.enqueue_sets(vec![JobSet::plain(jobs)], T0).await;
    assert_eq!(answers, [Err(rejected_for("bad"))]);
    assert_eq!(t.snapshot(T0).await.counts, []);
}

async fn racing_enqueues_of_one_id_store_one_job(t: DriverUnderTest) {
    for round in 0..8 {
        let text = format!("job {round}");
        let answers = at_once((0..16).map(|nth| {
            let (t, job) = (t.clone(), job_in(&format!("queue {nth}"), &text).priority(nth));
            async move { t.put(job, T0).await }
        }))
        .await;
        assert!(answers.iter().all(|answer| answer.id().as_str() == text));
        let winners: Vec<_> = (0..16).filter(|nth| answers[*nth].is_new()).collect();
        let [winner] = winners[..] else { panic!("inserted by {winners:?}") };
        let stored = t.record(&text, T0).await.job;
        assert_eq!(stored.priority, i16::try_from(winner).expect("a small number"));
        assert_eq!(stored.queue, queue(&format!("queue {winner}")));
    }
    assert_eq!(t.list(Filter::all(), 100, T0).await.len(), 8);
}

async fn racing_batches_in_opposite_orders_store_every_id_once(t: DriverUnderTest) {
    let answers = at_once((0..8).map(|nth| {
        let mut jobs: Vec<_> = (0..50).map(|n| job(&n.to_string())).collect();
        if nth % 2 == 1 {
            jobs.reverse();
        }
        let t = t.clone();
        async move { t.put_all(jobs, T0).await }
    }))
    .await;
    let new: Vec<_> = answers.iter().flatten().filter(|it| it.is_new()).collect();
    let distinct: HashSet<_> = new.iter().map(|it| it.id()).collect();
    assert_eq!((new.len(), distinct.len()), (50, 50));
    assert_eq!(t.take_order(T0).await.len(), 50);
}

async fn jobs_of_one_call_are_inserted_in_the_order_given(t: DriverUnderTest) {
    let sets = vec![
        JobSet::plain(vec![job("z"), job("m"), job("a")]),
        JobSet::from(job("y")),
        JobSet::plain(vec![job("b"), job("x")]),
    ];
    t.enqueue_sets(sets, T0).await;
    let given = ["z", "m", "a", "y", "b", "x"];
    let listed = t.list(Filter::all(), 100, T0).await;
    let listed: Vec<_> = listed.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(listed, given);
    assert_eq!(t.take_order(T0).await, given);
}

async fn a_large_call_keeps_its_order(t: DriverUnderTest) {
    let texts: Vec<String> = (0..1_000).map(|n| format!("{:03}", n * 7 % 1_000)).collect();
    t.put_all(texts.iter().map(|text| job(text)), T0).await;
    assert_eq!(t.take_order(T0).await, texts);
}
