//! Actions of stages that take turns, changed as long as that is faster: fewer of them, other ones, or one here instead of one there.

use std::collections::BTreeSet;

use loadmaster_proto::training::actions::{Absence, Block, Way};

use super::action_set::{ActionSet, Measure, orders};
use super::greedy_fit::{GreedyFit, MemoryUse};
use crate::result::QuestionError;
use loadmaster_search::StageCosts;

/// Most simulations of actions that fit.
const MOST_SIMULATIONS: u32 = 600;
/// Steps between a use of a block and its absence that are tried.
const STEPS: [u32; 4] = [0, 1, 2, 4];
/// By what share of itself an iteration must be faster to be another one.
const FASTER: f64 = 1e-9;

impl<C: StageCosts> GreedyFit<'_, C> {
    /// The same with less or other things done, while all fit, as far as that is faster: one change, or one thing undone and
    /// another done on the same device instead.
    pub(super) fn local_search(
        &self,
        mut best: (Vec<ActionSet>, f64),
    ) -> Result<Vec<ActionSet>, QuestionError> {
        loop {
            let before = best.1;
            for stage in 0..best.0.len() {
                if !self.improve_stage(stage, &mut best)? {
                    return Ok(best.0);
                }
            }
            if best.1 >= before * (1.0 - FASTER) {
                return Ok(best.0);
            }
        }
    }

    /// Takes what stages might do instead where one of them does one thing less or otherwise: false where there is no time for more.
    /// Long chains have very many such changes, so one is made at a time.
    fn improve_stage(&self, stage: usize, best: &mut (Vec<ActionSet>, f64)) -> Result<bool, QuestionError> {
        let all = best.0.clone();
        let look = self.look(&all)?;
        let device = stage % self.pipeline.interleaving.devices().max(1);
        let measures: BTreeSet<Measure> =
            orders(self.allowed).into_iter().flat_map(|(_, measures)| measures).collect();
        for (other, is_less) in self.others(stage, &all[stage], &measures, &look) {
            let mut with = all.clone();
            with[stage] = other;
            // Something else of the same device instead.
            for &measure in measures.iter().filter(|_| is_less) {
                for more in self.pipeline.interleaving.own(device) {
                    for layer in 0..with[more].saved.len() {
                        if with[more].has(measure, layer) {
                            continue;
                        }
                        let mut instead = with.clone();
                        if self.take(&mut instead[more], more, layer, measure, &look)
                            && instead != all
                            && !self.take_if_faster(instead, best)?
                        {
                            return Ok(false);
                        }
                    }
                }
            }
            if !self.take_if_faster(with, best)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes a change with which all fit and that is faster: false where there is no time for that.
    fn take_if_faster(
        &self,
        changed: Vec<ActionSet>,
        best: &mut (Vec<ActionSet>, f64),
    ) -> Result<bool, QuestionError> {
        if self.stop.is_requested() || self.simulations.get() >= MOST_SIMULATIONS {
            return Ok(false);
        }
        let look = self.look(&changed)?;
        if look.fits() && look.host <= self.allowed.host_memory.0 {
            let then = self.seconds_of(&look.acted)?;
            if then < best.1 * (1.0 - FASTER) {
                *best = (changed, then);
            }
        }
        Ok(true)
    }

    /// What a stage might do instead, one change each: copies with more or less time, a layer that keeps what it saves or has it
    /// elsewhere, a block that stays. And whether that does less.
    fn others(
        &self,
        stage: usize,
        deeds: &ActionSet,
        measures: &BTreeSet<Measure>,
        look: &MemoryUse,
    ) -> Vec<(ActionSet, bool)> {
        let mut others = Vec::new();
        let moves =
            !deeds.lasting.is_empty() || deeds.saved.iter().flatten().any(|(way, _)| *way != Way::Recompute);
        for steps in STEPS.into_iter().filter(|&steps| moves && steps != deeds.steps) {
            others.push((ActionSet { steps, ..deeds.clone() }, false));
        }
        for layer in 0..deeds.saved.len() {
            let Some((now, _)) = deeds.saved[layer] else { continue };
            let mut kept = deeds.clone();
            kept.saved[layer] = None;
            for &measure in measures.iter().filter(|&&of| of != Measure::Saved(now)) {
                let mut elsewhere = kept.clone();
                if matches!(measure, Measure::Saved(_))
                    && self.take(&mut elsewhere, stage, layer, measure, look)
                {
                    others.push((elsewhere, false));
                }
            }
            others.push((kept, true));
        }
        for key in deeds.lasting.keys() {
            let mut kept = deeds.clone();
            kept.lasting.remove(key);
            others.push((kept, true));
        }
        others
    }

    /// The same without what moves nothing: blocks whose uses are too near each other for the steps between them.
    pub(super) fn without_idle(&self, mut deeds: Vec<ActionSet>) -> Result<Vec<ActionSet>, QuestionError> {
        let look = self.look(&deeds)?;
        for (stage, (deeds, acted)) in deeds.iter_mut().zip(&look.acted).enumerate() {
            let first = self.settings[stage].stage.first_layer;
            let moves = |layer: usize, block: Block| {
                let is_its = |absence: &Absence| absence.layer == first + layer && absence.block == block;
                acted.away.iter().any(|away| is_its(&away.absence))
            };
            for (layer, saved) in deeds.saved.iter_mut().enumerate() {
                let is_idle =
                    saved.is_some_and(|(way, _)| way != Way::Recompute && !moves(layer, Block::Activations));
                if is_idle {
                    *saved = None;
                }
            }
            deeds.lasting.retain(|&(block, layer), _| moves(layer, block));
        }
        Ok(deeds)
    }
}
