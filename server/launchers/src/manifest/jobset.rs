//! A `JobSet`: a replicated job for each run of equal nodes, so unequal ones need not be refused. Of a bound plan each node has a job
//! of its own, which runs there and nowhere else.

use serde_json::{Map, Value, json};

use super::job;
use super::kubernetes::{HOST, Kind, Workload};
use super::parts::{PORT, Template, queued};
use super::pods::{Pod, PodRun, runs};
use super::products::{PRODUCT, products};
use crate::StageRefusal;
use crate::question::Refused;

pub(super) const KIND: Kind = Kind {
    file: "jobset.yaml",
    rendezvous,
    sets,
    objects,
    ends: true,
    takes_placements: true,
    warnings: &[],
};

/// Most replicated jobs: their names must stay short.
const MAX_RUNS: usize = 1_000;
/// What nodes are given where there are several runs of them: how many are before theirs.
const FIRST_NODE: &str = "LOADMASTER_FIRST_NODE";

fn rendezvous(workload: &Workload<'_>) -> String {
    let (runs, name) = (runs(&workload.pods), workload.name());
    let (about, node) = if runs.len() == 1 {
        ("its pods", "\"$JOB_COMPLETION_INDEX\"".to_owned())
    } else {
        ("the pods of each of its jobs", format!("\"$(({FIRST_NODE} + JOB_COMPLETION_INDEX))\""))
    };
    format!(
        "# The JobSet numbers {about}, and its service names them.\n\
         export PET_NODE_RANK={node} PET_MASTER_ADDR={name}-{}-0-0.{name} PET_MASTER_PORT={PORT}\n",
        called(&runs, 0),
    )
}

/// What a run's replicated job is called.
fn called(runs: &[PodRun], at: usize) -> String {
    if runs.len() == 1 { "node".to_owned() } else { format!("node-{at}") }
}

fn sets(pods: &[Pod]) -> Result<Vec<usize>, Refused> {
    let runs = runs(pods);
    if runs.len() > MAX_RUNS {
        let remedy = if pods.iter().any(|pod| pod.host.is_some()) {
            "Export the plan without `placement`"
        } else {
            "Request a plan with fewer groups: in the order of ranks, nodes with equal devices must follow each other"
        };
        let why = format!(
            "needs a job for each of {} groups of equal consecutive nodes, but a JobSet has at most {MAX_RUNS} jobs. \
             {remedy}",
            runs.len()
        );
        return Err(vec![StageRefusal::of_plan(why)]);
    }
    Ok(runs.iter().map(|run| run.count).collect())
}

fn objects(workload: &Workload<'_>) -> Result<Vec<Value>, Refused> {
    let runs = runs(&workload.pods);
    let has_kinds = workload.pods.windows(2).any(|pair| pair[0].kind != pair[1].kind);
    let is_bound = workload.wrapping.is_bound();
    // Nodes that are named have the GPUs that they have.
    let products = if has_kinds && !is_bound { products(&workload.pods)? } else { Default::default() };
    let mut jobs = Vec::new();
    for (at, run) in runs.iter().enumerate() {
        let mut of = Template { container: "train", gpus: run.gpus(), ..Template::default() };
        if runs.len() > 1 {
            of.variables.push((FIRST_NODE, run.first.to_string()));
            of.variables.push(("PET_NPROC_PER_NODE", run.ranks.to_string()));
        }
        if let Some(host) = &run.host {
            of.pod = selector(HOST, host);
        } else if let Some(product) = products.get(run.kind.as_str()) {
            of.pod = selector(PRODUCT, product);
        }
        jobs.push(json!({
            "name": called(&runs, at),
            "replicas": 1,
            "template": { "spec": job::spec(workload, run.count, of) },
        }));
    }
    let network =
        json!({ "enableDNSHostnames": true, "publishNotReadyAddresses": true, "subdomain": workload.name() });
    Ok(vec![json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": queued(workload.wrapping.settings()),
        "spec": { "network": network, "replicatedJobs": jobs },
    })])
}

/// Nodes that have a label.
fn selector(label: &str, value: &str) -> Map<String, Value> {
    Map::from_iter([("nodeSelector".to_owned(), json!({ label: value }))])
}
