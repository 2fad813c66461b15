//! [`NameTable`]: the types and labels of the members of a flow, each kept once.
//!
//! A flow has up to 200,000 members and few types. A number in place of a text keeps the members small and
//! makes grouping them cheap.

use std::{collections::HashMap, sync::Arc};

/// A text of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Name(u32);

/// Texts and their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct NameTable {
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, Name>,
}

impl NameTable {
    /// The number of a text.
    pub(super) fn name(&mut self, text: &str) -> Name {
        if let Some(name) = self.numbers.get(text) {
            return *name;
        }
        let name = Name(u32::try_from(self.texts.len()).unwrap_or(u32::MAX));
        let text: Arc<str> = text.into();
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, name);
        name
    }

    /// The text of a number.
    pub(super) fn text(&self, name: Name) -> &str {
        self.texts.get(name.0 as usize).map_or("", |text| text)
    }
}
