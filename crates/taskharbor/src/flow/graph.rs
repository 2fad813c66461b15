//! [`FlowTree`]: a flow with its members, and pictures of it: a tree of text, Graphviz, Mermaid.

mod text;

use std::{collections::HashMap, fmt::Write as _};

use taskharbor_core::{
    Admin, Blob, DriverError, FailurePolicy, Filter, FlowRecord, JobId, JobKind, JobRecord,
    JobType, Limits, List, QueueName, State, Text, Timestamp,
};

use crate::draft::LABEL;

/// How many members are asked about at once.
const AT_ONCE: usize = 16;

/// A flow with its members, as it stood when it was read.
///
/// Its `Display` is a tree of text, as a terminal shows it: one line for each member in the order
/// in which they run, those that run at once indented below the group they are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowTree {
    /// The flow.
    pub flow: FlowRecord,
    /// Its members, in the order in which they were stored.
    pub members: Vec<FlowMember>,
    /// Whether these are all of them.
    pub is_complete: bool,
}

/// A member of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowMember {
    /// Identifies it.
    pub id: JobId,
    /// What kind of work it is.
    pub job_type: JobType,
    /// Whether a worker runs it or the store completes it.
    pub kind: JobKind,
    /// What people call it.
    pub label: Option<String>,
    /// The queue it is in.
    pub queue: QueueName,
    /// Where it stands.
    pub state: State,
    /// The members whose outputs it reads, in that order.
    pub parents: Vec<JobId>,
    /// What becomes of those that wait for it if it fails.
    pub on_failure: FailurePolicy,
    /// The member that produces its output in its place, if it grew.
    pub grown_into: Option<JobId>,
    /// When it was stored.
    pub created_at: Timestamp,
    /// When it was last leased to a worker.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// How many executions have failed.
    pub attempts: u32,
    /// The error of the last failure.
    pub last_error: Option<Text>,
    /// Why it was dead-lettered or cancelled.
    pub reason: Option<Text>,
    /// What its worker last reported.
    pub progress: Option<Text>,
    /// What it produced.
    pub output: Option<Blob>,
}

impl FlowTree {
    /// Reads a flow and at most so many of its members, the first stored first; `None` if no flow
    /// with this id is stored. It is not one instant of the store: the flow goes on meanwhile.
    ///
    /// # Errors
    ///
    /// What the store answers.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn read(
        store: &impl Admin,
        id: &JobId,
        now: Timestamp,
        limit: usize,
    ) -> Result<Option<Self>, DriverError> {
        let Some(flow) = store.flow(id.clone(), now).await? else { return Ok(None) };
        let mut members = Vec::new();
        let mut list = List::new(Filter::all().flow(id.clone()), Limits::MAX_PAGE, now);
        let is_complete = loop {
            let left = limit - members.len();
            if left == 0 {
                break members.len() >= flow.members.total();
            }
            list.limit = left.min(Limits::MAX_PAGE);
            let page = store.list(list.clone()).await?;
            for some in page.items.chunks(AT_ONCE) {
                let asked = some.iter().map(|job| store.inspect(job.id.clone(), now));
                for record in all(asked).await {
                    members.extend(record?.map(FlowMember::from));
                }
            }
            match page.next {
                Some(next) => list = list.after(next),
                None => break true,
            }
        };
        Ok(Some(Self { flow, members, is_complete }))
    }

    /// The flow in the language of Graphviz: `dot -Tsvg` makes a picture of it.
    #[must_use]
    pub fn graphviz(&self) -> String {
        let mut dot = String::from(
            "digraph flow {\n  rankdir=LR;\n  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\"];\n",
        );
        for (at, member) in self.members.iter().enumerate() {
            let color = color(member.state);
            let text = member.title().replace('\\', "\\\\").replace('"', "\\\"");
            let shape = if member.kind == JobKind::Join { ", shape=circle" } else { "" };
            let state = member.state;
            let _ = writeln!(
                dot,
                "  n{at} [label=\"{text}\\n{state}\", fillcolor=\"{color}\"{shape}];"
            );
        }
        for (from, to, is_growth) in self.edges() {
            let style = if is_growth { " [style=dashed]" } else { "" };
            let _ = writeln!(dot, "  n{from} -> n{to}{style};");
        }
        dot.push_str("}\n");
        dot
    }

    /// The flow in the language of Mermaid, which Markdown on many sites shows as a picture.
    #[must_use]
    pub fn mermaid(&self) -> String {
        let mut text = String::from("flowchart LR\n");
        for (at, member) in self.members.iter().enumerate() {
            let title = escaped(&member.title());
            let (open, close) =
                if member.kind == JobKind::Join { ("((", "))") } else { ("[", "]") };
            let state = member.state;
            let _ = writeln!(text, "  n{at}{open}\"{title}<br/>{state}\"{close}:::{state}");
        }
        for (from, to, is_growth) in self.edges() {
            let arrow = if is_growth { "-.->" } else { "-->" };
            let _ = writeln!(text, "  n{from} {arrow} n{to}");
        }
        for state in State::ALL {
            let color = color(state);
            let _ = writeln!(text, "  classDef {state} fill:{color},stroke:#555,color:#000");
        }
        text
    }

    /// Who waited for whom, as positions; and who grew into whom.
    fn edges(&self) -> Vec<(usize, usize, bool)> {
        let positions = self.positions();
        let at = |id: &JobId| positions.get(id).copied();
        let mut edges = Vec::new();
        for (child, member) in self.members.iter().enumerate() {
            edges.extend(member.parents.iter().filter_map(at).map(|it| (it, child, false)));
            let grown = member.grown_into.as_ref().and_then(at);
            edges.extend(grown.map(|into| (child, into, true)));
        }
        edges
    }

    fn positions(&self) -> HashMap<&JobId, usize> {
        self.members.iter().enumerate().map(|(at, member)| (&member.id, at)).collect()
    }
}

impl FlowMember {
    /// What it is called: its label and type, or what a join is to people.
    #[must_use]
    pub fn title(&self) -> String {
        let name = match self.kind {
            JobKind::Work => self.job_type.as_str().to_owned(),
            JobKind::Join => format!("all of {}", self.parents.len()),
        };
        match &self.label {
            Some(label) => format!("{name} [{label}]"),
            None => name,
        }
    }
}

impl From<JobRecord> for FlowMember {
    fn from(record: JobRecord) -> Self {
        let job = record.job;
        Self {
            label: job.headers.get(LABEL).map(ToOwned::to_owned),
            id: job.id,
            job_type: job.job_type,
            kind: record.kind,
            queue: job.queue,
            state: record.state,
            parents: record.parents,
            on_failure: record.on_failure,
            grown_into: record.grown_into,
            created_at: job.created_at,
            started_at: record.started_at,
            finished_at: record.finished_at,
            attempts: job.attempts,
            last_error: job.last_error,
            reason: record.reason,
            progress: record.progress,
            output: record.output,
        }
    }
}

/// What a text is inside the quotes of a Mermaid node.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '"' | '<' | '>' | '&' | '#' | '`' | '\\' => {
                let _ = write!(escaped, "#{};", u32::from(char));
            }
            char => escaped.push(char),
        }
    }
    escaped
}

const fn color(state: State) -> &'static str {
    match state {
        State::Ready => "#dbeafe",
        State::Scheduled => "#e0e7ff",
        State::Blocked => "#f3f4f6",
        State::Inflight => "#fef3c7",
        State::Done => "#dcfce7",
        State::Dlq => "#fee2e2",
        _ => "#e5e7eb",
    }
}

/// Waits for all of these at once; answers in their order.
async fn all<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|cx| {
        let mut is_pending = false;
        for (future, answer) in &mut futures {
            if answer.is_none() {
                match future.as_mut().poll(cx) {
                    std::task::Poll::Ready(value) => *answer = Some(value),
                    std::task::Poll::Pending => is_pending = true,
                }
            }
        }
        if is_pending { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    futures.into_iter().filter_map(|(_, answer)| answer).collect()
}
