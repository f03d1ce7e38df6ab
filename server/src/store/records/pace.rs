//! How long runs took.

/// The mean of some earlier runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// How many they were.
    pub runs: u32,
    /// How long each of them held each of its devices, seconds.
    pub seconds: f64,
    /// They were of the model that was asked about.
    pub same_model: bool,
}
