//! [`Text`]: free text made storable before any driver sees it.
//!
//! An error message may hold anything, and a message that a store refuses would make the failure
//! itself impossible to record: the job would run for ever. So text is repaired, never refused.

use std::{fmt, sync::Arc};

/// Free text that every store can keep: no NUL, at most [`Text::MAX_BYTES`] long.
///
/// Used for error messages, reasons and progress. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Text(Arc<str>);

impl Text {
    /// The greatest length, in bytes; longer text is cut at the last character that fits.
    pub const MAX_BYTES: usize = 8 * 1024;

    /// Makes `text` storable: NUL becomes U+FFFD, and a long text is cut.
    #[must_use]
    pub fn new(text: impl AsRef<str>) -> Self {
        // JOB-4
        let text = cut(text.as_ref());
        if !text.contains('\0') {
            return Self(Arc::from(text));
        }
        Self(Arc::from(cut(&text.replace('\0', "\u{FFFD}"))))
    }

    /// As [`Text::new`], for bytes of any encoding: invalid UTF-8 becomes U+FFFD.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        // No more than this can survive the cut, so a huge message is not converted in vain.
        let head = &bytes[..bytes.len().min(Self::MAX_BYTES + 4)];
        Self::new(String::from_utf8_lossy(head))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(Text::MAX_BYTES)]
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_message_becomes_storable() {
        assert_eq!(Text::new("plain").as_str(), "plain");
        assert_eq!(Text::new("a\0b").as_str(), "a\u{FFFD}b");
        assert_eq!(Text::from_bytes(b"a\xffb").as_str(), "a\u{FFFD}b");
        for huge in [
            Text::new("é".repeat(5 * 1024 * 1024)),
            Text::new("\0".repeat(5 * 1024 * 1024)),
            Text::from_bytes(&vec![0xff; 5 * 1024 * 1024]),
        ] {
            assert!(huge.as_str().len() <= Text::MAX_BYTES);
            assert!(huge.as_str().len() > Text::MAX_BYTES - 4);
        }
    }
}
