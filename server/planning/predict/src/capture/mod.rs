//! CAPTURE's predictor (III-B), `capture/1`, kept as it was published beside the ones that err less.
//!
//! The peak of a stage is the isolated memory of its first layer plus the added memory of the others,
//!
//! ```text
//! M_p(a..b) = M_i(a) + Σ_{k = a+1..b} M_a(k)
//! ```
//!
//! computed at each profiled setting and read at the target along a straight line over the micro-batch
//! size, then along a second one over the micro-batches in flight (`line.rs`, `reading.rs`). Data- and
//! tensor-parallel stages have metrics of their own, profiled at degrees 2 and 4; other degrees are read
//! from the logarithm through those two (`degree.rs`). The rule is exact where a stage's first layer holds
//! its largest working set, and errs to both sides elsewhere.
//!
//! # What it does not do
//!
//! It does not raise a prediction to the largest isolated memory among the stage's layers. That looks
//! like a lower bound and is none: a layer alone keeps *its* input for every micro-batch in flight,
//! while inside a stage only the stage's input is kept. On VGG11 89 of the 465 stages need less than
//! one of their layers alone (a test counts them), so the floor would turn right predictions wrong.
//! The only floor is zero.
//!
//! It does not predict times: the paper's predictor has none.
//!
//! # Its margin
//!
//! The paper gives none. A profiling of whole partitionings measures stages that no metric is derived from: the
//! rests that the last devices hold. They were held out, so they are predicted and compared. The margin of a
//! scenario is its largest error and a quarter more, because the stages that are asked about later are not those.
//! Where nothing was held out (profiling `stages`) the margin is unknown, and is said to be.

mod degree;
pub mod merger;
pub mod metrics;
mod reading;
mod sources;

use std::collections::BTreeMap;

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::stage::{Parallelism, StageConfig};
use loadmaster_proto::warning::{Warning, WarningCode};

use crate::{Origin, Prediction, PredictionError, Predictor, StageSetting};
use degree::Curve;
use metrics::LayerMetrics;
use reading::{Reading, Slopes, Target};
pub use sources::NamedPeak;
use sources::Sources;

/// Name and version in predictions.
pub const NAME: &str = "capture/1";

/// Beyond this share, `A + B/n` and the paper's logarithm through the same two points disagree so much
/// that a prediction says so.
const DISAGREEMENT: f64 = 0.05;

/// What the largest error on held-out stages is multiplied by.
const ALLOWANCE: f64 = 1.25;

/// The predictor of one profile.
///
/// ```
/// use loadmaster_predict::profiling::neighbours::Neighbours;
/// use loadmaster_predict::capture::Capture;
/// use loadmaster_predict::capture::metrics::{StagePeak, derive};
/// use loadmaster_proto::training::stage::StageConfig;
///
/// // Layers 0, 1 and 0..1 at micro-batches of 4 with 8 in flight: M_i(0) = 10, M_a(1) = 14 − 10.
/// let peaks = [StagePeak::new(0, 0, 4, 8, 10), StagePeak::new(1, 1, 4, 8, 9), StagePeak::new(0, 1, 4, 8, 14)];
/// let names = ["conv", "relu"].map(str::to_owned);
/// let metrics = derive(&names, &Neighbours::growing(2, 1), &[], &peaks);
/// let predicted = Capture::new(2, &metrics.layers).peak(StageConfig::single(0, 1), 4, 8)?;
/// assert_eq!(predicted.bytes.0, 14);
/// # Ok::<(), loadmaster_predict::PredictionError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Capture {
    layers: usize,
    readings: BTreeMap<Scenario, Reading>,
    sources: Sources,
    margins: BTreeMap<Scenario, f64>,
    profiled: Option<TrainingSpec>,
    scale_by_pipeline: bool,
    ledger: Accounting,
}

impl Capture {
    /// From the metrics of a model of `layers` layers. Metrics of other layers are ignored; gaps are
    /// errors of the predictions that need them, not of this call.
    pub fn new(layers: usize, metrics: &[LayerMetrics]) -> Self {
        let mut by_scenario: BTreeMap<Scenario, Vec<&LayerMetrics>> = BTreeMap::new();
        for layer in metrics.iter().filter(|metrics| metrics.layer < layers) {
            by_scenario.entry(layer.setting.scenario).or_default().push(layer);
        }
        let readings = by_scenario
            .into_iter()
            .map(|(scenario, metrics)| (scenario, Reading::new(scenario, layers, &metrics)))
            .collect();
        Self {
            layers,
            readings,
            sources: Sources::new(metrics),
            margins: BTreeMap::new(),
            profiled: None,
            scale_by_pipeline: false,
            ledger: Accounting::Allocated,
        }
    }

    /// Adds the peaks behind the metrics, stand-ins for equal stages included. Their names become the
    /// predictions' sources, and the measured stages that no metric was derived from become checks:
    /// the errors on them give the margin of their scenario.
    #[must_use]
    pub fn with_peaks(mut self, peaks: &[NamedPeak]) -> Self {
        self.sources.name(peaks);
        self.margins = self.errors_on(peaks);
        self
    }

    /// By scenario: the share of a prediction by which the real peak may lie above or below it.
    fn errors_on(&self, peaks: &[NamedPeak]) -> BTreeMap<Scenario, f64> {
        let mut margins: BTreeMap<Scenario, f64> = BTreeMap::new();
        let held_out = peaks.iter().map(|named| named.peak).filter(|peak| {
            let stage = (peak.setting, peak.first_layer, peak.last_layer);
            !self.sources.uses(stage)
        });
        for peak in held_out {
            let stage = peak.setting.scenario.stage(peak.first_layer, peak.last_layer);
            let size = peak.setting.micro_batch_size;
            // A check that cannot be predicted (a gap) checks nothing.
            let Ok(prediction) = self.peak(stage, size, peak.setting.in_flight) else { continue };
            let error = prediction.bytes.0.abs_diff(peak.peak.0) as f64 / prediction.bytes.0.max(1) as f64;
            let margin = margins.entry(peak.setting.scenario).or_default();
            *margin = margin.max(ALLOWANCE * error);
        }
        margins
    }

    /// Refuses predictions for trainings whose memory the profile says nothing about: the metrics hold
    /// for one precision, optimizer, schedule and recompute policy.
    #[must_use]
    pub fn profiled_under(mut self, training: TrainingSpec) -> Self {
        self.profiled = Some(training);
        self
    }

    /// The memory accounting of all the peaks behind the metrics; the allocated one unless said otherwise.
    #[must_use]
    pub fn in_ledger(mut self, ledger: Accounting) -> Self {
        self.ledger = ledger;
        self
    }

    /// Scales parallel scenarios that were profiled at one micro-batch size by the pipeline's slopes
    /// (III-A3); see `reading.rs`.
    #[must_use]
    pub fn scaled_by_pipeline(mut self, scale: bool) -> Self {
        self.scale_by_pipeline = scale;
        self
    }

    /// The peak of the device with the highest peak of a stage.
    ///
    /// # Errors
    /// What the profile lacks for this stage and setting.
    pub fn peak(
        &self,
        stage: StageConfig,
        micro_batch_size: u32,
        in_flight: u32,
    ) -> Result<Prediction, PredictionError> {
        let (first, last) = (stage.first_layer, stage.last_layer);
        if first > last || last >= self.layers {
            return Err(PredictionError::NoSuchStage { first, last, layers: self.layers });
        }
        let scenario = scenario(stage)?;
        let target = Target { first, last, micro_batch_size, in_flight };
        let (bytes, origin) = if self.readings.contains_key(&scenario) {
            self.read(scenario, target)?
        } else {
            let (curve, origin) = self.curve(scenario, target)?;
            (curve.logarithm(scenario.degree), origin)
        };
        Ok(Prediction {
            bytes: Bytes(u64::try_from(bytes.max(0)).unwrap_or(u64::MAX)),
            breakdown: None,
            seconds: None,
            margin: self.margin(scenario),
            seconds_margin: None,
            predictor: NAME,
            origin,
        })
    }

    fn read(&self, scenario: Scenario, target: Target) -> Result<(i128, Origin), PredictionError> {
        let reading = self.readings.get(&scenario).ok_or(PredictionError::NothingProfiled { scenario })?;
        let pipeline = self.readings.get(&Scenario::SINGLE).filter(|_| scenario != Scenario::SINGLE);
        reading.read(target, pipeline.filter(|_| self.scale_by_pipeline).map(Slopes))
    }

    /// The two profiled degrees that a degree in between or beyond is read from.
    fn curve(&self, scenario: Scenario, target: Target) -> Result<(Curve, Origin), PredictionError> {
        let (low, high) = self.nearest(scenario)?;
        let ((low_bytes, low_origin), (high_bytes, high_origin)) =
            (self.read(low, target)?, self.read(high, target)?);
        let between = if (low.degree..high.degree).contains(&scenario.degree) {
            Origin::Interpolated
        } else {
            Origin::Extrapolated
        };
        let curve = Curve { low: (low.degree, low_bytes), high: (high.degree, high_bytes) };
        Ok((curve, between.max(low_origin).max(high_origin)))
    }

    /// The two profiled degrees of the same parallelism nearest to a scenario's, ascending.
    fn nearest(&self, wanted: Scenario) -> Result<(Scenario, Scenario), PredictionError> {
        let same = |scenario: &&Scenario| scenario.parallelism == wanted.parallelism && scenario.degree > 1;
        let profiled: Vec<Scenario> = match wanted.parallelism {
            Parallelism::None => Vec::new(),
            Parallelism::Data | Parallelism::Tensor => self.readings.keys().filter(same).copied().collect(),
        };
        match profiled.as_slice() {
            [] => Err(PredictionError::NothingProfiled { scenario: wanted }),
            &[profiled] => Err(PredictionError::OneDegree { profiled, target: wanted.degree }),
            [.., last] => {
                let above = profiled.partition_point(|scenario| scenario.degree < wanted.degree);
                let high = above.clamp(1, profiled.len() - 1);
                Ok((profiled[high - 1], profiled.get(high).copied().unwrap_or(*last)))
            }
        }
    }

    /// The margin of a scenario, or the larger one of the degrees that it is read from.
    fn margin(&self, scenario: Scenario) -> Option<f64> {
        let of = |scenario: Scenario| self.margins.get(&scenario).copied();
        if self.readings.contains_key(&scenario) {
            return of(scenario);
        }
        let (low, high) = self.nearest(scenario).ok()?;
        Some(of(low)?.max(of(high)?))
    }
}

impl Predictor for Capture {
    fn name(&self) -> &'static str {
        NAME
    }

    fn layers(&self) -> usize {
        self.layers
    }

    fn ledger(&self) -> Accounting {
        self.ledger
    }

    fn stage(&self, setting: &StageSetting) -> Result<Prediction, PredictionError> {
        if setting.stage.sequence_parallel {
            return Err(PredictionError::NoSequence { predictor: NAME });
        }
        if !setting.stage.sharding.is_none() {
            return Err(PredictionError::NoSharding { predictor: NAME });
        }
        if let Some(profiled) = &self.profiled {
            sources::check(NAME, profiled, &setting.training)?;
        }
        self.peak(setting.stage, setting.training.micro_batch_size, setting.in_flight())
    }

    fn sources(&self, setting: &StageSetting) -> Vec<String> {
        let Some(scenario) = setting.stage.scenario() else { return Vec::new() };
        let mut scenarios = match self.nearest(scenario) {
            Ok((low, high)) if !self.readings.contains_key(&scenario) => vec![low, high],
            Ok(_) | Err(_) => vec![scenario],
        };
        if self.scale_by_pipeline {
            scenarios.push(Scenario::SINGLE);
        }
        self.sources.of(setting.stage.first_layer, setting.stage.last_layer, &scenarios)
    }

    fn warnings(&self, setting: &StageSetting) -> Vec<Warning> {
        let Some(scenario) = setting.stage.scenario() else { return Vec::new() };
        let target = Target {
            first: setting.stage.first_layer,
            last: setting.stage.last_layer,
            micro_batch_size: setting.training.micro_batch_size,
            in_flight: setting.in_flight(),
        };
        if self.readings.contains_key(&scenario) || target.last >= self.layers {
            return Vec::new();
        }
        let Ok((curve, _)) = self.curve(scenario, target) else { return Vec::new() };
        let why = match curve.disagreement(scenario.degree) {
            Some(share) if share.abs() <= DISAGREEMENT => return Vec::new(),
            Some(share) => format!(
                "stage {}: at {scenario}, CAPTURE's logarithmic fit to the profiled sizes predicts {:.0} % {} memory \
                 than the fit A + B/n (n: parallel size). The `component` predictor uses A + B/n. Profile with \
                 {scenario} to measure the memory",
                setting.stage,
                100.0 * share.abs(),
                if share < 0.0 { "less" } else { "more" },
            ),
            None => format!(
                "stage {}: the predicted memory decreases to zero at {scenario}, which is not possible. Profile with \
                 {scenario}",
                setting.stage
            ),
        };
        vec![WarningCode::PredictorsDisagree.says(why)]
    }
}

/// The scenario of a stage: the paper profiles no other ways to share one (III-B3).
fn scenario(stage: StageConfig) -> Result<Scenario, PredictionError> {
    let StageConfig { data_degree, tensor_degree, .. } = stage;
    stage.scenario().ok_or(PredictionError::MixedStage { data_degree, tensor_degree, predictor: NAME })
}

#[cfg(test)]
mod tests;
