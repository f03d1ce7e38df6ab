//! Alpa: the layers of its stages and the mesh of each, as its `ManualStageOption` takes them (Zheng et al., OSDI 2022).
//!
//! From its documentation; what it needs of JAX is no longer to be had, so no code of its own has read this.

use loadmaster_proto::plan::objective::{Launcher, PlanShape};
use loadmaster_proto::training::{RecomputePolicy, Schedule};

use super::{Exporter, Written, target};
use crate::envelope::nodes;
use crate::exported::{ExportedFile, Verified};
use crate::grid::places_in_order;
use crate::question::{ExportQuestion, Refused, all_or};
use crate::refusal::StageRefusal;

pub(super) const EXPORTER: Exporter = Exporter {
    target: target(Launcher::Alpa, 0, 2),
    shape: PlanShape::PerStageMesh,
    writes: "loadmaster_plan.py: the PipeshardParallel of the plan",
    verified: Verified::None,
    proof: None,
    write,
};

fn write(question: &ExportQuestion<'_>) -> Result<Written, Refused> {
    question.check_nothing_leaves()?;
    // Its words are ours.
    let schedule = question.check_schedule(&[Schedule::OneFOneB, Schedule::Gpipe])?;
    let remat = match question.recompute()? {
        RecomputePolicy::None => "False",
        RecomputePolicy::Layer => "True",
        RecomputePolicy::Stage => {
            let why = "computes whole stages again, and Alpa layers one by one: recommend `layer` or `none`";
            return Err(vec![StageRefusal::of_plan(why)]);
        }
    };
    let ranks = places_in_order(question.plan);
    let (_, per_node) = nodes(&ranks)?;
    let per_node = u32::try_from(per_node).unwrap_or(u32::MAX);
    let stages = &question.plan.stages;
    let refused = stages.iter().enumerate().filter_map(|(index, stage)| {
        let devices = stage.config.devices();
        let why = format!(
            "has {devices} devices, and Alpa's meshes are a power of two of a node's or whole nodes of {per_node}: recommend one \
             for it"
        );
        physical(devices, per_node).is_none().then(|| StageRefusal::of_stage(index, why))
    });
    all_or(refused.collect())?;
    let lines = |of: &dyn Fn(usize) -> String| -> String {
        (0..stages.len()).map(|stage| format!("            {},\n", of(stage))).collect()
    };
    let layers = lines(&|stage| {
        let layers: Vec<String> = stages[stage].config.layers().map(|layer| layer.to_string()).collect();
        format!("[{}]", layers.join(", "))
    });
    let meshes = lines(&|stage| {
        let (hosts, devices) = physical(stages[stage].config.devices(), per_node).unwrap_or((1, 1));
        format!("({hosts}, {devices})")
    });
    let shares = lines(&|stage| {
        let config = stages[stage].config;
        format!("({}, {})", config.data_degree, config.tensor_degree)
    });
    let options = lines(&|stage| {
        let is_replicated = stages[stage].config.tensor_degree == 1;
        if is_replicated { "{\"force_batch_dim_to_mesh_dim\": 0}" } else { "{}" }.to_owned()
    });
    let file = format!(
        r#""""{head}.

Mark the end of each of the plan's layers with alpa.mark_pipeline_boundary(), and train with

    @alpa.parallelize(method=loadmaster_plan.method())

on batches of {samples} samples: {count} micro-batches of {micro}. The plan's bytes are those of {precision}, which is your program's to
choose.
"""

import alpa


def method() -> alpa.PipeshardParallel:
    """The plan: meshes are (nodes, devices of each), their shares (replicas, shards)."""
    stages = alpa.ManualStageOption(
        forward_stage_layer_ids=[
{layers}        ],
        submesh_physical_shapes=[
{meshes}        ],
        submesh_logical_shapes=[
{shares}        ],
        submesh_autosharding_option_dicts=[
{options}        ],
    )
    return alpa.PipeshardParallel(
        num_micro_batches={count},
        pipeline_schedule="{schedule}",
        layer_option=alpa.ManualLayerOption(remat_layer={remat}),
        stage_option=stages,
    )
"#,
        head = question.head_line(),
        count = question.plan.training.micro_batches,
        micro = question.plan.training.micro_batch_size,
        samples = question.samples(),
        precision = question.plan.training.precision,
    );
    let warnings = vec![
        "no code of Alpa has read this file: it follows its documentation of 0.2, whose jaxlib is no longer published".to_owned(),
        "Alpa chooses how each layer's tensors are sharded, within the degrees that it is given".to_owned(),
    ];
    Ok(Written {
        files: vec![ExportedFile::new("loadmaster_plan.py", file)],
        command: ["python", "TRAIN.py"].map(str::to_owned).to_vec(),
        runs_once: true,
        ranks,
        warnings,
        ..Written::default()
    })
}

/// A mesh of so many devices; none where Alpa has no such mesh.
fn physical(devices: u32, per_node: u32) -> Option<(u32, u32)> {
    if devices <= per_node {
        devices.is_power_of_two().then_some((1, devices))
    } else {
        devices.is_multiple_of(per_node.max(1)).then(|| (devices / per_node.max(1), per_node))
    }
}
