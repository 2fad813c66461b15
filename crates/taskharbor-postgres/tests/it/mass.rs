//! Calls as large as they may be, and content as odd as it may be: the time of a call follows what
//! it carries.
//!
//! The bounds are far above what is measured on a busy machine, and far below what comparing every
//! item with every other one would take.

use std::time::Duration;

use tokio::time::Instant;

use taskharbor_core::{
    Admin, Blob, Driver, JobType, NewJob, QueueName, State, Text,
    admin::{Action, Manage, Prune, Requeue},
    driver::{
        Enqueue, Enqueued, ExtendLeases, Extension, LeaseToken, Leased, OutputEntry, OutputQuery,
        Outputs, Settle, Settlement, Transition,
    },
    flow::Expansion,
    job::{FailurePolicy, Headers, JobSet},
    name::{IdempotencyKey, LaneName},
};

use crate::{
    fixture::{
        LEASE, ack, after, counts, fail, id, job, job_in, lease, noon, queue, reserve, settle,
        store, store_at, store_set,
    },
    harness::store::{Store, named},
};

/// Longer than any call here takes, and much shorter than a quadratic one would.
const BOUND: Duration = Duration::from_secs(30);

async fn timed<T>(what: &str, call: impl Future<Output = T>) -> T {
    let start = Instant::now();
    let answer = call.await;
    let taken = start.elapsed();
    eprintln!("{what}: {taken:?}");
    assert!(taken < BOUND, "{what} took {taken:?}");
    answer
}

fn jobs(count: usize) -> Vec<NewJob> {
    (0..count).map(|it| job(format!("job-{it}"))).collect()
}

fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::new(text).unwrap()
}

async fn is_sound(store: &Store) {
    assert_eq!(store.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_hundred_thousand_jobs_go_through_in_single_calls() {
    const COUNT: usize = 100_000;
    let on = named().await;
    let stored = timed("enqueue", store(&on, jobs(COUNT))).await;
    assert!(stored.iter().all(Enqueued::is_new));
    let again = timed("enqueue again", store(&on, jobs(COUNT))).await;
    assert!(!again.iter().any(Enqueued::is_new));
    let leased = timed("reserve", lease(&on, "q", COUNT)).await;
    assert_eq!(leased.len(), COUNT);
    let items = leased.iter().map(|it| Extension::new(it.job.id.clone(), it.lease.token));
    let request = ExtendLeases::new(items.collect(), noon(), 2 * LEASE);
    let extended = timed("extend", on.extend_leases(request)).await.unwrap();
    assert!(extended.iter().all(Result::is_ok));
    // Every other token is wrong.
    let wrong = LeaseToken::random().unwrap();
    let items = leased.iter().enumerate().map(|(at, it)| {
        let token = if at % 2 == 0 { it.lease.token } else { wrong };
        Settlement::new(it.job.id.clone(), token, ack())
    });
    let answers = timed("ack", on.settle(Settle::new(items.collect(), noon()))).await.unwrap();
    assert_eq!(answers.iter().filter(|it| it.is_ok()).count(), COUNT / 2);
    let prune = Prune::new(COUNT / 4, after(4 * LEASE)).done_before(after(4 * LEASE));
    assert_eq!(timed("prune", on.prune(prune)).await.unwrap(), COUNT / 4);
    is_sound(&on).await;
}

#[tokio::test]
async fn ten_thousand_at_once_are_requeued_cancelled_and_purged() {
    const COUNT: usize = 10_000;
    let on = named().await;
    store(&on, jobs(COUNT)).await;
    let leased = lease(&on, "q", COUNT).await;
    timed("fail", settle(&on, &leased, fail())).await;
    let ids: Vec<_> = leased.iter().map(|it| it.job.id.clone()).collect();
    for (what, action) in [
        ("requeue", Action::Requeue(Requeue::new())),
        ("set priority", Action::SetPriority(3)),
        ("run now", Action::RunNow),
        ("cancel", Action::Cancel),
        ("purge", Action::Purge),
    ] {
        let request = Manage::new(ids.clone(), action, noon());
        let answers = timed(what, on.manage(request)).await.unwrap();
        assert!(answers.iter().all(Result::is_ok), "{what}");
        is_sound(&on).await;
    }
    assert!(counts(&on, noon()).await.unwrap().is_empty());
}

#[tokio::test]
async fn ten_thousand_keys_that_are_held_and_ids_that_repeat_find_their_jobs() {
    const COUNT: usize = 10_000;
    let on = named().await;
    let keyed = |name: &str| -> Vec<NewJob> {
        let job = |it| job(format!("{name}-{it}")).idempotency_key(key(&format!("key-{it}")));
        (0..COUNT).map(job).collect()
    };
    timed("enqueue with keys", store(&on, keyed("first"))).await;
    let held = timed("keys that are held", store(&on, keyed("second"))).await;
    assert!(held.iter().enumerate().all(|(at, it)| it.id().as_str() == format!("first-{at}")));
    let one = timed("one id", store(&on, vec![job("same"); COUNT])).await;
    assert_eq!(one.iter().filter(|it| it.is_new()).count(), 1);
    let of_key = |it| job(format!("of-key-{it}")).idempotency_key(key("one"));
    let one = timed("one key", store(&on, (0..COUNT).map(of_key).collect())).await;
    assert!(one.iter().all(|it| it.id().as_str() == "of-key-0"));
    // Each job is kept out by the key of the one before, and its id is left to the next.
    let link = |it: usize| {
        let link = |key_of: usize| {
            job(format!("link-{it}")).idempotency_key(key(&format!("chain-{key_of}")))
        };
        [link(it), link(it + 1)]
    };
    let chain = timed("a chain", store(&on, (0..COUNT / 2).flat_map(link).collect())).await;
    assert_eq!(chain[0], Enqueued::Inserted(id("link-0")));
    assert_eq!(chain[1], Enqueued::Existing(id("link-0")));
    assert_eq!(chain[2], Enqueued::Inserted(id("link-1")));
    is_sound(&on).await;
}

#[tokio::test]
async fn a_flow_of_twenty_thousand_members_with_one_join_is_done_in_a_few_calls() {
    const COUNT: usize = 20_000;
    let on = named().await;
    let mut members = jobs(COUNT);
    let parents: Vec<_> = members.iter().map(|it| it.id.clone()).collect();
    members.push(NewJob::join(id("all"), queue("q"), parents));
    timed("enqueue", store_set(&on, JobSet::flow(members))).await;
    let leased = timed("reserve", lease(&on, "q", COUNT)).await;
    timed("ack", settle(&on, &leased, ack())).await;
    let flow = on.flow(id("all"), noon()).await.unwrap().unwrap();
    assert_eq!(flow.members.done, COUNT + 1);
    is_sound(&on).await;
    let manage = Manage::new(vec![id("all")], Action::PurgeFlow, noon());
    assert_eq!(timed("purge", on.manage(manage)).await.unwrap(), [Ok(State::Done)]);
    is_sound(&on).await;
}

#[tokio::test]
async fn one_failure_cancels_twenty_thousand_in_one_step() {
    const COUNT: usize = 20_000;
    for (policy, chained) in [(FailurePolicy::FailFast, false), (FailurePolicy::Cancel, true)] {
        let on = named().await;
        let mut members: Vec<_> = jobs(COUNT).into_iter().map(|it| it.on_failure(policy)).collect();
        match chained {
            true => {
                for at in 1..COUNT {
                    let parent = members[at - 1].id.clone();
                    members[at] = members[at].clone().after([parent]);
                }
            }
            false => {
                let parents: Vec<_> = members.iter().map(|it| it.id.clone()).collect();
                members.push(NewJob::join(id("all"), queue("q"), parents));
            }
        }
        let count = members.len();
        timed("enqueue", store_set(&on, JobSet::flow(members))).await;
        timed("fail", settle(&on, &lease(&on, "q", 1).await, fail())).await;
        assert_eq!(counts(&on, noon()).await.unwrap()[0].states.cancelled, count - 1);
        is_sound(&on).await;
    }
}

#[tokio::test]
async fn twenty_thousand_members_of_one_flow_are_cancelled_in_one_call() {
    const COUNT: usize = 20_000;
    let on = named().await;
    let members = jobs(COUNT).into_iter().map(|it| it.on_failure(FailurePolicy::Continue));
    let mut members: Vec<_> = members.collect();
    let ids: Vec<_> = members.iter().map(|it| it.id.clone()).collect();
    members.push(NewJob::join(id("all"), queue("q"), ids.clone()));
    timed("enqueue", store_set(&on, JobSet::flow(members))).await;
    let request = Manage::new(ids, Action::Cancel, noon());
    let answers = timed("cancel", on.manage(request)).await.unwrap();
    assert!(answers.iter().all(|it| *it == Ok(State::Cancelled)));
    let flow = on.flow(id("all"), noon()).await.unwrap().unwrap();
    assert_eq!((flow.members.cancelled, flow.members.done), (COUNT, 1));
    is_sound(&on).await;
}

/// The fleet that held these jobs is gone, and people have asked to cancel them.
async fn a_queue_goes_on_behind(on: &Store, marked: usize, set: JobSet, behind: NewJob) {
    timed("enqueue", store_set(on, set)).await;
    let leased = lease(on, "q", marked).await;
    let ids = leased.iter().map(|it| it.job.id.clone()).collect();
    let request = Manage::new(ids, Action::Cancel, noon());
    assert!(on.manage(request).await.unwrap().iter().all(|it| *it == Ok(State::Inflight)));
    let last = after(2 * LEASE);
    store_at(on, behind, last).await;
    let mut calls = 0;
    let granted = timed("all reserves", async {
        loop {
            let start = Instant::now();
            let reserved = on.reserve(reserve(10, last, LEASE)).await.unwrap();
            assert!(start.elapsed() < BOUND / 3, "one call took {:?}", start.elapsed());
            calls += 1;
            if !reserved.jobs.is_empty() {
                break reserved.jobs;
            }
            // RES-5
            assert_eq!(reserved.next_due, Some(last.saturating_add(Duration::from_micros(1))));
        }
    });
    assert_eq!(granted.await[0].job.id, id("behind"));
    assert!(calls <= 1 + marked / 250, "{calls} calls");
    let counted = counts(on, last).await.unwrap();
    let cancelled: usize = counted.iter().map(|it| it.states.cancelled).sum();
    assert_eq!(marked, cancelled);
    is_sound(on).await;
}

#[tokio::test]
async fn a_queue_goes_on_behind_jobs_whose_cancellation_no_worker_heard_of() {
    const COUNT: usize = 15_000;
    a_queue_goes_on_behind(&named().await, COUNT, JobSet::plain(jobs(COUNT)), job("behind")).await;
}

#[tokio::test]
async fn a_queue_goes_on_behind_jobs_in_lanes_whose_cancellation_no_worker_heard_of() {
    const COUNT: usize = 15_000;
    let lane = LaneName::new("acme").unwrap();
    let jobs = jobs(COUNT).into_iter().map(|it| it.lane(lane.clone()));
    // In the same lane: one without a lane, or in another, has a turn before them.
    let behind = job("behind").lane(lane.clone());
    a_queue_goes_on_behind(&named().await, COUNT, JobSet::plain(jobs.collect()), behind).await;
}

#[tokio::test]
async fn a_queue_goes_on_behind_members_whose_cancellation_no_worker_heard_of() {
    const COUNT: usize = 3_000;
    let members = jobs(COUNT).into_iter().map(|it| it.on_failure(FailurePolicy::Continue));
    let mut members: Vec<_> = members.collect();
    let parents: Vec<_> = members.iter().map(|it| it.id.clone()).collect();
    members.push(job_in("last", "tail").after(parents));
    a_queue_goes_on_behind(&named().await, COUNT, JobSet::flow(members), job("behind")).await;
}

fn expansion(count: usize, name: &str) -> Expansion {
    let member = |at: usize| {
        let member = job(format!("{name}-{at}"));
        if at == 0 { member } else { member.after([id(format!("{name}-{}", at - 1))]) }
    };
    Expansion::new((0..count).map(member).collect())
}

#[tokio::test]
async fn expansions_are_as_fast_together_as_apart() {
    let on = named().await;
    store(&on, vec![job("expanding")]).await;
    let expanding = lease(&on, "q", 1).await;
    timed(
        "one of 10,000",
        settle(&on, &expanding, Transition::Expand(expansion(10_000, "member"))),
    )
    .await;
    is_sound(&on).await;
    store(&on, (0..5_000).map(|it| job_in("many", format!("expanding-{it}"))).collect()).await;
    let leased = lease(&on, "many", 5_000).await;
    let expand = |it: &Leased| {
        let expansion = expansion(10, &format!("of-{}", it.job.id.as_str()));
        Settlement::new(it.job.id.clone(), it.lease.token, Transition::Expand(expansion))
    };
    let items = leased.iter().map(expand).collect();
    let answers = timed("5,000 of 10", on.settle(Settle::new(items, noon()))).await.unwrap();
    assert!(answers.iter().all(Result::is_ok));
    is_sound(&on).await;
}

/// Texts that have a special meaning to some parser.
fn odd() -> Vec<String> {
    let texts = [
        "'",
        "''; DROP TABLE th_job; --",
        "\"",
        "\\",
        "\\'",
        "\\\\",
        "\\N",
        "\\x00",
        "NULL",
        "null",
        "{}",
        "{NULL}",
        "{a,b}",
        ",",
        "(,)",
        "$1",
        "$$",
        "%",
        "_",
        "%s",
        "😀",
        "👩‍👩‍👧",
        "שלום",
        "\u{202e}rtl",
        "e\u{301}",
        "é",
        "ﬀ",
        "ß",
        "İ",
        "a b",
        " a",
        "a ",
        "\u{feff}",
        "-- a",
        "/* a */",
        ";",
        "`",
        "#",
        "?",
        ":a",
        "@a",
        "true",
        "0",
        "-1",
        "1e400",
        "A",
        "a",
        "th_job",
    ];
    texts
        .into_iter()
        .map(str::to_owned)
        .chain(["x".repeat(255), "é".repeat(127), "😀".repeat(63)])
        .collect()
}

#[tokio::test]
async fn odd_names_and_texts_come_back_as_they_were_given() {
    let on = named().await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let headers =
        |text: &str| Headers::default().with(text, text).unwrap().with("plain", text).unwrap();
    let jobs: Vec<_> = odd()
        .into_iter()
        .map(|it| {
            let (queue, job_type) = (QueueName::new(&it).unwrap(), JobType::new(&it).unwrap());
            NewJob::new(id(&it), queue, job_type, every_byte.clone())
                .idempotency_key(key(&it))
                .headers(headers(&it))
        })
        .collect();
    let stored = store(&on, jobs.clone()).await;
    assert!(stored.iter().all(Enqueued::is_new), "no two are taken for one");
    assert_eq!(counts(&on, noon()).await.unwrap().len(), jobs.len());
    for given in &jobs {
        let text = given.id.as_str();
        let leased = lease(&on, given.queue.as_str(), 10).await;
        assert_eq!(leased.len(), 1, "{text:?}");
        assert_eq!(leased[0].job.id, given.id);
        assert_eq!(leased[0].job.job_type, given.job_type);
        assert_eq!(leased[0].job.headers, given.headers, "{text:?}");
        assert_eq!(leased[0].job.payload.as_ref(), every_byte.as_slice());
        let failure = taskharbor_core::job::FailedAttempt::new(1, text, noon());
        settle(&on, &leased, Transition::Retry { failure, run_at: None }).await;
        let leased = lease(&on, given.queue.as_str(), 1).await;
        assert_eq!(leased[0].job.last_error.as_ref().map(Text::as_str), Some(text));
        settle(&on, &leased, Transition::Ack { output: Some(every_byte.clone().into()) }).await;
        let record = on.inspect(given.id.clone(), noon()).await.unwrap().unwrap();
        assert_eq!(record.job.idempotency_key, given.idempotency_key);
    }
    is_sound(&on).await;
}

#[tokio::test]
async fn a_mebibyte_goes_in_and_out() {
    let on = named().await;
    let large: Blob = (0..1 << 20)
        .map(|it: u32| (it.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect::<Vec<u8>>()
        .into();
    let given = NewJob::new(id("large"), queue("q"), JobType::new("work").unwrap(), large.clone());
    on.enqueue(Enqueue::new(vec![given.into()], noon())).await.unwrap()[0].as_ref().unwrap();
    let leased = lease(&on, "q", 1).await;
    assert_eq!(leased[0].job.payload, large);
    settle(&on, &leased, Transition::Ack { output: Some(large.clone()) }).await;
    let pages = on.outputs(Outputs::new(vec![OutputQuery::of(id("large"))], 1)).await.unwrap();
    assert_eq!(pages[0].as_ref().unwrap().entries, [OutputEntry::Done(Some(large))]);
}

#[tokio::test]
async fn counts_tell_of_many_queues() {
    let on = named().await;
    let in_queue = |it: usize| job_in(&format!("queue-{}", it % 2_000), format!("job-{it}"));
    store(&on, (0..10_000).map(in_queue).collect()).await;
    let found = timed("counts", counts(&on, noon())).await.unwrap();
    assert_eq!(found.len(), 2_000);
    assert!(found.iter().all(|it| it.states.ready == 5));
}
