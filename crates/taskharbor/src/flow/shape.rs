//! [`Shape`]: how what a join has collected is read.
//!
//! A join's output is the list of its parents' outputs, and the store knows no more about it. How the
//! list is read belongs to whoever built the flow, and has to be known to whoever reads it: another
//! process, or the one that waits for a job which grew into the flow. So it is a part of the join's
//! id, which every reader has in hand; ADR 11 says what else was considered.

use taskharbor_core::{JobId, name::NameError};

/// How what a join has collected is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The outputs of its parents, in their order.
    List,
    /// The fates of its parents, in their order.
    Gather,
    /// No outputs, whatever it waited for.
    Empty,
    /// Nothing.
    Discard,
    /// The output of the first parent, or nothing without one.
    First,
}

impl Shape {
    /// What the id of such a join ends with.
    const fn mark(self) -> &'static str {
        match self {
            Self::List => "",
            Self::Gather => "~gather",
            Self::Empty => "~empty",
            Self::Discard => "~discard",
            Self::First => "~first",
        }
    }

    /// This id for a join of this shape.
    pub(crate) fn marked(self, id: &JobId) -> Result<JobId, NameError> {
        match self {
            Self::List => Ok(id.clone()),
            _ => JobId::new(format!("{id}{}", self.mark())),
        }
    }

    /// The shape of the join with this id.
    pub(crate) fn of(join: &JobId) -> Self {
        let marked = [Self::Gather, Self::Empty, Self::Discard, Self::First];
        let ends = |shape: &Self| join.as_str().ends_with(shape.mark());
        marked.into_iter().find(ends).unwrap_or(Self::List)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_id_tells_its_shape() {
        let id = JobId::new("0190").unwrap();
        for shape in [Shape::List, Shape::Gather, Shape::Empty, Shape::Discard, Shape::First] {
            assert_eq!(Shape::of(&shape.marked(&id).unwrap()), shape);
        }
    }
}
