//! [`Headers`]: a small map that travels with a job beside its payload.

use std::{collections::BTreeMap, fmt, sync::Arc};

use crate::name::{self, NameError};

/// Small texts that travel with a job: trace context, codec, tenant.
///
/// Names starting with [`Headers::RESERVED`] belong to TaskHarbor. Cheap to clone. Its `Debug`
/// shows only the names, because values may be secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(Option<Arc<BTreeMap<String, String>>>);

/// Why a header was refused.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Invalid header name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The name starts with the prefix that is kept for TaskHarbor itself.
    #[error("header name {0:?} is reserved: do not start names with \"th-\"")]
    Reserved(String),
    /// The value holds a NUL, which not every store can keep.
    #[error("the value of header {0:?} has a NUL character: remove it")]
    Nul(String),
    /// The job would carry more headers than allowed.
    #[error("more than {} headers: put the rest into the payload", Headers::MAX_ENTRIES)]
    TooMany,
    /// The headers together would be larger than allowed.
    #[error("more than {} bytes of headers: put large values into the payload", Headers::MAX_BYTES)]
    TooLarge,
}

crate::debug_as_display!(HeaderError);

impl Headers {
    /// The prefix of the names that TaskHarbor keeps for itself.
    pub const RESERVED: &str = "th-";
    /// The greatest number of headers on one job.
    /// Headers whose names start with [`Headers::RESERVED`] do not count.
    pub const MAX_ENTRIES: usize = 32;
    /// The greatest size of all names and values of one job together.
    pub const MAX_BYTES: usize = 8 * 1024;

    /// Creates an empty map.
    #[must_use]
    pub const fn new() -> Self {
        Self(None)
    }

    /// Adds or replaces a header.
    ///
    /// # Errors
    ///
    /// [`HeaderError`] if the name or value is refused or the limits are passed.
    pub fn with(self, name: &str, value: &str) -> Result<Self, HeaderError> {
        if name.starts_with(Self::RESERVED) {
            return Err(HeaderError::Reserved(name.to_owned()));
        }
        self.with_any(name, value)
    }

    /// Adds or replaces a header whose name starts with [`Headers::RESERVED`], for the crates of
    /// TaskHarbor and for drivers that read stored headers back.
    ///
    /// # Errors
    ///
    /// [`HeaderError`] if the name or value is refused or the limits are passed.
    pub fn with_any(mut self, name: &str, value: &str) -> Result<Self, HeaderError> {
        name::check("header name", name, 255)?;
        if value.contains('\0') {
            return Err(HeaderError::Nul(name.to_owned()));
        }
        let map = Arc::make_mut(self.0.get_or_insert_default());
        map.insert(name.to_owned(), value.to_owned());
        let given = self.iter().filter(|(name, _)| !name.starts_with(Self::RESERVED));
        if given.count() > Self::MAX_ENTRIES {
            return Err(HeaderError::TooMany);
        }
        if self.bytes() > Self::MAX_BYTES {
            return Err(HeaderError::TooLarge);
        }
        Ok(self)
    }

    /// The value of a header.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.as_ref()?.get(name).map(String::as_str)
    }

    /// All headers, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .flat_map(|map| map.iter())
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// How many headers there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |map| map.len())
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The size of all names and values together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.len()).sum()
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_reserved_names_hold() {
        let headers = Headers::new().with("tenant", "acme").unwrap();
        assert_eq!(headers.get("tenant"), Some("acme"));
        assert_eq!(format!("{headers:?}"), "{\"tenant\"}");
        assert!(matches!(headers.clone().with("th-codec", "x"), Err(HeaderError::Reserved(_))));
        assert!(headers.clone().with_any("th-codec", "x").is_ok());
        assert!(matches!(headers.clone().with("a", "\0"), Err(HeaderError::Nul(_))));
        assert!(matches!(headers.clone().with(" ", "x"), Err(HeaderError::Name(_))));
        let large = "x".repeat(Headers::MAX_BYTES);
        assert!(matches!(headers.clone().with("a", &large), Err(HeaderError::TooLarge)));
        let full = (0..Headers::MAX_ENTRIES)
            .try_fold(Headers::new(), |all, n| all.with(&n.to_string(), ""))
            .unwrap();
        assert!(full.clone().with("0", "replaced").is_ok());
        assert!(matches!(full.with("one more", ""), Err(HeaderError::TooMany)));
    }
}
