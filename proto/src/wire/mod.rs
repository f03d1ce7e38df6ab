//! Messages and services as they travel, and the bounds of all that comes from outside.

pub mod address;
pub mod call;
pub mod codec;
mod message;
pub mod reading;
mod request;
mod value;

pub use value::{FromWire, ToWire, field};

#[allow(
    missing_docs,
    rustdoc::all,
    clippy::all,
    clippy::pedantic,
    clippy::or_fun_call,
    unreachable_pub,
    missing_debug_implementations,
    rust_2018_idioms
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/wire.rs"));
}

pub use generated::google;
pub use generated::loadmaster::v1;

/// The protocol between worker and planner.
pub use generated::loadmaster::worker::v1 as worker_v1;

/// `google.longrunning`.
pub use generated::google::longrunning;

/// Every message and service, custom options included, as an encoded `FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
