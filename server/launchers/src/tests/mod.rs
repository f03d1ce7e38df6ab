//! Exports against files that were written by hand and taken by the launchers themselves, and random plans.

mod choices;
mod documents;
mod enveloped;
mod envelopes;
mod golden;
mod hosts;
mod in_sight;
mod kinds;
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
use loadmaster_proto::plan::objective::Launcher;
use loadmaster_samples::{CutTransformer, Degrees, DescribedTransformer};

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

/// A plan as a launcher of this version takes it, in its usual way.
fn ask(
    launcher: Launcher,
    version: &str,
    plan: &Plan,
    model: Option<&Model>,
) -> Result<Export, Box<Refusal>> {
    export_as("some", Target::of(launcher, version).unwrap(), Variant::Usual, plan, model)
}

/// A small GPT-2, cut so.
fn case(stages: Vec<usize>, tensor: Degrees, data: Degrees) -> CutTransformer {
    let model = DescribedTransformer {
        family: "gpt2".to_owned(),
        blocks: stages.iter().sum::<usize>() as i64,
        hidden: 24,
        heads: 12,
        head_size: 0,
        key_value_heads: 0,
        feed_forward: 0,
        sequence: 16,
        positions: 16,
        vocabulary: 100,
        rotary_base: 0,
        tied: true,
        dropout: 0.0,
    };
    CutTransformer {
        model,
        stages,
        virtual_stages: 1,
        tensor,
        data,
        nodes: 1,
        devices_per_node: 64,
        micro_batch: 12,
        micro_batches: 4,
        schedule: "1F1B".to_owned(),
        precision: "bf16".to_owned(),
        recompute: "none".to_owned(),
    }
}
