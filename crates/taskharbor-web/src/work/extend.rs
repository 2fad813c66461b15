//! Extending leases.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taskharbor::{
    JobId, Text,
    remote::{Overtime, Ticket},
};
use taskharbor_core::{
    Driver,
    driver::{ExtendLeases, Extended, Extension, LeaseMark},
};

use super::{MAX_JOBS, Refused, value::seconds};
use crate::{call::Call, problem::Problem};

/// Leases to extend.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WorkExtend")]
pub(super) struct Request {
    /// How long the leases last from now on, from 1 s to a day. Defaults to 30 s.
    lease_seconds: Option<f64>,
    /// Whether the worker shuts down: if it is killed after that, its jobs have not crashed it.
    #[serde(default)]
    leaving: bool,
    /// 1 to 1,000 jobs.
    jobs: Vec<Given>,
}

/// A lease to extend.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WorkLease")]
struct Given {
    /// The job.
    id: String,
    /// Its lease, as it was given last.
    lease: String,
    /// What the worker reports of it.
    progress: Option<String>,
}

/// The leases, in the order of the request.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "WorkExtended")]
pub(super) struct Answer {
    jobs: Vec<Kept>,
}

/// The result for one lease.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "WorkKept")]
struct Kept {
    /// When the lease ends unless it is extended again.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_expires_at: Option<String>,
    /// The lease from now on, if it has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<String>,
    /// Why the job should stop, if it should.
    #[serde(skip_serializing_if = "Option::is_none")]
    cancel: Option<Cancel>,
    /// Why the lease was not extended.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Refused>,
}

/// Why a job should stop.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "WorkCancel")]
enum Cancel {
    /// Its cancellation was requested.
    Requested,
    /// It has taken as long as it may: settle it with `timeout`.
    Timeout,
}

impl Kept {
    fn refused(error: Refused) -> Self {
        Self { error: Some(error), ..Self::default() }
    }
}

pub(super) async fn extend(call: Call, request: Request) -> Result<Answer, Problem> {
    if request.jobs.is_empty() || request.jobs.len() > MAX_JOBS {
        return Err(Problem::out_of_range("the number of jobs", 1, MAX_JOBS));
    }
    let lease_for = request.lease_seconds.unwrap_or(30.0);
    let lease_for: Duration = seconds("lease_seconds", lease_for, 1.0, 86_400.0)?;
    let (store, now) = call.store_now().await?;
    let (mut kept, mut items, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for given in request.jobs {
        let ticket = match Ticket::parse(&given.lease) {
            Ok(ticket) => ticket,
            Err(error) => {
                kept.push(Kept::refused(Refused::new("invalid_lease", error.to_string())));
                continue;
            }
        };
        let overtime = ticket.overtime(now);
        if overtime == Overtime::Overdue {
            let text = "its timeout passed more than 5 s ago, so its lease is not extended";
            kept.push(Kept::refused(Refused::new("lease_lost", text.to_string())));
            continue;
        }
        let id = match JobId::new(given.id) {
            Ok(id) => id,
            Err(error) => {
                kept.push(Kept::refused(Refused::new("invalid_request", error.to_string())));
                continue;
            }
        };
        let mut item = Extension::new(id, ticket.token());
        item.progress = given.progress.map(Text::new);
        item.mark = request.leaving.then_some(LeaseMark::Leaving);
        places.push((kept.len(), ticket, overtime));
        items.push(item);
        kept.push(Kept::default());
    }
    let answers = match items.len() {
        0 => Vec::new(),
        _ => store.driver.extend_leases(ExtendLeases::new(items, now, lease_for)).await?,
    };
    for ((place, ticket, overtime), answer) in places.into_iter().zip(answers) {
        kept[place] = match answer {
            Ok(extended) => extended_as(extended, ticket, overtime),
            Err(refusal) => Kept::refused(Refused::from(&refusal)),
        };
    }
    Ok(Answer { jobs: kept })
}

fn extended_as(extended: Extended, ticket: Ticket, overtime: Overtime) -> Kept {
    let token = extended.lease.token;
    let has_changed = token != ticket.token();
    let cancel = match overtime {
        Overtime::TimedOut | Overtime::Overdue => Some(Cancel::Timeout),
        Overtime::No if extended.cancel_requested => Some(Cancel::Requested),
        Overtime::No => None,
    };
    Kept {
        lease_expires_at: Some(extended.lease.expires_at.to_string()),
        lease: has_changed.then(|| ticket.with_token(token).to_text()),
        cancel,
        error: None,
    }
}
