//! A question about a scene, as a file that can be asked again, and smaller ones of the same failure.

use std::path::Path;

use anyhow::{Context, Result};
use loadmaster_oracle::Objective;
use serde::{Deserialize, Serialize};

use crate::certificates::check::{Class, Finding};
use crate::certificates::draw_question::Topic;
use crate::certificates::question::Question;
use crate::certificates::scene::{Fleet, Scene};
use crate::output::{word, write_json};

/// One question about one scene.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Instance {
    pub(crate) topic: Topic,
    pub(crate) scene: Scene,
    pub(crate) question: Question,
    /// The same devices with other models, where the largest one is asked for.
    #[serde(default)]
    pub(crate) rivals: Vec<Scene>,
    /// What was wrong with its answer.
    #[serde(default)]
    pub(crate) wrong: Vec<(Class, String)>,
}

impl Instance {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is no instance", path.display()))
    }

    /// Writes it.
    pub(crate) fn write(&self, folder: &Path, class: Class, findings: &[Finding]) -> Result<()> {
        let wrong = findings.iter().map(|finding| (finding.class, finding.what.clone())).collect();
        let whole = Self { wrong, ..self.clone() };
        write_json(&folder.join(format!("{}-{}.json", word(&class), self.scene.id)), &whole)
    }
}

/// Instances that are a little smaller, those that leave out most first.
pub(crate) fn smaller(instance: &Instance) -> Vec<Instance> {
    let mut all = Vec::new();
    let Instance { question, scene, .. } = instance;
    let plain = Question::plain(question.objective);
    let mut ask = |change: &dyn Fn(&mut Question)| {
        let mut other = question.clone();
        change(&mut other);
        if serde_json::to_value(&other).ok() != serde_json::to_value(question).ok() {
            all.push(Instance { question: other, ..instance.clone() });
        }
    };
    ask(&|question| question.keep_together.clear());
    ask(&|question| question.cut_after.clear());
    ask(&|question| (question.min_stages, question.max_stages) = (None, None));
    ask(&|question| question.data_degrees.clear());
    ask(&|question| question.pins.truncate(question.pins.len().saturating_sub(1)));
    ask(&|question| question.excluded.clear());
    ask(&|question| question.framework = None);
    ask(&|question| question.unit = None);
    ask(&|question| question.margin = 0.0);
    ask(&|question| question.max_peak = None);
    ask(&|question| question.merge_to = None);
    ask(&|question| question.alternatives = plain.alternatives);
    ask(&|question| question.is_brief = true);
    ask(&|question| question.search_seconds = None);
    ask(&|question| question.may_idle = false);
    ask(&|question| question.spanning = None);
    ask(&|question| question.transfers = None);
    ask(&|question| question.policy_per_stage = false);
    ask(&|question| question.shardings.clear());
    ask(&|question| question.policies.truncate(1));
    ask(&|question| question.schedules.truncate(1));
    ask(&|question| question.policies.clear());
    ask(&|question| question.schedules.clear());
    for index in 0..question.sizes.len() {
        ask(&|question| {
            if question.sizes.len() > 1 {
                question.sizes.remove(index);
            }
        });
    }
    if question.tensor_degrees.len() > 1 {
        ask(&|question| question.tensor_degrees.truncate(1));
    }
    for layer in (0..scene.layers()).rev() {
        all.extend(without_layer(instance, layer));
    }
    match &scene.fleet {
        Fleet::Groups(groups) => {
            for group in 0..groups.len() {
                let mut other = instance.clone();
                let Fleet::Groups(groups) = &mut other.scene.fleet else { continue };
                groups[group].count -= 1;
                groups.retain(|group| group.count > 0);
                // Pins name positions, and positions move.
                if !groups.is_empty() && question.pins.is_empty() {
                    all.push(other);
                }
            }
        }
        Fleet::Cluster(cluster) => {
            for node in 0..cluster.nodes.len() {
                let mut other = instance.clone();
                let Fleet::Cluster(cluster) = &mut other.scene.fleet else { continue };
                let name = cluster.nodes[node].name.clone();
                cluster.nodes[node].devices -= 1;
                let gone = format!("{name}/{}", cluster.nodes[node].devices);
                let names = |device: &String| {
                    *device == gone || device.starts_with(&format!("{name}/")) || *device == name
                };
                let is_named = question.pins.iter().any(|(_, device)| names(device))
                    || question.excluded.iter().any(names);
                cluster.nodes.retain(|node| node.devices > 0);
                if !cluster.nodes.is_empty() && cluster.nodes.iter().any(|node| node.kind == 0) && !is_named {
                    all.push(other);
                }
            }
            if cluster.nodes.iter().any(|node| !node.pairs.is_empty()) {
                let mut other = instance.clone();
                if let Fleet::Cluster(cluster) = &mut other.scene.fleet {
                    cluster.nodes.iter_mut().for_each(|node| node.pairs.clear());
                }
                all.push(other);
            }
            if cluster.tiers.is_some() {
                let mut other = instance.clone();
                if let Fleet::Cluster(cluster) = &mut other.scene.fleet {
                    cluster.tiers = None;
                }
                all.push(other);
            }
        }
    }
    if question.objective != Objective::MinPeakMemory {
        all.extend(fewer_passes(instance));
    }
    all
}

/// The same without one layer; none where the question names layers.
fn without_layer(instance: &Instance, layer: usize) -> Option<Instance> {
    let question = &instance.question;
    let names_layers = !question.pins.is_empty()
        || !question.keep_together.is_empty()
        || !question.cut_after.is_empty()
        || question.merge_to.is_some()
        || question.min_stages.is_some()
        || question.max_stages.is_some();
    if names_layers || instance.scene.layers() < 2 {
        return None;
    }
    let mut other = instance.clone();
    for kind in &mut other.scene.kinds {
        kind.layers.remove(layer);
    }
    Some(other)
}

/// Half of the passes of an iteration.
fn fewer_passes(instance: &Instance) -> Option<Instance> {
    let question = &instance.question;
    let is_free =
        question.global_batch.is_none() && question.micro_batches.is_none() && question.sizes.is_empty();
    let count = instance.scene.training.micro_batches;
    if !is_free || count < 2 {
        return None;
    }
    let mut other = instance.clone();
    other.scene.training.micro_batches = count / 2;
    Some(other)
}
