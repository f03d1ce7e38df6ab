//! The layout against what PatrickStar published, and against rules that are written once more here.

mod activations;
mod embedding;
mod golden;
mod models;
mod random;
mod requests;
