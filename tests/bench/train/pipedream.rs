//! The largest GPT-2 that trains under PipeDream, which keeps a version of the weights for each micro-batch in flight.

use anyhow::Result;
use loadmaster_tests::{NO_PLAN, Trial};
use serde::Serialize;
use serde_json::Value;

use crate::train::largest::{Begin, search};
use crate::train::options::Options;
use crate::train::scene::{SLOTS, Scene};

/// What may be done.
const WAYS: [(&str, &[&str]); 3] = [
    ("keep-only", &["--objective", "min-peak-memory", "--recompute", "none"]),
    ("every layer again", &["--objective", "min-peak-memory", "--recompute", "layer"]),
    ("all ways", &["--actions", "recompute,host,peer", "--swap", "activations,inputs,versions,optimizer"]),
];

/// The largest model of one of them.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) way: &'static str,
    pub(crate) blocks: u32,
    pub(crate) parameters: u64,
    pub(crate) trial: Option<Trial>,
    /// Why one block more has no plan.
    pub(crate) beyond: String,
    /// Why nobody does it at all.
    pub(crate) refused: Option<String>,
}

/// All of them.
///
/// # Errors
/// A command fails.
pub(crate) fn all(scene: &Scene<'_>, options: &Options) -> Result<Vec<Row>> {
    WAYS.iter().map(|(way, more)| row(scene, way, more, options)).collect()
}

fn row(scene: &Scene<'_>, way: &'static str, more: &[&str], options: &Options) -> Result<Row> {
    let host = format!("{}B", scene.setting.host_bytes);
    let mut arguments = vec!["--schedule", "pipedream"];
    arguments.extend(more);
    if more.contains(&"--actions") {
        arguments.extend(["--host-memory", &host, "--copy-rates", scene.setting.rates]);
    } else {
        arguments.extend(["--shape", "single-pipeline"]);
    }
    let mut refused = None;
    let found = search(scene, &format!("pipedream, {way}"), Begin::NOTHING, |blocks| {
        let answer = scene.recommend(blocks, scene.setting.slots(SLOTS), &arguments)?;
        Ok(answer.map_err(|error| {
            let why = error.reason().to_owned();
            // Another size changes nothing about what is not supported.
            if error.code != NO_PLAN {
                refused.get_or_insert_with(|| why.clone());
            }
            why
        }))
    })?;
    let train = |plan: &Value| {
        eprintln!("pipedream, {way}: training {} blocks", found.blocks);
        Trial::of(&scene.caller, plan, options.iterations())
    };
    let trial = found.plan.as_ref().map(train).transpose()?;
    let parameters = scene.parameters(found.blocks);
    Ok(Row { way, blocks: found.blocks, parameters, trial, beyond: found.beyond, refused })
}
