//! Campaigns: which runs a profile is made of.
//!
//! * [`minimal`], the default: each distinct layer alone, for the `component` predictor. A handful of runs
//!   of one device, whatever the depth of the model, that other profiles reuse.
//! * [`paper`]: CAPTURE's Description 1, whole partitionings over all devices, in up to five scenarios.
//!   About one run per layer, micro-batch size and scenario, each on all devices at once.
//! * [`stages`]: CAPTURE's metrics too, but each distinct stage alone, with synthetic edges. Twice as many
//!   stages, but identical ones are run once and the runs spread over all workers.

pub mod follow_up;
pub mod minimal;
pub mod neighbours;
pub mod paper;
pub mod planned;
pub mod remaining;
pub mod result;
pub mod runs;
pub mod scenarios;
pub mod stage_key;
pub mod stages;

use loadmaster_proto::measure::run::Campaign;
use loadmaster_proto::training::scenario::Scenario;

pub use paper::PaperCampaign;
pub use planned::{KeyedRun, PlannedRun, Purpose};
pub use stage_key::{distinct_layers, stage_key};
pub use stages::{Representative, StagesCampaign};

/// Why no campaign could be laid out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CampaignError {
    /// No device.
    #[error("a campaign needs at least 1 device")]
    NoDevices,
    /// A device would have no layer.
    #[error("more stages than layers: {devices} devices for {layers} layers")]
    MoreStagesThanLayers {
        /// Devices asked for.
        devices: usize,
        /// Layers of the model.
        layers: usize,
    },
    /// One or two devices cannot hold an inner layer alone while something holds the rest.
    #[error(
        "whole partitionings over {devices} device{} never place layers {first_layer} to {last_layer} \
         alone, so their isolated memory cannot be measured: use the `stages` campaign or at least 3 \
         devices",
        if *devices == 1 { "" } else { "s" }
    )]
    CannotIsolate {
        /// Devices asked for.
        devices: usize,
        /// First layer that is never alone.
        first_layer: usize,
        /// Last layer that is never alone.
        last_layer: usize,
    },
    /// Stages cannot be shared among so many devices.
    #[error("{devices} devices do not form sub-meshes of {} for {scenario}", scenario.degree)]
    NotDivisible {
        /// Devices asked for.
        devices: usize,
        /// The scenario.
        scenario: Scenario,
    },
    /// A layer cannot be split so often.
    #[error("{scenario}: layer {layer} ({name}) cannot be split so often: {why}")]
    NotSplit {
        /// The scenario.
        scenario: Scenario,
        /// Index of the layer.
        layer: usize,
        /// Its name.
        name: String,
        /// What does not divide.
        why: String,
    },
    /// More than anybody would train.
    #[error(
        "the campaign has {runs} runs for a model of {layers} layers, more than a planner lays out: use the \
         `minimal` campaign, or fewer scenarios"
    )]
    TooLarge {
        /// Runs of the campaign.
        runs: usize,
        /// Layers of the model.
        layers: usize,
    },
    /// A scenario of several devices cannot be laid out.
    #[error("{scenario}: {reason}")]
    Scenario {
        /// The scenario.
        scenario: Scenario,
        /// Why.
        reason: Box<CampaignError>,
    },
    /// Under 1F1B the stages of a partitioning hold different numbers of micro-batches.
    #[error(
        "under 1F1B the stages of one partitioning hold different numbers of micro-batches in flight, so \
         their peaks cannot be subtracted: use the `stages` campaign, or GPipe"
    )]
    InFlightVaries,
}

/// Checks the number of devices against the number of layers.
fn check_counts(layers: usize, devices: usize) -> Result<(), CampaignError> {
    if devices == 0 {
        return Err(CampaignError::NoDevices);
    }
    if devices > layers {
        return Err(CampaignError::MoreStagesThanLayers { devices, layers });
    }
    Ok(())
}

/// The micro-batch sizes to profile for a target, ascending.
///
/// * Single layers: half of the target and the target itself. They are small enough to be run there, and what
///   was recorded needs no line. Half of it is at least 2 where the target allows, because kernels choose
///   other algorithms for one sample than for several.
/// * Stages: a quarter and a half of the target, rounded down (CAPTURE, III-A2), at least 1 and 2.
///
/// A line needs two points, so the sizes differ whenever the target allows; a target of 1 gives 1 alone,
/// where nothing has to be scaled.
pub fn default_micro_batch_sizes(campaign: Campaign, target: u32) -> Vec<u32> {
    match (campaign, target) {
        (_, 0 | 1) => vec![1],
        (_, 2) => vec![1, 2],
        (Campaign::Minimal, _) => vec![(target / 2).max(2), target],
        (_, _) => vec![(target / 4).max(1), (target / 2).max(2)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two different sizes, none above the target, for every target that has two.
    #[test]
    fn default_sizes_differ_and_never_exceed_the_target() {
        for campaign in [Campaign::Minimal, Campaign::Paper, Campaign::Stages] {
            assert_eq!(default_micro_batch_sizes(campaign, 0), [1]);
            assert_eq!(default_micro_batch_sizes(campaign, 1), [1]);
            assert_eq!(default_micro_batch_sizes(campaign, 2), [1, 2]);
            for target in 2..200 {
                let sizes = default_micro_batch_sizes(campaign, target);
                assert!(sizes.len() == 2 && 1 <= sizes[0] && sizes[0] < sizes[1] && sizes[1] <= target);
            }
        }
    }

    /// The paper halves twice; single layers are run at the target, and not with one sample if it can be
    /// helped.
    #[test]
    fn stages_are_profiled_below_the_target_and_single_layers_up_to_it() {
        assert_eq!(default_micro_batch_sizes(Campaign::Paper, 92), [23, 46]);
        assert_eq!(default_micro_batch_sizes(Campaign::Stages, 4), [1, 2]);
        assert_eq!(default_micro_batch_sizes(Campaign::Minimal, 92), [46, 92]);
        assert_eq!(default_micro_batch_sizes(Campaign::Minimal, 3), [2, 3]);
    }
}
