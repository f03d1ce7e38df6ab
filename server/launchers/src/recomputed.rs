//! What stages compute again by memory actions, as launchers count it.
//!
//! Nothing else that an action does is said by any launcher's file, and neither is what differs from one micro-batch to another.

use std::ops::RangeInclusive;

use loadmaster_proto::model::Model;
use loadmaster_proto::plan::PlanStage;
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::actions::Form;

use crate::question::{ExportQuestion, Refused, all_or};
use crate::refusal::StageRefusal;

/// Runs of layers of a stage that are computed again, in order.
pub(crate) type Runs = Vec<RangeInclusive<usize>>;

impl ExportQuestion<'_> {
    /// The runs of every stage; none in a plan without memory actions, whose stages have policies.
    ///
    /// # Errors
    /// Each stage that does something else.
    pub(crate) fn recomputed_runs(&self) -> Result<Option<Vec<Runs>>, Refused> {
        let stages = &self.plan.stages;
        let acts = stages.iter().any(|stage| !stage.actions.is_empty());
        let (mut all, mut refused) = (Vec::with_capacity(stages.len()), Vec::new());
        for (index, stage) in stages.iter().enumerate() {
            match runs(stage, acts) {
                Ok(runs) => all.push(runs),
                Err(why) => refused.push(StageRefusal::of_stage(index, why)),
            }
        }
        all_or(refused)?;
        Ok(acts.then_some(all))
    }

    /// What stands with the first form that says the runs of all stages.
    ///
    /// # Errors
    /// Each stage that does otherwise, by the form that fewest of them miss; `can` is what the launcher computes again.
    pub(crate) fn counted<T>(
        &self,
        model: &Model,
        runs: &[Runs],
        forms: impl IntoIterator<Item = (Form, T)>,
        can: &str,
    ) -> Result<T, Refused> {
        let mut fewest: Option<Vec<usize>> = None;
        for (form, told) in forms {
            let stages = self.plan.stages.iter().zip(runs).enumerate();
            let differs = |(_, (stage, runs)): &(usize, (&PlanStage, &Runs))| {
                form.runs(model, stage.config.layers()) != **runs
            };
            let others: Vec<usize> = stages.filter(differs).map(|(index, _)| index).collect();
            if others.is_empty() {
                return Ok(told);
            }
            if fewest.as_ref().is_none_or(|fewest| others.len() < fewest.len()) {
                fewest = Some(others);
            }
        }
        let every = || (0..runs.len()).filter(|&stage| !runs[stage].is_empty()).collect();
        let others = fewest.unwrap_or_else(every).into_iter();
        Err(others.map(|stage| not_counted(stage, runs.get(stage), can)).collect())
    }

    /// Layers of the longest stage.
    pub(crate) fn longest_stage(&self) -> usize {
        self.plan.stages.iter().map(|stage| stage.config.layer_count()).max().unwrap_or(0)
    }
}

/// A stage whose runs a launcher does not count so.
pub(crate) fn not_counted(stage: usize, runs: Option<&Runs>, can: &str) -> StageRefusal {
    let what = match runs.map_or(&[][..], Vec::as_slice) {
        [] => "nothing".to_owned(),
        runs => {
            let words = runs.iter().map(|run| match (run.start(), run.end()) {
                (first, last) if first == last => format!("layer {first}"),
                (first, last) => format!("layers {first} to {last} at once"),
            });
            words.collect::<Vec<_>>().join(", ")
        }
    };
    StageRefusal::of_stage(stage, format!("computes {what} again, and this launcher {can}"))
}

/// The runs of a stage of a plan, some of whose stages act or none.
fn runs(stage: &PlanStage, acts: bool) -> Result<Runs, String> {
    if stage.chunks.is_some() {
        return Err("trains in chunks, which this export cannot say: recommend a plan without".to_owned());
    }
    if acts && stage.recompute != RecomputePolicy::None {
        let policy = stage.recompute;
        return Err(format!(
            "computes again what {policy} says, beside stages that do so by memory actions: this export says one of the two"
        ));
    }
    let actions = &stage.actions;
    let runs = actions.recomputed_alike().map_err(|index| {
        let action = actions.actions.get(index).map(ToString::to_string).unwrap_or_default();
        format!(
            "does {action}, and this export says of memory actions only what all micro-batches compute again: recommend a plan \
             without"
        )
    })?;
    if actions.host_pool.0 > 0 || !actions.hosted.is_empty() {
        let why = "sets memory aside for blocks that are away, which this export cannot say: recommend a plan without";
        return Err(why.to_owned());
    }
    Ok(runs)
}
