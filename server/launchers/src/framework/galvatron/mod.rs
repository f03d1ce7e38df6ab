//! Hetu-Galvatron: a strategy of one entry per block, whose stages may share their work each in its own way.
//!
//! Its stages have equally many devices. Replicas and shards are those of each block; the ends of the model have one degree of
//! their own for both (`vtp`).

mod model;

use std::collections::{BTreeMap, BTreeSet};

use loadmaster_proto::plan::PlanStage;
use loadmaster_proto::plan::objective::{Framework, PlanShape};
use loadmaster_proto::training::shard::Shard;
use loadmaster_proto::training::{Precision, RecomputePolicy, Schedule};
use loadmaster_proto::warning::{Warning, WarningCode};
use serde::Serialize;

use super::{Exporter, Written, number_format, target};
use crate::StageRefusal;
use crate::cut::Cut;
use crate::export_parts::{ExportedFile, Proof, Verified};
use crate::grid::places_in_order;
use crate::manifest::{Flag, Torchrun};
use crate::memory::{EdgeTensors, Held, MicroBatches, MoreParameters};
use crate::question::{ExportQuestion, Refused, all_or};
use crate::recompute::Recomputing;
use crate::rules::{BOTH, CutUnit, Engine, LAYERS, Rules};
use crate::transformer::Transformer;

pub(super) const RULES: Rules = Rules {
    framework: Framework::Galvatron,
    recomputing: Recomputing::AnyBlocks,
    policies: LAYERS,
    shape: PlanShape::EqualDevices,
    cut: CutUnit::BetweenBlocks,
    schedules: BOTH,
    recompute_per_stage: true,
    engine: Some(Engine::blocking("galvatron", "Galvatron's engine waits as Megatron's does")),
    ..Rules::USUAL
};

pub(super) const EXPORTER: Exporter = Exporter {
    target: target(Framework::Galvatron, 2, 4),
    writes: "galvatron_config.json, with the strategy of every block; model.json, for Galvatron's GPT or Llama; and \
        train.sh",
    verified: Verified::Parsed,
    proof: Some(Proof::of("hetu-galvatron", "2.4.0")),
    write,
};

/// Galvatron's own names; texts have an entry per block.
#[derive(Serialize)]
struct Strategy {
    pp_deg: usize,
    pp_division: String,
    tp_sizes_enc: String,
    tp_consecutive_flags: String,
    dp_types_enc: String,
    use_sp: String,
    checkpoint: String,
    global_bsz: u64,
    chunks: u32,
    pipeline_type: &'static str,
    default_dp_type: &'static str,
    vtp: u32,
    vsp: u32,
    embed_sdp: u32,
}

fn write(question: &ExportQuestion<'_>) -> Result<Written, Refused> {
    let schedule = question.check_schedule(RULES.schedules)?;
    let (transformer, cut) = question.transformer()?;
    check_stages(question, &transformer, &cut)?;
    let ends = shards_of_ends(question);
    let vocabulary = transformer.embedding.vocabulary_size;
    if vocabulary % i64::from(ends.max(1)) != 0 {
        let why = format!(
            "has a vocabulary of {vocabulary}, which is not divisible into {ends} tensor shards. Pad the vocabulary to \
             a multiple of {ends}"
        );
        return Err(vec![StageRefusal::of_plan(why)]);
    }
    let again = again(question, &transformer, &cut)?;
    let strategy = strategy(question, &cut, schedule, ends, &again);
    let strategy = ExportedFile::json("galvatron_config.json", &strategy);
    let known = model::of(&transformer, ends);
    let ranks = places_in_order(question.plan);
    let torchrun = Torchrun::of(&ranks)?;
    let mut plan: Vec<Flag> = vec![vec!["--galvatron_config_path=./galvatron_config.json".to_owned()]];
    let precision = number_format(question.plan.training.precision);
    plan.push(vec![format!("--mixed_precision={precision}")]);
    if question.plan.training.precision == Precision::Bf16Fp32Gradients {
        plan.push(vec!["--reduce_in_fp32".to_owned()]);
    }
    let model_flags = known.as_ref().map(|known| known.flags.clone()).unwrap_or_default();
    let groups: Vec<(&str, &[Flag])> = [("MODEL", &model_flags), ("PLAN", &plan)]
        .into_iter()
        .filter(|(_, flags)| !flags.is_empty())
        .map(|(name, flags)| (name, flags.as_slice()))
        .collect();
    let how = known.as_ref().map_or_else(
        || "Put these files beside your train_dist.py. Add the options of model, data and optimizer: ./train.sh \
            --train-iters 1000 …".to_owned(),
        |known| {
            format!(
                "Put these files into galvatron/models/{folder}. Replace meta_configs/{size}.json there by \
                 model.json:\n# Galvatron identifies models by name. Add the options of data and optimizer:\n# \
                 ./train.sh --train-iters 1000 …",
                folder = known.folder,
                size = known.size
            )
        },
    );
    let about = format!("Blocks of the stages: {}. {how}", cut.listed_blocks());
    let script = torchrun.script((&question.head_line(), &about), None, "", &groups, "train_dist.py");
    let flags = model_flags.iter().chain(&plan).flatten().cloned();
    let command = torchrun.words().into_iter().chain(["train_dist.py".to_owned()]).chain(flags).collect();
    let files = [
        Some(strategy),
        known.as_ref().map(|known| known.file.clone()),
        Some(ExportedFile::new("train.sh", script)),
    ];
    let more = more_parameters(question, &transformer, ends);
    let mut warnings = warnings(&more, question, ends);
    let held = Held {
        vocabulary: known.as_ref().and_then(|known| known.vocabulary),
        parameters: more,
        tensors: EdgeTensors {
            outputs: MicroBatches::InFlightAnd(0),
            gradients: MicroBatches::Some(1),
            ..EdgeTensors::NONE
        },
        ..Held::default()
    };
    match known {
        Some(known) => warnings.extend(known.warnings),
        None => warnings.push(WarningCode::SetupNeeded.says(
            "neither Galvatron's GPT nor its Llama matches this model. In train_dist.py, use your own model with the \
             plan's blocks",
        )),
    }
    Ok(Written {
        files: files.into_iter().flatten().collect(),
        command,
        environment: BTreeMap::new(),
        ranks,
        warnings,
        held: Some(held),
        ..Written::default()
    })
}

/// # Errors
/// Each stage that is not like what Galvatron builds.
fn check_stages(question: &ExportQuestion<'_>, transformer: &Transformer, cut: &Cut) -> Result<(), Refused> {
    let plan = question.plan;
    let devices = plan.stages.first().map_or(0, |stage| stage.config.devices());
    let block = transformer.block;
    let why = |index: usize| {
        let stage = &plan.stages[index];
        let config = stage.config;
        let mut why = Vec::new();
        if config.devices() != devices {
            let own = config.devices();
            why.push(format!(
                "has {own} devices, but the first stage has {devices}. Use the same number in all \
                stages"
            ));
        }
        if !plan.training.micro_batch_size.is_multiple_of(config.data_degree.max(1)) {
            let (samples, replicas) = (plan.training.micro_batch_size, config.data_degree);
            why.push(format!(
                "has data-parallel size {replicas}, which does not divide the micro-batch size {samples}. \
                Use a divisor of {samples}"
            ));
        }
        if cut.stages.get(index).is_some_and(|part| part.blocks.is_empty()) {
            why.push(
                "has no transformer block, but Galvatron needs a block in each stage. Move a block to this \
                stage"
                    .to_owned(),
            );
        }
        let shards = i64::from(config.tensor_degree);
        if block.heads % shards != 0 || block.key_value_heads() % shards != 0 {
            let (heads, kept) = (block.heads, block.key_value_heads());
            why.push(format!(
                "has tensor-parallel size {shards}, which does not divide both {heads} attention heads and {kept} \
                 key-value heads. Use a smaller size"
            ));
        }
        if stage.recompute == RecomputePolicy::Stage {
            why.push(
                "recomputes the whole stage at once, but Galvatron recomputes blocks one by one. Request a plan with \
                 the recompute policy `layer` or `none`".to_owned(),
            );
        }
        why.into_iter().map(move |why| StageRefusal::of_stage(index, why))
    };
    all_or((0..plan.stages.len()).flat_map(why).collect())
}

/// Shards of the embedding and of the head: as many as both their stages have, so that no sample is split.
fn shards_of_ends(question: &ExportQuestion<'_>) -> u32 {
    let of = |stage: Option<&loadmaster_proto::plan::PlanStage>| {
        stage.map_or(1, |stage| stage.config.tensor_degree)
    };
    of(question.plan.stages.first()).min(of(question.plan.stages.last()))
}

/// Of every block whether it is recomputed, alone.
///
/// # Errors
/// Stages whose memory optimizations compute other layers once more, or several at once.
fn again(question: &ExportQuestion<'_>, transformer: &Transformer, cut: &Cut) -> Result<Vec<bool>, Refused> {
    let can = "recomputes any blocks one by one";
    let Some(recomputed) = question.recomputed(RULES.recomputing, can)? else {
        let of_stage =
            |(stage, &blocks): (&PlanStage, &usize)| vec![stage.recompute == RecomputePolicy::Layer; blocks];
        return Ok(question.plan.stages.iter().zip(&cut.block_counts()).flat_map(of_stage).collect());
    };
    let again: BTreeSet<usize> = recomputed.runs.iter().flatten().map(|run| *run.start()).collect();
    Ok(transformer.blocks().map(|block| again.contains(&block)).collect())
}

fn strategy(
    question: &ExportQuestion<'_>,
    cut: &Cut,
    schedule: Schedule,
    ends: u32,
    again: &[bool],
) -> Strategy {
    let stages = &question.plan.stages;
    let per_block = |of: &dyn Fn(usize) -> u32| {
        joined(cut.block_counts().iter().enumerate().flat_map(|(stage, &blocks)| vec![of(stage); blocks]))
    };
    Strategy {
        pp_deg: stages.len(),
        pp_division: joined(cut.block_counts()),
        tp_sizes_enc: per_block(&|stage| stages[stage].config.tensor_degree),
        tp_consecutive_flags: per_block(&|_| 1),
        dp_types_enc: per_block(&|_| 0),
        use_sp: per_block(&|_| 0),
        checkpoint: joined(again.iter().map(|&again| u32::from(again))),
        global_bsz: question.samples(),
        chunks: question.plan.training.micro_batches,
        pipeline_type: if schedule == Schedule::Gpipe { "gpipe" } else { "pipedream_flush" },
        default_dp_type: "ddp",
        vtp: ends,
        vsp: 0,
        embed_sdp: 0,
    }
}

fn joined(numbers: impl IntoIterator<Item = impl ToString>) -> String {
    let numbers: Vec<String> = numbers.into_iter().map(|number| number.to_string()).collect();
    numbers.join(",")
}

/// What the ends of the model have besides on each device, where their stages have more shards than both ends.
fn more_parameters(
    question: &ExportQuestion<'_>,
    transformer: &Transformer,
    ends: u32,
) -> Vec<MoreParameters> {
    let row = u64::try_from(transformer.block.hidden_size).unwrap_or_default();
    let table = |shards: u32| {
        let first = Shard { index: 0, degree: shards.max(1) };
        u64::try_from(first.range(transformer.embedding.vocabulary_size).end)
            .unwrap_or_default()
            .saturating_mul(row)
    };
    let last = question.plan.stages.len().saturating_sub(1);
    let at_ends = [0, last].into_iter().take(last + 1);
    let more = at_ends.filter_map(|stage| {
        let own = question.plan.stages.get(stage)?.config.tensor_degree;
        let scalars = table(ends).saturating_sub(table(own));
        (own > ends).then_some(MoreParameters { stage, scalars, what: "the embedding table" })
    });
    more.collect()
}

fn warnings(more: &[MoreParameters], question: &ExportQuestion<'_>, ends: u32) -> Vec<Warning> {
    let told = more.iter().filter_map(|MoreParameters { stage, scalars, .. }| {
        let own = question.plan.stages.get(*stage)?.config.tensor_degree;
        let why = format!(
            "Galvatron has one tensor-parallel size for the embedding and the head. Stage {stage} splits the embedding \
             table into {ends} shards instead of {own}. Each device holds {scalars} parameters more than in the plan"
        );
        Some(WarningCode::MemoryDiffers.says(why).of_stage(*stage))
    });
    told.collect()
}
