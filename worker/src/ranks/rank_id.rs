//! Which rank of a run.

use std::fmt;

use loadmaster_proto::measure::run::RankPosition;

/// A rank of a run: a device of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RankId {
    pub(super) stage_index: u32,
    /// Which device of the stage.
    pub(super) shard: u32,
    /// Devices of the stage.
    pub(super) devices: u32,
}

impl RankId {
    /// The rank in this place.
    pub(super) fn of(place: &RankPosition) -> Self {
        Self {
            stage_index: place.position.stage_index,
            shard: place.shard,
            devices: place.position.stage.devices(),
        }
    }
}

/// `stage 2`, or `stage 2, shard 1` where the stage has several devices.
impl fmt::Display for RankId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stage {}", self.stage_index)?;
        if self.devices > 1 { write!(f, ", shard {}", self.shard) } else { Ok(()) }
    }
}
