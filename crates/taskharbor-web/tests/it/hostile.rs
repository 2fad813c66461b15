//! Requests that make no sense: each is refused with a problem, and nothing changes.
