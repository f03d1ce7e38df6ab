//! What is asked for, with all defaults filled in, and which search mode answers it by which program.

use loadmaster_launchers::Rules;
use loadmaster_proto::model::Model;
use loadmaster_proto::plan::constraints::Constraints;
use loadmaster_proto::plan::objective::{NodeSpanning, Objective, PlanShape, SearchMode};
use loadmaster_proto::training::{RecomputePolicy, Schedule};

use loadmaster_search::cost::Batch;
use loadmaster_search::{Cuts, Fleet, Spanning, Unit, memory, simulated};
use loadmaster_simulate::Overlap;

/// Most micro-batch sizes of one request.
pub const MAX_BATCHES: usize = 1_000;

/// A recommendation that is asked for.
#[derive(Debug, Clone)]
pub struct Criteria {
    /// What the plan should be best at.
    pub objective: Objective,
    /// The shape that the search is restricted to.
    pub shape: PlanShape,
    /// What the framework can run; none without a framework.
    pub rules: Option<Rules>,
    /// What else restricts the plans. Batches, schedules and recompute policies are those below.
    pub constraints: Constraints,
    /// Micro-batch sizes and counts to choose from, ascending by size.
    pub batches: Vec<Batch>,
    /// A device of a stage takes no fewer samples of a micro-batch, unless the whole micro-batch has fewer: seconds
    /// of fewer were not profiled. 1 restricts nothing.
    pub least_share: u32,
    /// Orders of the passes to choose from.
    pub schedules: Vec<Schedule>,
    /// Recompute policies to choose from.
    pub recompute: Vec<RecomputePolicy>,
    /// Replicas may divide optimizer states, where the request does not say so.
    pub may_shard: bool,
    /// Stages of several shards divide activations along the sequence, as the profiled training did.
    pub sequence_parallel: bool,
    /// Whether transfers overlap computing.
    pub overlap: Overlap,
    /// The unit in which peaks are compared.
    pub unit: Unit,
    /// How to search.
    pub mode: SearchMode,
    /// Seed of randomized modes.
    pub seed: u64,
    /// Where the chain may be cut, and what is pinned where: the request's own restrictions, the framework's not
    /// included.
    pub cuts: Cuts,
    /// Layers are kept together that need not be, because the chain is too long to search layer by layer.
    pub is_merged: bool,
    /// Devices stay in the order in which they were named; otherwise nodes may be taken in any order.
    pub keeps_order: bool,
    /// How many plans to return besides the best.
    pub alternatives: usize,
    /// Without baselines and the cost of restrictions.
    pub brief: bool,
    /// How many times the usual effort a search may take: one unless the request names its seconds.
    pub efforts: u64,
}

/// Restricts where a model is cut to where a framework cuts it.
///
/// # Errors
/// The framework cannot run such a model; the text says why and what to do.
pub(crate) fn restrict(cuts: &mut Cuts, rules: &Rules, model: Option<&Model>) -> Result<(), String> {
    rules.kept_together(model, cuts.layers())?.into_iter().for_each(|layers| cuts.keep_together(layers));
    Ok(())
}

impl Criteria {
    /// Where the chain may be cut, the framework's restrictions included.
    ///
    /// # Errors
    /// The framework cannot run the model.
    pub fn cuts_for(&self, model: Option<&Model>) -> Result<Cuts, String> {
        let mut cuts = self.cuts.clone();
        if let Some(rules) = &self.rules {
            restrict(&mut cuts, rules, model)?;
            if let Some(after) = self.constraints.cut_after.iter().find(|&&after| !cuts.may_end(after)) {
                return Err(format!(
                    "{} cannot end a stage after layer {after}, because this framework splits the model only between \
                     transformer blocks",
                    rules.framework
                ));
            }
        }
        Ok(cuts)
    }

    /// The same with this micro-batch alone.
    pub(crate) fn of_batch(&self, batch: Batch) -> Self {
        let constraints = Constraints { micro_batch_sizes: Vec::new(), ..self.constraints.clone() };
        Self { batches: vec![batch], constraints, ..self.clone() }
    }

    /// The same with 1F1B instead of GPipe; none where GPipe is not the only schedule, or the framework has no other.
    pub(crate) fn in_1f1b(&self) -> Option<Self> {
        let may_alternate = self.rules.is_none_or(|rules| rules.schedules.contains(&Schedule::OneFOneB));
        let is_gpipe = self.schedules == [Schedule::Gpipe];
        (is_gpipe && may_alternate).then(|| Self { schedules: vec![Schedule::OneFOneB], ..self.clone() })
    }

    /// Whether a stage may take devices of several nodes: as asked, else anything for one grid, whose replicas
    /// and stages go where the ranks go, and never for stages that differ (CAPTURE, III-C).
    pub fn spanning(&self) -> Spanning {
        match (self.constraints.spanning, self.shape) {
            (Some(NodeSpanning::Never), _) => Spanning::Never,
            (Some(NodeSpanning::WholeNodes), _) => Spanning::WholeNodes,
            (Some(NodeSpanning::Anywhere), _) | (None, PlanShape::UniformGrid) => Spanning::Anywhere,
            (None, _) => Spanning::Never,
        }
    }

    /// The same for these devices: those of one machine may all be in one stage.
    pub fn spanning_on(&self, fleet: &Fleet) -> Spanning {
        if fleet.is_one_node { Spanning::Anywhere } else { self.spanning() }
    }

    /// Whether the framework starts equally many processes on every node.
    pub fn starts_evenly(&self) -> bool {
        self.rules.is_some_and(|rules| rules.even_nodes)
    }

    /// Whether the framework can start ranks on these devices of a fleet, in their order.
    pub fn may_start_on(&self, fleet: &Fleet, ranks: impl IntoIterator<Item = u32>) -> bool {
        !self.starts_evenly() || fleet.is_machine_by_machine(ranks)
    }

    /// The numbers of stages to choose from.
    pub fn stage_counts(&self, layers: usize) -> std::ops::RangeInclusive<usize> {
        let least = self.constraints.min_stages.unwrap_or(1);
        least..=self.constraints.max_stages.unwrap_or(layers).min(layers)
    }

    /// The same without what a shape or a framework forbids: what the best plan would be that any runtime could
    /// run.
    #[must_use]
    pub fn free(&self) -> Self {
        // What a restricted stage may span, a free one may as well: the free space holds the restricted one.
        Self {
            shape: PlanShape::PerStageMesh,
            rules: None,
            // A program of a paper searches a part of the free plans alone.
            mode: SearchMode::Exact,
            alternatives: 0,
            brief: true,
            ..self.spanning_as(self.spanning())
        }
    }

    /// The same with this spanning.
    #[must_use]
    pub fn spanning_as(&self, spanning: Spanning) -> Self {
        let spanning = match spanning {
            Spanning::Never => NodeSpanning::Never,
            Spanning::WholeNodes => NodeSpanning::WholeNodes,
            Spanning::Anywhere => NodeSpanning::Anywhere,
        };
        let constraints = Constraints { spanning: Some(spanning), ..self.constraints.clone() };
        Self { constraints, ..self.clone() }
    }

    /// Whether shape or framework restrict anything that [`Self::free`] does not.
    pub fn is_restricted(&self) -> bool {
        self.shape != PlanShape::PerStageMesh || self.rules.is_some()
    }
}

/// Returns name and version of the search that answers criteria.
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

/// Checks that the mode of criteria answers its objective and shape.
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
                    "the search mode {mode} minimizes only the peak memory. Use the objective min-peak-memory without a time \
                     limit, or the mode exact"
                ));
            }
            if mode != SearchMode::Capture && shape != PlanShape::SinglePipeline {
                return Err(format!(
                    "the search mode {mode} supports only one device per stage. Use the layout single-pipeline, or the mode \
                     capture or exact"
                ));
            }
            Ok(())
        }
        SearchMode::Amp | SearchMode::AmpAnnealing => {
            if objective != Objective::MinIterationTime {
                return Err(format!(
                    "the search mode {mode} minimizes only the iteration time. Use the objective min-iteration-time, or the \
                     mode exact"
                ));
            }
            if !PlanShape::UniformGrid.includes(shape) {
                return Err(format!(
                    "the search mode {mode} needs the layout uniform-grid. Use this layout, or the mode exact"
                ));
            }
            Ok(())
        }
    }
}
