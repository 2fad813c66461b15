//! An import of a CSV file. Its job reads the file and expands into one job for every block of 100 rows, and a last job
//! makes a summary. A row that cannot be read fails its block, and the other blocks are imported.
//!
//! Run it with `cargo run -p taskharbor --example csv`. It writes a file with one bad row and imports it. To import a
//! file of your own, with the columns `name,amount`, add its path: `… --example csv -- orders.csv`.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
};

use serde::{Deserialize, Serialize};
use taskharbor::{
    BoxError, Client, Context, Each, Failure, Flow, Handlers, Job, JobError, JobResult, Options,
    Worker, blocking,
};

/// Reads a file and expands into the jobs that import it. A caller that waits for it gets the summary.
#[derive(Serialize, Deserialize, Job)]
#[job(type = "csv:import", output = Summary)]
struct Import {
    file: PathBuf,
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
    let Import { file } = job;
    let read = move || {
        let text = |error| format!("cannot read {}: {error}", file.display());
        fs::read_to_string(&file).map_err(|error| JobError::unrecoverable(text(error)))
    };
    let csv = blocking(read).await?;
    // The first line has the names of the columns.
    let lines: Vec<String> = csv.lines().skip(1).map(str::to_owned).collect();
    let blocks = lines.chunks(100).enumerate().map(|(n, lines)| {
        let first = n * 100 + 2;
        let label = format!("from line {first}");
        Rows { first, lines: lines.to_vec() }.with(Options::new().label(label))
    });
    // The next step runs even if blocks fail, and gets the outcome of each block.
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
    // The outcomes are read one by one, because those of a large file may not fit into memory.
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

/// Writes a file with 1,000 rows, one of which has no amount.
fn write_sample(file: &Path) -> Result<(), BoxError> {
    let mut csv = String::from("name,amount\n");
    for n in 0..1_000 {
        let amount = if n == 250 { "a lot".to_owned() } else { n.to_string() };
        csv.push_str(&format!("customer {n},{amount}\n"));
    }
    Ok(fs::write(file, csv)?)
}

async fn run(file: PathBuf) -> Result<Summary, BoxError> {
    let driver = taskharbor::connect("memory:").await?;
    let client = Client::new(&driver);
    let handlers = Handlers::new().on(import).on(rows).on(summarize);
    let worker = Worker::builder(&driver)
        .handlers(handlers)
        .queue("default", 2)
        .queue("rows", 8)
        .build()?
        .start();
    let import = client.enqueue(Import { file }).await?;
    let summary = import.wait().await?;
    println!("{}", import.tree(100).await?);
    worker.shutdown().await?;
    Ok(summary)
}

#[taskharbor::main]
async fn main() -> Result<(), BoxError> {
    let summary = match env::args_os().nth(1) {
        Some(file) => run(file.into()).await?,
        None => {
            let sample = env::temp_dir().join(format!("taskharbor-{}.csv", process::id()));
            write_sample(&sample)?;
            let summary = run(sample.clone()).await;
            fs::remove_file(sample)?;
            summary?
        }
    };
    println!("{} rows imported, with a total of {}", summary.rows, summary.total);
    summary.errors.iter().for_each(|error| println!("a block was not imported: {error}"));
    Ok(())
}

#[test]
fn all_blocks_but_the_one_with_a_bad_row_are_imported() {
    let sample = env::temp_dir().join(format!("taskharbor-test-{}.csv", process::id()));
    write_sample(&sample).unwrap();
    let summary = taskharbor::block_on(run(sample.clone())).unwrap();
    fs::remove_file(sample).unwrap();
    assert_eq!(summary.rows, 900);
    assert_eq!(summary.total, (0..1_000).sum::<i64>() - (200..300).sum::<i64>());
    assert_eq!(summary.errors, ["line 252 has no amount: \"customer 250,a lot\""]);
}
