//! `taskharbor enqueue`: jobs from the command line, a file or a pipe.

use std::{
    fs,
    io::{self, BufRead, IsTerminal, Read, Write},
    time::Duration,
};

use taskharbor::{AnyDriver, Blob, Client, Driver, Handle, JobId, Options, Timestamp};
use taskharbor_core::{
    Enqueue, Enqueued, Headers, IdempotencyKey, JobSet, JobType, NewJob, QueueName,
};

use crate::{
    failure::{Exit, Failure, Outcome, chain},
    screen::{Screen, tell},
    shape,
    store::{Missing, Url},
    value,
};

/// Jobs in one call, and lines between two looks at the progress.
const BATCH: usize = 1_000;
/// Bytes after which a call goes out.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// Store a job, or many
///
/// The payload is the text itself, the content of a file (@FILE) or of standard input (-). Without
/// one it is {}. Prints the id of each job; says so when a job with the same key was stored before.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor enqueue email:send '{\"to\": \"ada@example.org\"}' --queue mail
  taskharbor enqueue report:build @report.json --delay 10m --key report-2026-11
  taskharbor enqueue sum '[1, 2]' --wait
  cat rows.jsonl | taskharbor enqueue row:import --lines")]
pub(crate) struct Args {
    /// The type of the job, which chooses its handler
    r#type: String,
    /// The payload, @FILE, or - for standard input
    payload: Option<String>,
    /// The queue [default: default]
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// Not before this time has passed, as 10s, 5m or 1h30m
    #[arg(long, value_name = "DURATION", value_parser = value::duration, conflicts_with = "at")]
    delay: Option<Duration>,
    /// Not before this instant, as 2026-11-15T10:00:00Z
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,
    /// How long one execution may take
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    timeout: Option<Duration>,
    /// How often it may fail before it is dead-lettered
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// Store no second job with this key in the queue
    #[arg(long, visible_alias = "key", value_name = "KEY", conflicts_with_all = ["count", "lines"])]
    idempotency_key: Option<String>,
    /// Higher runs first, from -32768 to 32767
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i16>,
    /// What travels beside the payload; may be given more than once
    #[arg(long, value_name = "NAME=VALUE", value_parser = value::pair)]
    header: Vec<(String, String)>,
    /// Store so many of this job
    #[arg(long, value_name = "N", conflicts_with = "lines", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Store one job for each line of the input, which is its payload; empty lines are left out
    #[arg(long)]
    lines: bool,
    /// Wait for the job and print what it produced
    #[arg(long, conflicts_with_all = ["count", "lines"])]
    wait: bool,
}

pub(crate) async fn run(args: Args, url: &Url, screen: &mut Screen) -> Outcome {
    // All that can be wrong without a store is found before one is made.
    let template = args.template()?;
    if args.lines {
        let input = args.input()?;
        let driver = url.open(Missing::Create).await?;
        return lines(&driver, &template, input, screen).await;
    }
    let payload = args.content()?;
    let driver = url.open(Missing::Create).await?;
    if let Some(count) = args.count {
        return copies(&driver, &template, &payload, count, screen).await;
    }
    let client = Client::new(&driver);
    let mut enqueue = client.enqueue_raw(args.r#type.as_str(), payload).options(args.options());
    if let Some(key) = &args.idempotency_key {
        enqueue = enqueue.idempotency_key(key);
    }
    let handle = enqueue.await?;
    let (id, existed) = (handle.id().as_str(), !handle.is_new());
    if !args.wait {
        return stored(id, existed, screen);
    }
    wait(&handle, screen).await
}

/// Waits for a job or a flow and prints what it produced.
pub(crate) async fn wait<O>(handle: &Handle<O>, screen: &mut Screen) -> Outcome {
    let (id, existed) = (handle.id().as_str(), !handle.is_new());
    if !screen.is_json {
        tell(&if existed { format!("{id} existed") } else { id.to_owned() });
    }
    let output = handle.wait_raw().await?;
    if screen.is_json {
        return screen.document(&shape::Waited::of(id, existed, output.as_ref()));
    }
    screen.bytes(output.as_deref().unwrap_or_default())
}

/// Says that something is stored, or was before.
pub(crate) fn stored(id: &str, existed: bool, screen: &mut Screen) -> Outcome {
    if screen.is_json {
        return screen.document(&shape::Enqueued { id, existed });
    }
    if existed {
        tell("a job with this key existed; nothing was stored");
    }
    screen.line(id)
}

impl Args {
    fn options(&self) -> Options {
        let mut options = Options::new();
        if let Some(queue) = &self.queue {
            options = options.queue(queue);
        }
        if let Some(delay) = self.delay {
            options = options.delay(delay);
        }
        if let Some(at) = self.at {
            options = options.run_at(at);
        }
        if let Some(timeout) = self.timeout {
            options = options.timeout(timeout);
        }
        if let Some(max_attempts) = self.max_attempts {
            options = options.max_attempts(max_attempts);
        }
        if let Some(priority) = self.priority {
            options = options.priority(priority);
        }
        self.header.iter().fold(options, |options, (name, value)| options.header(name, value))
    }

    /// What all jobs of this call have in common.
    fn template(&self) -> Outcome<Template> {
        let wrong = |error: &dyn std::error::Error| Failure::usage(error.to_string());
        let mut headers = Headers::new();
        for (name, value) in &self.header {
            headers = headers.with(name, value).map_err(|error| wrong(&error))?;
        }
        if let Some(key) = &self.idempotency_key {
            IdempotencyKey::new(key).map_err(|error| wrong(&error))?;
        }
        let queue = self.queue.as_deref().unwrap_or("default");
        Ok(Template {
            job_type: JobType::new(&self.r#type).map_err(|error| wrong(&error))?,
            queue: QueueName::new(queue).map_err(|error| wrong(&error))?,
            headers,
            delay: self.delay,
            at: self.at,
            timeout: self.timeout,
            max_attempts: self.max_attempts,
            priority: self.priority.unwrap_or_default(),
        })
    }

    fn content(&self) -> Outcome<Vec<u8>> {
        match self.payload.as_deref() {
            None => Ok(b"{}".to_vec()),
            Some("-") => {
                let mut content = Vec::new();
                io::stdin().lock().read_to_end(&mut content)?;
                Ok(content)
            }
            Some(text) => match text.strip_prefix('@') {
                Some(path) => fs::read(path).map_err(|error| unreadable(path, &error)),
                None => Ok(text.as_bytes().to_vec()),
            },
        }
    }

    fn input(&self) -> Outcome<Box<dyn BufRead>> {
        match self.payload.as_deref() {
            None | Some("-") => Ok(Box::new(io::stdin().lock())),
            Some(text) => {
                let Some(path) = text.strip_prefix('@') else {
                    return Err(Failure::usage(
                        "--lines reads a file (@FILE) or standard input (-)",
                    ));
                };
                let file = fs::File::open(path).map_err(|error| unreadable(path, &error))?;
                Ok(Box::new(io::BufReader::new(file)))
            }
        }
    }
}

fn unreadable(path: &str, error: &io::Error) -> Failure {
    Failure::new(Exit::Usage, "unreadable", format!("{path} cannot be read: {error}"))
}

/// What many jobs have in common.
struct Template {
    job_type: JobType,
    queue: QueueName,
    headers: Headers,
    delay: Option<Duration>,
    at: Option<Timestamp>,
    timeout: Option<Duration>,
    max_attempts: Option<u32>,
    priority: i16,
}

impl Template {
    fn job(&self, payload: Blob, now: Timestamp) -> Outcome<NewJob> {
        let id = JobId::generate(now).map_err(|error| Failure::error("random", chain(&error)))?;
        let mut job = NewJob::new(id, self.queue.clone(), self.job_type.clone(), payload)
            .headers(self.headers.clone())
            .priority(self.priority);
        job.run_at = match self.delay {
            Some(delay) => Some(
                now.checked_add(delay)
                    .ok_or_else(|| Failure::usage("the delay ends after the year 9999"))?,
            ),
            None => self.at,
        };
        job.timeout = self.timeout;
        job.max_attempts = self.max_attempts;
        Ok(job)
    }

    /// Stores a job for each payload; prints the ids of those that are stored, and answers which were
    /// not, and why.
    async fn store(
        &self,
        driver: &AnyDriver,
        payloads: Vec<Blob>,
        screen: &mut Screen,
    ) -> Outcome<Vec<(usize, String)>> {
        let now = driver.now().await?;
        let jobs = payloads.into_iter().map(|payload| Ok(JobSet::from(self.job(payload, now)?)));
        let sets = jobs.collect::<Outcome<Vec<_>>>()?;
        let mut refused = Vec::new();
        for (at, answer) in driver.enqueue(Enqueue::new(sets, now)).await?.into_iter().enumerate() {
            match answer {
                Ok(answered) => {
                    for enqueued in answered {
                        let existed = !enqueued.is_new();
                        let (Enqueued::Inserted(id) | Enqueued::Existing(id)) = &enqueued;
                        stored(id.as_str(), existed, screen)?;
                    }
                }
                Err(rejected) => refused.push((at, rejected.to_string())),
            }
        }
        Ok(refused)
    }
}

fn rejected(text: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, "rejected", text)
}

async fn copies(
    driver: &AnyDriver,
    template: &Template,
    payload: &[u8],
    count: u32,
    screen: &mut Screen,
) -> Outcome {
    let payload = Blob::from(payload.to_vec());
    let mut progress = Progress::new(Some(u64::from(count)));
    let mut left = usize::try_from(count).unwrap_or(usize::MAX);
    while left > 0 {
        let batch = left.min(BATCH);
        let refused = template.store(driver, vec![payload.clone(); batch], screen).await?;
        // They are all alike.
        if let Some((_, text)) = refused.into_iter().next() {
            return Err(rejected(text));
        }
        left -= batch;
        progress.add(batch);
    }
    progress.end();
    Ok(())
}

async fn lines(
    driver: &AnyDriver,
    template: &Template,
    mut input: Box<dyn BufRead>,
    screen: &mut Screen,
) -> Outcome {
    let mut progress = Progress::new(None);
    let (mut batch, mut bytes) = (Vec::new(), 0);
    let (mut line, mut number, mut refused) = (Vec::new(), 0_usize, 0_usize);
    // The number of the line from which each job of the batch comes.
    let mut numbers = Vec::new();
    loop {
        line.clear();
        let read = input.read_until(b'\n', &mut line)?;
        number += 1;
        while line.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
            line.pop();
        }
        if !line.is_empty() {
            bytes += line.len();
            batch.push(Blob::from(line.clone()));
            numbers.push(number);
        }
        let is_full = batch.len() >= BATCH || bytes >= BATCH_BYTES;
        if (is_full || read == 0) && !batch.is_empty() {
            let count = batch.len();
            for (at, text) in template.store(driver, std::mem::take(&mut batch), screen).await? {
                tell(&format!("line {}: {text}", numbers[at]));
                refused += 1;
            }
            numbers.clear();
            // Whoever reads the ids sees them when they are stored.
            screen.flush()?;
            bytes = 0;
            progress.add(count);
        }
        if read == 0 {
            progress.end();
            if refused > 0 {
                return Err(rejected(format!("{refused} lines were not stored; all others were")));
            }
            return Ok(());
        }
    }
}

/// How far a long enqueue is, on standard error if that is a terminal and the ids go elsewhere.
struct Progress {
    done: u64,
    of: Option<u64>,
    is_shown: bool,
}

impl Progress {
    fn new(of: Option<u64>) -> Self {
        let is_shown = io::stderr().is_terminal() && !io::stdout().is_terminal();
        Self { done: 0, of, is_shown }
    }

    fn add(&mut self, jobs: usize) {
        self.done += jobs as u64;
        if !self.is_shown {
            return;
        }
        let text = match self.of {
            Some(of) => {
                let filled = usize::try_from(self.done * 30 / of.max(1)).unwrap_or(30).min(30);
                let bar = "█".repeat(filled) + &"░".repeat(30 - filled);
                format!("{bar} {} of {of} jobs", self.done)
            }
            None => format!("{} jobs", self.done),
        };
        let _ = write!(io::stderr(), "\r\x1b[K{text}");
    }

    fn end(&self) {
        if self.is_shown {
            let _ = writeln!(io::stderr());
        }
    }
}
