//! The packages that the dashboard's pages use: fetched from the npm registry, checked, and kept in
//! the repository, so that nothing is built or downloaded to use or to change the pages.
//!
//! A browser does not know packages. So imports by package name become imports of the file beside, and
//! a build that defines a global gets the export that makes it a module.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;
use crate::shell::{output, root, run};

/// Where the files lie, under the root.
const VENDOR: &str = "crates/taskharbor-web/assets/vendor";
/// Where packages are unpacked, under the root.
const PACKAGES_DIR: &str = "target/vendor";

/// The type checker of the pages.
const TYPESCRIPT: &str = "typescript@7.0.2";

struct Package {
    name: &'static str,
    version: &'static str,
    /// Files of the package, and what each is called here.
    files: &'static [(&'static str, &'static str)],
}

const PACKAGES: [Package; 3] = [
    Package {
        name: "preact",
        version: "11.2.0",
        files: &[("dist/preact.mjs", "preact.js"), ("hooks/dist/hooks.mjs", "hooks.js")],
    },
    Package { name: "htm", version: "3.1.1", files: &[("dist/htm.mjs", "htm.js")] },
    Package {
        name: "uplot",
        version: "1.6.32",
        files: &[("dist/uPlot.iife.min.js", "uplot.js"), ("dist/uPlot.min.css", "uplot.css")],
    },
];

/// The types of the vendored modules, as the type checker finds them beside the modules.
const DECLARATIONS: [(&str, &str); 4] = [
    ("preact.d.ts", "export * from \"preact\";\n"),
    ("hooks.d.ts", "export * from \"preact/hooks\";\n"),
    ("htm.d.ts", "export { default } from \"htm\";\n"),
    ("uplot.d.ts", "export { default } from \"uplot\";\n"),
];

impl Package {
    /// As npm takes it.
    fn spec(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }

    /// Fetches and unpacks it; answers where its files are.
    fn fetch(&self, packages: &Path) -> Result<PathBuf, Failure> {
        let dir = packages.join(self.name);
        remake(&dir)?;
        let mut pack = Command::new("npm");
        pack.args(["pack", "--silent", "--pack-destination"]).arg(&dir).arg(self.spec());
        let archive = dir.join(output(&mut pack)?.trim());
        run(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(&dir))?;
        Ok(dir.join("package"))
    }
}

/// `cargo xtask vendor`.
pub(crate) fn vendor() -> Result<(), Failure> {
    let (packages, vendor) = (root().join(PACKAGES_DIR), root().join(VENDOR));
    remake(&vendor)?;
    let mut licences = String::new();
    for package in &PACKAGES {
        let unpacked = package.fetch(&packages)?;
        let licence = read(&unpacked.join("LICENSE"))?;
        licences += &format!("{}\n\n{}\n\n", package.spec(), licence.trim());
        for (from, to) in package.files {
            write(&vendor.join(to), &as_module(&read(&unpacked.join(from))?))?;
        }
    }
    write(&vendor.join("LICENSES"), &format!("{}\n", licences.trim_end()))?;
    let mut names: Vec<_> =
        PACKAGES.iter().flat_map(|it| it.files).map(|(_, name)| *name).collect();
    names.push("LICENSES");
    names.sort_unstable();
    let sums = output(Command::new("sha256sum").args(names).current_dir(&vendor))?;
    write(&vendor.join("SHA256SUMS"), &sums)
}

/// What a browser takes as a module without knowing packages.
fn as_module(text: &str) -> String {
    let text = text.replace("from\"preact\"", "from\"./preact.js\"");
    let kept = text.lines().filter(|line| !line.starts_with("//# sourceMappingURL="));
    let mut module = kept.collect::<Vec<_>>().join("\n").trim_end().to_owned();
    if module.contains("\nvar uPlot=function(){") {
        module += "\nexport default uPlot;";
    }
    module + "\n"
}

/// `cargo xtask web-check`: checks the types of the pages' modules. The modules are copied, because the
/// type checker looks for the types of the vendored modules beside them.
pub(crate) fn check_types() -> Result<(), Failure> {
    let (web, checked) = (root().join("crates/taskharbor-web"), root().join("target/web-check"));
    fs::create_dir_all(&checked).map_err(|error| failed(&checked, &error))?;
    let specs: Vec<_> = PACKAGES.iter().map(Package::spec).collect();
    let wanted = format!("{TYPESCRIPT} {}\n", specs.join(" "));
    let installed = checked.join("installed");
    if fs::read_to_string(&installed).ok().as_ref() != Some(&wanted) {
        let mut install = Command::new("npm");
        install.args(["install", "--silent", "--no-audit", "--no-fund", "--no-save", "--prefix"]);
        run(install.arg(&checked).arg(TYPESCRIPT).args(&specs))?;
        write(&installed, &wanted)?;
    }
    let assets = checked.join("assets");
    remake(&assets)?;
    copy_modules(&web.join("assets"), &assets)?;
    copy_modules(&web.join("types"), &checked)?;
    for (name, text) in DECLARATIONS {
        write(&assets.join("vendor").join(name), text)?;
    }
    let tsc = checked.join("node_modules/.bin/tsc");
    run(Command::new(tsc).arg("--project").arg(&checked))
}

/// Copies everything but the vendored modules, whose types their authors check.
fn copy_modules(from: &Path, to: &Path) -> Result<(), Failure> {
    fs::create_dir_all(to).map_err(|error| failed(to, &error))?;
    for entry in fs::read_dir(from).map_err(|error| failed(from, &error))? {
        let path = entry.map_err(|error| failed(from, &error))?.path();
        let copy = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            if path.file_name() == Some(OsStr::new("vendor")) {
                fs::create_dir_all(&copy).map_err(|error| failed(&copy, &error))?;
            } else {
                copy_modules(&path, &copy)?;
            }
        } else {
            fs::copy(&path, &copy).map_err(|error| failed(&path, &error))?;
        }
    }
    Ok(())
}

/// An empty folder in place of what was there.
fn remake(dir: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(dir, &error)),
        _ => {}
    }
    fs::create_dir_all(dir).map_err(|error| failed(dir, &error))
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| failed(path, &error))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::Check(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_by_package_name_becomes_one_of_the_file_beside() {
        let hooks =
            "import{options as n}from\"preact\";var t;\n//# sourceMappingURL=hooks.mjs.map\n";
        assert_eq!(as_module(hooks), "import{options as n}from\"./preact.js\";var t;\n");
    }

    #[test]
    fn a_build_that_defines_a_global_becomes_a_module() {
        let plot = "/*! licence */\nvar uPlot=function(){}();\n";
        let module = "/*! licence */\nvar uPlot=function(){}();\nexport default uPlot;\n";
        assert_eq!(as_module(plot), module);
        assert_eq!(as_module(".uplot {}"), ".uplot {}\n");
    }
}
