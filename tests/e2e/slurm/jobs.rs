//! Jobs that plans become: every task is the rank that the placement says, on the device that it says.

use std::collections::BTreeMap;
use std::fs;

use loadmaster_tests::{Planner, SlurmCluster, json};
use serde_json::Value;

use super::{ask, plan, scene, uneven};

/// What a command prints that a job starts: all that a rank is told, and what Slurm says of its task.
const TELL: &str = "echo task $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $NODE_RANK $GROUP_RANK $MASTER_ADDR \
                    $MASTER_PORT $CUDA_VISIBLE_DEVICES $SLURMD_NODENAME $SLURM_LOCALID";

/// The lines of a job's tasks, word by word, in the order of the first.
fn lines(log: &str, begin: &str) -> Vec<Vec<String>> {
    let words = |line: &str| line.split(' ').map(ToOwned::to_owned).collect::<Vec<String>>();
    let mut lines: Vec<Vec<String>> =
        log.lines().filter_map(|line| line.strip_prefix(begin)).map(|line| words(line.trim())).collect();
    lines.sort_by_key(|words| words[0].parse::<usize>().expect("a rank is a number"));
    lines
}

/// Node and device of each rank, as the planner bound them last.
fn bound(planner: &Planner, plan: &str) -> Vec<(String, u64)> {
    let placements = json(planner, &["plan", "placements", plan]);
    let name = placements["placements"][0]["name"].as_str().expect("there is a placement").to_owned();
    let exported = json(planner, &["plan", "export", plan, "--framework", "other", "--placement", &name]);
    let place = |rank: &Value| {
        let device = &rank["device"];
        (
            device["node"].as_str().expect("a device is on a node").to_owned(),
            device["index"].as_u64().unwrap_or(0),
        )
    };
    exported["ranks"].as_array().expect("there are ranks").iter().map(place).collect()
}

/// Holds what tasks printed to what the planner bound.
fn check(tasks: &[Vec<String>], bound: &[(String, u64)]) {
    assert_eq!(tasks.len(), bound.len(), "{tasks:?}");
    let mut nodes: Vec<&str> = Vec::new();
    let mut on_node: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (node, index) in bound {
        if !nodes.contains(&node.as_str()) {
            nodes.push(node);
        }
        on_node.entry(node).or_default().push(*index);
    }
    for (rank, (task, (node, index))) in tasks.iter().zip(bound).enumerate() {
        let [own, local, world, local_world, node_rank, group, address, port, visible, on, slurms] =
            &task[..]
        else {
            panic!("{task:?} has other words")
        };
        assert_eq!((own, on), (&rank.to_string(), node), "{task:?}");
        assert_eq!(
            (world, local_world),
            (&bound.len().to_string(), &on_node[node.as_str()].len().to_string())
        );
        let number = nodes.iter().position(|of| of == node).expect("it has a rank").to_string();
        assert_eq!((node_rank, group, address.as_str()), (&number, &number, "127.0.0.1"), "{task:?}");
        assert!((20_000..30_000).contains(&port.parse::<u32>().expect("a port is a number")), "{task:?}");
        // What a program takes that takes the device of its local rank.
        let local: usize = local.parse().expect("a local rank is a number");
        assert_eq!(visible.split(',').nth(local), Some(index.to_string().as_str()), "{task:?}");
        assert_eq!(slurms, &local.to_string(), "{task:?}");
    }
}

/// A job of a plan as `loadmaster slurm script` writes it.
fn script(slurm: &SlurmCluster, plan: &str, options: &[&str], command: &str) -> String {
    let ask =
        [&["slurm", "script", plan, "--framework", "other"], options, &["--", "sh", "-c", command]].concat();
    let script = slurm.run("loadmaster", &ask);
    assert_eq!(script.code, 0, "{}", script.stderr);
    script.stdout
}

#[test]
fn every_task_is_the_rank_that_its_plan_was_bound_to() {
    let Some((slurm, planner)) = scene("jobs") else { return };
    let even = plan(&planner, "of-2", "2d4-2d4");
    let log = slurm.job("even.sh", &script(&slurm, &even, &[], TELL));
    let tasks = lines(&log, "task ");
    check(&tasks, &bound(&planner, &even));
    assert_eq!(tasks.len(), 8);
    let folder = slurm.folder().join(format!("loadmaster-{even}"));
    assert!(
        fs::read_to_string(folder.join("plan.json")).expect("it was written").contains("loadmaster.plan/1")
    );

    // A heterogeneous job.
    uneven(&slurm, &planner);
    let parts = plan(&planner, "uneven", "1d4-1d4-2d2");
    let log = slurm.job("parts.sh", &script(&slurm, &parts, &[], TELL));
    check(&lines(&log, "task "), &bound(&planner, &parts));

    // A task of each node, for who starts its ranks there.
    let tell = "echo node $PET_NODE_RANK $PET_NNODES $PET_NPROC_PER_NODE $CUDA_VISIBLE_DEVICES ${RANK-none}";
    let log = slurm.job("nodes.sh", &script(&slurm, &even, &["--command-per", "node"], tell));
    let nodes: Vec<String> = lines(&log, "node ").iter().map(|words| words.join(" ")).collect();
    assert_eq!(nodes, ["0 4 2 0,1 none", "1 4 2 0,1 none", "2 4 2 0,1 none", "3 4 2 0,1 none"]);

    // Beside another job, on GPUs that do not begin with 0; the plan is that of the job's comment.
    let all = slurm.folder().join("topology.conf");
    let import = [
        "cluster",
        "import",
        all.to_str().expect("a path is text"),
        "--id",
        "all",
        "--devices-per-node",
        "8",
    ];
    let kind = ["--device-kind", "NVIDIA H200", "--device-memory", "80GiB", "--network-bandwidth", "400Gb/s"];
    ask(&planner, &[&import[..], &kind].concat());
    let other = ["--parsable", "--nodes=2", "--gpus-per-node=3", "--wrap", "sleep 600"];
    let other = slurm.run("sbatch", &other).stdout.trim().to_owned();
    let lines_of = slurm.run("loadmaster", &["slurm", "request", &even]).stdout;
    let own = format!(
        "#!/bin/bash\n{lines_of}set -e\nloadmaster slurm place --framework other --cluster all\n\
         srun loadmaster slurm exec -- sh -c '{TELL}'\n"
    );
    let log = slurm.job("beside.sh", &own);
    let found = bound(&planner, &even);
    check(&lines(&log, "task "), &found);
    assert!(found.iter().any(|(_, index)| *index > 2), "{found:?}");
    slurm.run("scancel", &[&other]);

    // What a placement knows of the network is what Slurm tells a task.
    let network = "#!/bin/sh\n#SBATCH --nodes=4\nsrun loadmaster slurm node\n";
    let told = slurm.job("network.sh", network);
    let node = |line: &str| serde_json::from_str::<Value>(line).unwrap_or_else(|why| panic!("{why}: {told}"));
    let mut nodes: Vec<Value> = told.lines().map(node).collect();
    nodes.sort_by_key(|node| node["name"].to_string());
    let switches: Vec<&str> = nodes.iter().filter_map(|node| node["switches"].as_str()).collect();
    assert_eq!(switches, ["spine.leaf0", "spine.leaf0", "spine.leaf1", "spine.leaf1"], "{told}");

    // Other tasks than the plan has ranks are refused, with the remedy.
    let wrong = slurm.run("loadmaster", &["slurm", "exec", "--", "true"]);
    assert!(wrong.code != 0 && wrong.stderr.contains("inside a Slurm job"), "{}", wrong.stderr);
}
