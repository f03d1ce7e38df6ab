//! Campaigns: which runs a profile is made of.
//!
//! Two of them yield the same two metrics of every layer:
//!
//! * [`paper`]: CAPTURE's Description 1, whole partitionings over all devices. About one run per
//!   layer and micro-batch size, each on all devices at once.
//! * [`stages`]: each distinct stage alone on one device, with synthetic edges. Twice as many stages,
//!   but identical ones are run once and the runs spread over all workers.

pub mod paper;
pub mod stages;

pub use paper::PaperCampaign;
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
        "whole partitionings over {devices} device(s) never place layers {first_layer} to {last_layer} \
         alone, so their isolated memory cannot be measured: use the `stages` campaign or at least 3 \
         devices"
    )]
    CannotIsolate {
        /// Devices asked for.
        devices: usize,
        /// First layer that is never alone.
        first_layer: usize,
        /// Last layer that is never alone.
        last_layer: usize,
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

/// The micro-batch sizes to profile for a target, ascending: a quarter and a half of it, rounded
/// down (CAPTURE, III-A2).
///
/// A line needs two points, so the sizes differ whenever the target allows: the quarter is at least 1
/// and the half at least 2. A target of 2 or 3 therefore gives 1 and 2, and a target of 1 gives 1
/// alone, where nothing has to be scaled.
pub fn default_micro_batch_sizes(target: u32) -> Vec<u32> {
    if target < 2 { vec![1] } else { vec![(target / 4).max(1), (target / 2).max(2)] }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two different sizes, none above the target, for every target that has two.
    #[test]
    fn default_sizes_differ_and_never_exceed_the_target() {
        assert_eq!(default_micro_batch_sizes(0), [1]);
        assert_eq!(default_micro_batch_sizes(1), [1]);
        assert_eq!(default_micro_batch_sizes(2), [1, 2]);
        assert_eq!(default_micro_batch_sizes(8), [2, 4]);
        assert_eq!(default_micro_batch_sizes(92), [23, 46]);
        for target in 2..200 {
            let sizes = default_micro_batch_sizes(target);
            assert!(sizes.len() == 2 && 1 <= sizes[0] && sizes[0] < sizes[1] && sizes[1] <= target);
        }
    }
}
