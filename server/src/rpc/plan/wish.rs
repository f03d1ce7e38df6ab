//! What a request for a recommendation asks, checked.

use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::model::MAX_LAYERS;
use loadmaster_proto::name::checked_name;
use loadmaster_proto::plan::constraints::Constraints;
use loadmaster_proto::plan::objective::{Launcher, MemoryUnit, Objective, PlanShape, SearchMode};
use loadmaster_proto::training::overlap::Overlap;
use loadmaster_proto::training::stage::Partitioning;
use loadmaster_proto::training::{RecomputePolicy, Schedule, TrainingSpec};
use loadmaster_proto::wire::{field, v1};

use crate::rpc::error::ApiError;
use loadmaster_planning::recommend::{Batch, MAX_BATCHES, Rules, divisors};

/// Seconds of a search where the request names none.
const DEFAULT_SEARCH_SECONDS: f64 = 10.0;
/// Most seconds of a search: a call ends after a minute.
const MAX_SEARCH_SECONDS: f64 = 50.0;
/// Alternatives where the request names none, and the most of them.
const DEFAULT_ALTERNATIVES: usize = 3;
const MAX_ALTERNATIVES: i32 = 20;
/// Most samples of an iteration: the largest micro-batch, as often as it may come. Its divisors are tried one by one.
const MAX_GLOBAL_BATCH_SIZE: u64 =
    TrainingSpec::MAX_MICRO_BATCH_SIZE as u64 * TrainingSpec::MAX_MICRO_BATCHES as u64;
/// Longest version of a launcher.
const MAX_VERSION: usize = 100;

/// What is asked, as far as it can be told without the profile.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) objective: Objective,
    pub(super) is_objective_named: bool,
    pub(super) shape: PlanShape,
    pub(super) rules: Option<Rules>,
    pub(super) launcher: Option<Launcher>,
    pub(super) launcher_version: String,
    pub(super) constraints: Constraints,
    /// Whether transfers overlap computing; none where the request does not say.
    pub(super) overlap: Option<Overlap>,
    pub(super) unit: MemoryUnit,
    pub(super) mode: SearchMode,
    pub(super) seed: u64,
    pub(super) search_seconds: f64,
    pub(super) alternatives: usize,
    pub(super) brief: bool,
    pub(super) correct: bool,
    pub(super) merge_layers_to: Option<usize>,
    pub(super) partitioning: Option<Partitioning>,
    pub(super) is_micro_batch_named: bool,
    pub(super) is_schedule_named: bool,
    global_batch_size: u64,
    is_micro_batches_named: bool,
}

impl Asked {
    /// Checks a request.
    ///
    /// # Errors
    /// Names the field that is wrong, and what would be right.
    pub(super) fn of(request: &v1::RecommendPlanRequest) -> Result<Self, ApiError> {
        let objective: Option<Objective> = field("objective", request.objective)?;
        let launcher: Option<Launcher> = field("launcher", request.launcher)?;
        let rules = launcher.map(Rules::of);
        let named: Option<PlanShape> = field("shape", request.shape)?;
        let shape = named.or_else(|| rules.map(|rules| rules.shape)).unwrap_or_default();
        if let Some(rules) = rules.filter(|rules| !rules.shape.includes(shape)) {
            return Err(ApiError::ShapeUnsupported {
                launcher: rules.launcher,
                shape,
                required: rules.shape,
            });
        }
        let constraints = request.constraints.clone().unwrap_or_default();
        let constraints =
            Constraints::try_from(constraints).map_err(|invalid| invalid.under("constraints"))?;
        if !request.launcher_version.is_empty() {
            checked_name("launcher_version", &request.launcher_version, MAX_VERSION)?;
        }
        let partitioning = request.partitioning.clone().map(Partitioning::try_from).transpose();
        let asked = Self {
            objective: objective.unwrap_or_default(),
            is_objective_named: objective.is_some(),
            shape,
            rules,
            launcher,
            launcher_version: request.launcher_version.clone(),
            constraints,
            overlap: field("transfers", request.transfers)?,
            unit: field::<Option<_>, _>("memory_unit", request.memory_unit)?.unwrap_or_default(),
            mode: field::<Option<_>, _>("search_mode", request.search_mode)?.unwrap_or_default(),
            seed: field("search_seed", request.search_seed)?,
            search_seconds: search_seconds(request.search_seconds)?,
            alternatives: alternatives(request.alternatives)?,
            brief: request.brief,
            correct: request.correct,
            merge_layers_to: merge_layers_to(request.merge_layers_to)?,
            partitioning: partitioning.map_err(|invalid| invalid.under("partitioning"))?,
            is_micro_batch_named: request.micro_batch_size != 0,
            is_schedule_named: request.schedule != 0,
            global_batch_size: global_batch_size(request.global_batch_size)?,
            is_micro_batches_named: request.micro_batches != 0,
        };
        asked.check()?;
        Ok(asked)
    }

    fn check(&self) -> Result<(), Invalid> {
        let searches = [
            ("objective", self.is_objective_named),
            ("merge_layers_to", self.merge_layers_to.is_some()),
            ("search_mode", self.mode != SearchMode::Exact),
            ("constraints", self.constraints != Constraints::default()),
        ];
        if let Some((field, _)) = searches.iter().find(|(_, named)| *named && self.partitioning.is_some()) {
            return Err(Invalid::field(
                *field,
                "restricts a search, and `partitioning` leaves nothing to search: name one of the two",
            ));
        }
        let Some(rules) = &self.rules else { return Ok(()) };
        if self.constraints.recompute_per_stage && !rules.recompute_per_stage {
            return Err(Invalid::field(
                "constraints.recompute_per_stage",
                format!(
                    "is not possible with {}, which recomputes alike in all stages: leave it out, or name a \
                     launcher that can (colossal-ai, galvatron, torch-pipelining, alpa)",
                    rules.launcher
                ),
            ));
        }
        Ok(())
    }

    /// The fewest samples of a micro-batch that a device may take, where `smallest` is the fewest that were profiled:
    /// seconds below that are not known. It restricts nothing where no seconds decide, or the request names its
    /// micro-batches.
    pub(super) fn least_share(&self, smallest: Option<u32>) -> u32 {
        let is_named = self.is_micro_batch_named
            || self.is_batch_fixed()
            || !self.constraints.micro_batch_sizes.is_empty()
            || self.partitioning.is_some();
        let decides = self.is_timed() || self.constraints.max_iteration_seconds.is_some();
        smallest.filter(|_| decides && !is_named).unwrap_or(1).max(1)
    }

    /// What a least share left out of the plans that were looked at, for people; none where it left out nothing.
    /// `batches` are those that were looked at, on so many devices.
    pub(super) fn left_out(&self, batches: &[Batch], least_share: u32, devices: u32) -> Option<String> {
        let is_split = self.shape != PlanShape::SinglePipeline;
        let splits_too_far = |batch: &Batch| {
            let least = least_share.min(batch.micro_batch_size);
            let mut degrees = divisors(batch.micro_batch_size.into()).into_iter().skip(1);
            degrees
                .any(|data| data <= devices.into() && u64::from(batch.micro_batch_size) / data < least.into())
        };
        let is_left_out =
            least_share > 1 && (self.chooses_size() || is_split && batches.iter().any(splits_too_far));
        is_left_out.then(|| {
            format!(
                "micro-batches that leave a device fewer than {least_share} samples, the smallest number that was \
                 profiled, were not looked at: ask for them by name (`micro_batch_size`, \
                 `constraints.micro_batch_sizes`), or profile them"
            )
        })
    }

    /// Whether it asks for the fewest or cheapest devices: a smaller micro-batch may need fewer.
    fn counts_devices(&self) -> bool {
        matches!(self.objective, Objective::MinDevices | Objective::MinCost) && self.partitioning.is_none()
    }

    /// Whether it asks for the best in time.
    fn is_timed(&self) -> bool {
        matches!(self.objective, Objective::MinIterationTime | Objective::Pareto)
            && self.partitioning.is_none()
    }

    /// Whether the samples of an iteration and the number of passes leave one micro-batch size.
    fn is_batch_fixed(&self) -> bool {
        self.global_batch_size != 0 && self.is_micro_batches_named
    }

    /// Whether the micro-batch size is the search's own choice.
    fn chooses_size(&self) -> bool {
        (self.is_timed() || self.counts_devices() || self.objective == Objective::MaxBatch)
            && !self.is_micro_batch_named
            && !self.is_batch_fixed()
            && self.constraints.micro_batch_sizes.is_empty()
    }

    /// Micro-batch sizes and counts to choose from, ascending, where the training has these. What is not named leaves
    /// each device `least_share` samples.
    ///
    /// # Errors
    /// A size that does not divide the global batch, numbers that contradict each other, or no size that leaves the
    /// least share.
    pub(super) fn batches(&self, training: &TrainingSpec, least_share: u32) -> Result<Vec<Batch>, Invalid> {
        let (size, count) = (training.micro_batch_size, training.micro_batches);
        let samples = match self.global_batch_size {
            0 => training.global_batch_size(),
            samples => samples,
        };
        let batch = |field: &str, size: u32| {
            if !samples.is_multiple_of(u64::from(size)) {
                return Err(Invalid::field(
                    field,
                    format!(
                        "is {size}, must divide the {samples} samples of an iteration (global_batch_size)"
                    ),
                ));
            }
            let count = u32::try_from(samples / u64::from(size)).unwrap_or(u32::MAX);
            in_range("micro_batches", count, 1..=TrainingSpec::MAX_MICRO_BATCHES)
                .map(|micro_batches| Batch { micro_batch_size: size, micro_batches })
        };
        let named = &self.constraints.micro_batch_sizes;
        if !named.is_empty() {
            let each = named.iter().enumerate();
            return each
                .map(|(index, &size)| batch(&format!("constraints.micro_batch_sizes[{index}]"), size))
                .collect();
        }
        let one = |micro_batch_size| Batch { micro_batch_size, micro_batches: count };
        let is_timed = self.is_timed() || self.counts_devices();
        let fewest = self.constraints.data_degrees.iter().min().copied().unwrap_or(1);
        let least = least_share.saturating_mul(fewest);
        match self.objective {
            _ if self.global_batch_size == 0 && !is_timed && self.objective == Objective::MaxBatch => {
                Ok(sizes_to_try().filter(|&size| size >= least_share).map(one).collect())
            }
            _ if (is_timed || self.objective == Objective::MaxBatch) && !self.is_micro_batch_named => {
                let mut batches = dividing(samples);
                // Beside the samples of an iteration, the number of passes leaves one size.
                let is_count_fixed = self.is_batch_fixed();
                if is_count_fixed {
                    batches.retain(|batch| batch.micro_batches == count);
                }
                if batches.is_empty() {
                    let counts = match is_count_fixed {
                        true => format!("{count} (micro_batches)"),
                        false => format!("at most {}", TrainingSpec::MAX_MICRO_BATCHES),
                    };
                    let why = format!(
                        "is {samples}, which are not {counts} micro-batches of equal size, each of at most {} \
                         samples: name a number with other divisors",
                        TrainingSpec::MAX_MICRO_BATCH_SIZE
                    );
                    return Err(Invalid::field("global_batch_size", why));
                }
                if least_share > 1 {
                    batches.retain(|batch| batch.micro_batch_size >= least);
                }
                if batches.is_empty() {
                    let why = format!(
                        "must be named here: of the {samples} samples of an iteration every micro-batch leaves a \
                         device fewer than {least_share}, the smallest number that was profiled, whose seconds are not \
                         known; or profile a smaller micro-batch"
                    );
                    return Err(Invalid::field("micro_batch_size", why));
                }
                Ok(batches)
            }
            _ if self.global_batch_size == 0 => Ok(vec![one(size)]),
            _ => {
                let found = batch("micro_batch_size", size)?;
                if self.is_micro_batches_named && found.micro_batches != count {
                    let why = format!(
                        "is {samples}, but micro_batch_size × micro_batches is {}",
                        training.global_batch_size()
                    );
                    return Err(Invalid::field("global_batch_size", why));
                }
                Ok(vec![found])
            }
        }
    }

    /// Orders of the passes to choose from, where the training has this one.
    ///
    /// # Errors
    /// One that the launcher does not run.
    pub(super) fn schedules(&self, training: &TrainingSpec) -> Result<Vec<Schedule>, Invalid> {
        let named = !self.constraints.schedules.is_empty();
        let schedules = match (named, self.rules) {
            (true, _) => self.constraints.schedules.clone(),
            (false, Some(rules))
                if !self.is_schedule_named && !rules.schedules.contains(&training.schedule) =>
            {
                rules.schedules.iter().take(1).copied().collect()
            }
            (false, _) => vec![training.schedule],
        };
        if let Some(rules) = self.rules
            && let Some(other) = schedules.iter().find(|schedule| !rules.schedules.contains(schedule))
        {
            let field = if named { "constraints.schedules" } else { "schedule" };
            let runs: Vec<&str> = rules.schedules.iter().map(|schedule| schedule.as_str()).collect();
            return Err(Invalid::field(
                field,
                format!("is {}, {} runs {}", other, rules.launcher, runs.join(" and ")),
            ));
        }
        Ok(schedules)
    }

    /// Recompute policies to choose from, where the training has this one.
    pub(super) fn recompute(&self, training: &TrainingSpec) -> Vec<RecomputePolicy> {
        match self.constraints.recompute.as_slice() {
            [] => vec![training.recompute],
            named => named.to_vec(),
        }
    }
}

/// All micro-batch sizes that divide an iteration.
fn dividing(samples: u64) -> Vec<Batch> {
    let batches = divisors(samples).into_iter().filter_map(|size| {
        let micro_batch_size = u32::try_from(size).ok()?;
        let micro_batches = u32::try_from(samples / size).ok()?;
        let is_allowed = micro_batch_size <= TrainingSpec::MAX_MICRO_BATCH_SIZE
            && micro_batches <= TrainingSpec::MAX_MICRO_BATCHES;
        is_allowed.then_some(Batch { micro_batch_size, micro_batches })
    });
    batches.take(MAX_BATCHES).collect()
}

/// The micro-batch sizes that `OBJECTIVE_MAX_BATCH` tries where none are named: all to 64, then steps of an eighth
/// at most.
fn sizes_to_try() -> impl Iterator<Item = u32> {
    (1..64).chain((64..512).step_by(8)).chain((512..=4_096).step_by(64))
}

fn search_seconds(seconds: f64) -> Result<f64, Invalid> {
    if seconds == 0.0 {
        return Ok(DEFAULT_SEARCH_SECONDS);
    }
    if seconds > 0.0 && seconds <= MAX_SEARCH_SECONDS {
        return Ok(seconds);
    }
    let why = format!("is {seconds}, must be above 0 and at most {MAX_SEARCH_SECONDS}");
    Err(Invalid::field("search_seconds", why))
}

fn global_batch_size(samples: i64) -> Result<u64, Invalid> {
    let samples: u64 = field("global_batch_size", samples)?;
    in_range("global_batch_size", samples, 0..=MAX_GLOBAL_BATCH_SIZE)
}

fn alternatives(count: i32) -> Result<usize, Invalid> {
    match in_range("alternatives", count, -1..=MAX_ALTERNATIVES)? {
        0 => Ok(DEFAULT_ALTERNATIVES),
        -1 => Ok(0),
        count => Ok(count.unsigned_abs() as usize),
    }
}

fn merge_layers_to(left: i32) -> Result<Option<usize>, Invalid> {
    let most = i32::try_from(MAX_LAYERS).unwrap_or(i32::MAX);
    let left = in_range("merge_layers_to", left, 0..=most)?;
    Ok((left > 0).then(|| left.unsigned_abs() as usize))
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::training::{Optimizer, Precision};

    use super::*;

    const TRAINING: TrainingSpec = TrainingSpec {
        precision: Precision::Fp32,
        optimizer: Optimizer::Sgd { learning_rate: 0.1, momentum: 0.0, weight_decay: 0.0 },
        schedule: Schedule::Gpipe,
        micro_batch_size: 4,
        micro_batches: 6,
        recompute: RecomputePolicy::None,
        seed: 0,
    };

    fn asked(request: v1::RecommendPlanRequest) -> Asked {
        Asked::of(&request).unwrap()
    }

    fn sizes(request: v1::RecommendPlanRequest) -> Vec<(u32, u32)> {
        let batches = asked(request).batches(&TRAINING, 1).unwrap();
        batches.iter().map(|batch| (batch.micro_batch_size, batch.micro_batches)).collect()
    }

    /// Memory is planned for the batch that is asked for, time for the best division of the iteration.
    #[test]
    fn batches_follow_from_the_objective() {
        let some = v1::RecommendPlanRequest::default;
        assert_eq!(sizes(some()), [(4, 6)]);
        let objective = v1::Objective::MinIterationTime.into();
        let timed = sizes(v1::RecommendPlanRequest { objective, ..some() });
        assert_eq!(timed, [(1, 24), (2, 12), (3, 8), (4, 6), (6, 4), (8, 3), (12, 2), (24, 1)]);
        let fewest = v1::Objective::MinDevices.into();
        assert_eq!(sizes(v1::RecommendPlanRequest { objective: fewest, ..some() }), timed);
        let fixed = v1::RecommendPlanRequest { objective, micro_batch_size: 4, ..some() };
        assert_eq!(sizes(fixed), [(4, 6)]);
        let global = v1::RecommendPlanRequest { global_batch_size: 8, ..some() };
        assert_eq!(sizes(global), [(4, 2)]);
        let constraints = Some(v1::Constraints { micro_batch_sizes: vec![12, 2], ..Default::default() });
        assert_eq!(sizes(v1::RecommendPlanRequest { constraints, ..some() }), [(2, 12), (12, 2)]);
        let objective = v1::Objective::MaxBatch.into();
        let largest = sizes(v1::RecommendPlanRequest { objective, ..some() });
        assert_eq!((largest.first(), largest.last()), (Some(&(1, 6)), Some(&(4_096, 6))));
        assert!(largest.len() <= MAX_BATCHES && largest.is_sorted());
    }

    /// Numbers that contradict each other are named.
    #[test]
    fn batches_that_do_not_divide_are_refused() {
        let field = |request: v1::RecommendPlanRequest| {
            asked(request).batches(&TRAINING, 1).unwrap_err().violations()[0].field.clone()
        };
        let some = v1::RecommendPlanRequest::default;
        assert_eq!(field(v1::RecommendPlanRequest { global_batch_size: 9, ..some() }), "micro_batch_size");
        let constraints = Some(v1::Constraints { micro_batch_sizes: vec![4, 5], ..Default::default() });
        let listed = v1::RecommendPlanRequest { constraints, ..some() };
        assert_eq!(field(listed), "constraints.micro_batch_sizes[1]");
        let three = v1::RecommendPlanRequest { global_batch_size: 8, micro_batches: 6, ..some() };
        assert_eq!(field(three), "global_batch_size");
        let objective = v1::Objective::MinIterationTime.into();
        let prime = v1::RecommendPlanRequest { objective, global_batch_size: 1_000_003, ..some() };
        assert_eq!(field(prime), "global_batch_size");
        let counted =
            v1::RecommendPlanRequest { objective, global_batch_size: 8, micro_batches: 6, ..some() };
        assert_eq!(field(counted), "global_batch_size");
    }

    /// Where seconds decide, no micro-batch is chosen that leaves a device fewer samples than were profiled, unless the
    /// request names its micro-batches; what is left out, or that nothing is left, is told by name.
    #[test]
    fn sizes_below_what_was_profiled_are_chosen_only_by_name() {
        let some = v1::RecommendPlanRequest::default;
        let objective = v1::Objective::MinIterationTime.into();
        let timed = || v1::RecommendPlanRequest { objective, ..some() };
        let of = |request: v1::RecommendPlanRequest, smallest: u32| {
            let asked = asked(request);
            let least = asked.least_share(Some(smallest));
            let batches = asked.batches(&TRAINING, least)?;
            let told = asked.left_out(&batches, least, 4);
            Ok::<_, Invalid>((batches.iter().map(|batch| batch.micro_batch_size).collect::<Vec<_>>(), told))
        };
        let (sizes, told) = of(timed(), 4).unwrap();
        assert_eq!(sizes, [4, 6, 8, 12, 24]);
        assert!(
            told.is_some_and(
                |told| told.contains("fewer than 4 samples") && told.contains("micro_batch_size")
            )
        );
        let constraints = v1::Constraints { data_degrees: vec![4, 2], ..Default::default() };
        let replicas = v1::RecommendPlanRequest { constraints: Some(constraints), ..timed() };
        assert_eq!(of(replicas, 4).unwrap().0, [8, 12, 24], "two replicas take half of it each");
        let none = of(timed(), 32).unwrap_err();
        assert_eq!(none.violations()[0].field, "micro_batch_size");
        assert!(none.to_string().contains("fewer than 32"), "{none}");

        let sizes = v1::Constraints { micro_batch_sizes: vec![1, 2], ..Default::default() };
        let named = [
            v1::RecommendPlanRequest { micro_batch_size: 4, ..timed() },
            v1::RecommendPlanRequest { constraints: Some(sizes), ..timed() },
            v1::RecommendPlanRequest { global_batch_size: 24, micro_batches: 24, ..timed() },
        ];
        for request in named {
            let (sizes, told) = of(request, 8).unwrap();
            assert!(sizes[0] < 8 && told.is_none(), "{sizes:?} {told:?}");
        }
        assert_eq!(asked(timed()).least_share(None), 1, "nothing is known of a profile without times");
        assert_eq!(asked(some()).least_share(Some(4)), 1, "bytes have a margin of their own");
        let limited = v1::Constraints { max_iteration_seconds: 2.0, ..Default::default() };
        let limited = v1::RecommendPlanRequest { constraints: Some(limited), ..some() };
        assert_eq!(asked(limited).least_share(Some(4)), 4);
    }

    /// A launcher decides the shape and the schedule where the request does not, and refuses what it cannot run.
    #[test]
    fn launchers_decide_shape_and_schedule() {
        let launcher = v1::Launcher::Megatron.into();
        let some = || v1::RecommendPlanRequest { launcher, ..Default::default() };
        let megatron = asked(some());
        assert_eq!(megatron.shape, PlanShape::UniformGrid);
        assert_eq!(megatron.schedules(&TRAINING), Ok(vec![Schedule::OneFOneB]));
        let named = asked(v1::RecommendPlanRequest { schedule: v1::Schedule::Gpipe.into(), ..some() });
        assert_eq!(named.schedules(&TRAINING).unwrap_err().violations()[0].field, "schedule");
        let shape = v1::PlanShape::PerStageMesh.into();
        let refused = Asked::of(&v1::RecommendPlanRequest { shape, ..some() }).unwrap_err();
        assert!(matches!(refused, ApiError::ShapeUnsupported { required: PlanShape::UniformGrid, .. }));
        let constraints = Some(v1::Constraints { recompute_per_stage: true, ..Default::default() });
        let refused = Asked::of(&v1::RecommendPlanRequest { constraints, ..some() });
        assert!(matches!(refused, Err(ApiError::Invalid(_))));
    }

    /// Every number that a user may get wrong has its range.
    #[test]
    fn numbers_out_of_range_are_refused_by_field() {
        let field = |request: v1::RecommendPlanRequest| match Asked::of(&request).unwrap_err() {
            ApiError::Invalid(invalid) => invalid.violations()[0].field.clone(),
            other => panic!("{other}"),
        };
        let some = v1::RecommendPlanRequest::default;
        for seconds in [-1.0, f64::NAN, f64::INFINITY, 50.1] {
            let request = v1::RecommendPlanRequest { search_seconds: seconds, ..some() };
            assert_eq!(field(request), "search_seconds");
        }
        assert_eq!(field(v1::RecommendPlanRequest { alternatives: 21, ..some() }), "alternatives");
        assert_eq!(field(v1::RecommendPlanRequest { search_seed: -1, ..some() }), "search_seed");
        assert_eq!(field(v1::RecommendPlanRequest { objective: 99, ..some() }), "objective");
        assert_eq!(field(v1::RecommendPlanRequest { transfers: 3, ..some() }), "transfers");
        let samples = v1::RecommendPlanRequest { global_batch_size: 1 << 40, ..some() };
        assert_eq!(field(samples), "global_batch_size");
        let partitioning = Some((&Partitioning::from_sizes(&[1, 1]).unwrap()).into());
        let objective = v1::Objective::MinPeakMemory.into();
        assert_eq!(field(v1::RecommendPlanRequest { partitioning, objective, ..some() }), "objective");
    }
}
