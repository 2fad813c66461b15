//! The outputs of joins: the lists of their parents' outputs, and nested lists.

use taskharbor_core::{
    admin::Action,
    driver::{OutputEntry, OutputQuery},
    job::FailurePolicy,
};

use super::output::{ack_each, cancelled, pages};
use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{T0, child, done_with, fail, gave_up, id, job, join, list, list_of},
};

use OutputEntry::Pending;

group! {
    output_join {}
    flows {
        a_join_is_the_list_of_its_parents ["OUT-2" "OUT-3"]
        joins_nest_where_they_stand ["OUT-2"]
        a_join_shows_the_failures_among_its_parents ["OUT-2" "POL-4"]
        a_join_that_is_not_done_is_pending_or_failed ["OUT-3"]
        joins_nest_a_thousand_deep ["OUT-2"]
        a_join_among_the_parents_is_named_and_read_by_itself ["OUT-2" "OUT-3"]
        joins_upon_joins_cost_no_more_than_their_edges ["OUT-2" "OUT-4"]
    }
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
