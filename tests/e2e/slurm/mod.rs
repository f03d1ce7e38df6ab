//! Plans as jobs of a real Slurm: a controller and four nodes with eight GPUs each, all on this machine.

mod hooks;
mod jobs;
mod requests;
mod segments;

use loadmaster_tests::{Planner, SlurmCluster, cli};

/// Slurm, and a planner that knows what its nodes look like; nothing where Slurm is not there.
fn scene(test: &str) -> Option<(SlurmCluster, Planner)> {
    scene_of(test, SlurmCluster::start)
}

fn scene_of(test: &str, start: fn(&str) -> Result<SlurmCluster, String>) -> Option<(SlurmCluster, Planner)> {
    let planner = Planner::start();
    let slurm = match start(planner.address()) {
        Ok(slurm) => slurm,
        Err(why) => {
            eprintln!("SKIPPED: slurm::{test}: {why}");
            return None;
        }
    };
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/profile/table.json");
    ask(&planner, &["profile", "import", root, "--id", "small"]);
    for devices in ["2", "4"] {
        let topology = slurm.folder().join("topology.conf");
        let id = format!("of-{devices}");
        ask(
            &planner,
            &[
                "cluster",
                "import",
                topology.to_str().expect("a path is text"),
                "--id",
                &id,
                "--devices-per-node",
                devices,
                "--device-kind",
                "NVIDIA H200",
                "--device-memory",
                "80GiB",
                "--network-bandwidth",
                "400Gb/s",
            ],
        );
    }
    Some((slurm, planner))
}

/// A cluster `uneven`, where a node has other numbers of devices than the two others.
fn uneven(slurm: &SlurmCluster, planner: &Planner) {
    let path = slurm.folder().join("uneven.yaml");
    let node = |name: &str, devices: u32| {
        format!(
            "  - {{name: '{name}', devices: {devices}, kind: NVIDIA H200, network: {{bandwidth: 400Gb/s}}}}\n"
        )
    };
    let head = "format: loadmaster.cluster/1\nkinds:\n  - {name: NVIDIA H200, memory: 80GiB}\nnodes:\n";
    let text = [head, &node("gpu[001-002]", 4), &node("gpu003", 2)].concat();
    std::fs::write(&path, text).expect("files can be written");
    ask(planner, &["cluster", "import", path.to_str().expect("a path is text"), "--id", "uneven"]);
}

/// The id of a plan with these stages for a cluster.
fn plan(planner: &Planner, cluster: &str, stages: &str) -> String {
    let ask_for = [
        "plan",
        "recommend",
        "--profile",
        "small",
        "--cluster",
        cluster,
        "--pipeline-layout",
        stages,
        "-o",
        "name",
    ];
    ask(planner, &ask_for).trim().replace("plans/", "")
}

/// A word of what `scontrol show job` tells of a job. Numbers of nodes are ranges until the job starts.
fn word(told: &str, key: &str) -> String {
    let found = told.split_whitespace().find_map(|word| word.strip_prefix(key)).unwrap_or_default();
    match found.split_once('-') {
        Some((least, most)) if least == most => least.to_owned(),
        _ => found.to_owned(),
    }
}

fn ask(planner: &Planner, arguments: &[&str]) -> String {
    let output = cli(planner, arguments);
    assert_eq!(output.code, 0, "{arguments:?}: {}", output.stderr);
    output.stdout
}
