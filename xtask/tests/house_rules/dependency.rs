//! The rule that dependencies point downward: who may use whom, as one table.

use std::io;

use crate::manifest::{Dependency, Kind, Manifest, members};
use crate::tree::{File, assert_clean};

/// What a crate may use of ours, and what its tests may use beyond that.
struct Layer {
    name: &'static str,
    uses: &'static [&'static str],
    tests_use: &'static [&'static str],
}

const CORE: &str = "taskharbor-core";
const MACROS: &str = "taskharbor-macros";
const CONFORMANCE: &str = "taskharbor-conformance";
const MEMORY: &str = "taskharbor-memory";
const SQLITE: &str = "taskharbor-sqlite";
const POSTGRES: &str = "taskharbor-postgres";
const SQLX: &str = "taskharbor-sqlx";
const LIBRARY: &str = "taskharbor";
const OTEL: &str = "taskharbor-otel";
const PROMETHEUS: &str = "taskharbor-prometheus";
const WEB: &str = "taskharbor-web";
const HTTP: &str = "taskharbor-http";
const PROVISION: &str = "taskharbor-provision";
const TESTKIT: &str = "taskharbor-testkit";
const XTASK: &str = "xtask";

/// Every library. All of them meet in the CLI and nowhere else.
const ALL: &[&str] = &[
    CORE,
    MACROS,
    CONFORMANCE,
    MEMORY,
    SQLITE,
    POSTGRES,
    SQLX,
    LIBRARY,
    OTEL,
    PROMETHEUS,
    HTTP,
    WEB,
];
/// Benchmarks count calls with the driver that tests intercept them with, and chaos starts its servers
/// as tests do.
const BENCH: &str = "taskharbor-bench";
const CHAOS: &str = "taskharbor-chaos";
const PROTOCOL: &str = "taskharbor-bench-protocol";
const TOOL_USES: &[&str] = &[CORE, MEMORY, SQLITE, POSTGRES, LIBRARY, TESTKIT];
const BENCH_USES: &[&str] =
    &[CORE, MEMORY, SQLITE, POSTGRES, LIBRARY, TESTKIT, PROMETHEUS, HTTP, WEB];

/// Lowest first. Nothing may use those after the command but the programs of other projects, which use their protocol.
const LAYERS: [Layer; 24] = [
    layer(CORE, &[], &[]),
    layer(MACROS, &[], &[]),
    layer(CONFORMANCE, &[CORE], &[MEMORY]),
    layer(MEMORY, &[CORE], &[CONFORMANCE]),
    layer(SQLITE, &[CORE], &[CONFORMANCE, TESTKIT]),
    layer(POSTGRES, &[CORE], &[CONFORMANCE, TESTKIT]),
    // Its tests run the suite through a server.
    layer(HTTP, &[CORE], &[CONFORMANCE, MEMORY, POSTGRES, TESTKIT, WEB]),
    // Its tests use it as users do, with the features that users choose.
    layer(LIBRARY, &[CORE, MACROS, MEMORY, SQLITE, POSTGRES, HTTP], &[LIBRARY, TESTKIT]),
    layer(WEB, &[CORE, LIBRARY], &[MEMORY, POSTGRES, SQLITE, TESTKIT]),
    // Its tests are those of the library, with another client.
    layer(SQLX, &[CORE, POSTGRES], &[LIBRARY, TESTKIT]),
    layer(OTEL, &[LIBRARY], &[]),
    // The guide to both is its doctest.
    layer(PROMETHEUS, &[CORE, LIBRARY], &[OTEL]),
    layer(PROVISION, &[], &[]),
    // For tests and benchmarks alone: it stands in no list of what another crate may use.
    layer(TESTKIT, &[CORE, POSTGRES, LIBRARY, PROVISION], &[TESTKIT]),
    layer("taskharbor-cli", ALL, &[TESTKIT]),
    layer(BENCH, BENCH_USES, &[]),
    layer(CHAOS, TOOL_USES, &[]),
    // Other projects' workers, which know nothing of ours, and the protocol that drives them.
    layer(PROTOCOL, &[], &[]),
    layer("taskharbor-bench-apalis", &[PROTOCOL], &[]),
    layer("taskharbor-bench-awa", &[PROTOCOL], &[]),
    layer("taskharbor-bench-graphile_worker", &[PROTOCOL], &[]),
    layer("taskharbor-bench-riverqueue", &[PROTOCOL], &[]),
    layer("taskharbor-bench-worklane", &[PROTOCOL], &[]),
    layer(XTASK, &[PROVISION], &[]),
];

const fn layer(
    name: &'static str,
    uses: &'static [&'static str],
    tests_use: &'static [&'static str],
) -> Layer {
    Layer { name, uses, tests_use }
}

impl Layer {
    fn allows(&self, dependency: &Dependency<'_>) -> bool {
        let Dependency { name, kind, .. } = dependency;
        self.uses.contains(name) || (*kind == Kind::Dev && self.tests_use.contains(name))
    }
}

fn upward_dependencies(manifest: &Manifest) -> Vec<String> {
    let path = &manifest.path;
    let name = manifest.get(&["package"], "name").unwrap_or_default();
    let Some(layer) = LAYERS.iter().find(|layer| layer.name == name) else {
        return vec![format!("{path}: add `{name}` to LAYERS in {}", file!())];
    };
    let dependencies = manifest.dependencies().into_iter();
    let ours = dependencies.filter(|d| d.name.starts_with("taskharbor") || d.name == "xtask");
    let upward = ours.filter(|d| !layer.allows(d));
    upward.map(|d| format!("{path}: `{name}` may not depend on `{}`", d.name)).collect()
}

#[test]
fn dependencies_point_downward() -> io::Result<()> {
    assert_clean(members()?.iter().flat_map(upward_dependencies));
    Ok(())
}

/// Both are compiled before anything else, and the first checks the dependencies of all other crates.
const COMPILED_FIRST: [&str; 2] = [XTASK, PROVISION];

fn foreign_dependencies(manifest: &Manifest) -> Vec<String> {
    let name = manifest.get(&["package"], "name").unwrap_or_default();
    if !COMPILED_FIRST.contains(&name) {
        return Vec::new();
    }
    let dependencies = manifest.dependencies().into_iter();
    let foreign = dependencies.filter(|it| !COMPILED_FIRST.contains(&it.name));
    foreign
        .map(|it| format!("{}: `{name}` may not depend on `{}`", manifest.path, it.name))
        .collect()
}

#[test]
fn what_is_compiled_first_has_no_dependencies() -> io::Result<()> {
    assert_clean(members()?.iter().flat_map(foreign_dependencies));
    Ok(())
}

#[test]
fn a_dependency_of_what_is_compiled_first_is_found() {
    let complaints = |package: &str, dependency: &str| {
        let text = format!(
            "[package]\nname = \"{package}\"\n[dependencies]\n{dependency}.workspace = true\n"
        );
        foreign_dependencies(&Manifest::read(&File::new("Cargo.toml", &text)))
    };
    assert_eq!(
        complaints(PROVISION, "serde"),
        ["Cargo.toml: `taskharbor-provision` may not depend on `serde`"]
    );
    assert_eq!(complaints(XTASK, "serde").len(), 1);
    assert!(complaints(XTASK, PROVISION).is_empty() && complaints(CORE, "serde").is_empty());
}

fn complaints_about(package: &str, dependencies: &str) -> Vec<String> {
    let text = format!("[package]\nname = \"{package}\"\n{dependencies}\n");
    upward_dependencies(&Manifest::read(&File::new("Cargo.toml", &text)))
}

#[test]
fn a_dependency_that_points_upward_is_found() {
    let upward = "[dependencies]\ntaskharbor-memory.workspace = true";
    let found = complaints_about(CORE, upward);
    assert_eq!(found, ["Cargo.toml: `taskharbor-core` may not depend on `taskharbor-memory`"]);
}

#[test]
fn a_driver_may_use_the_suite_in_its_tests_only() {
    let suite = "taskharbor-conformance.workspace = true";
    let complaints = |table| complaints_about(MEMORY, &format!("{table}\n{suite}"));
    assert!(complaints("[dev-dependencies]").is_empty());
    assert_eq!(complaints("[dependencies]").len(), 1);
    assert_eq!(complaints("[build-dependencies]").len(), 1);
}

#[test]
fn what_tests_share_is_for_tests_and_benchmarks_only() {
    let testkit = "taskharbor-testkit.workspace = true";
    let complaints = |table| complaints_about(POSTGRES, &format!("{table}\n{testkit}"));
    assert!(complaints("[dev-dependencies]").is_empty());
    for Layer { name, .. } in LAYERS.iter().filter(|layer| ![BENCH, CHAOS].contains(&layer.name)) {
        assert_eq!(
            complaints_about(name, &format!("[dependencies]\n{testkit}")).len(),
            1,
            "{name}"
        );
    }
}

#[test]
fn no_crate_may_use_the_benchmarks_or_this_tool() {
    let tools = "[dev-dependencies]\ntaskharbor-bench.workspace = true\nxtask.workspace = true";
    for Layer { name, .. } in LAYERS {
        assert_eq!(complaints_about(name, tools).len(), 2, "{name}");
    }
}

#[test]
fn a_crate_that_is_not_in_the_table_is_found() {
    let found = complaints_about("taskharbor-redis", "");
    assert!(found[0].contains("add `taskharbor-redis` to LAYERS"), "{found:?}");
}
