//! Exports against files that were written by hand and taken by the frameworks themselves, and random plans.

mod choices;
mod documents;
mod golden;
mod hosts;
mod in_manifest;
mod in_sight;
mod kinds;
mod manifests;
mod memory;
mod numerics;
mod proofs;
mod random;
mod reasons;
mod recomputation;
mod refused;
mod turns;

use loadmaster_proto::model::Model;
use loadmaster_proto::name::PlanName;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Framework;
use loadmaster_samples::{CutTransformer, Degrees};

use crate::{Export, ExportQuestion, Refusal, Target, Variant, export};

/// A plan of this name as a target takes it in one of its ways.
fn export_as(
    id: &str,
    target: Target,
    variant: Variant,
    plan: &Plan,
    model: Option<&Model>,
) -> Result<Export, Box<Refusal>> {
    let name = PlanName::from_id(id).unwrap();
    export(&ExportQuestion { name: &name, plan, model, target, named: None, variant })
}

/// A plan as a framework of this version takes it, in its usual way.
fn ask(
    framework: Framework,
    version: &str,
    plan: &Plan,
    model: Option<&Model>,
) -> Result<Export, Box<Refusal>> {
    export_as("some", Target::of(framework, version).unwrap(), Variant::Usual, plan, model)
}

/// A small GPT-2, cut so.
fn case(stages: Vec<usize>, tensor: Degrees, data: Degrees) -> CutTransformer {
    CutTransformer::small_gpt2(stages, tensor, data)
}
