//! torch.distributed.pipelining: the plan as JSON, and a module that makes stages and schedule of the user's layers.

use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::training::actions::Form;
use loadmaster_proto::training::{Precision, RecomputePolicy, Schedule};
use loadmaster_proto::warning::{Warning, WarningCode};

use super::{Exporter, Written, number_format, target};
use crate::cut::{Chain, listed};
use crate::export_parts::{ExportedFile, Proof, Verified};
use crate::grid::{AxisOrder, Grid};
use crate::manifest::Torchrun;
use crate::memory::{EdgeTensors, Held, MicroBatches};
use crate::question::{ExportQuestion, Refused};
use crate::recompute::{Counted, Recomputing, StageRuns};
use crate::rules::{BOTH, CutUnit, Engine, Rules};

pub(super) const RULES: Rules = Rules {
    framework: Framework::TorchPipelining,
    recomputing: Recomputing::Alike(&[Counted::EveryLayer, Counted::WholeStages]),
    cut: CutUnit::Layer,
    schedules: BOTH,
    recompute_per_stage: true,
    engine: Some(Engine::blocking("torch.distributed.pipelining", WAITS)),
    note: || HOLDING.note("torch.distributed.pipelining"),
    ..Rules::USUAL
};

/// The reason why torch's transfers do not overlap computing.
pub(super) const WAITS: &str =
    "torch.distributed.pipelining waits for sends and receives before the next pass";

/// From the first torch whose stages are made without samples of what they take in: 2.5 wants these, and before 2.4 there are none.
pub(super) const EXPORTER: Exporter = Exporter {
    target: target(Framework::TorchPipelining, 2, 6),
    writes: "plan.json, and loadmaster_pipeline.py, which makes the stages and the schedule from your layers",
    verified: Verified::Trained,
    proof: Some(Proof::of("torch", "2.15.0")),
    write,
};

/// The same files, for stages that hold less.
pub(super) const RELEASING: Exporter =
    Exporter { target: target(Framework::TorchPipelining, 2, 15), ..EXPORTER };

fn write(question: &ExportQuestion<'_>) -> Result<Written, Refused> {
    let schedule = torch_schedule(question.check_schedule(RULES.schedules)?);
    question.check_fills_torch_pipeline()?;
    let grid = question.grid()?;
    let recompute = recompute(question)?;
    let ranks = grid.places(question.plan, AxisOrder::StagesFirst);
    let command: Vec<String> =
        Torchrun::of(&ranks)?.words().into_iter().chain(["train.py".to_owned()]).collect();
    let plan = format!(
        r#"{{
  "mesh": {{"pp": {}, "dp": {}, "tp": {}}},
  "bounds": [{}],
  "schedule": "{schedule}",
  "micro_batch_size": {},
  "micro_batches": {},
  "recompute": "{recompute}",
  "precision": "{}"
}}
"#,
        grid.stages,
        grid.replicas,
        grid.shards,
        listed(&Chain::of(question).bounds),
        question.samples_per_replica(&grid),
        question.plan.training.micro_batches,
        number_format(question.plan.training.precision),
    );
    let files = vec![
        ExportedFile::new("plan.json", plan),
        ExportedFile::new("loadmaster_pipeline.py", pipeline(question, &grid, &command.join(" "))),
    ];
    let releases_outputs = question.target == RELEASING.target;
    let tensors = held(question.plan.training.schedule, releases_outputs);
    let tensors = EdgeTensors { last_outputs: MicroBatches::All, ..tensors };
    let warnings = warnings(question, &grid);
    Ok(Written {
        files,
        command,
        ranks,
        warnings,
        held: Some(Held { tensors, ..Held::default() }),
        ..Written::default()
    })
}

/// What all stages recompute: each of their layers, or all of themselves.
///
/// # Errors
/// Stages that do otherwise.
fn recompute(question: &ExportQuestion<'_>) -> Result<RecomputePolicy, Refused> {
    let can = "recomputes all layers of every stage, one by one or all at once";
    match question.recomputed(RULES.recomputing, can)? {
        None => question.recompute(),
        Some(StageRuns { form: Some(Form::LayersAtOnce(1)), .. }) => Ok(RecomputePolicy::Layer),
        Some(_) => Ok(RecomputePolicy::Stage),
    }
}

/// The tensors that stages of torch hold before 2.15: outputs up to their backward passes, and a buffer for each micro-batch of an
/// iteration, of its input and of the gradient that comes back.
const HOLDING: EdgeTensors = EdgeTensors {
    outputs: MicroBatches::InFlightAnd(0),
    gradients: MicroBatches::All,
    inputs: MicroBatches::NotInFlight,
    ..EdgeTensors::NONE
};

/// Returns the tensors that the stages of a pipeline of torch hold: torchtitan's are such, too. The outputs of the model are the
/// caller's, unless it wants none.
///
/// From 2.15 on they let go of an output once it is sent, the one before while the next is computed, or under GPipe behind the last,
/// and receive into new memory.
pub(super) fn held(schedule: Schedule, releases_outputs: bool) -> EdgeTensors {
    if !releases_outputs {
        return HOLDING;
    }
    let outputs = if schedule == Schedule::Gpipe { MicroBatches::All } else { MicroBatches::Some(1) };
    EdgeTensors { outputs, gradients: MicroBatches::Some(1), ..EdgeTensors::NONE }
}

fn pipeline(question: &ExportQuestion<'_>, grid: &Grid, command: &str) -> String {
    let Chain { layers, stages, .. } = Chain::of(question);
    let samples = question.samples() / u64::from(grid.replicas.max(1));
    let step = if grid.stages == 1 {
        format!("schedule.step(batch, target=labels, losses=losses)  # {samples} samples of this replica")
    } else {
        format!(
            "schedule.step(batch)  # {samples} samples of this replica, on the first stage; step() between\n    \
             schedule.step(target=labels, losses=losses)  # on the last stage"
        )
    };
    let mut notes = String::new();
    if grid.shards > 1 {
        notes += "\nEach function must make the tensor shard of this rank, because torch does not. Tensor shards are \
             on mesh[\"tp\"].\n";
    }
    if has_shared_table(question, grid) {
        notes += "\nThe head shares the embedding's table, which is on the first and the last stage. Sum the gradients of \
                  both\nafter every step, because torch does not.\n";
    }
    if question.plan.training.precision != Precision::Fp32 {
        notes += "\nParameters and gradients are bf16. The plan also counts fp32 master weights: use an optimizer that \
            keeps them.\n";
    }
    format!(
        r#""""{head}.

{stages}. In train.py, which every node starts with

    {command}

give it one function for each layer of the plan ({layers}) that makes the layer:

    mesh = loadmaster_pipeline.mesh("cuda")
    schedule = loadmaster_pipeline.schedule(layers, mesh, device, loss_fn)
    {step}
{notes}"""
{LOADER}"#,
        head = question.head_line(),
    )
}

/// What reads `plan.json`, the same for every plan.
const LOADER: &str = r#"
import json
import pathlib
from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class
from torch.nn.parallel import DistributedDataParallel

PLAN = json.loads(pathlib.Path(__file__).with_name("plan.json").read_text())
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def mesh(device_type: str) -> DeviceMesh:
    """The grid of ranks, the last axis varying fastest."""
    return init_device_mesh(device_type, tuple(PLAN["mesh"].values()), mesh_dim_names=tuple(PLAN["mesh"]))


def schedule(
    layers: Sequence[Callable[[], nn.Module]],
    mesh: DeviceMesh,
    device: torch.device,
    loss_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> PipelineScheduleSingle:
    """Returns the schedule that runs the stage of this rank. Only the layers of this stage are built."""
    bounds, stage = PLAN["bounds"], mesh["pp"].get_local_rank()
    if len(layers) != bounds[-1]:
        raise ValueError(f"the plan is for {bounds[-1]} layers, and the model has {len(layers)}")
    own = [make() for make in layers[bounds[stage] : bounds[stage + 1]]]
    if PLAN["recompute"] == "layer":
        own = [checkpoint_wrapper(layer) for layer in own]
    net = nn.Sequential(*own).to(device, DTYPES[PLAN["precision"]])
    if PLAN["recompute"] == "stage":
        net = checkpoint_wrapper(net)
    if mesh["dp"].size() > 1:  # gradients of replicas are averaged behind the last micro-batch
        net = DistributedDataParallel(net, process_group=mesh["dp"].get_group(), gradient_as_bucket_view=True)
    part = PipelineStage(net, stage, len(bounds) - 1, device, group=mesh["pp"].get_group())
    return get_schedule_class(PLAN["schedule"])(part, n_microbatches=PLAN["micro_batches"], loss_fn=loss_fn)
"#;

fn has_shared_table(question: &ExportQuestion<'_>, grid: &Grid) -> bool {
    grid.stages > 1 && question.model.is_some_and(loadmaster_proto::model::Model::has_tied_head)
}

fn warnings(question: &ExportQuestion<'_>, grid: &Grid) -> Vec<Warning> {
    let mut warnings = vec![
        WarningCode::SetupNeeded
            .says("write train.py and the list of layers yourself: see the top of loadmaster_pipeline.py"),
    ];
    if grid.shards > 1 {
        let why = "torch does not shard your layers. Each of your layer functions must make the tensor shard of this \
            rank";
        warnings.push(WarningCode::SetupNeeded.says(why));
    }
    if has_shared_table(question, grid) {
        let why = "the head shares the embedding's table. Sum the gradients of its copies on the first and the last stage \
            after every step, because torch does not";
        warnings.push(WarningCode::SetupNeeded.says(why));
    }
    match question.plan.training.precision {
        Precision::Fp32 => {}
        Precision::Bf16 => warnings.push(WarningCode::SetupNeeded.says(
            "parameters are bf16. Use an optimizer that keeps the plan's fp32 master weights, because torch's optimizers do \
             not",
        )),
        Precision::Bf16Fp32Gradients => warnings.push(WarningCode::MemoryDiffers.says(
            "parameters and gradients are bf16: gradients take 2 bytes per parameter less than in the plan. Use an optimizer \
             that keeps the fp32 master weights, because torch's optimizers do not",
        )),
    }
    warnings
}

/// Returns the name of a schedule of one stage per rank in torch.distributed.pipelining, and in torchtitan.
pub(super) fn torch_schedule(schedule: Schedule) -> &'static str {
    match schedule {
        Schedule::Gpipe => "GPipe",
        Schedule::OneFOneB | Schedule::PipeDream => "1F1B",
    }
}
