//! Failed jobs, grouped.
