//! Jobs that are enqueued and acknowledged in the user's own transaction.

mod open;
mod within;
