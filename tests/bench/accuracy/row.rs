//! One comparison: what was predicted and what was measured.

use loadmaster_proto::accounting::Accounting;

/// Which of the goals a comparison belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Group {
    /// A stage on one device at up to twice the profiled micro-batch.
    Stages,
    /// A whole partitioning: the highest peak of its stages, which were measured one by one.
    Partitionings,
    /// Data- and tensor-parallel stages of degree 2 and 4, which are profiled.
    Parallel,
    /// Degree 8 and 16, and four times the profiled micro-batch.
    Extrapolated,
    /// Stages in bf16, or of odd extents, at micro-batches on both sides of the recorded ones.
    Odd,
    /// Plans that others measured, from an imported table.
    Imported,
}

impl Group {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stages => "stages",
            Self::Partitionings => "partitionings, composed",
            Self::Parallel => "degree 2, 4",
            Self::Extrapolated => "extrapolated",
            Self::Odd => "bf16, odd sizes",
            Self::Imported => "imported",
        }
    }
}

/// A comparison.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) study: String,
    pub(crate) model: String,
    /// `none`, `data 4`, `tensor 2`.
    pub(crate) parallelism: String,
    pub(crate) group: Group,
    pub(crate) predictor: &'static str,
    /// Layers, or layers per stage.
    pub(crate) stage: String,
    pub(crate) micro_batch_size: u32,
    pub(crate) in_flight: u32,
    pub(crate) ledger: Accounting,
    /// Bytes of the fullest device.
    pub(crate) measured: u64,
    /// What the predictor predicts, or why it does not.
    pub(crate) answer: Result<Answer, String>,
}

/// A prediction: bytes, with the margin that is advertised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Answer {
    pub(crate) bytes: u64,
    pub(crate) margin: Option<f64>,
}

impl Row {
    /// Relative error, below zero where too little was predicted; none where nothing was.
    pub(crate) fn error(&self) -> Option<f64> {
        Some(self.answer.as_ref().ok()?.bytes as f64 / self.measured as f64 - 1.0)
    }

    /// Whether the device would have had room had it been given the prediction and its margin; none
    /// where no margin was advertised.
    pub(crate) fn is_covered(&self) -> Option<bool> {
        let Answer { bytes, margin } = self.answer.as_ref().ok()?;
        Some(self.measured as f64 <= *bytes as f64 * (1.0 + (*margin)?))
    }

    /// The advertised margin.
    pub(crate) fn margin(&self) -> Option<f64> {
        self.answer.as_ref().ok()?.margin
    }
}

#[cfg(test)]
pub(crate) fn example(
    group: Group,
    predictor: &'static str,
    measured: u64,
    bytes: u64,
    margin: Option<f64>,
) -> Row {
    Row {
        study: "study".to_owned(),
        model: "model".to_owned(),
        parallelism: "none".to_owned(),
        group,
        predictor,
        stage: "0..1".to_owned(),
        micro_batch_size: 2,
        in_flight: 4,
        ledger: Accounting::Allocated,
        measured,
        answer: Ok(Answer { bytes, margin }),
    }
}
