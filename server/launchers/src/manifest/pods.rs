//! The pods of a plan: a pod for each of its nodes, in the order of the ranks.

use std::collections::BTreeSet;

use loadmaster_proto::cluster::device::CPU_KIND;

use crate::StageRefusal;
use crate::export_parts::RankPlace;
use crate::question::{Refused, all_or};

/// A node of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pod {
    /// Its ranks, one behind the other, each with a device.
    pub(super) ranks: usize,
    /// What its devices are called; empty where the plan says nothing of them.
    pub(super) kind: String,
    /// Stages with ranks on it.
    pub(super) stages: BTreeSet<usize>,
    /// The node of a placement that it must be on; none where any of its kind does.
    pub(super) host: Option<String>,
}

/// Equal pods that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodRun {
    /// Pods before it.
    pub(super) first: usize,
    /// How many.
    pub(super) count: usize,
    /// Ranks of each.
    pub(super) ranks: usize,
    /// What their devices are called.
    pub(super) kind: String,
    /// The node that its only pod must be on.
    pub(super) host: Option<String>,
}

impl PodRun {
    /// GPUs of each: one for each rank, but for those on CPUs.
    pub(super) fn gpus(&self) -> usize {
        if self.kind == CPU_KIND { 0 } else { self.ranks }
    }
}

/// The pods of ranks, each on the node that its ranks name where they `are_bound`. Where nodes have no names, all ranks are taken to be
/// on one.
///
/// # Errors
/// Stages of which a node holds ranks that do not follow its others, or GPUs of another kind. Processes of a pod are numbered one
/// behind the other, and its GPUs are asked for by one name.
pub(super) fn pods(ranks: &[RankPlace], are_bound: bool) -> Result<Vec<Pod>, Refused> {
    let mut pods: Vec<(&str, Pod)> = Vec::new();
    let mut refused: Vec<StageRefusal> = Vec::new();
    let mut refuse = |stage, why: String| {
        if refused.last().is_none_or(|last| last.stage != Some(stage)) {
            refused.push(StageRefusal::of_stage(stage, why));
        }
    };
    for place in ranks {
        let (node, kind) =
            place.device.as_ref().map_or(("", ""), |device| (device.node.as_str(), device.kind.as_str()));
        let is_known = pods.iter().any(|(of, _)| *of == node);
        match pods.last_mut() {
            Some((of, pod)) if *of == node => {
                pod.ranks += 1;
                pod.stages.insert(place.stage);
                if pod.kind != kind {
                    let why = format!(
                        "has a {kind} on {node}, but other ranks on this node have {}. Request a plan with one kind \
                         of device on each node",
                        pod.kind
                    );
                    refuse(place.stage, why);
                }
            }
            _ if is_known => {
                let why = format!(
                    "has rank {} on {node}, which does not directly follow the other ranks of this node. A pod needs \
                     consecutive ranks. Request a plan whose stages fill one node after another",
                    place.rank
                );
                refuse(place.stage, why);
            }
            _ => {
                let host = are_bound.then(|| node.to_owned());
                pods.push((
                    node,
                    Pod { ranks: 1, kind: kind.to_owned(), stages: [place.stage].into(), host },
                ));
            }
        }
    }
    all_or(refused)?;
    Ok(pods.into_iter().map(|(_, pod)| pod).collect())
}

/// Runs of equal pods. Those that must be on nodes of their own are not equal.
pub(super) fn runs(pods: &[Pod]) -> Vec<PodRun> {
    let mut runs: Vec<PodRun> = Vec::new();
    for (at, pod) in pods.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if (run.ranks, &run.kind, &run.host) == (pod.ranks, &pod.kind, &pod.host) => {
                run.count += 1
            }
            _ => runs.push(PodRun {
                first: at,
                count: 1,
                ranks: pod.ranks,
                kind: pod.kind.clone(),
                host: pod.host.clone(),
            }),
        }
    }
    runs
}

/// The one run that pods are, for what makes all of them alike.
///
/// # Errors
/// Each stage on a node that is unlike the first.
pub(super) fn uniform(pods: &[Pod], what: &str, remedy: &str) -> Result<PodRun, Refused> {
    let runs = runs(pods);
    if let [run] = &runs[..] {
        return Ok(run.clone());
    }
    let Some(first) = pods.first() else {
        return Err(vec![StageRefusal::of_plan("has no rank")]);
    };
    let devices = |pod: &Pod| match pod.kind.as_str() {
        "" => format!("{} GPUs", pod.ranks),
        CPU_KIND => format!("{} slots of its CPU", pod.ranks),
        kind => format!("{} GPUs {kind}", pod.ranks),
    };
    let unlike = pods.iter().filter(|pod| (pod.ranks, &pod.kind) != (first.ranks, &first.kind));
    let mut stages: BTreeSet<(usize, String)> = BTreeSet::new();
    for pod in unlike {
        for &stage in &pod.stages {
            stages.insert((stage, devices(pod)));
        }
    }
    let mut refused: Vec<StageRefusal> = stages
        .into_iter()
        .map(|(stage, has)| {
            let why = format!(
                "needs {has} on a node, but the first node has {}. All pods of {what} must be equal. {remedy}",
                devices(first)
            );
            StageRefusal::of_stage(stage, why)
        })
        .collect();
    refused.dedup_by_key(|refusal| refusal.stage);
    Err(refused)
}

/// Pods of each stage, where every stage has whole pods of its own and as many as the others.
///
/// # Errors
/// The stages that share a pod, or have other numbers of pods than the first.
pub(super) fn pods_of_each_stage(pods: &[Pod]) -> Result<usize, Refused> {
    let last = pods.iter().flat_map(|pod| &pod.stages).max().copied().unwrap_or(0);
    let of = |stage: usize| pods.iter().filter(move |pod| pod.stages.contains(&stage));
    let first = of(0).count();
    let refused = (0..=last).filter_map(|stage| {
        let why = if of(stage).any(|pod| pod.stages.len() > 1) {
            "shares a node with another stage, but a topology level per stage needs whole nodes. Remove `stage_topology`"
                .to_owned()
        } else if of(stage).count() != first {
            format!(
                "is on {} nodes, but the first stage is on {first}. Kueue needs slices of equal size: remove \
                 `stage_topology`",
                of(stage).count()
            )
        } else {
            return None;
        };
        Some(StageRefusal::of_stage(stage, why))
    });
    all_or(refused.collect())?;
    // Ranks of a stage need not be neighbours, where replicas are.
    let follow = pods.chunks(first.max(1)).all(|run| run.iter().all(|pod| pod.stages == run[0].stages));
    let apart = "has stages whose nodes are not consecutive, so no topology level per stage is possible. Remove \
         `stage_topology`";
    if follow { Ok(first) } else { Err(vec![StageRefusal::of_plan(apart)]) }
}
