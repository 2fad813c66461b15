//! What each role may do.
