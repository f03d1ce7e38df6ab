//! Memory actions of stages that take turns where a launcher is to say them: the few choices that it counts, one by one.

use std::collections::HashMap;
use std::rc::Rc;

use loadmaster_launchers::{Choices, Rules, Runs};
use loadmaster_proto::training::actions::StageActions;

use super::greedy_fit::GreedyFit;
use crate::memory_optimizations::FrameworkRules;
use crate::result::{QuestionError, RecommendError};
use loadmaster_predict::{ActionsPrediction, PredictionError};
use loadmaster_search::StageCosts;

impl<C: StageCosts> GreedyFit<'_, C> {
    /// The fastest of what the launcher can say that fits.
    ///
    /// # Errors
    /// None of it fits, or the search was stopped before any did.
    pub(super) fn expressible(
        &self,
        framework_rules: FrameworkRules<'_>,
    ) -> Result<Vec<StageActions>, QuestionError> {
        let mut replayed: HashMap<(usize, Runs), Rc<ActionsPrediction>> = HashMap::new();
        let mut best: Option<(Vec<StageActions>, f64)> = None;
        let mut nearest: Option<(i128, usize)> = None;
        for runs in self.choices(framework_rules) {
            if self.stop.is_requested() {
                break;
            }
            let mut acted = Vec::with_capacity(runs.len());
            for (stage, runs) in runs.iter().enumerate() {
                acted.push(self.computing_again(&mut replayed, stage, runs)?);
            }
            let look = self.looked(acted);
            let fullest = look.lacks.iter().enumerate().map(|(device, &lacks)| (lacks, device)).max();
            if let Some((lacks, device)) = fullest.filter(|(lacks, _)| *lacks > 0) {
                nearest = Some(nearest.filter(|(least, _)| *least <= lacks).unwrap_or((lacks, device)));
                continue;
            }
            let seconds = self.seconds_of(&look.acted)?;
            if best.as_ref().is_none_or(|(_, best)| seconds < *best) {
                best = Some((runs.iter().map(|runs| StageActions::recomputing(runs)).collect(), seconds));
            }
        }
        let Rules { launcher, recomputing, .. } = framework_rules.rules;
        match (best, nearest) {
            (Some((actions, _)), _) => Ok(actions),
            (None, Some((lacks, device))) if !self.stop.is_requested() => {
                let all = format!("with all that {launcher} can compute again ({recomputing})");
                Err(self.lacks_with(lacks, device, &all))
            }
            _ => Err(RecommendError::Stopped.into()),
        }
    }

    /// What stages may compute again, the least first. Who takes turns counts alike in all stages.
    fn choices(&self, framework_rules: FrameworkRules<'_>) -> Vec<Vec<Runs>> {
        let stages: Vec<_> = self.settings.iter().map(|setting| setting.stage.layers()).collect();
        match framework_rules.rules.recomputing.choices(framework_rules.model, &stages) {
            Some(Choices::Alike(all)) => all,
            None | Some(Choices::Each(_)) => vec![vec![Runs::new(); stages.len()]],
        }
    }

    fn computing_again(
        &self,
        replayed: &mut HashMap<(usize, Runs), Rc<ActionsPrediction>>,
        stage: usize,
        runs: &Runs,
    ) -> Result<Rc<ActionsPrediction>, PredictionError> {
        let key = (stage, runs.clone());
        if let Some(known) = replayed.get(&key) {
            return Ok(Rc::clone(known));
        }
        let acted = self.pipeline.replay(&self.settings[stage], &StageActions::recomputing(runs))?;
        replayed.insert(key, Rc::clone(&acted));
        Ok(acted)
    }
}
