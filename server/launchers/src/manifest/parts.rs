//! Parts of manifests that all kinds have.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::kubernetes::Workload;
use super::settings::ManifestSettings;
use super::topology::QUEUE;
use crate::export_parts::ExportedFile;

/// Where the plan's files are in a pod.
pub(super) const FILES: &str = "/etc/loadmaster";
/// What a pod runs, of those files.
pub(super) const START: &str = "loadmaster.sh";
/// Where the first pod listens, unless an operator says otherwise.
pub(super) const PORT: u16 = 29_500;

/// Objects as one file of YAML.
pub(super) fn text(head: &str, objects: &[Value]) -> String {
    let mut text = format!("# {head}\n");
    let mut quoted = BTreeSet::new();
    for object in objects {
        let mut object = object.clone();
        mark(&mut object, &mut quoted);
        text.push_str("---\n");
        // Texts, numbers and lists of them: that they are YAML does not fail.
        text.push_str(&serde_yaml_ng::to_string(&object).unwrap_or_default());
    }
    for word in quoted {
        text = text.replace(&marked(&word), &format!("\"{word}\""));
    }
    text
}

/// Marks texts that the writer leaves bare, as YAML 1.2 lets it, and that readers of YAML 1.1, such as kubectl, take for truth values
/// or numbers.
fn mark(value: &mut Value, quoted: &mut BTreeSet<String>) {
    match value {
        Value::String(text) if is_ambiguous(text) => {
            quoted.insert(text.clone());
            *text = marked(text);
        }
        Value::Array(values) => values.iter_mut().for_each(|value| mark(value, quoted)),
        Value::Object(values) => values.values_mut().for_each(|value| mark(value, quoted)),
        _ => {}
    }
}

/// No name or image has these brackets, which are no part of ASCII.
fn marked(word: &str) -> String {
    format!("⟦{word}⟧")
}

fn is_ambiguous(text: &str) -> bool {
    let is_truth = ["y", "n", "yes", "no", "on", "off"].iter().any(|word| text.eq_ignore_ascii_case(word));
    // `1_000` is a thousand there, and `1:30` ninety.
    let is_number = text.starts_with(|c: char| c.is_ascii_digit())
        && text.contains(['_', ':'])
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_:.".contains(c));
    is_truth || is_number
}

/// The files of a plan, which every pod mounts.
pub(super) fn config_map(settings: &ManifestSettings, files: &[ExportedFile]) -> Value {
    let data: BTreeMap<&str, &str> =
        files.iter().map(|file| (file.name.as_str(), file.contents.as_str())).collect();
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(settings), "data": data })
}

/// Name and namespace.
pub(super) fn metadata(settings: &ManifestSettings) -> Value {
    let mut metadata = Map::from_iter([("name".to_owned(), json!(settings.name))]);
    if !settings.namespace.is_empty() {
        metadata.insert("namespace".to_owned(), json!(settings.namespace));
    }
    Value::Object(metadata)
}

/// [`metadata`] of what Kueue admits.
pub(super) fn queued(settings: &ManifestSettings) -> Value {
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
    /// More variables than the framework's.
    pub(super) variables: Vec<(&'a str, String)>,
    /// A port that must have a name.
    pub(super) port: Option<&'a str>,
    /// What more a pod has.
    pub(super) pod: Map<String, Value>,
}

/// A template of pods that start the framework.
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
    let framework = workload.export.environment.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let variables: Vec<Value> =
        framework.chain(of.variables).map(|(name, value)| json!({ "name": name, "value": value })).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_texts_for_readers_of_yaml_1_1() {
        let words = [
            "y", "n", "yes", "No", "on", "OFF", "1_000", "1:30", "true", "null", "12", "1e3", "0x1f", "0b1",
            "~",
        ];
        for word in words {
            let object =
                json!({ "metadata": { "name": word }, "args": [word], "script": format!("is: {word}\n") });
            let text = text("head", std::slice::from_ref(&object));
            let line = text.lines().find(|line| line.contains("name:")).unwrap();
            let value = line.trim().trim_start_matches("name:").trim();
            assert!(value.starts_with(['"', '\'']), "{text}");
            assert!(text.contains(&format!("\n  is: {word}\n")), "what is within texts stays: {text}");
            assert_eq!(serde_yaml_ng::from_str::<Value>(&text).unwrap(), object, "{text}");
        }
        // Others are bare, as people write them.
        assert!(text("head", &[json!({ "name": "yes-1" })]).contains("name: yes-1\n"));
    }
}
