//! The Loadmaster planner.
//!
//! What it plans by is in the crates of `server/planning`, the verbs that ask it are in `loadmaster-cli`.
//!
//! * [`store`]: all durable state, in Postgres; [`embedded`] Postgres when none is given.
//! * [`profile`]: what a stored profile says, by the rules of planning.
//! * [`document`]: profiles as documents, out of this planner and into it.
//! * [`dispatch`]: hands queued runs to connected workers under fenced leases.
//! * [`rpc`]: the gRPC services.
//! * [`retention`]: how long history is kept.
//! * [`serve`]: from [`config`] to a serving planner and back.
//! * [`program`]: the command line of the `loadmaster` program.

mod background;
pub mod config;
pub mod dispatch;
pub mod document;
pub mod embedded;
pub mod profile;
pub mod program;
pub mod retention;
pub mod rpc;
mod safe_files;
pub mod serve;
pub mod store;
