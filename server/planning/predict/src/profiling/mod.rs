//! Profiling modes: which runs a profile is made of.
//!
//! * [`minimal`], the default: each distinct layer alone, for the `component` predictor. A handful of runs
//!   of one device, whatever the depth of the model, that other profiles reuse.
//! * [`paper`]: CAPTURE's Description 1, whole partitionings over all devices, in up to five scenarios.
//!   About one run per layer, micro-batch size and scenario, each on all devices at once.
//! * [`stages`]: CAPTURE's metrics too, but each distinct stage alone, with synthetic edges. Twice as many
//!   stages, but identical ones are run once and the runs spread over all workers.
//!
//! | module | question | paper |
//! |---|---|---|
//! | [`runs`] | what is the profiling of this profile, in which scenarios and micro-batch sizes, and what does each show? | III-A, III-B3 |
//! | [`chunk_run`](mod@chunk_run) | which run is made besides for plans in chunks? | |
//! | [`neighbours`] | with which other layers is a layer's added memory measured? | III-A1 |
//! | [`planned_run`] | what does a run measure, told apart from all others? | |
//! | [`remaining_runs`](mod@remaining_runs) | what is left to do of a profiling that was begun before? | |
//! | [`follow_up`](mod@follow_up) | which runs are needed besides, because some did not fit? | III-A1 |
//! | [`effort`] | how long will runs take, as others did? | |
//! | [`result`] | is what a worker measured what its run asked for? | |

pub mod chunk_run;
pub mod effort;
mod error;
pub mod follow_up;
pub mod minimal;
pub mod neighbours;
pub mod paper;
pub mod planned_run;
pub mod remaining_runs;
pub mod result;
pub mod runs;
pub mod stages;

use loadmaster_proto::measure::run::ProfilingMode;

pub use error::ProfilingError;
pub use paper::WholePipelineProfiling;
pub use planned_run::{KeyedRun, PlannedRun, Purpose};
pub use stages::{PerStageProfiling, Representative, distinct_layers, stage_key};

/// The micro-batch sizes to profile for a target, ascending.
///
/// * Single layers: half of the target and the target itself. They are small enough to be run there, and what
///   was recorded needs no line. Half of it is at least 2 where the target allows, because kernels choose
///   other algorithms for one sample than for several.
/// * Stages: a quarter and a half of the target, rounded down (CAPTURE, III-A2), at least 1 and 2.
///
/// A line needs two points, so the sizes differ whenever the target allows; a target of 1 gives 1 alone,
/// where nothing has to be scaled.
pub fn default_micro_batch_sizes(profiling_mode: ProfilingMode, target: u32) -> Vec<u32> {
    match (profiling_mode, target) {
        (_, 0 | 1) => vec![1],
        (_, 2) => vec![1, 2],
        (ProfilingMode::PerLayer, _) => vec![(target / 2).max(2), target],
        (_, _) => vec![(target / 4).max(1), (target / 2).max(2)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two different sizes, none above the target, for every target that has two.
    #[test]
    fn default_sizes_differ_and_never_exceed_the_target() {
        for profiling_mode in [ProfilingMode::PerLayer, ProfilingMode::WholePipeline, ProfilingMode::PerStage]
        {
            assert_eq!(default_micro_batch_sizes(profiling_mode, 0), [1]);
            assert_eq!(default_micro_batch_sizes(profiling_mode, 1), [1]);
            assert_eq!(default_micro_batch_sizes(profiling_mode, 2), [1, 2]);
            for target in 2..200 {
                let sizes = default_micro_batch_sizes(profiling_mode, target);
                assert!(sizes.len() == 2 && 1 <= sizes[0] && sizes[0] < sizes[1] && sizes[1] <= target);
            }
        }
    }

    /// The paper halves twice; single layers are run at the target, and not with one sample if it can be
    /// helped.
    #[test]
    fn stages_are_profiled_below_the_target_and_single_layers_up_to_it() {
        assert_eq!(default_micro_batch_sizes(ProfilingMode::WholePipeline, 92), [23, 46]);
        assert_eq!(default_micro_batch_sizes(ProfilingMode::PerStage, 4), [1, 2]);
        assert_eq!(default_micro_batch_sizes(ProfilingMode::PerLayer, 92), [46, 92]);
        assert_eq!(default_micro_batch_sizes(ProfilingMode::PerLayer, 3), [2, 3]);
    }
}
