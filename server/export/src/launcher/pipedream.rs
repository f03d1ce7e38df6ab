//! PipeDream's runtime: which stage each module is in, and which ranks each stage has (Narayanan et al., SOSP 2019).
//!
//! From its published configurations; the runtime was never packaged, so no code of its own has read these.

use std::collections::BTreeMap;

use loadmaster_proto::plan::objective::{Launcher, PlanShape};
use loadmaster_proto::training::{RecomputePolicy, Schedule};
use serde_json::json;

use super::{Exporter, Written, target};
use crate::exported::{ExportedFile, Verified};
use crate::grid::places_in_order;
use crate::memory::{Held, MicroBatches};
use crate::question::{ExportQuestion, Refused, all_or};
use crate::refusal::StageRefusal;

pub(super) const EXPORTER: Exporter = Exporter {
    target: target(Launcher::Pipedream, 1, 0),
    shape: PlanShape::PerStageReplicas,
    writes: "hybrid_conf.json: the stage of each layer, and the ranks of each stage",
    verified: Verified::None,
    proof: None,
    write,
};

fn write(question: &ExportQuestion<'_>) -> Result<Written, Refused> {
    question.check_nothing_leaves()?;
    let schedule = question.check_schedule(&[Schedule::OneFOneB, Schedule::PipeDream])?;
    let stages = &question.plan.stages;
    let refused = stages.iter().enumerate().filter_map(|(index, stage)| {
        let why = if stage.config.tensor_degree > 1 {
            format!(
                "has {} shards, and PipeDream replicas alone: recommend one without",
                stage.config.tensor_degree
            )
        } else if stage.recompute != RecomputePolicy::None {
            "computes again, which its configuration cannot say: recommend `none`".to_owned()
        } else {
            return None;
        };
        Some(StageRefusal::of_stage(index, why))
    });
    all_or(refused.collect())?;
    let training = question.plan.training;
    let replicas = stages.first().map_or(1, |stage| stage.config.data_degree).max(1);
    if !training.micro_batch_size.is_multiple_of(replicas) {
        let why = format!(
            "has micro-batches of {} samples for {replicas} replicas of the first stage: each must have as many",
            training.micro_batch_size
        );
        return Err(vec![StageRefusal::of_plan(why)]);
    }
    let ranks = places_in_order(question.plan);
    let last = stages.len().saturating_sub(1);
    // The loss is a module too, the last.
    let modules =
        stages.iter().enumerate().flat_map(|(index, stage)| vec![index; stage.config.layer_count()]);
    let modules: Vec<usize> = modules.chain([last]).collect();
    let of_stage =
        |stage: usize| ranks.iter().filter(|place| place.stage == stage).map(|place| place.rank).collect();
    let of_stages: BTreeMap<usize, Vec<u32>> =
        (0..stages.len()).map(|stage| (stage, of_stage(stage))).collect();
    let file = json!({ "module_to_stage_map": modules, "stage_to_rank_map": of_stages });
    let words = [
        "python",
        "main_with_runtime.py",
        "--config_path",
        "hybrid_conf.json",
        "--module",
        "MODULE",
        "--rank",
        "$RANK",
        "--local_rank",
        "$LOCAL_RANK",
        "--master_addr",
        "$MASTER_ADDR",
        "-b",
    ];
    let samples = training.micro_batch_size / replicas;
    let command = words.map(str::to_owned).into_iter().chain([samples.to_string()]).collect();
    let mut warnings = vec![
        "no code of PipeDream has read this file: it follows the configurations that its authors published"
            .to_owned(),
        "MODULE is yours: its model() lists each of the plan's layers as a module, and then the loss"
            .to_owned(),
        "replicas of a stage take whole minibatches in turns, where the plan splits each among them"
            .to_owned(),
    ];
    if schedule != Schedule::PipeDream {
        warnings.push(
            "its runtime updates weights behind every backward pass, and the plan once behind all micro-batches".to_owned(),
        );
    }
    // Its runtime has a list of all tensors of each minibatch, up to its backward pass, and the last gradients by name.
    let held = Held {
        outputs: MicroBatches::InFlightAnd(0),
        last_outputs: MicroBatches::InFlightAnd(0),
        gradients: MicroBatches::Some(1),
        input_gradients: MicroBatches::Some(1),
        ..Held::default()
    };
    Ok(Written {
        files: vec![ExportedFile::json("hybrid_conf.json", &file)],
        command,
        ranks,
        warnings,
        held: Some(held),
        ..Written::default()
    })
}
