//! The owner of a file of tokens, and its writers: a user that can change the file can give itself access.

use std::{fs, io};

/// Whether only root, or the user that runs this program, can change the permissions of the file.
#[cfg(unix)]
pub(super) fn is_trusted(metadata: &fs::Metadata) -> bool {
    let owner = std::os::unix::fs::MetadataExt::uid(metadata);
    may_own(owner, rustix::process::geteuid().as_raw())
}

#[cfg(unix)]
const fn may_own(owner: u32, effective: u32) -> bool {
    owner == 0 || owner == effective
}

#[cfg(not(unix))]
pub(super) fn is_trusted(_: &fs::Metadata) -> bool {
    true
}

/// Whether users other than the owner can write to the file.
#[cfg(unix)]
pub(super) fn is_writable_by_others(metadata: &fs::Metadata) -> bool {
    std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o022 != 0
}

#[cfg(not(unix))]
pub(super) fn is_writable_by_others(_: &fs::Metadata) -> bool {
    false
}

/// Gives a new file the owner, the group and the permissions of the old one, so that a server that could read
/// the old one can read it.
#[cfg(unix)]
pub(super) fn keep(old: &fs::Metadata, new: &fs::File) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};

    let made = new.metadata()?;
    let change = |old: u32, new: u32| (old != new).then_some(old);
    let (user, group) = (change(old.uid(), made.uid()), change(old.gid(), made.gid()));
    if user.is_some() || group.is_some() {
        fchown(new, user, group).map_err(|error| {
            let what = "its owner and group cannot be kept: run this as its owner or as root";
            io::Error::new(error.kind(), format!("{what}: {error}"))
        })?;
    }
    new.set_permissions(fs::Permissions::from_mode(old.mode() & 0o777))
}

#[cfg(not(unix))]
pub(super) fn keep(_: &fs::Metadata, _: &fs::File) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_user_is_not_trusted() {
        let users = [(0, 0), (0, 1000), (1000, 1000), (1000, 0), (1001, 1000)];
        let trusted = users.map(|(owner, effective)| may_own(owner, effective));
        assert_eq!(trusted, [true, true, true, false, false]);
    }
}
