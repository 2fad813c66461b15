//! Rules about the pages of the dashboard: what is vendored is what was fetched, a browser can load
//! it, and all of it is small.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use crate::tree::{File, assert_clean, files};

const ASSETS: &str = "crates/taskharbor-web/assets/";
const VENDOR: &str = "../crates/taskharbor-web/assets/vendor";
const SUMS: &str = "SHA256SUMS";
const MAX_COMPRESSED_BYTES: usize = 60_000;

/// Files without a sum. A sum without a file is told by `sha256sum`.
fn without_sum(names: &[String], sums: &str) -> Vec<String> {
    let listed: Vec<_> = sums.lines().filter_map(|line| line.split_once("  ")).collect();
    let has_sum = |name: &String| listed.iter().any(|(_, listed)| listed == name);
    let unlisted = names.iter().filter(|name| *name != SUMS && !has_sum(name));
    unlisted.map(|name| format!("{VENDOR}/{name}: has no sum; run `cargo xtask vendor`")).collect()
}

/// Whether all files have the sums that the folder's list says.
fn sums_hold(dir: &Path) -> io::Result<bool> {
    let mut command = Command::new("sha256sum");
    command.args(["--check", "--strict", "--quiet", SUMS]).current_dir(dir);
    Ok(command.stderr(Stdio::null()).stdout(Stdio::null()).status()?.success())
}

/// Imports that are not of a file of ours.
fn foreign_imports(File { path, text }: &File) -> Vec<String> {
    let imports = ["from\"", "from \"", "import\"", "import \"", "import(\""];
    let targets = imports.iter().flat_map(|import| text.split(import).skip(1));
    let foreign = targets.filter(|target| !target.starts_with("./") && !target.starts_with("../"));
    foreign
        .map(|target| {
            let name = target.split('"').next().unwrap_or_default();
            format!("{path}: imports `{name}`; a browser needs `./` or `../`")
        })
        .collect()
}

/// What the policy of the pages forbids, or what would lead out of them.
fn inline_or_remote(File { path, text }: &File) -> Vec<String> {
    let forbidden = ["<style", " style=\"", "onclick=\"", "src=\"/", "href=\"/", "src=\"http"];
    let found = forbidden.into_iter().filter(|it| text.contains(it));
    found.map(|it| format!("{path}: `{it}` does not work under every policy and prefix")).collect()
}

fn compressed_bytes(text: &str) -> io::Result<usize> {
    let mut command = Command::new("gzip");
    let piped = command.args(["-9", "-c"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.spawn()?;
    let (mut stdin, text) = (child.stdin.take(), text.to_owned());
    let writer = thread::spawn(move || stdin.take().map(|mut it| it.write_all(text.as_bytes())));
    let mut compressed = Vec::new();
    if let Some(stdout) = &mut child.stdout {
        stdout.read_to_end(&mut compressed)?;
    }
    child.wait()?;
    drop(writer.join());
    Ok(compressed.len())
}

/// What browsers load.
fn assets() -> io::Result<Vec<File>> {
    let assets = files()?.into_iter().filter(|file| file.path.starts_with(ASSETS));
    Ok(assets.filter(|file| file.is("js") || file.is("css") || file.is("html")).collect())
}

#[test]
fn vendored_files_are_those_that_were_fetched() -> io::Result<()> {
    let dir = Path::new(VENDOR);
    let entries = fs::read_dir(dir)?.map(|it| Ok(it?.file_name().to_string_lossy().into_owned()));
    let names = entries.collect::<io::Result<Vec<_>>>()?;
    assert_clean(without_sum(&names, &fs::read_to_string(dir.join(SUMS))?));
    assert!(sums_hold(dir)?, "a vendored file was changed; run `cargo xtask vendor`");
    Ok(())
}

#[test]
fn a_vendored_file_that_was_added_or_changed_is_found() -> io::Result<()> {
    let names = ["a.js".to_owned(), "b.js".to_owned(), SUMS.to_owned()];
    assert_eq!(without_sum(&names, "00ff  b.js\n").len(), 1);
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("vendored");
    fs::create_dir_all(&dir)?;
    fs::write(dir.join("a.js"), "")?;
    let sum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    fs::write(dir.join(SUMS), format!("{sum}  a.js\n"))?;
    assert!(sums_hold(&dir)?);
    fs::write(dir.join("a.js"), "alert(1)")?;
    assert!(!sums_hold(&dir)?);
    Ok(())
}

#[test]
fn a_browser_can_load_every_module() -> io::Result<()> {
    let assets = assets()?;
    assert!(assets.len() > 10, "the pages were not found");
    assert_clean(assets.iter().flat_map(foreign_imports));
    let own = assets.iter().filter(|file| !file.path.contains("/vendor/"));
    assert_clean(own.flat_map(inline_or_remote));
    Ok(())
}

#[test]
fn a_module_that_a_browser_cannot_load_is_found() {
    let page = File::new("a.js", "import {h} from \"preact\";\nimport x from \"./x.js\";\n");
    assert_eq!(foreign_imports(&page), ["a.js: imports `preact`; a browser needs `./` or `../`"]);
    assert_eq!(inline_or_remote(&File::new("a.html", "<script src=\"/app.js\">")).len(), 1);
}

/// The modules that this one imports when it is loaded.
fn imports(File { path, text }: &File) -> Vec<String> {
    let targets = ["from \"", "from\"", "import \"", "import\""]
        .into_iter()
        .flat_map(|import| text.split(import).skip(1));
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    targets
        .filter_map(|target| {
            let name = target.split('"').next()?;
            let (folder, name) = match name.strip_prefix("../") {
                Some(name) => (folder.rsplit_once('/')?.0, name),
                None => (folder, name.strip_prefix("./")?),
            };
            Some(format!("{folder}/{name}"))
        })
        .collect()
}

/// What a browser loads to show the first page.
fn first_page(assets: &[File]) -> Vec<&File> {
    let mut wanted = vec![format!("{ASSETS}app.js"), format!("{ASSETS}page/overview.js")];
    let mut found: Vec<&File> = Vec::new();
    while let Some(path) = wanted.pop() {
        let module = assets.iter().find(|file| file.path == path);
        if let Some(module) = module.filter(|it| found.iter().all(|known| known.path != it.path)) {
            found.push(module);
            wanted.extend(imports(module));
        }
    }
    found
}

#[test]
fn what_the_first_page_needs_is_loaded_at_once() -> io::Result<()> {
    let assets = assets()?;
    let page = assets.iter().find(|file| file.path.ends_with("/index.html"));
    let page = page.map(|file| file.text.clone()).unwrap_or_default();
    let first = first_page(&assets);
    let names: Vec<&str> = first.iter().filter_map(|file| file.path.strip_prefix(ASSETS)).collect();
    assert!(names.contains(&"vendor/preact.js"), "imports were not followed: {names:?}");
    let missing = names.iter().filter(|name| !page.contains(&format!("\"{name}\"")));
    assert_clean(missing.map(|name| format!("index.html: does not preload `{name}`")));
    Ok(())
}

#[test]
fn the_first_page_is_small() -> io::Result<()> {
    let assets = assets()?;
    let others = assets.iter().filter(|file| !file.is("js") || file.path.ends_with("/early.js"));
    let mut total = 0;
    for file in first_page(&assets).into_iter().chain(others) {
        total += compressed_bytes(&file.text)?;
    }
    assert!(total > 10_000, "the pages were not measured: {total} bytes");
    assert!(total <= MAX_COMPRESSED_BYTES, "{total} bytes is over {MAX_COMPRESSED_BYTES}");
    Ok(())
}
