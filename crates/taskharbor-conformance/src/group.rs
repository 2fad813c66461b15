//! The cases, one file per group of clauses.

pub(crate) mod enqueue;
