//! [`Blob`]: payloads and outputs, which the contract never looks into.

use std::{fmt, ops::Deref, sync::Arc};

/// Opaque bytes, cheap to clone.
///
/// Its `Debug` shows only the length, so that users' data stays out of logs.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Blob(Arc<[u8]>);

impl Deref for Blob {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Blob {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Blob {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<&[u8]> for Blob {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl<const N: usize> From<&[u8; N]> for Blob {
    fn from(bytes: &[u8; N]) -> Self {
        Self(bytes.as_slice().into())
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blob({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_does_not_show_what_is_inside() {
        assert_eq!(format!("{:?}", Blob::from(b"secret")), "Blob(6 bytes)");
    }
}
