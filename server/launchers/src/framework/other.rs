//! A program of the user's own: the whole plan as JSON, described in the crate's README.

use loadmaster_proto::model::Model;
use loadmaster_proto::plan::objective::{Framework, PlanShape};
use loadmaster_proto::plan::{PlacedDevice, Plan};
use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::actions::Block;
use loadmaster_proto::warning::WarningCode;
use serde::Serialize;

use super::{Exporter, Written, target};
use crate::export_parts::{ExportedFile, Verified};
use crate::grid::places_in_order;
use crate::memory::Held;
use crate::question::{ExportQuestion, Refused};
use crate::rules::{CutUnit, InChunks, Rules, with_any};

pub(super) const RULES: Rules = Rules {
    framework: Framework::Other,
    shape: PlanShape::PerStageMesh,
    shardings: with_any,
    sharding_per_stage: true,
    sequence_parallel: true,
    cut: CutUnit::Layer,
    recompute_per_stage: true,
    schedules: &[Schedule::OneFOneB, Schedule::Gpipe, Schedule::PipeDream],
    even_nodes: false,
    offloads: &[
        Block::Activations,
        Block::Inputs,
        Block::Versions,
        Block::Weights,
        Block::Gradients,
        Block::Optimizer,
    ],
    chunks: InChunks::Anything,
    takes_turns: true,
    ..Rules::USUAL
};

pub(super) const EXPORTER: Exporter = Exporter {
    target: target(Framework::Other, 1, 0),
    writes: "plan.json: the whole plan with its model, in the format loadmaster.plan/1, for a program of your own",
    verified: Verified::None,
    proof: None,
    write,
};

/// Readers refuse what begins with another name or number: fields may be added under the same.
const FORMAT: &str = "loadmaster.plan/1";

#[derive(Serialize)]
struct Document<'a> {
    format: &'static str,
    name: String,
    /// Ranks in order, stage by stage, replica by replica, shard by shard.
    ranks: Vec<Rank>,
    /// As `loadmaster` keeps plans.
    plan: &'a Plan,
    /// As `loadmaster` keeps models; none of a chain that is known by its layers' names alone.
    model: Option<&'a Model>,
}

#[derive(Serialize)]
struct Rank {
    rank: u32,
    stage: usize,
    replica: u32,
    shard: u32,
    device: Option<PlacedDevice>,
}

fn write(question: &ExportQuestion<'_>) -> Result<Written, Refused> {
    let ranks = places_in_order(question.plan);
    let document = Document {
        format: FORMAT,
        name: question.name.to_string(),
        ranks: ranks
            .iter()
            .map(|place| Rank {
                rank: place.rank,
                stage: place.stage,
                replica: place.replica,
                shard: place.shard,
                device: place.device.clone(),
            })
            .collect(),
        plan: question.plan,
        model: question.model,
    };
    let warnings = question.model.is_none().then(|| {
        WarningCode::SetupNeeded
            .says("layers have numbers instead of names in this file: only the profile has the layers' names")
    });
    Ok(Written {
        files: vec![ExportedFile::json("plan.json", &document)],
        ranks,
        warnings: warnings.into_iter().collect(),
        // Memory of the user's own program is unknown here, so nothing is added to the plan's bytes.
        held: Some(Held::default()),
        ..Written::default()
    })
}
