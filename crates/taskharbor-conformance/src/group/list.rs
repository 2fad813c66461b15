//! Lists of jobs and flows: their order, filters, scan budget and cursors; counts with a cap.

use std::collections::HashSet;

use taskharbor_core::{
    Admin, JobType, NewJob, State, Text, Timestamp,
    admin::{Action, Counts, Cursor, Filter, List, ListSettings, TimeRange},
    driver::Transition,
    error::InvalidRequest,
    flow::ListFlows,
    job::{FailedAttempt, Headers, JobSummary, KeyHold},
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{
        T0, ack, after, at, before, child, fail, failure, id, invalid, job, job_in, key, queue,
    },
};

group! {
    list {
        the_newest_jobs_can_be_listed_first ["ADM-2"]
        jobs_that_come_and_go_between_pages_disturb_no_order ["ADM-2"]
        a_key_is_found_after_it_was_given_up ["ADM-3" "KEY-7"]
        an_error_is_found_in_the_last_failure_and_in_the_reason ["ADM-3"]
        the_text_of_a_filter_is_taken_byte_for_byte ["ADM-3" "JOB-3"]
        a_range_of_time_begins_with_its_start_and_ends_before_its_end ["ADM-3"]
        a_job_that_is_not_terminal_has_no_time_of_its_end ["ADM-3"]
        a_call_looks_at_no_more_records_than_it_may ["ADM-12" "ADM-2"]
        a_page_that_stops_short_says_how_far_it_looked ["ADM-12"]
        a_scan_budget_has_one_to_fifty_thousand ["ADM-12"]
        a_cursor_of_another_order_is_refused ["ADM-13"]
        a_cursor_of_another_kind_of_list_is_refused ["ADM-13" "ADM-9" "PAU-3" "MOV-1"]
        a_range_of_time_without_an_instant_is_refused ["ADM-13"]
        counts_with_a_cap_are_exact_below_it ["ADM-14"]
        a_cap_of_zero_is_refused ["ADM-14"]
    }
    flows {
        every_filter_works_alone_and_in_both_orders ["ADM-3" "ADM-2"]
        every_two_filters_can_be_combined ["ADM-3"]
    }
}

fn ids(jobs: &[JobSummary]) -> Vec<String> {
    jobs.iter().map(|job| job.id.to_string()).collect()
}

/// All pages of a list, and the ids on them.
async fn pages(t: &DriverUnderTest, mut request: List) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    loop {
        let page = t.driver.list(request.clone()).await.expect("list");
        assert!(page.items.len() <= request.limit, "more than a page");
        assert!(page.next.is_none() || page.looked_at.is_some(), "a cursor, and how far it is");
        pages.push(ids(&page.items));
        assert!(pages.len() < 1_000, "the list does not end");
        match page.next {
            Some(cursor) => request = request.after(cursor),
            None => return pages,
        }
    }
}

async fn the_newest_jobs_can_be_listed_first(t: DriverUnderTest) {
    t.put_all((0..7).map(|n| job(&n.to_string()).priority(n)), T0).await;
    let oldest: Vec<String> = (0..7).map(|n| n.to_string()).collect();
    let newest: Vec<String> = oldest.iter().rev().cloned().collect();
    for limit in 1..=8 {
        let request = List::new(Filter::all(), limit, T0);
        assert_eq!(pages(&t, request.clone()).await.concat(), oldest, "{limit}");
        assert_eq!(pages(&t, request.newest_first()).await.concat(), newest, "{limit}");
    }
}

async fn jobs_that_come_and_go_between_pages_disturb_no_order(t: DriverUnderTest) {
    t.put_all((0..6).map(|n| job(&n.to_string())), T0).await;
    let request = List::new(Filter::all(), 2, T0).newest_first();
    let page = t.driver.list(request.clone()).await.expect("list");
    assert_eq!(ids(&page.items), ["5", "4"]);
    t.put(job("new"), T0).await;
    for text in ["4", "2"] {
        t.act(text, Action::Cancel, T0).await;
        t.act(text, Action::Purge, T0).await;
    }
    t.act("3", Action::Cancel, T0).await;
    let next = request.clone().after(page.next.expect("a cursor"));
    let rest = pages(&t, next).await.concat();
    assert_eq!(rest, ["3", "1", "0"]);
}

fn typed(mut job: NewJob, job_type: &str) -> NewJob {
    job.job_type = JobType::new(job_type).expect("a valid type");
    job
}

fn with_header(job: NewJob, name: &str, value: &str) -> NewJob {
    job.headers(Headers::new().with(name, value).expect("a valid header"))
}

/// Jobs of which each filter matches some, and the filters with their names.
async fn assorted(t: &DriverUnderTest) -> Vec<(&'static str, Filter)> {
    for n in 0..24_u64 {
        let text = format!("{n:02}");
        let mut job = if n % 2 == 0 { job(&text) } else { job_in("p", &text) };
        job = typed(job, if n % 3 == 0 { "mail" } else { "work" });
        job = with_header(job, "tenant", if n % 4 < 2 { "red" } else { "blue" });
        job = job.idempotency_key(key(&format!("k{}", n / 5)));
        job = job.key_hold(KeyHold::UntilTerminal);
        t.put(job, at(n)).await;
        if n % 5 < 4 {
            t.act(&text, Action::Cancel, at(n + 100)).await;
        }
    }
    t.put_flow([job("a"), child("b", &["a"])], at(30)).await;
    for reason in ["disk full", "no disk"] {
        let leased = t.take(at(40)).await.expect("a grant");
        let reason = Text::new(reason);
        let failure = failure(1, at(40));
        let fail = Transition::Fail { failure, reason };
        t.apply(&leased, fail, at(40)).await;
    }
    vec![
        ("queue", Filter::all().queue(queue("p"))),
        ("state", Filter::all().state(State::Cancelled)),
        ("type", Filter::all().job_type(JobType::new("mail").expect("valid"))),
        ("flow", Filter::all().flow(id("b"))),
        ("key", Filter::all().key(key("k2"))),
        ("header", Filter::all().header("tenant", "red")),
        ("error", Filter::all().error("disk")),
        ("created", Filter::all().created(TimeRange::new(Some(at(5)), Some(at(15))))),
        ("finished", Filter::all().finished(TimeRange::new(Some(at(40)), Some(at(110))))),
    ]
}

/// The ids of the jobs that match, worked out from their records.
async fn expected(t: &DriverUnderTest, filter: &Filter) -> Vec<String> {
    let mut matching = Vec::new();
    for record in t.snapshot(at(200)).await.records {
        let job = &record.job;
        let says = |text: &String| {
            [&job.last_error, &record.reason]
                .into_iter()
                .flatten()
                .any(|it| it.as_str().contains(text.as_str()))
        };
        let matches = filter.queue.as_ref().is_none_or(|it| *it == job.queue)
            && filter.state.is_none_or(|it| it == record.state)
            && filter.job_type.as_ref().is_none_or(|it| *it == job.job_type)
            && (filter.flow.is_none() || filter.flow == job.flow)
            && (filter.key.is_none() || filter.key == job.idempotency_key)
            && filter
                .header
                .as_ref()
                .is_none_or(|(name, value)| job.headers.get(name) == Some(value.as_str()))
            && filter.error.as_ref().is_none_or(says)
            && filter.created.contains(Some(job.created_at))
            && filter.finished.contains(record.finished_at);
        if matches {
            matching.push(job.id.to_string());
        }
    }
    matching
}

async fn every_filter_works_alone_and_in_both_orders(t: DriverUnderTest) {
    let filters = assorted(&t).await;
    let all = pages(&t, List::new(Filter::all(), 1_000, at(200))).await.concat().len();
    for (name, filter) in filters {
        let mut expected = expected(&t, &filter).await;
        assert!(!expected.is_empty() && expected.len() < all, "{name}: {expected:?}");
        let request = List::new(filter, 3, at(200));
        assert_eq!(pages(&t, request.clone()).await.concat(), expected, "{name}");
        expected.reverse();
        assert_eq!(pages(&t, request.newest_first()).await.concat(), expected, "{name}");
    }
}

async fn every_two_filters_can_be_combined(t: DriverUnderTest) {
    let filters = assorted(&t).await;
    for (one, a) in &filters {
        for (other, b) in &filters {
            let mut both = a.clone();
            both.queue = both.queue.or_else(|| b.queue.clone());
            both.state = both.state.or(b.state);
            both.job_type = both.job_type.or_else(|| b.job_type.clone());
            both.flow = both.flow.or_else(|| b.flow.clone());
            both.key = both.key.or_else(|| b.key.clone());
            both.header = both.header.or_else(|| b.header.clone());
            both.error = both.error.or_else(|| b.error.clone());
            if both.created.is_all() {
                both.created = b.created;
            }
            if both.finished.is_all() {
                both.finished = b.finished;
            }
            let expected = expected(&t, &both).await;
            let listed = pages(&t, List::new(both, 1_000, at(200))).await.concat();
            assert_eq!(listed, expected, "{one} and {other}");
        }
    }
}

async fn a_key_is_found_after_it_was_given_up(t: DriverUnderTest) {
    let keyed = |text| job(text).idempotency_key(key("k")).key_hold(KeyHold::UntilTerminal);
    t.put(keyed("a"), T0).await;
    t.act("a", Action::Cancel, T0).await;
    t.put(keyed("b"), T0).await;
    t.put(job_in("p", "c").idempotency_key(key("k")), T0).await;
    t.put(job("d").idempotency_key(key("K")), T0).await;
    let found = t.list(Filter::all().key(key("k")), 10, T0).await;
    assert_eq!(ids(&found), ["a", "b", "c"]);
    let found = t.list(Filter::all().key(key("k")).queue(queue("q")), 10, T0).await;
    assert_eq!(ids(&found), ["a", "b"]);
}

async fn an_error_is_found_in_the_last_failure_and_in_the_reason(t: DriverUnderTest) {
    t.put_all(["old", "last", "reason", "none"].map(job), T0).await;
    let failed = |attempts, error: &str| FailedAttempt::new(attempts, error, T0);
    let leased = t.take_many(4, T0).await;
    let retry =
        |attempts, error| Transition::Retry { failure: failed(attempts, error), run_at: Some(T0) };
    t.apply(&leased[0], retry(1, "needle"), T0).await;
    t.run("old", retry(2, "hay"), T0).await;
    t.apply(&leased[1], retry(1, "hay needle hay"), T0).await;
    let reason = Text::new("the needle");
    let fail = Transition::Fail { failure: failed(1, "hay"), reason };
    t.apply(&leased[2], fail, T0).await;
    let found = t.list(Filter::all().error("needle"), 10, T0).await;
    assert_eq!(ids(&found), ["last", "reason"]);
    assert_eq!(t.list(Filter::all().error(""), 10, T0).await.len(), 3);
}

async fn the_text_of_a_filter_is_taken_byte_for_byte(t: DriverUnderTest) {
    let texts = ["100%", "100x", "a_b", "axb", "back\\slash", "it's", "CASE", "case", "\u{e9}"];
    for (n, text) in texts.iter().enumerate() {
        let name = n.to_string();
        t.put(with_header(job_in(&name, &name), "h", text), T0).await;
        let leased = t.take_from(&name, T0).await.expect("a grant");
        let failure = FailedAttempt::new(1, *text, T0);
        let retry = Transition::Retry { failure, run_at: None };
        t.apply(&leased, retry, T0).await;
    }
    for (n, text) in texts.iter().enumerate() {
        let found = t.list(Filter::all().error(*text), 20, T0).await;
        assert_eq!(ids(&found), [n.to_string()], "error {text}");
        let found = t.list(Filter::all().header("h", *text), 20, T0).await;
        assert_eq!(ids(&found), [n.to_string()], "header {text}");
    }
    assert_eq!(t.list(Filter::all().error("%"), 20, T0).await.len(), 1);
    assert_eq!(t.list(Filter::all().header("H", "case"), 20, T0).await, []);
    assert_eq!(t.list(Filter::all().header("h", "cas"), 20, T0).await, []);
}

async fn a_range_of_time_begins_with_its_start_and_ends_before_its_end(t: DriverUnderTest) {
    for (text, now) in [("before", before(at(5))), ("at", at(5)), ("after", after(at(5)))] {
        t.put(job(text), now).await;
        t.act(text, Action::Cancel, now).await;
    }
    let in_range = async |from: Option<Timestamp>, to: Option<Timestamp>| {
        let range = TimeRange::new(from, to);
        let created = t.list(Filter::all().created(range), 10, at(9)).await;
        let finished = t.list(Filter::all().finished(range), 10, at(9)).await;
        assert_eq!(created, finished);
        ids(&created)
    };
    assert_eq!(in_range(Some(at(5)), None).await, ["at", "after"]);
    assert_eq!(in_range(None, Some(at(5))).await, ["before"]);
    assert_eq!(in_range(Some(at(5)), Some(after(at(5)))).await, ["at"]);
    assert_eq!(in_range(Some(Timestamp::EPOCH), Some(Timestamp::MAX)).await.len(), 3);
    assert_eq!(in_range(Some(at(6)), Some(at(7))).await, [""; 0]);
}

async fn a_job_that_is_not_terminal_has_no_time_of_its_end(t: DriverUnderTest) {
    t.put_all(["ready", "done"].map(job), T0).await;
    t.run("ready", Transition::Release { run_at: Some(at(1)), started: false, note: None }, T0)
        .await;
    t.run("done", ack(), T0).await;
    let ever = TimeRange::new(Some(Timestamp::EPOCH), None);
    assert_eq!(ids(&t.list(Filter::all().finished(ever), 10, T0).await), ["done"]);
    let ever = TimeRange::new(None, Some(Timestamp::MAX));
    assert_eq!(ids(&t.list(Filter::all().finished(ever), 10, T0).await), ["done"]);
}

async fn a_call_looks_at_no_more_records_than_it_may(t: DriverUnderTest) {
    let jobs = (0..40)
        .map(|n| if n % 10 == 7 { job_in("p", &n.to_string()) } else { job(&n.to_string()) });
    t.put_all(jobs, T0).await;
    let filter = Filter::all().queue(queue("p")).header("no", "such");
    let none = List::new(filter, 5, T0);
    let some = List::new(Filter::all().queue(queue("p")), 5, T0);
    for scan in [1, 3, 7, 40, 50] {
        for newest in [false, true] {
            let order = |list: List| if newest { list.newest_first() } else { list };
            let found = pages(&t, order(none.clone().scan(scan))).await;
            assert!(found.concat().is_empty());
            let found = pages(&t, order(some.clone().scan(scan))).await.concat();
            let mut expected = vec!["7", "17", "27", "37"];
            if newest {
                expected.reverse();
            }
            assert_eq!(found, expected, "{scan}");
        }
    }
    // A store without a suitable index looks at all forty records, a few at a time.
    let distinct: HashSet<_> = pages(&t, some.scan(1)).await.concat().into_iter().collect();
    assert_eq!(distinct.len(), 4);
}

async fn a_page_that_stops_short_says_how_far_it_looked(t: DriverUnderTest) {
    for n in 0..6 {
        t.put(job(&n.to_string()), at(n)).await;
    }
    let mut request = List::new(Filter::all(), 2, at(9));
    let page = t.driver.list(request.clone()).await.expect("list");
    assert_eq!(ids(&page.items), ["0", "1"]);
    assert!(matches!(page.looked_at, Some(it) if it == at(1) || it == at(2)));
    request = request.newest_first();
    let page = t.driver.list(request).await.expect("list");
    assert_eq!(ids(&page.items), ["5", "4"]);
    assert!(matches!(page.looked_at, Some(it) if it == at(4) || it == at(3)));
    let mut looked = Vec::new();
    let mut request = List::new(Filter::all().error("nothing of the kind"), 5, at(9)).scan(2);
    loop {
        let page = t.driver.list(request.clone()).await.expect("list");
        assert_eq!(page.items, []);
        looked.extend(page.looked_at);
        match page.next {
            Some(cursor) => request = request.after(cursor),
            None => break,
        }
    }
    assert!(looked.is_sorted(), "{looked:?}");
    assert!(looked.iter().all(|it| *it <= at(5)));
}

async fn a_scan_budget_has_one_to_fifty_thousand(t: DriverUnderTest) {
    for scan in [0, 50_001] {
        let request = List::new(Filter::all(), 5, T0).scan(scan);
        let refused = invalid(t.driver.list(request).await);
        assert!(matches!(refused, InvalidRequest::OutOfRange { value, .. } if value == scan));
    }
    for scan in [1, 50_000] {
        let request = List::new(Filter::all(), 5, T0).scan(scan);
        let page = t.driver.list(request).await.expect("list");
        assert_eq!((page.items, page.next), (Vec::new(), None));
    }
}

/// The cursor of the first page of a list of jobs.
async fn cursor(t: &DriverUnderTest, request: List) -> Cursor {
    t.driver.list(request).await.expect("list").next.expect("a cursor")
}

async fn a_cursor_of_another_order_is_refused(t: DriverUnderTest) {
    t.put_all(["a", "b", "c"].map(job), T0).await;
    let (up, down) =
        (|| List::new(Filter::all(), 1, T0), || List::new(Filter::all(), 1, T0).newest_first());
    let (of_up, of_down) = (cursor(&t, up()).await, cursor(&t, down()).await);
    for wrong in [up().after(of_down), down().after(of_up)] {
        assert_eq!(invalid(t.driver.list(wrong).await), InvalidRequest::Cursor);
    }
}

async fn a_cursor_of_another_kind_of_list_is_refused(t: DriverUnderTest) {
    t.put_all(["a", "b"].map(job), T0).await;
    for name in ["p", "q"] {
        t.driver.pause(queue(name), T0).await.expect("pause");
    }
    let of_jobs = cursor(&t, List::new(Filter::all(), 1, T0)).await;
    let settings = t.driver.settings(ListSettings::new(1)).await.expect("settings");
    let of_settings = settings.next.expect("a cursor");
    let export = t.driver.export(None, 1).await.expect("export");
    let of_export = export.next.expect("a cursor");
    let junk = Cursor::new("no cursor at all");
    for wrong in [&of_settings, &of_export, &junk] {
        let request = List::new(Filter::all(), 1, T0).after(wrong.clone());
        assert_eq!(invalid(t.driver.list(request).await), InvalidRequest::Cursor);
        let request = ListFlows::new(1, T0).after(wrong.clone());
        assert_eq!(invalid(t.driver.list_flows(request).await), InvalidRequest::Cursor);
    }
    for wrong in [&of_jobs, &of_export, &junk] {
        let request = ListSettings::new(1).after(wrong.clone());
        assert_eq!(invalid(t.driver.settings(request).await), InvalidRequest::Cursor);
    }
    for wrong in [of_jobs, of_settings, junk] {
        let refused = t.driver.export(Some(wrong), 1).await;
        assert_eq!(invalid(refused), InvalidRequest::Cursor);
    }
}

async fn a_range_of_time_without_an_instant_is_refused(t: DriverUnderTest) {
    for (from, to) in [(at(5), at(5)), (at(6), at(5)), (Timestamp::MAX, Timestamp::EPOCH)] {
        let range = TimeRange::new(Some(from), Some(to));
        let request = List::new(Filter::all().created(range), 5, T0);
        let refused = invalid(t.driver.list(request).await);
        assert_eq!(refused, InvalidRequest::EmptyRange("created".into()));
        let request = List::new(Filter::all().finished(range), 5, T0);
        let refused = invalid(t.driver.list(request).await);
        assert_eq!(refused, InvalidRequest::EmptyRange("finished".into()));
    }
}

async fn counts_with_a_cap_are_exact_below_it(t: DriverUnderTest) {
    t.put_all((0..7).map(|n| job(&n.to_string())), T0).await;
    t.put_all((0..3).map(|n| job(&format!("later {n}")).run_at(at(9))), T0).await;
    t.put_all((0..2).map(|n| job_in("p", &format!("p{n}"))), T0).await;
    let leased = t.take_many(6, T0).await;
    for (n, leased) in leased.iter().enumerate() {
        let ends = if n < 5 { ack() } else { fail(T0) };
        t.apply(leased, ends, T0).await;
    }
    let exact = t.counts(T0).await;
    for cap in 1..=8 {
        let counts = t.driver.counts(Counts::new(T0).at_most(cap)).await.expect("counts");
        assert_eq!(counts.len(), exact.len());
        for (counted, exact) in counts.iter().zip(&exact) {
            assert_eq!(counted.queue, exact.queue);
            assert_eq!(counted.oldest_ready, exact.oldest_ready);
            for &state in State::ALL {
                let (counted, exact) = (counted.states.get(state), exact.states.get(state));
                let is_right = if counted < cap { counted == exact } else { counted <= exact };
                assert!(is_right, "{counted} of {exact} {state} with a cap of {cap}");
            }
        }
    }
}

async fn a_cap_of_zero_is_refused(t: DriverUnderTest) {
    let refused = invalid(t.driver.counts(Counts::new(T0).at_most(0)).await);
    assert!(matches!(refused, InvalidRequest::OutOfRange { value: 0, .. }));
}
