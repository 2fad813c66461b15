//! A program as a handler.
//!
//! It runs in a process group of its own, so that whatever it started ends with it when the job has
//! to stop: the group is killed when the program was asked to stop, however it ended, and when the
//! execution is dropped before the program has ended. A process beside the worker kills it if the worker
//! is killed ([`Guardian`]).

use std::{
    io,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use taskharbor::{Blob, CancelReason, Context, JobError, Limits, Outcome};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
    sync::{Notify, watch},
    time::{Instant, timeout},
};

use super::{guardian::Guardian, tail::Tail};
use crate::{stderr::tell, store::VARIABLE};

/// The job is of no use: what `sysexits.h` calls bad input.
const UNRECOVERABLE: i32 = 65;
/// Try it later: what `sysexits.h` calls a temporary failure.
const LATER: i32 = 75;
/// What a shell says of a program that cannot be run, or is not there.
const NOT_RUNNABLE: i32 = 126;
const NOT_THERE: i32 = 127;

/// How long a job waits that its program did not want now.
const LATER_DELAY: Duration = Duration::from_secs(5);
/// How long a job waits whose program cannot be run.
const MISTAKE_DELAY: Duration = Duration::from_secs(30);
/// How long a program that is told to stop has for it.
const STOPPING: Duration = Duration::from_secs(3);
/// How long to read on what the program has left open after its end.
const LEFT_OPEN: Duration = Duration::from_secs(1);

/// What a program is not told: how to get at the store is not its business.
const SECRETS: [&str; 4] = [VARIABLE, "TASKHARBOR_TOKEN", "PGPASSWORD", "PGPASSFILE"];

/// How the variables of headers begin.
const HEADER: &str = "TASKHARBOR_HEADER_";

/// A program with its arguments.
#[derive(Debug)]
pub(super) struct Program {
    program: String,
    arguments: Vec<String>,
    /// Whether programs that have to stop are killed without being asked.
    haste: watch::Receiver<bool>,
    guardian: Arc<Guardian>,
}

impl Program {
    /// From a command as it is written in a shell; what only a shell understands needs one.
    pub(super) fn new(
        command: &str,
        shell: bool,
        haste: watch::Receiver<bool>,
        guardian: Arc<Guardian>,
    ) -> Result<Self, String> {
        if shell {
            let arguments = vec!["-c".to_owned(), command.to_owned()];
            return Ok(Self { program: "/bin/sh".to_owned(), arguments, haste, guardian });
        }
        let words = shlex::split(command)
            .ok_or_else(|| format!("a quote is not closed in the command {command:?}"))?;
        let mut words = words.into_iter();
        let program =
            words.next().ok_or("there is no command after the type: write TYPE=COMMAND")?;
        Ok(Self { program, arguments: words.collect(), haste, guardian })
    }

    /// Runs the program on one job.
    pub(super) async fn run(
        &self,
        payload: Blob,
        cx: Context,
    ) -> Result<Outcome<Option<Blob>>, JobError> {
        let mut command = self.command(&cx);
        // Removed when the handler has ended.
        let input = cx.input_raw().map(InputFile::write).transpose()?;
        if let Some(input) = &input {
            command.env("TASKHARBOR_INPUT_FILE", &input.0);
        }
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return self.not_started(&error),
        };
        let mut group = Group::of(&child, Arc::clone(&self.guardian));
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let write = async {
            if let Some(mut stdin) = stdin {
                // A program need not read what it does not want.
                let _ = stdin.write_all(&payload).await;
            }
        };
        let (mut output, mut errors) = (Output::default(), Tail::of(cx.id().as_str()));
        let is_full = Notify::new();
        let ended = {
            let talk = async {
                tokio::join!(write, output.read(stdout, &is_full), errors.pass_on(stderr));
            };
            let mut talk = std::pin::pin!(talk);
            let mut is_quiet = false;
            let mut stopping: Option<(CancelReason, Instant)> = None;
            let (mut haste, mut is_killed) = (self.haste.clone(), false);
            let ended = loop {
                let deadline = stopping.map(|(_, deadline)| deadline);
                tokio::select! {
                    biased;
                    () = &mut talk, if !is_quiet => is_quiet = true,
                    status = child.wait() => break Ok(status?),
                    reason = cx.cancelled(), if stopping.is_none() => {
                        if !*self.haste.borrow() {
                            group.ask();
                        }
                        stopping = Some((reason, Instant::now() + STOPPING));
                    }
                    // The output is too large to be stored, so the program need not go on.
                    () = is_full.notified() => group.kill(),
                    // Not before it is to stop: then that it was killed is not its failure.
                    () = hurried(&mut haste), if stopping.is_some() && !is_killed => {
                        group.kill();
                        is_killed = true;
                    }
                    () = until(deadline) => break Err("it did not stop when it was asked to"),
                }
            };
            if stopping.is_some() {
                // The processes that it started have to stop, too, also if it ended by itself.
                group.end();
            }
            if !is_quiet && ended.is_ok() {
                // What it started may hold on to its output for ever.
                let _ = timeout(LEFT_OPEN, &mut talk).await;
            }
            ended.map(|status| (status, stopping.map(|(reason, _)| reason)))
        };
        let (status, stopped) = ended?;
        // One that was asked to stop and has done its work all the same has done it.
        if let Some(reason) = stopped.filter(|_| !status.success()) {
            return Err(format!("stopped: {reason:?} {}", errors.text()).trim_end().into());
        }
        group.leave();
        judge(status, output, &errors)
    }

    fn command(&self, cx: &Context) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        for secret in SECRETS {
            command.env_remove(secret);
        }
        // What looks like a header of the job has to be one.
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(HEADER.as_bytes()) {
                command.env_remove(name);
            }
        }
        command
            .env("TASKHARBOR_JOB_ID", cx.id().as_str())
            .env("TASKHARBOR_JOB_TYPE", cx.job_type().as_str())
            .env("TASKHARBOR_QUEUE", cx.queue().as_str())
            .env("TASKHARBOR_ATTEMPT", cx.attempt().to_string())
            .env("TASKHARBOR_DELIVERY", cx.delivery().to_string())
            .env("TASKHARBOR_CREATED_AT", cx.created_at().to_string())
            .env_remove("TASKHARBOR_INPUT_FILE");
        let optional = [
            ("TASKHARBOR_LANE", cx.lane().map(ToString::to_string)),
            ("TASKHARBOR_DEADLINE", cx.deadline().map(|at| at.to_string())),
            ("TASKHARBOR_IDEMPOTENCY_KEY", cx.idempotency_key().map(ToString::to_string)),
            ("TASKHARBOR_FLOW", cx.flow().map(ToString::to_string)),
            ("TASKHARBOR_LAST_ERROR", cx.last_error().map(str::to_owned)),
            ("TASKHARBOR_FAILURE", cx.failure().map(ToString::to_string)),
        ];
        for (name, value) in optional {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        for (name, value) in cx.headers().iter() {
            command.env(header_variable(name), value);
        }
        command
    }

    /// The operator's mistake, or a machine without room, for which no job should pay; unless it is
    /// the job itself that does not fit.
    fn not_started(&self, error: &io::Error) -> Result<Outcome<Option<Blob>>, JobError> {
        match error.kind() {
            io::ErrorKind::ArgumentListTooLong | io::ErrorKind::InvalidInput => {
                Err(format!("{} could not be started: {error}", self.program).into())
            }
            _ => {
                tell(&format!("{} cannot be run: {error}", self.program));
                Ok(Outcome::Snooze(MISTAKE_DELAY))
            }
        }
    }
}

/// The variable that holds a header: in capitals, with anything but letters and digits as `_`.
fn header_variable(name: &str) -> String {
    let name =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' });
    format!("{HEADER}{}", name.collect::<String>())
}

/// Waits until programs are to be killed.
async fn hurried(haste: &mut watch::Receiver<bool>) {
    if haste.wait_for(|haste| *haste).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Waits until then, if there is such a time.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn judge(
    status: ExitStatus,
    output: Output,
    errors: &Tail,
) -> Result<Outcome<Option<Blob>>, JobError> {
    if output.is_too_large {
        let max = Limits::MAX_OUTPUT_BYTES;
        let text = format!(
            "the program wrote more than {max} bytes of output and was killed: store them elsewhere and write a reference"
        );
        return Err(JobError::unrecoverable(text));
    }
    let ended = match status.code() {
        Some(0) => {
            let output = output.bytes;
            return Ok(Outcome::Done((!output.is_empty()).then(|| output.into())));
        }
        Some(LATER) => return Ok(Outcome::Snooze(LATER_DELAY)),
        Some(code @ (NOT_RUNNABLE | NOT_THERE)) => {
            tell(&format!("the command ended with {code}: {}", errors.text()));
            return Ok(Outcome::Snooze(MISTAKE_DELAY));
        }
        Some(code) => format!("exit code {code}"),
        None => signal(status),
    };
    let text = match errors.text() {
        text if text.is_empty() => ended,
        text => format!("{ended}: {text}"),
    };
    Err(match status.code() {
        Some(UNRECOVERABLE) => JobError::unrecoverable(text),
        _ => text.into(),
    })
}

#[cfg(unix)]
fn signal(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    status
        .signal()
        .map_or_else(|| "ended".to_owned(), |signal| format!("killed by signal {signal}"))
}

#[cfg(not(unix))]
fn signal(_: ExitStatus) -> String {
    "ended".to_owned()
}

/// What the step before the job has produced, for the program to read.
struct InputFile(PathBuf);

impl InputFile {
    fn write(input: &Blob) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("taskharbor-input-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&path)?;
        let input_file = Self(path);
        io::Write::write_all(&mut file, input)?;
        Ok(input_file)
    }
}

impl Drop for InputFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Standard output, up to what a store keeps.
#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
    is_too_large: bool,
}

impl Output {
    /// Reads to the end, or to the limit, of which `is_full` is notified.
    async fn read(&mut self, from: Option<impl AsyncRead + Unpin>, is_full: &Notify) {
        let Some(mut from) = from else { return };
        let mut piece = [0; 8 * 1024];
        while let Ok(count @ 1..) = from.read(&mut piece).await {
            if count > Limits::MAX_OUTPUT_BYTES - self.bytes.len() {
                self.is_too_large = true;
                return is_full.notify_one();
            }
            self.bytes.extend_from_slice(&piece[..count]);
        }
    }
}

/// The processes of one execution. Dropped before the program has ended, it kills them all.
struct Group {
    #[cfg(unix)]
    leader: Option<rustix::process::Pid>,
    #[cfg(unix)]
    guardian: Arc<Guardian>,
}

#[cfg(unix)]
impl Group {
    fn of(child: &Child, guardian: Arc<Guardian>) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let leader = id.and_then(rustix::process::Pid::from_raw);
        if let Some(leader) = leader {
            guardian.watch(leader.as_raw_nonzero().get());
        }
        Self { leader, guardian }
    }

    fn ask(&self) {
        self.send(rustix::process::Signal::TERM);
    }

    fn kill(&self) {
        self.send(rustix::process::Signal::KILL);
    }

    /// Stops the processes that are left.
    fn end(&mut self) {
        self.kill();
        self.forget();
    }

    fn forget(&mut self) {
        if let Some(leader) = self.leader.take() {
            self.guardian.forget(leader.as_raw_nonzero().get());
        }
    }

    /// The program has ended by itself. Processes that it left running are meant to stay.
    fn leave(mut self) {
        self.forget();
    }

    fn send(&self, signal: rustix::process::Signal) {
        if let Some(leader) = self.leader {
            let _ = rustix::process::kill_process_group(leader, signal);
        }
    }
}

#[cfg(unix)]
impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

/// Without process groups, the program alone ends, when its handle is dropped.
#[cfg(not(unix))]
impl Group {
    fn of(_: &Child, _: Arc<Guardian>) -> Self {
        Self {}
    }

    fn ask(&self) {}

    fn kill(&self) {}

    fn end(&mut self) {}

    fn leave(self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_split_as_a_shell_would() {
        let guardian = Arc::new(Guardian::none());
        let new = |command: &str, shell| {
            Program::new(command, shell, watch::channel(false).1, Arc::clone(&guardian))
        };
        let program = new("./send 'a b' \"c\" d\\ e", false).unwrap();
        assert_eq!(program.program, "./send");
        assert_eq!(program.arguments, ["a b", "c", "d e"]);
        let shell = new("cat | wc", true).unwrap();
        assert_eq!((&*shell.program, &*shell.arguments[1]), ("/bin/sh", "cat | wc"));
        for command in ["", "  ", "echo 'open"] {
            assert!(new(command, false).is_err(), "{command:?}");
        }
    }

    #[test]
    fn headers_become_variables() {
        assert_eq!(header_variable("trace-id"), "TASKHARBOR_HEADER_TRACE_ID");
        assert_eq!(header_variable("th:codec"), "TASKHARBOR_HEADER_TH_CODEC");
    }
}
