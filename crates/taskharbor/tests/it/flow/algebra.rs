//! Chains, groups and joins, in any depth and order.

use taskharbor::{Flow, IntoFlow, Job, Options, State, testing::Harbor};

use super::{Add, Echo, Give, Pair, Rest, Write, edges, gives, outcome};

#[tokio::test(start_paused = true)]
async fn a_finalizer_takes_the_outputs_of_its_group_in_order() {
    assert_eq!(outcome(Flow::chord(gives([3, 1, 2]), Write)).await, "[3, 1, 2]");
    assert_eq!(outcome(Flow::group(gives([3, 1, 2])).then(Write)).await, "[3, 1, 2]");
}

#[tokio::test(start_paused = true)]
async fn a_group_by_itself_produces_the_list() {
    assert_eq!(outcome(Flow::group(gives([3, 1, 2]))).await, [3, 1, 2]);
    assert_eq!(outcome(Flow::group(gives([7]))).await, [7]);
}

#[tokio::test(start_paused = true)]
async fn an_empty_group_completes_at_once() {
    assert_eq!(outcome(Flow::group(gives([]))).await, [0; 0]);
    assert_eq!(outcome(Flow::chord(gives([]), Write)).await, "[]");
    // Also behind a step whose output no other step takes.
    let behind = Flow::first(Give(5)).then(Flow::group([Add(1); 0].map(Flow::first))).then(Write);
    assert_eq!(outcome(behind).await, "[]");
}

#[tokio::test(start_paused = true)]
async fn a_chain_of_one_is_its_step_and_an_empty_one_hands_on() {
    assert_eq!(outcome(Flow::first(Give(1)).then(Flow::chain([Add(2)]))).await, 3);
    assert_eq!(outcome(Flow::first(Give(1)).then(Flow::chain([Add(2), Add(3)]))).await, 6);
    let empty = Flow::chain(Vec::<Add>::new());
    assert_eq!(outcome(Flow::first(Give(1)).then(empty).then(Add(4))).await, 5);
    outcome(Flow::chain(Vec::<Rest>::new())).await;
    outcome(Flow::chain([Rest, Rest])).await;
}

#[tokio::test(start_paused = true)]
async fn groups_of_groups_produce_lists_of_lists() {
    let groups = [gives([1, 2]), gives([]), gives([3])].map(Flow::group);
    assert_eq!(outcome(Flow::group(groups).then(Echo)).await, "[[1, 2], [], [3]]");
    let deep = Flow::group([Flow::group([Flow::group(gives([1])), Flow::group(gives([2, 3]))])]);
    assert_eq!(outcome(deep).await, [[vec![1], vec![2, 3]]]);
}

#[tokio::test(start_paused = true)]
async fn a_step_before_a_group_is_read_by_every_member() {
    let members = [10, 20].map(Add);
    assert_eq!(
        outcome(Flow::first(Give(1)).then(Flow::group(members)).then(Write)).await,
        "[11, 21]"
    );
}

#[tokio::test(start_paused = true)]
async fn chains_in_groups_and_groups_in_chains() {
    let member = |n| Flow::first(Give(n)).then(Add(100)).then(Flow::group([Add(1), Add(2)]));
    let flow = Flow::group([member(1), member(2)]).then(Echo);
    assert_eq!(outcome(flow).await, "[[102, 103], [103, 104]]");
}

#[tokio::test(start_paused = true)]
async fn a_group_behind_a_group_costs_edges_in_proportion() {
    let harbor = Harbor::new(super::Handlers::new());
    let first = Flow::group(gives(0..50));
    let flow = first.then(Flow::group((0..50).map(|_| Write)));
    harbor.client().start(flow).await.unwrap();
    let records = harbor.records().await;
    assert_eq!(records.len(), 102);
    assert_eq!(edges(&records), 150);
}

#[tokio::test(start_paused = true)]
async fn unlike_members_are_paired() {
    let flow = Flow::join(Give(1), Flow::chord(gives([2]), Write)).then(Pair);
    assert_eq!(outcome(flow).await, "1 [2]");
    let pair = Flow::join(Give(1), Flow::join(Give(2), Flow::first(Rest).discard()));
    assert_eq!(outcome(pair).await, (1, (2, ())));
}

#[tokio::test(start_paused = true)]
async fn a_discarded_output_is_nothing() {
    outcome(Flow::first(Give(1)).discard()).await;
    assert_eq!(outcome(Flow::first(Give(1)).discard().then(Give(2))).await, 2);
    let units = Flow::group(gives([1, 2]).into_iter().map(|it| it.into_flow().discard()));
    assert_eq!(outcome(units).await, [(), ()]);
    assert_eq!(outcome(Flow::group([Rest, Rest])).await, [(), ()]);
}

#[tokio::test(start_paused = true)]
async fn a_chain_of_a_thousand_steps_and_a_nesting_of_a_hundred_run() {
    let chain = Flow::first(Give(0)).then(Flow::chain((0..1_000).map(|_| Add(1))));
    assert_eq!(outcome(chain).await, 1_000);
    let nested = (0..100)
        .fold(Flow::first(Rest), |flow, _| Flow::group([flow, Flow::first(Rest)]).discard());
    outcome(nested).await;
}

#[tokio::test(start_paused = true)]
async fn every_step_has_options_of_its_own() {
    let harbor = Harbor::new(super::Handlers::new());
    let later = Options::new().queue("slow").delay(std::time::Duration::from_secs(9)).priority(3);
    let late = Give(1).with(later.max_attempts(2).label("the late one"));
    let flow = Flow::group([late, Give(2).with(Options::new())]).label("both").then(Write);
    harbor.client().start(flow).await.unwrap();
    let records = harbor.records().await;
    let states: Vec<_> = records.iter().map(|it| it.state).collect();
    assert_eq!(states, [State::Scheduled, State::Ready, State::Blocked, State::Blocked]);
    let late = &records[0].job;
    assert_eq!((late.queue.as_str(), late.priority), ("slow", 3));
    assert_eq!(late.max_attempts, Some(2));
    let labels: Vec<_> = records.iter().map(|it| it.job.headers.get("th-label")).collect();
    assert_eq!(labels, [Some("the late one"), None, Some("both"), None]);
}
