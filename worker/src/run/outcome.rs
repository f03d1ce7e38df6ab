//! What became of a run.

use loadmaster_proto::ledger::Ledger;
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

/// Where memory was lacking, and how much, for messages. What helps a device is said of the run's reason; the pool of
/// the host is as large as the plan says, whatever the size of the micro-batches.
pub(crate) fn describe(oom: &OutOfMemory) -> String {
    let remedy = match oom.ledger {
        Ledger::Host => ": plan with a larger pool in the host's memory, or with fewer actions that fill it",
        Ledger::Allocated | Ledger::Reserved | Ledger::Device => "",
    };
    let layer = oom.layer.map(|layer| format!(" of layer {layer}")).unwrap_or_default();
    format!(
        "in {}{layer}: asked for {} while holding {} of {} ({} ledger){remedy}",
        oom.phase.as_str(),
        oom.asked,
        oom.held,
        oom.allowed,
        oom.ledger.as_str()
    )
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::bytes::Bytes;
    use loadmaster_proto::measure::failure::Phase;

    use super::*;

    #[test]
    fn a_pool_of_the_host_that_is_too_small_comes_with_its_bytes_and_remedy() {
        let lack = OutOfMemory {
            asked: Bytes(3 << 20),
            held: Bytes(6 << 20),
            allowed: Bytes(8 << 20),
            ledger: Ledger::Host,
            phase: Phase::Forward,
            layer: Some(2),
        };
        assert_eq!(
            describe(&lack),
            "in forward of layer 2: asked for 3.00 MiB while holding 6.00 MiB of 8.00 MiB (host ledger): plan with a \
             larger pool in the host's memory, or with fewer actions that fill it"
        );
        assert!(describe(&OutOfMemory { ledger: Ledger::Reserved, ..lack }).ends_with("(reserved ledger)"));
    }
}
