//! Documents that no launcher has read say the plan again.

use std::path::Path;

use loadmaster_proto::model::Model;
use loadmaster_proto::name::PlanName;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Launcher;
use serde_json::{Value, json};

use super::case;
use crate::{Export, ExportQuestion, Target, Variant, Verified, export};
use loadmaster_samples::Degrees;

fn exported(launcher: Launcher, plan: &Plan, model: &Model) -> Export {
    let name = PlanName::from_id("example").unwrap();
    let target = Target::of(launcher, "").unwrap();
    let question = ExportQuestion {
        name: &name,
        plan,
        model: Some(model),
        target,
        named: None,
        variant: Variant::Usual,
    };
    export(&question).unwrap_or_else(|refusal| panic!("{refusal}"))
}

fn read(made: &Export) -> Value {
    serde_json::from_str(&made.files[0].contents).unwrap()
}

/// All of the plan and of its model comes back.
#[test]
fn a_program_of_ones_own_reads_the_whole_plan() {
    let case = case(vec![2, 1], Degrees::Each(vec![2, 1]), Degrees::Each(vec![1, 3]));
    let (plan, model) = (case.plan(), case.model());
    let read = read(&exported(Launcher::Other, &plan, &model));
    assert_eq!(read["format"], "loadmaster.plan/1");
    assert_eq!(serde_json::from_value::<Plan>(read["plan"].clone()).unwrap(), plan);
    assert_eq!(serde_json::from_value::<Model>(read["model"].clone()).unwrap(), model);
    let places: Vec<Value> = read["ranks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rank| json!([rank["stage"], rank["replica"], rank["shard"]]))
        .collect();
    assert_eq!(json!(places), json!([[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 1, 0], [1, 2, 0]]));
}

#[test]
fn pipedream_is_told_stages_of_layers_and_ranks_of_stages() {
    let case = case(vec![1, 2], 1.into(), Degrees::Each(vec![3, 1]));
    let made = exported(Launcher::Pipedream, &case.plan(), &case.model());
    // Embedding, a block; two blocks, norm, head; and the loss.
    assert_eq!(read(&made)["module_to_stage_map"], json!([0, 0, 1, 1, 1, 1, 1]));
    assert_eq!(read(&made)["stage_to_rank_map"], json!({ "0": [0, 1, 2], "1": [3] }));
    assert_eq!(made.verified, Verified::None);
}

#[test]
fn alpa_is_told_layers_and_meshes() {
    let case = case(vec![1, 2], Degrees::Each(vec![2, 1]), Degrees::Each(vec![2, 4]));
    let made = exported(Launcher::Alpa, &case.plan(), &case.model());
    let file = made.files[0].contents.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        "forward_stage_layer_ids=[ [0, 1], [2, 3, 4, 5], ]",
        "submesh_physical_shapes=[ (1, 4), (1, 4), ]",
        "submesh_logical_shapes=[ (2, 2), (4, 1), ]",
        "num_micro_batches=4,",
    ] {
        assert!(file.contains(said), "{said} is not in {file}");
    }
    assert_eq!(made.verified, Verified::None);
}

#[test]
fn nnscaler_is_told_where_to_cut() {
    let case = case(vec![1, 2], 1.into(), 2.into());
    let (plan, model) = (case.plan(), case.model());
    let made = exported(Launcher::Nnscaler, &plan, &model);
    assert_eq!(read(&made)["pipeline_pivots"], json!(model.layers()[2].name));
    assert_eq!(read(&made)["pipeline_nstages"], 2);
    assert!(
        made.warnings
            .iter()
            .any(|warning| warning.contains("2 replicas of 1 shards, 2 replicas of 1 shards"))
    );
}

/// The README's example is what is written; `KEPT=write` puts it there.
#[test]
fn the_readme_shows_a_plan() {
    let case = case(vec![1], 1.into(), 1.into());
    let made = exported(Launcher::Other, &case.plan(), &case.model());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once("```json\n").unwrap();
    let (kept, after) = rest.split_once("```").unwrap();
    if std::env::var_os("KEPT").is_some_and(|value| value == "write") {
        std::fs::write(&path, format!("{before}```json\n{}```{after}", made.files[0].contents)).unwrap();
    } else {
        assert_eq!(kept, made.files[0].contents);
    }
}
