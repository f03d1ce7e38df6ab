//! What each search mode answers, and by which program.

use loadmaster_proto::plan::objective::{Objective, PlanShape, SearchMode};

use crate::problem::Criteria;
use loadmaster_search::{memory, simulated};

/// Name and version of the search that answers criteria.
pub(crate) fn solver(criteria: &Criteria) -> String {
    match (criteria.mode, criteria.objective) {
        (SearchMode::Exact, Objective::MinIterationTime | Objective::Pareto) => simulated::SOLVER.to_owned(),
        (SearchMode::Exact, _) if criteria.constraints.max_iteration_seconds.is_some() => {
            simulated::SOLVER.to_owned()
        }
        (SearchMode::Exact, _) => memory::SOLVER.to_owned(),
        (mode, _) => format!("{mode}/1"),
    }
}

/// Whether the mode of criteria answers its objective and shape.
///
/// # Errors
/// It does not; the text says what it answers.
pub(crate) fn check_mode(criteria: &Criteria) -> Result<(), String> {
    let (objective, shape, mode) = (criteria.objective, criteria.shape, criteria.mode);
    let limited = criteria.constraints.max_iteration_seconds.is_some();
    match mode {
        // Of named stages, which are not searched.
        SearchMode::Exact | SearchMode::Mpress => Ok(()),
        SearchMode::Capture | SearchMode::McapBruteForce | SearchMode::McapBayesian => {
            let is_memory = objective == Objective::MinPeakMemory && !limited;
            if !is_memory {
                return Err(format!(
                    "the search mode {mode} minimises the peak memory alone: ask for min-peak-memory without a time \
                     limit, or for the mode exact"
                ));
            }
            if mode != SearchMode::Capture && shape != PlanShape::SinglePipeline {
                return Err(format!(
                    "the search mode {mode} knows one device per stage: ask for the shape single-pipeline, or for \
                     the mode capture or exact"
                ));
            }
            Ok(())
        }
        SearchMode::Amp | SearchMode::AmpAnnealing => {
            if objective != Objective::MinIterationTime {
                return Err(format!(
                    "the search mode {mode} minimises the iteration time: ask for min-iteration-time, or for the mode \
                     exact"
                ));
            }
            if !PlanShape::UniformGrid.includes(shape) {
                return Err(format!(
                    "the search mode {mode} knows uniform grids alone: ask for the shape uniform-grid"
                ));
            }
            Ok(())
        }
    }
}
