//! [`Propagate`]: headers that follow the caller's context into the jobs that it enqueues.

use std::{fmt, sync::Arc};

use taskharbor_core::{
    NewJob,
    job::{Headers, JobKind},
};

/// Writes the caller's context into headers, such as the trace that a request belongs to.
///
/// A client with one ([`ClientBuilder::propagate`](crate::ClientBuilder::propagate)) asks it for each job
/// or flow that it enqueues. A job that has one of these headers already keeps what it has.
///
/// ```
/// use taskharbor::{AnyDriver, Client, Propagate};
///
/// struct Region(&'static str);
///
/// impl Propagate for Region {
///     fn inject(&self, set: &mut dyn FnMut(&str, String)) {
///         set("region", self.0.to_owned());
///     }
/// }
///
/// # fn open(driver: &AnyDriver) -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::builder(driver).propagate(Region("eu")).build()?;
/// # Ok(())
/// # }
/// ```
///
/// Jobs that schedules make get no such headers: no caller enqueues them.
pub trait Propagate: Send + Sync + 'static {
    /// Calls `set` with the name and the value of each header. It is called on the caller's task, in the
    /// poll that sends the jobs. It must be quick and must not block.
    fn inject(&self, set: &mut dyn FnMut(&str, String));
}

impl<P: Propagate> Propagate for Arc<P> {
    fn inject(&self, set: &mut dyn FnMut(&str, String)) {
        (**self).inject(set);
    }
}

/// What a client writes into the headers of its jobs.
#[derive(Clone, Default)]
pub(crate) struct Propagated(Option<Arc<dyn Propagate>>);

impl Propagated {
    pub(crate) fn by(propagate: impl Propagate) -> Self {
        Self(Some(Arc::new(propagate)))
    }

    /// Adds the headers to these jobs.
    pub(crate) fn write<'a>(&self, jobs: impl IntoIterator<Item = &'a mut NewJob>) {
        let Some(propagate) = &self.0 else { return };
        let mut set: Vec<(String, String)> = Vec::new();
        propagate.inject(&mut |name, value| set.push((name.to_owned(), value)));
        if set.is_empty() {
            return;
        }
        // Jobs that are enqueued together mostly have the same headers, which they then share.
        let mut last: Option<(Headers, Headers)> = None;
        // No handler sees the headers of a join.
        for job in jobs.into_iter().filter(|job| job.kind == JobKind::Work) {
            job.headers = match &last {
                Some((before, after)) if *before == job.headers => after.clone(),
                _ => {
                    let before = std::mem::take(&mut job.headers);
                    let after = with_all(&before, &set);
                    last = Some((before, after.clone()));
                    after
                }
            };
        }
    }
}

impl fmt::Debug for Propagated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Propagated({})", self.0.is_some())
    }
}

/// These headers and those of `set`; unchanged if one of `set` is there already, or if there is no
/// room for all: a trace must not keep a job from being enqueued.
fn with_all(headers: &Headers, set: &[(String, String)]) -> Headers {
    if set.iter().any(|(name, _)| headers.get(name).is_some()) {
        return headers.clone();
    }
    let all = set.iter().try_fold(headers.clone(), |all, (name, value)| all.with(name, value));
    all.unwrap_or_else(|_| headers.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn headers_are_written_all_or_none() {
        let trace = set(&[("traceparent", "a"), ("tracestate", "b")]);
        let written = with_all(&Headers::new().with("tenant", "acme").unwrap(), &trace);
        assert_eq!(written.get("traceparent"), Some("a"));
        assert_eq!(written.get("tracestate"), Some("b"));
        assert_eq!(written.get("tenant"), Some("acme"));

        let by_hand = Headers::new().with("traceparent", "mine").unwrap();
        assert_eq!(with_all(&by_hand, &trace), by_hand);

        let full = (1..Headers::MAX_ENTRIES)
            .try_fold(Headers::new(), |all, n| all.with(&n.to_string(), ""))
            .unwrap();
        assert_eq!(with_all(&full, &trace), full);
    }
}
