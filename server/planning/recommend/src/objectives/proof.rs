//! How good an answer is in its objective's terms.

use loadmaster_proto::amounts::Seconds;
use loadmaster_proto::plan::findings::{Certificate, Rejected};

use crate::result::{QuestionError, RecommendError};

/// Most alternatives that a certificate names.
const NAMED: usize = 3;

/// What a search for an objective came to.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// States weighed.
    pub(crate) states: u64,
    /// Whether it was stopped.
    pub(crate) is_stopped: bool,
    /// The best value that is not proven impossible; none yet.
    pub(crate) doubtful: Option<f64>,
    /// What has no plan, as far as anything was found, with the value that it would have had.
    pub(crate) passed_over: Vec<Rejected>,
}

impl Progress {
    /// Notes what has no plan.
    pub(crate) fn pass_over(&mut self, what: String, value: f64, is_proven: bool) {
        if !is_proven {
            self.doubtful = self.doubtful.or(Some(value));
        }
        let reason = if is_proven {
            "nothing that is allowed makes a plan fit within the limits"
        } else {
            "no plan was found that fits within the limits, which is not proven impossible"
        };
        self.passed_over.push(Rejected { what, value: Some(value), reason: reason.to_owned() });
    }

    /// The certificate of a plan of this value, where nothing better is possible but what is doubtful.
    pub(crate) fn certificate(mut self, value: f64, unit: &str) -> Certificate {
        // The nearest come last.
        self.passed_over.reverse();
        self.passed_over.truncate(NAMED);
        let bound = self.doubtful.unwrap_or(value);
        Certificate {
            value,
            bound: Some(bound),
            gap: (bound > 0.0).then(|| ((value - bound) / bound).abs()),
            unit: unit.to_owned(),
            proven: bound == value,
            stopped: self.is_stopped,
            states: self.states,
            rejected: self.passed_over,
            fetches_fewest: false,
        }
    }
}

/// What is told of the seconds of a plan that is best at something else.
pub(crate) fn seconds_note(among: &str, of: &Certificate) -> String {
    let bound =
        of.bound.map_or_else(String::new, |bound| format!(", and none of them is below {}", Seconds(bound)));
    let own = Seconds(of.value);
    format!("{among} this is the fastest plan that was found, with {own} for an iteration{bound}")
}

/// Whether an error says that no plan was found, instead of what is wrong with the question.
pub(crate) fn is_nothing_found(error: &RecommendError) -> bool {
    matches!(
        error,
        RecommendError::NoPlan { .. }
            | RecommendError::Limits { .. }
            | RecommendError::GivenDoesNotFit { .. }
            | RecommendError::Stopped
    )
}

/// Such an error.
///
/// # Errors
/// Any other one.
pub(crate) fn nothing_found(error: QuestionError) -> Result<RecommendError, QuestionError> {
    match error {
        QuestionError::Recommend(error) if is_nothing_found(&error) => Ok(error),
        other => Err(other),
    }
}
