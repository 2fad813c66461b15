//! The name of the schema that holds everything TaskHarbor keeps.
//!
//! It is the only identifier that reaches SQL as text, because identifiers cannot be bound. So it
//! is checked once, here, against a pattern that leaves nothing to escape, and quoted all the same.

use std::{fmt, str::FromStr, sync::Arc};

/// Why the name of a schema was refused.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaNameError {
    /// The name is empty.
    #[error("the schema name is empty: leave it out to use `{}`", SchemaName::DEFAULT)]
    Empty,
    /// The name is too long.
    #[error(
        "the schema name is {bytes} bytes long: shorten it to {} or fewer",
        SchemaName::MAX_BYTES
    )]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The name has an invalid character.
    #[error(
        "the schema name has a character that it cannot have at byte {at}: use a to z, 0 to 9 and \
         _, and no digit first"
    )]
    Character {
        /// Where the character starts.
        at: usize,
    },
    /// The name starts with `pg_`, which PostgreSQL reserves.
    #[error("schema names that start with pg_ belong to PostgreSQL: choose another")]
    Reserved,
}

taskharbor_core::debug_as_display!(SchemaNameError);

/// The name of a schema: `a` to `z`, `0` to `9` and `_`, no digit first, and not `pg_…`.
///
/// Defaults to `taskharbor`. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SchemaName(Arc<str>);

impl SchemaName {
    /// The greatest length, in bytes. It leaves room for what is put before and after it.
    pub const MAX_BYTES: usize = 48;
    const DEFAULT: &str = "taskharbor";

    /// Checks `text` and takes it as it is.
    ///
    /// # Errors
    ///
    /// [`SchemaNameError`] if it is not such a name.
    pub fn new(text: impl AsRef<str>) -> Result<Self, SchemaNameError> {
        let text = text.as_ref();
        let fits = |(at, byte): (usize, u8)| match byte {
            b'a'..=b'z' | b'_' => true,
            b'0'..=b'9' => at > 0,
            _ => false,
        };
        if text.is_empty() {
            Err(SchemaNameError::Empty)
        } else if text.len() > Self::MAX_BYTES {
            Err(SchemaNameError::TooLong { bytes: text.len() })
        } else if let Some(at) = text.bytes().enumerate().position(|byte| !fits(byte)) {
            Err(SchemaNameError::Character { at })
        } else if text.starts_with("pg_") {
            Err(SchemaNameError::Reserved)
        } else {
            Ok(Self(text.into()))
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as SQL, in double quotes.
    #[must_use]
    pub fn quoted(&self) -> String {
        format!("\"{}\"", self.0)
    }

    /// An SQL text in which every `{schema}` has become the quoted name.
    #[must_use]
    pub fn sql(&self, template: &str) -> String {
        template.replace("{schema}", &self.quoted())
    }

    /// The channel on which the schema's notifications are sent.
    #[must_use]
    pub fn channel(&self) -> String {
        format!("th_{}", self.0)
    }
}

impl Default for SchemaName {
    fn default() -> Self {
        Self(Self::DEFAULT.into())
    }
}

impl fmt::Display for SchemaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<str> for SchemaName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl FromStr for SchemaName {
    type Err = SchemaNameError;

    fn from_str(text: &str) -> Result<Self, SchemaNameError> {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_refused_with_their_reason() {
        for (text, reason) in [
            ("", SchemaNameError::Empty),
            (&"x".repeat(49), SchemaNameError::TooLong { bytes: 49 }),
            ("1st", SchemaNameError::Character { at: 0 }),
            ("Jobs", SchemaNameError::Character { at: 0 }),
            ("jo bs", SchemaNameError::Character { at: 2 }),
            ("jobs\"; drop table x --", SchemaNameError::Character { at: 4 }),
            ("jobs\0", SchemaNameError::Character { at: 4 }),
            ("jobé", SchemaNameError::Character { at: 3 }),
            ("pg_jobs", SchemaNameError::Reserved),
        ] {
            assert_eq!(SchemaName::new(text), Err(reason), "{text:?}");
        }
    }

    #[test]
    fn names_at_the_edges_are_taken_as_they_are() {
        for text in ["_", "a", "j0b_s", "pgjobs", &"x".repeat(48)] {
            assert_eq!(SchemaName::new(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn the_name_is_quoted_wherever_the_marker_stands() {
        let schema = SchemaName::new("jobs").unwrap();
        let sql = schema.sql("select {schema}.f() from {schema}.job");
        assert_eq!(sql, "select \"jobs\".f() from \"jobs\".job");
        assert_eq!(SchemaName::default().quoted(), "\"taskharbor\"");
    }

    #[test]
    fn the_longest_channel_is_an_identifier() {
        let channel = SchemaName::new("x".repeat(48)).unwrap().channel();
        assert!(channel.starts_with("th_x") && channel.len() <= 63, "{channel}");
    }
}
