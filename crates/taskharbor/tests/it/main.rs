//! The library as users see it, on the memory driver, in virtual time.

mod build;
mod client;
mod codec;
mod compile_fail;
