//! The gRPC services: checked requests in, planning and store in the middle, messages out.
//!
//! A handler's future is dropped when its caller hangs up, so nothing that must finish runs inside
//! one: the store runs its transactions in tasks of their own.

mod blocking;
mod calls;
mod cluster;
mod error;
mod estimate;
mod imports;
mod limits;
mod messages;
mod model;
mod operations;
mod page;
mod plan;
mod profile;
mod serve;
mod transport;
mod worker;

pub use error::ApiError;
pub use serve::{Served, Services};
pub use transport::Limits;
