//! The overview and the events.
