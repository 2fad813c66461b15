//! The layout of a graph: a layer for each member, a position for each box of a layer.
//!
//! It is pure. Members are numbers, edges are pairs of them. An edge always leads to a later layer, and a
//! position is given to one box of a layer only.

use std::collections::HashSet;

/// An edge from the first to the second.
pub(super) type Edge = (u32, u32);

/// How often the boxes are ordered anew, forwards and backwards.
const SWEEPS: usize = 8;

/// What the edges of one member are made of.
#[derive(Clone, Debug, Default)]
pub(super) struct Lineage {
    /// The members whose outputs it reads.
    pub(super) parents: Box<[u32]>,
    /// The member that produces its output in its place, if it expanded.
    pub(super) expanded_into: Option<u32>,
}

/// The edges of a flow, in the order in which its data moves.
///
/// A job that expanded leads to the first jobs of its expansion, and the last job of the expansion leads
/// to those that read the output.
pub(super) fn edges<'a>(members: impl Iterator<Item = &'a Lineage> + Clone) -> Vec<Edge> {
    let lineages: Vec<_> = members.collect();
    let mut expanded_from = vec![None; lineages.len()];
    for (from, lineage) in (0_u32..).zip(&lineages) {
        if let Some(into) = lineage.expanded_into {
            expanded_from[index(into)] = Some(from);
        }
    }
    let mut edges = Vec::new();
    for (child, lineage) in (0_u32..).zip(&lineages) {
        let mut parents: Vec<_> =
            lineage.parents.iter().map(|parent| producer(&lineages, *parent)).collect();
        parents.sort_unstable();
        parents.dedup();
        edges.extend(parents.into_iter().filter(|it| *it != child).map(|it| (it, child)));
        if let Some(tail) = lineage.expanded_into {
            let heads = heads(&lineages, &expanded_from, tail);
            edges.extend(heads.into_iter().filter(|it| *it != child).map(|it| (child, it)));
        }
    }
    edges
}

/// The member that produces the output of this one: itself, or the tail of its expansion.
fn producer(lineages: &[&Lineage], member: u32) -> u32 {
    let mut at = member;
    // An expansion of an expansion ends sometime; a store that says otherwise must not hang this.
    for _ in 0..lineages.len() {
        match lineages[index(at)].expanded_into {
            Some(into) => at = into,
            None => break,
        }
    }
    at
}

/// The jobs of an expansion that wait for no other, found backwards from its tail.
fn heads(lineages: &[&Lineage], expanded_from: &[Option<u32>], tail: u32) -> Vec<u32> {
    let (mut heads, mut met, mut next) = (Vec::new(), HashSet::from([tail]), vec![tail]);
    while let Some(at) = next.pop() {
        let parents = &lineages[index(at)].parents;
        if parents.is_empty() {
            heads.push(at);
        }
        for parent in parents {
            let mut parent = *parent;
            // What a job expanded into lies between that job and its dependants.
            while let Some(from) = expanded_from[index(parent)].filter(|_| parent != tail) {
                if !met.insert(parent) {
                    break;
                }
                parent = from;
            }
            if met.insert(parent) {
                next.push(parent);
            }
        }
    }
    heads.sort_unstable();
    heads
}

/// The layer of each member: one more than the greatest of those it comes from.
pub(super) fn layers(count: usize, edges: &[Edge]) -> Vec<u32> {
    let mut layers = vec![0_u32; count];
    let mut waits_for = vec![0_u32; count];
    // The edges by where they come from, in one list.
    let mut starts = vec![0_u32; count + 1];
    for (from, to) in edges {
        starts[index(*from) + 1] += 1;
        waits_for[index(*to)] += 1;
    }
    for at in 1..starts.len() {
        starts[at] += starts[at - 1];
    }
    let (mut filled, mut targets) = (starts.clone(), vec![0_u32; edges.len()]);
    for (from, to) in edges {
        let place = &mut filled[index(*from)];
        targets[index(*place)] = *to;
        *place += 1;
    }
    let is_first = |at: &u32| waits_for[index(*at)] == 0;
    let mut next: Vec<u32> = (0_u32..).take(count).filter(is_first).collect();
    while let Some(from) = next.pop() {
        let (start, end) = (starts[index(from)], starts[index(from) + 1]);
        for to in &targets[index(start)..index(end)] {
            let to_at = index(*to);
            layers[to_at] = layers[to_at].max(layers[index(from)] + 1);
            waits_for[to_at] -= 1;
            if waits_for[to_at] == 0 {
                next.push(*to);
            }
        }
    }
    layers
}

/// The position of each box in its layer. Boxes lie near those that they are connected with, which keeps
/// crossings few, and short layers in the middle of long ones.
pub(super) fn positions(layers: &[u32], edges: &[Edge]) -> Vec<u32> {
    let rows = layers.iter().max().map_or(0, |last| index(*last) + 1);
    let mut rows: Vec<Vec<u32>> = vec![Vec::new(); rows];
    for (at, layer) in (0_u32..).zip(layers) {
        rows[index(*layer)].push(at);
    }
    let mut before = vec![Vec::new(); layers.len()];
    let mut after = vec![Vec::new(); layers.len()];
    for (from, to) in edges {
        after[index(*from)].push(*to);
        before[index(*to)].push(*from);
    }
    let mut places = vec![0.0_f64; layers.len()];
    rows.iter().for_each(|row| place(row, &mut places));
    for _ in 0..SWEEPS {
        rows.iter_mut().for_each(|row| order(row, &before, &mut places));
        rows.iter_mut().rev().for_each(|row| order(row, &after, &mut places));
    }
    rows.iter_mut().for_each(|row| order(row, &before, &mut places));
    let longest = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut positions = vec![0; layers.len()];
    for row in &rows {
        let first = u32::try_from((longest - row.len()) / 2).unwrap_or(u32::MAX);
        for (position, at) in (first..).zip(row) {
            positions[index(*at)] = position;
        }
    }
    positions
}

/// Orders a layer by the mean of the places that its boxes are connected with.
fn order(row: &mut [u32], neighbours: &[Vec<u32>], places: &mut [f64]) {
    let mean = |at: u32| {
        let near = &neighbours[index(at)];
        let sum: f64 = near.iter().map(|it| places[index(*it)]).sum();
        // Without a neighbour it stays where it is.
        if near.is_empty() { places[index(at)] } else { sum / number(near.len()) }
    };
    let mut wanted: Vec<_> = row.iter().map(|at| (mean(*at), *at)).collect();
    wanted.sort_by(|one, other| one.0.total_cmp(&other.0));
    for (slot, (_, at)) in row.iter_mut().zip(wanted) {
        *slot = at;
    }
    place(row, places);
}

/// RequestPermits a layer around the middle.
fn place(row: &[u32], places: &mut [f64]) {
    let middle = (number(row.len()) - 1.0) / 2.0;
    for (position, at) in row.iter().enumerate() {
        places[index(*at)] = number(position) - middle;
    }
}

#[expect(clippy::cast_precision_loss, reason = "a graph has a few hundred boxes")]
const fn number(number: usize) -> f64 {
    number as f64
}

/// A member as an index.
pub(super) const fn index(member: u32) -> usize {
    member as usize
}

#[cfg(test)]
mod tests;
