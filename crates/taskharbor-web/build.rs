//! Lists the files of the pages, so that all of them are in the program and none can be forgotten.

use std::{
    env,
    error::Error,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("assets");
    println!("cargo::rerun-if-changed=assets");
    let mut paths = Vec::new();
    collect(&root, "", &mut paths)?;
    paths.sort();
    let mut list = String::from("&[\n");
    for path in paths {
        let file = root.join(&path);
        writeln!(list, "    ({path:?}, include_bytes!({:?})),", file.display().to_string())?;
    }
    list.push_str("]\n");
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("assets.rs"), list)?;
    Ok(())
}

fn collect(dir: &Path, prefix: &str, paths: &mut Vec<String>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().into_string().map_err(|_| "a file name that is not UTF-8")?;
        let path = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{path}/"), paths)?;
        } else {
            paths.push(path);
        }
    }
    Ok(())
}
