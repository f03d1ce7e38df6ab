//! Small, sound values of the domain's types, which tests change where they look: whatever has many fields is written
//! out here and nowhere else.
//!
//! Not a feature of `loadmaster-proto`: with it on for the tests alone, everything would be built twice.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod bent;
mod cases;
mod chunks;
mod cube_mesh;
mod cut_transformer;
mod device;
mod differences;
mod document;
mod measurement;
mod settings;
mod tabled;

pub use bent::{Bent, bent};
pub use cases::cases;
pub use chunks::{chunked, visiting};
pub use cube_mesh::CUBE_MESH;
pub use cut_transformer::{CutTransformer, Degrees, DescribedTransformer};
pub use device::cpu_slot;
pub use differences::differences;
pub use document::{document, foreign, own};
pub use measurement::measurement;
pub use settings::{settings, training};
pub use tabled::TabledGpt2;
