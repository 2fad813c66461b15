//! The house rules, held by ordinary tests.
//!
//! A rule is a function from a file to what is wrong with it. So each rule has two tests: one holds
//! the repository to it, the other feeds it a file that breaks it, because a check that has never
//! failed is not a check.

mod dependency;
mod example;
mod guide;
#[path = "../../src/guide_copy.rs"]
mod guide_copy;
mod link;
mod log;
mod manifest;
mod package;
mod snippet;
mod source;
mod sql;
mod tree;
mod vendor;
mod wording;
mod workspace;
