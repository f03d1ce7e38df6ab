//! Plans that a predictor which sees more than blocks agrees to.

use super::{PaperError, PaperPlan, Question, plan};

/// Times that bytes are left free for what was missing.
const MOST_TRIES: usize = 8;

/// The paper's plan, held to somebody who says by how many bytes each stage's device, with its pools, is too small for a
/// plan's actions. What was missing is left free, and the plan made again; none where that does not end.
///
/// # Errors
/// As [`plan`], and those of `lacks`.
pub fn plan_held_to<E: From<PaperError>>(
    question: &Question<'_>,
    mut lacks: impl FnMut(&PaperPlan) -> Result<Vec<u64>, E>,
) -> Result<Option<PaperPlan>, E> {
    let mut reserve: Vec<u64> = (0..question.stages.len()).map(|stage| question.reserve(stage)).collect();
    for _ in 0..MOST_TRIES {
        let plan = plan(&Question { reserve: &reserve, ..*question })?;
        let missing = lacks(&plan)?;
        if missing.iter().all(|&bytes| bytes == 0) {
            return Ok(Some(plan));
        }
        for (reserve, missing) in reserve.iter_mut().zip(missing) {
            *reserve = reserve.saturating_add(missing);
        }
    }
    Ok(None)
}
