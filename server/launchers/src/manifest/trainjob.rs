//! A `TrainJob` of Kubeflow Trainer 2, of its runtime `torch-distributed`.
//!
//! The runtime's plugin sets `PET_NNODES`, `PET_NPROC_PER_NODE`, `PET_NODE_RANK`, `PET_MASTER_ADDR` and `PET_MASTER_PORT`, and
//! refuses a `TrainJob` that does. Volumes are patches of the runtime's pods, under a manager's name of our own.

use serde_json::{Map, Value, json};

use super::kubernetes::{Kind, Workload};
use super::parts::{command, mounts, queued, resources, volumes};
use super::pods::{Pod, uniform};
use crate::question::Refused;

pub(super) const KIND: Kind = Kind {
    file: "trainjob.yaml",
    rendezvous,
    sets,
    objects,
    ends: true,
    takes_placements: false,
    warnings: &["the cluster needs Kubeflow Trainer's ClusterTrainingRuntime torch-distributed"],
};

/// The container and the replicated job that the runtime calls so.
const NODE: &str = "node";
const REMEDY: &str = "Use the manifest jobset, which allows unequal pods, or request a plan with the same number and \
    kind of devices on every node";

fn rendezvous(workload: &Workload<'_>) -> String {
    if workload.pods.len() == 1 {
        String::new()
    } else {
        "# The runtime sets PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT.\n".to_owned()
    }
}

fn sets(pods: &[Pod]) -> Result<Vec<usize>, Refused> {
    Ok(vec![uniform(pods, "a TrainJob", REMEDY)?.count])
}

fn objects(workload: &Workload<'_>) -> Result<Vec<Value>, Refused> {
    let run = uniform(&workload.pods, "a TrainJob", REMEDY)?;
    let settings = workload.wrapping.settings();
    let mut trainer = json!({
        "command": command(),
        "args": [],
        "numNodes": run.count,
        "numProcPerNode": run.ranks,
    });
    if let Some(resources) = resources(run.gpus()) {
        trainer["resourcesPerNode"] = resources;
    }
    if !settings.image.is_empty() {
        trainer["image"] = json!(settings.image);
    }
    let variables: Vec<Value> = workload
        .export
        .environment
        .iter()
        .map(|(name, value)| json!({ "name": name, "value": value }))
        .collect();
    if !variables.is_empty() {
        trainer["env"] = json!(variables);
    }
    let mut pod = Map::from_iter([(
        "spec".to_owned(),
        json!({
            "containers": [{ "name": NODE, "volumeMounts": mounts() }],
            "volumes": volumes(workload.name()),
        }),
    )]);
    if !workload.annotations.is_empty() {
        pod.insert("metadata".to_owned(), json!({ "annotations": workload.annotations }));
    }
    let jobs = json!([{ "name": NODE, "template": { "spec": { "template": pod } } }]);
    let patch = json!({
        "manager": "loadmaster.dev/export",
        "trainingRuntimeSpec": { "template": { "spec": { "replicatedJobs": jobs } } },
    });
    Ok(vec![json!({
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": queued(settings),
        "spec": { "runtimeRef": { "name": "torch-distributed" }, "runtimePatches": [patch], "trainer": trainer },
    })])
}
