//! Graphs of small flows are drawn member by member, those of large ones step by step.

use super::*;

/// Members of these types, which wait for these.
struct Flow {
    members: Vec<Member>,
    names: NameTable,
}

impl Flow {
    fn new() -> Self {
        Self { members: Vec::new(), names: NameTable::default() }
    }

    fn add(&mut self, job_type: &str, parents: &[u32], state: State) -> u32 {
        let at = u32::try_from(self.members.len()).unwrap();
        self.members.push(Member {
            id: format!("job-{at}").parse().unwrap(),
            job_type: self.names.name(job_type),
            label: None,
            is_join: false,
            is_read: true,
            state,
            attempts: 0,
            lineage: Lineage { parents: parents.into(), expanded_into: None },
        });
        at
    }

    fn label(&mut self, at: u32, label: &str) {
        self.members[index(at)].label = Some(self.names.name(label));
    }

    fn draw(&self) -> Graph {
        let graph = Graph::new(&self.members, |_| true, &self.names);
        let layer = |id: &str| graph.nodes.iter().find(|it| it.id == id).unwrap().layer;
        assert!(graph.nodes.len() <= MAX_NODES && graph.edges.len() <= MAX_EDGES);
        assert!(graph.edges.iter().all(|it| layer(&it.from) < layer(&it.to)));
        let places: HashSet<_> = graph.nodes.iter().map(|it| (it.layer, it.position)).collect();
        assert_eq!(places.len(), graph.nodes.len());
        let counted: usize = graph.nodes.iter().map(size).sum();
        assert_eq!(counted, self.members.len());
        graph
    }
}

use std::collections::HashSet;

fn size(node: &Node) -> usize {
    node.counts.as_ref().map_or(1, StateCounts::total)
}

#[test]
fn a_small_flow_is_drawn_member_by_member() {
    let mut flow = Flow::new();
    let first = flow.add("plan", &[], State::Done);
    let parts: Vec<_> = (0..3).map(|_| flow.add("part", &[first], State::Ready)).collect();
    flow.add("merge", &parts, State::Blocked);
    flow.label(parts[1], "north");
    let graph = flow.draw();
    assert!(!graph.grouped);
    assert_eq!((graph.nodes.len(), graph.edges.len()), (5, 6));
    let layers: Vec<_> = graph.nodes.iter().map(|it| it.layer).collect();
    assert_eq!(layers, [0, 1, 1, 1, 2]);
    assert_eq!(graph.nodes[2].label.as_deref(), Some("north"));
    assert_eq!(
        (graph.nodes[0].state, graph.nodes[4].state),
        (Some(State::Done), Some(State::Blocked))
    );
    assert!(graph.edges.iter().all(|it| it.count.is_none()));
}

#[test]
fn a_large_flow_is_grouped_by_step_with_counts() {
    let mut flow = Flow::new();
    let first = flow.add("plan", &[], State::Done);
    let states = [State::Done, State::Ready, State::Dlq];
    let parts: Vec<_> = (0..9_999).map(|at| flow.add("part", &[first], states[at % 3])).collect();
    flow.add("merge", &parts, State::Blocked);
    let graph = flow.draw();
    assert!(graph.grouped);
    assert_eq!((graph.nodes.len(), graph.edges.len()), (3, 2));
    let counts = graph.nodes[1].counts.as_ref().unwrap();
    assert_eq!((counts.done, counts.ready, counts.dlq), (3_333, 3_333, 3_333));
    assert_eq!(graph.edges[0].count, Some(9_999));
    // A group of one is the job itself.
    assert_eq!(graph.nodes[0].job.as_deref(), Some("job-0"));
}

#[test]
fn one_type_at_several_places_is_several_groups() {
    let mut flow = Flow::new();
    for _ in 0..200 {
        let mut parent = flow.add("step", &[], State::Done);
        for _ in 0..2 {
            parent = flow.add("step", &[parent], State::Blocked);
        }
    }
    let graph = flow.draw();
    let sizes: Vec<_> = graph.nodes.iter().map(|it| (it.layer, size(it))).collect();
    assert_eq!(sizes, [(0, 200), (1, 200), (2, 200)]);
    assert_eq!(graph.edges.iter().map(|it| it.count).collect::<Vec<_>>(), [Some(200), Some(200)]);
}

#[test]
fn labels_tell_groups_apart_unless_there_are_too_many() {
    let build = |labels: usize| {
        let mut flow = Flow::new();
        let first = flow.add("plan", &[], State::Done);
        for at in 0..1_000 {
            let part = flow.add("part", &[first], State::Ready);
            flow.label(part, &format!("label {}", at % labels));
        }
        flow.draw()
    };
    assert_eq!(build(4).nodes.len(), 5);
    let coarse = build(1_000);
    assert_eq!(coarse.nodes.len(), 2);
    assert_eq!(coarse.nodes[1].label, None);
}

#[test]
fn a_long_chain_is_put_together_by_layers() {
    let mut flow = Flow::new();
    let mut parent = flow.add("step", &[], State::Done);
    for _ in 1..10_000 {
        parent = flow.add("step", &[parent], State::Blocked);
    }
    let graph = flow.draw();
    assert_eq!(graph.nodes.len(), 40);
    assert_eq!(graph.edges.len(), 39);
}

#[test]
fn thousands_of_types_in_many_layers_are_still_few_boxes() {
    let mut flow = Flow::new();
    let mut parent = flow.add("first", &[], State::Done);
    for at in 0..5_000 {
        parent = flow.add(&format!("type-{at}"), &[parent], State::Blocked);
    }
    let graph = flow.draw();
    assert!(graph.nodes.len() <= 42, "{}", graph.nodes.len());
    assert_eq!(graph.nodes[1].r#type, "several types");
}

#[test]
fn dense_edges_are_drawn_between_groups() {
    let mut flow = Flow::new();
    let first: Vec<_> = (0..100).map(|_| flow.add("a", &[], State::Done)).collect();
    for _ in 0..100 {
        flow.add("b", &first, State::Ready);
    }
    let graph = flow.draw();
    assert!(graph.grouped);
    assert_eq!(graph.edges[0].count, Some(10_000));
}

#[test]
fn members_that_were_not_read_lie_beside_those_of_their_type() {
    let mut flow = Flow::new();
    let first = flow.add("plan", &[], State::Done);
    for at in 0..1_000 {
        let part = flow.add("part", &[first], State::Ready);
        if at >= 10 {
            let member = &mut flow.members[index(part)];
            (member.is_read, member.lineage) = (false, Lineage::default());
        }
    }
    let graph = flow.draw();
    assert_eq!((graph.read, graph.members), (11, 1_001));
    assert_eq!(graph.nodes.len(), 2);
    assert_eq!(size(&graph.nodes[1]), 1_000);
}

#[test]
fn members_that_are_gone_are_left_out() {
    let mut flow = Flow::new();
    let first = flow.add("plan", &[], State::Done);
    let second = flow.add("part", &[first], State::Done);
    flow.add("merge", &[second], State::Ready);
    let graph = Graph::new(&flow.members, |at| at != 1, &flow.names);
    assert_eq!((graph.members, graph.nodes.len(), graph.edges.len()), (2, 2, 0));
}
