//! What the store promises, on a real Postgres: one module for each promise.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "what fails here fails the test")]

mod clock;
mod clusters;
mod delete;
mod documents;
mod embedded;
mod find;
mod hazards;
mod host_memory;
mod links;
mod lists;
mod purge;
mod queue;
mod reuse;
mod rows;
mod schedule;
mod searches;
mod sessions;
mod support;
mod trials;
