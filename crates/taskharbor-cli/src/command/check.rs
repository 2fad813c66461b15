//! `taskharbor check`: whether the store contradicts itself.

use serde::Serialize;
use taskharbor::Admin;

use crate::{
    clean,
    failure::{Exit, Failure, Outcome},
    screen::Screen,
    store::{Missing, Url},
};

/// Look for contradictions in the store; the exit code is 1 if there are any
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  taskharbor check")]
pub(crate) struct Args {}

#[derive(Debug, Serialize)]
struct Report {
    consistent: bool,
    problems: Vec<String>,
}

pub(crate) async fn run(url: &Url, screen: &mut Screen) -> Outcome {
    let driver = url.open(Missing::Refuse).await?;
    let problems: Vec<_> = driver.check().await?.iter().map(ToString::to_string).collect();
    let consistent = problems.is_empty();
    if screen.is_json {
        screen.document(&Report { consistent, problems })?;
    } else if consistent {
        screen.line("consistent")?;
    } else {
        for problem in &problems {
            screen.line(&clean::line(problem))?;
        }
    }
    screen.flush()?;
    if consistent { Ok(()) } else { Err(Failure::silent(Exit::Error)) }
}
