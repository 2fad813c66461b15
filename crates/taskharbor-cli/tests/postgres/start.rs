//! Workers that start before their server does.

use std::process::{Child, Stdio};

use taskharbor_testkit::postgres::server::{Server, Stop};

use crate::scenario::{answer, program, said::Said, until, worker::signal};

pub(crate) fn worker(url: &str, args: &[&str]) -> (Child, Said) {
    let mut command = program();
    command.args(["worker", "--builtin", "--url", url]).args(args);
    let mut worker = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let said = Said::by(&mut worker);
    (worker, said)
}

#[test]
fn a_worker_waits_for_a_server_that_is_away_when_it_starts() {
    let server = Server::start();
    let url = server.url();
    for args in [&["migrate", "up"][..], &["enqueue", "echo", "1"]] {
        let done = answer(program().args(args).args(["--url", &url]));
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    server.stop(Stop::Fast);
    let (mut stopped, mut said) = worker(&url, &[]);
    said.until("waiting for the store");
    signal(&stopped, "-TERM");
    until("the end of the worker that was told to stop", || stopped.try_wait().unwrap().is_some());
    assert_eq!(stopped.wait().unwrap().code(), Some(0));

    let (mut waiting, mut said) = worker(&url, &["--until-idle"]);
    said.until("waiting for the store");
    server.start_again();
    said.until("the store is back");
    said.until("1 done");
    assert_eq!(waiting.wait().unwrap().code(), Some(0));
}
