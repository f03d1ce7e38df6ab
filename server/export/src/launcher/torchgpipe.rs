//! torchgpipe: one process drives the devices of a pipeline (Kim et al., 2020).

use loadmaster_proto::plan::objective::{Launcher, PlanShape};
use loadmaster_proto::training::{RecomputePolicy, Schedule};
use serde_json::json;

use super::{Exporter, Written, target};
use crate::exported::{ExportedFile, Verified};
use crate::grid::AxisOrder;
use crate::question::{ExportQuestion, Refused};
use crate::refusal::StageRefusal;

pub(super) const EXPORTER: Exporter = Exporter {
    target: target(Launcher::Torchgpipe, 0, 0),
    shape: PlanShape::SinglePipeline,
    writes: "balance, chunks and checkpointing as JSON, and the call that takes them",
    verified: Verified::None,
    write,
};

fn write(question: &ExportQuestion<'_>) -> Result<Written, Refused> {
    question.check_nothing_leaves()?;
    question.check_schedule(&[Schedule::Gpipe])?;
    let grid = question.grid()?;
    if grid.replicas != 1 || grid.shards != 1 {
        let why = "has stages of several devices, and torchgpipe has one for each";
        return Err(vec![StageRefusal::of_plan(why)]);
    }
    if question.model.is_some_and(loadmaster_proto::model::Model::has_tied_head) {
        let why = "shares a weight between two stages, which torchgpipe refuses: untie the head";
        return Err(vec![StageRefusal::of_plan(why)]);
    }
    // What it computes again is everything within a stage, or nothing.
    let checkpoint = match question.recompute()? {
        RecomputePolicy::None => "never",
        RecomputePolicy::Stage => "always",
        RecomputePolicy::Layer => {
            let why =
                "computes layers again one by one, and torchgpipe whole stages: recommend `stage` or `none`";
            return Err(vec![StageRefusal::of_plan(why)]);
        }
    };
    let balance: Vec<usize> = question.plan.stages.iter().map(|stage| stage.config.layer_count()).collect();
    let ranks = grid.places(question.plan, AxisOrder::StagesFirst);
    let devices: Vec<String> = ranks
        .iter()
        .map(|place| format!("cuda:{}", place.device.as_ref().map_or(place.rank, |device| device.index)))
        .collect();
    let plan = json!({
        "plan": question.name.to_string(),
        "balance": balance,
        "devices": devices,
        "chunks": question.plan.training.micro_batches,
        "checkpoint": checkpoint,
    });
    let mut file = serde_json::to_string_pretty(&plan).unwrap_or_default();
    file.push('\n');
    Ok(Written { files: vec![ExportedFile::new("balance.json", file)], ranks, ..Written::default() })
}
