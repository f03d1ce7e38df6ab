//! Plans on the very nodes that a scheduler gave.

use serde::{Deserialize, Serialize};

use crate::error::Invalid;
use crate::model::layer::fingerprint;
use crate::name::{ClusterName, PlacementName, PlanName};
use crate::plan::PlacedDevice;
use crate::warning::{self, Warning};
use crate::wire::v1;

/// Which device runs which rank of a plan. It never changes: its name follows from all of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// The plan.
    pub plan: PlanName,
    /// The cluster that describes the nodes; none where none does.
    pub cluster: Option<ClusterName>,
    /// By stage, in the order of its ranks.
    pub stages: Vec<Vec<PlacedDevice>>,
    /// Devices without a rank, `node/index`.
    pub idle: Vec<String>,
    /// Simulated seconds of an iteration; none where no one can tell.
    pub seconds: Option<f64>,
    /// The same as it was planned.
    pub planned: Option<f64>,
    /// No way to bind is faster.
    pub least: Option<f64>,
    /// Whether this was proved to be the fastest way.
    pub is_proven: bool,
    /// By how much the fastest may be faster, as a share of `seconds`.
    pub gap: Option<f64>,
    /// Where the speeds of the links come from, human-readable.
    pub links: String,
    /// What to know, human-readable.
    pub warnings: Vec<Warning>,
}

impl Placement {
    /// The name that follows from all of it.
    ///
    /// # Errors
    /// Never: a fingerprint is a valid id.
    pub fn name(&self) -> Result<PlacementName, Invalid> {
        PlacementName::from_id(&fingerprint(self)[..16])
    }

    /// The nodes that have ranks, in the order of these.
    pub fn nodes(&self) -> Vec<String> {
        let mut seen = std::collections::HashSet::new();
        let devices = self.stages.iter().flatten();
        devices.map(|device| &device.node).filter(|&node| seen.insert(node)).cloned().collect()
    }
}

impl From<&Placement> for v1::Placement {
    /// All but its name and when it was stored.
    fn from(placement: &Placement) -> Self {
        Self {
            stages: placement
                .stages
                .iter()
                .map(|devices| v1::PlacedStage {
                    device_ranges: v1::DeviceRange::of(devices.iter().map(Into::into)),
                })
                .collect(),
            idle_devices: placement.idle.clone(),
            ..placement.in_short()
        }
    }
}

impl Placement {
    /// Without its stages and idle devices, as lists show it.
    pub fn in_short(&self) -> v1::Placement {
        v1::Placement {
            plan: self.plan.to_string(),
            cluster: self.cluster.as_ref().map(ToString::to_string).unwrap_or_default(),
            nodes: self.nodes(),
            iteration_seconds: self.seconds,
            planned_iteration_seconds: self.planned,
            best_bound_seconds: self.least,
            optimal: self.is_proven,
            optimality_gap: self.gap,
            link_speed_origin: self.links.clone(),
            warnings: warning::sent(&self.warnings),
            ..v1::Placement::default()
        }
    }
}
