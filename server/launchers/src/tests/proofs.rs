//! What is said to be proved is what the oracles ask: whose code, at which version.

use std::collections::BTreeSet;
use std::path::Path;

use loadmaster_proto::plan::objective::Framework;

use super::golden::{entries, folder};
use crate::{Exporter, Proof, Version, exporters};

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/launchers").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

fn proved() -> impl Iterator<Item = (&'static Exporter, Proof)> {
    exporters().iter().filter_map(|exporter| Some((exporter, exporter.proof?)))
}

#[test]
fn nothing_is_proved_by_nobody() {
    for Exporter { target, verified, proof, .. } in exporters() {
        assert_eq!(proof.is_some(), *verified != crate::Verified::None, "{target}");
    }
}

/// The package of that version is the one that is installed for the oracle, which says the same version.
#[test]
fn versions_are_those_that_are_installed_and_asked() {
    let (installed, asked) = (read("pins.txt") + &read("install.sh"), read("oracles/frameworks.py"));
    for (Exporter { target, .. }, proof) in proved() {
        let Proof { package, version, is_framework } = proof;
        let pin = format!("{package}=={version}");
        assert!(installed.split_whitespace().any(|word| word == pin), "{target}: {pin} is not installed");
        if is_framework {
            let Version { major, minor } = version.parse().unwrap();
            let key = format!("\"{}@{major}.{minor}\": Launcher(", target.framework);
            let (_, oracle) = asked.split_once(&key).unwrap_or_else(|| panic!("no oracle is {key}"));
            assert_eq!(oracle.split('"').nth(1), Some(version), "{key}");
        }
    }
}

/// Folders of exports are called after the version that took them, not after the first one that the same is written for.
#[test]
fn golden_exports_are_called_after_the_version_that_took_them() {
    let names = entries(&folder()).into_iter().map(|(name, _)| name).filter(|name| name.contains('@'));
    let names: BTreeSet<String> = names.collect();
    let took = |(exporter, proof): (&Exporter, Proof)| {
        let framework = exporter.target.framework;
        let version =
            if proof.is_framework { proof.version.parse().unwrap() } else { exporter.target.version };
        format!("{framework}@{version}")
    };
    let expected: BTreeSet<String> = proved().map(took).collect();
    assert_eq!(names, expected);
}

/// Only a user who may run other code than the tested one gets a warning.
#[test]
fn another_version_than_the_proved_one_is_said() {
    let caveat = |framework: Framework, named: &str| {
        let named = Some(named).filter(|named| !named.is_empty()).map(|named| named.parse().unwrap());
        let target = crate::Target::of(framework, "").unwrap();
        let (_, proof) = proved().find(|(exporter, _)| exporter.target == target).unwrap();
        proof.caveat(framework, named)
    };
    for named in ["", "0.19", "0.19.0", "v0.19.8rc1"] {
        assert_eq!(caveat(Framework::Megatron, named), None, "{named}");
    }
    for named in ["0.17", "0.18.2", "0.20", "1"] {
        let told = caveat(Framework::Megatron, named).unwrap();
        assert!(
            told.message.contains("megatron-core 0.19.2, not with megatron ")
                && told.message.contains("The files are the same for both versions"),
            "{told}"
        );
    }
    // The code of the framework itself was never asked, whichever version it has.
    for named in ["", "0.6"] {
        let told = caveat(Framework::MegatronBridge, named).unwrap();
        assert!(told.message.contains("not with the code of megatron-bridge itself"), "{told}");
    }
}
