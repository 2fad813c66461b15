//! Previews, and the digest that confirms one.
//!
//! The digest carries when the preview was made and how many jobs it counted, and a hash of what was asked
//! for. So the server keeps nothing between preview and start, and a request that differs from the one
//! that was shown is refused.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use taskharbor::{JobSummary, Timestamp};
use tokio::time::Instant;

use super::{PAGE, walk::Walk, wanted::Wanted};
use crate::{call::Call, filter::listed, problem::Problem, token::hex};

/// Where counting stops.
const MAX_COUNT: usize = 20_000;
/// How long counting goes on.
const COUNT_TIME: Duration = Duration::from_secs(3);
/// How many jobs are shown.
const SAMPLES: usize = 5;
/// How long a preview can be confirmed.
const VALID_FOR: Duration = Duration::from_secs(3_600);

/// What a sweep would act on.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SweepPreview")]
pub(super) struct Preview {
    /// How many jobs match.
    count: usize,
    /// Whether these are all: counting stops at 20,000 and after 3 s.
    count_is_exact: bool,
    /// The five that were enqueued first.
    samples: Vec<JobSummary>,
    /// What starts the sweep, within an hour.
    digest: String,
}

pub(super) async fn preview(call: Call, wanted: Wanted) -> Result<Preview, Problem> {
    wanted.check(&call.access)?;
    let (store, at) = call.store_now().await?;
    let mut walk = Walk::new(&wanted, at, PAGE)?;
    let (mut count, mut count_is_exact, mut samples) = (0, true, Vec::new());
    let end = Instant::now() + COUNT_TIME;
    while let Some(jobs) = walk.next(&store.driver).await? {
        count += jobs.len();
        let missing = SAMPLES.saturating_sub(samples.len());
        samples.extend(jobs.into_iter().take(missing).map(listed));
        if count >= MAX_COUNT || Instant::now() >= end {
            count_is_exact = false;
            break;
        }
    }
    let digest = Confirmed { at, count }.digest(&store.name, &wanted)?;
    Ok(Preview { count, count_is_exact, samples, digest })
}

/// A preview that was confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Confirmed {
    /// When it was made.
    pub(super) at: Timestamp,
    /// How many jobs it counted.
    pub(super) count: usize,
}

impl Confirmed {
    fn digest(self, store: &str, wanted: &Wanted) -> Result<String, Problem> {
        let Self { at, count } = self;
        let text = serde_json::to_vec(&(store, at, count, wanted));
        let hash = Sha256::digest(text.map_err(|error| Problem::internal(&error))?);
        Ok(format!("{}-{count}-{}", at.as_micros(), hex(&hash[..16])))
    }

    /// The preview whose digest this is, if it was one of this request.
    pub(super) fn read(
        digest: &str,
        store: &str,
        wanted: &Wanted,
        now: Timestamp,
    ) -> Result<Self, Problem> {
        let differs = || {
            Problem::conflict(
                "digest_differs",
                "this is not what was previewed",
                "the digest belongs to another request: preview the sweep again",
            )
        };
        let mut parts = digest.splitn(3, '-');
        let at = parts.next().and_then(|it| Timestamp::from_micros(it.parse().ok()?).ok());
        let count = parts.next().and_then(|it| it.parse().ok());
        let (Some(at), Some(count)) = (at, count) else { return Err(differs()) };
        let confirmed = Self { at, count };
        if confirmed.digest(store, wanted)? != digest {
            return Err(differs());
        }
        if now.since(at) > VALID_FOR {
            return Err(Problem::conflict(
                "preview_outdated",
                "the preview is too old",
                "the jobs may be others by now: preview the sweep again",
            ));
        }
        Ok(confirmed)
    }
}
