//! Why a run ended without a result, and in which phase.

use serde::{Deserialize, Serialize};

use crate::accounting::Accounting;
use crate::bytes::Bytes;
use crate::choice;

/// Why an attempt ended without a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFailure {
    /// What happened.
    #[serde(flatten)]
    pub kind: FailureKind,
    /// Human-readable.
    pub message: String,
    /// Which stage's rank.
    pub stage_index: Option<u32>,
}

/// What ended an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FailureKind {
    /// A device's capacity was exceeded. A result: never retried blindly.
    OutOfMemory {
        /// Where, and by how much.
        out_of_memory: OutOfMemory,
    },
    /// A rank was killed by a signal.
    Crashed {
        /// The signal.
        signal: i32,
    },
    /// A rank reported nothing for too long, or the deadline passed.
    Hung,
    /// A rank ended with a non-zero exit code.
    Exited {
        /// The code.
        code: i32,
    },
    /// A rank could not start: program or libtorch missing or of another version.
    NotStarted,
    /// The lease expired.
    LeaseExpired,
    /// The worker handed it back.
    HandedBack,
    /// What the worker measured contradicts the run, so none of it was stored.
    ResultRefused,
}

/// Where a device's capacity was exceeded, and by how much.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutOfMemory {
    /// Bytes of the request that failed.
    pub asked: Bytes,
    /// Bytes held at that moment.
    pub held: Bytes,
    /// Bytes allowed.
    pub allowed: Bytes,
    /// Memory accounting of all three.
    pub ledger: Accounting,
    /// What the rank was doing.
    pub phase: Phase,
    /// The layer at work.
    pub layer: Option<usize>,
}

/// What a rank is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Making parameters and connecting.
    Setup,
    /// Forward pass.
    Forward,
    /// Backward pass.
    Backward,
    /// Optimizer step.
    Step,
    /// Exchanging tensors for nothing but their speed.
    Exchange,
}

choice! { Phase { Setup, Forward, Backward, Step, Exchange } }
