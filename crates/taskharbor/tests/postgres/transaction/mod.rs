//! Jobs in the application's own transactions, whichever library it opens them with: `crate::library`.

mod ack;
mod app;
mod conflict;
mod hint;
mod stress;
mod within;
