//! The gRPC services: checked requests in, planning and store in the middle, messages out.
//!
//! A handler's future is dropped when its caller hangs up, so nothing that must finish in several steps runs inside
//! one. Every write of the store is one statement, which the database ends or never began. What follows from it is done
//! by whoever looks next.

mod blocking;
mod calls;
mod changes;
mod cluster;
mod error;
mod history;
mod imports;
mod limits;
mod messages;
mod model;
mod operations;
mod page;
mod plan;
mod profile;
mod serve;
mod server;
mod transport;
mod worker;

pub use error::ApiError;
pub(crate) use error::document_errors_at;
pub use serve::{Served, Services};
pub use server::Settings;
pub use transport::Limits;
pub(crate) use transport::serve_pages;
