//! [`TokenFile`]: the tokens that a server takes, in a file.
//!
//! The file contains only the SHA-256 of each token. A token has 256 random bits, so it cannot be guessed or
//! found from the file. A change takes effect at the next request.

mod owner;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::access::{Access, Role};

/// What every token begins with.
const PREFIX: &str = "th_";
/// A larger file is not a token file.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// A token as the file has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct StoredToken {
    /// Who has it. The action log shows this name.
    pub name: String,
    /// What its owner may do.
    pub role: Role,
    /// May see payloads and outputs.
    #[serde(default)]
    pub payloads: bool,
    /// May use the worker face.
    #[serde(default)]
    pub workers: bool,
    /// The SHA-256 of the token, in hexadecimal digits.
    pub sha256: String,
    /// When it was made.
    pub created_at: String,
}

/// Tokens cannot be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenFileError {
    /// The file cannot be read or written.
    #[error("cannot use the token file {}: {cause}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The content of the file is invalid.
    #[error("invalid token file {}: {problem}", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Other users of the machine can write to the file.
    #[error("other users can write to the token file {path}: run chmod 600 {path}", path = .0.display())]
    Writable(PathBuf),
    /// Another user of the machine owns the file, and can change it.
    #[error(
        "the file of tokens {path} belongs to another user: run chown $USER {path}, or chown root {path}",
        path = .0.display()
    )]
    Owner(PathBuf),
    /// Another command is changing the file.
    #[error(
        "another command is changing the token file: try again, or remove {} if none is running",
        .0.display()
    )]
    Busy(PathBuf),
    /// Invalid name of a token.
    #[error("invalid token name {0:?}: use 1 to 100 visible characters")]
    Name(String),
    /// A token of this name already exists.
    #[error("a token named {0:?} already exists: remove it first, or choose another name")]
    Duplicate(String),
    /// The operating system could not give random bytes.
    #[error("cannot get random bytes from the operating system: {0}")]
    Random(getrandom::Error),
}

/// The tokens that a server takes.
#[derive(Clone, Debug)]
pub struct TokenFile {
    path: PathBuf,
    read: Arc<Mutex<Option<Read>>>,
}

/// The content of the file when it was read, and the stamp by which a change is noticed.
#[derive(Debug)]
struct Read {
    stamp: Stamp,
    tokens: Arc<[StoredToken]>,
}

type Stamp = (Option<SystemTime>, u64, u64);

/// The content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    tokens: Vec<StoredToken>,
}

impl TokenFile {
    /// The tokens in this file, which need not be there yet.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), read: Arc::default() }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The tokens that a server takes, in the order in which they were added.
    ///
    /// # Errors
    ///
    /// [`TokenFileError`] if the file is there and cannot be read, if others can write to it, or if its owner
    /// is neither root nor the user that runs this program.
    pub fn tokens(&self) -> Result<Arc<[StoredToken]>, TokenFileError> {
        if self.metadata()?.is_some_and(|metadata| !owner::is_trusted(&metadata)) {
            return Err(TokenFileError::Owner(self.path.clone()));
        }
        self.list()
    }

    /// As [`TokenFile::tokens`], for commands, and for a file of any user: root may keep the tokens of
    /// servers that other users run.
    ///
    /// # Errors
    ///
    /// [`TokenFileError`] if the file is there and cannot be read, or if others can write to it.
    pub fn list(&self) -> Result<Arc<[StoredToken]>, TokenFileError> {
        let Some(metadata) = self.metadata()? else { return Ok(Arc::default()) };
        // Its mode can change without its content.
        if owner::is_writable_by_others(&metadata) {
            return Err(TokenFileError::Writable(self.path.clone()));
        }
        let stamp = (metadata.modified().ok(), metadata.len(), inode(&metadata));
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = read.as_ref().filter(|read| read.stamp == stamp) {
            return Ok(Arc::clone(&read.tokens));
        }
        *read = None;
        let wrong = |problem| TokenFileError::Content { path: self.path.clone(), problem };
        if metadata.len() > MAX_FILE_BYTES {
            return Err(wrong(format!("it is larger than {MAX_FILE_BYTES} bytes")));
        }
        let text = fs::read(&self.path).map_err(|cause| self.failed(cause))?;
        let content: Content =
            serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        if let Some(bad) = content.tokens.iter().find(|token| digest_of(&token.sha256).is_none()) {
            return Err(wrong(format!("the token {:?} has no SHA-256 of 64 digits", bad.name)));
        }
        let tokens: Arc<[StoredToken]> = content.tokens.into();
        *read = Some(Read { stamp, tokens: Arc::clone(&tokens) });
        Ok(tokens)
    }

    /// Adds a token with this access. Returns the token, which is stored nowhere.
    ///
    /// # Errors
    ///
    /// [`TokenFileError`] if the name is invalid or taken, or the file cannot be changed.
    pub fn add(&self, access: &Access, created_at: String) -> Result<String, TokenFileError> {
        let name = access.name().to_owned();
        let is_plain = name.chars().count() <= 100 && !name.chars().any(char::is_control);
        if name.trim().is_empty() || !is_plain {
            return Err(TokenFileError::Name(name));
        }
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(TokenFileError::Random)?;
        let token = format!("{PREFIX}{}", hex(&random));
        let stored = StoredToken {
            name: name.clone(),
            role: access.role,
            payloads: access.payloads,
            workers: access.workers,
            sha256: hex(&digest(&token)),
            created_at,
        };
        self.change(|tokens| {
            if tokens.iter().any(|token| token.name == name) {
                return Err(TokenFileError::Duplicate(name));
            }
            tokens.push(stored);
            Ok(())
        })?;
        Ok(token)
    }

    /// Removes the token of this name; returns whether it existed. Sessions that began with it end.
    ///
    /// # Errors
    ///
    /// [`TokenFileError`] if the file cannot be changed.
    pub fn remove(&self, name: &str) -> Result<bool, TokenFileError> {
        if self.list()?.iter().all(|token| token.name != name) {
            return Ok(false);
        }
        let mut removed = false;
        self.change(|tokens| {
            let before = tokens.len();
            tokens.retain(|token| token.name != name);
            removed = tokens.len() < before;
            Ok(())
        })?;
        Ok(removed)
    }

    /// The stored token that this one is, compared in constant time with all of them.
    pub(crate) fn find(&self, token: &str) -> Result<Option<StoredToken>, TokenFileError> {
        let tokens = self.tokens()?;
        if !token.starts_with(PREFIX) {
            return Ok(None);
        }
        let given = digest(token);
        let mut found = None;
        for stored in tokens.iter() {
            let is_it = digest_of(&stored.sha256).is_some_and(|digest| is_same(&digest, &given));
            if is_it {
                found = Some(stored.clone());
            }
        }
        Ok(found)
    }

    /// A new file with the change takes the place of the old one, so readers see one or the other. The
    /// new file is also the lock: only one command can create it. A link stays, and its target is changed.
    fn change(
        &self,
        change: impl FnOnce(&mut Vec<StoredToken>) -> Result<(), TokenFileError>,
    ) -> Result<(), TokenFileError> {
        let path = self.target()?;
        let mut name = path.clone().into_os_string();
        name.push(".new");
        let new = PathBuf::from(name);
        let mut file = match create_private(&new) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(TokenFileError::Busy(new));
            }
            Err(cause) => return Err(TokenFileError::File { path: new, cause }),
        };
        let changed = (|| {
            let mut tokens = self.list()?.to_vec();
            change(&mut tokens)?;
            let mut text = serde_json::to_vec_pretty(&Content { tokens })
                .map_err(|error| self.failed(error.into()))?;
            text.push(b'\n');
            io::Write::write_all(&mut file, &text).map_err(|cause| self.failed(cause))?;
            if let Some(old) = self.metadata()? {
                owner::keep(&old, &file).map_err(|cause| self.failed(cause))?;
            }
            file.sync_all().map_err(|cause| self.failed(cause))?;
            fs::rename(&new, &path).map_err(|cause| self.failed(cause))
        })();
        if changed.is_err() {
            // A leftover file would block every later change.
            let _ = fs::remove_file(&new);
        }
        changed
    }

    /// The file itself, where the path is a link to it.
    fn target(&self) -> Result<PathBuf, TokenFileError> {
        match fs::symlink_metadata(&self.path) {
            Ok(_) => fs::canonicalize(&self.path).map_err(|cause| self.failed(cause)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(self.path.clone()),
            Err(cause) => Err(self.failed(cause)),
        }
    }

    /// What the system says of the file; `None` if it is not there.
    fn metadata(&self) -> Result<Option<fs::Metadata>, TokenFileError> {
        match fs::metadata(&self.path) {
            Ok(metadata) => Ok(Some(metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(self.failed(cause)),
        }
    }

    fn failed(&self, cause: io::Error) -> TokenFileError {
        TokenFileError::File { path: self.path.clone(), cause }
    }
}

impl StoredToken {
    /// The access of its owner.
    pub(crate) fn access(&self) -> Access {
        let (payloads, workers) = (self.payloads, self.workers);
        Access { payloads, workers, ..Access::new(self.name.clone(), self.role) }
    }
}

/// The SHA-256 of a text or a file.
pub(crate) fn digest(bytes: impl AsRef<[u8]>) -> [u8; 32] {
    Sha256::digest(bytes.as_ref()).into()
}

/// Compares every byte, wherever the first difference is.
fn is_same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let difference = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(difference) == 0
}

fn digest_of(hex: &str) -> Option<[u8; 32]> {
    if hex.len() != 64 || !hex.bytes().all(|it| it.is_ascii_hexdigit()) {
        return None;
    }
    let mut digest = [0; 32];
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(digest)
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digit = |at: u8| DIGITS[usize::from(at % 16)];
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Creates a file that only its owner can read, if it is not there.
pub(crate) fn create_private(path: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(unix)]
fn inode(metadata: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn inode(_: &fs::Metadata) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_written_and_read_back() {
        let digest = digest("th_1");
        assert_eq!(digest_of(&hex(&digest)), Some(digest));
        for wrong in ["", "ab", &"é".repeat(32), &"g".repeat(64), &"+1".repeat(32)] {
            assert!(digest_of(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn only_equal_digests_are_the_same() {
        let digest = digest("th_1");
        assert!(is_same(&digest, &digest));
        for at in 0..32 {
            let mut other = digest;
            other[at] ^= 1;
            assert!(!is_same(&digest, &other));
        }
    }
}
