//! From stages to whole partitionings: every stage is measured once, every partitioning is made of them.

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

    fn get(&self, first: usize, last: usize) -> Option<u64> {
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
fn partitionings(layers: usize, devices: usize) -> Vec<Vec<usize>> {
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

/// The partitioning whose predicted peaks are lowest, the highest one first, as recommendations choose it, and the one whose
/// measured highest peak is lowest.
pub(crate) fn chosen_and_best(
    predicted: &StagePeaks,
    measured: &StagePeaks,
    devices: usize,
) -> Option<(PlanPeak, PlanPeak)> {
    let all = highest_peaks(predicted, measured, devices);
    let peaks = |plan: &&PlanPeak| {
        let mut peaks: Vec<Option<u64>> =
            stages(&plan.sizes).map(|(first, last)| predicted.get(first, last)).collect();
        peaks.sort_unstable_by(|a, b| b.cmp(a));
        peaks
    };
    let chosen = all.iter().min_by_key(peaks)?.clone();
    Some((chosen, all.into_iter().min_by_key(|plan| plan.measured)?))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // VGG11's layers over four devices, as METHODS counts them: C(29, 3).
        assert_eq!(partitionings(30, 4).len(), 3_654);
        assert_eq!((partitionings(3, 2), partitionings(2, 3)), (vec![vec![1, 2], vec![2, 1]], vec![]));
        let weights = [5, 1, 1, 1, 1, 1];
        let truth = peaks(6, |first, last| weights[first..=last].iter().sum());
        let (chosen, best) = chosen_and_best(&truth, &truth, 2).unwrap();
        assert_eq!((chosen.measured, best.measured, best.sizes), (5, 5, vec![1, 5]));
        let blind = peaks(6, |first, last| (last + 1 - first) as u64);
        let (chosen, best) = chosen_and_best(&blind, &truth, 2).unwrap();
        assert_eq!((chosen.sizes, chosen.predicted, chosen.measured, best.measured), (vec![3, 3], 3, 7, 5));
        // A stage that was not measured takes its partitionings out, instead of counting as nothing.
        let mut gaps = StagePeaks::new(6);
        for (first, last) in [(0, 0), (1, 5), (0, 1)] {
            gaps.insert(first, last, 2);
        }
        let known = highest_peaks(&gaps, &truth, 2);
        assert_eq!(known, [PlanPeak { sizes: vec![1, 5], predicted: 2, measured: 5 }]);
    }
}
