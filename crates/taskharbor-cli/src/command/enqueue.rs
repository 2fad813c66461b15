//! `taskharbor enqueue`: jobs from the command line, a file or a pipe.

use std::{
    fs,
    io::{self, BufRead, IsTerminal, Read},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use taskharbor::{AnyDriver, Blob, Client, Driver, Handle, Job, JobId, Timestamp, explain::served};
use taskharbor_core::{
    JobType, NewJob, QueueName,
    clock::StoreClock,
    driver::{Enqueue, Enqueued},
    error::Rejected,
    job::{Headers, JobSet, KeyHold},
    name::{IdempotencyKey, LaneName},
};

use crate::{
    failure::{Exit, Failure, Outcome, chain},
    json_output,
    screen::{Screen, counted},
    stderr::{self, note, tell},
    store::{Missing, Url},
    value,
};

/// Jobs in one call, and lines between two looks at the progress.
const BATCH: usize = 1_000;
/// Bytes after which a call goes out.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// Store a job, or many
///
/// The payload is the text itself, the content of a file (@FILE) or of standard input (-). The
/// default is {}. The command prints the id of each job, and reports if a job with the same key
/// exists already.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor enqueue email:send '{\"to\": \"ada@example.org\"}' --queue mail
  taskharbor enqueue report:build @report.json --delay 10m --key report-2026-11
  taskharbor enqueue digest:send --key digest-ada --key-hold 24h
  taskharbor enqueue sum '[1, 2]' --wait
  taskharbor enqueue row:import @row.json --queue import --lane acme
  cat rows.jsonl | taskharbor enqueue row:import --lines")]
pub(crate) struct Args {
    /// The type of the job, which chooses its handler
    r#type: String,
    /// The payload, @FILE, or - for standard input
    payload: Option<String>,
    /// The queue [default: default]
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// The lane of the queue: the tenant, host or account that the job belongs to; lanes take turns
    #[arg(long, value_name = "LANE")]
    lane: Option<LaneName>,
    /// Run the job after this time at the earliest, as 10s, 5m or 1h30m
    #[arg(long, value_name = "DURATION", value_parser = value::duration, conflicts_with = "at")]
    delay: Option<Duration>,
    /// Run the job at this time at the earliest, as 2026-11-15T10:00:00Z
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,
    /// How long one execution may take
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    timeout: Option<Duration>,
    /// How many attempts may fail before the job is dead-lettered
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// The idempotency key: if a job in the queue holds it, print that job's id and store nothing
    #[arg(long, visible_alias = "key", value_name = "KEY", conflicts_with_all = ["count", "lines"])]
    idempotency_key: Option<String>,
    /// How long the key is held: until-pruned, until-done, until-terminal or a duration such as 24h
    ///
    /// until-pruned, the default: until the record of the job is removed. until-done: until the job
    /// is done; a dead-lettered or cancelled job still holds it. until-terminal: until the job is
    /// done, dead-lettered or cancelled. A duration: for this time after the job was enqueued,
    /// whatever its state.
    #[arg(
        long,
        value_name = "HOLD",
        value_parser = value::key_hold,
        requires = "idempotency_key",
        allow_hyphen_values = true
    )]
    key_hold: Option<KeyHold>,
    /// The priority, from -32768 to 32767; higher runs first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i16>,
    /// A header of the job, stored beside the payload; may be given more than once
    #[arg(long, value_name = "NAME=VALUE", value_parser = value::pair)]
    header: Vec<(String, String)>,
    /// Store this many copies of the job
    #[arg(long, value_name = "N", conflicts_with = "lines", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Store one job for each line of the input, with the line as its payload; empty lines are
    /// skipped
    #[arg(long)]
    lines: bool,
    /// Wait for the job and print its output
    #[arg(long, conflicts_with_all = ["count", "lines"])]
    wait: bool,
}

pub(crate) async fn run(args: Args, url: &Url, screen: &mut Screen) -> Outcome {
    // Everything that can be checked without a store is checked before one is created.
    let template = args.template()?;
    if args.lines {
        let input = args.input()?;
        template.check(Blob::from(Vec::new()), url)?;
        let driver = url.open(Missing::Create).await?;
        return lines(&driver, &template, input, screen).await;
    }
    let payload = Blob::from(content(args.payload.as_deref())?);
    template.check(payload.clone(), url)?;
    let driver = url.open(Missing::Create).await?;
    if let Some(count) = args.count {
        return copies(&driver, &template, &payload, count, screen).await;
    }
    let answer = template.enqueue(&driver, vec![payload]).await?.into_iter().next();
    let Some(answer) = answer else {
        return Err(Failure::error("error", "the store did not answer"));
    };
    let enqueued = answer.map_err(rejected)?;
    let existed = !enqueued.is_new();
    let unserved = served::unserved(&driver, &template.queue, driver.now().await?).await?;
    if let Some(text) = unserved.filter(|_| !existed) {
        tell(&text);
    }
    if !args.wait {
        return stored(enqueued.id().as_str(), existed, screen);
    }
    let handle = Client::new(&driver).handle::<Any>(enqueued.id().clone());
    wait(&handle, existed, screen).await
}

/// A job of any type, to wait for the bytes that it produces.
#[derive(Serialize, Deserialize, Job)]
#[job(type = "any")]
struct Any;

/// Waits for a job or a flow and prints what it produced.
pub(crate) async fn wait<O>(handle: &Handle<O>, existed: bool, screen: &mut Screen) -> Outcome {
    let id = handle.id().as_str();
    if !screen.is_json {
        tell(&if existed { format!("{id} existed") } else { id.to_owned() });
    }
    let output = handle.wait_raw().await?;
    if screen.is_json {
        return screen.document(&json_output::Waited::of(id, existed, output.as_ref()));
    }
    screen.bytes(output.as_deref().unwrap_or_default())
}

/// Says that something is stored, or was before.
pub(crate) fn stored(id: &str, existed: bool, screen: &mut Screen) -> Outcome {
    if screen.is_json {
        return screen.document(&json_output::Enqueued { id, existed });
    }
    if existed {
        tell("a job with this key existed; nothing was stored");
    }
    screen.line(id)
}

impl Args {
    /// What all jobs of this call have in common.
    fn template(&self) -> Outcome<Template> {
        let wrong = |error: &dyn std::error::Error| Failure::usage(error.to_string());
        let mut headers = Headers::new();
        for (name, value) in &self.header {
            headers = headers.with(name, value).map_err(|error| wrong(&error))?;
        }
        let key = self.idempotency_key.as_ref().map(IdempotencyKey::new).transpose();
        let queue = self.queue.as_deref().unwrap_or("default");
        Ok(Template {
            job_type: JobType::new(&self.r#type).map_err(|error| wrong(&error))?,
            queue: QueueName::new(queue).map_err(|error| wrong(&error))?,
            lane: self.lane.clone(),
            headers,
            key: key.map_err(|error| wrong(&error))?,
            key_hold: self.key_hold.unwrap_or_default(),
            delay: self.delay,
            at: self.at,
            timeout: self.timeout,
            max_attempts: self.max_attempts,
            priority: self.priority.unwrap_or_default(),
        })
    }

    fn input(&self) -> Outcome<Input> {
        match self.payload.as_deref() {
            None | Some("-") => Ok(Input { lines: Box::new(io::stdin().lock()), bytes: None }),
            Some(text) => {
                let Some(path) = text.strip_prefix('@') else {
                    return Err(Failure::usage(
                        "--lines reads a file (@FILE) or standard input (-)",
                    ));
                };
                let file = fs::File::open(path).map_err(|error| unreadable(path, &error))?;
                let bytes = file.metadata().ok().filter(fs::Metadata::is_file).map(|it| it.len());
                Ok(Input { lines: Box::new(io::BufReader::new(file)), bytes })
            }
        }
    }
}

/// A payload as it is given: a text, @FILE, or - for standard input.
pub(crate) fn content(payload: Option<&str>) -> Outcome<Vec<u8>> {
    match payload {
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

/// Lines of which each becomes a job.
struct Input {
    lines: Box<dyn BufRead>,
    /// How many bytes there are, if that is known.
    bytes: Option<u64>,
}

fn unreadable(path: &str, error: &io::Error) -> Failure {
    Failure::new(Exit::Usage, "unreadable", format!("{path} cannot be read: {error}"))
}

/// What many jobs have in common.
struct Template {
    job_type: JobType,
    queue: QueueName,
    lane: Option<LaneName>,
    headers: Headers,
    key: Option<IdempotencyKey>,
    key_hold: KeyHold,
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
        job.lane.clone_from(&self.lane);
        job.timeout = self.timeout;
        job.max_attempts = self.max_attempts;
        job.idempotency_key.clone_from(&self.key);
        job.key_hold = self.key_hold;
        Ok(job)
    }

    /// Refuses what no store would take, before a file is made for it.
    fn check(&self, payload: Blob, url: &Url) -> Outcome {
        let Some(limits) = url.file_limits() else { return Ok(()) };
        let set = JobSet::from(self.job(payload, StoreClock::wall_time())?);
        set.check(&limits).map(drop).map_err(rejected)
    }

    /// Stores a job for each payload; returns the result for each.
    async fn enqueue(
        &self,
        driver: &AnyDriver,
        payloads: Vec<Blob>,
    ) -> Outcome<Vec<Result<Enqueued, Rejected>>> {
        let now = driver.now().await?;
        let jobs = payloads.into_iter().map(|payload| Ok(JobSet::from(self.job(payload, now)?)));
        let sets = jobs.collect::<Outcome<Vec<_>>>()?;
        let answers = driver.enqueue(Enqueue::new(sets, now)).await?;
        // Each set is one job.
        let first = |answer: Result<Vec<Enqueued>, Rejected>| {
            answer.map(|jobs| jobs.into_iter().next()).transpose()
        };
        Ok(answers.into_iter().filter_map(first).collect())
    }

    /// Stores a job for each payload; prints the ids of those that are stored, and answers which were
    /// not, and why.
    async fn store(
        &self,
        driver: &AnyDriver,
        payloads: Vec<Blob>,
        screen: &mut Screen,
    ) -> Outcome<Vec<(usize, Rejected)>> {
        let mut refused = Vec::new();
        for (at, answer) in self.enqueue(driver, payloads).await?.into_iter().enumerate() {
            match answer {
                Ok(enqueued) => stored(enqueued.id().as_str(), !enqueued.is_new(), screen)?,
                Err(rejected) => refused.push((at, rejected)),
            }
        }
        Ok(refused)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "an error is turned into another")]
fn rejected(error: Rejected) -> Failure {
    Failure::new(Exit::Usage, "rejected", chain(&error))
}

async fn copies(
    driver: &AnyDriver,
    template: &Template,
    payload: &Blob,
    count: u32,
    screen: &mut Screen,
) -> Outcome {
    let mut progress = Progress::new(Some(u64::from(count)), screen);
    let mut left = usize::try_from(count).unwrap_or(usize::MAX);
    while left > 0 {
        let batch = left.min(BATCH);
        progress.clear();
        let refused = template.store(driver, vec![payload.clone(); batch], screen).await?;
        // They are all alike.
        if let Some((_, refused)) = refused.into_iter().next() {
            return Err(rejected(refused));
        }
        screen.flush()?;
        left -= batch;
        progress.add(batch, batch);
    }
    progress.clear();
    Ok(())
}

async fn lines(
    driver: &AnyDriver,
    template: &Template,
    Input { lines: mut input, bytes: of }: Input,
    screen: &mut Screen,
) -> Outcome {
    let mut progress = Progress::new(of, screen);
    let (mut batch, mut bytes, mut consumed) = (Vec::new(), 0, 0);
    let (mut line, mut number, mut refused) = (Vec::new(), 0_usize, 0_usize);
    // The number of the line from which each job of the batch comes.
    let mut numbers = Vec::new();
    loop {
        line.clear();
        let read = input.read_until(b'\n', &mut line)?;
        number += 1;
        consumed += read;
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if !text.is_empty() {
            bytes += text.len();
            batch.push(Blob::from(text.to_vec()));
            numbers.push(number);
        }
        let is_full = batch.len() >= BATCH || bytes >= BATCH_BYTES;
        if (is_full || read == 0) && !batch.is_empty() {
            let count = batch.len();
            progress.clear();
            for (at, error) in template.store(driver, std::mem::take(&mut batch), screen).await? {
                let (line, message) = (numbers[at], chain(&error));
                let error = json_output::ProblemText { code: "rejected", message: &message };
                note(&json_output::RefusedLine { line, error }, &format!("line {line}: {message}"));
                refused += 1;
            }
            numbers.clear();
            // A reader of the ids sees them when the jobs are stored.
            screen.flush()?;
            bytes = 0;
            progress.add(count, std::mem::take(&mut consumed));
        }
        if read == 0 {
            progress.clear();
            if refused > 0 {
                let were = if refused == 1 { "was" } else { "were" };
                let text =
                    format!("{} {were} not stored; all others were", counted(refused, "line"));
                return Err(Failure::new(Exit::Usage, "rejected", text));
            }
            return Ok(());
        }
    }
}

/// How far a long enqueue is, on standard error if that is a terminal.
struct Progress {
    jobs: usize,
    done: u64,
    /// How much there is to do, if that is known.
    of: Option<u64>,
    is_shown: bool,
}

impl Progress {
    fn new(of: Option<u64>, screen: &Screen) -> Self {
        let is_shown = io::stderr().is_terminal() && !screen.is_json;
        Self { jobs: 0, done: 0, of, is_shown }
    }

    /// This many jobs more are stored, which were so much of what there is to do.
    fn add(&mut self, jobs: usize, done: usize) {
        self.jobs += jobs;
        self.done += done as u64;
        if self.is_shown {
            stderr::write(format!("\r\x1b[K{}", self.text()).as_bytes());
        }
    }

    fn text(&self) -> String {
        let jobs = counted(self.jobs, "job");
        let Some(of) = self.of.filter(|of| *of > 0) else { return jobs };
        let percent = (self.done.saturating_mul(100) / of).min(100);
        let filled = usize::try_from(percent * 30 / 100).unwrap_or_default();
        let bar = "█".repeat(filled) + &"░".repeat(30 - filled);
        format!("{bar} {percent} %, {jobs}")
    }

    /// Makes room for what else is written.
    fn clear(&self) {
        if self.is_shown {
            stderr::write(b"\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_a_bar_if_the_end_is_known_and_a_number_if_not() {
        let mut progress = Progress { jobs: 0, done: 0, of: Some(300), is_shown: false };
        progress.add(1, 100);
        assert_eq!(progress.text(), format!("{}{} 33 %, 1 job", "█".repeat(9), "░".repeat(21)));
        progress.add(9, 200);
        assert_eq!(progress.text(), format!("{} 100 %, 10 jobs", "█".repeat(30)));
        progress.of = None;
        assert_eq!(progress.text(), "10 jobs");
    }
}
