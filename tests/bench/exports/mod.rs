//! `bench exports`: random plans, exported, a line of JSON each, for `oracles/check_random.py` to ask frameworks about.
//!
//! A line has the plan in plain words, from which the oracles' side says what every rank must hold, the export, and how many
//! parameters each rank has by the arithmetic that predictions are made with. Every eighth plan is bent into one that the
//! framework cannot express, which must be refused; those are counted on standard error. With `--manifest` the plans are of every
//! framework, in that manifest, for `manifests/check.py`.

mod draw;
mod in_manifest;

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Context, Result, bail};
use draw::{bent, drawn};
use loadmaster_launchers::{ExportQuestion, Target, Variant, export};
use loadmaster_proto::model::Model;
use loadmaster_proto::name::PlanName;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::training::shard::Shard;
use loadmaster_tests::Sampler;
use serde_json::{Value, json};

/// Draws random plans and prints their exports, a line of JSON each.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The framework with its version, for example megatron@0.19.
    #[arg(value_name = "FRAMEWORK@VERSION", required_unless_present = "manifest", default_value = "")]
    target: String,

    /// Plans of every framework in this manifest, in place of those of one.
    #[arg(long, value_name = "MANIFEST", conflicts_with_all = ["target", "variant"])]
    manifest: Option<String>,

    /// Another of its ways than the usual one, for example hybrid of Megatron.
    #[arg(long, value_name = "VARIANT", default_value = "")]
    variant: String,

    /// How many.
    #[arg(long, value_name = "N", default_value_t = 100)]
    plans: u32,
}

/// Draws and prints them; none is a goal.
///
/// # Errors
/// A plan is refused that should be exported, or exported that should be refused.
pub(crate) fn run(options: Options) -> Result<bool> {
    let Options { target, manifest, variant, plans } = options;
    if let Some(manifest) = manifest {
        let manifest = manifest.parse()?;
        print(plans, |index, lots| in_manifest::line(manifest, index, lots))?;
        return Ok(true);
    }
    let variant = if variant.is_empty() { Variant::Usual } else { variant.parse()? };
    let (framework, version) = target.split_once('@').context("write FRAMEWORK@VERSION")?;
    let target = Target::of(framework.parse()?, version)?;
    print(plans, |index, lots| line(target, variant, index, lots))?;
    Ok(true)
}

/// Of the first plan.
const SEED: u64 = 1 << 32;

/// Prints so many lines of JSON, each from a generator of its own, and how many plans were refused on standard error.
fn print(plans: u32, mut draw: impl FnMut(u64, &mut Sampler) -> Result<Result<Value, String>>) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let mut refused: BTreeMap<String, u32> = BTreeMap::new();
    let (mut index, mut printed) = (0, 0);
    while printed < plans {
        let mut lots = Sampler::new(SEED + index);
        match draw(index, &mut lots)? {
            Ok(line) => {
                writeln!(out, "{line}")?;
                printed += 1;
            }
            Err(why) => *refused.entry(why).or_default() += 1,
        }
        index += 1;
    }
    for (why, times) in refused {
        eprintln!("refused {times}: {why}");
    }
    Ok(())
}

/// A plan of a framework.
fn line(target: Target, variant: Variant, index: u64, lots: &mut Sampler) -> Result<Result<Value, String>> {
    let case = drawn(target.framework, variant, lots);
    let (mut plan, model) = (case.plan(), case.model());
    let bent = if index % 8 == 7 { bent(target.framework, &mut plan, lots) } else { None };
    let name = PlanName::from_id(format!("drawn-{index}"))?;
    let question =
        ExportQuestion { name: &name, plan: &plan, model: Some(&model), target, named: None, variant };
    let made = match (export(&question), bent) {
        (Ok(made), None) => made,
        (Err(_), Some(how)) => return Ok(Err(how.to_owned())),
        (Ok(_), Some(how)) => bail!("{case:?} with {how} is exported"),
        (Err(why), None) => bail!("{case:?} is refused: {why}"),
    };
    let files: BTreeMap<String, String> =
        made.files.into_iter().map(|file| (file.name, file.contents)).collect();
    let parameters: Vec<u64> =
        made.ranks.iter().map(|place| parameters(&plan, &model, place.stage, place.shard)).collect();
    let request = json!({ "files": files, "command": made.command, "env": made.environment, "world": made.ranks.len() });
    Ok(Ok(json!({ "case": case, "request": request, "parameters": parameters })))
}

/// Parameters on a shard of a stage, and of those that its devices have in turn with it.
fn parameters(plan: &Plan, model: &Model, first: usize, shard: u32) -> u64 {
    let stages = (first..plan.stages.len()).step_by(plan.positions());
    stages.map(|stage| of_stage(plan, model, stage, shard)).sum()
}

fn of_stage(plan: &Plan, model: &Model, stage: usize, shard: u32) -> u64 {
    let config = plan.stages[stage].config;
    let shard = Shard { index: shard, degree: config.tensor_degree };
    let layers = config.layers().filter_map(|index| model.layers().get(index));
    let own = layers.clone().flat_map(|layer| layer.kind.shard_parameters(shard));
    // A tied head is a copy of the table where that is on another stage.
    let shared = layers
        .filter(|_| config.first_layer > 0)
        .filter_map(|layer| layer.kind.shard_shared_parameter(shard));
    own.chain(shared).map(|parameter| parameter.elements()).sum()
}
