//! CAPTURE's two metrics of every layer, from measured peaks (III-A1):
//!
//! * isolated memory `M_i(l) = PM(l..l)`: the peak of a device that holds layer l alone;
//! * added memory `M_a(l) = PM(n..l) − PM(n..l−1)`: the growth of the peak, often negative, when layer
//!   l joins its neighbours n..l−1.
//!
//! Rules where the paper is silent:
//!
//! * Only peaks of the same scenario (III-B3), the same micro-batch size *and* the same number of
//!   micro-batches in flight are subtracted.
//! * Of several measurements of the same stage the highest counts: a peak that was seen once can be
//!   seen once more.
//! * Where a layer was measured with several neighbour sets, the largest set that was measured at
//!   *every* setting of its scenario is used, so that a line through two micro-batch sizes compares like
//!   with like. If no set was, the largest of each setting. Larger sets predict better.
//! * Of the devices of a data- or tensor-parallel stage the largest counts, as every device must hold.

pub mod of_document;
pub mod of_profiling;

use std::collections::BTreeMap;
use std::fmt;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::training::scenario::Scenario;
use serde::{Deserialize, Serialize};

use crate::profiling::neighbours::Neighbours;

/// The measured peak of one stage on the highest peak of its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagePeak {
    /// Index of its first layer.
    pub first_layer: usize,
    /// Index of its last layer, inclusive.
    pub last_layer: usize,
    /// What it was measured at.
    pub setting: Setting,
    /// Highest bytes of live tensors (allocated memory accounting).
    pub peak: Bytes,
}

/// What peaks must have in common to be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Setting {
    /// How the stage is shared among devices.
    pub scenario: Scenario,
    /// Samples per pass of the whole stage.
    pub micro_batch_size: u32,
    /// The most micro-batches between forward and backward at once.
    pub in_flight: u32,
}

impl Setting {
    /// Stages of one device each.
    pub fn single(micro_batch_size: u32, in_flight: u32) -> Self {
        Self { scenario: Scenario::SINGLE, micro_batch_size, in_flight }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "micro-batch {} with {} in flight", self.micro_batch_size, self.in_flight)?;
        if self.scenario == Scenario::SINGLE { Ok(()) } else { write!(f, " under {}", self.scenario) }
    }
}

impl StagePeak {
    /// Layers `first_layer..=last_layer` on one device; `peak` in bytes.
    pub fn new(
        first_layer: usize,
        last_layer: usize,
        micro_batch_size: u32,
        in_flight: u32,
        peak: u64,
    ) -> Self {
        let setting = Setting::single(micro_batch_size, in_flight);
        Self { first_layer, last_layer, setting, peak: Bytes(peak) }
    }

    /// The peak in a measurement, in the scenario of its stage; none where that is in no scenario.
    pub fn of(measurement: &Measurement) -> Option<Self> {
        let stage = measurement.stage;
        let setting = Setting {
            scenario: stage.scenario()?,
            micro_batch_size: measurement.micro_batch_size,
            in_flight: measurement.in_flight,
        };
        Some(Self {
            first_layer: stage.first_layer,
            last_layer: stage.last_layer,
            setting,
            peak: measurement.peak_allocated,
        })
    }
}

/// The two metrics of a layer at one setting (allocated memory accounting).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerMetrics {
    /// Index of the layer.
    pub layer: usize,
    /// What it was measured at.
    pub setting: Setting,
    /// `M_i`; none when it was not measured.
    pub isolated: Option<Bytes>,
    /// `M_a`; none for the first layer and when it was not measured.
    pub added: Option<AddedMemory>,
}

/// What a layer adds to its neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedMemory {
    /// Growth of the peak, bytes; negative where the peak shrank.
    pub bytes: i64,
    /// First neighbour; the last one is the layer before.
    pub neighbour_first_layer: usize,
}

/// What is known of a model's layers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metrics {
    /// Every layer at every setting, in order of setting, then layer.
    pub layers: Vec<LayerMetrics>,
    /// What could not be derived, human-readable, in the same order. Empty when complete.
    pub missing: Vec<String>,
}

/// Derives both metrics of every layer at every setting.
///
/// `layer_names` are the model's layers. `wanted` are the settings that must be complete; settings that
/// occur in `peaks` alone count as well. `neighbours` is the set that the profiling meant to measure:
/// it names the stages in the lines about what is missing.
pub fn derive(
    layer_names: &[String],
    neighbours: &Neighbours,
    wanted: &[Setting],
    peaks: &[StagePeak],
) -> Metrics {
    let mut settings: BTreeMap<Setting, StagePeaks> =
        wanted.iter().map(|&setting| (setting, StagePeaks::default())).collect();
    for peak in peaks {
        settings.entry(peak.setting).or_default().insert(peak);
    }
    let mut comparable: BTreeMap<Scenario, Vec<&StagePeaks>> = BTreeMap::new();
    for (setting, peaks) in &settings {
        comparable.entry(setting.scenario).or_default().push(peaks);
    }
    let in_common = |peaks: Vec<&StagePeaks>| -> Vec<Option<usize>> {
        let shared =
            |layer: usize| (0..layer).find(|&first| peaks.iter().all(|peaks| peaks.has_pair(first, layer)));
        (0..layer_names.len()).map(shared).collect()
    };
    let common: BTreeMap<Scenario, Vec<Option<usize>>> =
        comparable.into_iter().map(|(scenario, peaks)| (scenario, in_common(peaks))).collect();

    let mut metrics = Metrics::default();
    for (&setting, peaks) in &settings {
        let common = &common[&setting.scenario];
        for (layer, name) in layer_names.iter().enumerate() {
            let isolated = peaks.of(layer, layer).map(Bytes);
            let first = common[layer].or_else(|| (0..layer).find(|&first| peaks.has_pair(first, layer)));
            let added = first.and_then(|first| peaks.added(first, layer));
            metrics.layers.push(LayerMetrics { layer, setting, isolated, added });
            if isolated.is_none() {
                metrics.missing.push(format!(
                    "isolated memory of layer {layer} ({name}) at {setting}: the peak of a stage with only this \
                     layer, which was not measured"
                ));
            }
            if let (None, Some(first)) = (added, neighbours.first_of(layer)) {
                metrics.missing.push(format!(
                    "added memory of layer {layer} ({name}) at {setting}: the peak of layers {first} to {layer} minus \
                     the peak of layers {first} to {}. One or both peaks were not measured",
                    layer - 1
                ));
            }
        }
    }
    metrics
}

/// The highest measured peak of each stage at one setting, by (last layer, first layer).
#[derive(Debug, Default)]
struct StagePeaks(BTreeMap<(usize, usize), u64>);

impl StagePeaks {
    fn insert(&mut self, peak: &StagePeak) {
        let highest = self.0.entry((peak.last_layer, peak.first_layer)).or_default();
        *highest = (*highest).max(peak.peak.0);
    }

    fn of(&self, first: usize, last: usize) -> Option<u64> {
        self.0.get(&(last, first)).copied()
    }

    fn has_pair(&self, first: usize, layer: usize) -> bool {
        self.of(first, layer).is_some() && self.of(first, layer - 1).is_some()
    }

    fn added(&self, first: usize, layer: usize) -> Option<AddedMemory> {
        let (with, without) = (self.of(first, layer)?, self.of(first, layer - 1)?);
        // Real peaks are far below 8 EiB; saturating keeps nonsense from wrapping around.
        let difference = i128::from(with) - i128::from(without);
        let bytes = i64::try_from(difference).unwrap_or(if difference < 0 { i64::MIN } else { i64::MAX });
        Some(AddedMemory { bytes, neighbour_first_layer: first })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|index| format!("conv{index}")).collect()
    }

    fn peak(first: usize, last: usize, micro_batch_size: u32, bytes: u64) -> StagePeak {
        StagePeak::new(first, last, micro_batch_size, 8, bytes)
    }

    fn at(metrics: &Metrics, layer: usize, micro_batch_size: u32) -> LayerMetrics {
        *metrics
            .layers
            .iter()
            .find(|m| m.layer == layer && m.setting.micro_batch_size == micro_batch_size)
            .unwrap()
    }

    /// `M_i` is the peak alone, `M_a` a difference that may be negative.
    #[test]
    fn metrics_are_those_of_the_paper() {
        let peaks = [peak(0, 0, 4, 10), peak(1, 1, 4, 30), peak(0, 1, 4, 7)];
        let metrics = derive(&names(2), &Neighbours::growing(2, 1), &[], &peaks);
        assert_eq!(metrics.missing, Vec::<String>::new());
        assert_eq!(at(&metrics, 1, 4).isolated, Some(Bytes(30)));
        assert_eq!(at(&metrics, 1, 4).added, Some(AddedMemory { bytes: -3, neighbour_first_layer: 0 }));
        assert_eq!(at(&metrics, 0, 4).added, None);
    }

    /// A repeated stage counts with its highest peak, whatever the order.
    #[test]
    fn the_highest_of_several_peaks_of_a_stage_counts() {
        let peaks = [peak(0, 0, 4, 10), peak(0, 0, 4, 12), peak(0, 0, 4, 11)];
        let metrics = derive(&names(1), &Neighbours::growing(1, 1), &[], &peaks);
        assert_eq!(at(&metrics, 0, 4).isolated, Some(Bytes(12)));
    }

    /// Users choose which stages to run.
    #[test]
    fn missing_metrics_name_layer_setting_and_stages() {
        let wanted = [Setting::single(4, 8)];
        let metrics = derive(&names(2), &Neighbours::growing(2, 1), &wanted, &[peak(0, 0, 4, 10)]);
        assert_eq!(
            metrics.missing,
            [
                "isolated memory of layer 1 (conv1) at micro-batch 4 with 8 in flight: the peak of a stage with only \
                 this layer, which was not measured",
                "added memory of layer 1 (conv1) at micro-batch 4 with 8 in flight: the peak of layers 0 to 1 minus \
                 the peak of layers 0 to 0. One or both peaks were not measured",
            ]
        );
        let nothing = derive(&names(2), &Neighbours::growing(2, 1), &wanted, &[]);
        assert_eq!(nothing.missing.len(), 3, "a wanted setting without any peak is missing, not absent");
    }

    /// Peaks at different numbers of micro-batches in flight are different things.
    #[test]
    fn peaks_with_different_in_flight_are_never_subtracted() {
        let peaks = [StagePeak::new(0, 0, 4, 1, 10), StagePeak::new(0, 1, 4, 2, 99)];
        let metrics = derive(&names(2), &Neighbours::growing(2, 1), &[], &peaks);
        assert!(metrics.layers.iter().all(|layer| layer.added.is_none()));
    }

    /// A scenario is a world of its own: neither its peaks nor its neighbour sets touch another one.
    #[test]
    fn peaks_of_different_scenarios_are_never_subtracted() {
        let data = Scenario { parallelism: loadmaster_proto::training::stage::Parallelism::Data, degree: 2 };
        let in_data =
            |peak: StagePeak| StagePeak { setting: Setting { scenario: data, ..peak.setting }, ..peak };
        let peaks = [
            [peak(0, 0, 4, 10), peak(0, 1, 4, 30), peak(1, 1, 4, 9)],
            [peak(0, 0, 4, 10), peak(0, 1, 4, 14), peak(1, 1, 4, 7)].map(in_data),
        ]
        .concat();
        let added = |peaks: &[StagePeak]| -> Vec<(Scenario, i64)> {
            let metrics = derive(&names(2), &Neighbours::growing(2, 1), &[], peaks);
            let layers = metrics.layers.iter();
            layers.filter_map(|of| Some((of.setting.scenario, of.added?.bytes))).collect()
        };
        assert_eq!(added(&peaks), [(Scenario::SINGLE, 20), (data, 4)]);
        assert_eq!(added(&[peaks[0], peaks[4]]), [], "one of each makes no difference");
    }

    /// The largest set wins, but not over one that every setting has.
    #[test]
    fn the_largest_neighbour_set_that_all_settings_share_is_used() {
        let small_set = |size| [peak(1, 1, size, 5), peak(1, 2, size, 9)];
        let large_set = |size| [peak(0, 1, size, 20), peak(0, 2, size, 26)];
        let neighbours = Neighbours::growing(3, 1);
        let added = |peaks: &[StagePeak], size| {
            at(&derive(&names(3), &neighbours, &[], peaks), 2, size)
                .added
                .map(|a| (a.bytes, a.neighbour_first_layer))
        };
        let both = [small_set(1), large_set(1)].concat();
        assert_eq!(added(&both, 1), Some((6, 0)), "one setting: the largest");
        let shared = [&both[..], &small_set(2)].concat();
        assert_eq!(added(&shared, 1), Some((4, 1)), "two settings: the one that both have");
        assert_eq!(added(&shared, 2), Some((4, 1)));
        let apart = [small_set(1), large_set(2)].concat();
        assert_eq!((added(&apart, 1), added(&apart, 2)), (Some((4, 1)), Some((6, 0))), "nothing shared");
    }
}
