//! The margin of the paper's predictor, which the paper does not give.
//!
//! A campaign of whole partitionings measures stages that no metric is derived from: the rests that the
//! last devices hold. They were held out, so they are predicted and compared. The margin of a scenario
//! is its largest error and a quarter more, because the stages that are asked about later are not those.
//! Where nothing was held out (campaign `stages`) the margin is unknown, and is said to be.

use std::collections::BTreeMap;

use loadmaster_proto::training::scenario::Scenario;

use super::{Capture, NamedPeak};

/// What the largest error is multiplied by.
const ALLOWANCE: f64 = 1.25;

/// By scenario: the share of a prediction by which the real peak may lie above or below it.
pub(super) fn margins(capture: &Capture, peaks: &[NamedPeak]) -> BTreeMap<Scenario, f64> {
    let mut margins: BTreeMap<Scenario, f64> = BTreeMap::new();
    let held_out = peaks.iter().map(|named| named.peak).filter(|peak| {
        let stage = (peak.setting, peak.first_layer, peak.last_layer);
        !capture.sources.uses(stage)
    });
    for peak in held_out {
        let stage = peak.setting.scenario.stage(peak.first_layer, peak.last_layer);
        let size = peak.setting.micro_batch_size;
        // A check that cannot be predicted (a gap) checks nothing.
        let Ok(prediction) = capture.peak(stage, size, peak.setting.in_flight) else { continue };
        let error = prediction.bytes.0.abs_diff(peak.peak.0) as f64 / prediction.bytes.0.max(1) as f64;
        let margin = margins.entry(peak.setting.scenario).or_default();
        *margin = margin.max(ALLOWANCE * error);
    }
    margins
}
