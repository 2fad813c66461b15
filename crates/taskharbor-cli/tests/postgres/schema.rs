//! A database in which nothing is installed, or what a newer program has installed.

use std::process::Stdio;

use taskharbor_testkit::postgres::store::connect;

use crate::{
    environment,
    scenario::{answer, program, until},
    store::Store,
};

#[test]
fn a_worker_ends_with_the_command_to_run_where_nothing_is_installed() {
    ends_with_the_command_to_run(&["--until-idle"]);
    ends_with_the_command_to_run(&[]);
}

fn ends_with_the_command_to_run(args: &[&str]) {
    let url = environment::required("TASKHARBOR_TEST_POSTGRES");
    let schema = format!("th_missing_{}", std::process::id());
    let url = format!("{url}{}schema={schema}", if url.contains('?') { '&' } else { '?' });
    let mut command = program();
    command.args(["worker", "--builtin", "--url", &url]).args(args);
    let mut worker = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("the end of the worker", || worker.try_wait().unwrap().is_some());
    let ended = worker.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(5), "{said}");
    assert!(said.contains(&schema) && said.contains("taskharbor migrate up"), "{said}");
}

#[test]
fn a_worker_ends_at_once_where_a_newer_program_has_migrated() {
    let store = Store::new();
    let (server, schema) = store.url().split_once("?schema=").unwrap();
    let newer = "UPDATE th_meta SET version = 99, min_compatible = 99";
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let sql = connect(server, "test", schema).await.unwrap();
        sql.batch_execute(newer).await.unwrap();
    });
    let ended = store.run(&["worker", "--builtin"]);
    assert_eq!(ended.code, Some(5), "{ended:?}");
    assert!(ended.err.contains("use a newer version of this program"), "{ended:?}");
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let sql = connect(server, "test", schema).await.unwrap();
        sql.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.unwrap();
    });
}

#[test]
fn the_doctor_says_that_nothing_is_installed_and_looks_no_further() {
    let url = environment::required("TASKHARBOR_TEST_POSTGRES");
    let schema = format!("th_never_{}", std::process::id());
    let url = format!("{url}{}schema={schema}", if url.contains('?') { '&' } else { '?' });
    let said = answer(program().args(["doctor", "--json", "--url", &url]));
    assert_eq!(said.code, Some(4), "{said:?}");
    let problems: Vec<_> = said.out.lines().filter(|it| it.contains(r#""problem""#)).collect();
    assert_eq!(problems.len(), 1, "{said:?}");
    assert!(problems[0].contains("taskharbor migrate up"), "{said:?}");
    assert!(said.out.lines().count() <= 3, "{said:?}");
}
