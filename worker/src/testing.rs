//! What tests of several modules are made of.

use std::time::Duration;

use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::name::RunName;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_samples::cpu_slot;
pub(crate) use loadmaster_samples::run as spec;

use crate::run::{Claim, Lease};

pub(crate) fn named(run: &str, token: i64) -> Claim {
    Claim { run: RunName::from_id(run).unwrap(), token }
}

/// A lease of so many slots for a minute.
pub(crate) fn lease(slots: u32) -> Lease {
    Lease {
        claim: named("one", 1),
        devices: (0..slots).map(cpu_slot).collect(),
        deadline: Duration::from_secs(60),
    }
}

/// A measurement of a stage.
pub(crate) fn measurement(stage_index: u32) -> Box<Measurement> {
    let alone = loadmaster_samples::measurement(StageConfig::single(0, 0));
    Box::new(Measurement { stage_index, stage_count: 3, solo: false, ..alone })
}
