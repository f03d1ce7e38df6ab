//! What is measured, and how: runs, what they need and how long they take, and the protocol of the rank that trains them.

pub mod chunked;
pub mod disturbance;
pub mod environment;
pub mod failure;
pub mod host;
pub mod links;
pub mod measurement;
pub mod offload;
pub mod rank;
pub mod run;
pub mod trace;
mod wire;
