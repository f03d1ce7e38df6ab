//! Memory optimizations in exports: what is written is read back as each framework reads it, and says the same
//! layers, or is refused.

use std::ops::RangeInclusive;

use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::actions::{
    Action, Block, Destination, Optimization, PeerPool, StageActions, Swap,
};
use loadmaster_samples::{CutTransformer, DescribedTransformer};
use proptest::prelude::*;

use super::{case, export_as};
use crate::{Export, Refusal, Target, Variant};

/// Runs of layers of a stage that are recomputed.
type Runs = Vec<RangeInclusive<usize>>;

/// Those that say something of what is recomputed.
pub(super) const SAYING: [Framework; 10] = [
    Framework::Megatron,
    Framework::MegatronBridge,
    Framework::Accelerate,
    Framework::Torchtitan,
    Framework::TorchPipelining,
    Framework::Deepspeed,
    Framework::ColossalAi,
    Framework::Galvatron,
    Framework::Torchgpipe,
    Framework::Trainer,
];

/// A small Llama or GPT-2 that a framework takes, cut so; Trainer has one stage.
pub(super) fn cut(
    framework: Framework,
    mut stages: Vec<usize>,
    is_llama: bool,
    is_tied: bool,
) -> CutTransformer {
    if framework == Framework::Trainer {
        stages.truncate(1);
    }
    let is_llama = is_llama || framework == Framework::Torchtitan;
    let gpipe = framework == Framework::Torchgpipe;
    let is_tied = is_tied && !matches!(framework, Framework::Torchgpipe | Framework::Torchtitan);
    let case = case(stages, 1.into(), 1.into());
    let model = DescribedTransformer {
        family: if is_llama { "llama" } else { "gpt2" }.to_owned(),
        hidden: 32,
        heads: 4,
        key_value_heads: if is_llama { 4 } else { 0 },
        feed_forward: if is_llama { 96 } else { 0 },
        positions: if is_llama { 0 } else { 16 },
        rotary_base: if is_llama { 10_000 } else { 0 },
        tied: is_tied,
        ..case.model
    };
    CutTransformer {
        model,
        micro_batch: 2,
        micro_batches: 8,
        schedule: if gpipe { "GPipe" } else { "1F1B" }.to_owned(),
        ..case
    }
}

fn ask(
    framework: Framework,
    case: &CutTransformer,
    plan: &Plan,
    variant: Variant,
) -> Result<Export, Box<Refusal>> {
    export_as("some", Target::of(framework, "").unwrap(), variant, plan, Some(&case.model()))
}

fn with(case: &CutTransformer, actions: Vec<StageActions>) -> Plan {
    let mut plan = case.plan();
    plan.stages.iter_mut().zip(actions).for_each(|(stage, actions)| stage.actions = actions);
    plan
}

fn text(made: &Export) -> String {
    made.files.iter().map(|file| file.contents.as_str()).collect()
}

/// What follows a key up to an end.
fn value(text: &str, key: &str, end: &str) -> Option<String> {
    let (_, behind) = text.split_once(key)?;
    Some(behind.split(end).next().unwrap_or_default().trim().to_owned())
}

fn numbers(text: &str) -> Vec<usize> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(|word| word.parse().unwrap()).collect()
}

/// Whether Colossal-AI looks at how many blocks of each stage are to be recomputed.
fn reads_numbers(case: &CutTransformer) -> bool {
    case.model.family == "llama" && case.stages.len() > 1
}

/// What a framework recomputes of the layers of each stage, by the files alone and its own way to go through them.
fn read(framework: Framework, case: &CutTransformer, made: &Export) -> Vec<Runs> {
    let text = text(made);
    let layers: Vec<RangeInclusive<usize>> =
        case.plan().stages.iter().map(|stage| stage.config.layers()).collect();
    let last = case.model.blocks as usize;
    let blocks =
        |stage: usize| layers[stage].clone().filter(|layer| (1..=last).contains(layer)).collect::<Vec<_>>();
    let chunks = |of: Vec<usize>, length: usize| -> Runs {
        of.chunks(length.max(1)).map(|of| of[0]..=of[of.len() - 1]).collect()
    };
    let all = |of: &dyn Fn(usize) -> Runs| (0..layers.len()).map(of).collect::<Vec<Runs>>();
    let nothing = || vec![Runs::new(); layers.len()];
    match framework {
        Framework::Megatron | Framework::MegatronBridge | Framework::Accelerate => {
            let flag = |name: &str| match framework {
                Framework::Megatron => {
                    let flag = format!("--recompute-{}", name.replace('_', "-"));
                    let at = made.command.iter().position(|word| *word == flag);
                    at.map(|at| made.command[at + 1].clone())
                }
                Framework::MegatronBridge => value(&text, &format!("recompute_{name}: "), "\n"),
                _ => value(&text, &format!("megatron_lm_recompute_{name}: "), "\n"),
            };
            let Some(number) = flag("num_layers").filter(|number| number != "null") else { return nothing() };
            let number: usize = number.parse().unwrap();
            assert_eq!(flag("granularity").as_deref(), Some("full"));
            match flag("method").unwrap().as_str() {
                "uniform" => all(&|stage| {
                    assert_eq!(blocks(stage).len() % number, 0, "older versions go on behind the last block");
                    chunks(blocks(stage), number)
                }),
                "block" => all(&|stage| chunks(blocks(stage).into_iter().take(number).collect(), 1)),
                other => panic!("no method {other}"),
            }
        }
        Framework::Torchtitan if text.contains("mode = \"full\"") || text.contains("FullAC.Config()") => {
            all(&|stage| chunks(blocks(stage), 1))
        }
        Framework::Trainer if made.command.iter().any(|word| word == "--gradient_checkpointing") => {
            all(&|stage| chunks(blocks(stage), 1))
        }
        Framework::Torchgpipe if text.contains("checkpoint=\"always\"") => {
            all(&|stage| vec![layers[stage].clone()])
        }
        Framework::TorchPipelining => match value(&text, "\"recompute\": \"", "\"").unwrap().as_str() {
            "layer" => all(&|stage| chunks(layers[stage].clone().collect(), 1)),
            "stage" => all(&|stage| vec![layers[stage].clone()]),
            _ => nothing(),
        },
        Framework::Deepspeed => match value(&text, "\"activation_checkpoint_interval\": ", ",") {
            // A tied head is a function with another layer's table.
            Some(length) => all(&|stage| {
                let runs = chunks(layers[stage].clone().collect(), length.parse().unwrap());
                let head = last + 2;
                runs.into_iter().filter(|run| !case.model.tied || *run != (head..=head)).collect()
            }),
            None => nothing(),
        },
        Framework::ColossalAi => match value(&text, "num_ckpt_layers_per_stage=[", "]") {
            Some(counts) => {
                let counts = numbers(&counts);
                assert_eq!(counts.len(), layers.len());
                // Its GPT-2 computes all once more once anything is, and so does a model that is not cut.
                let of = |stage: usize| if reads_numbers(case) { counts[stage] } else { last };
                all(&|stage| chunks(blocks(stage).into_iter().take(of(stage)).collect(), 1))
            }
            None => nothing(),
        },
        Framework::Galvatron => {
            let flags = numbers(&value(&text, "\"checkpoint\": \"", "\"").unwrap());
            assert_eq!(flags.len(), last);
            all(&|stage| chunks(blocks(stage).into_iter().filter(|block| flags[block - 1] == 1).collect(), 1))
        }
        _ => nothing(),
    }
}

/// Lots that a test draws from.
struct Lots(std::vec::IntoIter<u32>);

impl Lots {
    fn below(&mut self, end: usize) -> usize {
        self.0.next().unwrap_or(0) as usize % end.max(1)
    }
}

/// Anything that stages may do, most of it what no framework says.
fn anything(case: &CutTransformer, lots: &mut Lots) -> Vec<StageActions> {
    let stages = case.plan().stages;
    let of = |stage: &loadmaster_proto::plan::PlanStage| {
        let mut actions: Vec<Action> = Vec::new();
        let (mut next, last) = (stage.config.first_layer, stage.config.last_layer);
        while next <= last {
            let end = (next + lots.below(3)).min(last);
            let slots = if lots.below(9) == 0 { vec![0] } else { Vec::new() };
            let swap =
                Swap { block: Block::Activations, to: Destination::Host, release_after: 0, fetch_before: 0 };
            let optimization = match lots.below(12) {
                0 => Some(Optimization::Swap(swap)),
                1..=5 => None,
                _ => Some(Optimization::Recompute),
            };
            actions.extend(optimization.map(|optimization| Action {
                first_layer: next,
                last_layer: end,
                slots,
                optimization,
            }));
            next = end + 1;
        }
        StageActions { actions, ..StageActions::default() }
    };
    stages.iter().map(of).collect()
}

/// Runs that a framework can say, as its documents have it.
fn sayable(framework: Framework, case: &CutTransformer, lots: &mut Lots) -> Vec<Runs> {
    let layers: Vec<RangeInclusive<usize>> =
        case.plan().stages.iter().map(|stage| stage.config.layers()).collect();
    let last = case.model.blocks as usize;
    let number = 1 + lots.below(5);
    let is_at_once = lots.below(3) == 0 && case.stages.iter().all(|blocks| blocks.is_multiple_of(number));
    let of = |layers: &RangeInclusive<usize>| -> Runs {
        let blocks: Vec<usize> = layers.clone().filter(|layer| (1..=last).contains(layer)).collect();
        let one_by_one = |of: Vec<usize>| of.into_iter().map(|layer| layer..=layer).collect::<Runs>();
        let in_runs = |of: Vec<usize>| of.chunks(number).map(|of| of[0]..=of[of.len() - 1]).collect::<Runs>();
        match framework {
            Framework::Megatron | Framework::MegatronBridge | Framework::Accelerate if is_at_once => {
                in_runs(blocks)
            }
            Framework::Megatron | Framework::MegatronBridge | Framework::Accelerate => {
                one_by_one(blocks.into_iter().take(number).collect())
            }
            Framework::ColossalAi if reads_numbers(case) => {
                let own = lots.below(blocks.len() + 1);
                one_by_one(blocks.into_iter().take(own).collect())
            }
            Framework::Galvatron => one_by_one(blocks.into_iter().filter(|_| lots.below(2) == 0).collect()),
            Framework::TorchPipelining if is_at_once => vec![layers.clone()],
            Framework::TorchPipelining => one_by_one(layers.clone().collect()),
            Framework::Torchgpipe => vec![layers.clone()],
            Framework::Deepspeed => {
                let head = last + 2;
                let runs = in_runs(layers.clone().collect());
                runs.into_iter().filter(|run| !case.model.tied || *run != (head..=head)).collect()
            }
            _ => one_by_one(blocks),
        }
    };
    layers.iter().map(of).collect()
}

fn cuts() -> impl Strategy<Value = (Framework, CutTransformer, Vec<u32>)> {
    let stages = proptest::collection::vec(1_usize..5, 1..5);
    let lots = proptest::collection::vec(any::<u32>(), 64);
    (proptest::sample::select(&SAYING[..]), stages, any::<bool>(), any::<bool>(), lots).prop_map(
        |(framework, stages, is_llama, is_tied, lots)| {
            (framework, cut(framework, stages, is_llama, is_tied), lots)
        },
    )
}

proptest! {
    /// What can be said is written, and read back it is the same.
    #[test]
    fn what_can_be_said_is_read_back((framework, case, lots) in cuts()) {
        let runs = sayable(framework, &case, &mut Lots(lots.into_iter()));
        let plan = with(&case, runs.iter().map(|runs| StageActions::recomputing(runs)).collect());
        let made = ask(framework, &case, &plan, Variant::Usual).unwrap();
        prop_assert_eq!(read(framework, &case, &made), runs, "{}", text(&made));
    }

    /// Whatever stages do, it is written and read back, or each stage that is at fault is named.
    #[test]
    fn whatever_stages_do_is_said_exactly_or_refused((framework, case, lots) in cuts()) {
        let actions = anything(&case, &mut Lots(lots.into_iter()));
        let plan = with(&case, actions.clone());
        match ask(framework, &case, &plan, Variant::Usual) {
            Ok(made) => {
                let runs: Vec<Runs> = actions.iter().map(|of| of.recomputed_alike().unwrap()).collect();
                prop_assert_eq!(read(framework, &case, &made), runs, "{}", text(&made));
            }
            Err(refusal) => {
                let mut named: Vec<usize> = refusal.stages.iter().filter_map(|of| of.stage).collect();
                prop_assert_eq!(named.len(), refusal.stages.len(), "{}", refusal);
                named.dedup();
                prop_assert_eq!(named.len(), refusal.stages.len(), "once each: {}", refusal);
                // What is not recomputation of all micro-batches alike is named wherever it is.
                for (stage, of) in actions.iter().enumerate().filter(|(_, of)| of.recomputed_alike().is_err()) {
                    let action = of.actions[of.recomputed_alike().unwrap_err()].to_string();
                    let told = refusal.stages.iter().find(|of| of.stage == Some(stage)).unwrap();
                    prop_assert!(told.why.contains(&action), "{}", refusal);
                }
            }
        }
    }
}

proptest! {
    /// Policies of their own are written where each stage has one, and read back; what one policy for all cannot say is refused.
    #[test]
    fn policies_of_stages_are_said_exactly_or_refused((framework, case, lots) in cuts()) {
        let mut lots = Lots(lots.into_iter());
        let mut plan = case.plan();
        let alike = lots.below(3) == 0;
        let first = lots.below(3);
        for stage in &mut plan.stages {
            let drawn = if alike { first } else { lots.below(3) };
            stage.recompute = [RecomputePolicy::None, RecomputePolicy::Layer, RecomputePolicy::Stage][drawn];
        }
        match ask(framework, &case, &plan, Variant::Usual) {
            Ok(made) => prop_assert_eq!(read(framework, &case, &made), of_policies(framework, &case, &plan), "{}", text(&made)),
            Err(refusal) => {
                let is_none = plan.stages.iter().all(|stage| stage.recompute == RecomputePolicy::None);
                prop_assert!(!is_none, "{}", refusal);
            }
        }
    }
}

/// Layers that policies say, as a framework takes them: those that know blocks alone leave the ends as they are.
fn of_policies(framework: Framework, case: &CutTransformer, plan: &Plan) -> Vec<Runs> {
    let last = case.model.blocks as usize;
    let takes_ends =
        matches!(framework, Framework::TorchPipelining | Framework::Deepspeed | Framework::Torchgpipe);
    let of = |stage: &loadmaster_proto::plan::PlanStage| -> Runs {
        let layers = stage.config.layers();
        let taken: Vec<usize> = layers.filter(|layer| takes_ends || (1..=last).contains(layer)).collect();
        let mut runs: Runs = match (stage.recompute, taken.as_slice()) {
            (RecomputePolicy::None, _) | (_, []) => Runs::new(),
            (RecomputePolicy::Stage, [first, .., end]) => vec![*first..=*end],
            (_, taken) => taken.iter().map(|&layer| layer..=layer).collect(),
        };
        let head = last + 2;
        runs.retain(|run| framework != Framework::Deepspeed || !case.model.tied || *run != (head..=head));
        runs
    };
    plan.stages.iter().map(of).collect()
}

/// The hybrid model counts halves of blocks: all of them can be recomputed so many at once, the first ones not.
#[test]
fn the_hybrid_model_says_whole_blocks_alone() {
    let case = cut(Framework::Megatron, vec![2, 4], false, false);
    let plan = |first: &[RangeInclusive<usize>], second: &[RangeInclusive<usize>]| {
        with(&case, [first, second].map(StageActions::recomputing).to_vec())
    };
    let made = ask(Framework::Megatron, &case, &plan(&[1..=2], &[3..=4, 5..=6]), Variant::Hybrid).unwrap();
    let at = made.command.iter().position(|word| word == "--recompute-num-layers").unwrap();
    assert_eq!(made.command[at + 1], "4", "four halves");
    let first = plan(&[1..=1], &[3..=3]);
    assert!(ask(Framework::Megatron, &case, &first, Variant::Usual).is_ok());
    let refused = ask(Framework::Megatron, &case, &first, Variant::Hybrid).unwrap_err();
    assert_eq!(refused.stages.iter().filter_map(|of| of.stage).collect::<Vec<_>>(), [0, 1]);
}

/// A policy beside actions, and memory that is set aside.
#[test]
fn what_else_stages_do_is_refused_by_stage() {
    let case = cut(Framework::Megatron, vec![2, 4], false, false);
    let some = || with(&case, vec![StageActions::recomputing(&[1..=1]), StageActions::recomputing(&[3..=3])]);
    let refused = |framework: Framework, plan: &Plan| {
        let refusal = ask(framework, &case, plan, Variant::Usual).unwrap_err();
        refusal.stages.into_iter().map(|of| (of.stage, of.why)).collect::<Vec<_>>()
    };
    let mut policy = some();
    policy.stages[1].actions = StageActions::default();
    policy.stages[1].recompute = RecomputePolicy::Layer;
    let why = refused(Framework::Megatron, &policy);
    assert!(
        why.len() == 1 && why[0].0 == Some(1) && why[0].1.contains("supports only one of the two"),
        "{why:?}"
    );
    let mut hosting = some();
    hosting.stages[0].actions.peer_pools =
        vec![PeerPool { stage: 1, bytes: loadmaster_proto::bytes::Bytes(1) }];
    let why = refused(Framework::Megatron, &hosting);
    assert!(why.len() == 1 && why[0].0 == Some(0) && why[0].1.contains("reserves memory"), "{why:?}");
}
