//! An indexed `Job` of Kubernetes itself, and the headless service by which its pods find each other.

use serde_json::{Map, Value, json};

use super::kubernetes::{Kind, Workload};
use super::parts::{PORT, Template, metadata, queued, template};
use super::pods::{Pod, uniform};
use crate::question::Refused;

pub(super) const KIND: Kind =
    Kind { file: "job.yaml", rendezvous, sets, objects, ends: true, takes_placements: false, warnings: &[] };

fn rendezvous(workload: &Workload<'_>) -> String {
    let name = workload.name();
    format!(
        "# The Job numbers its pods, and its service names them.\n\
         export PET_NODE_RANK=\"$JOB_COMPLETION_INDEX\" PET_MASTER_ADDR={name}-0.{name} PET_MASTER_PORT={PORT}\n"
    )
}

fn sets(pods: &[Pod]) -> Result<Vec<usize>, Refused> {
    Ok(vec![uniform(pods, "a Job", REMEDY)?.count])
}

/// What to do about unequal nodes.
const REMEDY: &str = "Use the manifest jobset, which allows unequal pods, or request a plan with the same number and \
    kind of devices on every node";

fn objects(workload: &Workload<'_>) -> Result<Vec<Value>, Refused> {
    let run = uniform(&workload.pods, "a Job", REMEDY)?;
    let settings = workload.wrapping.settings();
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(settings),
        "spec": {
            "clusterIP": "None",
            // The first pod must be found before it is ready: the others wait for it, and it for them.
            "publishNotReadyAddresses": true,
            "selector": { "batch.kubernetes.io/job-name": workload.name() },
        },
    });
    let pod = Map::from_iter([("subdomain".to_owned(), json!(workload.name()))]);
    let job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": queued(settings),
        "spec": spec(workload, run.count, Template { container: "train", gpus: run.gpus(), pod, ..Template::default() }),
    });
    Ok(vec![service, job])
}

/// An indexed job of so many pods, which ends with the first that fails: the others would wait for it.
pub(super) fn spec(workload: &Workload<'_>, count: usize, mut of: Template<'_>) -> Value {
    of.pod.insert("restartPolicy".to_owned(), json!("Never"));
    json!({
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": count,
        "backoffLimit": 0,
        "template": template(workload, of),
    })
}
