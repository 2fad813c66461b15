//! [`ActionLog`]: the actions that were taken through the server, and their callers.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt, fs,
    io::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};
use taskharbor::Timestamp;

use crate::{access::Role, app::App, call::Call, endpoint::Endpoint, problem::Problem};

/// Records that are kept in memory.
const KEPT: usize = 1_000;
/// Ids of one record.
const MAX_IDS: usize = 100;
/// The details of one record, as JSON.
const MAX_DETAILS_BYTES: usize = 4 * 1024;
/// How much is kept of details that are larger.
const KEPT_DETAILS_BYTES: usize = 1024;
/// The most records of one answer.
const MAX_LISTED: usize = 200;

/// One thing that was done, or was refused by the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ActionRecord {
    /// When, by the clock of the store; `None` if the store could not be asked.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "Option<String>")]
    pub at: Option<Timestamp>,
    /// The name of the caller.
    pub who: String,
    /// The role of the caller.
    pub role: Role,
    /// The store.
    pub store: String,
    /// What was done, such as `job.cancel`.
    pub action: String,
    /// What it was done to, as the address named it.
    pub target: BTreeMap<String, String>,
    /// The first 100 of the jobs that it was done to, if there were many.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<String>,
    /// How it was done, or which jobs were chosen. Above 4 KiB, how many bytes it has and how it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// How many things it was done to, if that is not one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// `ok`, or the code of the problem.
    pub result: String,
}

#[expect(clippy::ref_option, reason = "serde asks for this")]
fn as_text<S: Serializer>(at: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => serializer.collect_str(at),
        None => serializer.serialize_none(),
    }
}

type Hook = Arc<dyn Fn(&ActionRecord) + Send + Sync>;

/// The last actions, and where all of them are written.
pub(crate) struct ActionLog {
    last: Mutex<VecDeque<Arc<ActionRecord>>>,
    file: Option<Arc<File>>,
    hook: Option<Hook>,
}

struct File {
    path: PathBuf,
    open: Mutex<Option<fs::File>>,
}

impl ActionLog {
    pub(crate) fn new(path: Option<PathBuf>, hook: Option<Hook>) -> Self {
        let file = path.map(|path| Arc::new(File { path, open: Mutex::default() }));
        Self { last: Mutex::default(), file, hook }
    }

    /// Records what this call has done.
    pub(crate) async fn record(
        &self,
        call: &Call,
        endpoint: &Endpoint,
        at: Option<Timestamp>,
        result: Result<(), &Problem>,
    ) {
        let note = call.noted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let target = call.params.iter().filter(|(key, _)| key != "store").cloned().collect();
        let store = call.store_name().to_owned();
        self.add(ActionRecord {
            at,
            who: call.access.name.clone(),
            role: call.access.role,
            store,
            action: endpoint.action.as_deref().unwrap_or_default().to_owned(),
            target,
            ids: note.ids.into_iter().take(MAX_IDS).collect(),
            details: note.details,
            count: note.count,
            result: result.map_or_else(|problem| problem.code, |()| "ok").to_owned(),
        })
        .await;
    }

    /// Adds a record: also for what goes on after its request, such as a sweep.
    pub(crate) async fn add(&self, mut record: ActionRecord) {
        record.details = record.details.map(bounded);
        let record = Arc::new(record);
        {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            last.truncate(KEPT - 1);
            last.push_front(Arc::clone(&record));
        }
        tracing::info!(
            who = record.who,
            store = record.store,
            action = record.action,
            result = record.result,
            "an action"
        );
        if let Some(hook) = &self.hook {
            hook(&record);
        }
        let Some(file) = self.file.clone() else { return };
        // A file can be slow, and a thread of the runtime must not wait for it.
        let written = tokio::task::spawn_blocking(move || file.append(&record)).await;
        if let Ok(Err(error)) = written {
            tracing::error!(%error, "the action log cannot be written");
        }
    }

    fn last(&self, limit: usize) -> Vec<Arc<ActionRecord>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.iter().take(limit).cloned().collect()
    }
}

/// The beginning of details that are too large.
fn bounded(details: Value) -> Value {
    let text = details.to_string();
    if text.len() <= MAX_DETAILS_BYTES {
        return details;
    }
    let start = &text[..text.floor_char_boundary(KEPT_DETAILS_BYTES)];
    json!({ "bytes": text.len(), "start": start })
}

impl fmt::Debug for ActionLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActionLog").finish_non_exhaustive()
    }
}

impl File {
    fn append(&self, record: &ActionRecord) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.is_none() {
            *open = Some(open_for_appending(&self.path)?);
        }
        match open.as_mut().map(|file| file.write_all(&line)) {
            Some(Err(error)) => {
                // The next record tries with a new file.
                *open = None;
                Err(error)
            }
            _ => Ok(()),
        }
    }
}

fn open_for_appending(path: &Path) -> std::io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/v1/{store}/actions", list)
            .summary("What was done through this server, the last first"),
    ]
}

/// How many records.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Query {
    /// The greatest number of items to return, 1 to 200; 100 unless set.
    limit: Option<usize>,
}

/// The last actions on a store.
#[derive(Serialize, JsonSchema)]
struct Actions {
    /// The last one first.
    items: Vec<ActionRecord>,
}

async fn list(call: Call, query: Query) -> Result<Actions, Problem> {
    let limit = crate::view::limit(query.limit, MAX_LISTED)?;
    let store = call.named()?;
    let App { actions, .. } = &*call.app;
    let all = actions.last(KEPT);
    let own = all.iter().filter(|record| record.store == store.name).take(limit);
    Ok(Actions { items: own.map(|record| ActionRecord::clone(record)).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_that_are_too_large_are_cut_between_two_characters() {
        let small = json!({ "names": ["a", "b"] });
        assert_eq!(bounded(small.clone()), small);
        for text in ["é".repeat(50_000), format!("a{}", "é".repeat(50_000)), "\"".repeat(50_000)]
        {
            let cut = bounded(json!({ "text": text }));
            assert!(cut["bytes"].as_u64().unwrap() > 50_000);
            assert!(cut["start"].as_str().unwrap().starts_with("{\"text\":\""), "{cut}");
            assert!(cut.to_string().len() < MAX_DETAILS_BYTES, "{}", cut.to_string().len());
        }
    }
}
