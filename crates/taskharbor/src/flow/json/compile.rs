//! Translates nodes that name their parents to a plan.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use taskharbor_core::flow::parents_first;

use super::{DocumentError, Fault, at, parse};
use crate::flow::plan::Plan;

struct Node {
    id: String,
    plan: Plan,
    parents: Vec<usize>,
}

pub(super) fn nodes(value: &Value) -> Result<Plan, DocumentError> {
    let Value::Array(values) = value else {
        return Err(at("$.nodes", Fault::Expected("a list of nodes")));
    };
    if values.is_empty() {
        return Err(at("$.nodes", Fault::NoNodes));
    }
    let positions = positions(values)?;
    let nodes = values.iter().enumerate().map(|(n, value)| node(value, n, &positions));
    let nodes: Vec<Node> = nodes.collect::<Result<_, _>>()?;
    let parents: Vec<Vec<usize>> = nodes.iter().map(|node| node.parents.clone()).collect();
    let order = parents_first(&parents);
    let order = order.map_err(|n| at(&place(n), Fault::Cycle(nodes[n].id.clone())))?;
    Ok(Plan::graph(nodes.into_iter().map(|node| (node.plan, node.parents)).collect(), &order))
}

fn place(node: usize) -> String {
    format!("$.nodes[{node}]")
}

fn positions(values: &[Value]) -> Result<HashMap<String, usize>, DocumentError> {
    let mut positions = HashMap::with_capacity(values.len());
    for (n, value) in values.iter().enumerate() {
        let fields = parse::object(value, &place(n))?;
        let id = parse::text(fields, &place(n), "id")?;
        let id = id.ok_or_else(|| at(&place(n), Fault::Missing("id")))?;
        if positions.insert(id.clone(), n).is_some() {
            return Err(at(&parse::field(&place(n), "id"), Fault::DuplicateNode(id)));
        }
    }
    Ok(positions)
}

fn node(
    value: &Value,
    n: usize,
    positions: &HashMap<String, usize>,
) -> Result<Node, DocumentError> {
    let fields = parse::object(value, &place(n))?;
    let plan = parse::job(fields, &place(n), &["id", "after"])?;
    let id = parse::text(fields, &place(n), "id")?.unwrap_or_default();
    let after_place = parse::field(&place(n), "after");
    let after = match parse::given(fields, "after") {
        None => &[],
        Some(Value::Array(after)) => &after[..],
        Some(_) => return Err(at(&after_place, Fault::Expected("a list of ids"))),
    };
    let mut parents = Vec::with_capacity(after.len());
    let mut met = HashSet::new();
    for (index, parent) in after.iter().enumerate() {
        let place = format!("{after_place}[{index}]");
        let Value::String(parent) = parent else {
            return Err(at(&place, Fault::Expected("the id of a node")));
        };
        let Some(&position) = positions.get(parent) else {
            return Err(at(&place, Fault::UnknownNode(parent.clone())));
        };
        if !met.insert(position) {
            return Err(at(&place, Fault::DuplicateParent(parent.clone())));
        }
        parents.push(position);
    }
    Ok(Node { id, plan, parents })
}
