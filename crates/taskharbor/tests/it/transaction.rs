//! Jobs that are enqueued and acknowledged in the user's own transaction.

mod ack;
mod open;
mod uncertain;
mod within;
