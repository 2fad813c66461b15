//! Workers and evictions.
