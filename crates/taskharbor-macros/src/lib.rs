//! `derive(Job)`: a struct or an enum becomes a job that can be enqueued and handled. And `main`, for
//! programs with workers.
//!
//! Use them through the crate `taskharbor`, which exports the derive beside the trait of the same
//! name. Values that a worker would refuse at run time are refused at compile time: every value in
//! `#[job(…)]` is checked, and all errors are reported at once, each at its place.
//!
//! ```
//! # extern crate self as taskharbor;
//! # use std::time::Duration;
//! # pub trait Job {
//! #     const TYPE: &'static str;
//! #     type Input;
//! #     type Output;
//! #     fn options() -> Options;
//! # }
//! # #[derive(Debug, PartialEq)]
//! # pub struct Options(String, u32, Duration);
//! # impl Options {
//! #     pub fn new() -> Self { Self(String::new(), 0, Duration::ZERO) }
//! #     pub fn queue(self, it: &str) -> Self { Self(it.into(), self.1, self.2) }
//! #     pub fn max_attempts(self, it: u32) -> Self { Self(self.0, it, self.2) }
//! #     pub fn timeout(self, it: Duration) -> Self { Self(self.0, self.1, it) }
//! # }
//! # use taskharbor_macros::Job;
//! #[derive(Job)]
//! #[job(type = "email:send", queue = "mail", max_attempts = 5, timeout = "30s")]
//! struct SendEmail {
//!     to: String,
//! }
//!
//! # fn main() {
//! assert_eq!(SendEmail::TYPE, "email:send");
//! # assert_eq!(SendEmail::options(), Options("mail".into(), 5, Duration::from_secs(30)));
//! # }
//! ```

mod attribute;
mod entry;
mod expand;
mod lane;
mod value;

/// Implements `taskharbor::Job` with the values in `#[job(…)]`.
///
/// The keys may be spread over several `#[job(…)]`; each may be given once. Only `type` is
/// required.
///
/// | key | value | meaning |
/// |---|---|---|
/// | `type` | `"email:send"` | the name that is stored with every job and chooses its handler |
/// | `queue` | `"mail"` | the queue of the jobs. Defaults to `default` |
/// | `max_attempts` | `5` | after how many failed attempts a job is dead-lettered, from 1 to 2147483647. Defaults to the worker's retry policy |
/// | `timeout` | `"500ms"`, `"30s"`, `"5m"`, `"2h"` | how long one execution may take. Defaults to the worker's timeout |
/// | `priority` | `3`, `-3` | the priority, from -32768 to 32767: higher runs first. Defaults to 0 |
/// | `retry` | `Exponential::new()` | an expression: the retry policy of these jobs. Defaults to the worker's |
/// | `lane` | `"account_id"` | the name of a field, whose value as text is the lane of the job. Defaults to no lane |
/// | `input` | `Vec<u8>` | the type of the output of the step before it in a flow. Defaults to `()` |
/// | `output` | `Thumb` | the type of its handler's output. Defaults to `()` |
/// | `crate` | `my_crate::taskharbor` | the path of the library. Defaults to `::taskharbor` |
///
/// A name has 1 to 255 bytes, at least one visible character and no control characters.
///
/// A generic job needs bounds on its parameters that make it serializable, as `Job` requires; the
/// derive adds none. All its instances share one `type`.
#[proc_macro_derive(Job, attributes(job))]
pub fn derive_job(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    expand::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Runs an `async fn main` with `taskharbor::block_on`. It does the same as `#[tokio::main]`, but
/// the process ends when the function has returned, even if a handler blocks its thread.
#[proc_macro_attribute]
pub fn main(_: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    entry::expand(item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
