//! Where Kueue is to put pods, as annotations of their templates.
//!
//! Kueue keeps pods of neighbouring indexes near each other, so the order of the pods is the plan's placement. The rules that
//! annotations must follow are those of Kueue's webhook (`ValidateTASPodSetRequest`, `ValidatePodSetGroupingTopology`).

use std::collections::BTreeMap;

use super::pods::{Pod, pods_of_each_stage};
use super::settings::ManifestSettings;
use crate::StageRefusal;
use crate::question::Refused;

/// The label that names the queue.
pub(super) const QUEUE: &str = "kueue.x-k8s.io/queue-name";

const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";
const GROUP: &str = "kueue.x-k8s.io/podset-group-name";
const SLICE_LEVEL: &str = "kueue.x-k8s.io/podset-slice-required-topology";
const SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";

pub(super) type Annotations = BTreeMap<&'static str, String>;

/// The annotations of every pod, and what is to be known of them. `sets` are the pods of each template.
///
/// # Errors
/// Kueue cannot be told so: it places each set of pods for itself, but for a single pod beside another set.
pub(super) fn annotations(
    settings: &ManifestSettings,
    pods: &[Pod],
    sets: &[usize],
) -> Result<(Annotations, Option<String>), Refused> {
    let ManifestSettings { required_topology, preferred_topology, stage_topology, .. } = settings;
    let mut annotations = Annotations::new();
    let mut warning = None;
    for (name, level) in [(REQUIRED, required_topology), (PREFERRED, preferred_topology)] {
        if !level.is_empty() {
            annotations.insert(name, level.clone());
        }
    }
    let is_pair = matches!(sets, [1, _] | [_, 1]);
    if !stage_topology.is_empty() {
        let size = pods_of_each_stage(pods)?;
        if sets.len() > 1 {
            let why = "needs several pod sets, but `stage_topology` is possible only within one pod set. Remove \
                `stage_topology`, or use a manifest with one pod set";
            return Err(vec![StageRefusal::of_plan(why)]);
        }
        annotations.insert(SLICE_LEVEL, stage_topology.clone());
        annotations.insert(SLICE_SIZE, size.to_string());
    } else if sets.len() > 1 && !annotations.is_empty() {
        if is_pair {
            annotations.insert(GROUP, "plan".to_owned());
        } else if !required_topology.is_empty() {
            let why = format!(
                "needs {} pod sets of unequal pods, but Kueue applies a required topology to each pod set separately. \
                 Use `preferred_topology`, or request a plan with the same devices on every node",
                sets.len()
            );
            return Err(vec![StageRefusal::of_plan(why)]);
        } else {
            warning = Some(format!(
                "Kueue keeps the pods of each of the {} pod sets together, but can place the pod sets far apart",
                sets.len()
            ));
        }
    }
    Ok((annotations, warning))
}
