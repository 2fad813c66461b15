//! [`Graph`]: the picture of a flow, with every box in its place.
//!
//! A small flow is drawn member by member. The members of a large one are grouped by step: those of one
//! type and label in one layer. If that is still too much, coarser groups are taken, so a picture never
//! has more than [`MAX_NODES`] boxes, however large the flow is.

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
};

use schemars::JsonSchema;
use serde::Serialize;
use taskharbor::{State, StateCounts};

use super::{
    layout::{self, Edge, Lineage, index},
    name_table::{Name, NameTable},
};

/// The most boxes of a picture.
pub(super) const MAX_NODES: usize = 300;
/// The most lines of a picture.
const MAX_EDGES: usize = 2_000;
/// The layers of a picture in which layers are put together.
const MAX_LAYERS: u32 = 40;

/// A flow as a graph: its members, or groups of them, in layers from left to right.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "FlowGraph")]
pub(super) struct Graph {
    /// Whether a node stands for several members.
    grouped: bool,
    /// Of how many members it is known what they wait for. The others lie beside those of their type.
    read: usize,
    /// How many members are drawn.
    members: usize,
    /// The boxes.
    nodes: Vec<Node>,
    /// The lines. Each leads to a later layer.
    edges: Vec<Line>,
}

/// A member of a flow, or a group of members of one type in one layer.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "FlowGraphNode")]
struct Node {
    /// Tells nodes of this graph apart.
    id: String,
    /// The job, if the node is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    /// The type of the job or jobs.
    r#type: String,
    /// The label of the job or jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    /// From 0, from left to right.
    layer: u32,
    /// Its position in the layer, from top to bottom. No other node of the layer has it.
    position: u32,
    /// Where the job stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<State>,
    /// How many executions of the job have failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<u32>,
    /// How many jobs of the group are in each state.
    #[serde(skip_serializing_if = "Option::is_none")]
    counts: Option<StateCounts>,
}

/// A line from one node to another.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "FlowGraphEdge")]
struct Line {
    from: String,
    to: String,
    /// For how many edges between jobs it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<usize>,
}

/// A member of a flow, as pictures need it.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) id: taskharbor::JobId,
    pub(super) job_type: Name,
    pub(super) label: Option<Name>,
    pub(super) is_join: bool,
    /// Whether it is known what it waits for.
    pub(super) is_read: bool,
    pub(super) state: State,
    pub(super) attempts: u32,
    pub(super) lineage: Lineage,
}

impl Graph {
    /// The picture of the members for which `is_drawn` holds.
    pub(super) fn new(
        members: &[Member],
        is_drawn: impl Fn(usize) -> bool,
        names: &NameTable,
    ) -> Self {
        let mut edges = layout::edges(members.iter().map(|it| &it.lineage));
        edges.retain(|(from, to)| is_drawn(index(*from)) && is_drawn(index(*to)));
        let drawn: Vec<usize> = (0..members.len()).filter(|at| is_drawn(*at)).collect();
        let mut steps = layout::layers(members.len(), &edges);
        let mut labels: Vec<_> = members.iter().map(|it| it.label).collect();
        let read = drawn.iter().filter(|at| members[**at].is_read).count();
        if read < drawn.len() {
            guess(members, &drawn, &mut steps, &mut labels);
        }
        edges.retain(|(from, to)| steps[index(*from)] < steps[index(*to)]);
        let picture = Picture { members, names, drawn: &drawn, labels: &labels, edges: &edges };
        let one_by_one = (drawn.len() <= MAX_NODES && edges.len() <= MAX_EDGES)
            .then(|| picture.grouped(|at| (at, steps[at])))
            .flatten();
        let grouped = one_by_one.is_none();
        let groups = one_by_one
            .or_else(|| picture.grouped(|at| ((members[at].job_type, labels[at]), steps[at])))
            .or_else(|| picture.grouped(|at| (members[at].job_type, steps[at])));
        let groups = groups.unwrap_or_else(|| {
            let last = drawn.iter().map(|at| steps[*at]).max().unwrap_or(0);
            let width = last / MAX_LAYERS + 1;
            let by_type = picture.grouped(|at| (members[at].job_type, steps[at] / width));
            let by_layer = || picture.grouped(|at| ((), steps[at] / width));
            by_type.or_else(by_layer).unwrap_or_default()
        });
        let (nodes, edges) = picture.draw(&groups);
        Self { grouped, read, members: drawn.len(), nodes, edges }
    }
}

/// Puts members of which it is not known what they wait for beside those of their type.
fn guess(members: &[Member], drawn: &[usize], steps: &mut [u32], labels: &mut [Option<Name>]) {
    let mut seen: HashMap<Name, HashMap<(u32, Option<Name>), usize>> = HashMap::new();
    for at in drawn.iter().copied().filter(|at| members[*at].is_read) {
        let of_type = seen.entry(members[at].job_type).or_default();
        *of_type.entry((steps[at], labels[at])).or_default() += 1;
    }
    let usual: HashMap<Name, (u32, Option<Name>)> = seen
        .into_iter()
        .filter_map(|(job_type, seen)| {
            let most = seen.into_iter().max_by_key(|(place, count)| (*count, *place));
            most.map(|(place, _)| (job_type, place))
        })
        .collect();
    for at in drawn.iter().copied().filter(|at| !members[*at].is_read) {
        if let Some(place) = usual.get(&members[at].job_type) {
            (steps[at], labels[at]) = *place;
        }
    }
}

/// What a picture is drawn from.
struct Picture<'a> {
    members: &'a [Member],
    names: &'a NameTable,
    drawn: &'a [usize],
    labels: &'a [Option<Name>],
    edges: &'a [Edge],
}

/// The members of one box.
struct Group {
    first: usize,
    size: usize,
    layer: u32,
    counts: StateCounts,
    /// The type of its members; `None` if they have several.
    job_type: Option<Name>,
    /// The label of its members; `None` if they have none or several.
    label: Option<Name>,
}

/// The boxes and lines of a picture.
#[derive(Default)]
struct Groups {
    groups: Vec<Group>,
    edges: HashMap<Edge, usize>,
}

impl Picture<'_> {
    /// The members grouped by a key, the second part of which is the layer; `None` if there are too many
    /// groups or lines for a picture.
    fn grouped<K: Eq + Hash>(&self, key: impl Fn(usize) -> (K, u32)) -> Option<Groups> {
        let mut groups: Vec<Group> = Vec::new();
        let mut found: HashMap<(K, u32), u32> = HashMap::new();
        let mut group_of = vec![u32::MAX; self.members.len()];
        for at in self.drawn.iter().copied() {
            let key = key(at);
            let layer = key.1;
            let group = *found.entry(key).or_insert_with(|| {
                let (job_type, label) = (Some(self.members[at].job_type), self.labels[at]);
                let counts = StateCounts::default();
                groups.push(Group { first: at, size: 0, layer, counts, job_type, label });
                u32::try_from(groups.len() - 1).unwrap_or(u32::MAX)
            });
            if groups.len() > MAX_NODES {
                return None;
            }
            group_of[at] = group;
            let group = &mut groups[index(group)];
            group.size += 1;
            *group.counts.get_mut(self.members[at].state) += 1;
            group.job_type = group.job_type.filter(|it| *it == self.members[at].job_type);
            group.label = group.label.filter(|it| Some(*it) == self.labels[at]);
        }
        let mut edges: HashMap<Edge, usize> = HashMap::new();
        for (from, to) in self.edges {
            let (from, to) = (group_of[index(*from)], group_of[index(*to)]);
            // Layers that are put together have edges among themselves.
            if groups[index(from)].layer < groups[index(to)].layer {
                *edges.entry((from, to)).or_default() += 1;
            }
        }
        (edges.len() <= MAX_EDGES).then_some(Groups { groups, edges })
    }

    fn draw(&self, found: &Groups) -> (Vec<Node>, Vec<Line>) {
        let layers = dense(found.groups.iter().map(|group| group.layer));
        let mut edges: Vec<_> = found.edges.iter().map(|(edge, count)| (*edge, *count)).collect();
        edges.sort_unstable();
        let pairs: Vec<Edge> = edges.iter().map(|(edge, _)| *edge).collect();
        let positions = layout::positions(&layers, &pairs);
        let boxes = found.groups.iter().zip(layers.iter().zip(&positions)).enumerate();
        let nodes: Vec<_> = boxes
            .map(|(at, (group, (layer, position)))| {
                let node =
                    if group.size == 1 { self.single(group) } else { self.several(at, group) };
                Node { layer: *layer, position: *position, ..node }
            })
            .collect();
        let lines = edges.into_iter().map(|((from, to), count)| Line {
            from: nodes[index(from)].id.clone(),
            to: nodes[index(to)].id.clone(),
            count: (count > 1).then_some(count),
        });
        let lines = lines.collect();
        (nodes, lines)
    }

    fn single(&self, group: &Group) -> Node {
        let member = &self.members[group.first];
        let all_of = || member.is_join.then(|| format!("all of {}", member.lineage.parents.len()));
        Node {
            id: member.id.to_string(),
            job: Some(member.id.to_string()),
            r#type: self.names.text(member.job_type).to_owned(),
            label: group.label.map(|it| self.names.text(it).to_owned()).or_else(all_of),
            layer: 0,
            position: 0,
            state: Some(member.state),
            attempts: Some(member.attempts),
            counts: None,
        }
    }

    fn several(&self, at: usize, group: &Group) -> Node {
        let text = |name| self.names.text(name).to_owned();
        Node {
            id: format!("group-{at}"),
            job: None,
            r#type: group.job_type.map_or_else(|| "several types".to_owned(), text),
            label: group.label.map(text),
            layer: 0,
            position: 0,
            state: None,
            attempts: None,
            counts: Some(group.counts),
        }
    }
}

/// The layers with numbers from 0 without a gap.
fn dense(layers: impl Iterator<Item = u32> + Clone) -> Vec<u32> {
    let used: BTreeSet<u32> = layers.clone().collect();
    let numbers: HashMap<u32, u32> = used.into_iter().zip(0..).collect();
    layers.map(|layer| numbers[&layer]).collect()
}

#[cfg(test)]
mod tests;
