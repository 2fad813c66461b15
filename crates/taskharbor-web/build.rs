//! Lists the files of the pages, so that all of them are in the program and none can be forgotten, and
//! compresses them.

use std::{
    env,
    error::Error,
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("assets");
    println!("cargo::rerun-if-changed=assets");
    let mut paths = Vec::new();
    collect(&root, "", &mut paths)?;
    paths.sort();
    let mut list = String::from("&[\n");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    for (number, path) in paths.iter().enumerate() {
        let (file, small) = (root.join(path), out.join(format!("{number}.gz")));
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&fs::read(&file)?)?;
        fs::write(&small, encoder.finish()?)?;
        writeln!(list, "    ({path:?}, include_bytes!({file:?}), include_bytes!({small:?})),")?;
    }
    list.push_str("]\n");
    fs::write(out.join("assets.rs"), list)?;
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
