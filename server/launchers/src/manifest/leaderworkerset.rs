//! A `LeaderWorkerSet` of one group, whose leader is the first node.
//!
//! Its pods never end: what ends is started anew. So a pod that has trained waits until the set is deleted.

use serde_json::{Value, json};

use super::kubernetes::{Kind, Workload};
use super::parts::{PORT, Template, queued, template};
use super::pods::{Pod, uniform};
use crate::question::Refused;

pub(super) const KIND: Kind = Kind {
    file: "leaderworkerset.yaml",
    rendezvous,
    sets,
    objects,
    ends: false,
    takes_placements: false,
    warnings: &[
        "a LeaderWorkerSet restarts pods that end, so the pods wait after training and keep their GPUs. Delete the \
         LeaderWorkerSet after training",
    ],
};

const REMEDY: &str = "Use the manifest jobset, which allows unequal pods, or request a plan with the same number and \
    kind of devices on every node";

fn rendezvous(_: &Workload<'_>) -> String {
    format!(
        "# The set numbers its pods, and names the first to all.\n\
         export PET_NODE_RANK=\"$LWS_WORKER_INDEX\" PET_MASTER_ADDR=\"$LWS_LEADER_ADDRESS\" PET_MASTER_PORT={PORT}\n"
    )
}

fn sets(pods: &[Pod]) -> Result<Vec<usize>, Refused> {
    Ok(vec![uniform(pods, "a LeaderWorkerSet", REMEDY)?.count])
}

fn objects(workload: &Workload<'_>) -> Result<Vec<Value>, Refused> {
    let run = uniform(&workload.pods, "a LeaderWorkerSet", REMEDY)?;
    let of = Template { container: "train", gpus: run.gpus(), ..Template::default() };
    Ok(vec![json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": queued(workload.wrapping.settings()),
        "spec": {
            "replicas": 1,
            "leaderWorkerTemplate": {
                "size": run.count,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "workerTemplate": template(workload, of),
            },
        },
    })])
}
