//! One action on all jobs that match a filter.
