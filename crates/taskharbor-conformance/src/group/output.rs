//! What jobs produced, as their dependants and clients read it.

use taskharbor_core::{
    Blob, Driver, NewJob, State, Text,
    admin::{Action, Requeue},
    driver::{JoinList, OutputEntry, OutputPage, OutputQuery, Outputs, Transition},
    error::{InvalidRequest, Refusal},
    job::{FailurePolicy, JobKind, JoinReading},
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{
        T0, ack, ack_with, at, child, done_with, expand, fail, id, ids, invalid, job, join, list,
        list_of, requeue, settlement,
    },
};

use OutputEntry::{Done, Missing, Pending};

group! {
    output {
        a_jobs_own_output_is_done_failed_or_pending ["OUT-3"]
        a_page_of_outputs_has_one_to_a_thousand ["OUT-4"]
    }
    flows {
        parents_outputs_are_read_in_declared_order ["OUT-1"]
        no_output_and_an_empty_one_are_told_apart ["OUT-1" "SET-1"]
        an_output_is_read_byte_for_byte ["OUT-1" "OUT-3" "SET-1"]
        a_job_without_parents_reads_an_empty_list ["OUT-1"]
        a_parent_that_is_not_over_is_pending ["OUT-1"]
        a_parent_that_failed_is_read_with_state_and_reason ["OUT-1" "POL-4"]
        a_parent_that_was_requeued_is_pending_again ["OUT-1"]
        a_parent_whose_record_was_removed_is_missing ["OUT-1"]
        a_removed_parents_id_used_again_is_still_missing ["OUT-1"]
        a_join_is_the_list_of_its_parents ["OUT-2" "OUT-3"]
        joins_nest_where_they_stand ["OUT-2"]
        a_join_shows_the_failures_among_its_parents ["OUT-2" "POL-4"]
        a_join_that_is_not_done_is_pending_or_failed ["OUT-3"]
        joins_nest_a_thousand_deep ["OUT-2"]
        pages_of_every_size_are_together_the_whole ["OUT-4" "OUT-2"]
        a_join_among_the_parents_is_named_and_read_by_itself ["OUT-2" "OUT-3"]
        joins_upon_joins_cost_no_more_than_their_edges ["OUT-2" "OUT-4"]
        an_unblocked_dependant_reads_the_failure_whatever_happens_later ["OUT-1" "POL-4" "EXP-2"]
        a_job_whose_expansion_was_removed_reads_as_missing ["OUT-3" "EXP-2"]
        a_list_longer_than_a_page_can_be_read_to_its_end ["OUT-4"]
        pages_of_large_outputs_are_together_the_whole ["OUT-4"]
        an_unknown_job_does_not_disturb_the_other_answers ["OUT-5"]
        one_job_may_be_asked_about_twice_in_a_call ["OUT-1" "OUT-3" "OUT-4"]
        a_join_says_how_its_list_is_read ["OUT-2" "JOB-1"]
        the_input_behind_one_join_is_its_list ["OUT-6" "OUT-2"]
        the_input_of_other_jobs_is_what_their_parents_produced ["OUT-6" "OUT-1"]
        the_input_behind_a_join_that_is_not_done_is_one_entry ["OUT-6"]
        the_input_behind_an_expansion_that_ends_in_a_join_is_its_list ["OUT-6" "EXP-2"]
        a_long_input_is_read_in_pages_that_name_their_join ["OUT-6" "OUT-4"]
    }
}

/// The entry for a job that was dead-lettered as [`fail`] does.
fn gave_up() -> OutputEntry {
    OutputEntry::Failed { state: State::Dlq, reason: Some(Text::new("gave up")) }
}

/// The entry for a job that a person cancelled.
fn cancelled() -> OutputEntry {
    OutputEntry::Failed { state: State::Cancelled, reason: None }
}

/// The pages of at most `limit` entries that an answer comes in.
async fn pages(t: &DriverUnderTest, query: OutputQuery, limit: usize) -> Vec<Vec<OutputEntry>> {
    let mut pages = Vec::new();
    let mut from = Some(query.from);
    while let Some(start) = from {
        let request = Outputs::new(vec![query.clone().from(start)], limit);
        let mut answers = t.driver.outputs(request).await.expect("outputs");
        let OutputPage { entries, next, .. } = answers.remove(0).expect("not refused");
        assert!(entries.len() <= limit, "more than a page");
        assert!(next.is_none_or(|next| next > start), "it goes on");
        pages.push(entries);
        from = next;
    }
    pages
}

/// Acks every one of these, which must be the next, with its own id as output.
async fn ack_each(t: &DriverUnderTest, texts: &[&str]) {
    for text in texts {
        t.run(text, ack_with(text), T0).await;
    }
}

async fn parents_outputs_are_read_in_declared_order(t: DriverUnderTest) {
    let jobs = [job("a"), job("b"), job("c"), child("d", &["b", "c", "a"])];
    t.put_flow(jobs, T0).await;
    ack_each(&t, &["a", "b", "c"]).await;
    let expected = [list(3), done_with("b"), done_with("c"), done_with("a")];
    assert_eq!(t.inputs("d").await, expected);
}

async fn no_output_and_an_empty_one_are_told_apart(t: DriverUnderTest) {
    t.put_flow([job("a"), job("b"), child("c", &["a", "b"])], T0).await;
    t.run("a", ack(), T0).await;
    t.run("b", ack_with(""), T0).await;
    let expected = [list(2), Done(None), done_with("")];
    assert_eq!(t.inputs("c").await, expected);
}

async fn an_output_is_read_byte_for_byte(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"])], T0).await;
    let bytes: Vec<u8> = (0..=255).collect();
    let output = Some(Blob::from(bytes));
    t.run("a", Transition::Ack { output: output.clone() }, T0).await;
    assert_eq!(t.inputs("b").await, [list(1), Done(output.clone())]);
    assert_eq!(t.output("a").await, [Done(output)]);
}

async fn a_job_without_parents_reads_an_empty_list(t: DriverUnderTest) {
    t.put(job("plain"), T0).await;
    t.put_flow([job("a"), join("j", &[]), child("b", &["a", "j"])], T0).await;
    for text in ["plain", "a", "j"] {
        assert_eq!(t.inputs(text).await, [list(0)], "{text}");
    }
}

async fn a_parent_that_is_not_over_is_pending(t: DriverUnderTest) {
    let jobs = [
        job("inflight"),
        job("ready"),
        job("scheduled").run_at(at(9)),
        child("blocked", &["ready"]),
        child("end", &["inflight", "ready", "scheduled", "blocked"]),
    ];
    t.put_flow(jobs, T0).await;
    t.take_the("inflight", T0).await;
    let expected = [list(4), Pending, Pending, Pending, Pending];
    assert_eq!(t.inputs("end").await, expected);
}

async fn a_parent_that_failed_is_read_with_state_and_reason(t: DriverUnderTest) {
    let released = |text| job(text).on_failure(FailurePolicy::Continue);
    let jobs = [released("a"), released("b"), child("c", &["a", "b"])];
    t.put_flow(jobs, T0).await;
    t.run("a", fail(T0), T0).await;
    t.act("b", Action::Cancel, T0).await;
    t.take_the("c", T0).await;
    assert_eq!(t.inputs("c").await, [list(2), gave_up(), cancelled()]);
}

async fn a_parent_that_was_requeued_is_pending_again(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"])], T0).await;
    t.run("a", fail(T0), T0).await;
    assert_eq!(t.inputs("b").await, [list(1), gave_up()]);
    t.act("a", requeue(), T0).await;
    assert_eq!(t.inputs("b").await, [list(1), Pending]);
    ack_each(&t, &["a"]).await;
    assert_eq!(t.inputs("b").await, [list(1), done_with("a")]);
}

async fn a_parent_whose_record_was_removed_is_missing(t: DriverUnderTest) {
    let released = child("b", &["a"]).on_failure(FailurePolicy::Continue);
    t.put_flow([job("a"), released, child("c", &["b"])], T0).await;
    ack_each(&t, &["a"]).await;
    t.run("b", fail(T0), T0).await;
    ack_each(&t, &["c"]).await;
    let alone = Action::Requeue(Requeue::new().detach());
    t.act("b", alone, T0).await;
    assert_eq!(t.inputs("b").await, [list(1), done_with("a")]);
    t.act("c", Action::PurgeFlow, T0).await;
    assert_eq!(t.inputs("b").await, [list(1), Missing]);
}

async fn a_removed_parents_id_used_again_is_still_missing(t: DriverUnderTest) {
    let released = child("b", &["a"]).on_failure(FailurePolicy::Continue);
    t.put_flow([job("a"), released, child("c", &["b"])], T0).await;
    ack_each(&t, &["a"]).await;
    t.run("b", fail(T0), T0).await;
    ack_each(&t, &["c"]).await;
    t.act("b", Action::Requeue(Requeue::new().detach()), at(1)).await;
    t.act("c", Action::PurgeFlow, at(1)).await;
    t.put_all([job("a"), job("c")], T0).await;
    ack_each(&t, &["a", "c"]).await;
    assert_eq!(t.inputs("b").await, [list(1), Missing]);
}

async fn a_jobs_own_output_is_done_failed_or_pending(t: DriverUnderTest) {
    t.put_all([job("a"), job("b"), job("c"), job("d")], T0).await;
    t.act("d", Action::Cancel, T0).await;
    assert_eq!(t.output("a").await, [Pending]);
    ack_each(&t, &["a"]).await;
    t.run("b", fail(T0), T0).await;
    assert_eq!(t.output("a").await, [done_with("a")]);
    assert_eq!(t.output("b").await, [gave_up()]);
    assert_eq!(t.output("c").await, [Pending]);
    assert_eq!(t.output("d").await, [cancelled()]);
}

async fn a_join_is_the_list_of_its_parents(t: DriverUnderTest) {
    t.put_flow([job("a"), job("b"), join("j", &["b", "a"])], T0).await;
    ack_each(&t, &["a", "b"]).await;
    let expected = [list(2), done_with("b"), done_with("a")];
    assert_eq!(t.output("j").await, expected);
    assert_eq!(t.inputs("j").await, expected);
}

async fn joins_nest_where_they_stand(t: DriverUnderTest) {
    let jobs = [
        job("a"),
        job("b"),
        job("c"),
        join("empty", &[]),
        join("inner", &["b", "empty"]),
        join("outer", &["inner", "c"]),
        child("end", &["a", "outer"]),
    ];
    t.put_flow(jobs, T0).await;
    ack_each(&t, &["a", "b", "c"]).await;
    let (a, b, c) = (done_with("a"), done_with("b"), done_with("c"));
    let expected = [list(2), a, list(2), list(2), b, list(0), c];
    assert_eq!(t.inputs("end").await, expected);
    assert_eq!(t.output("outer").await, expected[2..]);
    assert_eq!(t.output("empty").await, [list(0)]);
}

async fn a_join_shows_the_failures_among_its_parents(t: DriverUnderTest) {
    let a = job("a").on_failure(FailurePolicy::Continue);
    t.put_flow([a, job("b"), join("j", &["a", "b"])], T0).await;
    t.run("a", fail(T0), T0).await;
    ack_each(&t, &["b"]).await;
    let expected = [list(2), gave_up(), done_with("b")];
    assert_eq!(t.output("j").await, expected);
}

async fn a_join_that_is_not_done_is_pending_or_failed(t: DriverUnderTest) {
    let j = join("j", &["a"]).on_failure(FailurePolicy::Continue);
    t.put_flow([job("a"), j, child("b", &["j"])], T0).await;
    assert_eq!(t.output("j").await, [Pending]);
    assert_eq!(t.inputs("b").await, [list(1), Pending]);
    t.act("j", Action::Cancel, T0).await;
    assert_eq!(t.output("j").await, [cancelled()]);
    assert_eq!(t.inputs("b").await, [list(1), cancelled()]);
}

async fn joins_nest_a_thousand_deep(t: DriverUnderTest) {
    let step = |n: usize| format!("{n:04}");
    let joins = (1..1_000).map(|n| join(&step(n), &[&step(n - 1)]));
    t.put_flow([job("0000")].into_iter().chain(joins), T0).await;
    ack_each(&t, &["0000"]).await;
    let mut expected = vec![list(1); 999];
    expected.push(done_with("0000"));
    assert_eq!(t.output("0999").await, expected);
}

async fn pages_of_every_size_are_together_the_whole(t: DriverUnderTest) {
    let names = ["a", "b", "c", "d", "e"];
    let end = [join("empty", &[]), child("end", &["a", "empty", "b", "c", "d", "e"])];
    t.put_flow(names.map(job).into_iter().chain(end), T0).await;
    ack_each(&t, &names).await;
    let empty = list_of("empty", 0);
    let mut whole = names.map(done_with).to_vec();
    whole.insert(1, empty);
    for limit in 1..=8 {
        let pages = pages(&t, OutputQuery::parents_of(id("end")), limit).await;
        assert_eq!(pages.len(), whole.len().div_ceil(limit), "{limit}");
        assert_eq!(pages.concat(), whole, "{limit}");
    }
}

async fn a_join_among_the_parents_is_named_and_read_by_itself(t: DriverUnderTest) {
    let jobs = [job("a"), join("inner", &["a"]), child("end", &["inner"])];
    t.put_flow(jobs, T0).await;
    ack_each(&t, &["a"]).await;
    let inner = list_of("inner", 1);
    let read = |query| pages(&t, query, 10);
    assert_eq!(read(OutputQuery::parents_of(id("end"))).await, [[inner.clone()]]);
    assert_eq!(read(OutputQuery::of(id("inner"))).await, [[inner]]);
    assert_eq!(read(OutputQuery::parents_of(id("inner"))).await, [[done_with("a")]]);
}

/// Every layer of joins doubles the number of ways to the first jobs; one level is read at a time.
async fn joins_upon_joins_cost_no_more_than_their_edges(t: DriverUnderTest) {
    let mut jobs = vec![job("0-a"), job("0-b")];
    for layer in 1..80 {
        let (a, b) = (format!("{}-a", layer - 1), format!("{}-b", layer - 1));
        let parents = [a.as_str(), b.as_str()];
        jobs.push(join(&format!("{layer}-a"), &parents));
        jobs.push(join(&format!("{layer}-b"), &parents));
    }
    jobs.push(join("end", &["79-a", "79-b"]));
    t.put_flow(jobs, T0).await;
    ack_each(&t, &["0-a", "0-b"]).await;
    let whole = pages(&t, OutputQuery::parents_of(id("end")).from(usize::MAX), 10).await;
    assert_eq!(whole, [[]]);
    let top = pages(&t, OutputQuery::parents_of(id("end")), 10).await.concat();
    let join = |text| list_of(text, 2);
    assert_eq!(top, [join("79-a"), join("79-b")]);
}

async fn an_unblocked_dependant_reads_the_failure_whatever_happens_later(t: DriverUnderTest) {
    let a = job("a").on_failure(FailurePolicy::Continue);
    t.put_flow([a, child("b", &["a"])], T0).await;
    t.run("a", fail(T0), T0).await;
    let failed = [list(1), gave_up()];
    assert_eq!(t.inputs("b").await, failed);
    t.act("a", requeue(), T0).await;
    assert_eq!(t.inputs("b").await, failed);
    let expanded = t.take_many(2, T0).await;
    let expanded = expanded.iter().find(|it| it.job.id == id("a")).expect("requeued");
    t.apply(expanded, expand([job("c")]), T0).await;
    assert_eq!(t.inputs("b").await, failed);
    assert_eq!(t.record("b", T0).await.parents, ids(&["a"]));
}

async fn a_job_whose_expansion_was_removed_reads_as_missing(t: DriverUnderTest) {
    let jobs = [job("m").on_failure(FailurePolicy::Continue), child("end", &["m"])];
    t.put_flow(jobs, T0).await;
    t.run("m", expand([job("g")]), T0).await;
    t.run("g", fail(T0), T0).await;
    t.run("end", ack(), T0).await;
    t.act("g", Action::Requeue(Requeue::new().detach()), T0).await;
    t.run("g", ack(), T0).await;
    t.act("g", Action::Purge, T0).await;
    assert_eq!(t.output("m").await, [OutputEntry::Missing]);
    t.put(job("g"), T0).await;
    t.run("g", ack_with("a stranger"), T0).await;
    assert_eq!(t.output("m").await, [OutputEntry::Missing]);
}

async fn a_list_longer_than_a_page_can_be_read_to_its_end(t: DriverUnderTest) {
    let names: Vec<String> = (0..1_000).map(|n| format!("{n:04}")).collect();
    let members: Vec<NewJob> = names.iter().map(|name| job(name)).collect();
    let end = job("end").after(names.iter().map(|name| id(name)));
    t.put_flow(members.into_iter().chain([end]), T0).await;
    let leased = t.take_many(1_000, T0).await;
    let acked = leased.iter().map(|it| settlement(it, ack_with(it.job.id.as_str())));
    t.settle_all(acked.collect(), T0).await;
    let expected: Vec<_> = names.iter().map(|name| done_with(name)).collect();
    for limit in [7, 999, 1_000] {
        let pages = pages(&t, OutputQuery::parents_of(id("end")), limit).await;
        assert_eq!(pages.concat(), expected, "{limit}");
    }
}

async fn pages_of_large_outputs_are_together_the_whole(t: DriverUnderTest) {
    let names: Vec<String> = (0..18).map(|n| format!("{n:02}")).collect();
    let members: Vec<NewJob> = names.iter().map(|name| job(name)).collect();
    let end = join("end", &[]).after(names.iter().map(|name| id(name)));
    t.put_flow(members.into_iter().chain([end]), T0).await;
    let mut expected = Vec::new();
    for (n, name) in (0..).zip(&names) {
        let output = Some(Blob::from(vec![n; 1024 * 1024]));
        expected.push(Done(output.clone()));
        t.run(name, Transition::Ack { output }, T0).await;
    }
    let pages = pages(&t, OutputQuery::parents_of(id("end")), 1_000).await;
    assert!(pages.iter().all(|page| page.len() <= 16), "more than 16 MiB in a page");
    assert_eq!(pages.concat(), expected);
}

async fn a_page_of_outputs_has_one_to_a_thousand(t: DriverUnderTest) {
    t.put(job("a"), T0).await;
    for limit in [0, 1_001] {
        let request = Outputs::new(vec![OutputQuery::of(id("a"))], limit);
        let answer = t.driver.outputs(request).await;
        let refused = invalid(answer);
        assert!(matches!(refused, InvalidRequest::OutOfRange { value, .. } if value == limit));
    }
}

async fn an_unknown_job_does_not_disturb_the_other_answers(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"])], T0).await;
    ack_each(&t, &["a"]).await;
    let items = vec![
        OutputQuery::of(id("ghost")),
        OutputQuery::of(id("a")),
        OutputQuery::parents_of(id("ghost")),
        OutputQuery::parents_of(id("b")),
    ];
    let answers = t.driver.outputs(Outputs::new(items, 10)).await;
    let whole = |entries: &[OutputEntry]| Ok(OutputPage::new(entries.to_vec(), None));
    let expected = [
        Err(Refusal::JobNotFound),
        whole(&[done_with("a")]),
        Err(Refusal::JobNotFound),
        whole(&[done_with("a")]),
    ];
    assert_eq!(answers.expect("outputs"), expected);
}

async fn one_job_may_be_asked_about_twice_in_a_call(t: DriverUnderTest) {
    t.put_flow([job("a"), child("b", &["a"])], T0).await;
    ack_each(&t, &["a", "b"]).await;
    let items =
        vec![OutputQuery::of(id("b")), OutputQuery::parents_of(id("b")), OutputQuery::of(id("b"))];
    let answers = t.driver.outputs(Outputs::new(items, 10)).await;
    let own = Ok(OutputPage::new(vec![done_with("b")], None));
    let read = Ok(OutputPage::new(vec![done_with("a")], None));
    assert_eq!(answers.expect("outputs"), [own.clone(), read, own]);
}

/// The first page of what a job takes as its input.
async fn input(t: &DriverUnderTest, text: &str) -> (Vec<OutputEntry>, Option<JoinList>) {
    let request = Outputs::new(vec![OutputQuery::input_of(id(text))], 10);
    let mut answers = t.driver.outputs(request).await.expect("outputs");
    let page = answers.remove(0).expect("not refused");
    assert_eq!(page.next, None);
    (page.entries, page.join)
}

async fn a_join_says_how_its_list_is_read(t: DriverUnderTest) {
    for reading in JoinReading::ALL.iter().copied() {
        let (a, j, end) =
            (format!("a {reading:?}"), format!("j {reading:?}"), format!("{reading:?}"));
        let join = join(&j, &[&a]).read_as(reading);
        t.put_flow([job(&a), join, child(&end, &[&j])], T0).await;
        assert_eq!(t.record(&j, T0).await.kind, JobKind::Join(reading));
        t.run(&a, ack_with("x"), T0).await;
        let list = JoinList::new(id(&j), 1, reading);
        let read = pages(&t, OutputQuery::parents_of(id(&end)), 10).await;
        assert_eq!(read, [[OutputEntry::List(list.clone())]]);
        // The reading changes nothing about the list itself.
        let read = pages(&t, OutputQuery::parents_of(id(&j)), 10).await;
        assert_eq!(read, [[done_with("x")]]);
        assert_eq!(input(&t, &end).await, (vec![done_with("x")], Some(list)));
        t.run(&end, ack(), T0).await;
    }
}

async fn the_input_behind_one_join_is_its_list(t: DriverUnderTest) {
    let a = job("a").on_failure(FailurePolicy::Continue);
    let jobs =
        [a, job("b"), join("inner", &["b"]), join("j", &["a", "inner"]), child("end", &["j"])];
    t.put_flow(jobs, T0).await;
    t.run("a", fail(T0), T0).await;
    t.run("b", ack_with("b"), T0).await;
    let list = JoinList::new(id("j"), 2, JoinReading::List);
    assert_eq!(input(&t, "end").await, (vec![gave_up(), list_of("inner", 1)], Some(list)));
    t.put_flow([join("none", &[]), child("last", &["none"])], T0).await;
    let list = JoinList::new(id("none"), 0, JoinReading::List);
    assert_eq!(input(&t, "last").await, (Vec::new(), Some(list)));
}

async fn the_input_of_other_jobs_is_what_their_parents_produced(t: DriverUnderTest) {
    let jobs = [
        job("a"),
        join("j", &["a"]),
        child("one", &["a"]),
        child("two", &["j", "a"]),
        join("end", &["one", "two"]),
    ];
    t.put_flow(jobs, T0).await;
    assert_eq!(input(&t, "one").await, (vec![Pending], None));
    ack_each(&t, &["a"]).await;
    assert_eq!(input(&t, "a").await, (Vec::new(), None));
    assert_eq!(input(&t, "one").await, (vec![done_with("a")], None));
    assert_eq!(input(&t, "two").await, (vec![list_of("j", 1), done_with("a")], None));
    let unknown = Outputs::new(vec![OutputQuery::input_of(id("ghost"))], 10);
    let answers = t.driver.outputs(unknown).await.expect("outputs");
    assert_eq!(answers, [Err(Refusal::JobNotFound)]);
}

async fn the_input_behind_a_join_that_is_not_done_is_one_entry(t: DriverUnderTest) {
    let j = join("j", &["a"]).on_failure(FailurePolicy::Continue);
    t.put_flow([job("a").run_at(at(9)), j, child("end", &["j"])], T0).await;
    assert_eq!(input(&t, "end").await, (vec![Pending], None));
    t.act("j", Action::Cancel, T0).await;
    assert_eq!(input(&t, "end").await, (vec![cancelled()], None));
    // What it failed with is read for ever, though the join is done later.
    t.act("j", requeue(), T0).await;
    t.act("a", Action::RunNow, T0).await;
    t.run("a", ack(), T0).await;
    t.take_the("end", T0).await;
    assert_eq!(t.state("j", T0).await, State::Done);
    assert_eq!(input(&t, "end").await, (vec![cancelled()], None));
}

async fn the_input_behind_an_expansion_that_ends_in_a_join_is_its_list(t: DriverUnderTest) {
    t.put_flow([job("a"), child("end", &["a"])], T0).await;
    let gather = join("j", &["x", "y"]).read_as(JoinReading::Gather);
    t.run("a", expand([job("x"), job("y"), gather]), T0).await;
    ack_each(&t, &["x", "y"]).await;
    let list = JoinList::new(id("j"), 2, JoinReading::Gather);
    assert_eq!(input(&t, "end").await, (vec![done_with("x"), done_with("y")], Some(list)));
}

async fn a_long_input_is_read_in_pages_that_name_their_join(t: DriverUnderTest) {
    let names = ["a", "b", "c", "d", "e"];
    let end = [join("j", &names), child("end", &["j"])];
    t.put_flow(names.map(job).into_iter().chain(end), T0).await;
    ack_each(&t, &names).await;
    let mut entries = Vec::new();
    let mut from = Some(0);
    while let Some(start) = from {
        let query = OutputQuery::input_of(id("end")).from(start);
        let mut answers = t.driver.outputs(Outputs::new(vec![query], 2)).await.expect("outputs");
        let page = answers.remove(0).expect("not refused");
        assert_eq!(page.join, Some(JoinList::new(id("j"), 5, JoinReading::List)));
        entries.extend(page.entries);
        from = page.next;
    }
    assert_eq!(entries, names.map(done_with));
}
