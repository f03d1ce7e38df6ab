//! What a request for a recommendation asks, checked.

use std::time::Duration;

use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::model::MAX_LAYERS;
use loadmaster_proto::name::checked_name;
use loadmaster_proto::plan::constraints::Constraints;
use loadmaster_proto::plan::objective::{Framework, Objective, PlanShape, SearchMode};
use loadmaster_proto::plan::request::{Goal, NamedSettings, PlanRequest};
use loadmaster_proto::training::actions::{Allowed, Block, Way};
use loadmaster_proto::training::stage::Partitioning;
use loadmaster_proto::training::{RecomputePolicy, TrainingSpec};
use loadmaster_proto::wire::{field, v1};

use super::settings::{Read, chooses};
use crate::rpc::error::ApiError;
use crate::rpc::limits::MAX_SEARCH_TIME;

/// Alternatives where the request names none, and the most of them.
const DEFAULT_ALTERNATIVES: usize = 3;
const MAX_ALTERNATIVES: i32 = 20;
/// Most stages of a device.
const MAX_VIRTUAL_STAGES: i32 = 64;
/// Most samples of an iteration: the largest micro-batch, as often as it may come. Its divisors are tried one by one.
const MAX_GLOBAL_BATCH_SIZE: u64 =
    TrainingSpec::MAX_MICRO_BATCH_SIZE as u64 * TrainingSpec::MAX_MICRO_BATCHES as u64;
/// Longest version of a framework.
const MAX_VERSION: usize = 100;

/// Checks a request for a recommendation. The cluster that it names is for whoever looks up its devices.
///
/// # Errors
/// Names the field that is wrong, and what would be right.
pub(in crate::rpc::plan) fn question(request: &v1::RecommendPlanRequest) -> Result<PlanRequest, ApiError> {
    question_within(request, MAX_SEARCH_TIME)
}

/// The same where a search may take so long.
///
/// # Errors
/// As there.
pub(in crate::rpc::plan) fn question_within(
    request: &v1::RecommendPlanRequest,
    longest: Duration,
) -> Result<PlanRequest, ApiError> {
    let objective: Option<Objective> = field("objective.kind", request.objective().kind)?;
    let framework: Option<Framework> = field("problem.framework", request.problem().framework.clone())?;
    let rules = framework.map(loadmaster_launchers::rules);
    let named: Option<PlanShape> =
        field("constraints.parallelism_layout", request.constraints().parallelism_layout)?;
    let shape = named.or_else(|| rules.map(|rules| rules.shape)).unwrap_or_default();
    if let Some(rules) = rules.filter(|rules| !rules.shape.includes(shape)) {
        return Err(ApiError::ShapeUnsupported { framework: rules.framework, shape, required: rules.shape });
    }
    let constraints = request.constraints.clone().unwrap_or_default();
    let constraints = Constraints::try_from(constraints).map_err(|invalid| invalid.under("constraints"))?;
    if !request.problem().framework_version.is_empty() {
        checked_name("problem.framework_version", &request.problem().framework_version, MAX_VERSION)?;
    }
    let recompute: Option<RecomputePolicy> = field("problem.recompute", request.problem().recompute)?;
    let partitioning = request.constraints().pipeline_layout.clone().map(Partitioning::try_from).transpose();
    let mode = field::<Option<_>, _>("search.mode", request.search().mode)?.unwrap_or_default();
    let chunks = super::chunks::asked(request)?;
    let named = named_actions(request)?;
    // With chunks it is they that take memory of the host, and actions that are given are limited by it.
    let are_given = chunks.is_none() && !request.memory().stage_memory_optimizations.is_empty();
    let allowed = if chunks.is_none() { allowed(&named, mode) } else { None };
    let host_memory = allowed.as_ref().filter(|_| are_given).map(|allowed| allowed.host_memory);
    let allowed = allowed.filter(|_| !are_given || chooses(request).is_some());
    // Where actions are to be chosen and no objective is named, the fastest plan is asked for, whatever that leaves open.
    let usual = if allowed.is_some() { Objective::MinIterationTime } else { Objective::default() };
    let asked = PlanRequest {
        goal: Goal {
            // So it is in chunks, but of the batch that is asked for or was profiled.
            objective: objective.or_else(|| chunks.is_none().then_some(usual)),
            memory_unit: field::<Option<_>, _>("objective.memory_unit", request.objective().memory_unit)?
                .unwrap_or_default(),
            shape,
            framework,
            framework_version: request.problem().framework_version.clone(),
            constraints,
            cluster: None,
        },
        overlap: field("problem.communication_overlap", request.problem().communication_overlap)?,
        mode,
        seed: field("search.seed", request.search().seed)?,
        search_seconds: search_seconds(request.search().time_limit, longest)?,
        alternatives: alternatives(request.output().alternative_count)?,
        brief: request.output().skip_comparisons,
        correct: request.problem().calibrate,
        merge_layers_to: merge_layers_to(request.search().layer_group_count)?,
        partitioning: partitioning.map_err(|invalid| invalid.under("constraints.pipeline_layout"))?,
        stage_actions: field(
            "memory.stage_memory_optimizations",
            request.memory().stage_memory_optimizations.clone(),
        )?,
        host_memory: host_memory.filter(|most| most.0 > 0),
        allowed,
        chunks,
        host_memory_alone: request.memory().host_memory_bytes != 0
            && request.memory().mode == 0
            && request.memory().optimizations.is_empty()
            && request.memory().blocks.is_empty()
            && request.memory().min_block_bytes == 0
            && mode != SearchMode::Mpress,
        grow: field("objective.model_scaling", request.objective().model_scaling.clone())?,
        copy_pace: field::<Option<_>, _>("memory.copy_bandwidth", request.memory().copy_bandwidth)?
            .unwrap_or_default(),
        virtual_stages: virtual_stages(request.problem().virtual_stage_count)?,
        global_batch_size: global_batch_size(request.problem().global_batch_size)?,
        named: NamedSettings {
            micro_batch_size: request.problem().micro_batch_size != 0,
            micro_batches: request.problem().micro_batch_count != 0,
            schedule: request.problem().schedule != 0,
        },
    };
    let is_objective_named = objective.is_some();
    let read = Read { request, asked: &asked, named: &named, is_objective_named, recompute, rules };
    read.settings().check()?;
    Ok(asked)
}

/// What a request names of memory actions that are to be chosen.
fn named_actions(request: &v1::RecommendPlanRequest) -> Result<Allowed, Invalid> {
    let ways: Vec<Option<Way>> = field("memory.optimizations", request.memory().optimizations.clone())?;
    let blocks: Vec<Option<Block>> = field("memory.blocks", request.memory().blocks.clone())?;
    Ok(Allowed {
        ways: ways.into_iter().flatten().collect(),
        blocks: blocks.into_iter().flatten().collect(),
        host_memory: field("memory.host_memory_bytes", request.memory().host_memory_bytes)?,
        smallest_block: field("memory.min_block_bytes", request.memory().min_block_bytes)?,
    })
}

/// Which memory actions may be chosen, all of those that are not named; none where the request asks for none to be.
fn allowed(named: &Allowed, mode: SearchMode) -> Option<Allowed> {
    let default = Allowed::default();
    let Allowed { host_memory, smallest_block, .. } = *named;
    let is_asked = !named.ways.is_empty()
        || !named.blocks.is_empty()
        || host_memory != default.host_memory
        || smallest_block != default.smallest_block;
    let allowed = Allowed {
        ways: if named.ways.is_empty() { default.ways } else { named.ways.clone() },
        blocks: if named.blocks.is_empty() { default.blocks } else { named.blocks.clone() },
        host_memory,
        smallest_block,
    };
    (is_asked || mode == SearchMode::Mpress).then_some(allowed)
}

fn search_seconds(limit: Option<prost_types::Duration>, longest: Duration) -> Result<Option<f64>, Invalid> {
    let limit: Option<f64> = field("search.time_limit", limit)?;
    match limit {
        Some(seconds) if !(seconds > 0.0 && seconds <= longest.as_secs_f64()) => {
            let most = longest.as_secs();
            let why = format!("{seconds} s is out of range. Use more than 0 s and at most {most} s.");
            Err(Invalid::field("search.time_limit", why))
        }
        limit => Ok(limit),
    }
}

fn global_batch_size(samples: i64) -> Result<u64, Invalid> {
    let samples: u64 = field("problem.global_batch_size", samples)?;
    in_range("problem.global_batch_size", samples, 0..=MAX_GLOBAL_BATCH_SIZE)
}

/// One where none are named.
fn virtual_stages(each: i32) -> Result<u32, Invalid> {
    let each = in_range("problem.virtual_stage_count", each, 0..=MAX_VIRTUAL_STAGES)?;
    Ok(each.unsigned_abs().max(1))
}

fn alternatives(count: Option<i32>) -> Result<usize, Invalid> {
    let Some(count) = count else { return Ok(DEFAULT_ALTERNATIVES) };
    let count = in_range("output.alternative_count", count, 0..=MAX_ALTERNATIVES)?;
    Ok(count.unsigned_abs() as usize)
}

fn merge_layers_to(left: i32) -> Result<Option<usize>, Invalid> {
    let most = i32::try_from(MAX_LAYERS).unwrap_or(i32::MAX);
    let left = in_range("search.layer_group_count", left, 0..=most)?;
    Ok((left > 0).then(|| left.unsigned_abs() as usize))
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::plan::objective::PlanShape;
    use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule};
    use loadmaster_recommend::{MAX_BATCHES, batches, least_share, left_out, schedules};

    use super::*;

    fn duration(seconds: i64) -> prost_types::Duration {
        prost_types::Duration { seconds, nanos: 0 }
    }

    const TRAINING: TrainingSpec = TrainingSpec {
        precision: Precision::Fp32,
        optimizer: Optimizer::Sgd { learning_rate: 0.1, momentum: 0.0, weight_decay: 0.0 },
        schedule: Schedule::Gpipe,
        micro_batch_size: 4,
        micro_batches: 6,
        recompute: RecomputePolicy::None,
        seed: 0,
    };

    fn asked(request: v1::RecommendPlanRequest) -> PlanRequest {
        question(&request).unwrap()
    }

    fn sizes(request: v1::RecommendPlanRequest) -> Vec<(u32, u32)> {
        let batches = batches(&asked(request), &TRAINING, 1).unwrap();
        batches.iter().map(|batch| (batch.micro_batch_size, batch.micro_batches)).collect()
    }

    /// Memory is planned for the batch that is asked for, time for the best division of the iteration.
    #[test]
    fn batches_follow_from_the_objective() {
        let some = v1::RecommendPlanRequest::default;
        assert_eq!(sizes(some()), [(4, 6)]);
        let objective = v1::Objective::MinIterationTime.into();
        let timed = sizes(loadmaster_proto::changed!(some(), objective.kind = objective));
        assert_eq!(timed, [(1, 24), (2, 12), (3, 8), (4, 6), (6, 4), (8, 3), (12, 2), (24, 1)]);
        let fewest = v1::Objective::MinDevices.into();
        assert_eq!(sizes(loadmaster_proto::changed!(some(), objective.kind = fewest)), timed);
        let fixed =
            loadmaster_proto::changed!(some(), objective.kind = objective, problem.micro_batch_size = 4);
        assert_eq!(sizes(fixed), [(4, 6)]);
        let global = loadmaster_proto::changed!(some(), problem.global_batch_size = 8);
        assert_eq!(sizes(global), [(4, 2)]);
        let constraints = Some(v1::Constraints { micro_batch_sizes: vec![12, 2], ..Default::default() });
        assert_eq!(sizes(loadmaster_proto::changed!(some(), constraints = constraints)), [(2, 12), (12, 2)]);
        for objective in [v1::Objective::MinIterationTime, v1::Objective::Pareto, v1::Objective::MinDevices] {
            let counted = loadmaster_proto::changed!(
                some(),
                objective.kind = objective.into(),
                problem.micro_batch_count = 6
            );
            assert_eq!(sizes(counted.clone()), [(4, 6)], "so many of the profiled size");
            let counted = loadmaster_proto::changed!(counted, problem.global_batch_size = 12);
            assert_eq!(sizes(counted.clone()), [(2, 6)]);
            let constraints = Some(v1::Constraints { micro_batch_sizes: vec![2, 4], ..Default::default() });
            assert_eq!(sizes(loadmaster_proto::changed!(counted, constraints = constraints)), [(2, 6)]);
        }
        let objective = v1::Objective::MaxBatch.into();
        let largest = sizes(loadmaster_proto::changed!(some(), objective.kind = objective));
        assert_eq!((largest.first(), largest.last()), (Some(&(1, 6)), Some(&(4_096, 6))));
        assert!(largest.len() <= MAX_BATCHES && largest.is_sorted());
        assert_eq!(
            sizes(loadmaster_proto::changed!(
                some(),
                objective.kind = objective,
                problem.micro_batch_size = 4
            )),
            [(4, 6)]
        );
    }

    /// Memory of a host may be for memory actions or for chunks: a request that says which is told apart from one that does not.
    #[test]
    fn memory_of_a_host_alone_is_told_apart() {
        let some = || v1::RecommendPlanRequest {
            memory: Some(v1::MemoryOptions { host_memory_bytes: 1 << 20, ..Default::default() }),
            ..Default::default()
        };
        let is_alone = |request: v1::RecommendPlanRequest| question(&request).unwrap().host_memory_alone;
        assert!(is_alone(some()) && !is_alone(v1::RecommendPlanRequest::default()));
        for memory_mode in [v1::MemoryMode::Plain, v1::MemoryMode::Chunks, v1::MemoryMode::Best] {
            assert!(!is_alone(loadmaster_proto::changed!(some(), memory.mode = memory_mode.into())));
        }
        assert!(!is_alone(loadmaster_proto::changed!(
            some(),
            memory.optimizations = vec![v1::MemoryOptimizationKind::CpuOffload.into()]
        )));
        let memory_blocks = vec![v1::MemoryBlock::Activations.into()];
        assert!(!is_alone(loadmaster_proto::changed!(some(), memory.blocks = memory_blocks)));
    }

    /// Memory actions are chosen for every objective; for named stages where those leave a choice, and within limits that
    /// stages can keep. What would be left out in silence is refused by name.
    #[test]
    fn actions_are_chosen_for_every_objective_that_leaves_a_choice() {
        let some = || v1::RecommendPlanRequest {
            memory: Some(v1::MemoryOptions {
                optimizations: vec![v1::MemoryOptimizationKind::CpuOffload.into()],
                host_memory_bytes: 1 << 20,
                ..Default::default()
            }),
            ..Default::default()
        };
        for objective in Objective::ALL.map(v1::Objective::from) {
            let named = asked(loadmaster_proto::changed!(some(), objective.kind = objective.into()));
            assert!(named.allowed.is_some() && named.goal.objective.is_some());
        }
        let fastest =
            || loadmaster_proto::changed!(some(), objective.kind = v1::Objective::MinIterationTime.into());
        assert_eq!(asked(some()), asked(fastest()), "the fastest, of any micro-batch");
        assert_eq!(sizes(some()), sizes(fastest()));
        assert!(sizes(some()).len() > 1);
        let stages = Partitioning::from_sizes(&[2, 2]).unwrap();
        let given =
            || loadmaster_proto::changed!(some(), constraints.pipeline_layout = Some((&stages).into()));
        let field = |request: v1::RecommendPlanRequest| match question(&request).unwrap_err() {
            ApiError::Invalid(invalid) => invalid.violations()[0].field.clone(),
            other => panic!("{other}"),
        };
        let limited = v1::Constraints {
            max_iteration_time: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
            ..Default::default()
        };
        for objective in [
            v1::Objective::MinPeakMemory,
            v1::Objective::Pareto,
            v1::Objective::MaxBatch,
            v1::Objective::MinIterationTime,
        ] {
            let (objective, constraints) = (objective.into(), Some(limited.clone()));
            asked(loadmaster_proto::changed!(given(), objective.kind = objective, constraints = constraints));
        }
        let constrained = |constraints| Some::<v1::Constraints>(constraints);
        let fewest = v1::Objective::MinDevices.into();
        let layer = v1::RecomputePolicy::Layer.into();
        let again = constrained(v1::Constraints { recompute_policies: vec![layer], ..Default::default() });
        let shards = constrained(v1::Constraints { tensor_parallel_sizes: vec![2], ..Default::default() });
        for (request, wrong) in [
            (loadmaster_proto::changed!(given(), objective.kind = fewest), "objective.kind"),
            (loadmaster_proto::changed!(given(), constraints.min_stage_count = 2), "constraints"),
            (loadmaster_proto::changed!(some(), problem.recompute = layer), "problem.recompute"),
            (loadmaster_proto::changed!(some(), constraints = again), "constraints.recompute_policies"),
            (
                loadmaster_proto::changed!(some(), constraints = shards.clone()),
                "constraints.tensor_parallel_sizes",
            ),
        ] {
            assert_eq!(field(request), wrong);
        }
        let ways = |way: v1::MemoryOptimizationKind| v1::RecommendPlanRequest {
            memory: Some(v1::MemoryOptions { optimizations: vec![way.into()], ..Default::default() }),
            ..Default::default()
        };
        let memory_blocks = vec![v1::MemoryBlock::Activations.into()];
        for way in [v1::MemoryOptimizationKind::Recompute, v1::MemoryOptimizationKind::PeerSwap] {
            let host = loadmaster_proto::changed!(ways(way), memory.host_memory_bytes = 1 << 20);
            assert_eq!(field(host), "memory.host_memory_bytes");
        }
        let again = || ways(v1::MemoryOptimizationKind::Recompute);
        let small = loadmaster_proto::changed!(again(), memory.min_block_bytes = 1);
        assert_eq!(field(small), "memory.min_block_bytes");
        for bytes in [-1, i64::MIN] {
            let none = loadmaster_proto::changed!(
                ways(v1::MemoryOptimizationKind::PeerSwap),
                memory.min_block_bytes = bytes
            );
            assert_eq!(field(none), "memory.min_block_bytes");
        }
        // Only activations are recomputed, and no one needs to say so.
        for block in Block::ALL {
            let blocks = loadmaster_proto::changed!(
                again(),
                memory.blocks = vec![v1::MemoryBlock::from(block).into()]
            );
            assert_eq!(field(blocks), "memory.blocks", "{block}");
        }
        asked(loadmaster_proto::changed!(
            ways(v1::MemoryOptimizationKind::PeerSwap),
            memory.blocks = memory_blocks
        ));
        // Stages may have several devices where the shape says so.
        let shape = v1::ParallelismLayout::PerStageMesh.into();
        asked(loadmaster_proto::changed!(
            some(),
            constraints = shards,
            constraints.parallelism_layout = shape
        ));
    }

    /// What a framework cannot say of memory actions is refused where it is named, and left out where it is not.
    #[test]
    fn frameworks_are_asked_for_what_exports_say() {
        let launched = |framework: &str| v1::RecommendPlanRequest {
            problem: Some(v1::Problem { framework: framework.to_owned(), ..Default::default() }),
            ..Default::default()
        };
        let megatron = || launched("megatron");
        let field = |request: v1::RecommendPlanRequest| match question(&request).unwrap_err() {
            ApiError::Invalid(invalid) => invalid.violations()[0].field.clone(),
            other => panic!("{other}"),
        };
        let ways = |way: v1::MemoryOptimizationKind| vec![way.into()];
        let recompute = loadmaster_proto::changed!(
            megatron(),
            memory.optimizations = ways(v1::MemoryOptimizationKind::Recompute)
        );
        assert_eq!(asked(recompute).allowed.unwrap().ways, [Way::Recompute]);
        for way in [v1::MemoryOptimizationKind::CpuOffload, v1::MemoryOptimizationKind::PeerSwap] {
            assert_eq!(
                field(loadmaster_proto::changed!(megatron(), memory.optimizations = ways(way))),
                "memory.optimizations"
            );
        }
        let memory_blocks = vec![v1::MemoryBlock::Activations.into()];
        assert_eq!(
            field(loadmaster_proto::changed!(megatron(), memory.blocks = memory_blocks)),
            "memory.blocks"
        );
        assert_eq!(
            field(loadmaster_proto::changed!(megatron(), memory.host_memory_bytes = 1)),
            "memory.host_memory_bytes"
        );
        let smallest = loadmaster_proto::changed!(megatron(), memory.min_block_bytes = 1);
        assert_eq!(field(smallest), "memory.min_block_bytes");
        let search_mode = v1::SearchMode::Mpress.into();
        assert_eq!(field(loadmaster_proto::changed!(megatron(), search.mode = search_mode)), "search.mode");
        // A program of one's own does all that is on its devices and at their host.
        let mut other = launched("other");
        (other.memory_mut().host_memory_bytes, other.search_mut().mode) = (1, search_mode);
        assert!(asked(other).allowed.is_some());
    }

    /// Numbers that contradict each other are named.
    #[test]
    fn batches_that_do_not_divide_are_refused() {
        let field = |request: v1::RecommendPlanRequest| {
            batches(&asked(request), &TRAINING, 1).unwrap_err().violations()[0].field.clone()
        };
        let some = v1::RecommendPlanRequest::default;
        assert_eq!(
            field(loadmaster_proto::changed!(some(), problem.global_batch_size = 9)),
            "problem.micro_batch_size"
        );
        let constraints = Some(v1::Constraints { micro_batch_sizes: vec![4, 5], ..Default::default() });
        let listed = loadmaster_proto::changed!(some(), constraints = constraints);
        assert_eq!(field(listed), "constraints.micro_batch_sizes[1]");
        let three =
            loadmaster_proto::changed!(some(), problem.global_batch_size = 8, problem.micro_batch_count = 6);
        assert_eq!(field(three), "problem.global_batch_size");
        let objective = v1::Objective::MinIterationTime.into();
        let prime = loadmaster_proto::changed!(
            some(),
            objective.kind = objective,
            problem.global_batch_size = 1_000_003
        );
        assert_eq!(field(prime), "problem.global_batch_size");
        let counted = || {
            loadmaster_proto::changed!(
                some(),
                objective.kind = objective,
                problem.global_batch_size = 8,
                problem.micro_batch_count = 6
            )
        };
        assert_eq!(field(counted()), "problem.global_batch_size");
        let constraints = Some(v1::Constraints { micro_batch_sizes: vec![4, 8], ..Default::default() });
        for global_batch_size in [0, 8] {
            let constraints = constraints.clone();
            let sizes = loadmaster_proto::changed!(
                counted(),
                constraints = constraints,
                problem.global_batch_size = global_batch_size
            );
            assert_eq!(field(sizes), "constraints.micro_batch_sizes");
        }
    }

    /// Where seconds decide, no micro-batch is chosen that leaves a device fewer samples than were profiled, unless the
    /// request names its micro-batches; what is left out, or that nothing is left, is told by name.
    #[test]
    fn sizes_below_what_was_profiled_are_chosen_only_by_name() {
        let some = v1::RecommendPlanRequest::default;
        let objective = v1::Objective::MinIterationTime.into();
        let timed = || loadmaster_proto::changed!(some(), objective.kind = objective);
        let of = |request: v1::RecommendPlanRequest, smallest: u32| {
            let asked = asked(request);
            let least = least_share(&asked, Some(smallest));
            let batches = batches(&asked, &TRAINING, least)?;
            let told = left_out(&asked, &batches, least, 4);
            Ok::<_, Invalid>((batches.iter().map(|batch| batch.micro_batch_size).collect::<Vec<_>>(), told))
        };
        let (sizes, told) = of(timed(), 4).unwrap();
        assert_eq!(sizes, [4, 6, 8, 12, 24]);
        assert!(
            told.is_some_and(
                |told| told.contains("fewer than 4 samples") && told.contains("Set their sizes")
            )
        );
        let constraints = v1::Constraints { data_parallel_sizes: vec![4, 2], ..Default::default() };
        let replicas = loadmaster_proto::changed!(timed(), constraints = Some(constraints));
        assert_eq!(of(replicas, 4).unwrap().0, [8, 12, 24], "two replicas take half of it each");
        let none = of(timed(), 32).unwrap_err();
        assert_eq!(none.violations()[0].field, "problem.micro_batch_size");
        assert!(none.to_string().contains("fewer than 32"), "{none}");

        let sizes = v1::Constraints { micro_batch_sizes: vec![1, 2], ..Default::default() };
        let named = [
            loadmaster_proto::changed!(timed(), problem.micro_batch_size = 4),
            loadmaster_proto::changed!(timed(), constraints = Some(sizes)),
            loadmaster_proto::changed!(
                timed(),
                problem.global_batch_size = 24,
                problem.micro_batch_count = 24
            ),
        ];
        for request in named {
            let (sizes, told) = of(request, 8).unwrap();
            assert!(sizes[0] < 8 && told.is_none(), "{sizes:?} {told:?}");
        }
        assert_eq!(least_share(&asked(timed()), None), 1, "nothing is known of a profile without times");
        assert_eq!(least_share(&asked(some()), Some(4)), 1, "bytes have a margin of their own");
        let limited = v1::Constraints { max_iteration_time: Some(duration(2)), ..Default::default() };
        let limited = loadmaster_proto::changed!(some(), constraints = Some(limited));
        assert_eq!(least_share(&asked(limited), Some(4)), 4);
    }

    /// A framework decides the shape and the schedule where the request does not, and refuses what it cannot run.
    #[test]
    fn frameworks_decide_shape_and_schedule() {
        let some = || v1::RecommendPlanRequest {
            problem: Some(v1::Problem { framework: "megatron".to_owned(), ..Default::default() }),
            ..Default::default()
        };
        let megatron = asked(some());
        assert_eq!(megatron.goal.shape, PlanShape::UniformGrid);
        assert_eq!(schedules(&megatron, &TRAINING), Ok(vec![Schedule::OneFOneB]));
        let named = asked(loadmaster_proto::changed!(some(), problem.schedule = v1::Schedule::Gpipe.into()));
        assert_eq!(schedules(&named, &TRAINING).unwrap_err().violations()[0].field, "problem.schedule");
        let shape = v1::ParallelismLayout::PerStageMesh.into();
        let refused = question(&loadmaster_proto::changed!(some(), constraints.parallelism_layout = shape))
            .unwrap_err();
        assert!(matches!(refused, ApiError::ShapeUnsupported { required: PlanShape::UniformGrid, .. }));
        let constraints = Some(v1::Constraints { recompute_per_stage: true, ..Default::default() });
        let refused = question(&loadmaster_proto::changed!(some(), constraints = constraints));
        assert!(matches!(refused, Err(ApiError::Invalid(_))));
    }

    /// Every number that a user may get wrong has its range.
    #[test]
    fn numbers_out_of_range_are_refused_by_field() {
        let field = |request: v1::RecommendPlanRequest| match question(&request).unwrap_err() {
            ApiError::Invalid(invalid) => invalid.violations()[0].field.clone(),
            other => panic!("{other}"),
        };
        let some = v1::RecommendPlanRequest::default;
        for (seconds, nanos) in [(-1, 0), (0, 0), (50, 100_000_000), (1, -1), (i64::MAX, 0)] {
            let limit = prost_types::Duration { seconds, nanos };
            let request = loadmaster_proto::changed!(some(), search.time_limit = Some(limit));
            assert_eq!(field(request), "search.time_limit");
        }
        assert_eq!(
            field(loadmaster_proto::changed!(some(), output.alternative_count = Some(21))),
            "output.alternative_count"
        );
        assert_eq!(field(loadmaster_proto::changed!(some(), search.seed = -1)), "search.seed");
        assert_eq!(field(loadmaster_proto::changed!(some(), objective.kind = 99)), "objective.kind");
        assert_eq!(
            field(loadmaster_proto::changed!(some(), problem.communication_overlap = 3)),
            "problem.communication_overlap"
        );
        let samples = loadmaster_proto::changed!(some(), problem.global_batch_size = 1 << 40);
        assert_eq!(field(samples), "problem.global_batch_size");
        let partitioning = Some((&Partitioning::from_sizes(&[1, 1]).unwrap()).into());
        let objective = v1::Objective::MinPeakMemory.into();
        assert_eq!(
            field(loadmaster_proto::changed!(
                some(),
                constraints.pipeline_layout = partitioning,
                objective.kind = objective
            )),
            "objective.kind"
        );
    }
}
