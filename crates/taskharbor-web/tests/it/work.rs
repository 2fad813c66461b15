//! The worker face, for workers in other languages.

mod enqueue;
mod extend;
mod hostile;
mod reserve;
mod set_back;
mod settle;
mod step;

use std::time::Duration;

use serde_json::{Value, json};
use taskharbor::{JobId, JobRecord, State};

use super::rig::Rig;

const SECOND: Duration = Duration::from_secs(1);

/// A worker of a server.
struct Face {
    rig: Rig,
}

impl Face {
    fn new() -> Self {
        Self { rig: Rig::new() }
    }

    /// What the server answers to a call.
    async fn call(&self, operation: &str, body: &Value) -> Value {
        self.rig.post(&format!("work/{operation}"), body).await.ok()
    }

    /// The status and the code of the problem that a call is answered with.
    async fn problem(&self, operation: &str, body: &Value) -> (u16, String) {
        self.rig.post(&format!("work/{operation}"), body).await.problem()
    }

    /// Stores jobs; answers what is said of each.
    async fn enqueue_all(&self, jobs: Value) -> Vec<Value> {
        jobs_of(&self.call("enqueue", &json!({ "jobs": jobs })).await)
    }

    /// Stores a job of the type `send`, with these fields; answers its id.
    async fn enqueue(&self, fields: Value) -> String {
        let job = with(json!({ "type": "send" }), fields);
        text(&self.enqueue_all(json!([job])).await[0]["id"])
    }

    /// Reserves up to ten jobs of `default`, with these fields.
    async fn reserve(&self, fields: Value) -> Vec<Value> {
        let request = json!({ "queues": { "default": 10 }, "worker": "python-1" });
        jobs_of(&self.call("reserve", &with(request, fields)).await)
    }

    /// Stores a job and reserves it.
    async fn reserve_new(&self, fields: Value) -> Value {
        self.enqueue(fields).await;
        self.reserve_one(json!({})).await
    }

    async fn reserve_one(&self, fields: Value) -> Value {
        let mut jobs = self.reserve(fields).await;
        assert_eq!(jobs.len(), 1, "{jobs:?}");
        jobs.remove(0)
    }

    /// Settles a job; answers what is said of it.
    async fn settle(&self, job: &Value, outcome: Value) -> Value {
        let item = with(json!({ "id": job["id"], "lease": job["lease"] }), outcome);
        jobs_of(&self.call("settle", &json!({ "jobs": [item] })).await).remove(0)
    }

    /// Extends the lease of a job; answers what is said of it.
    async fn extend(&self, job: &Value, fields: Value) -> Value {
        let item = json!({ "id": job["id"], "lease": job["lease"] });
        let request = with(json!({ "jobs": [item] }), fields);
        jobs_of(&self.call("extend", &request).await).remove(0)
    }

    /// A job as the store knows it.
    async fn record(&self, job: &Value) -> JobRecord {
        let id = job.as_str().map_or_else(|| text(&job["id"]), str::to_owned);
        let id = JobId::new(id).unwrap();
        self.rig.client.job(&id).inspect().await.unwrap().unwrap()
    }

    async fn state(&self, job: &Value) -> State {
        self.record(job).await.state
    }

    fn advance(&self, seconds: u64) {
        self.rig.clock.advance(SECOND * u32::try_from(seconds).unwrap());
    }
}

fn jobs_of(answer: &Value) -> Vec<Value> {
    answer["jobs"].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

/// The code of an answer that refuses one job.
fn refused(answer: &Value) -> &str {
    answer["error"]["code"].as_str().unwrap_or_else(|| panic!("{answer} is no refusal"))
}

/// An object with the fields of another one.
fn with(mut object: Value, fields: Value) -> Value {
    if let (Value::Object(all), Value::Object(more)) = (&mut object, fields) {
        all.extend(more);
    }
    object
}
