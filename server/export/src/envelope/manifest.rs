//! Parts of manifests that all kinds have.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::kubernetes::Workload;
use super::settings::EnvelopeSettings;
use super::topology::QUEUE;
use crate::exported::ExportedFile;

/// Where the plan's files are in a pod.
pub(super) const FILES: &str = "/etc/loadmaster";
/// What a pod runs, of those files.
pub(super) const START: &str = "loadmaster.sh";
/// Where the first pod listens, unless an operator says otherwise.
pub(super) const PORT: u16 = 29_500;

/// Objects as one file of YAML.
pub(super) fn text(head: &str, objects: &[Value]) -> String {
    let mut text = format!("# {head}\n");
    for object in objects {
        text.push_str("---\n");
        // Texts, numbers and lists of them: that they are YAML does not fail.
        text.push_str(&serde_yaml_ng::to_string(object).unwrap_or_default());
    }
    text
}

/// The files of a plan, which every pod mounts.
pub(super) fn config_map(settings: &EnvelopeSettings, files: &[ExportedFile]) -> Value {
    let data: BTreeMap<&str, &str> =
        files.iter().map(|file| (file.name.as_str(), file.contents.as_str())).collect();
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(settings), "data": data })
}

/// Name and namespace.
pub(super) fn metadata(settings: &EnvelopeSettings) -> Value {
    let mut metadata = Map::from_iter([("name".to_owned(), json!(settings.name))]);
    if !settings.namespace.is_empty() {
        metadata.insert("namespace".to_owned(), json!(settings.namespace));
    }
    Value::Object(metadata)
}

/// [`metadata`] of what Kueue admits.
pub(super) fn queued(settings: &EnvelopeSettings) -> Value {
    let mut metadata = metadata(settings);
    if !settings.queue.is_empty() {
        metadata["labels"] = json!({ QUEUE: settings.queue });
    }
    metadata
}

/// What differs between templates of pods.
#[derive(Default)]
pub(super) struct Template<'a> {
    /// What the container is called, where its controller looks for a name.
    pub(super) container: &'a str,
    /// GPUs of each pod; none where its ranks are on CPUs.
    pub(super) gpus: usize,
    /// More variables than the launcher's.
    pub(super) variables: Vec<(&'a str, String)>,
    /// A port that must have a name.
    pub(super) port: Option<&'a str>,
    /// What more a pod has.
    pub(super) pod: Map<String, Value>,
}

/// A template of pods that start the launcher.
pub(super) fn template(workload: &Workload<'_>, of: Template<'_>) -> Value {
    let mut container = json!({
        "name": of.container,
        "image": workload.wrapping.settings().image,
        "command": command(),
        // What is written behind the plan's own arguments.
        "args": [],
        "volumeMounts": mounts(),
    });
    if let Some(resources) = resources(of.gpus) {
        container["resources"] = resources;
    }
    let launcher = workload.export.environment.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let variables: Vec<Value> =
        launcher.chain(of.variables).map(|(name, value)| json!({ "name": name, "value": value })).collect();
    if !variables.is_empty() {
        container["env"] = json!(variables);
    }
    if let Some(port) = of.port {
        container["ports"] = json!([{ "name": port, "containerPort": PORT }]);
    }
    let mut spec = of.pod;
    spec.insert("containers".to_owned(), json!([container]));
    spec.insert("volumes".to_owned(), volumes(workload.name()));
    let mut template = json!({ "spec": spec });
    if !workload.annotations.is_empty() {
        template["metadata"] = json!({ "annotations": workload.annotations });
    }
    template
}

/// What a pod runs.
pub(super) fn command() -> Value {
    json!(["bash", format!("{FILES}/{START}")])
}

/// What a pod asks for: GPUs cannot be shared out, so the limit is the request. None where it needs no GPU.
pub(super) fn resources(gpus: usize) -> Option<Value> {
    (gpus > 0).then(|| json!({ "limits": { "nvidia.com/gpu": gpus } }))
}

/// The plan's files, and memory that processes of a pod share: NCCL and data loaders need more than the 64 MiB that pods have.
pub(super) fn volumes(config_map: &str) -> Value {
    json!([
        { "name": "loadmaster", "configMap": { "name": config_map } },
        { "name": "shared-memory", "emptyDir": { "medium": "Memory" } },
    ])
}

/// Where those are in the container.
pub(super) fn mounts() -> Value {
    json!([
        { "name": "loadmaster", "mountPath": FILES, "readOnly": true },
        { "name": "shared-memory", "mountPath": "/dev/shm" },
    ])
}
