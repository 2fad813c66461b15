//! [`FlowTree`]: a flow with its members, and diagrams of it: a tree of text, Graphviz, Mermaid.

mod text;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fmt::Write as _,
};

use taskharbor_core::{
    Admin, Blob, DriverError, JobId, JobType, QueueName, State, Text, Timestamp,
    admin::{Filter, List, Page},
    driver::Limits,
    flow::FlowRecord,
    job::{Condition, FailurePolicy, JobKind, JobRecord, JobSummary},
};

use crate::header;

/// How many members are asked about at once.
const AT_ONCE: usize = 16;

/// A flow with its members, as it stood when it was read.
///
/// Its `Display` is a tree of text, as a terminal shows it: one line for each member in the order
/// in which they run, members of a group indented below it, a failure job below the step it watches.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowTree {
    /// The flow.
    pub flow: FlowRecord,
    /// Its members, in the order in which they were stored.
    pub members: Vec<FlowMember>,
    /// Whether `members` has all members of the flow.
    pub is_complete: bool,
}

/// A member of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowMember {
    /// Its id.
    pub id: JobId,
    /// Its type.
    pub job_type: JobType,
    /// Whether a worker runs it or the store completes it.
    pub kind: JobKind,
    /// The label that it was given.
    pub label: Option<String>,
    /// The queue it is in.
    pub queue: QueueName,
    /// Its state.
    pub state: State,
    /// The members whose outputs it reads, in that order.
    pub parents: Vec<JobId>,
    /// The condition on those parents before it may run.
    pub condition: Condition,
    /// Its failure policy: what happens to its dependants if it fails.
    pub on_failure: FailurePolicy,
    /// The member that produces its output in its place, if its handler returned a flow.
    pub expanded_into: Option<JobId>,
    /// When it was stored.
    pub created_at: Timestamp,
    /// When it was last leased to a worker.
    pub started_at: Option<Timestamp>,
    /// When it became terminal.
    pub finished_at: Option<Timestamp>,
    /// How many executions have failed.
    pub attempts: u32,
    /// The error of the last failure.
    pub last_error: Option<Text>,
    /// Why it was dead-lettered or cancelled.
    pub reason: Option<Text>,
    /// The progress that its worker last reported.
    pub progress: Option<Text>,
    /// Its output.
    pub output: Option<Blob>,
}

impl FlowTree {
    /// Reads a flow and at most `limit` of its members; `None` if no flow with this id is stored.
    /// Of a larger flow it reads the tail, the first few parents of that, and so on backwards, and
    /// then the members that were stored first. The members are read in several calls, so their
    /// states may be of different times.
    ///
    /// # Errors
    ///
    /// [`DriverError`], if a call to the store fails.
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
        Self::read_from(store, id, now, limit).await
    }

    pub(crate) async fn read_from(
        store: &impl Records,
        id: &JobId,
        now: Timestamp,
        limit: usize,
    ) -> Result<Option<Self>, DriverError> {
        let Some(flow) = store.flow(id.clone(), now).await? else { return Ok(None) };
        let is_large = flow.members.total() > limit;
        let spine =
            if is_large { spine(store, &flow.tail, now, limit - limit / 4).await? } else { vec![] };
        let mut room = limit - spine.len();
        // Those that were not met in the list stand at its end, the tail last.
        let mut rest: Vec<_> = spine.into_iter().rev().map(Some).collect();
        let places =
            rest.iter().enumerate().filter_map(|(at, it)| Some((it.as_ref()?.id.clone(), at)));
        let places: HashMap<JobId, usize> = places.collect();
        let (mut members, mut is_cut) = (Vec::new(), false);
        let mut list = List::new(Filter::all().flow(id.clone()), Limits::MAX_PAGE, now);
        let is_complete = loop {
            if room == 0 {
                break members.len() + rest.iter().flatten().count() >= flow.members.total();
            }
            list.limit = limit.clamp(1, Limits::MAX_PAGE);
            let page = store.list(list.clone()).await?;
            let mut asked = Vec::new();
            for job in page.items {
                match places.get(&job.id) {
                    Some(&at) => {
                        members.extend(inspected(store, &mut asked, now).await?);
                        members.extend(rest[at].take());
                    }
                    None if room > 0 => {
                        asked.push(job.id);
                        room -= 1;
                    }
                    None => is_cut = true,
                }
            }
            members.extend(inspected(store, &mut asked, now).await?);
            match page.next {
                Some(next) => list = list.after(next),
                None => break !is_cut,
            }
        };
        members.extend(rest.into_iter().flatten());
        Ok(Some(Self { flow, members, is_complete }))
    }

    /// Returns the flow in the language of Graphviz: `dot -Tsvg` draws it.
    #[must_use]
    pub fn graphviz(&self) -> String {
        let mut dot = String::from(
            "digraph flow {\n  rankdir=LR;\n  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\"];\n",
        );
        for (at, member) in self.members.iter().enumerate() {
            let color = color(member.state);
            let text = member.title().replace('\\', "\\\\").replace('"', "\\\"");
            let shape = if member.is_join() { ", shape=circle" } else { "" };
            let state = member.state;
            let _ = writeln!(
                dot,
                "  n{at} [label=\"{text}\\n{state}\", fillcolor=\"{color}\"{shape}];"
            );
        }
        for (from, to, edge) in self.edges() {
            let style = match edge {
                Edge::Input => "",
                Edge::Expansion => " [style=dashed]",
                Edge::Failure => " [style=dotted, label=\"on failure\"]",
            };
            let _ = writeln!(dot, "  n{from} -> n{to}{style};");
        }
        for (at, more) in self.left_out() {
            let _ = writeln!(dot, "  m{at} [label=\"… and {more} more\", style=dashed];");
            let _ = writeln!(dot, "  m{at} -> n{at};");
        }
        dot.push_str("}\n");
        dot
    }

    /// Returns the flow in the language of Mermaid, which many sites draw inside Markdown.
    #[must_use]
    pub fn mermaid(&self) -> String {
        let mut text = String::from("flowchart LR\n");
        for (at, member) in self.members.iter().enumerate() {
            let title = escaped(&member.title());
            let (open, close) = if member.is_join() { ("((", "))") } else { ("[", "]") };
            let state = member.state;
            let _ = writeln!(text, "  n{at}{open}\"{title}<br/>{state}\"{close}:::{state}");
        }
        for (from, to, edge) in self.edges() {
            let arrow = match edge {
                Edge::Input => "-->",
                Edge::Expansion => "-.->",
                Edge::Failure => "-. on failure .->",
            };
            let _ = writeln!(text, "  n{from} {arrow} n{to}");
        }
        for (at, more) in self.left_out() {
            let _ = writeln!(text, "  m{at}([\"… and {more} more\"]) --> n{at}");
        }
        for &state in State::ALL {
            let color = color(state);
            let _ = writeln!(text, "  classDef {state} fill:{color},stroke:#555,color:#000");
        }
        text
    }

    /// The edges between members, as positions.
    fn edges(&self) -> Vec<(usize, usize, Edge)> {
        let positions = self.positions();
        let at = |id: &JobId| positions.get(id).copied();
        let mut edges = Vec::new();
        for (child, member) in self.members.iter().enumerate() {
            let edge = if member.is_failure_job() { Edge::Failure } else { Edge::Input };
            edges.extend(member.parents.iter().filter_map(at).map(|it| (it, child, edge)));
            let expanded = member.expanded_into.as_ref().and_then(at);
            edges.extend(expanded.map(|into| (child, into, Edge::Expansion)));
        }
        edges
    }

    /// The members, as positions, that wait for some which were not read, and for how many of these.
    fn left_out(&self) -> Vec<(usize, usize)> {
        let positions = self.positions();
        let left_out = self.members.iter().enumerate().map(|(at, member)| {
            (at, member.parents.iter().filter(|id| !positions.contains_key(id)).count())
        });
        left_out.filter(|(_, more)| *more > 0).collect()
    }

    fn positions(&self) -> HashMap<&JobId, usize> {
        self.members.iter().enumerate().map(|(at, member)| (&member.id, at)).collect()
    }
}

/// The calls with which a flow is read.
pub(crate) trait Records: Sync {
    fn flow(
        &self,
        id: JobId,
        now: Timestamp,
    ) -> impl Future<Output = Result<Option<FlowRecord>, DriverError>> + Send;

    fn inspect(
        &self,
        id: JobId,
        now: Timestamp,
    ) -> impl Future<Output = Result<Option<JobRecord>, DriverError>> + Send;

    fn list(
        &self,
        request: List,
    ) -> impl Future<Output = Result<Page<JobSummary>, DriverError>> + Send;
}

impl<A: Admin> Records for A {
    async fn flow(&self, id: JobId, now: Timestamp) -> Result<Option<FlowRecord>, DriverError> {
        Admin::flow(self, id, now).await
    }

    async fn inspect(&self, id: JobId, now: Timestamp) -> Result<Option<JobRecord>, DriverError> {
        Admin::inspect(self, id, now).await
    }

    async fn list(&self, request: List) -> Result<Page<JobSummary>, DriverError> {
        Admin::list(self, request).await
    }
}

/// The members without which the picture of a large flow falls apart: backwards from its tail, of
/// what each waits for the first few. At most this many, the tail first.
async fn spine(
    store: &impl Records,
    tail: &JobId,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<FlowMember>, DriverError> {
    let (mut members, mut met) = (Vec::new(), HashSet::from([tail.clone()]));
    let mut next = VecDeque::from([tail.clone()]);
    while !next.is_empty() && members.len() < limit {
        let at_once = next.len().min(AT_ONCE).min(limit - members.len());
        let mut asked = next.drain(..at_once).collect();
        for member in inspected(store, &mut asked, now).await? {
            let parents = member.parents.iter().take(text::SHOWN);
            next.extend(parents.filter(|id| met.insert((*id).clone())).cloned());
            members.push(member);
        }
    }
    Ok(members)
}

/// Reads these members, a few at a time; members that were removed are left out.
async fn inspected(
    store: &impl Records,
    ids: &mut Vec<JobId>,
    now: Timestamp,
) -> Result<Vec<FlowMember>, DriverError> {
    let mut members = Vec::with_capacity(ids.len());
    for some in std::mem::take(ids).chunks(AT_ONCE) {
        for record in all(some.iter().map(|id| store.inspect(id.clone(), now))).await {
            members.extend(record?.map(FlowMember::from));
        }
    }
    Ok(members)
}

/// How one member leads to another.
#[derive(Clone, Copy)]
enum Edge {
    /// The second waits for the first and reads its output.
    Input,
    /// The first expanded, and the second is the tail of its expansion.
    Expansion,
    /// The second runs if the first fails.
    Failure,
}

impl FlowMember {
    /// Whether the store completes it.
    #[must_use]
    pub const fn is_join(&self) -> bool {
        matches!(self.kind, JobKind::Join(_))
    }

    /// Whether it runs only if its parents fail.
    #[must_use]
    pub const fn is_failure_job(&self) -> bool {
        matches!(self.condition, Condition::ParentsFailed)
    }

    /// The title of the member in diagrams: its type, or the size of a join, and its label.
    #[must_use]
    pub fn title(&self) -> String {
        let name = match self.kind {
            JobKind::Work => self.job_type.as_str().to_owned(),
            JobKind::Join(_) => format!("all of {}", self.parents.len()),
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
            label: job.headers.get(header::LABEL).map(ToOwned::to_owned),
            id: job.id,
            job_type: job.job_type,
            kind: record.kind,
            queue: job.queue,
            state: record.state,
            parents: record.parents,
            condition: job.condition,
            on_failure: job.on_failure,
            expanded_into: record.expanded_into,
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
