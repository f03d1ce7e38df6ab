//! Answers that were given before.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// Most answers that are remembered: then all are forgotten.
const MAX_ANSWERS: usize = 1 << 16;

/// Answers by question. It changes no answer, only when it is worked out.
#[derive(Debug)]
pub(super) struct Memo<Question, Answer>(Mutex<HashMap<Question, Arc<Answer>>>);

impl<Question, Answer> Default for Memo<Question, Answer> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<Question: Eq + Hash, Answer> Memo<Question, Answer> {
    /// The answer to a question, worked out if it was not asked before. Failures are not remembered.
    pub(super) fn get<Failure>(
        &self,
        question: Question,
        work: impl FnOnce() -> Result<Answer, Failure>,
    ) -> Result<Arc<Answer>, Failure> {
        if let Some(answer) = self.answers(|answers| answers.get(&question).cloned()) {
            return Ok(answer);
        }
        // Not while others wait.
        let answer = Arc::new(work()?);
        self.answers(|answers| {
            if answers.len() >= MAX_ANSWERS {
                answers.clear();
            }
            answers.insert(question, answer.clone());
        });
        Ok(answer)
    }

    /// How many answers it holds.
    pub(super) fn len(&self) -> usize {
        self.answers(|answers| answers.len())
    }

    fn answers<T>(&self, with: impl FnOnce(&mut HashMap<Question, Arc<Answer>>) -> T) -> T {
        // A panic elsewhere cannot leave an answer half written.
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_worked_out_once_unless_it_failed() {
        let memo = Memo::default();
        assert_eq!(memo.get(1, || Err::<u32, _>("no")), Err("no"));
        assert_eq!(memo.get(1, || Ok::<_, &str>(5)), Ok(Arc::new(5)));
        assert_eq!(memo.get(1, || Err("not asked again")), Ok(Arc::new(5)));
        assert_eq!(memo.len(), 1);
    }
}
