//! What frameworks cannot say is refused, stage by stage, and layers in a row are cut wherever the plan does.

use loadmaster_proto::model::Model;
use loadmaster_proto::model::zoo::{Vgg, Zoo};
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::training::{RecomputePolicy, Schedule};
use loadmaster_samples::{CutTransformer, DescribedTransformer, chunked};

use super::ask;
use crate::Target;

/// Those that cut the user's own layers.
const CHAINS: [Framework; 3] = [Framework::Deepspeed, Framework::TorchPipelining, Framework::Torchgpipe];

/// Llama on four stages of two devices, or of one.
fn case(degree: u32, schedule: &str) -> CutTransformer {
    let case = super::case(vec![2, 3, 2, 1], 1.into(), degree.into());
    let model = DescribedTransformer {
        family: "llama".to_owned(),
        hidden: 64,
        heads: 4,
        key_value_heads: 4,
        feed_forward: 176,
        sequence: 32,
        positions: 0,
        rotary_base: 10_000,
        tied: false,
        ..case.model
    };
    CutTransformer {
        model,
        devices_per_node: 4 * degree,
        micro_batch: 2,
        micro_batches: 8,
        schedule: schedule.to_owned(),
        precision: "fp32".to_owned(),
        ..case
    }
}

/// A case that a framework takes.
fn taken(framework: Framework) -> CutTransformer {
    if framework == Framework::Torchgpipe { case(1, "GPipe") } else { case(2, "1F1B") }
}

/// The stages that are refused, and why.
fn refused(
    framework: Framework,
    version: &str,
    case: &CutTransformer,
    bend: fn(&mut Plan),
) -> Vec<(Option<usize>, String)> {
    let (mut plan, model) = (case.plan(), case.model());
    ask(framework, version, &plan, Some(&model)).unwrap();
    bend(&mut plan);
    let refusal = ask(framework, version, &plan, Some(&model)).unwrap_err();
    refusal.stages.into_iter().map(|stage| (stage.stage, stage.why)).collect()
}

const ALL: [(Framework, &str); 6] = [
    (Framework::Deepspeed, ""),
    (Framework::TorchPipelining, ""),
    (Framework::ColossalAi, ""),
    (Framework::Torchgpipe, ""),
    (Framework::Torchtitan, "0.2"),
    (Framework::Torchtitan, "0.3"),
];

#[test]
fn every_framework_names_the_stages_that_it_cannot_run() {
    for (framework, version) in ALL {
        let case = taken(framework);
        let says = |bend: fn(&mut Plan), stages: &[Option<usize>], word: &str| {
            let refused = refused(framework, version, &case, bend);
            let named: Vec<Option<usize>> = refused.iter().map(|(stage, _)| *stage).collect();
            assert_eq!(named, stages, "{framework}: {refused:?}");
            assert!(refused.iter().all(|(_, why)| why.contains(word)), "{framework}: {refused:?}");
        };
        says(|plan| plan.stages[2].config.data_degree = 4, &[Some(2)], "");
        says(
            |plan| plan.stages.iter_mut().skip(1).step_by(2).for_each(|stage| stage.config.tensor_degree = 2),
            &[Some(1), Some(3)],
            "",
        );
        says(|plan| plan.stages[1].chunks = Some(Box::new(chunked(1 << 30))), &[Some(1)], "chunked training");
        says(|plan| plan.training.schedule = Schedule::PipeDream, &[None], "pipedream");
        if framework == Framework::ColossalAi {
            says(|plan| plan.stages[3].recompute = RecomputePolicy::Stage, &[Some(3)], "`layer`");
        } else {
            says(|plan| plan.stages[3].recompute = RecomputePolicy::Stage, &[Some(3)], "one policy");
        }
        if framework != Framework::Torchgpipe {
            says(|plan| plan.training.micro_batch_size = 5, &[None], "5 samples, which data-parallel size 2");
            // Seven devices on one node, and one on another.
            says(
                |plan| {
                    let devices = plan.stages.iter_mut().flat_map(|stage| &mut stage.devices);
                    devices.enumerate().for_each(|(at, device)| device.node = format!("node{}", at / 7));
                },
                &[None],
                "node by node",
            );
        }
    }
}

#[test]
fn torch_is_not_given_fewer_micro_batches_than_stages() {
    for (framework, version) in ALL
        .into_iter()
        .filter(|(framework, _)| matches!(framework, Framework::TorchPipelining | Framework::Torchtitan))
    {
        let refused = refused(framework, version, &taken(framework), |plan| plan.training.micro_batches = 3);
        assert_eq!(refused.len(), 1);
        assert!(refused[0].1.contains("3 micro-batches for 4 stages"), "{refused:?}");
    }
}

#[test]
fn a_head_without_its_norm_is_a_layer_like_any_other_where_layers_are_the_users() {
    for (framework, version) in ALL {
        let case = taken(framework);
        let (mut plan, model) = (case.plan(), case.model());
        plan.stages[2].config.last_layer += 2;
        plan.stages[3].config.first_layer += 2;
        let made = ask(framework, version, &plan, Some(&model));
        if CHAINS.contains(&framework) {
            made.unwrap();
        } else {
            let stages: Vec<Option<usize>> =
                made.unwrap_err().stages.iter().map(|stage| stage.stage).collect();
            assert_eq!(stages, [Some(2), Some(3)], "{framework}");
        }
    }
}

#[test]
fn networks_of_named_layers_are_cut_by_their_numbers() {
    let model = Zoo::Vgg11(Vgg::default()).build().unwrap();
    let layers = model.layers().len();
    for (framework, version) in ALL {
        let mut plan = taken(framework).plan();
        let ends = [2, 3, 9, layers - 1];
        let mut first = 0;
        for (stage, last) in plan.stages.iter_mut().zip(ends) {
            (stage.config.first_layer, stage.config.last_layer) = (first, last);
            first = last + 1;
        }
        // Known by its parts, or by its layers' names alone.
        for model in [Some(&model), None] {
            let made = ask(framework, version, &plan, model);
            if !CHAINS.contains(&framework) {
                assert!(made.is_err(), "{framework}");
                continue;
            }
            let text: String = made.unwrap().files.into_iter().map(|file| file.contents).collect();
            let bounds = format!("[0, 3, 4, 10, {layers}]");
            let balance = format!("[3, 1, 6, {}]", layers - 10);
            assert!(text.contains(&bounds) || text.contains(&balance), "{framework}: {text}");
            assert!(text.contains("Layers of the stages: 3, 1, 6, "), "{framework}: {text}");
        }
    }
}

#[test]
fn stages_of_colossal_ai_compute_again_what_each_likes() {
    let case = case(2, "1F1B");
    let mut plan = case.plan();
    for stage in [1, 3] {
        plan.stages[stage].recompute = RecomputePolicy::Layer;
    }
    let made = ask(Framework::ColossalAi, "", &plan, Some(&case.model())).unwrap();
    let text = &made.files[0].contents;
    assert!(text.contains("num_ckpt_layers_per_stage=[0, 3, 0, 1]"), "{text}");
}

#[test]
fn one_process_drives_the_devices_of_one_node() {
    let case = case(1, "GPipe");
    let why =
        refused(Framework::Torchgpipe, "", &case, |plan| plan.stages[3].devices[0].node = "other".to_owned());
    assert!(why[0].1.contains("2 nodes"), "{why:?}");
    let mut plan = case.plan();
    for (stage, index) in plan.stages.iter_mut().zip([5, 4, 7, 6]) {
        let device = &mut stage.devices[0];
        (device.node, device.index) = ("here".to_owned(), index);
    }
    let made = ask(Framework::Torchgpipe, "", &plan, Some(&case.model())).unwrap();
    // Of those in sight, as for every framework.
    let devices = r#"DEVICES = ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]"#;
    assert!(made.files[0].contents.contains(devices), "{}", made.files[0].contents);
    let told = made.warnings.iter().map(|of| of.message.as_str()).collect::<Vec<_>>().join("\n");
    assert!(told.contains("CUDA_VISIBLE_DEVICES=5,4,7,6"), "{told}");
}

#[test]
fn torchtitan_gives_every_shard_as_many_heads() {
    let mut case = case(2, "1F1B");
    case.tensor = 2.into();
    case.data = 1.into();
    case.model.key_value_heads = 1;
    for version in ["0.2", "0.3"] {
        let refusal = ask(Framework::Torchtitan, version, &case.plan(), Some(&case.model())).unwrap_err();
        assert!(refusal.to_string().contains("1 heads of keys and values over 2 devices"), "{refusal}");
    }
}

/// Their `torch.distributed.pipelining` has not what the files import, or no such module is there.
#[test]
fn torch_without_such_stages_is_refused_by_version() {
    for version in ["2.0", "2.3.1", "2.4", "2.5.1"] {
        let why = Target::of(Framework::TorchPipelining, version).unwrap_err().to_string();
        assert!(why.contains("The oldest supported version is 2.6"), "{why}");
    }
    assert!(Target::of(Framework::TorchPipelining, "2.6").is_ok());
}

/// All slots of a CPU are the device that torch calls so.
#[test]
fn torchgpipe_is_told_a_cpu_by_its_name() {
    let case = case(1, "GPipe");
    let mut plan = case.plan();
    plan.stages
        .iter_mut()
        .flat_map(|stage| &mut stage.devices)
        .for_each(|device| device.kind = "cpu".to_owned());
    let made = ask(Framework::Torchgpipe, "", &plan, Some(&case.model())).unwrap();
    assert!(
        made.files[0].contents.contains(r#"DEVICES = ["cpu", "cpu", "cpu", "cpu"]"#),
        "{}",
        made.files[0].contents
    );
}

#[test]
fn galvatron_is_told_the_dropout_of_the_embedding() {
    let mut case = case(1, "1F1B");
    case.model = super::case(vec![2, 3, 2, 1], 1.into(), 1.into()).model;
    let mut described = serde_json::to_value(case.model()).unwrap();
    described["layers"][0]["dropout"] = serde_json::json!(0.25);
    let model: Model = serde_json::from_value(described).unwrap();
    let made = ask(Framework::Galvatron, "", &case.plan(), Some(&model)).unwrap();
    let file = made.files.iter().find(|file| file.name == "model.json").unwrap();
    let read: serde_json::Value = serde_json::from_str(&file.contents).unwrap();
    assert_eq!((&read["embd_pdrop"], &read["resid_pdrop"]), (&0.25.into(), &0.0.into()), "{read}");
}
