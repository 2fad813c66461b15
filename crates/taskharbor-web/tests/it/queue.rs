//! Queues, limits and lanes.
