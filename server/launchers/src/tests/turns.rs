//! Plans whose devices have several interleaved stages: who says them says all of them, each on its device, and all
//! others refuse them.

use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Framework;
use proptest::prelude::*;

use super::{case, export_as};
use crate::{Export, Refusal, Target, Variant, exporters, rules};
use loadmaster_samples::CutTransformer;

/// Three places with two stages each.
fn in_turn() -> CutTransformer {
    let mut case = case(vec![1, 3, 2, 1, 2, 0], 2.into(), 2.into());
    (case.virtual_stages, case.micro_batches) = (2, 6);
    case
}

fn ask(target: Target, variant: Variant, case: &CutTransformer, plan: &Plan) -> Result<Export, Box<Refusal>> {
    export_as("some", target, variant, plan, Some(&case.model()))
}

fn newest(framework: Framework) -> Target {
    Target::of(framework, "").unwrap()
}

/// What follows a flag.
fn value<'a>(made: &'a Export, flag: &str) -> &'a str {
    let at = made.command.iter().position(|word| word == flag).unwrap_or_else(|| panic!("no {flag}"));
    &made.command[at + 1]
}

#[test]
fn frameworks_that_cannot_take_turns_name_those_that_can() {
    let case = in_turn();
    let plan = case.plan();
    for exporter in exporters() {
        let target = exporter.target;
        let made = ask(target, Variant::Usual, &case, &plan);
        if rules(target.framework).takes_turns {
            made.unwrap_or_else(|refusal| panic!("{refusal}"));
            continue;
        }
        let refusal = made.unwrap_err();
        let [only] = refusal.stages.as_slice() else { panic!("{target}: {refusal}") };
        assert_eq!(only.stage, None, "{target}");
        assert!(only.why.contains("2 virtual pipeline stages per device"), "{target}: {refusal}");
        assert!(only.why.contains("Export to megatron"), "{target}: {refusal}");
    }
}

/// Rank by rank a device of the plan, which has its first stage and all that follow a round of the places later.
#[test]
fn ranks_are_on_the_devices_of_all_their_stages() {
    let case = in_turn();
    let plan = case.plan();
    for framework in [Framework::Megatron, Framework::MegatronBridge, Framework::Other] {
        let made = ask(newest(framework), Variant::Usual, &case, &plan).unwrap();
        assert_eq!(made.ranks.len(), 3 * 2 * 2, "{framework}");
        for (rank, place) in made.ranks.iter().enumerate() {
            assert_eq!((place.rank as usize, place.stage), (rank, rank / 4), "{framework}");
            let device = place.device.as_ref().unwrap();
            for stage in [place.stage, place.stage + 3] {
                assert_eq!(&plan.stages[stage].devices[rank % 4], device, "{framework}");
            }
        }
        assert_eq!(made.memory.unwrap().len(), 3, "{framework}");
    }
}

#[test]
fn megatron_is_told_stages_in_the_order_of_the_model() {
    let case = in_turn();
    let plan = case.plan();
    let made = ask(newest(Framework::Megatron), Variant::Usual, &case, &plan).unwrap();
    assert_eq!(value(&made, "--pipeline-model-parallel-layout"), "Et|ttt|tt|t|tt|L");
    assert_eq!(value(&made, "--pipeline-model-parallel-size"), "3");
    assert_eq!((value(&made, "--micro-batch-size"), value(&made, "--global-batch-size")), ("12", "144"));
    let hybrid = ask(newest(Framework::Megatron), Variant::Hybrid, &case, &plan).unwrap();
    assert_eq!(value(&hybrid, "--hybrid-layer-pattern"), "*-|*-*-*-|*-*-|*-|*-*-|");
    assert_eq!(value(&hybrid, "--pipeline-model-parallel-size"), "3");
    let bridge =
        &ask(newest(Framework::MegatronBridge), Variant::Usual, &case, &plan).unwrap().files[0].contents;
    for line in [
        "pipeline_model_parallel_size: 3",
        "pipeline_model_parallel_layout: \"Et|ttt|tt|t|tt|L\"",
        "virtual_pipeline_model_parallel_size: 2",
        "overlap_p2p_comm: true",
        "microbatch_group_size_per_vp_stage: 3",
    ] {
        assert!(bridge.contains(&format!("  {line}\n")), "{line} is not in {bridge}");
    }
    let other = ask(newest(Framework::Other), Variant::Usual, &case, &plan).unwrap();
    let read: serde_json::Value = serde_json::from_str(&other.files[0].contents).unwrap();
    assert_eq!(serde_json::from_value::<Plan>(read["plan"].clone()).unwrap(), plan);
}

/// Micro-batches that are no groups of as many as there are places, and a single place with all stages.
#[test]
fn turns_that_megatron_does_not_take_are_refused() {
    let case = in_turn();
    for framework in [Framework::Megatron, Framework::MegatronBridge] {
        let why = |bend: &dyn Fn(&mut Plan)| {
            let mut plan = case.plan();
            bend(&mut plan);
            ask(newest(framework), Variant::Usual, &case, &plan).unwrap_err().to_string()
        };
        let groups = why(&|plan| plan.training.micro_batches = 7);
        assert!(groups.contains("7 micro-batches for 3 pipeline ranks"), "{groups}");
        let alone = why(&|plan| plan.virtual_stages = 6);
        assert!(alone.contains("on one pipeline rank"), "{alone}");
    }
}

proptest! {
    /// Read as Megatron's `PipelineParallelLayerLayout` reads it, every device has the blocks of its stages, turn by turn, whatever the
    /// cut, and an even one is said, too.
    #[test]
    fn megatron_reads_every_stage_on_its_device(
        blocks in proptest::collection::vec(1_usize..4, 12),
        (positions, each) in (2_usize..5, 2_usize..4),
        groups in 1_u32..4,
    ) {
        let mut case = case(blocks[..positions * each].to_vec(), 1.into(), 1.into());
        (case.virtual_stages, case.micro_batches) = (each as u32, groups * positions as u32);
        let plan = case.plan();
        let made = ask(newest(Framework::Megatron), Variant::Usual, &case, &plan).unwrap();
        let size: usize = value(&made, "--pipeline-model-parallel-size").parse().unwrap();
        let stages: Vec<&str> = value(&made, "--pipeline-model-parallel-layout").split('|').collect();
        prop_assert_eq!((size, stages.len()), (positions, positions * each));
        let mut next = 0;
        // As its `get_layer_offset` counts: a turn of all ranks before the next.
        for turn in 0..each {
            for rank in 0..size {
                let read = stages[turn * size + rank].matches('t').count();
                let config = plan.stages[turn * size + rank].config;
                let own = config.layers().filter(|layer| (1..=case.model.blocks as usize).contains(layer));
                let own: Vec<usize> = own.map(|layer| layer - 1).collect();
                prop_assert_eq!(own, (next..next + read).collect::<Vec<_>>());
                let device = &plan.stages[turn * size + rank].devices[0];
                prop_assert_eq!(made.ranks[rank].device.as_ref(), Some(device));
                next += read;
            }
        }
        prop_assert_eq!(next as i64, case.model.blocks);
    }
}
