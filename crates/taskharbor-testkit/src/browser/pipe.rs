//! The two pipes to a browser: requests, their answers and events, each a line of JSON that ends in a
//! zero byte.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Write},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::sync::oneshot;

/// How long an answer may take on a machine that is busy with other tests.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Waiting {
    answers: HashMap<u64, oneshot::Sender<Value>>,
    /// What pages complained about, by session.
    complaints: HashMap<String, Vec<String>>,
    ended: bool,
}

pub(super) struct Pipe {
    requests: Mutex<File>,
    waiting: Arc<Mutex<Waiting>>,
    next: AtomicU64,
}

impl Pipe {
    pub(super) fn open(to: &Path, from: &Path) -> Arc<Self> {
        // Opened for reading, too, so that it does not wait for a browser that may not start.
        let requests = OpenOptions::new().read(true).write(true).open(to).expect("the first pipe");
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let (for_reader, from) = (Arc::clone(&waiting), from.to_owned());
        thread::spawn(move || {
            let answers = File::open(from).expect("the second pipe");
            for message in BufReader::new(answers).split(0) {
                let message = message.ok().and_then(|it| serde_json::from_slice(&it).ok());
                let Some(message) = message else { break };
                lock(&for_reader).take(message);
            }
            let mut waiting = lock(&for_reader);
            waiting.ended = true;
            waiting.answers.clear();
        });
        Arc::new(Self { requests: Mutex::new(requests), waiting, next: AtomicU64::new(1) })
    }

    /// Calls a method and answers its result. A method that the browser refuses fails the test.
    pub(super) async fn call(&self, session: Option<&str>, method: &str, params: Value) -> Value {
        let answer = self.try_call(session, method, params).await;
        answer.unwrap_or_else(|refused| panic!("{refused}"))
    }

    /// Calls a method and answers its result, or why the browser refuses it.
    pub(super) async fn try_call(
        &self,
        session: Option<&str>,
        method: &str,
        params: Value,
    ) -> Result<Value, String> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        {
            let mut waiting = lock(&self.waiting);
            assert!(!waiting.ended, "the browser has ended");
            waiting.answers.insert(id, sender);
        }
        let mut request = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = session {
            request["sessionId"] = session.into();
        }
        let mut bytes = request.to_string().into_bytes();
        bytes.push(0);
        let sent = self.requests.lock().unwrap_or_else(PoisonError::into_inner).write_all(&bytes);
        sent.expect("the browser reads requests");
        let answer = tokio::time::timeout(ANSWER_LIMIT, answer).await;
        let answer = answer.unwrap_or_else(|_| panic!("the browser does not answer {method}"));
        let answer = answer.unwrap_or_else(|_| panic!("the browser has ended during {method}"));
        match answer.get("error") {
            Some(error) => Err(format!("{method}: {error}")),
            None => Ok(answer["result"].clone()),
        }
    }

    /// Takes what the page of this session has complained about since it was last asked.
    pub(super) fn complaints(&self, session: &str) -> Vec<String> {
        lock(&self.waiting).complaints.remove(session).unwrap_or_default()
    }
}

impl Waiting {
    fn take(&mut self, message: Value) {
        if let Some(id) = message["id"].as_u64() {
            if let Some(sender) = self.answers.remove(&id) {
                // The test may have given up.
                let _ = sender.send(message);
            }
            return;
        }
        let params = &message["params"];
        let complaint = match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => {
                let details = &params["exceptionDetails"];
                let thrown = details["exception"]["description"].as_str();
                Some(thrown.unwrap_or_default().to_owned() + details["text"].as_str().unwrap_or(""))
            }
            Some("Log.entryAdded") if params["entry"]["level"] == "error" => {
                Some(format!("{}: {}", params["entry"]["url"], params["entry"]["text"]))
            }
            Some("Runtime.consoleAPICalled") if params["type"] == "error" => {
                Some(params["args"].to_string())
            }
            _ => None,
        };
        if let (Some(complaint), Some(session)) = (complaint, message["sessionId"].as_str()) {
            self.complaints.entry(session.to_owned()).or_default().push(complaint);
        }
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}
