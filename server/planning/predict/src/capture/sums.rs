//! The metrics of all layers at one setting, summed up so that any stage is read in two look-ups.

use super::metrics::{LayerMetrics, Setting};
use crate::PredictionError;

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct MetricSums {
    setting: Setting,
    isolated: Vec<Option<u64>>,
    /// `added[k]`: sum over the layers below k that have the metric.
    added: Vec<i128>,
    /// `complete_since[k]`: the first layer s ≤ k such that all of s+1..=k have added memory.
    complete_since: Vec<usize>,
}

impl MetricSums {
    /// From the metrics of one setting; all of their layers are below `layers`.
    pub(super) fn new(setting: Setting, layers: usize, metrics: &[&LayerMetrics]) -> Self {
        let mut isolated = vec![None; layers];
        let mut each = vec![None; layers];
        for metrics in metrics {
            isolated[metrics.layer] = metrics.isolated.map(|bytes| bytes.0);
            each[metrics.layer] = metrics.added.map(|added| i128::from(added.bytes));
        }
        let mut added = vec![0];
        let mut complete_since = Vec::with_capacity(layers);
        let (mut sum, mut since) = (0, 0);
        for (layer, bytes) in each.into_iter().enumerate() {
            match bytes {
                Some(bytes) => sum += bytes,
                None => since = layer,
            }
            added.push(sum);
            complete_since.push(since);
        }
        Self { setting, isolated, added, complete_since }
    }

    /// `M_i(first) + Σ M_a`, bytes; may be negative.
    pub(super) fn peak(&self, first: usize, last: usize) -> Result<i128, PredictionError> {
        let missing = |metric, layer| PredictionError::MetricMissing { metric, layer, setting: self.setting };
        let isolated = self.isolated[first].ok_or_else(|| missing("isolated", first))?;
        let since = self.complete_since[last];
        if since > first {
            return Err(missing("added", since));
        }
        Ok(i128::from(isolated) + self.added[last + 1] - self.added[first + 1])
    }
}
