//! Edges lead to later layers, and places in a layer are not shared.

use super::*;

fn lineage(parents: &[u32]) -> Lineage {
    Lineage { parents: parents.into(), expanded_into: None }
}

fn expanded(parents: &[u32], into: u32) -> Lineage {
    Lineage { parents: parents.into(), expanded_into: Some(into) }
}

fn edges_of(members: &[Lineage]) -> Vec<Edge> {
    let mut edges = edges(members.iter());
    edges.sort_unstable();
    edges
}

/// How many pairs of edges between the same two layers cross.
fn crossings(layers: &[u32], positions: &[u32], edges: &[Edge]) -> usize {
    let ends = |(from, to): &Edge| (positions[index(*from)], positions[index(*to)]);
    let pairs = edges.iter().enumerate().flat_map(|(at, one)| {
        edges[at + 1..].iter().filter(move |other| {
            let ((a, b), (c, d)) = (ends(one), ends(other));
            layers[index(one.0)] == layers[index(other.0)] && ((a < c && b > d) || (a > c && b < d))
        })
    });
    pairs.count()
}

/// A graph without cycles, from a seed: each member comes from a few of those before it.
fn random_graph(seed: u64, count: u32) -> Vec<Edge> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut edges = Vec::new();
    for to in 1..count {
        for _ in 0..random.u32(0..3) {
            edges.push((random.u32(0..to), to));
        }
    }
    edges.sort_unstable();
    edges.dedup();
    edges
}

#[test]
fn every_edge_leads_to_a_later_layer_and_a_position_belongs_to_one_box() {
    for seed in 0..100 {
        let count = 1 + u32::try_from(seed).unwrap() * 3;
        let edges = random_graph(seed, count);
        let layers = layers(index(count), &edges);
        for (from, to) in &edges {
            assert!(layers[index(*from)] < layers[index(*to)], "{seed}: {from} to {to}");
        }
        let positions = positions(&layers, &edges);
        let places: HashSet<_> = layers.iter().zip(&positions).collect();
        assert_eq!(places.len(), layers.len(), "{seed}");
    }
}

#[test]
fn layers_are_as_few_as_the_longest_path_needs() {
    // A diamond with a way around it.
    let edges = [(0, 1), (0, 2), (1, 3), (2, 3), (0, 3)];
    assert_eq!(layers(4, &edges), [0, 1, 1, 2]);
    assert_eq!(layers(3, &[]), [0, 0, 0]);
    assert_eq!(layers(0, &[]), [0; 0]);
}

#[test]
fn a_cycle_does_not_hang_the_layout() {
    let edges = [(0, 1), (1, 2), (2, 1)];
    let layers = layers(3, &edges);
    assert_eq!(layers[0], 0);
    assert_eq!(positions(&layers, &edges).len(), 3);
    let members = [expanded(&[], 1), expanded(&[], 0), lineage(&[0])];
    assert!(edges_of(&members).iter().all(|(_, to)| index(*to) < members.len()));
}

#[test]
fn parallel_chains_do_not_cross() {
    // Chains of three, stored in an order in which their members are far apart.
    let chains = 9;
    let mut edges = Vec::new();
    for chain in 0..chains {
        edges.push((chain, chains + (chain * 4) % chains));
        edges.push((chains + (chain * 4) % chains, 2 * chains + (chain * 7) % chains));
    }
    let layers = layers(27, &edges);
    let positions = positions(&layers, &edges);
    assert_eq!(crossings(&layers, &positions, &edges), 0);
}

#[test]
fn a_short_layer_lies_in_the_middle_of_a_long_one() {
    let edges: Vec<Edge> = (1..=5).flat_map(|at| [(0, at), (at, 6)]).collect();
    let layers = layers(7, &edges);
    let positions = positions(&layers, &edges);
    assert_eq!((positions[0], positions[6]), (2, 2));
}

#[test]
fn an_expansion_lies_between_its_job_and_what_reads_its_output() {
    // 0 expanded into 2 -> 3 -> 4; 1 waits for 0, which the store has changed to 4 or not yet.
    for parent in [0, 4] {
        let members =
            [expanded(&[], 4), lineage(&[parent]), lineage(&[]), lineage(&[2]), lineage(&[3])];
        assert_eq!(edges_of(&members), [(0, 2), (2, 3), (3, 4), (4, 1)]);
    }
}

#[test]
fn an_expansion_of_an_expansion_lies_within_it() {
    // 0 expanded into 2 -> 3; 2 expanded into 4 -> 5, and 3 waits for 5 since.
    let members = [
        expanded(&[], 3),
        lineage(&[0]),
        expanded(&[], 5),
        lineage(&[5]),
        lineage(&[]),
        lineage(&[4]),
    ];
    assert_eq!(edges_of(&members), [(0, 2), (2, 4), (3, 1), (4, 5), (5, 3)]);
    // The tail of an expansion expanded.
    let members = [expanded(&[], 2), lineage(&[0]), expanded(&[], 3), lineage(&[])];
    assert_eq!(edges_of(&members), [(0, 2), (2, 3), (3, 1)]);
}
