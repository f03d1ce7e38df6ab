//! A `PyTorchJob` of Kubeflow's training operator 1: a master, which is the first node, and workers.
//!
//! The operator counts pods as ranks: what it calls `RANK` is the node's number, and `WORLD_SIZE` is no one's here.

use serde_json::{Map, Value, json};

use super::kubernetes::{Kind, Workload};
use super::parts::{Template, queued, template};
use super::pods::{Pod, uniform};
use crate::question::Refused;

pub(super) const KIND: Kind = Kind {
    file: "pytorchjob.yaml",
    rendezvous,
    sets,
    objects,
    ends: true,
    takes_placements: false,
    warnings: &[],
};

const REMEDY: &str = "Use the manifest jobset, which allows unequal pods, or request a plan with the same number and \
    kind of devices on every node";

fn rendezvous(_: &Workload<'_>) -> String {
    "# The operator's ranks are nodes: the master is 0.\n\
     export PET_NODE_RANK=\"$RANK\" PET_MASTER_ADDR=\"$MASTER_ADDR\" PET_MASTER_PORT=\"$MASTER_PORT\"\n\
     unset RANK WORLD_SIZE\n"
        .to_owned()
}

fn sets(pods: &[Pod]) -> Result<Vec<usize>, Refused> {
    let count = uniform(pods, "a PyTorchJob", REMEDY)?.count;
    Ok(if count == 1 { vec![1] } else { vec![1, count - 1] })
}

fn objects(workload: &Workload<'_>) -> Result<Vec<Value>, Refused> {
    let run = uniform(&workload.pods, "a PyTorchJob", REMEDY)?;
    let replicas = |count: usize| {
        // Both names are the operator's.
        let of = Template {
            container: "pytorch",
            gpus: run.gpus(),
            port: Some("pytorchjob-port"),
            ..Template::default()
        };
        json!({ "replicas": count, "restartPolicy": "Never", "template": template(workload, of) })
    };
    let mut specs = Map::from_iter([("Master".to_owned(), replicas(1))]);
    if run.count > 1 {
        specs.insert("Worker".to_owned(), replicas(run.count - 1));
    }
    Ok(vec![json!({
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": queued(workload.wrapping.settings()),
        "spec": {
            "nprocPerNode": run.ranks.to_string(),
            "pytorchReplicaSpecs": specs,
            "runPolicy": { "backoffLimit": 0 },
        },
    })])
}
