//! Flows and their graphs.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{body::Body, http::Method};
use serde_json::{Value, json};
use taskharbor::{
    Admin, AnyDriver, Driver, DriverError, JobId, JobType, QueueName, State, Text, Timestamp,
};
use taskharbor_core::{
    NewJob,
    driver::{Enqueue, Leased, Transition},
    flow::Expansion,
    job::{FailedAttempt, JobSet},
    name::{FlowName, Holder},
};
use taskharbor_memory::MemoryDriver;
use taskharbor_testkit::{Answer, Call, Hook, Intercept, Next};
use taskharbor_web::{Access, Role, StoreKind, Stores, Web, router};
use tower::ServiceExt;

use crate::rig::{Rig, request};

/// Longer than the graph of a small flow is kept.
const LATER: Duration = Duration::from_secs(2);

fn job(job_type: &str, now: Timestamp) -> NewJob {
    let queue = QueueName::new("work").unwrap();
    NewJob::new(JobId::generate(now).unwrap(), queue, JobType::new(job_type).unwrap(), b"{}")
}

/// Stores a flow: one job, then `width` jobs of a type, then one that waits for all of them.
async fn fan(driver: &AnyDriver, name: &str, width: usize) -> JobId {
    let now = driver.now().await.unwrap();
    let first = job("plan", now);
    let parts: Vec<_> = (0..width).map(|_| job("part", now).after([first.id.clone()])).collect();
    let last = job("merge", now).after(parts.iter().map(|part| part.id.clone()));
    let id = last.id.clone();
    let jobs = [first].into_iter().chain(parts).chain([last]).collect();
    let set = JobSet::named_flow(FlowName::new(name).unwrap(), jobs);
    driver.enqueue(Enqueue::new(vec![set], now)).await.unwrap().remove(0).unwrap();
    id
}

async fn reserve(driver: &AnyDriver) -> Leased {
    let now = driver.now().await.unwrap();
    let (queue, holder) = (QueueName::new("work").unwrap(), Holder::new("w").unwrap());
    let leased = driver.reserve_job(queue, holder, now, Duration::from_secs(60)).await.unwrap();
    leased.unwrap()
}

async fn ack(driver: &AnyDriver) -> JobId {
    let leased = reserve(driver).await;
    let now = driver.now().await.unwrap();
    driver.ack(&leased, None, now).await.unwrap();
    leased.job.id
}

async fn fail(driver: &AnyDriver) -> JobId {
    let leased = reserve(driver).await;
    let now = driver.now().await.unwrap();
    let failure = FailedAttempt::new(1, "boom", now);
    driver.fail(&leased, failure, Text::from("out of attempts"), now).await.unwrap();
    leased.job.id
}

/// The nodes of a graph by id.
fn nodes(graph: &Value) -> HashMap<&str, &Value> {
    let nodes = graph["nodes"].as_array().unwrap();
    nodes.iter().map(|node| (node["id"].as_str().unwrap(), node)).collect()
}

/// The types of the nodes that each edge connects.
fn lines(graph: &Value) -> Vec<(String, String)> {
    let nodes = nodes(graph);
    let job_type = |id: &Value| nodes[id.as_str().unwrap()]["type"].as_str().unwrap().to_owned();
    let edges = graph["edges"].as_array().unwrap();
    let mut lines: Vec<_> =
        edges.iter().map(|it| (job_type(&it["from"]), job_type(&it["to"]))).collect();
    lines.sort();
    lines
}

/// Checks that every edge leads to a later layer and that no two nodes have one place.
fn assert_laid_out(graph: &Value) {
    let nodes = nodes(graph);
    let layer = |id: &Value| nodes[id.as_str().unwrap()]["layer"].as_u64().unwrap();
    for edge in graph["edges"].as_array().unwrap() {
        assert!(layer(&edge["from"]) < layer(&edge["to"]), "{edge}");
    }
    let places: HashSet<_> = nodes.values().map(|it| (&it["layer"], &it["position"])).collect();
    assert_eq!(places.len(), nodes.len());
}

#[tokio::test]
async fn flows_are_listed_by_state_and_name_and_page_by_page() {
    let rig = Rig::new();
    for at in 0..5 {
        rig.clock.advance(Duration::from_secs(1));
        fan(&rig.driver, if at % 2 == 0 { "even" } else { "odd" }, 2).await;
    }
    let all = rig.get("flows").await.ok();
    assert_eq!(all["items"].as_array().unwrap().len(), 5);
    let first = &all["items"][0];
    assert_eq!((&first["name"], &first["state"]), (&json!("even"), &json!("running")));
    assert_eq!((&first["members"]["ready"], &first["members"]["blocked"]), (&json!(1), &json!(3)));
    let even = rig.get("flows?name=even&order=oldest").await.ok();
    assert_eq!(even["items"].as_array().unwrap().len(), 3);
    assert_eq!(rig.get("flows?state=done").await.ok()["items"], json!([]));

    let (mut seen, mut after) = (Vec::new(), None::<String>);
    loop {
        let cursor = after.map(|it| format!("&after={it}")).unwrap_or_default();
        let page = rig.get(&format!("flows?limit=2{cursor}")).await.ok();
        seen.extend(page["items"].as_array().unwrap().iter().map(|it| it["id"].clone()));
        match page["next"].as_str() {
            Some(next) => after = Some(next.bytes().map(|it| format!("%{it:02X}")).collect()),
            None => break,
        }
    }
    let ids: Vec<_> = all["items"].as_array().unwrap().iter().map(|it| it["id"].clone()).collect();
    assert_eq!(seen, ids);
}

#[tokio::test(start_paused = true)]
async fn a_small_flow_is_drawn_member_by_member_and_moves() {
    let rig = Rig::new();
    let id = fan(&rig.driver, "report", 3).await;
    let flow = rig.get(&format!("flows/{id}")).await.ok();
    assert_eq!((&flow["tail"], &flow["finished_at"]), (&json!(id.as_str()), &Value::Null));
    let path = format!("flows/{id}/graph");
    let graph = rig.get(&path).await.ok();
    assert_eq!(
        (&graph["grouped"], &graph["read"], &graph["members"]),
        (&json!(false), &json!(5), &json!(5))
    );
    assert_eq!(nodes(&graph).len(), 5);
    assert_eq!(lines(&graph).len(), 6);
    assert_laid_out(&graph);
    assert!(nodes(&graph).iter().all(|(id, node)| node["job"] == **id));

    let first = ack(&rig.driver).await;
    let failed = fail(&rig.driver).await;
    // A graph is read at most once a second.
    assert_eq!(rig.get(&path).await.ok(), graph);
    tokio::time::advance(LATER).await;
    let graph = rig.get(&path).await.ok();
    assert_eq!(nodes(&graph)[first.as_str()]["state"], "done");
    let dead = nodes(&graph)[failed.as_str()];
    assert_eq!((&dead["state"], &dead["attempts"]), (&json!("dlq"), &json!(1)));
}

#[tokio::test]
async fn ten_thousand_members_are_grouped_by_step_with_counts() {
    let rig = Rig::new();
    let id = fan(&rig.driver, "large", 10_000).await;
    ack(&rig.driver).await;
    for _ in 0..7 {
        ack(&rig.driver).await;
    }
    fail(&rig.driver).await;
    let graph = rig.get(&format!("flows/{id}/graph")).await.ok();
    assert_eq!((&graph["grouped"], &graph["read"]), (&json!(true), &json!(10_002)));
    assert_eq!(lines(&graph), [("part".into(), "merge".into()), ("plan".into(), "part".into())]);
    assert_laid_out(&graph);
    let parts = nodes(&graph).into_values().find(|it| it["type"] == "part").unwrap().clone();
    let counts = &parts["counts"];
    assert_eq!(
        (&counts["done"], &counts["dlq"], &counts["ready"]),
        (&json!(7), &json!(1), &json!(9_992))
    );
    assert!(graph["edges"].as_array().unwrap().iter().all(|it| it["count"] == 10_000));
}

#[tokio::test]
async fn a_flow_too_large_to_be_read_is_drawn_from_a_part_of_it() {
    let rig = Rig::new();
    let id = fan(&rig.driver, "huge", 40_000).await;
    let graph = rig.get(&format!("flows/{id}/graph")).await.ok();
    assert_eq!(graph["members"], 40_002);
    assert!(graph["read"].as_u64().unwrap() <= 20_000);
    // The few jobs of their type are among those that are read, and the others lie beside them.
    assert_eq!(nodes(&graph).len(), 3);
    let parts = nodes(&graph).into_values().find(|it| it["type"] == "part").unwrap().clone();
    assert_eq!(parts["counts"]["blocked"], 40_000);
    assert_laid_out(&graph);
}

#[tokio::test(start_paused = true)]
async fn an_expansion_is_drawn_between_its_job_and_what_reads_its_output() {
    let rig = Rig::new();
    let id = fan(&rig.driver, "grows", 1).await;
    let path = format!("flows/{id}/graph");
    assert_eq!(nodes(&rig.get(&path).await.ok()).len(), 3);
    ack(&rig.driver).await;
    let leased = reserve(&rig.driver).await;
    let now = rig.driver.now().await.unwrap();
    let (one, two) = (job("inner:one", now), job("inner:two", now));
    let last = job("inner:last", now).after([one.id.clone(), two.id.clone()]);
    let expand = Transition::Expand(Expansion::new(vec![one, two, last]));
    rig.driver.settle_job(&leased, expand, now).await.unwrap();
    tokio::time::advance(LATER).await;
    let graph = rig.get(&path).await.ok();
    let line = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    assert_eq!(
        lines(&graph),
        [
            line("inner:last", "merge"),
            line("inner:one", "inner:last"),
            line("inner:two", "inner:last"),
            line("part", "inner:one"),
            line("part", "inner:two"),
            line("plan", "part"),
        ]
    );
    assert_laid_out(&graph);
}

#[tokio::test]
async fn a_flow_is_cancelled_and_purged() {
    let rig = Rig::new();
    let id = fan(&rig.driver, "report", 2).await;
    let path = format!("flows/{id}");
    // A flow that is not over is not purged.
    assert_eq!(rig.post(&format!("{path}/purge"), &json!({})).await.problem().0, 409);
    let flow = rig.post(&format!("{path}/cancel"), &json!({})).await.ok();
    assert_eq!((&flow["state"], &flow["members"]["cancelled"]), (&json!("cancelled"), &json!(4)));
    rig.post(&format!("{path}/purge"), &json!({})).await.ok();
    assert_eq!(rig.get(&path).await.problem(), (404, "flow_not_found".into()));
    let log = rig.get("actions").await.ok();
    let actions: Vec<_> =
        log["items"].as_array().unwrap().iter().map(|it| (&it["action"], &it["result"])).collect();
    assert_eq!(
        actions,
        [
            (&json!("flow.purge"), &json!("ok")),
            (&json!("flow.cancel"), &json!("ok")),
            (&json!("flow.purge"), &log["items"][2]["result"]),
        ]
    );
    assert_eq!(log["items"][1]["target"]["id"], id.as_str());
    assert_eq!(log["items"][1]["count"], 4);
}

#[tokio::test]
async fn the_dead_jobs_of_a_flow_are_requeued() {
    let rig = Rig::new();
    let id = fan(&rig.driver, "report", 3).await;
    ack(&rig.driver).await;
    fail(&rig.driver).await;
    fail(&rig.driver).await;
    let done = rig.post(&format!("flows/{id}/requeue"), &json!({})).await.ok();
    assert_eq!(done, json!({ "done": 2, "refused": 0 }));
    assert_eq!(rig.get(&format!("flows/{id}")).await.ok()["members"]["ready"], 3);
}

#[tokio::test]
async fn flows_that_are_not_stored_and_bad_values_are_refused() {
    let rig = Rig::new();
    for path in ["flows/nothing", "flows/nothing/graph"] {
        assert_eq!(rig.get(path).await.problem(), (404, "flow_not_found".into()), "{path}");
    }
    for action in ["cancel", "purge", "requeue"] {
        let reply = rig.post(&format!("flows/nothing/{action}"), &json!({})).await;
        assert_eq!(reply.problem(), (404, "flow_not_found".into()), "{action}");
    }
    for query in [
        "limit=0",
        "limit=1001",
        "limit=-1",
        "limit=x",
        "state=sleeping",
        "order=up",
        "after=lane-a",
        "name=",
        "else=1",
    ] {
        assert_eq!(rig.get(&format!("flows?{query}")).await.problem().0, 400, "{query}");
    }
    assert_eq!(rig.get("flows/%00").await.problem().0, 400);
}

#[tokio::test]
async fn each_action_on_a_flow_takes_its_role() {
    for (role, allowed) in [
        (Role::Viewer, vec![]),
        (Role::Operator, vec!["requeue", "cancel"]),
        (Role::Admin, vec!["requeue", "cancel", "purge"]),
    ] {
        let rig = Rig::with_access(Access::new("ada", role));
        let id = fan(&rig.driver, "report", 1).await;
        assert!(rig.get(&format!("flows/{id}/graph")).await.status.is_success());
        for action in ["requeue", "cancel", "purge"] {
            let reply = rig.post(&format!("flows/{id}/{action}"), &json!({})).await;
            if allowed.contains(&action) {
                assert!(reply.status.is_success(), "{role}: {reply:?}");
            } else {
                assert_eq!(reply.problem(), (403, "role_too_low".into()), "{role}: {action}");
            }
        }
    }
}

/// Counts the calls to a store.
#[derive(Clone, Default)]
struct Calls(Arc<AtomicUsize>);

impl<D: Driver + Admin> Hook<D> for Calls {
    async fn around(&self, call: Call, next: Next<'_, D>) -> Result<Answer, DriverError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        next.make(call).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_graph_is_read_once_for_all_pages_and_its_records_only_once() {
    let calls = Calls::default();
    let driver = AnyDriver::new(Intercept::new(MemoryDriver::new(), calls.clone()));
    let stores = Stores::new().add("main", StoreKind::Memory, &driver).unwrap();
    let router = router(stores, Web::new().anonymous(Access::new("ada", Role::Viewer)));
    let id = fan(&driver, "report", 1_000).await;
    let look = || async {
        let asked = request(Method::GET, &format!("flows/{id}/graph"), Body::empty());
        assert!(router.clone().oneshot(asked).await.unwrap().status().is_success());
    };
    look().await;
    // The flow, two pages of its members, the records; and the time of the store.
    let first = calls.0.swap(0, Ordering::Relaxed);
    assert!((1_005..=1_010).contains(&first), "{first}");
    for _ in 0..20 {
        look().await;
    }
    assert_eq!(calls.0.swap(0, Ordering::Relaxed), 0);
    tokio::time::advance(LATER).await;
    for _ in 0..20 {
        look().await;
    }
    let again = calls.0.swap(0, Ordering::Relaxed);
    assert!(again <= 4, "{again}");

    // One that is over is not listed again.
    let now = driver.now().await.unwrap();
    let cancel = taskharbor::Manage::new(vec![id.clone()], taskharbor::Action::CancelFlow, now);
    driver.manage(cancel).await.unwrap().remove(0).unwrap();
    let state = driver.inspect(id.clone(), now).await.unwrap().unwrap().state;
    assert_eq!(state, State::Cancelled);
    tokio::time::advance(LATER).await;
    look().await;
    calls.0.store(0, Ordering::Relaxed);
    tokio::time::advance(LATER).await;
    look().await;
    let over = calls.0.load(Ordering::Relaxed);
    assert!(over <= 2, "{over}");
}
