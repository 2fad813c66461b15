//! [`JobFilter`]: a filter of jobs, in the query of an address and in the JSON of a sweep.
//!
//! Every field is a text, so the same names work in the query of an address and in a JSON body.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taskharbor::{
    Filter, IdempotencyKey, JobId, JobSummary, JobType, LaneName, QueueName, State, Text,
    TimeRange, Timestamp,
};

use crate::problem::Problem;

/// How much of an error or a reason a list carries, in bytes. The record of the job has all of it.
const LISTED_TEXT_BYTES: usize = 1_024;
/// The longest text that is searched for, in bytes.
const MAX_TEXT_BYTES: usize = 4 * 1_024;

/// Which jobs. What is left out does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobFilter {
    /// In this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<State>,
    /// Of this queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<QueueName>,
    /// Of this type.
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<JobType>,
    /// Of this lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    lane: Option<LaneName>,
    /// Of this flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    flow: Option<JobId>,
    /// Enqueued with this idempotency key, whether or not they still hold it.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<IdempotencyKey>,
    /// With this header, as `name=value`.
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<String>,
    /// With this text in the last error or in the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Enqueued at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    created_after: Option<Timestamp>,
    /// Enqueued before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    created_before: Option<Timestamp>,
    /// Done, dead-lettered or cancelled at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_after: Option<Timestamp>,
    /// Done, dead-lettered or cancelled before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_before: Option<Timestamp>,
}

impl JobFilter {
    /// The filter of the library, whose ranges of time have been checked.
    pub(crate) fn to_filter(&self) -> Result<Filter, Problem> {
        let mut filter = Filter::all();
        filter.state = self.state;
        filter.queue.clone_from(&self.queue);
        filter.job_type.clone_from(&self.r#type);
        filter.lane.clone_from(&self.lane);
        filter.flow.clone_from(&self.flow);
        filter.key.clone_from(&self.key);
        filter.header = self.header.as_deref().map(header).transpose()?;
        filter.error = self.error.as_deref().map(|text| searchable("error", text)).transpose()?;
        filter.created = TimeRange::new(self.created_after, self.created_before);
        filter.finished = TimeRange::new(self.finished_after, self.finished_before);
        filter.check()?;
        Ok(filter)
    }
}

fn header(text: &str) -> Result<(String, String), Problem> {
    let text = searchable("header", text)?;
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(Problem::invalid("header is not a name and a value: write name=value")),
    }
}

/// A text that every store can look for.
fn searchable(what: &str, text: &str) -> Result<String, Problem> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(Problem::out_of_range(&format!("the length of {what}"), 0, MAX_TEXT_BYTES));
    }
    if text.contains('\0') {
        return Err(Problem::invalid(format!("{what} has a NUL character: remove it")));
    }
    Ok(text.to_owned())
}

/// A job as one line of a list: long texts are cut, so a page of failed jobs stays small.
pub(crate) fn listed(mut job: JobSummary) -> JobSummary {
    for text in [&mut job.last_error, &mut job.reason].into_iter().flatten() {
        if text.as_str().len() > LISTED_TEXT_BYTES {
            let end = text.as_str().floor_char_boundary(LISTED_TEXT_BYTES);
            *text = Text::new(&text.as_str()[..end]);
        }
    }
    job
}

#[cfg(test)]
mod tests {
    use taskharbor::Timestamp;

    use super::*;

    #[test]
    fn an_error_is_cut_where_a_character_ends() {
        let (id, at) = (JobId::new("a").unwrap(), Timestamp::EPOCH);
        let (queue, job_type) = (QueueName::new("q").unwrap(), JobType::new("t").unwrap());
        let mut job = JobSummary::new(id, job_type, queue, State::Dlq, at);
        job.last_error = Some(Text::new("ä".repeat(2_000)));
        job.reason = Some(Text::new("short"));
        let job = listed(job);
        assert_eq!(job.last_error.unwrap().as_str(), "ä".repeat(512));
        assert_eq!(job.reason.unwrap().as_str(), "short");
    }

    #[test]
    fn a_filter_that_no_store_can_take_is_refused() {
        let with = |json: &str| serde_json::from_str::<JobFilter>(json).unwrap().to_filter();
        assert!(with(r#"{"error":"a\u0000b"}"#).is_err());
        assert!(with(r#"{"header":"tenant"}"#).is_err());
        assert!(with(r#"{"header":"=acme"}"#).is_err());
        let header = with(r#"{"header":"tenant=a=b"}"#).unwrap().header;
        assert_eq!(header, Some(("tenant".to_owned(), "a=b".to_owned())));
        let range =
            r#"{"created_after":"2027-01-02T00:00:00Z","created_before":"2027-01-01T00:00:00Z"}"#;
        assert!(with(range).is_err());
    }
}
