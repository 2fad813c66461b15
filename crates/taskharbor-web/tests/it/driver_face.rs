//! The contract over HTTP.
