//! The headers of [W3C Trace Context](https://www.w3.org/TR/trace-context/), as they travel with a job.

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
use taskharbor::Headers;

/// The header that names a trace and a span in it.
pub const TRACEPARENT: &str = "traceparent";
/// The header with data that tracing systems add.
pub const TRACESTATE: &str = "tracestate";

const LOWER_HEX: &[u8] = b"0123456789abcdef";

/// Reads the span in which a job was enqueued from the job's headers. `None` if there is none, or
/// if the header is malformed.
///
/// With `tracing-opentelemetry`, use it as the parent of the worker's own span.
#[must_use]
pub fn enqueued_in(headers: &Headers) -> Option<SpanContext> {
    let (trace_id, span_id, flags) = parse(headers.get(TRACEPARENT)?)?;
    let state = headers.get(TRACESTATE).and_then(|state| state.parse::<TraceState>().ok());
    let context = SpanContext::new(trace_id, span_id, flags, true, state.unwrap_or_default());
    context.is_valid().then_some(context)
}

/// The headers that name this span.
pub(crate) fn of(context: &SpanContext) -> Vec<(&'static str, String)> {
    if !context.is_valid() {
        return Vec::new();
    }
    let (trace_id, span_id) = (context.trace_id(), context.span_id());
    let flags = context.trace_flags() & TraceFlags::SAMPLED;
    let mut headers = vec![(TRACEPARENT, format!("00-{trace_id}-{span_id}-{:02x}", flags.to_u8()))];
    let state = context.trace_state().header();
    if !state.is_empty() {
        headers.push((TRACESTATE, state));
    }
    headers
}

fn parse(text: &str) -> Option<(TraceId, SpanId, TraceFlags)> {
    let mut parts = text.trim().split('-');
    let mut hex = |digits: usize| {
        let part = parts.next()?;
        let is_hex = part.len() == digits && part.bytes().all(|it| LOWER_HEX.contains(&it));
        is_hex.then_some(part)
    };
    let (version, trace_id, span_id, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
    // Versions to come may have more parts, this one has not.
    if version == "ff" || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    Some((TraceId::from_hex(trace_id).ok()?, SpanId::from_hex(span_id).ok()?, flags))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn read(text: &str) -> Option<SpanContext> {
        enqueued_in(&Headers::new().with(TRACEPARENT, text).unwrap())
    }

    #[test]
    fn what_is_written_is_read() {
        let headers = Headers::new().with(TRACEPARENT, TRACE).unwrap();
        let headers = headers.with(TRACESTATE, "vendor=abc").unwrap();
        let context = enqueued_in(&headers).unwrap();
        assert!(context.is_sampled() && context.is_remote());
        let written = of(&context);
        assert_eq!(written[0], (TRACEPARENT, TRACE.to_owned()));
        assert_eq!(written[1], (TRACESTATE, "vendor=abc".to_owned()));
    }

    #[test]
    fn a_malformed_header_is_no_trace() {
        assert!(read(TRACE).is_some());
        assert!(read(&TRACE.replace("00-", "01-")).is_some(), "a version to come");
        assert!(read(&format!("{}-more", TRACE.replace("00-", "01-"))).is_some());
        for wrong in [
            "",
            "00",
            &TRACE.replace("00-", "ff-"),
            &TRACE.to_uppercase(),
            &TRACE[..54],
            &format!("{TRACE}-more"),
            &TRACE.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &TRACE.replace("b7ad6b7169203331", &"0".repeat(16)),
            &TRACE.replace("0af7", "+af7"),
        ] {
            assert!(read(wrong).is_none(), "{wrong:?}");
        }
        assert!(of(&SpanContext::empty_context()).is_empty());
    }
}
