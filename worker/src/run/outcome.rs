//! What became of a run.

use loadmaster_proto::measure::failure::{FailureKind, OutOfMemory, RunFailure};
use loadmaster_proto::measure::links::LinkMeasurement;
use loadmaster_proto::measure::measurement::Measurement;

/// How a run ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// With a measurement per rank, in order of the stages and their devices.
    Measured(Vec<Measurement>),
    /// With how fast the devices exchange bytes.
    Links(Box<LinkMeasurement>),
    /// Without.
    Failed(RunFailure),
    /// The daemon was told to stop it.
    Stopped,
}

/// This worker cannot do it now: another one, or this one later, can.
pub(crate) fn handed_back(message: impl Into<String>) -> RunFailure {
    RunFailure { kind: FailureKind::HandedBack, message: message.into(), stage_index: None }
}

/// Nothing of it was done, and that counts as an attempt.
pub(crate) fn not_started(message: impl Into<String>) -> RunFailure {
    RunFailure { kind: FailureKind::NotStarted, message: message.into(), stage_index: None }
}

/// Where memory was lacking, and how much, for messages.
pub(crate) fn describe(oom: &OutOfMemory) -> String {
    let layer = oom.layer.map(|layer| format!(" of layer {layer}")).unwrap_or_default();
    format!(
        "in {}{layer}: asked for {} while holding {} of {} ({} ledger)",
        oom.phase.as_str(),
        oom.asked,
        oom.held,
        oom.allowed,
        oom.ledger.as_str()
    )
}
