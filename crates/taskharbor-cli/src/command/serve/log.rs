//! The log of the server: on standard error, without the secrets of URLs.
//!
//! Clients are told that something failed, and the cause is only here.

use std::fmt::{self, Write as _};

use serde::Serialize;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span,
};

use crate::{clean, secret, stderr};

/// What happened, for programs.
#[derive(Serialize)]
struct Said<'a> {
    event: &'a str,
    message: &'a str,
}

/// Says what happened.
pub(super) fn say(event: &str, text: &str) {
    let message = secret::scrubbed(&clean::line(text));
    stderr::note(&Said { event, message: &message }, &message);
}

/// From now on warnings of the server and of the library are said.
pub(super) fn begin() {
    // It fails if there is one already, which then has the warnings.
    let _ = tracing::subscriber::set_global_default(Log);
}

struct Log;

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_ours = metadata.target().starts_with("taskharbor");
        // Each action is in the action log. What else is said at this level is the end of a warning.
        let is_end = *metadata.level() == Level::INFO
            && (metadata.target() == "taskharbor::store"
                || metadata.target().starts_with("taskharbor_web::poll"));
        is_ours && (is_end || *metadata.level() <= Level::WARN)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        say(&level, &text.whole());
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The message of an event, and its fields after it.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Text {
    fn whole(self) -> String {
        match self.fields.is_empty() {
            true => self.message,
            false => format!("{}:{}", self.message, self.fields),
        }
    }
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing into a text cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
