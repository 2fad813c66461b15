//! The inputs of jobs.

use taskharbor_core::{
    Driver, State,
    admin::Action,
    driver::{JoinList, OutputEntry, OutputQuery, Outputs},
    error::Refusal,
    job::{FailurePolicy, JobKind, JoinReading},
};

use super::output::{ack_each, cancelled, pages};
use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{
        T0, ack, ack_with, at, child, done_with, expand, fail, gave_up, id, job, join, list_of,
        requeue,
    },
};

use OutputEntry::Pending;

group! {
    input {}
    flows {
        a_join_says_how_its_list_is_read ["OUT-2" "JOB-1"]
        the_input_behind_one_join_is_its_list ["OUT-6" "OUT-2"]
        the_input_of_other_jobs_is_what_their_parents_produced ["OUT-6" "OUT-1"]
        the_input_behind_a_join_that_is_not_done_is_one_entry ["OUT-6"]
        the_input_behind_an_expansion_that_ends_in_a_join_is_its_list ["OUT-6" "EXP-2"]
        a_long_input_is_read_in_pages_that_name_their_join ["OUT-6" "OUT-4"]
    }
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
