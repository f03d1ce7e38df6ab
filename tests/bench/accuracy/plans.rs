//! From stages to whole partitionings: every stage is measured once, every partitioning is made of them.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::training::Schedule;
use loadmaster_search::memory::leximax;
use loadmaster_search::{
    Choice, Cuts, Kind, Link, LinkId, LinkOrigin, Peak, Places, Question, Seconds, Spanning, StageAt,
    StageCosts, Stop, Unit,
};

use crate::search::problem::{fleet, node};

/// Peaks of stages by first and last layer, bytes.
#[derive(Debug, Clone)]
pub(crate) struct StagePeaks {
    layers: usize,
    peaks: Vec<Option<u64>>,
}

/// A partitioning's highest peak, as predicted and as measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlanPeak {
    /// Layers per stage.
    pub(crate) sizes: Vec<usize>,
    pub(crate) predicted: u64,
    pub(crate) measured: u64,
}

impl StagePeaks {
    pub(crate) fn new(layers: usize) -> Self {
        Self { layers, peaks: vec![None; layers * layers] }
    }

    pub(crate) fn insert(&mut self, first: usize, last: usize, peak: u64) {
        self.peaks[first * self.layers + last] = Some(peak);
    }

    pub(crate) fn get(&self, first: usize, last: usize) -> Option<u64> {
        self.peaks.get(first * self.layers + last).copied().flatten()
    }

    /// How many stages have one.
    pub(crate) fn count(&self) -> usize {
        self.peaks.iter().flatten().count()
    }

    fn highest(&self, sizes: &[usize]) -> Option<u64> {
        stages(sizes)
            .map(|(first, last)| self.get(first, last))
            .try_fold(0, |most, peak| Some(peak?.max(most)))
    }
}

/// First and last layer of each stage.
fn stages(sizes: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    sizes.iter().scan(0, |first, &size| {
        let stage = (*first, *first + size - 1);
        *first += size;
        Some(stage)
    })
}

/// Every way to cut `layers` layers into `devices` stages, in the order of their sizes.
pub(crate) fn partitionings(layers: usize, devices: usize) -> Vec<Vec<usize>> {
    match devices {
        0 => Vec::new(),
        1 if layers > 0 => vec![vec![layers]],
        _ => (1..layers)
            .flat_map(|size| {
                let rests = partitionings(layers - size, devices - 1);
                rests.into_iter().map(move |rest| [vec![size], rest].concat())
            })
            .collect(),
    }
}

/// Every partitioning of which all stages are known on both sides.
pub(crate) fn highest_peaks(predicted: &StagePeaks, measured: &StagePeaks, devices: usize) -> Vec<PlanPeak> {
    partitionings(measured.layers, devices)
        .into_iter()
        .filter_map(|sizes| {
            let (predicted, measured) = (predicted.highest(&sizes)?, measured.highest(&sizes)?);
            Some(PlanPeak { sizes, predicted, measured })
        })
        .collect()
}

/// The measured highest peak of the partitioning that the recommender's search picks from the predicted
/// peaks, and the lowest measured one of all partitionings.
pub(crate) fn chosen_and_best(
    predicted: &StagePeaks,
    measured: &StagePeaks,
    devices: usize,
) -> Option<(PlanPeak, PlanPeak)> {
    let all = highest_peaks(predicted, measured, devices);
    let best = all.iter().min_by_key(|plan| plan.measured)?.clone();
    let chosen = recommended(predicted, devices)?;
    let chosen = all.into_iter().find(|plan| plan.sizes == chosen)?;
    Some((chosen, best))
}

/// The sizes of the stages that the recommender's search picks, on devices without a limit.
fn recommended(predicted: &StagePeaks, devices: usize) -> Option<Vec<usize>> {
    let link = Link { bytes_per_second: 1e9, latency_seconds: 0.0, origin: LinkOrigin::Assumed };
    let kind = Kind { name: "any".to_owned(), capacity: Bytes(u64::MAX), hourly_price: None };
    let node = node("node".to_owned(), 0, u32::try_from(devices).ok()?, [link; 2]);
    let fleet = fleet(vec![kind], vec![node]);
    let question = Question {
        costs: predicted,
        fleet: &fleet,
        places: &Places::in_order(&fleet, &[1], Spanning::Never),
        choices: &[0],
        schedule: Schedule::Gpipe,
        micro_batches: 1,
        stages: devices..=devices,
        cuts: &Cuts::anywhere(predicted.layers),
        within_capacity: false,
    };
    let found = leximax(&question, Unit::Bytes, &Stop::default());
    Some(found.best?.stages.iter().map(|stage| stage.last + 1 - stage.first).collect())
}

/// Stages of one device each, which cannot be run where they were not measured.
impl StageCosts for StagePeaks {
    fn layers(&self) -> usize {
        self.layers
    }

    fn choices(&self) -> &[Choice] {
        &[Choice::SINGLE]
    }

    fn seconds(&self, _: &StageAt) -> Option<Seconds> {
        None
    }

    fn peak(&self, stage: &StageAt, _: u32) -> Option<Peak> {
        let bytes = self.get(stage.first, stage.last)?;
        Some(Peak { bytes, needed: bytes })
    }

    fn cut_seconds(&self, _: usize, _: LinkId, _: usize) -> f64 {
        0.0
    }

    fn cut_seconds_over(&self, _: usize, _: Link, _: usize) -> f64 {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// VGG11's layers over four devices, as METHODS counts them: C(29, 3).
    #[test]
    fn all_partitionings_are_counted() {
        assert_eq!(partitionings(30, 4).len(), 3_654);
        assert_eq!(partitionings(42, 4).len(), 10_660);
        assert_eq!(partitionings(3, 2), [vec![1, 2], vec![2, 1]]);
        assert!(partitionings(2, 3).is_empty());
    }

    fn peaks(layers: usize, of: impl Fn(usize, usize) -> u64) -> StagePeaks {
        let mut peaks = StagePeaks::new(layers);
        for first in 0..layers {
            for last in first..layers {
                peaks.insert(first, last, of(first, last));
            }
        }
        peaks
    }

    /// A perfect prediction chooses the best plan; a wrong one is charged with what its plan really needs.
    #[test]
    fn a_choice_is_judged_by_what_it_really_needs() {
        let weights = [5, 1, 1, 1, 1, 1];
        let truth = peaks(6, |first, last| weights[first..=last].iter().sum());
        let (chosen, best) = chosen_and_best(&truth, &truth, 2).unwrap();
        assert_eq!((chosen.measured, best.measured, best.sizes), (5, 5, vec![1, 5]));
        let blind = peaks(6, |first, last| (last + 1 - first) as u64);
        let (chosen, best) = chosen_and_best(&blind, &truth, 2).unwrap();
        assert_eq!((chosen.sizes, chosen.predicted, chosen.measured, best.measured), (vec![3, 3], 3, 7, 5));
    }

    /// A stage that was not measured takes its partitionings out, instead of counting as nothing.
    #[test]
    fn partitionings_with_an_unknown_stage_are_left_out() {
        let truth = peaks(4, |_, _| 1);
        let mut gaps = StagePeaks::new(4);
        for (first, last) in [(0, 0), (1, 3), (0, 1)] {
            gaps.insert(first, last, 2);
        }
        let known = highest_peaks(&gaps, &truth, 2);
        assert_eq!(known, [PlanPeak { sizes: vec![1, 3], predicted: 2, measured: 1 }]);
    }
}
