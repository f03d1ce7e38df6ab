//! Ray: a program that makes a placement group and an actor for each rank, which runs the framework's program. Which nodes and which
//! of their GPUs these are, Ray chooses; where the plan is bound, the placement does.

use std::io;

use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::plan::PlacedDevice;
use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::warning::WarningCode;
use serde::Serialize;
use serde_json::ser::Formatter;

use super::pods::{Pod, pods};
use super::settings::Wrapping;
use super::start::program;
use crate::StageRefusal;
use crate::cut::listed;
use crate::export_parts::{Export, ExportedFile, RankPlace};
use crate::framework::{HOSTFILE, HOSTFILE_WARNING};
use crate::local_order::{placed_by_cluster, placed_by_placement};
use crate::question::Refused;

const FILE: &str = "loadmaster_ray.py";

/// Whether actors can run a framework's program.
pub(super) fn is_started(framework: Framework) -> bool {
    !matches!(framework, Framework::Accelerate | Framework::Torchgpipe)
}

/// Adds the program to an export.
///
/// # Errors
/// The framework's processes need more than their numbers; nodes have GPUs of several kinds, which bundles count alone, and no
/// placement names them; or some ranks are on CPUs and others are not.
pub(super) fn wrap(export: Export, wrapping: &Wrapping) -> Result<Export, Refused> {
    let Some(program) = program(&export) else {
        let why = match export.target.framework {
            Framework::Torchgpipe => {
                "runs as one process with all devices, but Ray starts a process per rank. Start the program yourself, \
                 or use the manifest job"
            }
            _ => {
                "has settings that only `accelerate launch` passes to processes. Use a manifest other than ray"
            }
        };
        return Err(vec![StageRefusal::of_plan(why)]);
    };
    let pods = pods(&export.ranks, false)?;
    let on_cpus = pods.iter().filter(|pod| pod.kind == CPU_KIND).count();
    if ![0, pods.len()].contains(&on_cpus) {
        let why = "has ranks on CPUs and on GPUs, but all Ray actors request the same resource. Request a plan for \
            one kind of device";
        return Err(vec![StageRefusal::of_plan(why)]);
    }
    if !wrapping.is_bound() && pods.windows(2).any(|pair| pair[0].kind != pair[1].kind) {
        let why = "has nodes with different kinds of GPUs, which Ray's bundles cannot distinguish. Place the plan on \
            nodes of the Ray cluster, use the manifest jobset, or request a plan for one kind of GPU";
        return Err(vec![StageRefusal::of_plan(why)]);
    }
    let takes = if on_cpus > 0 { "CPU" } else { "GPU" };
    let mut files = export.files.clone();
    let mut warnings = if wrapping.is_bound() {
        placed_by_placement(&export.warnings)
    } else {
        placed_by_cluster(&export.warnings, "Ray")
    };
    // Ray starts every rank, and no one reads a list of nodes.
    files.retain(|file| file.name != HOSTFILE);
    warnings.retain(|warning| warning.message != HOSTFILE_WARNING);
    files.push(ExportedFile::new(FILE, script(&export, wrapping, &pods, takes, &program)));
    if on_cpus > 0 {
        let why = "each rank reserves one CPU in Ray, whatever its number of threads";
        warnings.push(WarningCode::ManifestNote.says(why));
    } else if wrapping.is_bound() {
        let why =
            "Ray cannot reserve specific GPUs of a node, so all GPUs of the placement's nodes are reserved";
        warnings.push(WarningCode::ManifestNote.says(why));
    }
    warnings.push(WarningCode::SetupNeeded.says(format!(
        "put your program beside the files: Ray copies the folder to every node, and passes {FILE}'s arguments to the \
         program"
    )));
    let words = ["ray", "job", "submit", "--working-dir=.", "--", "python", FILE];
    let command = words.map(str::to_owned).to_vec();
    Ok(Export { files, command, runs_once: true, environment: Default::default(), warnings, ..export })
}

fn script(export: &Export, wrapping: &Wrapping, pods: &[Pod], takes: &str, program: &[String]) -> String {
    let nodes: Vec<usize> = pods.iter().map(|pod| pod.ranks).collect();
    let placement = if wrapping.is_bound() { bound(&export.ranks, pods) } else { Vec::new() };
    format!(
        r#""""{head}.

Places the plan's ranks on a cluster of Ray and runs the framework's program as each:

    ray job submit --working-dir=. -- python {FILE} ARGUMENTS

ARGUMENTS are the program's own. Each node of the plan is a bundle on a node of its own, each rank an actor with a {takes}.
"""

# Ranks of each node of the plan: they follow each other.
NODES = [{nodes}]
# The resource of which each rank takes one.
RESOURCE = "{takes}"
# The placement: the name or address of each of these nodes, and the GPUs of its ranks in order, as CUDA names them.
PLACEMENT = {placement}
PROGRAM = {program}
ENVIRONMENT = {environment}
{RUNNER}"#,
        head = wrapping.head_line(),
        nodes = listed(&nodes),
        placement = python(&placement),
        program = python(program),
        environment = python(&export.environment),
    )
}

/// Lists and maps of texts, which Python writes as JSON does.
fn python(value: &(impl Serialize + ?Sized)) -> String {
    let mut text = Vec::new();
    let mut spaced = serde_json::Serializer::with_formatter(&mut text, Spaced);
    // What is written has no keys but texts.
    value.serialize(&mut spaced).unwrap_or_default();
    String::from_utf8(text).unwrap_or_default()
}

/// JSON with a space behind each comma and colon.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: io::Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: io::Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.begin_array_value(writer, first)
    }

    fn begin_object_value<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

/// Each node of a placement, with the GPUs of its ranks: UUIDs where all are known, since they stay when drivers number anew, else
/// indices. Slots of a CPU have no such names.
fn bound<'a>(ranks: &'a [RankPlace], pods: &[Pod]) -> Vec<(&'a str, Vec<String>)> {
    let mut devices = ranks.iter().filter_map(|place| place.device.as_ref());
    let of = |pod: &Pod| {
        let of_pod: Vec<_> = devices.by_ref().take(pod.ranks).collect();
        let has_uuids = of_pod.iter().all(|device| !device.uuid.is_empty());
        let word = |device: &&PlacedDevice| match device.kind.as_str() {
            CPU_KIND => None,
            _ if has_uuids => Some(device.uuid.clone()),
            _ => Some(device.index.to_string()),
        };
        (of_pod.first().map_or("", |device| &device.node), of_pod.iter().filter_map(word).collect())
    };
    pods.iter().map(of).collect()
}

/// What places and runs, the same for every plan.
const RUNNER: &str = r#"
import os
import socket
import subprocess
import sys
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote(num_cpus=0, max_restarts=0, max_concurrency=2)
class Rank:
    """A process of the framework's program, on the node and the device that Ray has assigned."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def place(self) -> tuple[str, list[str]]:
        """The node's address, and the GPU where Ray has chosen one."""
        return ray.util.get_node_ip_address(), ray.get_runtime_context().get_accelerator_ids()["GPU"]

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


def is_called(node: dict[str, Any], name: str) -> bool:
    """Returns whether a name is that of a Ray node; only one of the two may contain the domain."""
    host = node["NodeManagerHostname"]
    if name in (host, node["NodeManagerAddress"]):
        return True
    return ("." in host) != ("." in name) and host.partition(".")[0] == name.partition(".")[0]


def bundles() -> list[dict[str, float]]:
    """Returns the resources that each node of the plan reserves: a device per rank, or all GPUs of a placement's node."""
    if not PLACEMENT:
        return [{RESOURCE: ranks} for ranks in NODES]
    there = [node for node in ray.nodes() if node["Alive"]]
    reserved = []
    for (name, gpus), ranks in zip(PLACEMENT, NODES, strict=True):
        node = next((node for node in there if is_called(node, name)), None)
        if node is None:
            hosts = ", ".join(sorted(node["NodeManagerHostname"] + " at " + node["NodeManagerAddress"] for node in there))
            sys.exit(f"the plan is placed on {name}, which is not a node of this Ray cluster. Place it on nodes of {hosts}")
        has = node["Resources"].get(RESOURCE, 0)
        if has < ranks:
            sys.exit(f"{name} has {has:g} {RESOURCE}s in this cluster of Ray, and the plan has {ranks} ranks there: place the plan anew")
        # Ray gives each node a resource with the node's address as its name.
        reserved.append({RESOURCE: has if gpus else ranks, f"node:{node['NodeManagerAddress']}": 0.001})
    return reserved


def group() -> PlacementGroup:
    """A bundle for each node of the plan."""
    wanted = bundles()
    made = placement_group(wanted, strategy="STRICT_SPREAD")
    if not made.wait(10):
        print(f"loadmaster: waiting until Ray has {wanted}, each on a node of its own", file=sys.stderr, flush=True)
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
    """Returns the environment of each rank: it sees all GPUs of its node, and uses the one with its local rank."""
    places = ray.get([actor.place.remote() for actor in actors])
    port = ray.get(actors[0].free_port.remote())
    told, first = [], 0
    for node, count in enumerate(NODES):
        gpus = [gpu for _, of_rank in places[first : first + count] for gpu in of_rank]
        if PLACEMENT:
            gpus = PLACEMENT[node][1]
        for local in range(count):
            told.append(
                ENVIRONMENT
                | {
                    "RANK": str(first + local),
                    "WORLD_SIZE": str(len(actors)),
                    "LOCAL_RANK": str(local),
                    "LOCAL_WORLD_SIZE": str(count),
                    "GROUP_RANK": str(node),
                    "MASTER_ADDR": places[0][0],
                    "MASTER_PORT": str(port),
                    # Indices are those of NVML, and of Ray, which count by bus.
                    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
                    "CUDA_VISIBLE_DEVICES": ",".join(gpus),
                }
            )
        first += count
    return told


def main() -> int:
    """Returns the status of the first rank that fails, which stops all ranks, or 0 if no rank fails."""
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
