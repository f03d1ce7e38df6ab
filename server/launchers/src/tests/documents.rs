//! Documents that no framework has read say the plan once more.

use std::path::Path;

use loadmaster_proto::model::Model;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Framework;
use serde_json::{Value, json};

use super::{case, export_as};
use crate::{Export, Target, Variant};
use loadmaster_samples::Degrees;

fn exported(framework: Framework, plan: &Plan, model: &Model) -> Export {
    let made = export_as("example", Target::of(framework, "").unwrap(), Variant::Usual, plan, Some(model));
    made.unwrap_or_else(|refusal| panic!("{refusal}"))
}

fn read(made: &Export) -> Value {
    serde_json::from_str(&made.files[0].contents).unwrap()
}

/// All of the plan and of its model comes back.
#[test]
fn a_program_of_ones_own_reads_the_whole_plan() {
    let case = case(vec![2, 1], Degrees::Each(vec![2, 1]), Degrees::Each(vec![1, 3]));
    let (plan, model) = (case.plan(), case.model());
    let read = read(&exported(Framework::Other, &plan, &model));
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

/// The README's example is what is written; `KEPT=write` puts it there.
#[test]
fn the_readme_shows_a_plan() {
    let case = case(vec![1], 1.into(), 1.into());
    let made = exported(Framework::Other, &case.plan(), &case.model());
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
