//! torchgpipe: one process drives the devices of a pipeline (Kim et al., 2020).

use std::collections::BTreeSet;

use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::plan::objective::{Framework, PlanShape};
use loadmaster_proto::training::{Precision, RecomputePolicy, Schedule};
use loadmaster_proto::warning::WarningCode;

use super::{Exporter, Written, target};
use crate::StageRefusal;
use crate::cut::{Chain, listed};
use crate::export_parts::{ExportedFile, Proof, RankPlace, Verified};
use crate::grid::AxisOrder;
use crate::memory::{EdgeTensors, Held, MicroBatches};
use crate::question::{ExportQuestion, Refused, all_or};
use crate::recompute::{Counted, Recomputing};
use crate::rules::{CutUnit, Engine, Rules};

pub(super) const RULES: Rules = Rules {
    framework: Framework::Torchgpipe,
    recomputing: Recomputing::Alike(&[Counted::WholeStages]),
    policies: &[RecomputePolicy::None, RecomputePolicy::Stage],
    shape: PlanShape::SinglePipeline,
    cut: CutUnit::Layer,
    schedules: &[Schedule::Gpipe],
    even_nodes: false,
    shared_weights: false,
    engine: Some(Engine::overlapping(
        "torchgpipe",
        "torchgpipe copies between devices in separate CUDA streams",
    )),
    ..Rules::USUAL
};

pub(super) const EXPORTER: Exporter = Exporter {
    target: target(Framework::Torchgpipe, 0, 0),
    writes: "loadmaster_gpipe.py: wraps your nn.Sequential with the plan's balance, devices, chunks and checkpointing",
    verified: Verified::Trained,
    proof: Some(Proof::of("torchgpipe", "0.0.7")),
    write,
};

fn write(question: &ExportQuestion<'_>) -> Result<Written, Refused> {
    question.check_schedule(RULES.schedules)?;
    check_is_single_pipeline(question)?;
    let checkpoint = checkpoint(question)?;
    let ranks = question.grid()?.places(question.plan, AxisOrder::StagesFirst);
    let devices = devices(&ranks)?;
    let text = gpipe(question, &devices, checkpoint);
    let mut warnings = vec![
        WarningCode::SetupNeeded
            .says("write train.py and the model yourself: see the top of loadmaster_gpipe.py"),
    ];
    if question.plan.training.precision != Precision::Fp32 {
        let why = "torchgpipe trains in the format of the model's parameters. Convert the model to bf16, and use an \
            optimizer that keeps the plan's fp32 master weights, because torch's optimizers do not";
        warnings.push(WarningCode::SetupNeeded.says(why));
    }
    // The outputs of all micro-batches are put together into those of the batch, which have one loss.
    let tensors = EdgeTensors {
        last_outputs: MicroBatches::All,
        last_gradients: MicroBatches::All,
        ..EdgeTensors::NONE
    };
    Ok(Written {
        files: vec![ExportedFile::new("loadmaster_gpipe.py", text)],
        command: ["python", "train.py"].map(str::to_owned).to_vec(),
        ranks,
        warnings,
        held: Some(Held { tensors, ..Held::default() }),
        ..Written::default()
    })
}

/// What it recomputes is everything within a stage, of every micro-batch, or nothing.
///
/// # Errors
/// Stages that do otherwise.
fn checkpoint(question: &ExportQuestion<'_>) -> Result<&'static str, Refused> {
    if question.recomputed(RULES.recomputing, "recomputes whole stages")?.is_some() {
        return Ok("always");
    }
    match question.recompute()? {
        RecomputePolicy::None => Ok("never"),
        RecomputePolicy::Stage => Ok("always"),
        RecomputePolicy::Layer => {
            let why = "recomputes layers one by one, but torchgpipe recomputes whole stages. Request a plan with the \
                    recompute policy `stage` or `none`";
            Err(vec![StageRefusal::of_plan(why)])
        }
    }
}

/// # Errors
/// Stages of several devices, or a weight that two stages share.
fn check_is_single_pipeline(question: &ExportQuestion<'_>) -> Result<(), Refused> {
    let stages = question.plan.stages.iter().enumerate();
    let wide = stages.filter(|(_, stage)| stage.config.devices() > 1).map(|(index, stage)| {
        let why = format!(
            "has {} devices, but torchgpipe has one device per stage. Request a plan with one device per stage",
            stage.config.devices()
        );
        StageRefusal::of_stage(index, why)
    });
    all_or(wide.collect())?;
    if question.model.is_some_and(loadmaster_proto::model::Model::has_tied_head) {
        let why =
            "shares a weight between the embedding and the head, which torchgpipe rejects. Untie the head";
        return Err(vec![StageRefusal::of_plan(why)]);
    }
    Ok(())
}

/// The devices of the stages as torch calls them: of those in sight the one of each rank's number, as for all frameworks.
///
/// # Errors
/// They are of several nodes: it is one process.
fn devices(ranks: &[RankPlace]) -> Result<Vec<String>, Refused> {
    let devices = ranks.iter().filter_map(|place| place.device.as_ref());
    let nodes: BTreeSet<&str> = devices.map(|device| device.node.as_str()).collect();
    if nodes.len() > 1 {
        let why = format!(
            "has stages on {} nodes, but torchgpipe is one process. Request a plan for the devices of one node",
            nodes.len()
        );
        return Err(vec![StageRefusal::of_plan(why)]);
    }
    let of = |place: &RankPlace| match &place.device {
        // Slots of a CPU are one device of torch's.
        Some(device) if device.kind == CPU_KIND => CPU_KIND.to_owned(),
        _ => format!("cuda:{}", place.rank),
    };
    Ok(ranks.iter().map(of).collect())
}

fn gpipe(question: &ExportQuestion<'_>, devices: &[String], checkpoint: &str) -> String {
    let Chain { bounds, layers, stages } = Chain::of(question);
    let balance: Vec<usize> = bounds.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let devices: Vec<String> = devices.iter().map(|device| format!("\"{device}\"")).collect();
    format!(
        r#""""{head}.

{stages}. In train.py, whose model is an nn.Sequential of one module for each layer of the plan ({layers}),
and whose batches have {samples} samples ({chunks} micro-batches of {size}):

    model = loadmaster_gpipe.gpipe(nn.Sequential(…))
    model(batch.to(model.devices[0]))  # the loss is computed on model.devices[-1]
"""

from collections.abc import Sequence
from typing import Any

from torch import nn
from torchgpipe import GPipe

# Layers of each device.
BALANCE = [{balance}]
DEVICES = [{devices}]


def gpipe(model: nn.Sequential, devices: Sequence[str] = DEVICES, **settings: Any) -> GPipe:
    """The plan; `settings` are GPipe's others."""
    return GPipe(model, balance=BALANCE, devices=devices, chunks={chunks}, checkpoint="{checkpoint}", **settings)
"#,
        head = question.head_line(),
        samples = question.samples(),
        chunks = question.plan.training.micro_batches,
        size = question.plan.training.micro_batch_size,
        balance = listed(&balance),
        devices = devices.join(", "),
    )
}
