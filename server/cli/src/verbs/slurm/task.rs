//! Which ranks a task of srun is, and what these find in their environment.
//!
//! A task is known by its node and its number there. Which tasks Slurm puts on which node in which order does not matter
//! then: not every version of it lets users say that.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use clap::{Args, ValueEnum};

use super::placement::{JobPlacement, PlacementFile, RankDevice};
use super::variables::Variables;
use crate::failure::Failure;

/// A task with its ranks: one of a node's, or all of them.
#[derive(Debug)]
pub(super) struct Task<'a> {
    placement: &'a JobPlacement,
    /// The rank, and which of the node's it is; nothing where the task is a node.
    rank: Option<(usize, usize)>,
    /// Ranks of the node.
    on_node: usize,
    /// Number of the node, in the order of nodes' first ranks.
    node: usize,
    nodes: usize,
    /// Devices of the node's ranks, as CUDA takes them; nothing where Slurm gave none.
    devices: Option<String>,
}

impl<'a> Task<'a> {
    /// # Errors
    /// Slurm started other tasks, elsewhere or with other devices than the placement says.
    pub(super) fn of(placement: &'a JobPlacement, variables: &Variables, per: Per) -> Result<Self, Failure> {
        let name = variables.needed("SLURMD_NODENAME")?;
        let local: usize = variables.number("SLURM_LOCALID")?;
        let mut names: Vec<&str> = Vec::new();
        for rank in &placement.ranks {
            if !names.contains(&rank.node.as_str()) {
                names.push(&rank.node);
            }
        }
        let here: Vec<(usize, &RankDevice)> =
            placement.ranks.iter().enumerate().filter(|(_, rank)| rank.node == name).collect();
        let wanted = if per == Per::Node { names.len() } else { placement.ranks.len() };
        let tasks: usize = variables.number("SLURM_STEP_NUM_TASKS")?;
        let is_one_of = local < if per == Per::Node { 1 } else { here.len() };
        let (Some(node), true, true) = (names.iter().position(|of| *of == name), is_one_of, tasks == wanted)
        else {
            return Err(anyhow::anyhow!(
                "task {local} on node {name} does not match the placement file, which has {} tasks on this node and {} \
                 on all nodes. srun started {tasks} tasks on all nodes. Start as many tasks per node as `loadmaster \
                 slurm request {}` prints.",
                if per == Per::Node { here.len().min(1) } else { here.len() },
                wanted,
                placement.plan
            )
            .into());
        };
        let rank = match per {
            Per::Rank => here.get(local).map(|(rank, _)| (*rank, local)),
            Per::Node => None,
        };
        if per == Per::Node
            && here.iter().enumerate().any(|(index, (rank, _))| *rank != node * here.len() + index)
        {
            return Failure::usage(
                "--command-per node: a launcher numbers ranks node by node, but this plan numbers them in another \
                 order. Use --command-per rank.",
            );
        }
        let devices = visible(&here, variables)?;
        Ok(Self { placement, rank, on_node: here.len(), node, nodes: names.len(), devices })
    }

    /// What the task's program finds, as torchrun would set it.
    pub(super) fn environment(&self) -> BTreeMap<String, String> {
        let mut all = self.placement.environment.clone();
        let mut set = |name: &str, value: String| {
            all.insert(name.to_owned(), value);
        };
        set("LOADMASTER_PLAN", self.placement.plan.clone());
        let (address, port) = (&self.placement.master_address, self.placement.master_port);
        set("MASTER_ADDR", address.clone());
        set("MASTER_PORT", port.to_string());
        for name in ["NODE_RANK", "GROUP_RANK"] {
            set(name, self.node.to_string());
        }
        match self.rank {
            Some((rank, local)) => {
                set("RANK", rank.to_string());
                set("LOCAL_RANK", local.to_string());
                set("WORLD_SIZE", self.placement.ranks.len().to_string());
                set("LOCAL_WORLD_SIZE", self.on_node.to_string());
            }
            None => {
                set("PET_NODE_RANK", self.node.to_string());
                set("PET_NNODES", self.nodes.to_string());
                set("PET_NPROC_PER_NODE", self.on_node.to_string());
                set("PET_MASTER_ADDR", address.clone());
                set("PET_MASTER_PORT", port.to_string());
            }
        }
        if let Some(devices) = &self.devices {
            set("CUDA_VISIBLE_DEVICES", devices.clone());
        }
        all
    }
}

/// The devices of a node's ranks in the order of these: programs take the one whose number is their local rank. UUIDs where
/// they are known, else the words that Slurm has for them.
fn visible(here: &[(usize, &RankDevice)], variables: &Variables) -> Result<Option<String>, Failure> {
    let (given, words) = (variables.list("SLURM_STEP_GPUS"), variables.list("CUDA_VISIBLE_DEVICES"));
    if given.is_empty() && here.iter().any(|(_, rank)| rank.uuid.is_empty()) {
        return Ok(None);
    }
    let word = |rank: &RankDevice| {
        if !rank.uuid.is_empty() {
            return Ok(rank.uuid.clone());
        }
        let index = rank.index.to_string();
        let at = given.iter().position(|of| *of == index);
        let word = at.and_then(|at| words.get(at)).map(|word| (*word).to_owned());
        word.ok_or_else(|| {
            anyhow::anyhow!(
                "the placement has a rank on GPU {index} of node {}, but this job step has only the GPUs {}. Run \
                 `loadmaster slurm place` in this job.",
                rank.node,
                given.join(",")
            )
        })
    };
    let words: Vec<String> = here.iter().map(|(_, rank)| word(rank)).collect::<Result<_, _>>()?;
    Ok(Some(words.join(",")))
}

/// See [`super::SlurmVerb::Exec`].
#[derive(Debug, Args)]
pub(crate) struct ExecTask {
    /// Whether the command is started for each rank or for each node. srun starts as many tasks.
    #[arg(long, value_enum, default_value_t = Per::Rank)]
    command_per: Per,

    #[command(flatten)]
    file: PlacementFile,

    /// Command that replaces this program.
    #[arg(value_name = "COMMAND", last = true, required = true)]
    command: Vec<String>,
}

/// Unit that a command is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Per {
    /// Each rank, as torchrun starts it.
    Rank,
    /// Each node: torchrun, or an exported train.sh, which starts the ranks.
    Node,
}

impl ExecTask {
    /// Becomes the command; comes back only if that cannot be started.
    pub(super) fn run(self) -> Result<(), Failure> {
        let variables = Variables::of_this_process();
        let placement = JobPlacement::read(&self.file.path(&variables)?)?;
        let environment = Task::of(&placement, &variables, self.command_per)?.environment();
        let Some((program, arguments)) = self.command.split_first() else {
            return Failure::usage(
                "the command is missing. Write it after --, for example -- python train.py.",
            );
        };
        let error = Command::new(program).args(arguments).envs(environment).exec();
        Err(anyhow::Error::new(error).context(format!("cannot start {program}")).into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn placement(ranks: &[(&str, i32, &str)]) -> JobPlacement {
        let rank = |(node, index, uuid): &(&str, i32, &str)| RankDevice {
            node: (*node).to_owned(),
            index: *index,
            uuid: (*uuid).to_owned(),
        };
        let names = ("plans/x".to_owned(), "placements/y".to_owned());
        let environment = BTreeMap::from([("CUDA_DEVICE_MAX_CONNECTIONS".to_owned(), "1".to_owned())]);
        JobPlacement::new(names, ("first".to_owned(), 29_500), environment, ranks.iter().map(rank).collect())
    }

    fn task(node: &str, local: &str, tasks: &str, gpus: &str, visible: &str) -> Variables {
        [
            ("SLURMD_NODENAME", node),
            ("SLURM_LOCALID", local),
            ("SLURM_STEP_NUM_TASKS", tasks),
            ("SLURM_STEP_GPUS", gpus),
            ("CUDA_VISIBLE_DEVICES", visible),
        ]
        .into()
    }

    #[test]
    fn a_task_is_the_rank_of_its_node_and_number() {
        // The plan's first node is not Slurm's, and its ranks are not in the order of the devices.
        let placement = placement(&[("b", 5, ""), ("b", 4, ""), ("a", 1, ""), ("a", 0, "")]);
        let found =
            Task::of(&placement, &task("a", "1", "4", "0,1", "0,1"), Per::Rank).unwrap().environment();
        let expected = [
            ("CUDA_DEVICE_MAX_CONNECTIONS", "1"),
            ("CUDA_VISIBLE_DEVICES", "1,0"),
            ("GROUP_RANK", "1"),
            ("LOADMASTER_PLAN", "plans/x"),
            ("LOCAL_RANK", "1"),
            ("LOCAL_WORLD_SIZE", "2"),
            ("MASTER_ADDR", "first"),
            ("MASTER_PORT", "29500"),
            ("NODE_RANK", "1"),
            ("RANK", "3"),
            ("WORLD_SIZE", "4"),
        ];
        let found: Vec<_> = found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(found, expected);
        // Where tasks are shown the job's GPUs alone, they count from 0.
        let found =
            Task::of(&placement, &task("b", "0", "4", "4,5", "0,1"), Per::Rank).unwrap().environment();
        assert_eq!((found["RANK"].as_str(), found["CUDA_VISIBLE_DEVICES"].as_str()), ("0", "1,0"));
    }

    #[test]
    fn uuids_say_more_than_numbers_and_slots_have_neither() {
        let known = placement(&[("a", 1, "GPU-b"), ("a", 0, "GPU-a")]);
        let found = Task::of(&known, &task("a", "0", "2", "0,1", "0,1"), Per::Rank).unwrap().environment();
        assert_eq!(found["CUDA_VISIBLE_DEVICES"], "GPU-b,GPU-a");
        let slots = placement(&[("a", 0, ""), ("a", 1, "")]);
        let found = Task::of(&slots, &task("a", "0", "2", "", ""), Per::Rank).unwrap().environment();
        assert!(!found.contains_key("CUDA_VISIBLE_DEVICES"));
    }

    #[test]
    fn a_node_is_told_to_torchrun() {
        let plan = placement(&[("b", 0, ""), ("b", 1, ""), ("a", 1, ""), ("a", 0, "")]);
        let found = Task::of(&plan, &task("a", "0", "2", "0,1", "0,1"), Per::Node).unwrap().environment();
        let told = |name: &str| found.get(name).map(String::as_str);
        assert_eq!(
            (told("PET_NODE_RANK"), told("PET_NNODES"), told("PET_NPROC_PER_NODE")),
            (Some("1"), Some("2"), Some("2"))
        );
        assert_eq!(
            (told("PET_MASTER_ADDR"), told("CUDA_VISIBLE_DEVICES"), told("RANK")),
            (Some("first"), Some("1,0"), None)
        );
        let mixed = placement(&[("a", 0, ""), ("b", 0, ""), ("a", 1, ""), ("b", 1, "")]);
        let refused = Task::of(&mixed, &task("a", "0", "2", "0,1", "0,1"), Per::Node).unwrap_err();
        assert!(matches!(&refused, Failure::Usage(why) if why.contains("node by node")), "{refused:?}");
    }

    #[test]
    fn tasks_without_a_rank_are_refused() {
        let plan = placement(&[("a", 0, ""), ("b", 7, "")]);
        for (wrong, per) in [
            (task("c", "0", "2", "0", "0"), Per::Rank),
            (task("a", "1", "2", "0", "0"), Per::Rank),
            (task("a", "0", "3", "0", "0"), Per::Rank),
            (task("a", "0", "4", "0", "0"), Per::Node),
            (task("a", "1", "2", "0", "0"), Per::Node),
            (task("b", "0", "2", "0", "0"), Per::Rank),
        ] {
            assert!(Task::of(&plan, &wrong, per).is_err(), "{wrong:?}");
        }
        assert!(Task::of(&plan, &Variables::default(), Per::Rank).is_err());
    }

    proptest! {
        /// Whatever nodes ranks are on, each is exactly one task's, whose program finds its device at its local rank.
        #[test]
        fn tasks_are_the_ranks(nodes in proptest::collection::vec(0..4_usize, 1..20)) {
            let names = ["a", "b", "c", "d"];
            let mut used = [0; 4];
            let ranks: Vec<(&str, i32, &str)> = nodes.iter().map(|node| { used[*node] += 1; (names[*node], 8 - used[*node], "") }).collect();
            // Up to 20 devices on a node: numbers below 0 are as good as others.
            let placement = placement(&ranks);
            let mut seen = vec![0; ranks.len()];
            for (node, name) in names.iter().enumerate() {
                let gpus: Vec<String> = (0..used[node]).map(|of| (8 - used[node] + of).to_string()).collect();
                let words: Vec<String> = gpus.iter().map(|of| format!("w{of}")).collect();
                for local in 0..used[node] {
                    let variables = task(name, &local.to_string(), &ranks.len().to_string(), &gpus.join(","), &words.join(","));
                    let found = Task::of(&placement, &variables, Per::Rank).unwrap().environment();
                    let rank: usize = found["RANK"].parse().unwrap();
                    seen[rank] += 1;
                    let own: usize = found["LOCAL_RANK"].parse().unwrap();
                    let device = found["CUDA_VISIBLE_DEVICES"].split(',').nth(own).unwrap().to_owned();
                    prop_assert_eq!((ranks[rank].0, device), (*name, format!("w{}", ranks[rank].1)));
                }
            }
            prop_assert!(seen.iter().all(|count| *count == 1));
        }
    }
}
