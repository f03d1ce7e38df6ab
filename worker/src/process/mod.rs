//! Processes that the daemon starts: their groups, what the kernel says of them, what they write, and the folders
//! that they work in.

pub(crate) mod exit;
pub(crate) mod folder;
pub(crate) mod group;
pub(crate) mod kernel;
pub(crate) mod spawn;
pub(crate) mod tail;
