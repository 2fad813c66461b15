//! The worker face.
