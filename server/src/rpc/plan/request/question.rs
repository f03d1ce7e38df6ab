//! What a request for a recommendation asks, checked.

use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::model::MAX_LAYERS;
use loadmaster_proto::name::checked_name;
use loadmaster_proto::plan::constraints::Constraints;
use loadmaster_proto::plan::objective::{Launcher, Objective, PlanShape, SearchMode};
use loadmaster_proto::plan::request::{Goal, NamedSettings, PlanRequest};
use loadmaster_proto::training::actions::{Allowed, Block, Way};
use loadmaster_proto::training::stage::Partitioning;
use loadmaster_proto::training::{RecomputePolicy, TrainingSpec};
use loadmaster_proto::wire::{field, v1};

use super::settings::{Read, chooses};
use crate::rpc::error::ApiError;

/// Most seconds of a search: a call ends after a minute.
const MAX_SEARCH_SECONDS: f64 = 50.0;
/// Alternatives where the request names none, and the most of them.
const DEFAULT_ALTERNATIVES: usize = 3;
const MAX_ALTERNATIVES: i32 = 20;
/// Most stages of a device.
const MAX_VIRTUAL_STAGES: i32 = 64;
/// Most samples of an iteration: the largest micro-batch, as often as it may come. Its divisors are tried one by one.
const MAX_GLOBAL_BATCH_SIZE: u64 =
    TrainingSpec::MAX_MICRO_BATCH_SIZE as u64 * TrainingSpec::MAX_MICRO_BATCHES as u64;
/// Longest version of a launcher.
const MAX_VERSION: usize = 100;

/// Checks a request for a recommendation. The cluster that it names is for whoever looks up its devices.
///
/// # Errors
/// Names the field that is wrong, and what would be right.
pub(in crate::rpc::plan) fn question(request: &v1::RecommendPlanRequest) -> Result<PlanRequest, ApiError> {
    let objective: Option<Objective> = field("objective", request.objective)?;
    let launcher: Option<Launcher> = field("launcher", request.framework)?;
    let rules = launcher.map(loadmaster_launchers::rules);
    let named: Option<PlanShape> = field("shape", request.parallelism_layout)?;
    let shape = named.or_else(|| rules.map(|rules| rules.shape)).unwrap_or_default();
    if let Some(rules) = rules.filter(|rules| !rules.shape.includes(shape)) {
        return Err(ApiError::ShapeUnsupported { launcher: rules.launcher, shape, required: rules.shape });
    }
    let constraints = request.constraints.clone().unwrap_or_default();
    let constraints = Constraints::try_from(constraints).map_err(|invalid| invalid.under("constraints"))?;
    if !request.framework_version.is_empty() {
        checked_name("launcher_version", &request.framework_version, MAX_VERSION)?;
    }
    let recompute: Option<RecomputePolicy> = field("recompute", request.recompute)?;
    let partitioning = request.pipeline_layout.clone().map(Partitioning::try_from).transpose();
    let mode = field::<Option<_>, _>("search_mode", request.search_mode)?.unwrap_or_default();
    let chunks = super::chunks::asked(request)?;
    let named = named_actions(request)?;
    // With chunks it is they that take memory of the host, and actions that are given are limited by it.
    let are_given = chunks.is_none() && !request.stage_memory_optimizations.is_empty();
    let allowed = if chunks.is_none() { allowed(&named, mode) } else { None };
    let host_memory = allowed.as_ref().filter(|_| are_given).map(|allowed| allowed.host_memory);
    let allowed = allowed.filter(|_| !are_given || chooses(request).is_some());
    // Where actions are to be chosen and no objective is named, the fastest plan is asked for, whatever that leaves open.
    let usual = if allowed.is_some() { Objective::MinIterationTime } else { Objective::default() };
    let asked = PlanRequest {
        goal: Goal {
            // So it is in chunks, but of the batch that is asked for or was profiled.
            objective: objective.or_else(|| chunks.is_none().then_some(usual)),
            memory_unit: field::<Option<_>, _>("memory_unit", request.memory_unit)?.unwrap_or_default(),
            shape,
            launcher,
            launcher_version: request.framework_version.clone(),
            constraints,
            cluster: None,
        },
        overlap: field("transfers", request.communication_overlap)?,
        mode,
        seed: field("search_seed", request.search_seed)?,
        search_seconds: search_seconds(request.search_time_limit)?,
        alternatives: alternatives(request.alternative_count)?,
        brief: request.skip_comparisons,
        correct: request.calibrate,
        merge_layers_to: merge_layers_to(request.layer_group_count)?,
        partitioning: partitioning.map_err(|invalid| invalid.under("partitioning"))?,
        stage_actions: field("stage_actions", request.stage_memory_optimizations.clone())?,
        host_memory: host_memory.filter(|most| most.0 > 0),
        allowed,
        chunks,
        host_memory_alone: request.host_memory_bytes != 0
            && request.memory_mode == 0
            && request.memory_optimizations.is_empty()
            && request.memory_blocks.is_empty()
            && request.min_block_bytes == 0
            && mode != SearchMode::Mpress,
        grow: field("grow", request.model_scaling.clone())?,
        copy_pace: field::<Option<_>, _>("copy_pace", request.copy_bandwidth)?.unwrap_or_default(),
        virtual_stages: virtual_stages(request.virtual_stage_count)?,
        global_batch_size: global_batch_size(request.global_batch_size)?,
        named: NamedSettings {
            micro_batch_size: request.micro_batch_size != 0,
            micro_batches: request.micro_batch_count != 0,
            schedule: request.schedule != 0,
        },
    };
    let is_objective_named = objective.is_some();
    let read = Read { request, asked: &asked, named: &named, is_objective_named, recompute, rules };
    read.settings().check()?;
    Ok(asked)
}

/// What a request names of memory actions that are to be chosen.
fn named_actions(request: &v1::RecommendPlanRequest) -> Result<Allowed, Invalid> {
    let ways: Vec<Option<Way>> = field("memory_ways", request.memory_optimizations.clone())?;
    let blocks: Vec<Option<Block>> = field("memory_blocks", request.memory_blocks.clone())?;
    Ok(Allowed {
        ways: ways.into_iter().flatten().collect(),
        blocks: blocks.into_iter().flatten().collect(),
        host_memory: field("host_memory_bytes", request.host_memory_bytes)?,
        smallest_block: field("smallest_block_bytes", request.min_block_bytes)?,
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

fn search_seconds(seconds: f64) -> Result<Option<f64>, Invalid> {
    if seconds == 0.0 {
        return Ok(None);
    }
    if seconds > 0.0 && seconds <= MAX_SEARCH_SECONDS {
        return Ok(Some(seconds));
    }
    let why = format!("is {seconds}, must be above 0 and at most {MAX_SEARCH_SECONDS}");
    Err(Invalid::field("search_seconds", why))
}

fn global_batch_size(samples: i64) -> Result<u64, Invalid> {
    let samples: u64 = field("global_batch_size", samples)?;
    in_range("global_batch_size", samples, 0..=MAX_GLOBAL_BATCH_SIZE)
}

/// One where none are named.
fn virtual_stages(each: i32) -> Result<u32, Invalid> {
    let each = in_range("virtual_stages", each, 0..=MAX_VIRTUAL_STAGES)?;
    Ok(each.unsigned_abs().max(1))
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
    use loadmaster_proto::plan::objective::PlanShape;
    use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule};
    use loadmaster_recommend::{MAX_BATCHES, batches, least_share, left_out, schedules};

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
        for objective in [v1::Objective::MinIterationTime, v1::Objective::Pareto, v1::Objective::MinDevices] {
            let counted =
                v1::RecommendPlanRequest { objective: objective.into(), micro_batch_count: 6, ..some() };
            assert_eq!(sizes(counted.clone()), [(4, 6)], "so many of the profiled size");
            let counted = v1::RecommendPlanRequest { global_batch_size: 12, ..counted };
            assert_eq!(sizes(counted.clone()), [(2, 6)]);
            let constraints = Some(v1::Constraints { micro_batch_sizes: vec![2, 4], ..Default::default() });
            assert_eq!(sizes(v1::RecommendPlanRequest { constraints, ..counted }), [(2, 6)]);
        }
        let objective = v1::Objective::MaxBatch.into();
        let largest = sizes(v1::RecommendPlanRequest { objective, ..some() });
        assert_eq!((largest.first(), largest.last()), (Some(&(1, 6)), Some(&(4_096, 6))));
        assert!(largest.len() <= MAX_BATCHES && largest.is_sorted());
        assert_eq!(sizes(v1::RecommendPlanRequest { objective, micro_batch_size: 4, ..some() }), [(4, 6)]);
    }

    /// Memory of a host may be for memory actions or for chunks: a request that says which is told apart from one that does not.
    #[test]
    fn memory_of_a_host_alone_is_told_apart() {
        let some = || v1::RecommendPlanRequest { host_memory_bytes: 1 << 20, ..Default::default() };
        let is_alone = |request: v1::RecommendPlanRequest| question(&request).unwrap().host_memory_alone;
        assert!(is_alone(some()) && !is_alone(v1::RecommendPlanRequest::default()));
        for memory_mode in [v1::MemoryMode::Plain, v1::MemoryMode::Chunks, v1::MemoryMode::Best] {
            assert!(!is_alone(v1::RecommendPlanRequest { memory_mode: memory_mode.into(), ..some() }));
        }
        assert!(!is_alone(v1::RecommendPlanRequest {
            memory_optimizations: vec![v1::MemoryOptimizationKind::CpuOffload.into()],
            ..some()
        }));
        let memory_blocks = vec![v1::MemoryBlock::Activations.into()];
        assert!(!is_alone(v1::RecommendPlanRequest { memory_blocks, ..some() }));
    }

    /// Memory actions are chosen for every objective; for named stages where those leave a choice, and within limits that
    /// stages can keep. What would be left out in silence is refused by name.
    #[test]
    fn actions_are_chosen_for_every_objective_that_leaves_a_choice() {
        let some = || v1::RecommendPlanRequest {
            memory_optimizations: vec![v1::MemoryOptimizationKind::CpuOffload.into()],
            host_memory_bytes: 1 << 20,
            ..Default::default()
        };
        for objective in Objective::ALL.map(v1::Objective::from) {
            let named = asked(v1::RecommendPlanRequest { objective: objective.into(), ..some() });
            assert!(named.allowed.is_some() && named.goal.objective.is_some());
        }
        let fastest =
            || v1::RecommendPlanRequest { objective: v1::Objective::MinIterationTime.into(), ..some() };
        assert_eq!(asked(some()), asked(fastest()), "the fastest, of any micro-batch");
        assert_eq!(sizes(some()), sizes(fastest()));
        assert!(sizes(some()).len() > 1);
        let stages = Partitioning::from_sizes(&[2, 2]).unwrap();
        let given = || v1::RecommendPlanRequest { pipeline_layout: Some((&stages).into()), ..some() };
        let field = |request: v1::RecommendPlanRequest| match question(&request).unwrap_err() {
            ApiError::Invalid(invalid) => invalid.violations()[0].field.clone(),
            other => panic!("{other}"),
        };
        let limited = v1::Constraints { max_iteration_time: 1.0, ..Default::default() };
        for objective in [
            v1::Objective::MinPeakMemory,
            v1::Objective::Pareto,
            v1::Objective::MaxBatch,
            v1::Objective::MinIterationTime,
        ] {
            let (objective, constraints) = (objective.into(), Some(limited.clone()));
            asked(v1::RecommendPlanRequest { objective, constraints, ..given() });
        }
        let constrained = |constraints| Some::<v1::Constraints>(constraints);
        let fewest = v1::Objective::MinDevices.into();
        let cut = constrained(v1::Constraints { min_stage_count: 2, ..Default::default() });
        let layer = v1::RecomputePolicy::Layer.into();
        let again = constrained(v1::Constraints { recompute: vec![layer], ..Default::default() });
        let shards = constrained(v1::Constraints { tensor_parallel_sizes: vec![2], ..Default::default() });
        for (request, wrong) in [
            (v1::RecommendPlanRequest { objective: fewest, ..given() }, "objective"),
            (v1::RecommendPlanRequest { constraints: cut, ..given() }, "constraints"),
            (v1::RecommendPlanRequest { recompute: layer, ..some() }, "recompute"),
            (v1::RecommendPlanRequest { constraints: again, ..some() }, "constraints.recompute"),
            (
                v1::RecommendPlanRequest { constraints: shards.clone(), ..some() },
                "constraints.tensor_degrees",
            ),
        ] {
            assert_eq!(field(request), wrong);
        }
        let ways = |way: v1::MemoryOptimizationKind| v1::RecommendPlanRequest {
            memory_optimizations: vec![way.into()],
            ..v1::RecommendPlanRequest::default()
        };
        let memory_blocks = vec![v1::MemoryBlock::Activations.into()];
        for way in [v1::MemoryOptimizationKind::Recompute, v1::MemoryOptimizationKind::PeerSwap] {
            let host = v1::RecommendPlanRequest { host_memory_bytes: 1 << 20, ..ways(way) };
            assert_eq!(field(host), "host_memory_bytes");
        }
        let again = || ways(v1::MemoryOptimizationKind::Recompute);
        let small = v1::RecommendPlanRequest { min_block_bytes: 1, ..again() };
        assert_eq!(field(small), "smallest_block_bytes");
        for bytes in [-1, i64::MIN] {
            let none = v1::RecommendPlanRequest {
                min_block_bytes: bytes,
                ..ways(v1::MemoryOptimizationKind::PeerSwap)
            };
            assert_eq!(field(none), "smallest_block_bytes");
        }
        // Only activations are computed again, and nobody needs to say so.
        for block in Block::ALL {
            let blocks = v1::RecommendPlanRequest {
                memory_blocks: vec![v1::MemoryBlock::from(block).into()],
                ..again()
            };
            assert_eq!(field(blocks), "memory_blocks", "{block}");
        }
        asked(v1::RecommendPlanRequest { memory_blocks, ..ways(v1::MemoryOptimizationKind::PeerSwap) });
        // Stages may have several devices where the shape says so.
        let shape = v1::ParallelismLayout::PerStageMesh.into();
        asked(v1::RecommendPlanRequest { constraints: shards, parallelism_layout: shape, ..some() });
    }

    /// What a launcher cannot say of memory actions is refused where it is named, and left out where it is not.
    #[test]
    fn launchers_are_asked_for_what_exports_say() {
        let launched = |launcher: v1::Launcher| v1::RecommendPlanRequest {
            framework: launcher.into(),
            ..Default::default()
        };
        let megatron = || launched(v1::Launcher::Megatron);
        let field = |request: v1::RecommendPlanRequest| match question(&request).unwrap_err() {
            ApiError::Invalid(invalid) => invalid.violations()[0].field.clone(),
            other => panic!("{other}"),
        };
        let ways = |way: v1::MemoryOptimizationKind| vec![way.into()];
        let recompute = v1::RecommendPlanRequest {
            memory_optimizations: ways(v1::MemoryOptimizationKind::Recompute),
            ..megatron()
        };
        assert_eq!(asked(recompute).allowed.unwrap().ways, [Way::Recompute]);
        for way in [v1::MemoryOptimizationKind::CpuOffload, v1::MemoryOptimizationKind::PeerSwap] {
            assert_eq!(
                field(v1::RecommendPlanRequest { memory_optimizations: ways(way), ..megatron() }),
                "memory_ways"
            );
        }
        let memory_blocks = vec![v1::MemoryBlock::Activations.into()];
        assert_eq!(field(v1::RecommendPlanRequest { memory_blocks, ..megatron() }), "memory_blocks");
        assert_eq!(
            field(v1::RecommendPlanRequest { host_memory_bytes: 1, ..megatron() }),
            "host_memory_bytes"
        );
        let smallest = v1::RecommendPlanRequest { min_block_bytes: 1, ..megatron() };
        assert_eq!(field(smallest), "smallest_block_bytes");
        let search_mode = v1::SearchMode::Mpress.into();
        assert_eq!(field(v1::RecommendPlanRequest { search_mode, ..megatron() }), "search_mode");
        // A program of one's own does all that is on its devices and at their host.
        let mut other = launched(v1::Launcher::Other);
        (other.host_memory_bytes, other.search_mode) = (1, search_mode);
        assert!(asked(other).allowed.is_some());
    }

    /// Numbers that contradict each other are named.
    #[test]
    fn batches_that_do_not_divide_are_refused() {
        let field = |request: v1::RecommendPlanRequest| {
            batches(&asked(request), &TRAINING, 1).unwrap_err().violations()[0].field.clone()
        };
        let some = v1::RecommendPlanRequest::default;
        assert_eq!(field(v1::RecommendPlanRequest { global_batch_size: 9, ..some() }), "micro_batch_size");
        let constraints = Some(v1::Constraints { micro_batch_sizes: vec![4, 5], ..Default::default() });
        let listed = v1::RecommendPlanRequest { constraints, ..some() };
        assert_eq!(field(listed), "constraints.micro_batch_sizes[1]");
        let three = v1::RecommendPlanRequest { global_batch_size: 8, micro_batch_count: 6, ..some() };
        assert_eq!(field(three), "global_batch_size");
        let objective = v1::Objective::MinIterationTime.into();
        let prime = v1::RecommendPlanRequest { objective, global_batch_size: 1_000_003, ..some() };
        assert_eq!(field(prime), "global_batch_size");
        let counted =
            || v1::RecommendPlanRequest { objective, global_batch_size: 8, micro_batch_count: 6, ..some() };
        assert_eq!(field(counted()), "global_batch_size");
        let constraints = Some(v1::Constraints { micro_batch_sizes: vec![4, 8], ..Default::default() });
        for global_batch_size in [0, 8] {
            let constraints = constraints.clone();
            let sizes = v1::RecommendPlanRequest { constraints, global_batch_size, ..counted() };
            assert_eq!(field(sizes), "constraints.micro_batch_sizes");
        }
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
            let least = least_share(&asked, Some(smallest));
            let batches = batches(&asked, &TRAINING, least)?;
            let told = left_out(&asked, &batches, least, 4);
            Ok::<_, Invalid>((batches.iter().map(|batch| batch.micro_batch_size).collect::<Vec<_>>(), told))
        };
        let (sizes, told) = of(timed(), 4).unwrap();
        assert_eq!(sizes, [4, 6, 8, 12, 24]);
        assert!(
            told.is_some_and(
                |told| told.contains("fewer than 4 samples") && told.contains("name their sizes")
            )
        );
        let constraints = v1::Constraints { data_parallel_sizes: vec![4, 2], ..Default::default() };
        let replicas = v1::RecommendPlanRequest { constraints: Some(constraints), ..timed() };
        assert_eq!(of(replicas, 4).unwrap().0, [8, 12, 24], "two replicas take half of it each");
        let none = of(timed(), 32).unwrap_err();
        assert_eq!(none.violations()[0].field, "micro_batch_size");
        assert!(none.to_string().contains("fewer than 32"), "{none}");

        let sizes = v1::Constraints { micro_batch_sizes: vec![1, 2], ..Default::default() };
        let named = [
            v1::RecommendPlanRequest { micro_batch_size: 4, ..timed() },
            v1::RecommendPlanRequest { constraints: Some(sizes), ..timed() },
            v1::RecommendPlanRequest { global_batch_size: 24, micro_batch_count: 24, ..timed() },
        ];
        for request in named {
            let (sizes, told) = of(request, 8).unwrap();
            assert!(sizes[0] < 8 && told.is_none(), "{sizes:?} {told:?}");
        }
        assert_eq!(least_share(&asked(timed()), None), 1, "nothing is known of a profile without times");
        assert_eq!(least_share(&asked(some()), Some(4)), 1, "bytes have a margin of their own");
        let limited = v1::Constraints { max_iteration_time: 2.0, ..Default::default() };
        let limited = v1::RecommendPlanRequest { constraints: Some(limited), ..some() };
        assert_eq!(least_share(&asked(limited), Some(4)), 4);
    }

    /// A launcher decides the shape and the schedule where the request does not, and refuses what it cannot run.
    #[test]
    fn launchers_decide_shape_and_schedule() {
        let launcher = v1::Launcher::Megatron.into();
        let some = || v1::RecommendPlanRequest { framework: launcher, ..Default::default() };
        let megatron = asked(some());
        assert_eq!(megatron.goal.shape, PlanShape::UniformGrid);
        assert_eq!(schedules(&megatron, &TRAINING), Ok(vec![Schedule::OneFOneB]));
        let named = asked(v1::RecommendPlanRequest { schedule: v1::Schedule::Gpipe.into(), ..some() });
        assert_eq!(schedules(&named, &TRAINING).unwrap_err().violations()[0].field, "schedule");
        let shape = v1::ParallelismLayout::PerStageMesh.into();
        let refused =
            question(&v1::RecommendPlanRequest { parallelism_layout: shape, ..some() }).unwrap_err();
        assert!(matches!(refused, ApiError::ShapeUnsupported { required: PlanShape::UniformGrid, .. }));
        let constraints = Some(v1::Constraints { recompute_per_stage: true, ..Default::default() });
        let refused = question(&v1::RecommendPlanRequest { constraints, ..some() });
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
        for seconds in [-1.0, f64::NAN, f64::INFINITY, 50.1] {
            let request = v1::RecommendPlanRequest { search_time_limit: seconds, ..some() };
            assert_eq!(field(request), "search_seconds");
        }
        assert_eq!(field(v1::RecommendPlanRequest { alternative_count: 21, ..some() }), "alternatives");
        assert_eq!(field(v1::RecommendPlanRequest { search_seed: -1, ..some() }), "search_seed");
        assert_eq!(field(v1::RecommendPlanRequest { objective: 99, ..some() }), "objective");
        assert_eq!(field(v1::RecommendPlanRequest { communication_overlap: 3, ..some() }), "transfers");
        let samples = v1::RecommendPlanRequest { global_batch_size: 1 << 40, ..some() };
        assert_eq!(field(samples), "global_batch_size");
        let partitioning = Some((&Partitioning::from_sizes(&[1, 1]).unwrap()).into());
        let objective = v1::Objective::MinPeakMemory.into();
        assert_eq!(
            field(v1::RecommendPlanRequest { pipeline_layout: partitioning, objective, ..some() }),
            "objective"
        );
    }
}
