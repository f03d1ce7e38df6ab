//! Factors that are learnt from pairs of predicted and measured figures.

use std::collections::HashMap;

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::model::layer::fingerprint;
use loadmaster_proto::plan::findings::AppliedCorrection;
use serde::{Deserialize, Serialize};

use super::pairs::{Pair, Quantity, Subject, by_subject, quantile};

/// Name and version of the method. A change that may change a factor changes it.
pub const METHOD: &str = "correction/1";

/// Fewest plans that a factor is learnt from: two may agree by chance.
pub const LEAST_PLANS: usize = 3;

/// Within which factors stay. A prediction that is further off is wrong in a way that no factor mends.
const RANGE: (f64, f64) = (0.5, 2.0);

/// Characters of the pairs' hash in a version.
const HASH_LENGTH: usize = 16;

/// A factor on predictions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Correction {
    /// What it corrects.
    pub subject: Subject,
    /// `correction/1+{hash}`: the method, and a hash of the pairs that it was learnt from. Equal versions are
    /// equal factors.
    pub version: String,
    /// What predictions are multiplied with, 0.5 to 2.
    pub factor: f64,
    /// Pairs that it was learnt from.
    pub count: usize,
    /// Distinct plans that they are of: each has one voice.
    pub plans: usize,
    /// How it came about, human-readable.
    pub explanation: String,
}

impl Correction {
    /// As plans keep it.
    pub fn applied(&self) -> AppliedCorrection {
        AppliedCorrection {
            device_kind: self.subject.device_kind.clone(),
            predictor: self.subject.predictor.clone(),
            ledger: match self.subject.quantity {
                Quantity::PeakBytes(ledger) => Some(ledger),
                Quantity::IterationSeconds | Quantity::WaitedSeconds(_) | Quantity::CopiedBytes(_) => None,
            },
            version: self.version.clone(),
            factor: self.factor,
            count: self.count,
            plans: self.plans,
            explanation: self.explanation.clone(),
        }
    }
}

/// Corrections by kind of device, predictor and quantity.
///
/// ```
/// use loadmaster_predict::learn::{Corrections, Pair, Quantity, Subject};
///
/// let pair = |plan: &str, measured| Pair {
///     subject: Subject {
///         device_kind: "cpu".to_owned(),
///         predictor: "component/2".to_owned(),
///         quantity: Quantity::IterationSeconds,
///     },
///     plan: plan.to_owned(),
///     predicted: 10.0,
///     measured,
/// };
/// let learnt = Corrections::of(&[pair("a", 11.0), pair("b", 12.0), pair("c", 19.0)]);
/// assert_eq!(learnt.seconds("cpu", "component/2").map(|of| of.factor), Some(1.2), "the median");
/// assert_eq!(learnt.seconds("cuda", "component/2"), None);
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Corrections {
    learnt: HashMap<Subject, Correction>,
}

impl Corrections {
    /// Learns a factor for every subject that is corrected ([`Quantity::is_corrected`]) and has pairs of at least
    /// [`LEAST_PLANS`] plans. It is the median
    /// over the plans of each plan's median of measured / predicted. So a plan that was tried a hundred
    /// times, or has a hundred stages, is one voice, and one plan gone wrong moves nothing. The order of
    /// the pairs does not matter.
    pub fn of(pairs: &[Pair]) -> Self {
        let learnt = by_subject(pairs)
            .into_iter()
            .filter(|(subject, _)| subject.quantity.is_corrected())
            .filter_map(|(subject, pairs)| Some((subject.clone(), learn(subject, &pairs)?)))
            .collect();
        Self { learnt }
    }

    /// The versions of all of them, in order: equal versions are equal corrections.
    pub fn versions(&self) -> Vec<&str> {
        let mut versions: Vec<&str> = self.learnt.values().map(|of| of.version.as_str()).collect();
        versions.sort_unstable();
        versions
    }

    /// For peaks in a memory accounting; none where too little was measured.
    pub fn bytes(&self, device_kind: &str, predictor: &str, ledger: Accounting) -> Option<&Correction> {
        self.get(device_kind, predictor, Quantity::PeakBytes(ledger))
    }

    /// For seconds of iterations; none where too little was measured.
    pub fn seconds(&self, device_kind: &str, predictor: &str) -> Option<&Correction> {
        self.get(device_kind, predictor, Quantity::IterationSeconds)
    }

    /// For any subject; none where too little was measured.
    pub fn get(&self, device_kind: &str, predictor: &str, quantity: Quantity) -> Option<&Correction> {
        let (device_kind, predictor) = (device_kind.to_owned(), predictor.to_owned());
        self.learnt.get(&Subject { device_kind, predictor, quantity })
    }
}

/// `pairs` are sorted by plan.
fn learn(subject: &Subject, pairs: &[&Pair]) -> Option<Correction> {
    let mut plans: Vec<f64> =
        pairs.chunk_by(|a, b| a.plan == b.plan).map(|of_plan| median(ratios(of_plan))).collect();
    if plans.len() < LEAST_PLANS {
        return None;
    }
    plans.sort_by(f64::total_cmp);
    let found = quantile(&plans, 0.5);
    let factor = found.clamp(RANGE.0, RANGE.1);
    let (least, most) = (quantile(&plans, 0.0), quantile(&plans, 1.0));
    let hash: String = fingerprint(&pairs).chars().take(HASH_LENGTH).collect();
    let mut explanation = format!(
        "{} of {} on {}: the ratio of measured to predicted values is {found:.3}. It is the median of {} plans ({} \
         pairs of values), whose ratios range from {least:.3} to {most:.3}",
        subject.quantity,
        subject.predictor,
        subject.device_kind,
        plans.len(),
        pairs.len(),
    );
    if found != factor {
        explanation.push_str(&format!("; the calibration factor is limited to {factor}"));
    }
    Some(Correction {
        subject: subject.clone(),
        version: format!("{METHOD}+{hash}"),
        factor,
        count: pairs.len(),
        plans: plans.len(),
        explanation,
    })
}

fn ratios(pairs: &[&Pair]) -> Vec<f64> {
    pairs.iter().filter_map(|pair| pair.ratio()).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    quantile(&values, 0.5)
}
