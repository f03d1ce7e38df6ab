//! A run that somebody measured, and what the service says of it.

/// A measured run.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) name: String,
    /// The job and its devices: runs of one group are choices for the same thing.
    pub(super) group: String,
    /// Seconds of an iteration.
    pub(super) measured: f64,
    /// What was answered, in the order of the ways to ask.
    pub(super) answers: Vec<Answer>,
}

/// Seconds of an iteration, predicted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Answer {
    /// Simulated: what plans are ranked by.
    pub(super) seconds: f64,
    /// By AMP's closed form (equation 5).
    pub(super) closed_form: f64,
    /// Whether transfers overlap computing, and why, as the answer tells it.
    pub(super) transfers: String,
}

impl Case {
    /// predicted / measured − 1, asked in this way.
    pub(super) fn error(&self, way: usize) -> f64 {
        self.predicted(way) / self.measured - 1.0
    }

    /// Predicted seconds, asked in this way.
    pub(super) fn predicted(&self, way: usize) -> f64 {
        self.answers.get(way).map_or(f64::NAN, |answer| answer.seconds)
    }
}
