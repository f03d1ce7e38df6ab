//! The real daemon, against a fake planner on a real socket and fake rank programs.
//!
//! The planner is fake so that tests decide what it says and when it is away; the rank programs are
//! shell scripts, because what matters here is what a *process* can do: crash, hang, leave children.
//! The real planner and the real rank meet the daemon in the end-to-end tests.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test ends where its helpers fail")]

mod commands;
mod cores;
mod harness;
mod host_memory;
mod leases;
mod links;
mod outcomes;
mod parallel;
mod planner;
mod shutdown;
mod start;
