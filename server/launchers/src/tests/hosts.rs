//! The list of nodes that DeepSpeed starts its ranks on.

use loadmaster_proto::name::PlanName;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Framework;

use super::{ask, case};
use crate::{Export, ExportedFile, Manifest, ManifestSettings, Refusal, Wrapping, exporters, wrap};
use loadmaster_samples::CutTransformer;

/// Two nodes of two devices each.
fn exported(bend: impl Fn(&mut Plan)) -> Export {
    exported_to(Framework::Deepspeed, bend).unwrap()
}

fn exported_to(framework: Framework, bend: impl Fn(&mut Plan)) -> Result<Export, Box<Refusal>> {
    let case = case(vec![2, 2], 1.into(), 2.into());
    let case = CutTransformer { nodes: 2, devices_per_node: 2, ..case };
    let (mut plan, model) = (case.plan(), case.model());
    bend(&mut plan);
    ask(framework, "", &plan, Some(&model))
}

fn named(names: [&'static str; 2], first: u32) -> impl Fn(&mut Plan) {
    move |plan| {
        for (stage, name) in plan.stages.iter_mut().zip(names) {
            for (device, index) in stage.devices.iter_mut().zip(first..) {
                (device.node, device.index) = (name.to_owned(), index);
            }
        }
    }
}

fn lines(made: &Export) -> Vec<&str> {
    let file = made.files.iter().find(|file| file.name == "hostfile").unwrap();
    file.contents.lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn nodes_are_listed_in_the_order_of_the_ranks() {
    let made = exported(named(["gpu002", "gpu001"], 0));
    assert_eq!(lines(&made), ["gpu002 slots=2", "gpu001 slots=2"]);
    assert_eq!(made.command[..4], ["deepspeed", "--hostfile=hostfile", "--num_nodes=2", "--num_gpus=2"]);
    assert!(
        made.warnings.iter().any(|warning| warning.message.contains("over ssh to every node in hostfile"))
    );
    let one = exported(named(["gpu001", "gpu001"], 0));
    assert!(!one.command.iter().any(|word| word.contains("host")));
    assert!(!one.files.iter().any(|file| file.name == "hostfile"));
}

/// Ray starts every rank itself; pods read the list, whose names mean nothing there.
#[test]
fn a_manifest_carries_the_list_only_where_it_is_read() {
    let name = PlanName::from_id("some").unwrap();
    let made = exported(named(["a", "b"], 0));
    assert!(made.runs_once, "deepspeed reaches the other node from the first");
    assert!(!exported(named(["a", "a"], 0)).runs_once);
    let settings = |image: &str| ManifestSettings { image: image.to_owned(), ..ManifestSettings::default() };
    for (manifest, image, is_read) in [(Manifest::Ray, "", false), (Manifest::Job, "train:1", true)] {
        let wrapping = Wrapping::of(manifest, &name, settings(image)).unwrap();
        let wrapped = wrap(made.clone(), &wrapping).unwrap();
        let told = |file: &ExportedFile| file.name == "hostfile" || file.contents.contains("slots=2");
        assert_eq!(wrapped.files.iter().any(told), is_read, "{manifest}");
        assert_eq!(
            wrapped
                .warnings
                .iter()
                .any(|warning| warning.message.contains("over ssh to every node in hostfile")),
            is_read,
            "{manifest}"
        );
        assert!(wrapped.runs_once, "{manifest}");
    }
}

/// `--include` names slots that there must be.
#[test]
fn slots_reach_to_the_last_device_of_the_plan() {
    let made = exported(named(["a", "b"], 4));
    assert_eq!(lines(&made), ["a slots=6", "b slots=6"]);
    assert!(made.warnings.iter().any(|warning| warning.message.contains("--include=a:4,5@b:4,5")));
}

#[test]
fn names_that_no_line_can_hold_are_to_be_put_in() {
    for names in [["a", "fd00::1"], ["::1", "b"], ["", "a"]] {
        let made = exported(named(names, 0));
        assert_eq!(lines(&made), ["node-0 slots=2", "node-1 slots=2"]);
        let file = made.files.iter().find(|file| file.name == "hostfile").unwrap();
        assert!(file.contents.contains("Replace these by yours"), "{}", file.contents);
    }
}

/// Plans and placements of earlier releases may have any names. Neither ssh nor a shell may take one for an option or a command.
#[test]
fn no_framework_gets_a_name_that_is_no_host() {
    let frameworks: Vec<Framework> = exporters().iter().map(|exporter| exporter.target.framework).collect();
    for framework in frameworks {
        for name in [
            "-oProxyCommand=touch${IFS}x",
            "$(touch x)",
            "`touch x`",
            "a;b",
            "a|b",
            "..",
            "*",
            "my node",
            "b:1",
            "#a",
            "a\nb",
            "n\u{202e}a",
        ] {
            let refused = exported_to(framework, named(["a", name], 0)).unwrap_err();
            let told = refused.to_string();
            assert!(told.contains("not a valid host name"), "{framework} {name:?}: {told}");
            assert!(!told.contains(['\n', '\u{202e}']), "{told}");
            assert_eq!(refused.stages[0].stage, Some(1), "{framework} {name:?}");
        }
        let refused = exported_to(framework, |plan| {
            plan.stages[0].devices[1].uuid = "GPU-1}\"; touch x; \"".to_owned();
        });
        let told = refused.unwrap_err().to_string();
        assert!(told.contains("not a valid device UUID"), "{framework}: {told}");
    }
}
