//! Checksums of files that are fetched: each is pinned, and compared before anything is unpacked.

use std::path::Path;
use std::process::Command;

use crate::Error;
use crate::shell::output;

/// The SHA-256 of a file, in hex.
pub(crate) fn sha256(file: &Path) -> Result<String, Error> {
    const IN_PYTHON: &str =
        "import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], 'rb').read()).hexdigest())";
    let programs: [&[&str]; 3] =
        [&["sha256sum"], &["shasum", "-a", "256"], &["python3", "-c", IN_PYTHON]];
    let digest = programs.into_iter().find_map(|line| {
        let said = output(Command::new(line[0]).args(&line[1..]).arg(file)).ok()?;
        digest_in(&said).map(str::to_owned)
    });
    digest.ok_or_else(|| Error::new("neither sha256sum nor python3 can be run"))
}

/// The first word, if it is a SHA-256. A backslash before it says that the file's name is escaped.
pub(crate) fn digest_in(said: &str) -> Option<&str> {
    let word = said.split_whitespace().next()?.trim_start_matches('\\');
    let is_digest = word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digest.then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_however_the_program_decorates_it() {
        let digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digest_in(&format!("{digest}  a.whl\n")), Some(digest));
        assert_eq!(digest_in(&format!("\\{digest}  a\\\\b.whl\n")), Some(digest));
        assert_eq!(digest_in("sha256sum: no such file"), None);
        assert_eq!(digest_in(""), None);
    }
}
