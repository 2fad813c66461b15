//! A flow as a tree of text.
//!
//! Members are shown in the order in which they run. A group is a line and its members below it,
//! each with the steps that lead to it; a step for which several of them wait stands before the
//! group, not in it. A failure job is a line below the member that it watches.

use std::{collections::HashSet, fmt};

use taskharbor_core::{JobId, State, admin::StateCounts, job::JobKind};

use super::{FlowMember, FlowTree};

/// How many members of a group are shown one by one.
pub(super) const SHOWN: usize = 20;
/// How deep groups are shown in groups.
const DEPTH: usize = 50;
/// What stands before a failure job.
const ON_FAILURE: &str = "on failure: ";

/// Members that run one after another.
type Sequence = Vec<Item>;

enum Item {
    /// A member by itself.
    Member(usize),
    /// A join, its parents, their number, and how many more were not read.
    Group(usize, Vec<Sequence>, usize, usize),
    /// A failure job of the member before it, and what it expanded into.
    OnFailure(Sequence),
    /// Members that were not read.
    Cut,
}

/// Where a sequence begins that does not begin with its flow: behind this member, for which this many
/// ways lead on from here.
type Stop = Option<(usize, usize)>;

struct Layout<'a> {
    members: &'a [FlowMember],
    parents: Vec<Vec<usize>>,
    dependants: Vec<usize>,
    /// The failure jobs that watch each member.
    failure_jobs: Vec<Vec<usize>>,
    /// The tail of each member's expansion.
    expanded_into: Vec<Option<usize>>,
    /// How many of those it waits for were not read.
    left_out: Vec<usize>,
    is_shown: Vec<bool>,
}

impl<'a> Layout<'a> {
    fn new(tree: &'a FlowTree) -> Self {
        let positions = tree.positions();
        let at = |id: &JobId| positions.get(id).copied();
        let mut parents: Vec<Vec<usize>> = tree
            .members
            .iter()
            .map(|member| member.parents.iter().filter_map(at).collect())
            .collect();
        // A failure job is shown with the member that it watches; no sequence leads through it.
        let mut failure_jobs = vec![Vec::new(); parents.len()];
        for (job, _) in tree.members.iter().enumerate().filter(|(_, it)| it.is_failure_job()) {
            if let Some(watched) = std::mem::take(&mut parents[job]).pop() {
                failure_jobs[watched].push(job);
            }
        }
        let expanded_into = tree.members.iter().map(|it| it.expanded_into.as_ref().and_then(at));
        let expanded_into: Vec<Option<usize>> = expanded_into.collect();
        // An expanded job stands before the first jobs of its expansion. The store does not list
        // those: they are the members without parents on the ways to the expansion's tail. Members
        // stored last go first, so that an expansion inside another finds its own.
        for (expanded, tail) in expanded_into.iter().enumerate().rev() {
            let Some(tail) = *tail else { continue };
            for head in heads(&parents, tail) {
                if head != expanded && !leads_to(&parents, expanded, head) {
                    parents[head].push(expanded);
                }
            }
        }
        let mut dependants = vec![0; parents.len()];
        parents.iter().flatten().for_each(|&parent| dependants[parent] += 1);
        let (mut left_out, is_shown) = (vec![0; parents.len()], vec![false; parents.len()]);
        tree.left_out().into_iter().for_each(|(at, more)| left_out[at] = more);
        let members = &tree.members;
        Self { members, parents, dependants, failure_jobs, expanded_into, left_out, is_shown }
    }

    /// A failure job and what it expanded into.
    fn failure_job(&mut self, job: usize, depth: usize) -> Sequence {
        let mut last = job;
        while let Some(tail) = self.expanded_into[last].filter(|&tail| !self.is_shown[tail]) {
            last = tail;
        }
        self.sequence(last, depth).0
    }

    /// The members that lead to this one, itself last, as far as no other member needs them.
    fn sequence(&mut self, last: usize, depth: usize) -> (Sequence, Stop) {
        let mut backwards = Vec::new();
        let mut at = last;
        loop {
            if std::mem::replace(&mut self.is_shown[at], true) {
                break;
            }
            if depth < DEPTH {
                for job in self.failure_jobs[at].clone() {
                    let sequence = self.failure_job(job, depth + 1);
                    backwards.push(Item::OnFailure(sequence));
                }
            }
            let parents = self.parents[at].clone();
            let next = match (&parents[..], self.members[at].kind) {
                ([], JobKind::Join(_)) if self.left_out[at] > 0 => {
                    backwards.push(Item::Group(at, Vec::new(), 0, self.left_out[at]));
                    None
                }
                ([], _) => {
                    backwards.push(Item::Member(at));
                    backwards.extend((self.left_out[at] > 0).then_some(Item::Cut));
                    None
                }
                ([parent], JobKind::Work) => {
                    backwards.push(Item::Member(at));
                    Some((*parent, 1))
                }
                _ => {
                    let (group, stop) = self.group(at, &parents, depth);
                    backwards.push(group);
                    stop
                }
            };
            match next {
                None => break,
                Some((parent, ways)) if ways < self.dependants[parent] => {
                    backwards.reverse();
                    return (backwards, Some((parent, ways)));
                }
                Some((parent, _)) => at = parent,
            }
        }
        backwards.reverse();
        (backwards, None)
    }

    fn group(&mut self, join: usize, parents: &[usize], depth: usize) -> (Item, Stop) {
        let left_out = self.left_out[join];
        if depth == DEPTH {
            return (Item::Group(join, Vec::new(), parents.len(), left_out), None);
        }
        let mut branches = Vec::new();
        let mut common: Option<(usize, usize)> = None;
        let mut is_common = true;
        for &parent in parents {
            let (branch, stop) = if self.dependants[parent] > 1 {
                (Vec::new(), Some((parent, 1)))
            } else {
                self.sequence(parent, depth + 1)
            };
            if !branch.is_empty() {
                branches.push(branch);
            }
            match (stop, &mut common) {
                (None, _) => is_common = is_common && common.is_none(),
                (Some(stop), None) => common = Some(stop),
                (Some((at, ways)), Some((first, sum))) if at == *first => *sum += ways,
                (Some(_), Some(_)) => is_common = false,
            }
        }
        let group = Item::Group(join, branches, parents.len(), left_out);
        (group, common.filter(|_| is_common))
    }
}

/// The members without parents, on all ways to this one.
fn heads(parents: &[Vec<usize>], tail: usize) -> Vec<usize> {
    ancestors(parents, tail).into_iter().filter(|&at| parents[at].is_empty()).collect()
}

fn leads_to(parents: &[Vec<usize>], from: usize, to: usize) -> bool {
    ancestors(parents, from).contains(&to)
}

/// This member and all on the ways to it.
fn ancestors(parents: &[Vec<usize>], of: usize) -> Vec<usize> {
    let mut is_met = vec![false; parents.len()];
    let (mut met, mut next) = (vec![of], 0);
    is_met[of] = true;
    while let Some(&at) = met.get(next) {
        next += 1;
        for &parent in &parents[at] {
            if !std::mem::replace(&mut is_met[parent], true) {
                met.push(parent);
            }
        }
    }
    met
}

impl fmt::Display for FlowTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flow = &self.flow;
        write!(f, "flow {}", flow.id)?;
        if let Some(name) = &flow.name {
            write!(f, " {:?}", name.as_str())?;
        }
        write!(f, ": {} ({})", format!("{:?}", flow.state).to_lowercase(), counts(&flow.members))?;
        if let Some(finished_at) = flow.finished_at {
            write!(f, " in {:?}", finished_at.since(flow.created_at))?;
        }
        writeln!(f)?;
        let mut layout = Layout::new(self);
        let tail = self.members.iter().position(|member| member.id == flow.tail);
        let sequence = tail.map(|tail| layout.sequence(tail, 0).0).unwrap_or_default();
        write_sequence(f, self, &sequence, "")?;
        // Members for which the picture has no place: their dependants are in different groups.
        for at in 0..self.members.len() {
            if !layout.is_shown[at] {
                let prefix = if self.members[at].is_failure_job() { ON_FAILURE } else { "" };
                writeln!(f, "{prefix}{}", line(&self.members[at]))?;
            }
        }
        if !self.is_complete {
            // Those that a member waits for were told there.
            let positions = self.positions();
            let parents = self.members.iter().flat_map(|member| &member.parents);
            let told: HashSet<_> = parents.filter(|id| !positions.contains_key(id)).collect();
            match flow.members.total().saturating_sub(self.members.len() + told.len()) {
                0 => {}
                more => writeln!(f, "… and {more} more members")?,
            }
        }
        Ok(())
    }
}

fn write_sequence(
    f: &mut fmt::Formatter<'_>,
    tree: &FlowTree,
    sequence: &[Item],
    indent: &str,
) -> fmt::Result {
    for (at, item) in sequence.iter().enumerate() {
        let start = if at == 0 { "" } else { indent };
        match item {
            Item::Member(member) => writeln!(f, "{start}{}", line(&tree.members[*member]))?,
            Item::Cut => writeln!(f, "{start}…")?,
            Item::OnFailure(sequence) => {
                write!(f, "{start}{ON_FAILURE}")?;
                write_sequence(f, tree, sequence, &format!("{indent}  "))?;
            }
            Item::Group(join, branches, len, left_out) => {
                writeln!(f, "{start}{}", line(&tree.members[*join]))?;
                write_branches(f, tree, branches, (*len, *left_out), indent)?;
            }
        }
    }
    Ok(())
}

fn write_branches(
    f: &mut fmt::Formatter<'_>,
    tree: &FlowTree,
    branches: &[Sequence],
    (len, left_out): (usize, usize),
    indent: &str,
) -> fmt::Result {
    let shown = if branches.len() > SHOWN + 1 { SHOWN } else { branches.len() };
    for (at, branch) in branches[..shown].iter().enumerate() {
        let is_last = at + 1 == branches.len() && left_out == 0;
        write!(f, "{indent}{}", if is_last { "└─ " } else { "├─ " })?;
        let inner = format!("{indent}{}", if is_last { "   " } else { "│  " });
        write_sequence(f, tree, branch, &inner)?;
    }
    if left_out > 0 {
        let more = branches.len() - shown + left_out;
        writeln!(f, "{indent}└─ … and {more} more")?;
    } else if shown < branches.len() {
        let mut members = StateCounts::default();
        for branch in &branches[shown..] {
            let last = branch.iter().rev().find_map(|item| match item {
                Item::Member(at) | Item::Group(at, ..) => Some(*at),
                Item::OnFailure(_) | Item::Cut => None,
            });
            if let Some(at) = last {
                *members.get_mut(tree.members[at].state) += 1;
            }
        }
        writeln!(f, "{indent}└─ … and {} more ({})", len - shown, counts(&members))?;
    }
    Ok(())
}

/// One member in one line.
fn line(member: &FlowMember) -> String {
    let mut line = format!("{}  {}", member.title(), member.state);
    if let (Some(start), Some(end)) = (member.started_at, member.finished_at) {
        line.push_str(&format!(" in {:?}", end.since(start)));
    }
    if member.expanded_into.is_some() {
        line.push_str(", expanded");
    }
    if member.attempts > 0 {
        let times = if member.attempts == 1 { "once" } else { "times" };
        let count =
            if member.attempts == 1 { String::new() } else { format!("{} ", member.attempts) };
        line.push_str(&format!(", failed {count}{times}"));
    }
    if let Some(why) = member.reason.as_ref().or(member.last_error.as_ref()) {
        let first = why.as_str().lines().next().unwrap_or_default();
        line.push_str(&format!(": {first}"));
    } else if let Some(progress) = &member.progress {
        line.push_str(&format!(": {}", progress.as_str().lines().next().unwrap_or_default()));
    }
    line
}

/// How many members are in each state, without the states that no member is in.
fn counts(members: &StateCounts) -> String {
    let some = State::ALL.iter().filter(|state| members.get(**state) > 0);
    let texts: Vec<_> = some.map(|state| format!("{} {state}", members.get(*state))).collect();
    texts.join(", ")
}
