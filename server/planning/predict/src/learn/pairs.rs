//! Figures that were predicted and measured, and what they have in common.

use std::fmt;

use loadmaster_proto::accounting::Accounting;
use serde::{Deserialize, Serialize};

/// What is predicted and measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Peak bytes of a stage's device with the highest peak, in this memory accounting.
    PeakBytes(Accounting),
    IterationSeconds,
    /// Seconds of an iteration in which a stage's device waited for copies over this link.
    WaitedSeconds(Link),
    /// Bytes that copies over this link moved in an iteration, one way.
    CopiedBytes(Link),
}

/// What a stage's device copies to and from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// The memory of its host.
    Host,
    /// The memory of other devices.
    Peers,
}

impl Link {
    /// As filters and documents write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Peers => "peers",
        }
    }
}

impl Quantity {
    /// Its place in lists: seconds before bytes, these by memory accounting, and what is copied by link.
    fn order(self) -> u8 {
        match self {
            Self::IterationSeconds => 0,
            Self::PeakBytes(Accounting::Allocated) => 1,
            Self::PeakBytes(Accounting::Reserved) => 2,
            Self::PeakBytes(Accounting::Device) => 3,
            Self::PeakBytes(Accounting::Host) => 4,
            Self::WaitedSeconds(Link::Host) => 5,
            Self::WaitedSeconds(Link::Peers) => 6,
            Self::CopiedBytes(Link::Host) => 7,
            Self::CopiedBytes(Link::Peers) => 8,
        }
    }

    /// Whether 0 is as good as any other value of it. Then there may be no ratio of what was predicted to what was measured, and
    /// an error is a difference, in bytes or seconds.
    pub fn may_be_zero(self) -> bool {
        match self {
            Self::PeakBytes(_) | Self::IterationSeconds => false,
            Self::WaitedSeconds(_) | Self::CopiedBytes(_) => true,
        }
    }

    /// Whether a factor may mend its predictions. What is copied, and what of it is at the host, follows from the plan to the byte: a
    /// factor would hide what is wrong. A wait is what two lanes leave over, often nothing: no factor makes something of that.
    pub fn is_corrected(self) -> bool {
        match self {
            Self::PeakBytes(ledger) => ledger != Accounting::Host,
            Self::IterationSeconds => true,
            Self::WaitedSeconds(_) | Self::CopiedBytes(_) => false,
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PeakBytes(ledger) => write!(f, "peak bytes ({} accounting)", ledger.as_str()),
            Self::IterationSeconds => f.write_str("seconds of an iteration"),
            Self::WaitedSeconds(link) => write!(f, "seconds waited for copies ({})", link.as_str()),
            Self::CopiedBytes(link) => write!(f, "bytes copied ({})", link.as_str()),
        }
    }
}

/// What pairs have in common that can be judged together.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Subject {
    pub device_kind: String,
    /// Name and version of the predictor.
    pub predictor: String,
    /// What was predicted.
    pub quantity: Quantity,
}

impl Subject {
    fn order(&self) -> (&str, &str, u8) {
        (&self.device_kind, &self.predictor, self.quantity.order())
    }
}

/// One figure of a plan, predicted and measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    /// What it is a figure of.
    pub subject: Subject,
    /// The plan: figures of one plan are alike, so that they count as one voice where a factor is learnt.
    pub plan: String,
    /// As the predictor made it, uncorrected: bytes or seconds.
    pub predicted: f64,
    /// In the same unit.
    pub measured: f64,
}

impl Pair {
    /// How far the prediction is off, below 0 where it is too low: predicted / measured − 1, or predicted − measured of what
    /// [may be 0](Quantity::may_be_zero). None of pairs from which nothing follows.
    pub fn error(&self) -> Option<f64> {
        let (predicted, measured) = (self.predicted, self.measured);
        let error = if self.subject.quantity.may_be_zero() {
            (predicted >= 0.0 && measured >= 0.0).then_some(predicted - measured)?
        } else {
            self.ratio().map(|_| predicted / measured - 1.0)?
        };
        error.is_finite().then_some(error)
    }

    /// Measured by predicted; none where one of them is not a number above 0, from which nothing follows.
    pub(super) fn ratio(&self) -> Option<f64> {
        let usable = |value: f64| value.is_finite() && value > 0.0;
        let ratio = self.measured / self.predicted;
        (usable(self.measured) && usable(self.predicted) && usable(ratio)).then_some(ratio)
    }
}

/// The usable pairs by subject, in a fixed order.
pub(super) fn by_subject(pairs: &[Pair]) -> Vec<(&Subject, Vec<&Pair>)> {
    let mut usable: Vec<&Pair> = pairs.iter().filter(|pair| pair.error().is_some()).collect();
    usable.sort_by(|a, b| {
        let figures = |pair: &Pair| (pair.predicted, pair.measured);
        let by_name = a.subject.order().cmp(&b.subject.order()).then_with(|| a.plan.cmp(&b.plan));
        by_name.then_with(|| {
            let ((p, m), (q, n)) = (figures(a), figures(b));
            p.total_cmp(&q).then(m.total_cmp(&n))
        })
    });
    let groups = usable.chunk_by(|a, b| a.subject == b.subject);
    groups.filter_map(|group| Some((&group.first()?.subject, group.to_vec()))).collect()
}

/// The value below which a share of `sorted` lies, on a straight line between neighbours; 0 of nothing.
pub(super) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let position = share * (sorted.len().saturating_sub(1)) as f64;
    let (low, high) = (position.floor() as usize, position.ceil() as usize);
    match (sorted.get(low), sorted.get(high)) {
        (Some(low_value), Some(high_value)) => {
            low_value + (high_value - low_value) * (position - position.floor())
        }
        _ => 0.0,
    }
}
