//! Trainer of transformers, whose ranks all have the whole model.

use std::collections::BTreeMap;

use loadmaster_proto::plan::objective::{Framework, PlanShape};
use loadmaster_proto::training::Precision;
use loadmaster_proto::warning::WarningCode;

use super::{Exporter, Written, target};
use crate::StageRefusal;
use crate::export_parts::{ExportedFile, Proof, Verified};
use crate::grid::AxisOrder;
use crate::manifest::{Flag, Torchrun};
use crate::memory::Held;
use crate::question::{ExportQuestion, Refused};
use crate::recompute::{Counted, Recomputing};
use crate::rules::{BOTH, CutUnit, Engine, LAYERS, Rules};

pub(super) const RULES: Rules = Rules {
    framework: Framework::Trainer,
    recomputing: Recomputing::Alike(&[Counted::AllBlocks]),
    policies: LAYERS,
    shape: PlanShape::PerStageReplicas,
    cut: CutUnit::Nowhere,
    engine: Some(Engine::blocking(
        "trainer",
        "Trainer has no pipeline stages, so there are no transfers between stages",
    )),
    note: || {
        "Trainer keeps weights and gradients in fp32 when it computes in bf16: up to 4 bytes per parameter more than \
         predicted"
            .to_owned()
    },
    ..Rules::USUAL
};

pub(super) const EXPORTER: Exporter = Exporter {
    target: target(Framework::Trainer, 5, 0),
    writes: "train.sh: starts train.py with Trainer's arguments for data-parallel replicas of the whole model",
    verified: Verified::Parsed,
    proof: Some(Proof::of("transformers", "5.23.0")),
    write,
};

fn write(question: &ExportQuestion<'_>) -> Result<Written, Refused> {
    check_is_replicated(question)?;
    question.check_schedule(BOTH)?;
    let grid = question.grid()?;
    let training = question.plan.training;
    let mut plan: Vec<Flag> = vec![
        vec![format!("--per_device_train_batch_size={}", question.samples_per_replica(&grid))],
        vec![format!("--gradient_accumulation_steps={}", training.micro_batches)],
    ];
    let casts = training.precision != Precision::Fp32;
    if casts {
        plan.push(vec!["--bf16".to_owned()]);
    }
    let whole = "recomputes all its layers at once, but Trainer recomputes layers one by one. Request a plan with \
            the recompute policy `layer` or `none`";
    if question.recomputes_blocks(|| StageRefusal::of_stage(0, whole))? {
        plan.push(vec!["--gradient_checkpointing".to_owned()]);
    }
    let ranks = grid.places(question.plan, AxisOrder::StagesFirst);
    let torchrun = Torchrun::of(&ranks)?;
    // Of a model that is known by its layers' names alone it is not known which are blocks.
    let size = match question.transformer() {
        Ok((transformer, _)) => (transformer.block_count(), "block"),
        Err(_) => (question.plan.stages.iter().map(|stage| stage.config.layer_count()).sum(), "layer"),
    };
    let about = format!(
        "One stage of {} {}{}. Set model, data, optimizer and output yourself: ./train.sh --output_dir out …",
        size.0,
        size.1,
        if size.0 == 1 { "" } else { "s" }
    );
    let script = torchrun.script((&question.head_line(), &about), None, "", &[("PLAN", &plan)], "train.py");
    let words = torchrun.words().into_iter().chain(["train.py".to_owned()]);
    let command = words.chain(plan.iter().flatten().cloned()).collect();
    let clipping = "Trainer clips gradients to a norm of 1, which a plan does not set. Pass --max_grad_norm 0 to \
        switch clipping off";
    let cast = casts.then(|| {
        WarningCode::MemoryDiffers.says(
            "Trainer keeps weights and gradients in fp32 and casts them for computing: 8 bytes per parameter, without the \
             optimizer state",
        )
    });
    Ok(Written {
        files: vec![ExportedFile::new("train.sh", script)],
        command,
        environment: BTreeMap::new(),
        ranks,
        warnings: [WarningCode::TrainingDiffers.says(clipping)].into_iter().chain(cast).collect(),
        // No one counts what casting leaves.
        held: (!casts).then(Held::default),
        ..Written::default()
    })
}

/// # Errors
/// The stages behind the first, and those that have shards.
fn check_is_replicated(question: &ExportQuestion<'_>) -> Result<(), Refused> {
    let why = |index: usize, shards: u32| {
        if index > 0 {
            Some("is a second stage, but Trainer has no pipeline parallelism. Export to accelerate or Megatron".to_owned())
        } else if shards > 1 {
            Some(format!(
                "has tensor-parallel size {shards}, but Trainer has no tensor parallelism. Export to accelerate or \
                 Megatron"
            ))
        } else {
            None
        }
    };
    let stages = question.plan.stages.iter().enumerate();
    let refused = stages.filter_map(|(index, stage)| {
        why(index, stage.config.tensor_degree).map(|why| StageRefusal::of_stage(index, why))
    });
    crate::question::all_or(refused.collect())
}
