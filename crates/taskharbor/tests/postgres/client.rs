//! The library on a PostgreSQL server.

use std::time::Duration;

use taskharbor::{Client, Context, Handlers, Job, Worker, connect};

use crate::harness::{environment, store};

#[derive(serde::Serialize, serde::Deserialize, Job)]
#[job(type = "greet", output = String)]
struct Greet {
    name: String,
}

async fn greet(job: Greet, _: Context<()>) -> Result<String, std::io::Error> {
    Ok(format!("hello {}", job.name))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_from_a_client_to_a_worker_and_its_output_back() {
    let (schema, _) = store::blank();
    let url = environment::required("TASKHARBOR_TEST_POSTGRES");
    let driver = connect(&format!("{url}?schema={schema}")).await.unwrap();
    driver.migrate().await.unwrap();
    let client = Client::new(&driver);
    let worker = Worker::builder(&driver)
        .handlers(Handlers::new().on(greet))
        .queue("default", 10)
        .build()
        .unwrap();
    let running = worker.start();
    let handle = client.enqueue(Greet { name: "Ada".to_owned() }).await.unwrap();
    let output = tokio::time::timeout(Duration::from_secs(10), handle.wait()).await;
    assert_eq!(output.unwrap().unwrap(), "hello Ada");
    running.shutdown().await.unwrap();
}
