//! An import that finds out what there is to do while it runs: it reads a file, becomes one job for
//! every block of rows, and ends in a summary. A row that cannot be read affects no other row.
//!
//! Run it with `cargo run --example csv`.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use serde::{Deserialize, Serialize};
use taskharbor::{
    Client, Context, Each, Failure, Flow, Handlers, Job, JobError, JobResult, Options, Worker,
};

/// Reads a file and expands into the jobs that import it. A caller that waits for it gets the summary.
#[derive(Serialize, Deserialize, Job)]
#[job(type = "csv:import", output = Summary)]
struct Import {
    csv: String,
}

#[derive(Serialize, Deserialize, Job)]
#[job(type = "csv:block", queue = "rows", output = Block, max_attempts = 1)]
struct Rows {
    first: usize,
    lines: Vec<String>,
}

#[derive(Serialize, Deserialize, Job)]
#[job(type = "csv:summary", input = Each<Result<Block, Failure>>, output = Summary)]
struct Summarize;

#[derive(Serialize, Deserialize)]
struct Block {
    rows: usize,
    total: i64,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Summary {
    rows: usize,
    total: i64,
    errors: Vec<String>,
}

async fn import(job: Import, _: Context) -> JobResult<Flow<Summary>> {
    let lines: Vec<String> = job.csv.lines().skip(1).map(str::to_owned).collect();
    let blocks = lines.chunks(100).enumerate().map(|(n, lines)| {
        let first = n * 100 + 2;
        let label = format!("from line {first}");
        Rows { first, lines: lines.to_vec() }.with(Options::new().label(label))
    });
    // The next step runs even if blocks have failed, and sees the outcome of each.
    Ok(Flow::gather(blocks).then(Summarize))
}

async fn rows(job: Rows, cx: Context) -> JobResult<Block> {
    let mut block = Block { rows: 0, total: 0 };
    for (n, line) in job.lines.iter().enumerate() {
        let (_, amount) = line.split_once(',').ok_or_else(|| bad(job.first + n, line))?;
        block.total += amount.trim().parse::<i64>().map_err(|_| bad(job.first + n, line))?;
        block.rows += 1;
        cx.progress(format!("{} of {}", block.rows, job.lines.len()));
    }
    Ok(block)
}

fn bad(number: usize, line: &str) -> JobError {
    JobError::unrecoverable(format!("line {number} has no amount: {line:?}"))
}

async fn summarize(job: Summarize, cx: Context) -> JobResult<Summary> {
    // One by one: a large file has more blocks than fit into memory.
    let (mut summary, mut blocks) = (Summary::default(), cx.inputs(&job)?);
    while let Some(block) = blocks.next().await {
        match block? {
            Ok(block) => {
                summary.rows += block.rows;
                summary.total += block.total;
            }
            Err(failure) => summary.errors.push(failure.reason.unwrap_or_default()),
        }
    }
    Ok(summary)
}

#[taskharbor::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let driver = taskharbor::connect("memory:").await?;
    let client = Client::new(&driver);
    let handlers = Handlers::new().on(import).on(rows).on(summarize);
    let worker = Worker::builder(&driver)
        .handlers(handlers)
        .queue("default", 2)
        .queue("rows", 8)
        .build()?
        .start();
    let mut csv = String::from("name,amount\n");
    for n in 0..1_000 {
        let amount = if n == 250 { "a lot".to_owned() } else { n.to_string() };
        csv.push_str(&format!("customer {n},{amount}\n"));
    }
    // A plain job, which becomes a flow when it has seen the file.
    let import = client.enqueue(Import { csv }).await?;
    let summary = import.wait().await?;
    println!("{summary:?}\n{}", import.tree(100).await?);
    assert_eq!(summary.rows, 900);
    assert_eq!(summary.total, (0..1_000).sum::<i64>() - (200..300).sum::<i64>());
    assert_eq!(summary.errors, ["line 252 has no amount: \"customer 250,a lot\""]);
    worker.shutdown().await?;
    Ok(())
}

#[test]
fn it_runs() {
    main().unwrap();
}
