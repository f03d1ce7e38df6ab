//! Where the numbers of a document come from.

use serde::{Deserialize, Serialize};

use super::parse::checked_text;
use crate::accounting::{Accounting, of_device};
use crate::error::Invalid;
use crate::name::checked_kind;

/// Who measured, with what, on what. Only `source`, `tool` and `device_kind` are required; an empty text
/// says that is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// Who measured, or where the numbers were published: human-readable.
    pub source: String,
    /// The program that measured.
    pub tool: String,
    /// Its version or commit.
    #[serde(default)]
    pub tool_version: String,
    /// When, as RFC 3339 or a date.
    #[serde(default)]
    pub measured_at: String,
    /// Kind of device, as the driver names it: `NVIDIA H200`, `cpu`.
    pub device_kind: String,
    /// NVIDIA driver.
    #[serde(default)]
    pub driver_version: String,
    /// CUDA.
    #[serde(default)]
    pub cuda_version: String,
    /// Training framework: `torch`, `megatron-core`.
    #[serde(default)]
    pub framework: String,
    /// Its version.
    #[serde(default)]
    pub framework_version: String,
    /// Memory accounting of all byte counts that do not name one of their own.
    #[serde(deserialize_with = "of_device")]
    pub ledger: Accounting,
    /// Anything else that a reader should know, licence included.
    #[serde(default)]
    pub notes: String,
}

impl Provenance {
    /// Longest text of a field but the notes, bytes.
    const MAX_FIELD: usize = 512;
    /// Longest notes, bytes.
    const MAX_NOTES: usize = 16 << 10;

    pub(super) fn check(&self) -> Result<(), Invalid> {
        let Self {
            source,
            tool,
            tool_version,
            measured_at,
            device_kind,
            driver_version,
            cuda_version,
            framework,
            framework_version,
            ledger: _,
            notes,
        } = self;
        for (field, value) in [("source", source), ("tool", tool)] {
            checked_text(field, value, 1, Self::MAX_FIELD)?;
        }
        checked_kind("device_kind", device_kind)?;
        for (field, value) in [
            ("tool_version", tool_version),
            ("measured_at", measured_at),
            ("driver_version", driver_version),
            ("cuda_version", cuda_version),
            ("framework", framework),
            ("framework_version", framework_version),
        ] {
            checked_text(field, value, 0, Self::MAX_FIELD)?;
        }
        checked_text("notes", notes, 0, Self::MAX_NOTES)
    }
}
