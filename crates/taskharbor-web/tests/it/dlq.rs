//! Dead-lettered jobs in groups.

use serde_json::{Value, json};

use crate::{
    rig::Rig,
    stock::{enqueue, fail_all},
};

fn groups(answer: &Value) -> Vec<(u64, &str)> {
    let groups = answer["groups"].as_array().unwrap().iter();
    groups.map(|it| (it["count"].as_u64().unwrap(), it["pattern"].as_str().unwrap())).collect()
}

#[tokio::test]
async fn many_failures_are_few_errors() {
    let rig = Rig::new();
    for (job_type, count, error) in [
        ("email:send", 120, "timeout after {n} ms talking to 10.0.0.{n}:25"),
        ("invoice:charge", 60, "card 42{n} of customer \"c-{n}\" was declined"),
        ("image:resize", 20, "no such file: /var/uploads/{n}.png"),
    ] {
        enqueue(&rig, "work", job_type, count).await;
        fail_all(&rig, "work", error).await;
    }
    enqueue(&rig, "work", "email:send", 5).await;
    let answer = rig.get("dlq/groups").await.ok();
    assert_eq!(
        groups(&answer),
        [
            (120, "timeout after # ms talking to <address>"),
            (60, "card # of customer '…' was declined"),
            (20, "no such file: <path>"),
        ]
    );
    assert_eq!(answer["looked_at"], 200);
    assert_eq!(answer["is_complete"], true);
    assert_eq!(answer["left_out"], 0);
    let first = &answer["groups"][0];
    assert_eq!(first["types"], json!(["email:send"]));
    assert_eq!(first["queues"], json!(["work"]));
    assert_eq!(first["fingerprint"].as_str().unwrap().len(), 16);
    assert_eq!(first["sample_ids"].as_array().unwrap().len(), 5);
    assert_eq!(first["first_at"], first["last_at"]);
    let some = rig.get("dlq/groups?type=image:resize&queue=work").await.ok();
    assert_eq!((groups(&some).len(), &some["looked_at"]), (1, &json!(20)));
    assert!(groups(&rig.get("dlq/groups?queue=other").await.ok()).is_empty());
}

#[tokio::test]
async fn no_more_than_the_newest_are_looked_at() {
    let rig = Rig::new();
    enqueue(&rig, "work", "old", 10).await;
    enqueue(&rig, "work", "new", 5_000).await;
    fail_all(&rig, "work", "gone").await;
    let answer = rig.get("dlq/groups").await.ok();
    assert_eq!(answer["looked_at"], 4_000);
    assert_eq!(answer["is_complete"], false);
    assert_eq!(answer["groups"][0]["types"], json!(["new"]));
}

#[tokio::test]
async fn no_more_than_two_hundred_groups_are_answered() {
    let rig = Rig::new();
    for n in 0..205_u32 {
        enqueue(&rig, "work", "a", 1).await;
        let name: String =
            (0..4).map(|at| char::from(b'a' + ((n >> (at * 2)) % 4) as u8)).collect();
        fail_all(&rig, "work", &format!("cause{name}")).await;
    }
    let answer = rig.get("dlq/groups").await.ok();
    assert_eq!((groups(&answer).len(), &answer["left_out"]), (200, &json!(5)));
}

#[tokio::test]
async fn groups_of_other_states_are_refused() {
    let rig = Rig::new();
    assert_eq!(rig.get("dlq/groups?state=done").await.problem().0, 400);
    assert_eq!(rig.get("dlq/groups?limit=7").await.problem().0, 400);
    assert_eq!(rig.get("dlq/groups?queue=%00").await.problem().0, 400);
    assert_eq!(rig.get("dlq/groups?state=dlq").await.ok()["looked_at"], 0);
}
