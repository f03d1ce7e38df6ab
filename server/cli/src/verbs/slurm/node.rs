//! `loadmaster slurm node`: what Slurm gave a job on one of its nodes.

use std::collections::BTreeMap;
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::variables::Variables;
use crate::failure::Failure;
use crate::output::write_stdout;

/// A node of a job, as a task on it sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SlurmNode {
    /// Slurm's name of it.
    pub(super) name: String,
    /// The switches or blocks above it, farthest first, with dots between; empty where Slurm knows none.
    pub(super) switches: String,
    /// The GPUs that were given, as Slurm counts all of the node's; without GPUs a number for each task.
    pub(super) devices: Vec<i32>,
    /// Their UUIDs in the same order; empty without a driver.
    pub(super) uuids: Vec<String>,
}

/// Prints the node as a line of JSON; one of its tasks does, and the others print nothing.
pub(super) fn print() -> Result<(), Failure> {
    let variables = Variables::of_this_process();
    if variables.number::<u32>("SLURM_LOCALID")? > 0 {
        return Ok(());
    }
    let listed =
        Command::new("nvidia-smi").args(["--query-gpu=index,uuid", "--format=csv,noheader"]).output();
    // Without a driver there are no UUIDs, and Slurm's own numbers do.
    let listed = listed.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let node = SlurmNode::of(&variables, &String::from_utf8_lossy(&listed.unwrap_or_default()))?;
    let line = serde_json::to_string(&node).map_err(anyhow::Error::new)? + "\n";
    write_stdout(line.as_bytes())
}

impl SlurmNode {
    /// From what Slurm says to a task, and the driver's list: lines of `index, UUID`.
    ///
    /// # Errors
    /// A variable of Slurm's is not there, or says something else.
    fn of(variables: &Variables, listed: &str) -> Result<Self, Failure> {
        let name = variables.needed("SLURMD_NODENAME")?.to_owned();
        let address = variables.get("SLURM_TOPOLOGY_ADDR").unwrap_or_default();
        // A node's name may have dots itself.
        let above = match address.strip_suffix(name.as_str()) {
            // Nothing is above the node.
            Some("") => Some(""),
            above => above.and_then(|above| above.strip_suffix('.')),
        };
        let above = above.or_else(|| address.rsplit_once('.').map(|(above, _)| above));
        let switches = above.unwrap_or_default().to_owned();
        let given = variables.list("SLURM_STEP_GPUS");
        if given.is_empty() {
            let tasks =
                tasks_of(variables.needed("SLURM_STEP_TASKS_PER_NODE")?, variables.number("SLURM_NODEID")?);
            let tasks = tasks.ok_or_else(|| {
                anyhow::anyhow!("SLURM_STEP_TASKS_PER_NODE has no number of tasks for node {name}")
            })?;
            return Ok(Self { name, switches, devices: (0..tasks).collect(), uuids: Vec::new() });
        }
        let number = |text: &&str| {
            text.parse().map_err(|_| {
                anyhow::anyhow!("SLURM_STEP_GPUS contains {text:?}, expected the index of a GPU")
            })
        };
        let devices: Vec<i32> = given.iter().map(number).collect::<Result<_, _>>()?;
        let known: BTreeMap<&str, &str> = listed
            .lines()
            .filter_map(|line| line.split_once(','))
            .map(|(index, uuid)| (index.trim(), uuid.trim()))
            .collect();
        // Numbers as processes of the job use them: from 0 where they are shown no other GPUs, and so the driver counts for them.
        let visible = variables.list("CUDA_VISIBLE_DEVICES");
        let uuids: Vec<String> =
            visible.iter().filter_map(|index| known.get(index)).map(|uuid| (*uuid).to_owned()).collect();
        let uuids = if uuids.len() == devices.len() { uuids } else { Vec::new() };
        Ok(Self { name, switches, devices, uuids })
    }
}

/// The tasks of a node in a list such as `4(x2),1`.
fn tasks_of(list: &str, node: usize) -> Option<i32> {
    let mut before = 0_usize;
    for part in list.split(',') {
        let (tasks, nodes) = match part.split_once("(x") {
            Some((tasks, nodes)) => (tasks, nodes.strip_suffix(')')?.parse().ok()?),
            None => (part, 1_usize),
        };
        before = before.checked_add(nodes)?;
        if node < before {
            return tasks.parse().ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(gpus: &str, visible: &str) -> Variables {
        [
            ("SLURMD_NODENAME", "gpu002"),
            ("SLURM_TOPOLOGY_ADDR", "spine.leaf0.gpu002"),
            ("SLURM_STEP_GPUS", gpus),
            ("CUDA_VISIBLE_DEVICES", visible),
            ("SLURM_NODEID", "1"),
            ("SLURM_STEP_TASKS_PER_NODE", "4,2(x3)"),
        ]
        .into()
    }

    #[test]
    fn gpus_are_slurms_numbers_with_the_drivers_uuids() {
        let node = SlurmNode::of(&task("2,3", "2,3"), "0, GPU-a\n1, GPU-b\n2, GPU-c\n3, GPU-d\n").unwrap();
        assert_eq!((node.name.as_str(), node.switches.as_str()), ("gpu002", "spine.leaf0"));
        assert_eq!((node.devices, node.uuids), (vec![2, 3], vec!["GPU-c".to_owned(), "GPU-d".to_owned()]));
        // Where a job is shown its own GPUs alone, both lists begin with 0.
        let node = SlurmNode::of(&task("2,3", "0,1"), "0, GPU-c\n1, GPU-d\n").unwrap();
        assert_eq!((node.devices, node.uuids), (vec![2, 3], vec!["GPU-c".to_owned(), "GPU-d".to_owned()]));
        let node = SlurmNode::of(&task("2,3", "2,3"), "no devices were found").unwrap();
        assert_eq!((node.devices, node.uuids.len()), (vec![2, 3], 0));
        assert!(SlurmNode::of(&task("a", "a"), "").is_err());
        // Without GPUs each task is a slot.
        assert_eq!(SlurmNode::of(&task("", ""), "").unwrap().devices, [0, 1]);
    }

    #[test]
    fn the_name_of_a_node_may_have_dots() {
        for (name, address, above) in [
            ("10.0.71.103", "gb300_b0.10.0.71.103", "gb300_b0"),
            ("10.0.88.115", "gb300_b0.10.0.88.115", "gb300_b0"),
            ("worker-dynamic-0", "root..unknown.worker-dynamic-0", "root..unknown"),
            ("n1.example.org", "spine.leaf0.n1.example.org", "spine.leaf0"),
            ("10.0.71.103", "10.0.71.103", ""),
            ("n1", "", ""),
        ] {
            let variables = [
                ("SLURMD_NODENAME", name),
                ("SLURM_TOPOLOGY_ADDR", address),
                ("SLURM_NODEID", "0"),
                ("SLURM_STEP_TASKS_PER_NODE", "1(x4)"),
            ];
            let node = SlurmNode::of(&variables.into(), "").unwrap();
            assert_eq!((node.name.as_str(), node.switches.as_str()), (name, above));
        }
    }

    #[test]
    fn tasks_of_nodes_are_counted_as_slurm_writes_them() {
        let list: Vec<_> = (0..6).map(|node| tasks_of("4(x2),1,3(x2)", node)).collect();
        assert_eq!(list, [Some(4), Some(4), Some(1), Some(3), Some(3), None]);
        for wrong in ["", "x", "4(x", "4(x2", "4(x99999999999999999999)"] {
            assert_eq!(tasks_of(wrong, 0), None, "{wrong}");
        }
    }
}
