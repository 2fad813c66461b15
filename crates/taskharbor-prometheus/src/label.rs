//! Labels, and the bound on how many there are.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use crate::MAX_NAMES;

/// The labels of one series.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// The label of what has none of its own.
pub(crate) const OTHER: &str = "other";

pub(crate) fn labels<const N: usize>(pairs: [(&'static str, &str); N]) -> Labels {
    pairs.map(|(name, value)| (name, value.to_owned())).into()
}

/// Gives the first [`MAX_NAMES`] names labels of their own.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<BTreeSet<String>>);

impl Names {
    pub(crate) fn label(&self, name: &str) -> String {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !names.contains(name) {
            if names.len() >= MAX_NAMES {
                return OTHER.to_owned();
            }
            names.insert(name.to_owned());
        }
        name.to_owned()
    }
}
