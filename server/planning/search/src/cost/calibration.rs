//! Prices multiplied with what earlier trainings taught.

use std::ops::Range;

use crate::{Choice, KindSet, Link, LinkId, Peak, Seconds, StageAt, StageCosts};

/// Factors on the predictions for one kind of device; 1 where nothing was learnt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Factors {
    pub bytes: f64,
    pub seconds: f64,
}

impl Factors {
    /// What changes nothing.
    pub const NONE: Self = Self { bytes: 1.0, seconds: 1.0 };
}

/// Corrected prices. Of several kinds of device the largest factor counts, as the slowest and the largest of
/// them does. All seconds are multiplied, transfers too, because a factor is learnt from whole iterations.
#[derive(Debug)]
pub struct CalibratedCosts<C> {
    costs: C,
    /// By kind, in the fleet's order; none where all of them change nothing.
    factors: Vec<Factors>,
}

impl<C> CalibratedCosts<C> {
    /// Corrects prices by kind.
    pub fn new(costs: C, mut factors: Vec<Factors>) -> Self {
        if factors.iter().all(|of| *of == Factors::NONE) {
            factors.clear();
        }
        Self { costs, factors }
    }

    fn largest(&self, kinds: KindSet, of: fn(&Factors) -> f64) -> f64 {
        kinds
            .kinds()
            .filter_map(|kind| self.factors.get(kind))
            .map(of)
            .fold(None, |most, factor| Some(most.map_or(factor, |most: f64| most.max(factor))))
            .unwrap_or(1.0)
    }

    /// What is sent between stages is multiplied with, whatever devices these are on.
    fn factor_of_cuts(&self) -> f64 {
        self.factors.iter().map(|factors| factors.seconds).reduce(f64::max).unwrap_or(1.0)
    }
}

impl<C: StageCosts> StageCosts for CalibratedCosts<C> {
    fn layers(&self) -> usize {
        self.costs.layers()
    }

    fn choices(&self) -> &[Choice] {
        self.costs.choices()
    }

    fn seconds(&self, stage: &StageAt) -> Option<Seconds> {
        if self.factors.is_empty() {
            return self.costs.seconds(stage);
        }
        let factor = self.largest(stage.kinds, |factors| factors.seconds);
        self.costs.seconds(stage).map(|of| Seconds {
            forward: of.forward * factor,
            backward: of.backward * factor,
            step: of.step * factor,
        })
    }

    fn peak(&self, stage: &StageAt, in_flight: u32) -> Option<Peak> {
        if self.factors.is_empty() {
            return self.costs.peak(stage, in_flight);
        }
        let factor = self.largest(stage.kinds, |factors| factors.bytes);
        let times = |bytes: u64| if factor == 1.0 { bytes } else { (bytes as f64 * factor).ceil() as u64 };
        self.costs
            .peak(stage, in_flight)
            .map(|peak| Peak { bytes: times(peak.bytes), needed: times(peak.needed) })
    }

    fn peaks(&self, stage: &StageAt, lasts: Range<usize>, in_flight: u32) -> Vec<Option<Peak>> {
        if self.factors.is_empty() {
            return self.costs.peaks(stage, lasts, in_flight);
        }
        lasts.map(|last| self.peak(&StageAt { last, ..*stage }, in_flight)).collect()
    }

    fn adds_up(&self) -> bool {
        self.costs.adds_up()
    }

    fn cut_seconds(&self, layer: usize, link: LinkId, choice: usize) -> f64 {
        self.costs.cut_seconds(layer, link, choice) * self.factor_of_cuts()
    }

    fn cut_seconds_over(&self, layer: usize, link: Link, choice: usize) -> f64 {
        self.costs.cut_seconds_over(layer, link, choice) * self.factor_of_cuts()
    }
}
