//! The bytes that torchtitan holds besides a plan's.
//!
//! FSDP keeps gathered weights and fp32 gradients of a stage through its micro-batches. It gives up the latter layer by layer as it
//! shares them out. They are shared among as many data shards as exports say. 0.3 shards nothing among replicas
//! (`data_parallel_shard_degree=1`). 0.2 shards among the replicas of stages and of tensor shards, which it trains in no other way.

use loadmaster_proto::training::Precision;

use super::{RULES, TorchtitanSetup};
use crate::framework::torch_pipelining;
use crate::memory::{EdgeTensors, Held, TrainingWay};

/// Returns torchtitan's ways to train.
pub(super) fn ways(precision: Precision) -> &'static [TrainingWay] {
    const BF16: &[TrainingWay] = &[
        TrainingWay {
            weights: ("cast weights", 2),
            copies: &[("weights", 4)],
            ..accumulating("in version 0.3 with a data shard degree of 1")
        },
        TrainingWay {
            weights: ("gathered weights", 2),
            ..accumulating(
                "in version 0.2 with FSDP, which shards over replicas of several stages or tensor shards",
            )
            .sharing(WEIGHTS)
        },
        TrainingWay {
            besides: "; with one replica and several stages or tensor shards, version 0.2 keeps no fp32 weights, so a \
             parameter needs fewer bytes",
            ..TrainingWay::new("in version 0.2 with replicas only", 4, 4)
        },
    ];
    const FP32: &[TrainingWay] = &[
        TrainingWay::new(
            "in version 0.3 with a data shard degree of 1, and in version 0.2 with one replica or with data \
             parallelism only",
            4,
            4,
        ),
        TrainingWay {
            weights: ("gathered weights", 4),
            ..accumulating(
                "in version 0.2 with FSDP, which shards over replicas of several stages or tensor shards",
            )
            .sharing(WEIGHTS)
        },
    ];
    if precision == Precision::Fp32 { FP32 } else { BF16 }
}

const WEIGHTS: &[(&str, u64)] = &[("weights", 4)];

/// Returns a way whose gradients of all micro-batches are in fp32.
const fn accumulating(setting: &'static str) -> TrainingWay {
    TrainingWay { gradients: ("gradients of all micro-batches", 4), ..TrainingWay::new(setting, 2, 4) }
}

/// Returns the bytes that 0.3 holds, or 0.2, which holds no more of any parameter than a plan counts.
pub(super) fn held(asked: &TorchtitanSetup<'_>, is_latest: bool) -> Held {
    let training = asked.question.plan.training;
    let tensors = match asked.grid.stages {
        // Without a pipeline gradients are added up by its own loop.
        1 => EdgeTensors::NONE,
        _ => torch_pipelining::held(training.schedule, is_latest),
    };
    let parameters =
        if is_latest { Held::per_parameter(&RULES, asked.question.plan) } else { Held::default() };
    Held { tensors, ..parameters }
}
