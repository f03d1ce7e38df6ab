//! Where Slurm's network is blocks of nodes, ranks of a stage that share their work are asked for as segments, which it keeps whole.

use loadmaster_tests::{Output, SlurmCluster, stages, wait_until};
use serde_json::Value;

use super::{ask, plan, scene_of, word};

/// The number of a job that is no longer held back by anything but Slurm.
fn submit(slurm: &SlurmCluster, plan: &str, options: &[&str]) -> (String, String) {
    let mut command = slurm.command("sbatch", &[&["--parsable"], options, &["--wrap", "sleep 300"]].concat());
    let output = Output::of(command.env("LOADMASTER_PLAN", plan));
    assert_eq!(output.code, 0, "{}", output.stderr);
    (output.stdout.trim().to_owned(), output.stderr)
}

/// The state of a job, and its nodes.
fn state(slurm: &SlurmCluster, job: &str) -> (String, String) {
    let told = slurm.run("scontrol", &["-o", "show", "job", job]).stdout;
    (
        word(&told, "JobState="),
        told.split(" NodeList=").nth(1).unwrap_or_default().split(' ').next().unwrap_or_default().to_owned(),
    )
}

fn runs_on(slurm: &SlurmCluster, job: &str) -> String {
    wait_until(&format!("job {job} runs"), || {
        let (state, nodes) = state(slurm, job);
        (state == "RUNNING").then_some(nodes)
    })
}

#[test]
fn stages_of_several_nodes_stay_in_one_block() {
    let Some((mut slurm, planner)) = scene_of("segments", SlurmCluster::start_with_blocks) else { return };
    slurm.set("LOADMASTER_SLURM_TOPOLOGY_PLUGIN", "block");
    // Two stages of two nodes each.
    let four = plan(&planner, "of-2", "2d4-2d4");
    let lines = slurm.run("loadmaster", &["slurm", "request", &four]);
    assert_eq!(lines.code, 0, "{}", lines.stderr);
    assert!(
        lines.stdout.contains("#SBATCH --segment=2\n") && !lines.stdout.contains("switches"),
        "{}",
        lines.stdout
    );
    std::fs::write(slurm.folder().join("job.sh"), format!("#!/bin/sh\n{}true\n", lines.stdout))
        .expect("a script can be written");
    let test = slurm.run("sbatch", &["--test-only", "job.sh"]);
    assert!(test.code == 0 && test.stderr.contains("to start at"), "{}", test.stderr);
    assert!(test.stderr.contains(&format!("asks for what plans/{four} does")), "{}", test.stderr);

    // One node of each block is busy, so that two are free, of different blocks.
    let busy = |node: &str| submit(&slurm, "", &["--exclusive", &format!("--nodelist={node}")]).0;
    let (first, second) = (busy("gpu002"), busy("gpu003"));
    assert_eq!(
        (runs_on(&slurm, &first), runs_on(&slurm, &second)),
        ("gpu002".to_owned(), "gpu003".to_owned())
    );
    // The hook fills in what keeps one stage on two nodes together, and the job waits for a block.
    let nodes = ["--nodes", "gpu[001-002]", "--devices-per-node", "2", "--device-kind", "NVIDIA H200"];
    ask(&planner, &[&["cluster", "create", "--id", "pair", "--device-memory", "80GiB"], &nodes[..]].concat());
    let pair = plan(&planner, "pair", "4d4");
    let (waits, told) = submit(&slurm, &pair, &[]);
    let filled = format!("plans/{pair} asks for --gpus-per-node=h200:2 --nodes=2 --segment=2 (");
    assert!(told.contains(&filled) && told.contains("asks for what"), "{told}");
    // A user who does not care gets the two, and is told.
    let (apart, told) = submit(&slurm, &pair, &["--segment=1", "--nodes=2", "--gpus-per-node=h200:2"]);
    assert!(told.contains("--segment=1 stays, and the plan asks for 2"), "{told}");
    assert_eq!(runs_on(&slurm, &apart), "gpu[001,004]");
    assert_eq!(state(&slurm, &waits).0, "PENDING");
    for job in [&second, &apart] {
        slurm.run("scancel", &[job]);
    }
    assert_eq!(runs_on(&slurm, &waits), "gpu[003-004]");
    for job in [&waits, &first] {
        slurm.run("scancel", &[job]);
    }

    // Inside of the job ranks are put on the nodes of its blocks.
    let script = format!(
        "#!/bin/sh\n{}loadmaster slurm place --framework torch-pipelining {four} -o json\n",
        lines.stdout
    );
    let bound = slurm.job("bind.sh", &script);
    let json = bound.find('{').map_or("", |at| &bound[at..]);
    let first = serde_json::Deserializer::from_str(json).into_iter::<Value>().next();
    let placement = first.and_then(Result::ok).unwrap_or_else(|| panic!("no placement: {bound}"));
    let stages = stages(&placement);
    let blocks: Vec<Vec<bool>> = stages
        .iter()
        .map(|stage| {
            let ranges = stage["deviceRanges"].as_array().expect("a stage has devices");
            ranges.iter().map(|of| of["node"].as_str().expect("a device has a node") > "gpu002").collect()
        })
        .collect();
    assert!(
        blocks.len() == 2
            && blocks.iter().all(|of| of.len() == 2 && of[0] == of[1])
            && blocks[0] != blocks[1],
        "{placement}"
    );
}
