//! Which measurements a prediction is made from.
//!
//! For which trainings a profile's metrics hold.
//! A peak is that of one precision, optimizer, schedule and recompute policy; micro-batch size and
//! micro-batches in flight are what the lines are for, and numbers such as the learning rate hold no
//! memory.

use std::collections::{BTreeMap, BTreeSet};

use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::{Optimizer, TrainingSpec};

use super::metrics::{LayerMetrics, Setting, StagePeak};
use crate::PredictionError;

/// A measured peak and the name of its measurement (`runs/…/measurements/…`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPeak {
    pub peak: StagePeak,
    /// Where it comes from.
    pub name: String,
}

/// A measured stage: setting, first and last layer.
type Measured = (Setting, usize, usize);

/// The stages behind each layer's metrics, and the names of their measurements.
#[derive(Debug, Clone, Default)]
pub(super) struct Sources {
    /// By layer and setting: the first neighbour of its added memory.
    neighbours: BTreeMap<(usize, Setting), usize>,
    /// All stages that metrics were derived from.
    used: BTreeSet<Measured>,
    names: BTreeMap<Measured, BTreeSet<String>>,
}

impl Sources {
    pub(super) fn new(metrics: &[LayerMetrics]) -> Self {
        let neighbours = metrics
            .iter()
            .filter_map(|of| Some(((of.layer, of.setting), of.added?.neighbour_first_layer)))
            .collect();
        let used = metrics.iter().flat_map(measured_for).collect();
        Self { neighbours, used, names: BTreeMap::new() }
    }

    /// Adds the names of measured stages.
    pub(super) fn name(&mut self, peaks: &[NamedPeak]) {
        for NamedPeak { peak, name } in peaks.iter().filter(|peak| !peak.name.is_empty()) {
            let stage = (peak.setting, peak.first_layer, peak.last_layer);
            self.names.entry(stage).or_default().insert(name.clone());
        }
    }

    /// Whether a metric was derived from a stage; all others were held out.
    pub(super) fn uses(&self, stage: Measured) -> bool {
        self.used.contains(&stage)
    }

    /// The names behind layers `first..=last` at all settings of some scenarios, in order.
    pub(super) fn of(&self, first: usize, last: usize, scenarios: &[Scenario]) -> Vec<String> {
        let settings: BTreeSet<Setting> = self
            .used
            .iter()
            .map(|&(setting, ..)| setting)
            .filter(|setting| scenarios.contains(&setting.scenario))
            .collect();
        let mut names = BTreeSet::new();
        for setting in settings {
            let pairs = (first + 1..=last).filter_map(|layer| {
                let neighbour = *self.neighbours.get(&(layer, setting))?;
                Some([(setting, neighbour, layer - 1), (setting, neighbour, layer)])
            });
            let stages = pairs.flatten().chain([(setting, first, first)]);
            names.extend(stages.filter_map(|stage| self.names.get(&stage)).flatten().cloned());
        }
        names.into_iter().collect()
    }
}

/// The stages that a layer's metrics were derived from.
fn measured_for(metrics: &LayerMetrics) -> impl Iterator<Item = (Setting, usize, usize)> {
    let (setting, layer) = (metrics.setting, metrics.layer);
    let isolated = metrics.isolated.map(|_| (setting, layer, layer));
    let added = metrics.added.map(|added| added.neighbour_first_layer);
    let pair = added.map(|first| [(setting, first, layer.saturating_sub(1)), (setting, first, layer)]);
    isolated.into_iter().chain(pair.into_iter().flatten())
}

/// Reads the name of one setting.
type NameOf = fn(&TrainingSpec) -> &'static str;

/// Whether metrics of one training hold for another; `predictor` is the one that asks.
///
/// # Errors
/// The first setting that differs.
pub(super) fn check(
    predictor: &'static str,
    profiled: &TrainingSpec,
    target: &TrainingSpec,
) -> Result<(), PredictionError> {
    let settings: [(&str, NameOf); 4] = [
        ("schedule", |of| of.schedule.as_str()),
        ("recompute policy", |of| of.recompute.as_str()),
        ("precision", |of| of.precision.as_str()),
        ("optimizer", optimizer),
    ];
    for (what, name) in settings {
        let (profiled, target) = (name(profiled), name(target));
        if profiled != target {
            let (profiled, target) = (profiled.to_owned(), target.to_owned());
            return Err(PredictionError::OtherTraining { what, profiled, target, predictor });
        }
    }
    Ok(())
}

fn optimizer(training: &TrainingSpec) -> &'static str {
    match training.optimizer {
        Optimizer::Sgd { momentum: 0.0, .. } => "sgd without momentum",
        Optimizer::Sgd { .. } => "sgd with momentum",
        Optimizer::Adam { .. } => "adam",
        Optimizer::AdamW { .. } => "adamw",
    }
}
