//! nnScaler, which names operators of a graph that it alone makes: it is told where to cut, and on how many devices.
//!
//! From its documentation; it is in no package registry, so no code of its own has read this.

use loadmaster_proto::plan::objective::{Launcher, PlanShape};
use loadmaster_proto::training::{RecomputePolicy, Schedule};
use serde_json::json;

use super::{Exporter, Written, target};
use crate::envelope::nodes;
use crate::exported::{ExportedFile, Verified};
use crate::grid::places_in_order;
use crate::question::{ExportQuestion, Refused};
use crate::refusal::StageRefusal;
use crate::word;

pub(super) const EXPORTER: Exporter = Exporter {
    target: target(Launcher::Nnscaler, 0, 7),
    shape: PlanShape::PerStageMesh,
    writes: "autodist.json: the options of nnScaler's search that steer it to the plan's cut",
    verified: Verified::None,
    proof: None,
    write,
};

fn write(question: &ExportQuestion<'_>) -> Result<Written, Refused> {
    question.check_nothing_leaves()?;
    question.check_schedule(&[Schedule::OneFOneB])?;
    if question.recompute()? != RecomputePolicy::None {
        let why =
            "computes again, and nnScaler names operators for that which its own graph has: recommend `none`";
        return Err(vec![StageRefusal::of_plan(why)]);
    }
    let model = question.model()?;
    let ranks = places_in_order(question.plan);
    let (rows, columns) = nodes(&ranks)?;
    let stages = &question.plan.stages;
    let begins = stages.iter().skip(1).filter_map(|stage| model.layers().get(stage.config.first_layer));
    let pivots: Vec<&str> = begins.map(|layer| layer.name.as_str()).collect();
    let file = json!({
        "mesh_row": rows,
        "mesh_col": columns,
        "pipeline_nstages": stages.len(),
        "pipeline_pivots": pivots.join(","),
    });
    let shared: Vec<String> = stages
        .iter()
        .map(|stage| {
            format!("{} replicas of {} shards", stage.config.data_degree, stage.config.tensor_degree)
        })
        .collect();
    let training = question.plan.training;
    let warnings = vec![
        "no code of nnScaler has read this file: it follows its documentation".to_owned(),
        format!(
            "nnScaler's plans name operators of its own graph, so it searches how stages share their work; the plan has {}",
            shared.join(", ")
        ),
        format!(
            "autodist.json has no batches and no precision: tell nnScaler's trainer {} micro-batches of {} samples over all replicas, \
             and {}",
            training.micro_batches,
            training.micro_batch_size,
            word::format(training.precision)
        ),
        "pivots are the plan's names of the layers that begin stages: write your modules' names in their place".to_owned(),
    ];
    Ok(Written {
        files: vec![ExportedFile::json("autodist.json", &file)],
        ranks,
        warnings,
        ..Written::default()
    })
}
