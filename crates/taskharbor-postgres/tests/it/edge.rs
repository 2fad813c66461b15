//! Runs of edges: a large join is a few rows until one of its edges changes.

use taskharbor_core::{
    Admin, Blob, Driver, NewJob, State, Text,
    driver::{Leased, OutputEntry, OutputQuery, Outputs, Settle, Settled, Settlement, Transition},
    flow::Expansion,
    job::{FailurePolicy, JobSet},
};

use crate::{
    fixture::{ack, fail, id, job, lease, noon, queue, settle, store_set},
    harness::store::{Store, named},
};

/// Their numbers lie in three or four spans of 512.
const MEMBERS: usize = 1_200;

fn chord() -> Vec<NewJob> {
    let member = |nth| job(format!("member-{nth}")).on_failure(FailurePolicy::Continue);
    let mut jobs: Vec<_> = (0..MEMBERS).map(member).collect();
    let join = NewJob::join(id("all"), queue("q"), jobs.iter().map(|it| it.id.clone()));
    jobs.extend([join, job("last").after([id("all")])]);
    jobs
}

fn output(nth: usize) -> Blob {
    Blob::from(nth.to_string().into_bytes())
}

async fn rows(store: &Store) -> i64 {
    let sql = store.sql().await;
    sql.query_one("SELECT count(*) FROM th_edge", &[]).await.unwrap().get(0)
}

/// What the job `last` reads, in pages that begin and end within runs.
async fn inputs(store: &Store) -> Vec<OutputEntry> {
    let mut entries = Vec::new();
    while entries.len() < MEMBERS {
        let query = OutputQuery::input_of(id("last")).from(entries.len());
        let pages = store.outputs(Outputs::new(vec![query], 170)).await.unwrap();
        entries.extend(pages[0].as_ref().unwrap().entries.clone());
    }
    entries
}

#[tokio::test]
async fn a_large_join_is_a_few_rows_until_an_edge_of_it_changes() {
    let on = named().await;
    store_set(&on, JobSet::flow(chord())).await;
    let before = rows(&on).await;
    assert!(before <= 5, "{before} rows");
    assert_eq!(on.check().await.unwrap(), []);
    let parents = on.inspect(id("all"), noon()).await.unwrap().unwrap().parents;
    assert_eq!(parents[1_100], id("member-1100"));

    let mut leased = lease(&on, "q", MEMBERS).await;
    let (failing, expanding) = (leased.remove(700), leased.remove(100));
    let ack_with_output = |(nth, it): (usize, &Leased)| {
        let nth = nth + usize::from(nth >= 100) + usize::from(nth >= 699);
        assert_eq!(it.job.id, id(format!("member-{nth}")));
        let transition = Transition::Ack { output: Some(output(nth)) };
        Settlement::new(it.job.id.clone(), it.lease.token, transition)
    };
    // The last first: what follows each other is not always sent in that order.
    let mut items: Vec<_> = leased.iter().enumerate().map(ack_with_output).collect();
    items.reverse();
    let answers = on.settle(Settle::new(items, noon())).await.unwrap();
    assert!(answers.iter().all(|it| matches!(it, Ok(Settled::Applied))));
    assert_eq!(rows(&on).await, before, "an ack writes no edge");
    assert_eq!(on.inspect(id("all"), noon()).await.unwrap().unwrap().pending, 2);

    settle(&on, &[failing], fail()).await;
    let split = rows(&on).await;
    assert!((before + 1..=before + 511).contains(&split), "{split} rows");
    settle(&on, &[expanding], Transition::Expand(Expansion::new(vec![job("part")]))).await;
    assert_eq!(on.check().await.unwrap(), []);
    let part = lease(&on, "q", 1).await;
    settle(&on, &part, Transition::Ack { output: Some(output(100)) }).await;
    assert_eq!(on.inspect(id("all"), noon()).await.unwrap().unwrap().state, State::Done);
    for (nth, entry) in inputs(&on).await.into_iter().enumerate() {
        let reason = Some(Text::new("no more attempts"));
        let expected = match nth {
            700 => OutputEntry::Failed { state: State::Dlq, reason },
            _ => OutputEntry::Done(Some(output(nth))),
        };
        assert_eq!(entry, expected, "{nth}");
    }
    assert_eq!(on.check().await.unwrap(), []);
}

#[tokio::test]
async fn parents_that_were_declared_out_of_order_stay_so() {
    let on = named().await;
    let declared: Vec<_> = [0, 2, 1, 3, 4, 7, 6, 5].map(|nth| id(format!("member-{nth}"))).into();
    let mut jobs: Vec<_> = (0..8).map(|nth| job(format!("member-{nth}"))).collect();
    jobs.push(NewJob::join(id("all"), queue("q"), declared.clone()));
    store_set(&on, JobSet::flow(jobs)).await;
    let record = on.inspect(id("all"), noon()).await.unwrap().unwrap();
    assert_eq!((record.parents, record.pending), (declared, 8));
    assert_eq!(on.check().await.unwrap(), []);
    settle(&on, &lease(&on, "q", 8).await, ack()).await;
    assert_eq!(on.inspect(id("all"), noon()).await.unwrap().unwrap().state, State::Done);
}
