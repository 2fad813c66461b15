//! The standard error of a worker, line by line, and waiting for a line.

use std::{
    io::{BufRead, BufReader},
    process::Child,
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

/// How long a worker may take to say something.
const LIMIT: Duration = Duration::from_secs(30);

pub(crate) struct Said {
    lines: Receiver<String>,
    /// All lines up to the last one that was waited for, shown when a wait fails.
    so_far: String,
}

impl Said {
    /// Reads the process's output to the end, so that it never waits for its reader.
    pub(crate) fn by(process: &mut Child) -> Self {
        let said = BufReader::new(process.stderr.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { lines, so_far: String::new() }
    }

    /// Waits for a line with these words, and answers it.
    #[track_caller]
    pub(crate) fn until(&mut self, words: &str) -> String {
        self.within(LIMIT, words).unwrap_or_else(|problem| panic!("{problem}"))
    }

    #[expect(clippy::disallowed_methods, reason = "another process is waited for in real time")]
    fn within(&mut self, limit: Duration, words: &str) -> Result<String, String> {
        let end = Instant::now() + limit;
        loop {
            let so_far = &mut self.so_far;
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    *so_far += &format!("{line}\n");
                    if line.contains(words) {
                        return Ok(line);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("not said within {limit:?}: {words:?}, only:\n{so_far}"));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("it ended before it said {words:?}, and said:\n{so_far}"));
                }
            }
        }
    }
}

#[cfg(unix)]
#[test]
fn what_is_never_said_ends_the_test_with_what_was() {
    use std::process::{Command, Stdio};
    let say = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut silent = say("echo one >&2; echo two >&2; exec sleep 1000");
    let mut said = Said::by(&mut silent);
    said.until("one");
    said.until("two");
    let problem = said.within(Duration::from_millis(1), "three").unwrap_err();
    assert_eq!(problem, "not said within 1ms: \"three\", only:\none\ntwo\n");
    silent.kill().unwrap();
    silent.wait().unwrap();
    let problem = said.within(LIMIT, "three").unwrap_err();
    assert_eq!(problem, "it ended before it said \"three\", and said:\none\ntwo\n");
}
