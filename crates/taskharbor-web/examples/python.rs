//! Jobs that Rust enqueues and Python runs.
//!
//! ```sh
//! cargo run -p taskharbor-web --example python
//! ```
//!
//! This program is the server and the client. It starts `clients/python/examples/worker.py`, which needs Python 3.9 or
//! newer and nothing else. In production the server is `taskharbor serve` with a database, and every worker has its
//! address.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{
    error::Error,
    future::pending,
    path::Path,
    process::{Child, Command},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use taskharbor::{AnyDriver, Client, Job};
use taskharbor_memory::MemoryDriver;
use taskharbor_web::{Access, Role, StoreKind, Stores, Web, serve};
use tokio::{net::TcpListener, time::timeout};

/// How long the worker may take for all jobs, its own start included.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The handler of this type is in Python. Here are its payload and its output.
#[derive(Serialize, Deserialize, Job)]
#[job(type = "text:count", queue = "python", output = Count, max_attempts = 3)]
struct CountWords {
    text: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Count {
    words: u32,
    most_common: String,
    times: u32,
}

/// The worker, which ends with this program.
struct PythonWorker(Child);

impl PythonWorker {
    fn start(url: &str) -> Result<Self, Box<dyn Error>> {
        let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/python");
        let mut python = Command::new("python3");
        // Without `pip install`: the package is read from the repository.
        python.env("PYTHONPATH", client.join("src"));
        let worker = python.arg(client.join("examples/worker.py")).arg(url).spawn();
        let worker = worker.map_err(|error| {
            format!("cannot start python3: {error}; install Python 3.9 or newer")
        })?;
        Ok(Self(worker))
    }
}

impl Drop for PythonWorker {
    fn drop(&mut self) {
        // It holds no job any more. SIGTERM would let its handlers finish.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Enqueues a job for each text, and shows the outputs.
async fn count(client: &Client, texts: &[&str]) -> Result<Vec<Count>, Box<dyn Error>> {
    let jobs = texts.iter().map(|text| CountWords { text: (*text).to_owned() });
    let mut counts = Vec::new();
    for (job, text) in client.enqueue_many(jobs).await?.iter().zip(texts) {
        match job.wait().await {
            Ok(count) => {
                println!(
                    "rust: {text:?} has {} words, and the most common is {:?} ({} times)",
                    count.words, count.most_common, count.times
                );
                counts.push(count);
            }
            Err(error) => println!("rust: {text:?} was not counted: {error}"),
        }
    }
    Ok(counts)
}

async fn run() -> Result<Vec<Count>, Box<dyn Error>> {
    let driver = AnyDriver::new(MemoryDriver::new());
    let stores = Stores::new().add("main", StoreKind::Memory, &driver)?;
    // Every program on this machine may use this server while it runs.
    let everyone = Access::new("everyone", Role::Operator).with_payloads().with_workers();
    let socket = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", socket.local_addr()?);
    println!("rust: the server and its dashboard are at {url}");
    tokio::spawn(serve(socket, stores, Web::new().anonymous(everyone), pending()));

    let _worker = PythonWorker::start(&url)?;
    let texts = ["to be or not to be", "a rose is a rose is a rose", ""];
    let counts = timeout(TIME_LIMIT, count(&Client::new(&driver), &texts)).await;
    counts.map_err(|_| "the Python worker does not answer: its own messages may say why")?
}

#[taskharbor::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await?;
    Ok(())
}

#[test]
fn python_counts_the_words() {
    let counts = taskharbor::block_on(run()).unwrap();
    let counts: Vec<_> = counts.iter().map(|it| (it.words, &*it.most_common, it.times)).collect();
    assert_eq!(counts, [(6, "to", 2), (8, "a", 3)]);
}
