//! What all envelopes of Kubernetes do: pods of a plan, a script that starts the launcher in each, and a manifest of it all.

use loadmaster_proto::cluster::device::CPU_KIND;
use serde_json::Value;

use super::manifest::{self, config_map};
use super::pods::{Pod, pods};
use super::products;
use super::settings::Wrapping;
use super::start;
use super::topology::{Annotations, annotations};
use crate::exported::{Export, ExportedFile};
use crate::local_order::placed_by_cluster;
use crate::question::Refused;
use crate::refusal::StageRefusal;

/// Most bytes of a `ConfigMap`'s data: the API takes objects of 1 MiB, of which its metadata needs some.
const MAX_FILES: usize = 1_000_000;

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

    /// Whether pods have unequal numbers of ranks, so that each set of them is told its own.
    pub(super) fn is_unequal(&self) -> bool {
        self.pods.windows(2).any(|pair| pair[0].ranks != pair[1].ranks)
    }
}

/// Puts an export into pods.
///
/// # Errors
/// The kind cannot hold the plan, or its pods cannot start the launcher.
pub(super) fn wrap(export: Export, wrapping: &Wrapping, kind: &Kind) -> Result<Export, Refused> {
    let pods = pods(&export.ranks)?;
    let sets = (kind.sets)(&pods)?;
    let (annotations, warning) = annotations(wrapping.settings(), &pods, &sets)?;
    let workload = Workload { wrapping, export: &export, pods, annotations };
    let mut files = export.files.clone();
    files.push(start::file(&workload, &(kind.rendezvous)(&workload), kind.ends)?);
    let bytes: usize = files.iter().map(|file| file.name.len() + file.contents.len()).sum();
    if bytes > MAX_FILES {
        let why = format!(
            "has {bytes} bytes of files, and a ConfigMap holds {MAX_FILES}: put them into the image and start it with the envelope torchrun"
        );
        return Err(vec![StageRefusal::of_plan(why)]);
    }
    let mut objects = vec![config_map(wrapping.settings(), &files)];
    objects.extend((kind.objects)(&workload)?);
    let file = ExportedFile::new(kind.file, manifest::text(&wrapping.head_line(), &objects));
    let mut warnings = placed_by_cluster(&export.warnings, "Kubernetes");
    warnings.extend(kind.warnings.iter().map(|&warning| warning.to_owned()));
    warnings.extend(warning);
    warnings.extend(devices(&workload)?);
    warnings.push(
        "the image's working folder is the program's, and must be writable: the plan's files are copied into it".to_owned(),
    );
    let command = ["kubectl", "apply", "-f", kind.file].map(str::to_owned).to_vec();
    Ok(Export {
        files: vec![file],
        command,
        runs_once: true,
        environment: Default::default(),
        warnings,
        ..export
    })
}

/// Which devices the plan counts on: a request names the number of GPUs alone.
///
/// # Errors
/// Of several kinds, some cannot be told apart.
fn devices(workload: &Workload<'_>) -> Result<Option<String>, Refused> {
    let mut kinds: Vec<&str> = workload.pods.iter().map(|pod| pod.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    Ok(match kinds[..] {
        [CPU_KIND] => Some(
            "the plan is for CPUs, and pods ask for no cores and no memory: say in the manifest what each needs".to_owned(),
        ),
        [kind] if !kind.is_empty() => Some(format!(
            "the plan is for GPUs called {kind:?}, and pods ask for GPUs of any kind: name a queue or a namespace that has such alone"
        )),
        [_] => None,
        _ => products::warning(&products::products(&workload.pods)?),
    })
}
