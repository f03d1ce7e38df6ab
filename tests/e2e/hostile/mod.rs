//! Callers who mean harm, or are broken in ways that look like it: what they do costs nobody else anything.
//!
//! All of them come from the address of the caller who is to be served meanwhile, as they would behind a proxy.

mod answers;
mod calls;
mod connections;
mod disk;
mod lists;
mod meter;
mod names;
mod pages;
mod raw;
pub(crate) mod searches;
mod workers;
