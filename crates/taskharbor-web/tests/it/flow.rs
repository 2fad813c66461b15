//! Flows and their graphs.
