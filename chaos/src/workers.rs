//! stub
use std::time::Duration;
use crate::{Outcome, choice::StoreKind};
pub(crate) const WORKER: &str = "worker";
pub(crate) async fn work(_: &[String]) -> Outcome { Ok(()) }
pub(crate) async fn run(_: StoreKind, _: u64, _: Duration) -> Outcome { Ok(()) }
