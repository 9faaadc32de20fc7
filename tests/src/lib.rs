//! How we know.
