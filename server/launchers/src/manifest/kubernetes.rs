//! What all manifests of Kubernetes do: pods of a plan, a script that starts the framework in each, and a manifest of it all.

use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::warning::{Warning, WarningCode};
use serde_json::Value;

use super::parts::{self, config_map};
use super::pods::{Pod, pods};
use super::settings::Wrapping;
use super::topology::{Annotations, annotations};
use super::{names, products, start};
use crate::StageRefusal;
use crate::export_parts::{Export, ExportedFile};
use crate::local_order::placed_by_cluster;
use crate::question::{Refused, all_or};

/// Most bytes of a `ConfigMap`'s data: the API takes objects of 1 MiB, of which its metadata needs some.
const MAX_FILES: usize = 1_000_000;
/// What applies objects of more than 256 KiB, too: without it kubectl keeps a copy of them in an annotation, which holds no more.
const SERVER_SIDE: &str = "--server-side";
/// Most sets of pods that every release of Kueue admits together.
const USUAL_SETS: usize = 8;
/// Most that the newest does (`MaxPodSets`).
const MAX_SETS: usize = 18;
/// The label of a node that names it.
pub(super) const HOST: &str = "kubernetes.io/hostname";
/// Most bytes of any object: those that store them (etcd) take 1.5 MiB, of which controllers need some for what becomes of it.
const MAX_OBJECT: usize = 1_200_000;

/// A kind of object that runs pods.
pub(super) struct Kind {
    /// The file that it is written to.
    pub(super) file: &'static str,
    /// Lines of the start script that say which node a pod is and where the first one listens.
    pub(super) rendezvous: fn(&Workload<'_>) -> String,
    /// Pods of each of its templates.
    ///
    /// # Errors
    /// It has no such pods.
    pub(super) sets: fn(&[Pod]) -> Result<Vec<usize>, Refused>,
    /// The objects besides the `ConfigMap`.
    ///
    /// # Errors
    /// It cannot hold the plan.
    pub(super) objects: fn(&Workload<'_>) -> Result<Vec<Value>, Refused>,
    /// Whether pods may end; else those that do are started anew.
    pub(super) ends: bool,
    /// Whether it can say of each pod on which node it must be.
    pub(super) takes_placements: bool,
    /// Warnings of its own.
    pub(super) warnings: &'static [&'static str],
}

/// What runs.
pub(super) struct Workload<'a> {
    pub(super) wrapping: &'a Wrapping,
    pub(super) export: &'a Export,
    pub(super) pods: Vec<Pod>,
    pub(super) annotations: Annotations,
}

impl Workload<'_> {
    /// What the objects are called.
    pub(super) fn name(&self) -> &str {
        &self.wrapping.settings().name
    }

    /// Whether pods have unequal numbers of ranks, so that each set of them is given its own.
    pub(super) fn is_unequal(&self) -> bool {
        self.pods.windows(2).any(|pair| pair[0].ranks != pair[1].ranks)
    }
}

/// Puts an export into pods.
///
/// # Errors
/// The kind cannot hold the plan, or its pods cannot start the framework.
pub(super) fn wrap(export: Export, wrapping: &Wrapping, kind: &Kind) -> Result<Export, Refused> {
    let pods = pods(&export.ranks, wrapping.is_bound())?;
    check_hosts(&pods, kind)?;
    let sets = (kind.sets)(&pods)?;
    if !wrapping.settings().queue.is_empty() && sets.len() > MAX_SETS {
        let why = format!(
            "needs {} pod sets, but Kueue admits at most {MAX_SETS} per workload. Remove the queue, or {}",
            sets.len(),
            fewer_sets(wrapping)
        );
        return Err(vec![StageRefusal::of_plan(why)]);
    }
    let (annotations, warning) = annotations(wrapping.settings(), &pods, &sets)?;
    let workload = Workload { wrapping, export: &export, pods, annotations };
    let mut files = export.files.clone();
    files.push(start::file(&workload, &(kind.rendezvous)(&workload), kind.ends));
    let bytes: usize = files.iter().map(|file| file.name.len() + file.contents.len()).sum();
    if bytes > MAX_FILES {
        let why = format!(
            "has {bytes} bytes of files, but a ConfigMap holds {MAX_FILES}. Put the files into the image and use the \
             manifest torchrun"
        );
        return Err(vec![StageRefusal::of_plan(why)]);
    }
    let mut objects = vec![config_map(wrapping.settings(), &files)];
    let described = (kind.objects)(&workload)?;
    if let Some(bytes) = described.iter().map(|of| of.to_string().len()).find(|&bytes| bytes > MAX_OBJECT) {
        let why = format!(
            "needs a manifest of {bytes} bytes for its pod sets, but Kubernetes objects have at most {MAX_OBJECT}: {}",
            fewer_sets(wrapping)
        );
        return Err(vec![StageRefusal::of_plan(why)]);
    }
    objects.extend(described);
    let file = ExportedFile::new(kind.file, parts::text(&wrapping.head_line(), &objects));
    let mut warnings = placed_by_cluster(&export.warnings, "Kubernetes");
    warnings.extend(kind.warnings.iter().map(|&warning| WarningCode::ManifestNote.says(warning)));
    warnings.extend(warning.map(|why| WarningCode::ManifestNote.says(why)));
    if wrapping.is_bound() {
        let waits = if workload.pods.iter().all(|pod| pod.kind == CPU_KIND) {
            ""
        } else {
            ", and waits for its GPUs"
        };
        warnings.push(WarningCode::ManifestNote.says(format!(
            "each pod runs only on the node that `placement` assigns to its ranks, selected by the label {HOST}{waits}"
        )));
    }
    if !wrapping.settings().queue.is_empty() && sets.len() > USUAL_SETS {
        warnings.push(WarningCode::ManifestNote.says(format!(
            "this workload has {} pod sets. Kueue admits at most {USUAL_SETS}, or {MAX_SETS} in newer releases: use a \
             newer release if Kueue rejects the workload",
            sets.len()
        )));
    }
    if wrapping.settings().queue.is_empty() && !workload.annotations.is_empty() {
        let why = "only Kueue reads topology levels, but `queue` is not set. Topology levels have no effect unless the \
            namespace has a default queue";
        warnings.push(WarningCode::ManifestNote.says(why));
    }
    warnings.extend(devices(&workload)?);
    warnings.push(WarningCode::ManifestNote.says(
        "the program runs in the image's working folder, which must be writable: the plan's files are copied into it",
    ));
    let command = ["kubectl", "apply", SERVER_SIDE, "-f", kind.file].map(str::to_owned).to_vec();
    Ok(Export {
        files: vec![file],
        command,
        runs_once: true,
        environment: Default::default(),
        warnings,
        ..export
    })
}

/// What makes sets of pods fewer.
fn fewer_sets(wrapping: &Wrapping) -> &'static str {
    if wrapping.is_bound() {
        "export the plan without `placement`"
    } else {
        "request a plan with the same number and kind of devices on every node"
    }
}

/// # Errors
/// Pods must be on nodes of a placement, and what runs them cannot be told so, or there can be no such node.
fn check_hosts(pods: &[Pod], kind: &Kind) -> Result<(), Refused> {
    if !kind.takes_placements && pods.iter().any(|pod| pod.host.is_some()) {
        let why = "is exported for the nodes of `placement`, but all pods of this manifest come from one template, \
            which cannot select a node for each pod. Use the manifest jobset, or export the plan without `placement`";
        return Err(vec![StageRefusal::of_plan(why)]);
    }
    let mut refused = Vec::new();
    for pod in pods {
        let Some(host) = pod.host.as_deref().filter(|host| !names::is_host(host)) else { continue };
        for &stage in &pod.stages {
            let why = format!(
                "has the node {host:?}, which is not a valid name of a Kubernetes node. Place the plan on nodes of the \
                 Kubernetes cluster"
            );
            refused.push(StageRefusal::of_stage(stage, why));
        }
    }
    all_or(refused)
}

/// Which devices the plan counts on: a request names the number of GPUs alone.
///
/// # Errors
/// Of several kinds, some cannot be told apart.
fn devices(workload: &Workload<'_>) -> Result<Option<Warning>, Refused> {
    let is_bound = workload.wrapping.is_bound();
    let mut kinds: Vec<&str> = workload.pods.iter().map(|pod| pod.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let why = match kinds[..] {
        [CPU_KIND] => Some(
            "the plan is for CPUs, but the pods request neither cores nor memory. Add the requests of each pod to the \
             manifest".to_owned(),
        ),
        [kind] if !kind.is_empty() && !is_bound => Some(format!(
            "the plan is for GPUs of kind {kind:?}, but the pods request GPUs of any kind. Use a queue or a namespace that \
             has only this kind"
        )),
        [_] => None,
        _ if is_bound => None,
        _ => products::warning(&products::products(&workload.pods)?),
    };
    Ok(why.map(|why| WarningCode::ManifestNote.says(why)))
}
