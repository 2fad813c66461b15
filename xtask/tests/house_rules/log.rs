//! The guide lists what is logged under which target and at which levels.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use crate::tree::{File, files};

const GUIDE: &str = "docs/guides/observability.md";
const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// The levels of each target.
type Targets = BTreeMap<String, BTreeSet<String>>;

/// The target of what a file logs without naming one: its module.
fn module(path: &str) -> Option<String> {
    let (name, file) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let module = file.strip_suffix(".rs")?.replace('/', "::");
    let name = name.replace('-', "_");
    Some(if module == "lib" { name } else { format!("{name}::{module}") })
}

/// What a file logs.
fn logged(File { path, text }: &File) -> Targets {
    let mut targets = Targets::new();
    let Some(module) = module(path) else { return targets };
    for level in LEVELS {
        for call in text.split(&format!("tracing::{level}!(")).skip(1) {
            let named = call.trim_start().strip_prefix("target: \"");
            let named = named.and_then(|rest| rest.split_once('"'));
            let target = named.map_or_else(|| module.clone(), |(target, _)| target.to_owned());
            targets.entry(target).or_default().insert(level.to_owned());
        }
    }
    targets
}

/// What the table of the guide lists.
fn listed(guide: &str) -> Targets {
    let rows = guide.lines().skip_while(|line| !line.starts_with("| target begins with"));
    let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let mut cells = line.split('|').skip(1).map(str::trim);
        let target = cells.next()?.trim_matches('`').to_owned();
        let levels = cells.next()?.split([',', ' ']).filter(|it| !it.is_empty());
        Some((target, levels.map(str::to_owned).collect()))
    };
    rows.filter_map(row).collect()
}

/// The rows of the guide that would be right, for its own targets.
fn used(listed: &Targets, logged: Targets) -> Result<Targets, String> {
    let mut used: Targets = Targets::new();
    for (target, levels) in logged {
        let row = listed.keys().find(|row| target.starts_with(row.as_str()));
        let row = row.ok_or_else(|| format!("{GUIDE} does not list the target {target}"))?;
        used.entry(row.clone()).or_default().extend(levels);
    }
    Ok(used)
}

#[test]
fn the_guide_lists_the_targets_and_levels_of_all_logs() -> io::Result<()> {
    let files = files()?;
    let guide = files.iter().find(|file| file.path == GUIDE).map(|file| listed(&file.text));
    let guide = guide.ok_or_else(|| io::Error::other("there is no guide"))?;
    let mut all = Targets::new();
    for file in files.iter().filter(|file| file.is("rs")) {
        for (target, levels) in logged(file) {
            all.entry(target).or_default().extend(levels);
        }
    }
    assert_eq!(used(&guide, all), Ok(guide));
    Ok(())
}

#[test]
fn a_target_or_level_that_is_not_listed_is_found() {
    let guide = "| target begins with | levels | what |\n|---|---|---|\n| `a_b` | warn, debug | x |\n\n| `c` |";
    let listed = listed(guide);
    let of = |text: &str| logged(&File::new("crates/a-b/src/c/d.rs", text));
    let right = of("tracing::warn!(\"x\"); tracing::debug!(\n target: \"a_b::e\", \"y\")");
    assert_eq!(right.keys().collect::<Vec<_>>(), ["a_b::c::d", "a_b::e"]);
    assert_eq!(used(&listed, right), Ok(listed.clone()));
    assert_ne!(used(&listed, of("tracing::info!(\"x\")")), Ok(listed.clone()));
    assert!(used(&listed, of("tracing::warn!(target: \"f\", \"x\")")).is_err());
}
