//! Ray: a program that makes a placement group and an actor for each rank, which runs the launcher's program.

use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::plan::objective::Launcher;

use super::pods::{Pod, pods};
use super::settings::Wrapping;
use super::start::program;
use crate::exported::{Export, ExportedFile};
use crate::launcher::{HOSTFILE, HOSTFILE_WARNING};
use crate::local_order::placed_by_cluster;
use crate::question::Refused;
use crate::refusal::StageRefusal;
use crate::word::listed;

const FILE: &str = "loadmaster_ray.py";

/// Whether actors can run a launcher's program.
pub(super) fn is_started(launcher: Launcher) -> bool {
    !matches!(launcher, Launcher::Accelerate | Launcher::Alpa | Launcher::Torchgpipe)
}

/// Adds the program to an export.
///
/// # Errors
/// The launcher's processes need more than their numbers, or nodes have GPUs of several kinds: bundles count them alone.
pub(super) fn wrap(export: Export, wrapping: &Wrapping) -> Result<Export, Refused> {
    let Some(program) = program(&export) else {
        let why = match export.target.launcher {
            Launcher::Torchgpipe => {
                "is one process with all devices: start it yourself, or name the envelope job"
            }
            Launcher::Alpa => "is driven by one program, which finds the cluster of Ray itself: start that",
            _ => {
                "has settings that reach processes through accelerate's launcher alone: name another envelope"
            }
        };
        return Err(vec![StageRefusal::of_plan(why)]);
    };
    let pods = pods(&export.ranks)?;
    if pods.windows(2).any(|pair| pair[0].kind != pair[1].kind) {
        let why = "has nodes with other kinds of GPUs, which Ray's bundles cannot tell apart: name the envelope jobset, or recommend one \
                   for a single kind";
        return Err(vec![StageRefusal::of_plan(why)]);
    }
    let mut files = export.files.clone();
    let mut warnings = placed_by_cluster(&export.warnings, "Ray");
    // Ray starts every rank, and nobody reads a list of nodes.
    files.retain(|file| file.name != HOSTFILE);
    warnings.retain(|warning| warning != HOSTFILE_WARNING);
    files.push(ExportedFile::new(FILE, script(&export, wrapping, &pods, &program)));
    if is_on_cpus(&pods) {
        warnings
            .push("each rank takes one of the CPUs that Ray counts, whatever threads it starts".to_owned());
    }
    warnings.push(format!(
        "put your program beside the files: Ray sends the folder to every node, and {FILE}'s arguments to the program"
    ));
    let words = ["ray", "job", "submit", "--working-dir=.", "--", "python", FILE];
    let command = words.map(str::to_owned).to_vec();
    Ok(Export { files, command, runs_once: true, environment: Default::default(), warnings, ..export })
}

/// Ranks on CPUs take no GPUs.
fn is_on_cpus(pods: &[Pod]) -> bool {
    pods.iter().all(|pod| pod.kind == CPU_KIND)
}

fn script(export: &Export, wrapping: &Wrapping, pods: &[Pod], program: &[String]) -> String {
    let nodes: Vec<usize> = pods.iter().map(|pod| pod.ranks).collect();
    // A list or a map of texts is written alike in both languages.
    let python = |value: String| value.replace("\":\"", "\": \"").replace("\",\"", "\", \"");
    let program = python(serde_json::to_string(program).unwrap_or_default());
    let environment = python(serde_json::to_string(&export.environment).unwrap_or_default());
    let (resource, device) = if is_on_cpus(pods) { ("CPU", "a CPU") } else { ("GPU", "a GPU") };
    format!(
        r#""""{head}.

Places the plan's ranks on a cluster of Ray and runs the launcher's program as each:

    ray job submit --working-dir=. -- python {FILE} ARGUMENTS

ARGUMENTS are the program's own. Each node of the plan is a bundle on a node of its own, each rank an actor with {device}.
"""

# Ranks of each node of the plan: they follow each other.
NODES = [{nodes}]
# What each takes one of.
RESOURCE = "{resource}"
PROGRAM = {program}
ENVIRONMENT = {environment}
{RUNNER}"#,
        head = wrapping.head_line(),
        nodes = listed(&nodes),
    )
}

/// What places and runs, the same for every plan.
const RUNNER: &str = r#"
import os
import socket
import subprocess
import sys

import ray
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote(num_cpus=0, max_restarts=0, max_concurrency=2)
class Rank:
    """A process of the launcher's program, on the node and beside the device that Ray has given it."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def place(self) -> tuple[str, str, list[str]]:
        """Node, its address, and the GPU; on CPUs none."""
        context = ray.get_runtime_context()
        return context.get_node_id(), ray.util.get_node_ip_address(), context.get_accelerator_ids()["GPU"]

    def free_port(self) -> int:
        with socket.socket() as listener:
            listener.bind(("", 0))
            return listener.getsockname()[1]

    def run(self, words: list[str], variables: dict[str, str]) -> int:
        """Runs the program to its end, and returns its exit status."""
        environment = os.environ | variables
        words = [environment.get(word[1:], word) if word.startswith("$") else word for word in words]
        self.process = subprocess.Popen([sys.executable, *words], env=environment)
        return self.process.wait()

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()


def group() -> PlacementGroup:
    """A bundle for each node of the plan."""
    made = placement_group([{RESOURCE: ranks} for ranks in NODES], strategy="STRICT_SPREAD")
    ray.get(made.ready())
    return made


def ranks(made: PlacementGroup) -> list[Rank]:
    """An actor for each rank, in order."""
    takes = {"num_gpus": 1} if RESOURCE == "GPU" else {"num_cpus": 1}
    return [
        Rank.options(
            **takes, scheduling_strategy=PlacementGroupSchedulingStrategy(made, placement_group_bundle_index=node)
        ).remote()
        for node, count in enumerate(NODES)
        for _ in range(count)
    ]


def variables(actors: list[Rank]) -> list[dict[str, str]]:
    """What each rank is told: all of a node see all of its GPUs, and take the one of their local number."""
    places = ray.get([actor.place.remote() for actor in actors])
    port = ray.get(actors[0].free_port.remote())
    told, first = [], 0
    for node, count in enumerate(NODES):
        of_node = places[first : first + count]
        for local in range(count):
            told.append(
                ENVIRONMENT
                | {
                    "RANK": str(first + local),
                    "WORLD_SIZE": str(len(actors)),
                    "LOCAL_RANK": str(local),
                    "LOCAL_WORLD_SIZE": str(count),
                    "GROUP_RANK": str(node),
                    "MASTER_ADDR": places[0][1],
                    "MASTER_PORT": str(port),
                    "CUDA_VISIBLE_DEVICES": ",".join(gpu for _, _, gpus in of_node for gpu in gpus),
                }
            )
        first += count
    return told


def main() -> int:
    """The status of the first rank that fails, which ends all; 0 where none does."""
    ray.init(ignore_reinit_error=True)
    actors = ranks(group())
    told = variables(actors)
    words = [*PROGRAM, *sys.argv[1:]]
    running = [actor.run.remote(words, of) for actor, of in zip(actors, told, strict=True)]
    while running:
        ended, running = ray.wait(running)
        if status := ray.get(ended[0]):
            ray.get([actor.stop.remote() for actor in actors])
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
"#;
