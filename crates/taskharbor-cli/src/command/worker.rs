//! `taskharbor worker`: runs jobs with programs as handlers.

mod builtin;
mod exec;
pub(crate) mod guardian;
pub(crate) mod health;
mod idle;
mod status;
mod tail;

use std::{net::SocketAddr, process::ExitCode, sync::Arc, time::Duration};

use taskharbor::{AnyDriver, Exponential, Handlers, MissingHandler, Running, Worker, WorkerError};
use taskharbor_prometheus::Metrics;
use tokio::sync::watch;

use crate::{
    failure::{Exit, Failure, Outcome, chain},
    screen::counted,
    stderr,
    store::Url,
    value,
};
use exec::Program;
use guardian::Guardian;
use health::Watched;
use status::Status;

/// How many jobs of a queue run at once by default.
const CONCURRENCY: usize = 8;
/// How long a worker that is stopped by force has to end.
const ABORT_WAIT: Duration = Duration::from_secs(2);

/// Run jobs, with any program as a handler
///
/// A program gets the payload on standard input and the job's fields in environment variables
/// (TASKHARBOR_JOB_ID, TASKHARBOR_JOB_TYPE, TASKHARBOR_QUEUE, TASKHARBOR_ATTEMPT and others). Its
/// standard output is the job's output. Its exit code is 0 for success, 65 for a permanent failure,
/// and 75 to run the job later without charging an attempt; after any other exit code the job is
/// retried. The first Ctrl-C or SIGTERM lets running jobs finish, the second kills their programs
/// and ends the worker at once. After SIGUSR1 the worker takes no more jobs and goes on with those
/// it has.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor worker --exec 'email:send=./send-mail.py' --queue mail=4
  taskharbor worker --shell --exec 'log=cat >> jobs.log' --until-idle
  taskharbor worker --builtin")]
pub(crate) struct Args {
    /// A queue to serve, and how many of its jobs may run at once [default: default=8]
    #[arg(long, value_name = "NAME[=CONCURRENCY]", value_parser = value::served_queue)]
    queue: Vec<(String, Option<usize>)>,
    /// Run jobs of this type with this program; may be given more than once
    #[arg(long, value_name = "TYPE=COMMAND", value_parser = value::pair)]
    exec: Vec<(String, String)>,
    /// Run the commands of --exec in a shell (/bin/sh -c)
    #[arg(long)]
    shell: bool,
    /// Add handlers for the job types echo, sleep and fail, for trying things out
    #[arg(long)]
    builtin: bool,
    /// How long a lease lasts if it is not extended [default: 60s]
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    lease: Option<Duration>,
    /// Time between two heartbeats [default: a third of the lease]
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    heartbeat: Option<Duration>,
    /// The delay before the first retry, which doubles each time [default: 2s]
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    retry_base: Option<Duration>,
    /// The longest delay before a retry [default: 1h]
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    retry_max: Option<Duration>,
    /// How long running jobs may take to finish when the worker stops [default: 15s]
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    grace: Option<Duration>,
    /// How long a job without a handler in this worker is left to other workers before it is
    /// dead-lettered, counted from when the first worker could not run it [default: 10m]
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    missing_handler_wait: Option<Duration>,
    /// How often in a row the lease of a job may run out before it is dead-lettered [default: 5]
    #[arg(long, value_name = "N")]
    crash_limit: Option<u32>,
    /// How long a worker that starts waits for an unavailable store [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    start_timeout: Option<Duration>,
    /// The name of the worker [default: host, process id and a random number]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The version of your service, which `taskharbor workers` shows
    #[arg(long, value_name = "TEXT")]
    service_version: Option<String>,
    /// Serve GET /livez, /readyz and /metrics on this address, as in 0.0.0.0:9464
    #[arg(long, value_name = "ADDRESS:PORT")]
    health: Option<SocketAddr>,
    /// Evict workers that have not announced themselves for this long, so that their jobs run elsewhere;
    /// this worker announces itself three times as often. 3s to 8h. Set it on all workers of a store
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    fast_recovery: Option<Duration>,
    /// Fire the schedules that are due, then end when no job in the queues is ready, running or
    /// scheduled; paused queues do not count
    #[arg(long)]
    until_idle: bool,
}

/// Why a worker stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopped {
    Idle,
    Terminated,
    Interrupted,
}

impl Stopped {
    fn exit_code(self) -> ExitCode {
        match self {
            Self::Interrupted => ExitCode::from(Exit::Interrupted as u8),
            Self::Idle | Self::Terminated => ExitCode::SUCCESS,
        }
    }

    /// The exit code if jobs had no time to finish.
    fn forced_exit_code(self) -> ExitCode {
        match self {
            Self::Terminated => ExitCode::from(Exit::Terminated as u8),
            Self::Idle | Self::Interrupted => ExitCode::from(Exit::Interrupted as u8),
        }
    }
}

pub(crate) async fn run(args: Args, url: &Url, is_json: bool) -> Outcome<ExitCode> {
    if args.exec.is_empty() && !args.builtin {
        return Err(Failure::usage(
            "the worker has no handlers: pass --exec TYPE=COMMAND, or --builtin to try things out",
        ));
    }
    let (haste, is_hasty) = watch::channel(false);
    let queues =
        if args.queue.is_empty() { vec![("default".to_owned(), None)] } else { args.queue.clone() };
    let status = Arc::new(Status::new(is_json));
    // What is wrong with the options is found before a store is made.
    let nowhere = taskharbor::connect("memory:").await?;
    let checked = handlers(&args, &is_hasty, &Arc::new(Guardian::none()))?;
    drop(build(&args, &queues, checked, &nowhere, &status, None)?);
    stderr::detach();
    let (watched, metrics) = (Watched::default(), Metrics::new());
    if let Some(address) = args.health {
        health::serve(address, watched.clone(), metrics.clone()).await?;
    }
    let (mut signals, mut quiet) = (Signals::listen()?, QuietSignal::listen()?);
    let say = |event: &'static str, text: &str| status.say(event, text);
    let driver = tokio::select! {
        biased;
        stopped = signals.next() => return Ok(stopped.exit_code()),
        driver = url.open_when_there(args.start_timeout, say) => driver?,
    };
    let guardian = Arc::new(Guardian::start(url, is_json));
    let handlers = handlers(&args, &is_hasty, &guardian)?;
    // Only where they can be read: counting takes time.
    let metrics = args.health.map(|_| metrics);
    let worker = build(&args, &queues, handlers, &driver, &status, metrics)?;
    let running = Arc::new(worker.start());
    guardian.guard(running.name(), running.incarnation());
    watched.set(Arc::clone(&running));
    let stopped = loop {
        tokio::select! {
            biased;
            stopped = signals.next() => break stopped,
            () = quiet.next() => running.quiet(),
            ended = running.ended() => {
                if matches!(ended, Err(WorkerError::Store(_))) {
                    // It has reserved nothing.
                    guardian.dismiss();
                }
                ended?;
                break Stopped::Terminated;
            }
            idle = idle::until_idle(&driver, &queues, &status), if args.until_idle => {
                idle?;
                break Stopped::Idle;
            }
            // Never ends by itself.
            () = status.show() => break Stopped::Terminated,
        }
    };
    let forced = stop(&running, &mut signals, stopped, &status, &haste).await?;
    // A job that is left behind has its slot.
    if forced.is_none() && running.health().busy == 0 {
        guardian.dismiss();
    }
    status.end();
    Ok(forced.map_or_else(|| stopped.exit_code(), Stopped::forced_exit_code))
}

fn handlers(
    args: &Args,
    haste: &watch::Receiver<bool>,
    guardian: &Arc<Guardian>,
) -> Outcome<Handlers> {
    let mut handlers = if args.builtin { builtin::handlers() } else { Handlers::new() };
    for (job_type, command) in &args.exec {
        let program = Program::new(command, args.shell, haste.clone(), Arc::clone(guardian));
        let program = Arc::new(program.map_err(Failure::usage)?);
        handlers = handlers.on_raw(job_type.clone(), move |payload, cx| {
            let program = Arc::clone(&program);
            async move { program.run(payload, cx).await }
        });
    }
    Ok(handlers)
}

fn build(
    args: &Args,
    queues: &[(String, Option<usize>)],
    handlers: Handlers,
    driver: &AnyDriver,
    status: &Arc<Status>,
    metrics: Option<Metrics>,
) -> Outcome<Worker> {
    let mut retry = Exponential::new();
    if let Some(base) = args.retry_base {
        retry = retry.base(base);
    }
    if let Some(max) = args.retry_max {
        retry = retry.cap(max);
    }
    let mut builder =
        Worker::builder(driver).handlers(handlers).retry(retry).observer(Arc::clone(status));
    if let Some(metrics) = metrics {
        builder = builder.observer(metrics);
    }
    for (queue, concurrency) in queues {
        builder = builder.queue(queue, concurrency.unwrap_or(CONCURRENCY));
    }
    if let Some(lease) = args.lease {
        builder = builder.lease(lease);
    }
    if let Some(heartbeat) = args.heartbeat {
        builder = builder.heartbeat(heartbeat);
    }
    if let Some(grace) = args.grace {
        builder = builder.grace(grace);
    }
    if let Some(wait) = args.missing_handler_wait {
        builder = builder.missing_handler(MissingHandler::Wait(wait));
    }
    if let Some(limit) = args.crash_limit {
        builder = builder.crash_limit(limit);
    }
    if let Some(timeout) = args.start_timeout {
        builder = builder.start_timeout(timeout);
    }
    if let Some(name) = &args.name {
        builder = builder.name(name);
    }
    if let Some(version) = &args.service_version {
        builder = builder.version(version);
    }
    if let Some(within) = args.fast_recovery {
        builder = builder.fast_recovery(within);
    }
    builder.build().map_err(|error| Failure::usage(chain(&error)))
}

/// Lets running jobs finish, unless a second signal arrives; returns which one did.
async fn stop(
    running: &Running,
    signals: &mut Signals,
    stopped: Stopped,
    status: &Status,
    haste: &watch::Sender<bool>,
) -> Outcome<Option<Stopped>> {
    if stopped != Stopped::Idle && status.running() > 0 {
        let jobs = counted(usize::try_from(status.running()).unwrap_or_default(), "running job");
        status.say("stopping", &format!("finishing {jobs}; signal again to stop at once"));
    }
    let forced = tokio::select! {
        biased;
        ended = running.shutdown() => {
            ended?;
            return Ok(None);
        }
        signal = signals.next() => signal,
    };
    haste.send_replace(true);
    running.end_grace();
    tokio::select! {
        biased;
        ended = running.ended() => ended?,
        _ = signals.next() => {
            running.abort();
            // Executions that are dropped end their programs.
            let _ = tokio::time::timeout(ABORT_WAIT, running.ended()).await;
        }
    }
    Ok(Some(forced))
}

/// The signal after which a worker takes no more jobs.
struct QuietSignal {
    #[cfg(unix)]
    signal: tokio::signal::unix::Signal,
}

impl QuietSignal {
    fn listen() -> Outcome<Self> {
        Ok(Self {
            #[cfg(unix)]
            signal: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::user_defined1())?,
        })
    }

    async fn next(&mut self) {
        #[cfg(unix)]
        let _ = self.signal.recv().await;
        #[cfg(not(unix))]
        std::future::pending::<()>().await;
    }
}

/// The signals that end a worker.
struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    /// The terminal is gone.
    #[cfg(unix)]
    hangup: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> Outcome<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Stopped {
        tokio::select! {
            _ = self.terminate.recv() => Stopped::Terminated,
            _ = self.hangup.recv() => Stopped::Terminated,
            _ = self.interrupt.recv() => Stopped::Interrupted,
        }
    }
}

#[cfg(not(unix))]
impl Signals {
    fn listen() -> Outcome<Self> {
        Ok(Self {})
    }

    async fn next(&mut self) -> Stopped {
        // Without signals the process can only be killed.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Stopped::Interrupted
    }
}
