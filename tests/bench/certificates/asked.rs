//! A question with all defaults filled in, by the words of the interface, and what frameworks can run.

use loadmaster_oracle::{Batch, Objective, PlanRules, Recompute, Schedule, Shape, Spanning};

use crate::certificates::question::{Framework, Question};
use crate::certificates::scene::{Scene, Training};

/// What there is to choose from.
pub(crate) fn plan_rules(scene: &Scene, question: &Question) -> PlanRules {
    let training = &scene.training;
    let rules = question.framework.map(|framework| Rules::of(framework, training));
    let shape = question.shape.or_else(|| rules.map(|rules| rules.shape)).unwrap_or(Shape::SinglePipeline);
    let schedule = question.schedule.unwrap_or(training.schedule);
    let schedules = match rules {
        _ if !question.schedules.is_empty() => question.schedules.clone(),
        Some(rules) if question.schedule.is_none() && !rules.schedules.contains(&schedule) => {
            vec![rules.schedules[0]]
        }
        _ => vec![schedule],
    };
    let policies = match question.policies.as_slice() {
        [] => vec![question.recompute.unwrap_or(training.recompute)],
        named => named.to_vec(),
    };
    let spanning = question.spanning.unwrap_or(match shape {
        Shape::UniformGrid => Spanning::Anywhere,
        _ => Spanning::Never,
    });
    let layers = scene.layers();
    let most = if rules.is_some_and(|rules| rules.is_one_stage) { 1 } else { layers };
    let most = question.max_stages.map_or(most, |asked| (asked as usize).min(most));
    PlanRules {
        layers,
        shape,
        spanning,
        batches: batches(scene, question),
        schedules,
        policies,
        policy_per_stage: question.policy_per_stage,
        shardings: question.shardings.clone(),
        data_degrees: question.data_degrees.clone(),
        tensor_degrees: question.tensor_degrees.clone(),
        stages: (question.min_stages.map_or(1, |least| least as usize), most),
        keep_together: question.keep_together.clone(),
        cut_after: question.cut_after.clone(),
        may_idle: question.may_idle || question.objective.chooses_devices(),
        is_even: rules.is_some_and(|rules| rules.is_even),
    }
}

fn batches(scene: &Scene, question: &Question) -> Vec<Batch> {
    let size = question.micro_batch_size.unwrap_or(scene.training.micro_batch_size);
    let count = question.micro_batches.unwrap_or(scene.training.micro_batches);
    let samples = question.global_batch.unwrap_or(size * count);
    let dividing = |size: u32| Batch { size, count: samples / size };
    if !question.sizes.is_empty() {
        let batch = |&size: &u32| match (question.global_batch, question.micro_batches) {
            (None, Some(count)) => Batch { size, count },
            _ => dividing(size),
        };
        let is_named = |batch: &Batch| question.micro_batches.is_none_or(|count| batch.count == count);
        return question.sizes.iter().map(batch).filter(is_named).collect();
    }
    let divisors = || (1..=samples).filter(|size| samples.is_multiple_of(*size));
    match question.objective {
        Objective::MaxBatch if question.global_batch.is_none() && question.micro_batch_size.is_none() => (1
            ..=4_096_u32)
            .filter(|size| *size <= 64 || (*size <= 512 && size.is_multiple_of(8)) || size.is_multiple_of(64))
            .map(|size| Batch { size, count })
            .collect(),
        Objective::MinIterationTime | Objective::Pareto | Objective::MaxBatch
            if question.micro_batch_size.is_none() =>
        {
            let fixed = question.micro_batches;
            divisors().map(dividing).filter(|batch| fixed.is_none_or(|count| batch.count == count)).collect()
        }
        _ if question.global_batch.is_some() => vec![dividing(size)],
        _ => vec![Batch { size, count }],
    }
}

/// What one framework can run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// The most general shape; the default.
    pub(crate) shape: Shape,
    /// Orders of the passes, the default first.
    pub(crate) schedules: &'static [Schedule],
    /// What it has words for.
    pub(crate) policies: &'static [Recompute],
    pub(crate) policy_per_stage: bool,
    /// It may divide optimizer states among replicas.
    pub(crate) shards: bool,
    /// Equally many devices on every node that is used.
    pub(crate) is_even: bool,
    /// The whole model is on every device.
    pub(crate) is_one_stage: bool,
}

const FLUSHED: &[Schedule] = &[Schedule::OneFOneB];
const BOTH: &[Schedule] = &[Schedule::OneFOneB, Schedule::Gpipe];

impl Rules {
    pub(crate) fn of(framework: Framework, training: &Training) -> Self {
        use Framework::*;
        let policies: &[Recompute] = match framework {
            Torchgpipe => &[Recompute::None, Recompute::Stage],
            Torchtitan | ColossalAi | Galvatron | Trainer => &[Recompute::None, Recompute::Layer],
            _ => Recompute::ALL,
        };
        let rules = |shape, schedules, policy_per_stage, is_even| Self {
            shape,
            schedules,
            policies,
            policy_per_stage,
            // All but one's own program shard the states of Adam alone, which has two.
            shards: match framework {
                Megatron | MegatronBridge | Accelerate | Deepspeed => training.state_scalars == 2,
                other => other == Other,
            },
            is_even,
            // What Megatron-Bridge passes between stages is bf16.
            is_one_stage: framework == Trainer || framework == MegatronBridge && !training.is_bf16,
        };
        match framework {
            Megatron | MegatronBridge | Accelerate | Deepspeed => {
                rules(Shape::UniformGrid, FLUSHED, false, true)
            }
            Torchtitan => rules(Shape::UniformGrid, BOTH, false, true),
            TorchPipelining => rules(Shape::UniformGrid, BOTH, true, true),
            ColossalAi => rules(Shape::UniformGrid, FLUSHED, true, true),
            Galvatron => rules(Shape::EqualDevices, BOTH, true, true),
            Torchgpipe => rules(Shape::SinglePipeline, &[Schedule::Gpipe], false, false),
            Trainer => rules(Shape::PerStageReplicas, FLUSHED, false, true),
            Other => rules(Shape::PerStageMesh, BOTH, true, false),
        }
    }
}
