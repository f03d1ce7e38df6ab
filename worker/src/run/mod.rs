//! A run, as everybody in the daemon speaks of it.

pub(crate) mod job;
