//! The outputs of jobs, as dependants and clients read them.

use taskharbor_core::{
    Blob, Driver, NewJob, State,
    admin::{Action, Requeue},
    driver::{OutputEntry, OutputPage, OutputQuery, Outputs, Transition},
    error::{InvalidRequest, Refusal},
    job::FailurePolicy,
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{
        T0, ack, ack_with, at, child, done_with, expand, fail, gave_up, id, ids, invalid, job,
        join, list, list_of, requeue, settlement,
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
        pages_of_every_size_are_together_the_whole ["OUT-4" "OUT-2"]
        an_unblocked_dependant_reads_the_failure_even_after_later_changes ["OUT-1" "POL-4" "EXP-2"]
        a_job_whose_expansion_was_removed_reads_as_missing ["OUT-3" "EXP-2"]
        a_list_longer_than_a_page_can_be_read_to_its_end ["OUT-4"]
        pages_of_large_outputs_are_together_the_whole ["OUT-4"]
        an_unknown_job_does_not_disturb_the_other_answers ["OUT-5"]
        one_job_may_be_asked_about_twice_in_a_call ["OUT-1" "OUT-3" "OUT-4"]
    }
}

/// The entry for a job that a person cancelled.
pub(super) fn cancelled() -> OutputEntry {
    OutputEntry::Failed { state: State::Cancelled, reason: None }
}

/// The pages of at most `limit` entries that an answer comes in.
pub(super) async fn pages(
    t: &DriverUnderTest,
    query: OutputQuery,
    limit: usize,
) -> Vec<Vec<OutputEntry>> {
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
pub(super) async fn ack_each(t: &DriverUnderTest, texts: &[&str]) {
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

async fn an_unblocked_dependant_reads_the_failure_even_after_later_changes(t: DriverUnderTest) {
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
