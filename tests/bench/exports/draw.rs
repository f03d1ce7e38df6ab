//! What is drawn: plans that a framework can express, as wide as it can, and plans that it cannot.

use loadmaster_launchers::Variant;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::training::sharding::StateSharding;
use loadmaster_proto::training::{RecomputePolicy, Schedule};
use loadmaster_samples::{CutTransformer, Degrees, DescribedTransformer};
use loadmaster_tests::Sampler;

/// What a framework can say of a transformer's plan.
#[derive(Debug, Clone, Copy)]
struct Ways {
    families: &'static [&'static str],
    /// A head that is the embedding's.
    has_tied_heads: bool,
    /// Stages of several replicas and shards.
    has_degrees: bool,
    /// Several stages.
    has_stages: bool,
    /// Several stages on each device in turn.
    has_turns: bool,
    /// Shards that divide activations along the sequence.
    has_sequence: bool,
    /// Replicas that divide optimizer states.
    has_sharding: bool,
    /// Stages that have an end of the model alone.
    has_bare_ends: bool,
    schedules: &'static [&'static str],
    /// 1F1B with fewer micro-batches than stages.
    has_bubbles: bool,
    precisions: &'static [&'static str],
    recompute: &'static [&'static str],
    /// Whole stages are computed again only where all have as many blocks.
    recomputes_equal_stages: bool,
    /// Another recomputation in each stage.
    has_unlike_recompute: bool,
    /// Stages of equally many devices that share them in ways of their own, and compute again what each likes.
    has_unlike_stages: bool,
}

const ALL: Ways = Ways {
    families: &["gpt2", "llama"],
    has_tied_heads: true,
    has_degrees: true,
    has_stages: true,
    has_turns: false,
    has_sequence: false,
    has_sharding: false,
    has_bare_ends: true,
    schedules: &["1F1B", "GPipe"],
    has_bubbles: true,
    precisions: &["bf16", "bf16-gradients", "fp32"],
    recompute: &["none", "layer"],
    recomputes_equal_stages: false,
    has_unlike_recompute: false,
    has_unlike_stages: false,
};

/// Those of Megatron's family, which computes whole stages again where all have as many blocks, or the first blocks of each.
const MEGATRON: Ways = Ways {
    // Its models are flags alone: biases of queries, norms of heads and heads of any size among them.
    families: &["gpt2", "llama", "qwen2", "qwen3"],
    schedules: &["1F1B"],
    recompute: &["none", "layer", "stage", "first 1 blocks", "first 2 blocks"],
    recomputes_equal_stages: true,
    has_turns: true,
    has_sequence: true,
    has_sharding: true,
    ..ALL
};

impl Ways {
    fn of(framework: Framework) -> Self {
        match framework {
            Framework::Torchtitan => {
                Self { families: &["llama"], has_tied_heads: false, has_bubbles: false, ..ALL }
            }
            Framework::Deepspeed => {
                let recompute = &["none", "layer", "stage"];
                Self { schedules: &["1F1B"], recompute, has_sharding: true, ..ALL }
            }
            Framework::TorchPipelining => {
                Self { has_bubbles: false, recompute: &["none", "layer", "stage"], ..ALL }
            }
            Framework::ColossalAi => Self { schedules: &["1F1B"], has_unlike_recompute: true, ..ALL },
            Framework::Torchgpipe => Self {
                has_tied_heads: false,
                has_degrees: false,
                schedules: &["GPipe"],
                recompute: &["none", "stage"],
                ..ALL
            },
            Framework::Galvatron => {
                Self { has_unlike_stages: true, has_unlike_recompute: true, has_bare_ends: false, ..ALL }
            }
            Framework::Trainer => Self { has_stages: false, ..ALL },
            Framework::MegatronBridge => Self { precisions: &["bf16", "bf16-gradients"], ..MEGATRON },
            Framework::Megatron => MEGATRON,
            Framework::Accelerate => Self { families: ALL.families, has_turns: false, ..MEGATRON },
            _ => Self { schedules: &["1F1B"], ..ALL },
        }
    }
}

/// A plan that this framework can express in this way.
pub(crate) fn drawn(framework: Framework, variant: Variant, lots: &mut Sampler) -> CutTransformer {
    let ways = match variant {
        Variant::Usual => Ways::of(framework),
        // It computes all blocks of a stage again, or none.
        Variant::Hybrid => Ways { recompute: &["none", "layer", "stage"], ..Ways::of(framework) },
    };
    let family = lots.one(ways.families);
    let is_gpt2 = family == "gpt2";
    let (tensor, data) = match (ways.has_degrees, ways.has_stages) {
        (true, true) => (1 << lots.below(3), 1 + lots.below(3) as u32),
        // The whole model on every device.
        (true, false) => (1, 1 + lots.below(8) as u32),
        (false, _) => (1, 1),
    };
    // Every third plan, of shorter stages.
    let each = if ways.has_turns && lots.below(3) == 0 { 2 + lots.below(2) } else { 1 };
    let (positions, longest) = match each {
        1 => (1 + lots.below(if ways.has_stages { 4 } else { 1 }), 5),
        _ => (2 + lots.below(3), 3),
    };
    let mut stages: Vec<usize> = (0..positions * each).map(|_| 1 + lots.below(longest)).collect();
    let recompute = lots.one(ways.recompute);
    let is_equal = recompute == "stage" && ways.recomputes_equal_stages;
    if is_equal {
        let blocks = stages[0];
        stages.iter_mut().for_each(|own| *own = blocks);
    }
    // Ends of a model may be all that a stage has.
    let last = stages.len() - 1;
    let has_bare_ends = ways.has_bare_ends && !is_equal;
    if has_bare_ends && last > 0 && lots.below(4) == 0 {
        stages[last] = 0;
    }
    if has_bare_ends && stages.iter().skip(1).any(|&blocks| blocks > 0) && lots.below(6) == 0 {
        stages[0] = 0;
    }
    let heads = 4 * (1 + lots.below(2) as i64);
    let hidden = 16 * heads;
    let sequence = 32 * (1 + lots.below(3) as i64);
    let model = DescribedTransformer {
        family: family.to_owned(),
        blocks: stages.iter().sum::<usize>() as i64,
        hidden,
        heads,
        head_size: if family == "qwen3" { 16 << lots.below(2) } else { 0 },
        key_value_heads: if is_gpt2 {
            0
        } else {
            heads >> lots.below(2).min(if tensor == 4 { usize::from(heads == 8) } else { 1 })
        },
        feed_forward: if is_gpt2 { 0 } else { 3 * hidden },
        sequence,
        positions: if is_gpt2 { sequence } else { 0 },
        vocabulary: 4 * (100 + lots.below(400) as i64),
        rotary_base: if is_gpt2 { 0 } else { 10_000 },
        tied: ways.has_tied_heads && lots.below(2) == 0,
        dropout: if is_gpt2 { 0.1 } else { 0.0 },
    };
    let (positions, each) = (positions as u32, each as u32);
    let world = tensor * data * positions;
    let nodes = if ways.has_degrees && world.is_multiple_of(2) && lots.below(4) == 0 { 2 } else { 1 };
    let schedule = lots.one(ways.schedules);
    let fewest = if ways.has_bubbles || schedule == "GPipe" { 1 } else { positions };
    let micro_batches = match each {
        1 => fewest + lots.below(2 * positions as usize) as u32,
        // They go in groups of as many.
        _ => positions * (1 + lots.below(3) as u32),
    };
    // What Megatron's family shards it shards so.
    let is_sequence_parallel = ways.has_sequence && tensor > 1 && lots.below(2) == 0;
    let is_sharded = ways.has_sharding && data > 1 && lots.below(2) == 0;
    let (tensor, data) = if ways.has_unlike_stages {
        unlike(tensor * data, tensor, stages.len(), lots)
    } else {
        (tensor.into(), data.into())
    };
    // Each replica of every stage must have as many samples.
    let samples = (0..stages.len()).map(|stage| data.of(stage)).fold(1, least_multiple);
    let micro_batch = samples / data.of(0) * (1 + lots.below(3) as u32);
    CutTransformer {
        model,
        tensor,
        data,
        sequence_parallel: is_sequence_parallel,
        sharding: if is_sharded { StateSharding::Optimizer } else { StateSharding::None },
        nodes,
        devices_per_node: world / nodes,
        stages,
        virtual_stages: each,
        micro_batch,
        micro_batches,
        schedule: schedule.to_owned(),
        precision: lots.one(ways.precisions).to_owned(),
        recompute: recompute.to_owned(),
    }
}

/// Degrees of stages that have as many devices, and at most these shards.
fn unlike(devices: u32, most: u32, stages: usize, lots: &mut Sampler) -> (Degrees, Degrees) {
    let shards: Vec<u32> = (0..stages).map(|_| 1 << lots.below(most.ilog2() as usize + 1)).collect();
    let replicas = shards.iter().map(|shards| devices / shards).collect();
    (Degrees::Each(shards), Degrees::Each(replicas))
}

fn least_multiple(a: u32, b: u32) -> u32 {
    let (mut divisor, mut rest) = (a, b);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    a / divisor * b
}

/// Makes a plan that its framework can express one that it cannot; none where it has too few stages for that. Says how.
pub(crate) fn bent(framework: Framework, plan: &mut Plan, lots: &mut Sampler) -> Option<&'static str> {
    let ways = Ways::of(framework);
    let count = plan.stages.len();
    if !ways.has_stages {
        plan.stages[0].config.tensor_degree = 2;
        return Some("shards");
    }
    if count < 2 {
        return None;
    }
    if plan.is_interleaved() && lots.below(4) == 0 {
        plan.training.micro_batches += 1;
        return Some("micro-batches in no groups");
    }
    let stage = &mut plan.stages[lots.below(count)];
    Some(match lots.below(7) {
        0 if ways.has_unlike_recompute => {
            stage.recompute = RecomputePolicy::Stage;
            "a stage that is computed again at once"
        }
        0 => {
            stage.recompute = match stage.recompute {
                RecomputePolicy::None => RecomputePolicy::Layer,
                _ => RecomputePolicy::None,
            };
            "another recomputation in one stage"
        }
        1 => {
            stage.config.tensor_degree *= 2;
            "other shards in one stage"
        }
        2 => {
            stage.config.data_degree += 1;
            "other replicas in one stage"
        }
        3 if !ways.schedules.contains(&"GPipe") => {
            plan.training.schedule = Schedule::Gpipe;
            "an order of passes that it has not"
        }
        4 if !ways.has_bubbles => {
            plan.training.schedule = Schedule::OneFOneB;
            plan.training.micro_batches = count as u32 - 1;
            "fewer micro-batches than stages"
        }
        5 if !ways.has_turns && count.is_multiple_of(2) => {
            plan.virtual_stages = 2;
            "stages in turn"
        }
        _ => {
            plan.training.schedule = Schedule::PipeDream;
            "weights that change behind every backward pass"
        }
    })
}
