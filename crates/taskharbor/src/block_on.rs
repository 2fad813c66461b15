//! A runtime for programs with workers that ends when the program does.

use std::future::Future;

use crate::worker::EXIT;

/// Runs a program on a tokio runtime of its own, and returns its result.
///
/// The runtime has the defaults of `#[tokio::main]`, but ends in another way: when the program
/// returns, running tasks and threads have one second to end, and are not waited for after that. A
/// handler that blocks its thread cannot be stopped, and the runtime of `#[tokio::main]` would wait
/// for it for ever.
///
/// `#[taskharbor::main]` in front of `async fn main` does the same.
///
/// # Panics
///
/// If the operating system cannot start the threads of the runtime.
#[expect(clippy::expect_used, reason = "without a runtime there is no program that could be told")]
pub fn block_on<F: Future>(program: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a tokio runtime can be started");
    let result = runtime.block_on(program);
    // Tasks and threads that are left.
    runtime.shutdown_timeout(EXIT);
    result
}
