//! The headers that the library writes itself.
//!
//! Headers are small texts that travel with a job. Names that begin with `th-` belong to the library:
//! applications cannot set them. Everything else that the library knows about a job is a field of the
//! job, so this is the whole list.
//!
//! | header | on | value |
//! |---|---|---|
//! | [`CODEC`] | every job that this library enqueues | the name of the codec with which payload and output are written; JSON if it is missing |
//! | [`LABEL`] | jobs with [`Options::label`](crate::Options::label), groups with [`Flow::label`](crate::Flow::label) | the label |
//! | [`SCHEDULE`] | jobs that a [`Schedule`](crate::Schedule) made | the name of the schedule |
//! | [`SLOT`] | jobs that a schedule made | the slot, as in `2026-11-16T03:00:00Z`; the current time if the schedule was run by hand |

/// Names the schedule that made the job.
pub const SCHEDULE: &str = "th-schedule";

/// Carries the slot for which a schedule made the job, in RFC 3339.
pub const SLOT: &str = "th-slot";

/// Names the codec with which the job's payload and output are written.
pub const CODEC: &str = "th-codec";

/// Carries the label that pictures and lists show beside the job's type.
pub const LABEL: &str = "th-label";
