//! Why a rank ends without a measurement, and the exit code that says so.

use loadmaster_proto::error::Invalid;
use loadmaster_proto::measure::failure::OutOfMemory;
use loadmaster_proto::measure::rank::{
    EXIT_BAD_SPEC, EXIT_LOST_NEIGHBOUR, EXIT_OUT_OF_MEMORY, EXIT_WRONG_LIBTORCH,
};
use tch::TchError;

use crate::ffi::{GpuFailure, ShimError};

/// Why a rank ends without a measurement.
#[derive(Debug, thiserror::Error)]
pub enum RankError {
    /// The specification is not one, or its numbers cannot be.
    #[error("{0}")]
    BadSpec(Invalid),
    /// The device is too small.
    #[error(
        "out of memory: {} requested while {} of {} were in use",
        .0.asked, .0.held, .0.allowed
    )]
    OutOfMemory(OutOfMemory),
    /// A neighbour is gone or never came.
    #[error("{0}; this rank is not the cause")]
    LostNeighbour(String),
    /// The loaded libtorch is not the one that this program was built for.
    #[error(
        "libtorch {loaded} is loaded, but this program is built for {compiled}. Install libtorch {compiled}."
    )]
    WrongLibtorch {
        /// Version found.
        loaded: String,
        /// Version wanted.
        compiled: String,
    },
    /// A neighbour sent something else than agreed.
    #[error("{0}")]
    Protocol(String),
    /// libtorch refused.
    #[error("libtorch: {}", first_lines(.0))]
    Torch(#[from] TchError),
    /// libtorch refused.
    #[error("libtorch: {0}")]
    Shim(#[from] ShimError),
    /// A GPU or its driver refused.
    #[error("{0}")]
    Gpu(#[from] GpuFailure),
    /// A defect of this program or of its machine.
    #[error("{0}")]
    Other(String),
}

impl RankError {
    /// The exit code for the daemon.
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::BadSpec(_) => EXIT_BAD_SPEC,
            Self::OutOfMemory(_) => EXIT_OUT_OF_MEMORY,
            Self::LostNeighbour(_) => EXIT_LOST_NEIGHBOUR,
            Self::WrongLibtorch { .. } => EXIT_WRONG_LIBTORCH,
            Self::Protocol(_) | Self::Torch(_) | Self::Shim(_) | Self::Gpu(_) | Self::Other(_) => 1,
        }
    }
}

impl From<Invalid> for RankError {
    fn from(invalid: Invalid) -> Self {
        Self::BadSpec(invalid)
    }
}

/// libtorch's messages end in a C++ back trace, which no one wants to read.
fn first_lines(error: &TchError) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("Internal torch error: ").unwrap_or(&text);
    text.split("\nException raised from").next().unwrap_or(text).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_traces_are_cut_off() {
        let error = RankError::from(TchError::Torch(
            "shape mismatch\nException raised from add at x.cpp:1\nframe #0: …".to_owned(),
        ));
        assert_eq!(error.to_string(), "libtorch: shape mismatch");
    }
}
