//! What verbs work with: the planner at the other end, and the user who waits.

pub(crate) mod address;
pub(crate) mod client;
pub(crate) mod context;
pub(crate) mod export;
pub(crate) mod follow;
mod hints;
pub(crate) mod list;
pub(crate) mod page;
mod progress;
pub(crate) mod watch;
