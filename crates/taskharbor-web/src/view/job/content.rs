//! Payloads and outputs: a part to look at, or all of it as a file.
//!
//! What a job carries is written by others. It is never answered under a type that a browser would run:
//! a part stands inside JSON, and a file is a download of bytes.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taskharbor::Blob;

use super::record;
use crate::{call::Call, endpoint, problem::Problem};

/// How much of it is shown, in bytes.
const SHOWN_BYTES: usize = 64 * 1024;

/// How it is wanted.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    /// 1 for all of it, as a file.
    download: Option<u8>,
}

/// The first 64 KiB of a payload or an output.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "JobContent")]
pub(super) struct Content {
    /// Set if it is text: UTF-8, mostly JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// Set if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    /// Whether there is more.
    truncated: bool,
}

impl Content {
    fn of(bytes: &[u8]) -> Self {
        let truncated = bytes.len() > SHOWN_BYTES;
        let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
        let text = match std::str::from_utf8(shown) {
            Ok(text) => Some(text),
            // The cut went through a character, which is left out.
            Err(error) if truncated && error.error_len().is_none() => {
                std::str::from_utf8(&shown[..error.valid_up_to()]).ok()
            }
            Err(_) => None,
        };
        match text {
            Some(text) => Self { text: Some(text.to_owned()), base64: None, truncated },
            None => Self { text: None, base64: Some(BASE64_STANDARD.encode(shown)), truncated },
        }
    }
}

pub(super) async fn payload(call: Call, query: Query) -> Result<Response, Problem> {
    let (record, _) = record::read(&call).await?;
    answer(&record.job.payload, &query, &format!("{}.payload", record.job.id))
}

pub(super) async fn output(call: Call, query: Query) -> Result<Response, Problem> {
    let (record, _) = record::read(&call).await?;
    match &record.output {
        Some(output) => answer(output, &query, &format!("{}.output", record.job.id)),
        None => Err(Problem::not_found(
            "no_output",
            "the job has no output",
            format!("the job is {}, and has no output of its own", record.state),
        )),
    }
}

fn answer(content: &Blob, query: &Query, name: &str) -> Result<Response, Problem> {
    match query.download {
        None | Some(0) => endpoint::json(&Content::of(content)),
        Some(1) => Ok(download(content, name)),
        Some(_) => Err(Problem::out_of_range("download", 0, 1)),
    }
}

fn download(content: &Blob, name: &str) -> Response {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    let mut response = (StatusCode::OK, content.to_vec()).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    let disposition = HeaderValue::from_str(&format!("attachment; filename=\"{name}\""));
    let disposition = disposition.unwrap_or(HeaderValue::from_static("attachment"));
    headers.insert(header::CONTENT_DISPOSITION, disposition);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters_and_bytes_are_not_taken_for_text() {
        let long = format!("x{}", "ä".repeat(SHOWN_BYTES));
        let shown = Content::of(long.as_bytes());
        assert!(shown.truncated);
        assert_eq!(shown.text.unwrap().len(), SHOWN_BYTES - 1);
        let bytes = Content::of(&[0xc3]);
        assert_eq!(bytes.text, None);
        assert_eq!(bytes.base64.as_deref(), Some("ww=="));
        assert!(!bytes.truncated);
    }
}
