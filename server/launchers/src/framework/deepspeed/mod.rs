//! DeepSpeed: its configuration, and the user's layers cut where the plan cuts them.
//!
//! It has no argument for a cut, so the file that is written overrides the one method that decides it.

pub(in crate::framework) mod hosts;
mod memory;

use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::training::actions::Form;
use loadmaster_proto::training::{Precision, RecomputePolicy};
use loadmaster_proto::warning::{Warning, WarningCode};
use serde::Serialize;

use super::{Exporter, Written, target};
use crate::cut::{Chain, listed};
use crate::export_parts::{ExportedFile, Proof, Verified};
use crate::grid::{AxisOrder, Grid};
use crate::manifest::nodes;
use crate::memory::Held;
use crate::question::{ExportQuestion, Refused, sharding_of};
use crate::recompute::{Counted, Recomputing, StageRuns};
use crate::rules::{CutUnit, Engine, InChunks, Rules, with_adam};

pub(super) const RULES: Rules = Rules {
    framework: Framework::Deepspeed,
    recomputing: Recomputing::Alike(&[Counted::TrainedAtOnce]),
    cut: CutUnit::Layer,
    // Of other optimizers its ZeRO says that they are not tested.
    shardings: with_adam,
    chunks: InChunks::AsPublished,
    engine: Some(Engine::blocking(
        "deepspeed",
        "DeepSpeed's pipeline engine sends and receives synchronously, between its passes",
    )),
    note: || memory::PIPELINE.note("DeepSpeed"),
    ways: memory::ways,
    ..Rules::USUAL
};

pub(super) const EXPORTER: Exporter = Exporter {
    target: target(Framework::Deepspeed, 0, 19),
    writes: "ds_config.json; loadmaster_pipeline.py, which splits your PipelineModule; and, for several nodes, \
        hostfile",
    verified: Verified::Trained,
    proof: Some(Proof::of("deepspeed", "0.19.8")),
    write,
};

/// `ds_config.json`. DeepSpeed ignores keys that it does not know.
#[derive(Debug, Serialize)]
struct Config {
    train_batch_size: u64,
    train_micro_batch_size_per_gpu: u32,
    /// Of a pipeline: its micro-batches.
    gradient_accumulation_steps: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    bf16: Option<Enabled>,
    /// Largest norm of an iteration's gradients, 0 for any. It is 1 unless something is said.
    gradient_clipping: f64,
    zero_optimization: Zero,
    #[serde(skip_serializing_if = "Option::is_none")]
    pipeline: Option<Checkpointing>,
}

#[derive(Debug, Serialize)]
struct Enabled {
    enabled: bool,
}

#[derive(Debug, Serialize)]
struct Zero {
    stage: u32,
}

#[derive(Debug, Serialize)]
struct Checkpointing {
    /// Layers of a run that is recomputed at once; runs begin anew on every stage.
    activation_checkpoint_interval: usize,
    /// With its default nothing leads back to an embedding, whose tokens have no gradient.
    use_reentrant: bool,
}

fn write(question: &ExportQuestion<'_>) -> Result<Written, Refused> {
    question.check_schedule(RULES.schedules)?;
    let grid = question.grid()?;
    let interval = interval(question)?;
    let checkpointing =
        interval.map(|layers| Checkpointing { activation_checkpoint_interval: layers, use_reentrant: false });
    let training = question.plan.training;
    let config = Config {
        train_batch_size: question.samples(),
        train_micro_batch_size_per_gpu: question.samples_per_replica(&grid),
        gradient_accumulation_steps: training.micro_batches,
        bf16: (training.precision != Precision::Fp32).then_some(Enabled { enabled: true }),
        gradient_clipping: 0.0,
        zero_optimization: Zero { stage: sharding_of(question.plan).zero_stage() },
        pipeline: checkpointing,
    };
    let ranks = grid.places(question.plan, AxisOrder::StagesFirst);
    let (nodes, per_node) = nodes(&ranks)?;
    let mut command = vec!["deepspeed".to_owned()];
    if nodes > 1 {
        command.extend([hosts::flag(), format!("--num_nodes={nodes}")]);
    }
    command.push(format!("--num_gpus={per_node}"));
    command.extend(["train.py", "--deepspeed", "--deepspeed_config=ds_config.json"].map(str::to_owned));
    // Numbers and names alone: that they are JSON does not fail.
    let config = serde_json::to_string_pretty(&config).unwrap_or_default() + "\n";
    let mut files = vec![ExportedFile::new("ds_config.json", config)];
    // Only its pipelines shard by a topology and recompute.
    let is_pipeline = grid.stages > 1 || grid.shards > 1 || interval.is_some();
    if is_pipeline {
        let text = pipeline(question, &grid, &command.join(" "));
        files.push(ExportedFile::new("loadmaster_pipeline.py", text));
    }
    let held = if is_pipeline { memory::held(question, &grid) } else { Held::default() };
    let mut warnings = warnings(question, &grid, is_pipeline, &held);
    if nodes > 1 {
        files.push(hosts::file(question, &ranks));
        warnings.push(WarningCode::SetupNeeded.says(hosts::WARNING));
    }
    Ok(Written {
        files,
        command,
        runs_once: nodes > 1,
        ranks,
        warnings,
        held: Some(held),
        ..Written::default()
    })
}

/// How many layers are recomputed at once; none where nothing is. What has no parameters of its own, such as a tied head, it
/// does not.
///
/// # Errors
/// Stages whose memory optimizations compute other layers once more.
fn interval(question: &ExportQuestion<'_>) -> Result<Option<usize>, Refused> {
    let can = "recomputes all layers that have parameters, in groups of equal size from the first layer of every stage";
    if let Some(StageRuns { form: Some(Form::TrainedAtOnce(length)), .. }) =
        question.recomputed(RULES.recomputing, can)?
    {
        return Ok(Some(length));
    }
    let longest = question.plan.stages.iter().map(|stage| stage.config.layer_count()).max();
    Ok(match question.recompute()? {
        RecomputePolicy::None => None,
        RecomputePolicy::Layer => Some(1),
        RecomputePolicy::Stage => longest,
    })
}

fn pipeline(question: &ExportQuestion<'_>, grid: &Grid, command: &str) -> String {
    let Chain { bounds, layers, stages } = Chain::of(question);
    format!(
        r#""""{head}.

{stages}. In train.py, which starts with

    {command}

hand your model over as DeepSpeed takes it, one entry for each layer of the plan ({layers}):

    engine, *_ = deepspeed.initialize(args=args, model=loadmaster_pipeline.cut(layers, loss_fn=loss), …)
"""

from collections.abc import Sequence
from typing import Any

from deepspeed.pipe import PipelineModule
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology

# Ranks count along the tensor shards first, then the replicas, then the stages.
TOPOLOGY = PipeModelDataParallelTopology(num_pp={pipe}, num_mp={shards}, num_dp={replicas})
# Stage i has the layers from BOUNDS[i] up to BOUNDS[i + 1].
BOUNDS = [{bounds}]


class PlannedPipeline(PipelineModule):
    """DeepSpeed's pipeline, cut where the plan cuts it rather than by a rule."""

    def _partition_layers(self, method: str = "plan") -> None:
        self.parts = BOUNDS
        self._set_bounds(start=BOUNDS[self.stage_id], stop=BOUNDS[self.stage_id + 1])


def cut(layers: Sequence[Any], **settings: Any) -> PlannedPipeline:
    """The stage of this rank; `settings` are those of PipelineModule."""
    if len(layers) != BOUNDS[-1]:
        raise ValueError(f"the plan is for {{BOUNDS[-1]}} layers, and the model has {{len(layers)}}")
    return PlannedPipeline(layers, topology=TOPOLOGY, **settings)
"#,
        head = question.head_line(),
        pipe = grid.stages,
        shards = grid.shards,
        replicas = grid.replicas,
        bounds = listed(&bounds),
    )
}

fn warnings(question: &ExportQuestion<'_>, grid: &Grid, is_pipeline: bool, held: &Held) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if is_pipeline {
        let why = "write train.py and the list of layers yourself: see the text at the top of loadmaster_pipeline.py";
        warnings.push(WarningCode::SetupNeeded.says(why));
    } else {
        let why = "write train.py yourself. The program must pass the whole model to deepspeed.initialize, and call \
            backward and step for every micro-batch";
        warnings.push(WarningCode::SetupNeeded.says(why));
    }
    let clipping = "DeepSpeed clips gradients to a norm of 1 unless ds_config.json sets another value. A plan has no \
        gradient clipping, so the exported ds_config.json turns clipping off";
    warnings.push(WarningCode::TrainingDiffers.says(clipping));
    if grid.shards > 1 {
        let why = "DeepSpeed does not shard your layers. Each layer must create its own tensor-parallel shard, for its \
            group in TOPOLOGY.get_axis_comm_lists(\"model\")";
        warnings.push(WarningCode::SetupNeeded.says(why));
    }
    let has_tied_head = question.model.is_some_and(loadmaster_proto::model::Model::has_tied_head);
    if has_tied_head && grid.stages > 1 {
        let why = "make the tied head a TiedLayerSpec of the embedding, so that DeepSpeed sums both gradients of the \
            embedding table. The last stage then also has the embedding layer's other parameters, such as learned \
            positions. The plan does not count them in the last stage";
        warnings.push(WarningCode::SetupNeeded.says(why));
    }
    if held.wider_gradients > 0 {
        let bytes = held.wider_gradients;
        warnings.push(WarningCode::MemoryDiffers.says(format!(
            "DeepSpeed's pipelines accumulate gradients in fp32: {bytes} bytes per parameter more than in the plan"
        )));
    }
    if question.plan.training.precision == Precision::Bf16Fp32Gradients && !is_pipeline {
        let why = "without a pipeline DeepSpeed holds bf16 gradients in bf16: 2 bytes per parameter less than in the plan";
        warnings.push(WarningCode::MemoryDiffers.says(why));
    }
    let is_mixed = question.plan.training.precision != Precision::Fp32;
    if is_pipeline && is_mixed && grid.replicas > 1 && !question.shards_optimizer() {
        let why = "DeepSpeed's pipelines in bf16 shard the optimizer state and the fp32 weights over the replicas. \
            Each replica holds less of both than in the plan";
        warnings.push(WarningCode::MemoryDiffers.says(why));
    }
    warnings
}
