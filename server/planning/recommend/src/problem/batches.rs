//! Micro-batches, schedules, recompute policies and tensor-parallel sizes to choose from, by what a request names
//! and what was profiled.

use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::plan::compatibility::{Setting, Settings};
use loadmaster_proto::plan::objective::{Objective, PlanShape};
use loadmaster_proto::plan::request::{Goal, PlanRequest};
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{RecomputePolicy, Schedule, TrainingSpec};

use super::criteria::MAX_BATCHES;
use super::variant::divisors;
use loadmaster_predict::Predictor;
use loadmaster_search::cost::Batch;

/// Where a request names the sizes to choose from.
const SIZES: &str = "constraints.micro_batch_sizes";

/// The fewest samples of a micro-batch that a device may take, where `smallest` is the fewest that were profiled:
/// seconds below that are not known. It restricts nothing where no seconds decide, or the request names its
/// micro-batches.
pub fn least_share(request: &PlanRequest, smallest: Option<u32>) -> u32 {
    let is_named = request.named.micro_batch_size
        || request.is_batch_fixed()
        || !request.goal.constraints.micro_batch_sizes.is_empty()
        || request.partitioning.is_some();
    let decides = request.is_timed() || request.goal.constraints.max_iteration_seconds.is_some();
    smallest.filter(|_| decides && !is_named).unwrap_or(1).max(1)
}

/// What a least share left out of the plans that were looked at, human-readable; none where it left out nothing.
/// `batches` are those that were looked at, on so many devices.
pub fn left_out(request: &PlanRequest, batches: &[Batch], least_share: u32, devices: u32) -> Option<String> {
    let is_split = request.goal.shape != PlanShape::SinglePipeline;
    let splits_too_far = |batch: &Batch| {
        let least = least_share.min(batch.micro_batch_size);
        let mut degrees = divisors(batch.micro_batch_size.into()).into_iter().skip(1);
        degrees.any(|data| data <= devices.into() && u64::from(batch.micro_batch_size) / data < least.into())
    };
    let is_left_out =
        least_share > 1 && (request.chooses_size() || is_split && batches.iter().any(splits_too_far));
    is_left_out.then(|| {
        format!(
            "micro-batches that give a device fewer than {least_share} samples, the smallest profiled number, were not \
             searched. Set their sizes in the request, or profile them"
        )
    })
}

/// Micro-batch sizes and counts to choose from, ascending, where the training has these. What is not named leaves
/// each device `least_share` samples.
///
/// # Errors
/// A size that does not divide the global batch, numbers that contradict each other, or no size that leaves the
/// least share.
pub fn batches(
    request: &PlanRequest,
    training: &TrainingSpec,
    least_share: u32,
) -> Result<Vec<Batch>, Invalid> {
    let (size, count) = (training.micro_batch_size, training.micro_batches);
    let samples = match request.global_batch_size {
        0 => training.global_batch_size(),
        samples => samples,
    };
    let batch = |field: &str, size: u32| {
        if !samples.is_multiple_of(u64::from(size)) {
            return Err(Invalid::field(
                field,
                format!("{size} does not divide global_batch_size, {samples}"),
            ));
        }
        let count = u32::try_from(samples / u64::from(size)).unwrap_or(u32::MAX);
        in_range("problem.micro_batch_count", count, 1..=TrainingSpec::MAX_MICRO_BATCHES)
            .map(|micro_batches| Batch { micro_batch_size: size, micro_batches })
    };
    let one = |micro_batch_size| Batch { micro_batch_size, micro_batches: count };
    let is_largest = request.objective() == Objective::MaxBatch;
    let named = request.goal.constraints.micro_batch_sizes.as_slice();
    // The number of micro-batches is fixed, and the samples of an iteration follow from their size.
    let is_count_alone = request.named.micro_batches && request.global_batch_size == 0;
    match named {
        [] => {}
        _ if is_count_alone && (is_largest || named.len() == 1) => {
            return Ok(named.iter().copied().map(one).collect());
        }
        _ if is_count_alone => {
            let why = format!(
                "has several sizes, which give different global batch sizes with `problem.micro_batch_count` {count}. \
                 Such plans cannot be compared. Use one size, or `problem.global_batch_size` instead of \
                 `problem.micro_batch_count`"
            );
            return Err(Invalid::field(SIZES, why));
        }
        _ => {
            let each = named.iter().enumerate();
            let batches = each.map(|(index, &size)| batch(&format!("{SIZES}[{index}]"), size));
            let mut batches: Vec<Batch> = batches.collect::<Result<_, _>>()?;
            batches.retain(|batch| !request.named.micro_batches || batch.micro_batches == count);
            if batches.is_empty() {
                let why = format!(
                    "has no size that gives `problem.micro_batch_count` {count} with `problem.global_batch_size` \
                     {samples}. Use size {}, or remove `problem.micro_batch_count`",
                    samples.div_ceil(count.max(1).into())
                );
                return Err(Invalid::field(SIZES, why));
            }
            return Ok(batches);
        }
    }
    if is_largest && request.global_batch_size == 0 && request.named.micro_batch_size {
        return Ok(vec![one(size)]);
    }
    if is_largest && request.global_batch_size == 0 {
        return Ok(sizes_to_try().filter(|&size| size >= least_share).map(one).collect());
    }
    if (is_largest || request.is_timed() || request.counts_devices()) && !request.named.micro_batch_size {
        return divided(request, samples, count, least_share);
    }
    if request.global_batch_size == 0 {
        return Ok(vec![one(size)]);
    }
    let found = batch("problem.micro_batch_size", size)?;
    if request.named.micro_batches && found.micro_batches != count {
        let product = training.global_batch_size();
        let why = format!(
            "{samples} is not the product of micro_batch_count and micro_batch_size, {product}. Remove one of the three"
        );
        return Err(Invalid::field("problem.global_batch_size", why));
    }
    Ok(vec![found])
}

/// All ways to divide an iteration's samples that leave each device the least share.
fn divided(request: &PlanRequest, samples: u64, count: u32, least_share: u32) -> Result<Vec<Batch>, Invalid> {
    let is_count_fixed = request.is_batch_fixed();
    let mut batches = match is_count_fixed {
        // The number of micro-batches leaves one size.
        true => exactly(samples, count).into_iter().collect(),
        false => dividing(samples),
    };
    if batches.is_empty() {
        let counts = match is_count_fixed {
            true => format!("{count} (micro_batches)"),
            false => format!("at most {}", TrainingSpec::MAX_MICRO_BATCHES),
        };
        let why = format!(
            "{samples} cannot be divided into {counts} equal micro-batches of at most {} samples. Use a number with other \
             divisors",
            TrainingSpec::MAX_MICRO_BATCH_SIZE
        );
        return Err(Invalid::field("problem.global_batch_size", why));
    }
    if least_share > 1 {
        let fewest = request.goal.constraints.data_degrees.iter().min().copied().unwrap_or(1);
        let least = least_share.saturating_mul(fewest);
        batches.retain(|batch| batch.micro_batch_size >= least);
    }
    if batches.is_empty() {
        let why = format!(
            "is required: {samples} samples per iteration are too few for a default. Each device would get fewer than \
             {least_share} samples, the smallest profiled number. Set this field, or profile a smaller micro-batch size"
        );
        return Err(Invalid::field("problem.micro_batch_size", why));
    }
    Ok(batches)
}

/// Orders of the passes to choose from, where the training has this one.
///
/// # Errors
/// One that the framework does not run.
pub fn schedules(request: &PlanRequest, training: &TrainingSpec) -> Result<Vec<Schedule>, Invalid> {
    let rules = request.goal.framework.map(loadmaster_launchers::rules);
    let named = !request.goal.constraints.schedules.is_empty();
    let schedules = match (named, rules) {
        (true, _) => request.goal.constraints.schedules.clone(),
        // Stages that take turns on their devices know no other one.
        (false, _) if request.virtual_stages > 1 && !request.named.schedule => vec![Schedule::OneFOneB],
        (false, Some(rules)) if !request.named.schedule && !rules.schedules.contains(&training.schedule) => {
            rules.schedules.iter().take(1).copied().collect()
        }
        (false, _) => vec![training.schedule],
    };
    if let Some(rules) = rules
        && let Some(other) = schedules.iter().find(|schedule| !rules.schedules.contains(schedule))
    {
        let runs: Vec<&str> = rules.schedules.iter().map(|schedule| schedule.as_str()).collect();
        Settings::default()
            .says(Setting::Framework, rules.framework)
            .says_instead(Setting::ForeignSchedule, other, runs.join(" and "))
            .in_field(
                Setting::ForeignSchedule,
                if named { "constraints.schedules" } else { "problem.schedule" },
            )
            .check()?;
    }
    Ok(schedules)
}

/// Recompute policies to choose from, where the training has this one.
pub fn recompute(request: &PlanRequest, training: &TrainingSpec) -> Vec<RecomputePolicy> {
    match request.goal.constraints.recompute.as_slice() {
        [] => vec![training.recompute],
        named => named.to_vec(),
    }
}

/// So many micro-batches of an iteration; none where they are not of one size, or too large.
fn exactly(samples: u64, micro_batches: u32) -> Option<Batch> {
    let size =
        samples.checked_div(micro_batches.into()).filter(|_| samples.is_multiple_of(micro_batches.into()))?;
    let micro_batch_size =
        u32::try_from(size).ok().filter(|&size| (1..=TrainingSpec::MAX_MICRO_BATCH_SIZE).contains(&size))?;
    Some(Batch { micro_batch_size, micro_batches })
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

/// The restrictions of a search.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Reach {
    /// Tensor-parallel sizes, ascending; none where nothing restricts them.
    pub tensor_degrees: Vec<u32>,
    /// The human-readable note on that.
    pub note: Option<String>,
}

impl Reach {
    /// Returns the reach of a request that is answered with these predictors, on nodes of at most so many devices.
    pub(crate) fn new<'a>(
        goal: &Goal,
        predictors: impl Iterator<Item = &'a (dyn Predictor + Send + Sync)>,
        largest_node: u32,
    ) -> Self {
        let named = &goal.constraints.tensor_degrees;
        if !named.is_empty() {
            return Self { tensor_degrees: named.clone(), note: None };
        }
        let common = predictors
            .filter_map(|predictor| predictor.tensor_degrees())
            .reduce(|one, other| (one.0.max(other.0), one.1.min(other.1)));
        // Rows of one degree are not extrapolated: a request for another degree gets an error that names the missing row.
        let Some((least, largest)) = common.filter(|(least, largest)| least < largest) else {
            return Self::default();
        };
        let powers = (0..=StageConfig::MAX_TENSOR_DEGREE.ilog2()).map(|power| 1_u32 << power);
        let (within, beyond): (Vec<u32>, Vec<u32>) =
            powers.partition(|degree| (least..=largest).contains(degree));
        if within.is_empty() {
            return Self::default();
        }
        // Only what would have been tried is missed.
        let is_sharded = !matches!(goal.shape, PlanShape::SinglePipeline | PlanShape::PerStageReplicas);
        let is_missed = is_sharded && beyond.iter().any(|&degree| degree > largest && degree <= largest_node);
        let listed: Vec<String> = within.iter().map(u32::to_string).collect();
        let note = is_missed.then(|| {
            format!(
                "only the tensor-parallel sizes in the range of the layer table were searched ({}). To extrapolate, \
                 set other sizes in `constraints.tensor_parallel_sizes`",
                listed.join(", ")
            )
        });
        Self { tensor_degrees: within, note }
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::plan::constraints::Constraints;

    use super::*;
    use loadmaster_predict::{Prediction, PredictionError, StageSetting};

    /// Has figures of these tensor-parallel sizes.
    struct ProfiledRows(Option<(u32, u32)>);

    impl Predictor for ProfiledRows {
        fn name(&self) -> &'static str {
            "rows/1"
        }

        fn layers(&self) -> usize {
            1
        }

        fn stage(&self, _setting: &StageSetting) -> Result<Prediction, PredictionError> {
            Err(PredictionError::NoSuchStage { first: 0, last: 0, layers: 1 })
        }

        fn sources(&self, _setting: &StageSetting) -> Vec<String> {
            Vec::new()
        }

        fn tensor_degrees(&self) -> Option<(u32, u32)> {
            self.0
        }
    }

    fn reach(goal: Goal, rows: &[ProfiledRows], largest_node: u32) -> Reach {
        let predictors = rows.iter().map(|rows| rows as &(dyn Predictor + Send + Sync));
        Reach::new(&goal, predictors, largest_node)
    }

    fn grid() -> Goal {
        Goal { shape: PlanShape::UniformGrid, ..Goal::default() }
    }

    /// What no row is about is a guess, and the search says that it did not make it.
    #[test]
    fn a_search_stays_within_the_rows_and_says_so() {
        let found = reach(grid(), &[ProfiledRows(Some((1, 4)))], 8);
        assert_eq!(found.tensor_degrees, [1, 2, 4]);
        assert!(found.note.unwrap().contains("(1, 2, 4)"));
        let small = reach(grid(), &[ProfiledRows(Some((1, 4)))], 4);
        assert_eq!(small.note, None, "no node has more devices: nothing was left out");
        let two =
            reach(grid(), &[ProfiledRows(Some((1, 8))), ProfiledRows(Some((2, 4))), ProfiledRows(None)], 8);
        assert_eq!(two.tensor_degrees, [2, 4], "what both kinds of devices have rows of");
    }

    /// Who names a degree gets it, and predictors without such limits restrict nothing.
    #[test]
    fn named_degrees_are_used_as_they_are() {
        let constraints = Constraints { tensor_degrees: vec![8], ..Constraints::default() };
        let named = Goal { constraints, ..grid() };
        assert_eq!(reach(named, &[ProfiledRows(Some((1, 4)))], 8).tensor_degrees, [8]);
        assert_eq!(reach(grid(), &[ProfiledRows(None)], 8), Reach::default());
        assert_eq!(reach(grid(), &[ProfiledRows(Some((1, 1)))], 8), Reach::default());
    }
}
