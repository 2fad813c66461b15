//! The derive as a user meets it, against a stand-in for the library.
//!
//! The library depends on this crate, so it cannot be used here. This test crate takes its name
//! instead, and defines just what the generated code refers to.

extern crate self as taskharbor;

use std::time::Duration;

use taskharbor_macros::Job;

trait Job {
    const TYPE: &'static str;
    type Input;
    type Output;
    fn options() -> Options {
        Options::new()
    }
    fn lane(&self) -> Option<String> {
        None
    }
}

#[derive(Debug, Default, PartialEq)]
struct Options {
    queue: Option<String>,
    max_attempts: Option<u32>,
    timeout: Option<Duration>,
    priority: Option<i16>,
}

impl Options {
    fn new() -> Self {
        Self::default()
    }

    fn queue(self, queue: &str) -> Self {
        Self { queue: Some(queue.to_owned()), ..self }
    }

    fn max_attempts(self, max_attempts: u32) -> Self {
        Self { max_attempts: Some(max_attempts), ..self }
    }

    fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    fn priority(self, priority: i16) -> Self {
        Self { priority: Some(priority), ..self }
    }
}

/// Another place to find the library at.
mod harbor {
    pub(crate) use crate::{Job, Options};
}

/// Compiles only if the job takes and produces these.
fn assert_takes_and_produces<J: Job<Input = I, Output = O>, I, O>() {}

#[test]
fn everything_that_is_given_arrives() {
    #[derive(Job)]
    #[job(type = "photo:resize", queue = "images", max_attempts = 5)]
    #[job(timeout = "500ms", priority = -3, input = Vec<u8>, output = Result<u8, String>)]
    struct Resize;

    assert_eq!(Resize::TYPE, "photo:resize");
    assert_takes_and_produces::<Resize, Vec<u8>, Result<u8, String>>();
    let expected = Options {
        queue: Some("images".to_owned()),
        max_attempts: Some(5),
        timeout: Some(Duration::from_millis(500)),
        priority: Some(-3),
    };
    assert_eq!(Resize::options(), expected);
}

#[test]
fn what_is_not_given_has_defaults() {
    #[derive(Job)]
    #[job(type = "tick")]
    enum Tick {}

    assert_eq!(Tick::TYPE, "tick");
    assert_takes_and_produces::<Tick, (), ()>();
    assert_eq!(Tick::options(), Options::new());
}

#[test]
fn the_lane_is_the_text_of_a_field() {
    #[derive(Job)]
    #[job(type = "bill", lane = "account")]
    struct Bill {
        account: u64,
    }
    #[derive(Job)]
    #[job(type = "pair", lane = "1")]
    struct Pair(#[expect(dead_code, reason = "it is not the lane")] u8, &'static str);
    #[derive(Job)]
    #[job(type = "raw", lane = "type")]
    struct Raw {
        r#type: char,
    }
    macro_rules! job {
        ($name:ident, $field:ident, $lane:literal) => {
            #[derive(Job)]
            #[job(type = "made", lane = $lane)]
            struct $name {
                $field: u8,
            }
        };
    }
    job!(Made, tenant, "tenant");

    assert_eq!(Bill { account: 42 }.lane().as_deref(), Some("42"));
    assert_eq!(Pair(1, "acme").lane().as_deref(), Some("acme"));
    assert_eq!(Raw { r#type: 'x' }.lane().as_deref(), Some("x"));
    assert_eq!(Made { tenant: 7 }.lane().as_deref(), Some("7"));
}

#[test]
fn a_generic_job_keeps_its_bounds() {
    #[derive(Job)]
    #[job(type = "wrap", output = [T; N])]
    struct Wrap<T: Copy = u8, const N: usize = 2>([T; N])
    where
        T: Default;

    assert_takes_and_produces::<Wrap, (), [u8; 2]>();
}

#[test]
fn the_library_may_be_found_elsewhere() {
    #[derive(Job)]
    #[job(type = "bare", crate = crate::harbor, priority = 1)]
    struct Bare;
    #[derive(Job)]
    #[job(type = "quoted", crate = "crate::harbor", priority = 1)]
    struct Quoted;

    assert_eq!(Bare::options(), Quoted::options());
}

#[test]
fn values_may_come_from_a_macro() {
    macro_rules! job {
        ($name:ident, $type:literal, $output:ty, $priority:literal, $library:path) => {
            #[derive(Job)]
            #[job(type = $type, output = $output, priority = $priority, crate = $library)]
            struct $name;
        };
    }
    macro_rules! low_job {
        ($name:ident) => {
            #[derive(Job)]
            #[job(type = "low", priority = -8, crate = $crate::harbor)]
            struct $name;
        };
    }
    job!(Made, "made", Option<u8>, -7, crate::harbor);
    low_job!(Low);

    assert_eq!(Made::TYPE, "made");
    assert_takes_and_produces::<Made, (), Option<u8>>();
    assert_eq!((Made::options().priority, Low::options().priority), (Some(-7), Some(-8)));
}
