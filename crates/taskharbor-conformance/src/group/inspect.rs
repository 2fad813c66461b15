//! Reads for operators: single jobs, lists of jobs, and counts.

use std::time::Duration;

use taskharbor_core::{
    Admin, JobType, NewJob, State, Text, Timestamp,
    admin::{Action, Cursor, Filter, List, QueueCounts, StateCounts},
    driver::Extension,
    error::InvalidRequest,
    flow::ListFlows,
    job::Held,
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{
        LEASE, T0, ack, ack_with, at, child, extension, fail, failure, holder, id, invalid, job,
        job_in, key, queue, requeue, retry,
    },
};

group! {
    inspect {
        an_unknown_job_is_none ["ADM-1"]
        a_waiting_job_is_told_with_all_its_fields ["ADM-1" "JOB-1"]
        an_inflight_job_is_told_with_its_holder ["ADM-1"]
        a_terminal_job_is_told_with_how_it_ended ["ADM-1"]
        a_list_goes_by_order_of_insertion ["ADM-2"]
        a_list_of_nothing_is_one_empty_page ["ADM-2"]
        a_list_of_more_than_a_full_page_goes_on ["ADM-2"]
        what_is_enqueued_between_pages_comes_last ["ADM-2"]
        what_is_settled_between_pages_neither_hides_nor_repeats_others ["ADM-2"]
        what_is_removed_between_pages_neither_hides_nor_repeats_others ["ADM-2"]
        a_page_of_jobs_has_one_to_a_thousand ["ADM-2"]
        a_cursor_that_is_none_lists_no_jobs ["ADM-2"]
        counts_tell_the_earliest_due_time_of_those_ready ["ADM-4"]
        counts_are_by_name_of_queue_and_of_queues_with_jobs_alone ["ADM-4"]
    }
    flows {
        a_line_of_a_list_says_what_the_record_says ["ADM-1" "ADM-2"]
        jobs_are_listed_by_queue_type_and_flow ["ADM-3"]
        jobs_are_listed_by_every_state ["ADM-3"]
        filters_can_be_combined ["ADM-3"]
        counts_tell_how_many_are_in_each_state ["ADM-4"]
        a_cursor_of_one_list_is_none_of_another ["ADM-2" "ADM-9"]
    }
}

fn typed(text: &str, job_type: &str) -> NewJob {
    let mut job = job(text);
    job.job_type = JobType::new(job_type).expect("a valid type");
    job
}

/// The ids of all jobs that match, in pages of two.
async fn listed(t: &DriverUnderTest, filter: Filter) -> Vec<String> {
    let jobs = t.list(filter, 2, T0).await;
    jobs.iter().map(|job| job.id.to_string()).collect()
}

/// The next page of two, and where it ends.
async fn page(
    t: &DriverUnderTest,
    filter: Filter,
    after: Option<Cursor>,
) -> (Vec<String>, Option<Cursor>) {
    let mut request = List::new(filter, 2, T0);
    request.after = after;
    let page = t.driver.list(request).await.expect("list");
    let ids = page.items.iter().map(|job| job.id.to_string());
    (ids.collect(), page.next)
}

async fn counts(t: &DriverUnderTest, now: Timestamp) -> Vec<QueueCounts> {
    t.counts(now).await
}

async fn an_unknown_job_is_none(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    assert_eq!(t.find("A", T0).await, None);
    assert_eq!(t.find("a ", T0).await, None);
}

async fn a_waiting_job_is_told_with_all_its_fields(t: DriverUnderTest) {
    let new = job("a")
        .run_at(at(9))
        .priority(-3)
        .timeout(Duration::from_secs(7))
        .max_attempts(4)
        .idempotency_key(key("k"));
    t.put(new, T0).await;
    let record = t.record("a", at(1)).await;
    assert_eq!(record.state, State::Scheduled);
    assert_eq!(record.due_at, Some(at(9)));
    assert_eq!(record.job.run_at, Some(at(9)));
    assert_eq!(record.job.priority, -3);
    assert_eq!(record.job.timeout, Some(Duration::from_secs(7)));
    assert_eq!(record.job.max_attempts, Some(4));
    assert_eq!(record.job.idempotency_key, Some(key("k")));
    assert_eq!(record.job.created_at, T0);
    assert_eq!(&record.job.payload[..], b"a");
    assert_eq!((record.job.attempts, record.job.deliveries), (0, 0));
    assert_eq!((record.held, record.output), (None, None));
    assert_eq!(t.record("a", at(9)).await.state, State::Ready);
}

async fn an_inflight_job_is_told_with_its_holder(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    t.run("a", retry(None, T0), T0).await;
    let leased = t.take_the("a", at(1)).await;
    let report: Extension = extension(&leased).progress(Text::new("half"));
    t.extend_all(vec![report], at(2), LEASE).await;
    let record = t.record("a", at(3)).await;
    assert_eq!(record.state, State::Inflight);
    assert_eq!(record.held, Some(Held::new(holder(), at(62))));
    assert_eq!(record.progress, Some(Text::new("half")));
    assert_eq!(record.due_at, None);
    assert_eq!((record.job.attempts, record.job.deliveries), (1, 2));
    assert_eq!(record.errors, [failure(1, T0)]);
    assert_eq!(record.finished_at, None);
}

async fn a_terminal_job_is_told_with_how_it_ended(t: DriverUnderTest) {
    t.put_all([job("a"), job("b")], T0).await;
    t.run("a", ack_with("x"), at(1)).await;
    t.run("b", fail(at(2)), at(2)).await;
    let done = t.record("a", at(3)).await;
    assert_eq!(done.output.as_deref(), Some(b"x".as_slice()));
    assert_eq!((done.finished_at, done.reason), (Some(at(1)), None));
    let dead = t.record("b", at(3)).await;
    assert_eq!(dead.finished_at, Some(at(2)));
    assert_eq!(dead.reason, Some(Text::new("gave up")));
    assert_eq!((dead.held, dead.due_at), (None, None));
}

async fn a_list_goes_by_order_of_insertion(t: DriverUnderTest) {
    let jobs = [
        job("c").priority(-1),
        job_in("other", "a"),
        job("e").run_at(at(9)),
        job("b").priority(9),
        job_in("other", "d"),
    ];
    t.put_all(jobs, T0).await;
    t.run("b", ack(), T0).await;
    for limit in [1, 2, 3, 4, 5, 6, 1_000] {
        let all = t.list(Filter::all(), limit, T0).await;
        let ids: Vec<&str> = all.iter().map(|job| job.id.as_str()).collect();
        assert_eq!(ids, ["c", "a", "e", "b", "d"], "{limit} at a time");
    }
}

async fn a_line_of_a_list_says_what_the_record_says(t: DriverUnderTest) {
    t.put_all([job("a"), job("b").run_at(at(9)), job("c")], T0).await;
    t.put_flow([job("d"), child("e", &["d"])], T0).await;
    t.run("a", retry(Some(at(9)), T0), T0).await;
    t.run("c", fail(T0), T0).await;
    t.take_the("d", T0).await;
    let lines = t.list(Filter::all(), 1_000, at(1)).await;
    assert_eq!(lines.len(), 5);
    for line in lines {
        let record = t.record(line.id.as_str(), at(1)).await;
        assert_eq!(line, record.summary());
    }
}

async fn a_list_of_nothing_is_one_empty_page(t: DriverUnderTest) {
    assert_eq!(page(&t, Filter::all(), None).await, (vec![], None));
    t.put(job("a"), T0).await;
    let none = Filter::all().state(State::Done);
    assert_eq!(page(&t, none, None).await, (vec![], None));
}

async fn a_list_of_more_than_a_full_page_goes_on(t: DriverUnderTest) {
    let names: Vec<String> = (0..1_001).map(|n| format!("{n:04}")).collect();
    t.put_all(names.iter().map(|name| job(name)), T0).await;
    let all = t.list(Filter::all(), 1_000, T0).await;
    let ids: Vec<&str> = all.iter().map(|job| job.id.as_str()).collect();
    assert_eq!(ids, names);
}

async fn what_is_enqueued_between_pages_comes_last(t: DriverUnderTest) {
    t.put_all(["x", "y", "z"].map(job), T0).await;
    let (first, cursor) = page(&t, Filter::all(), None).await;
    assert_eq!(first, ["x", "y"]);
    t.put_all([job("a").priority(9), job("b").run_at(at(5))], T0).await;
    let (second, cursor) = page(&t, Filter::all(), cursor).await;
    assert_eq!(second, ["z", "a"]);
    let (third, _) = page(&t, Filter::all(), cursor).await;
    assert_eq!(third, ["b"]);
}

async fn what_is_settled_between_pages_neither_hides_nor_repeats_others(t: DriverUnderTest) {
    t.put_all(["a", "b", "c", "d", "e"].map(job), T0).await;
    let ready = || Filter::all().state(State::Ready);
    let leased = t.take_many(2, T0).await;
    t.apply(&leased[1], retry(None, T0), T0).await;
    let (first, cursor) = page(&t, ready(), None).await;
    assert_eq!(first, ["b", "c"]);
    t.apply(&leased[0], retry(None, T0), T0).await;
    t.act("c", Action::Cancel, T0).await;
    t.act("b", Action::Cancel, T0).await;
    t.act("b", requeue(), T0).await;
    let (second, _) = page(&t, ready(), cursor).await;
    assert_eq!(second, ["d", "e"]);
}

async fn what_is_removed_between_pages_neither_hides_nor_repeats_others(t: DriverUnderTest) {
    t.put_all(["a", "b", "c", "d"].map(job), T0).await;
    let (first, cursor) = page(&t, Filter::all(), None).await;
    assert_eq!(first, ["a", "b"]);
    for text in ["a", "b", "c"] {
        t.act(text, Action::Cancel, T0).await;
        t.act(text, Action::Purge, T0).await;
    }
    t.put(job("b"), T0).await;
    let (second, _) = page(&t, Filter::all(), cursor).await;
    assert_eq!(second, ["d", "b"], "the second b is another job");
}

async fn a_page_of_jobs_has_one_to_a_thousand(t: DriverUnderTest) {
    for limit in [0, 1_001] {
        let page = t.driver.list(List::new(Filter::all(), limit, T0)).await;
        let refused = invalid(page);
        assert!(matches!(refused, InvalidRequest::OutOfRange { value, .. } if value == limit));
    }
}

async fn a_cursor_that_is_none_lists_no_jobs(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    for text in ["", "nonsense", "\u{1F980}"] {
        let request = List::new(Filter::all(), 1, T0).after(Cursor::new(text));
        let page = t.driver.list(request).await;
        assert_eq!(invalid(page), InvalidRequest::Cursor, "{text:?}");
    }
}

async fn jobs_are_listed_by_queue_type_and_flow(t: DriverUnderTest) {
    t.put_all([typed("a", "x"), job_in("other", "b"), typed("c", "y")], T0).await;
    t.put_flow([job("d"), child("e", &["d"])], T0).await;
    t.put(typed("f", "x"), T0).await;
    let all = Filter::all;
    assert_eq!(listed(&t, all().queue(queue("other"))).await, ["b"]);
    let x = JobType::new("x").expect("a valid type");
    assert_eq!(listed(&t, all().job_type(x)).await, ["a", "f"]);
    assert_eq!(listed(&t, all().flow(id("e"))).await, ["d", "e"]);
    assert_eq!(listed(&t, all().flow(id("d"))).await, [""; 0]);
    assert_eq!(listed(&t, all().queue(queue("Q"))).await, [""; 0]);
}

async fn jobs_are_listed_by_every_state(t: DriverUnderTest) {
    t.put_all(["inflight", "done", "dlq", "cancelled"].map(job), T0).await;
    let leased = t.take_many(3, T0).await;
    t.apply(&leased[1], ack(), T0).await;
    t.apply(&leased[2], fail(T0), T0).await;
    t.act("cancelled", Action::Cancel, T0).await;
    t.put(job("scheduled").run_at(at(1)), T0).await;
    t.put_flow([job("ready"), child("blocked", &["ready"])], T0).await;
    for state in State::ALL.iter().copied() {
        let expected = [state.as_str()];
        assert_eq!(listed(&t, Filter::all().state(state)).await, expected);
    }
    let ready = Filter::all().state(State::Ready);
    let at_its_time = t.list(ready, 10, at(1)).await;
    assert_eq!(at_its_time.len(), 2, "time alone makes it ready");
}

async fn filters_can_be_combined(t: DriverUnderTest) {
    let x = || JobType::new("x").expect("a valid type");
    let with = |mut job: NewJob| {
        job.job_type = x();
        job
    };
    t.put(with(job_in("other", "plain")), T0).await;
    let jobs = [
        with(job_in("other", "hit")),
        with(job("wrong queue")),
        job_in("other", "wrong type"),
        with(job_in("other", "wrong state")).run_at(at(9)),
    ];
    let parents: Vec<_> = jobs.iter().map(|job| job.id.clone()).collect();
    let end = job("end").after(parents);
    t.put_flow(jobs.into_iter().chain([end]), T0).await;
    let filter = Filter::all().queue(queue("other")).job_type(x());
    let filter = filter.flow(id("end")).state(State::Ready);
    assert_eq!(listed(&t, filter).await, ["hit"]);
}

async fn counts_tell_how_many_are_in_each_state(t: DriverUnderTest) {
    t.put_all(["a", "b", "c", "d", "e", "f"].map(job), T0).await;
    let leased = t.take_many(4, T0).await;
    t.apply(&leased[0], ack(), T0).await;
    t.apply(&leased[1], fail(T0), T0).await;
    t.act("e", Action::Cancel, T0).await;
    t.put_all([job("g").run_at(at(5)), job("h").run_at(at(6))], T0).await;
    t.put_flow([job("i"), child("j", &["i"])], at(2)).await;
    let mut expected = QueueCounts::new(queue("q"));
    let states = &mut expected.states;
    *states = StateCounts::default();
    (states.ready, states.scheduled, states.blocked) = (2, 2, 1);
    (states.inflight, states.done, states.dlq, states.cancelled) = (2, 1, 1, 1);
    expected.oldest_ready = Some(T0);
    assert_eq!(counts(&t, at(2)).await, [expected.clone()]);
    (expected.states.ready, expected.states.scheduled) = (3, 1);
    assert_eq!(counts(&t, at(5)).await, [expected]);
}

async fn counts_tell_the_earliest_due_time_of_those_ready(t: DriverUnderTest) {
    t.put(job("late").run_at(at(9)), T0).await;
    t.put(job("first"), at(3)).await;
    t.put(job("second").priority(5), at(4)).await;
    let oldest = async |now| counts(&t, now).await[0].oldest_ready;
    assert_eq!(oldest(at(5)).await, Some(at(3)));
    t.act("first", Action::Cancel, at(5)).await;
    assert_eq!(oldest(at(5)).await, Some(at(4)));
    t.act("second", Action::Cancel, at(5)).await;
    assert_eq!(oldest(at(5)).await, None);
    assert_eq!(oldest(at(9)).await, Some(at(9)));
}

async fn counts_are_by_name_of_queue_and_of_queues_with_jobs_alone(t: DriverUnderTest) {
    for name in ["b", "a", "c"] {
        t.put(job_in(name, name), T0).await;
    }
    let names = async || {
        let all = counts(&t, T0).await;
        let names = all.iter().map(|it| it.queue.to_string());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names().await, ["a", "b", "c"]);
    t.act("b", Action::Cancel, T0).await;
    assert_eq!(names().await, ["a", "b", "c"]);
    t.act("b", Action::Purge, T0).await;
    assert_eq!(names().await, ["a", "c"]);
}

async fn a_cursor_of_one_list_is_none_of_another(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"])], T0).await;
    t.put_flow([job("c"), child("d", &["c"])], T0).await;
    let jobs = t.driver.list(List::new(Filter::all(), 1, T0)).await.expect("list");
    let flows = t.driver.list_flows(ListFlows::new(1, T0)).await.expect("list_flows");
    let (of_jobs, of_flows) = (jobs.next.expect("more"), flows.next.expect("more"));
    let request = List::new(Filter::all(), 1, T0).after(of_flows);
    assert_eq!(invalid(t.driver.list(request).await), InvalidRequest::Cursor);
    let request = ListFlows::new(1, T0).after(of_jobs);
    assert_eq!(invalid(t.driver.list_flows(request).await), InvalidRequest::Cursor);
}
