//! CAPTURE's predictor (III-B1 and III-B2), `additive/1`.
//!
//! The peak of a stage is the isolated memory of its first layer plus the added memory of the others,
//!
//! ```text
//! M_p(a..b) = M_i(a) + Σ_{k = a+1..b} M_a(k)
//! ```
//!
//! computed at each profiled setting and read at the target along a straight line over the micro-batch
//! size, then along a second one over the micro-batches in flight (see `line.rs`). The rule is exact
//! where a stage's first layer holds its largest working set, and errs to both sides elsewhere.
//!
//! # What it does not do
//!
//! It does not raise a prediction to the largest isolated memory among the stage's layers. That looks
//! like a lower bound and is none: a layer alone keeps *its* input for every micro-batch in flight,
//! while inside a stage only the stage's input is kept. On VGG11 89 of the 465 stages need less than
//! one of their layers alone (a test counts them), so the floor would turn right predictions wrong.
//! The only floor is zero.

mod line;

use std::collections::BTreeMap;

use loadmaster_proto::bytes::Bytes;

use super::metrics::{LayerMetrics, Setting};
use super::predictor::{Origin, Prediction, PredictionError, Predictor, StageSetting};
use line::Point;

/// Name and version in predictions.
pub const NAME: &str = "additive/1";

/// The additive predictor of one profile.
#[derive(Debug, Clone)]
pub struct Additive {
    layers: usize,
    /// By micro-batches in flight, then by micro-batch size, both ascending.
    profiled: BTreeMap<u32, BTreeMap<u32, Table>>,
}

/// The metrics of all layers at one setting, summed up so that any stage is read in two look-ups.
#[derive(Debug, Clone)]
struct Table {
    setting: Setting,
    isolated: Vec<Option<u64>>,
    /// `added[k]`: sum over the layers below k that have the metric.
    added: Vec<i128>,
    /// `complete_since[k]`: the first layer s ≤ k such that all of s+1..=k have added memory.
    complete_since: Vec<usize>,
}

impl Additive {
    /// From the metrics of a model of `layers` layers. Metrics of other layers are ignored; gaps are
    /// errors of the predictions that need them, not of this call.
    pub fn new(layers: usize, metrics: &[LayerMetrics]) -> Self {
        let mut by_setting: BTreeMap<Setting, Vec<&LayerMetrics>> = BTreeMap::new();
        for layer in metrics.iter().filter(|metrics| metrics.layer < layers) {
            by_setting.entry(layer.setting).or_default().push(layer);
        }
        let mut profiled: BTreeMap<u32, BTreeMap<u32, Table>> = BTreeMap::new();
        for (setting, metrics) in by_setting {
            let table = Table::new(setting, layers, &metrics);
            profiled.entry(setting.in_flight).or_default().insert(setting.micro_batch_size, table);
        }
        Self { layers, profiled }
    }

    /// The peak at a profiled number of micro-batches in flight, read at a micro-batch size.
    fn at_micro_batch_size(
        tables: &BTreeMap<u32, Table>,
        (first, last): (usize, usize),
        target: u32,
    ) -> Result<(i128, Origin), PredictionError> {
        let mut points = Vec::with_capacity(tables.len());
        let mut gap = None;
        for (&size, table) in tables {
            match table.peak(first, last) {
                Ok(bytes) => points.push(Point { at: size, bytes }),
                Err(error) => gap = Some(gap.unwrap_or(error)),
            }
        }
        line::read(&points, target).ok_or_else(|| match (gap, points.first()) {
            (Some(error), _) => error,
            (None, Some(point)) => PredictionError::OneMicroBatchSize { profiled: point.at, target },
            (None, None) => PredictionError::NothingProfiled,
        })
    }
}

impl Predictor for Additive {
    fn name(&self) -> &'static str {
        NAME
    }

    fn layers(&self) -> usize {
        self.layers
    }

    fn stage(&self, setting: &StageSetting) -> Result<Prediction, PredictionError> {
        let stage = setting.stage;
        if stage.degree != 1 {
            let why = format!("stages of degree {} were not profiled", stage.degree);
            return Err(PredictionError::NotProfiled(why));
        }
        let size = setting.training.micro_batch_size;
        self.peak_bytes(stage.first_layer, stage.last_layer, size, setting.in_flight())
    }

    fn sources(&self, _setting: &StageSetting) -> Vec<String> {
        Vec::new()
    }
}

impl Additive {
    /// The peak of a device that holds layers `first..=last`.
    ///
    /// # Errors
    /// What the profile lacks for this stage and setting.
    pub fn peak_bytes(
        &self,
        first: usize,
        last: usize,
        micro_batch_size: u32,
        in_flight: u32,
    ) -> Result<Prediction, PredictionError> {
        if first > last || last >= self.layers {
            return Err(PredictionError::NoSuchStage { first, last, layers: self.layers });
        }
        let stage = (first, last);
        if let Some(tables) = self.profiled.get(&in_flight)
            && let Ok((bytes, origin)) = Self::at_micro_batch_size(tables, stage, micro_batch_size)
        {
            return Ok(prediction(bytes, origin));
        }
        let mut points = Vec::with_capacity(self.profiled.len());
        let mut worst = Origin::Profiled;
        let mut gap = None;
        for (&profiled, tables) in &self.profiled {
            match Self::at_micro_batch_size(tables, stage, micro_batch_size) {
                Ok((bytes, origin)) => {
                    worst = worst.max(origin);
                    points.push(Point { at: profiled, bytes });
                }
                Err(error) => gap = Some(gap.unwrap_or(error)),
            }
        }
        let (bytes, origin) = line::read(&points, in_flight).ok_or_else(|| match (gap, points.first()) {
            (Some(error), _) => error,
            (None, Some(point)) => PredictionError::OneInFlight { profiled: point.at, target: in_flight },
            (None, None) => PredictionError::NothingProfiled,
        })?;
        Ok(prediction(bytes, origin.max(worst)))
    }
}

fn prediction(bytes: i128, origin: Origin) -> Prediction {
    let bytes = Bytes(u64::try_from(bytes.max(0)).unwrap_or(u64::MAX));
    Prediction { bytes, breakdown: None, seconds: None, margin: None, predictor: NAME, origin }
}

impl Table {
    fn new(setting: Setting, layers: usize, metrics: &[&LayerMetrics]) -> Self {
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
    fn peak(&self, first: usize, last: usize) -> Result<i128, PredictionError> {
        let missing = |metric, layer| PredictionError::MetricMissing {
            metric,
            layer,
            micro_batch_size: self.setting.micro_batch_size,
            in_flight: self.setting.in_flight,
        };
        let isolated = self.isolated[first].ok_or_else(|| missing("isolated", first))?;
        let since = self.complete_since[last];
        if since > first {
            return Err(missing("added", since));
        }
        Ok(i128::from(isolated) + self.added[last + 1] - self.added[first + 1])
    }
}

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;
