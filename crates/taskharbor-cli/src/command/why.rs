//! `taskharbor why`: one sentence on why a job is in its state.

use taskharbor::explain::{Why, explain};

use super::inspect;
use crate::{
    clean,
    failure::Outcome,
    json_output,
    screen::Screen,
    store::{Missing, Url},
};

/// Explain in one sentence why a job is not running, or what is happening to it
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  taskharbor why 01919b6e-8f6a-7c3e-b1a4-0d6f5a3e9c11")]
pub(crate) struct Args {
    /// The id of the job
    id: String,
}

pub(crate) async fn run(args: &Args, url: &Url, screen: &mut Screen) -> Outcome {
    let driver = url.open(Missing::Refuse).await?;
    let now = driver.now().await?;
    let record = inspect::stored(&driver, &args.id, now).await?;
    let Why { code, text, .. } = explain(&driver, &record, now).await?;
    let text = clean::line(&text);
    if screen.is_json {
        let (id, state) = (record.job.id.as_str(), record.state.as_str());
        return screen.document(&json_output::Why { id, state, code, text });
    }
    screen.line(&text)
}
