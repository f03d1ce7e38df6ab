//! Memory optimizations for stages that take turns on their devices: blocks are recomputed or leave until every
//! device fits; then
//! `local_search` looks for faster ones.
//!
//! What fits is found by replays and what is fast by simulation, both of the whole iteration, so nothing is assumed of how the
//! stages of a device get in each other's way. It is no exact search: the certificate states the gap to the untouched stages.
//!
//! A framework expresses few choices. They are replayed one by one, and the fastest one that fits is taken.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use loadmaster_launchers::{Choices, Runs};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::PlacedDevice;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::training::actions::{Allowed, StageActions, Way};

use super::local_search::{ActionSet, Measure, orders};
use super::pipeline::{Pipeline, on_device};
use crate::context::Context;
use crate::memory_optimizations::{
    CopyLinks, FrameworkRules, LayersOfStage, TimedStage, all_layer_seconds, has_no_sense, may_be_peers,
    most_taken, stage_blocks, used, with_all,
};
use crate::result::{QuestionError, RecommendError};
use crate::search::Candidate;
use loadmaster_memory::actions::StageBlocks;
use loadmaster_predict::{ActionsPrediction, StageSetting};
use loadmaster_search::{StageCosts, Stop};

/// Most looks at what stages hold with some actions.
const MOST_LOOKS: u32 = 4_000;

/// What devices and hosts hold with some actions.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MemoryUse {
    pub(super) acted: Vec<Rc<ActionsPrediction>>,
    /// By device, bytes that it lacks; below 0 what is free.
    pub(super) lacks: Vec<i128>,
    /// Bytes of the host with the highest peak.
    pub(super) host: u64,
}

impl MemoryUse {
    pub(super) fn fits(&self) -> bool {
        self.lacks.iter().all(|&lacks| lacks <= 0)
    }
}

/// Stages whose actions are looked for.
pub(super) struct GreedyFit<'a, C> {
    context: &'a Context<'a>,
    pub(super) pipeline: &'a Pipeline<'a, C>,
    candidate: &'a Candidate,
    pub(super) allowed: &'a Allowed,
    links: &'a CopyLinks,
    pub(super) stop: &'a Stop,
    /// The most that a device may be predicted to hold, whatever it has, bytes.
    most: u64,
    pub(super) settings: Vec<StageSetting>,
    seconds: Vec<LayersOfStage>,
    blocks: Vec<StageBlocks>,
    looks: Cell<u32>,
    pub(super) simulations: Cell<u32>,
}

impl<'a, C: StageCosts> GreedyFit<'a, C> {
    /// # Errors
    /// The profile has no times, or lacks what actions are predicted from.
    pub(super) fn new(
        context: &'a Context<'a>,
        pipeline: &'a Pipeline<'a, C>,
        candidate: &'a Candidate,
        (allowed, links): (&'a Allowed, &'a CopyLinks),
        most: u64,
        stop: &'a Stop,
    ) -> Result<Self, QuestionError> {
        candidate.check_to_be_chosen()?;
        let settings = context.settings(candidate);
        let objective = Objective::MinIterationTime;
        let seconds = all_layer_seconds(context, candidate).ok_or(RecommendError::NoTimes { objective })?;
        let own = settings.iter().zip(&seconds);
        let blocks = own.map(|(setting, (layers, _))| stage_blocks(context.chain, setting, layers));
        Ok(Self {
            blocks: blocks.collect::<Result<_, _>>()?,
            context,
            pipeline,
            candidate,
            allowed,
            links,
            stop,
            most,
            settings,
            seconds,
            looks: Cell::new(0),
            simulations: Cell::new(0),
        })
    }

    /// The fastest actions that are found to fit.
    ///
    /// # Errors
    /// None are found, and what lacks then.
    pub(super) fn greedy_fit(&self) -> Result<Vec<StageActions>, QuestionError> {
        let mut best: Option<(Vec<ActionSet>, f64)> = None;
        let mut nearest: Option<(i128, usize)> = None;
        for (steps, measures) in orders(self.allowed) {
            match self.filled(steps, &measures)? {
                Ok(optimizations) => {
                    let seconds = self.iteration(&optimizations)?;
                    if best.as_ref().is_none_or(|(_, best)| seconds < *best) {
                        best = Some((optimizations, seconds));
                    }
                }
                Err((lacks, device)) => {
                    if nearest.is_none_or(|(least, _)| lacks < least) {
                        nearest = Some((lacks, device));
                    }
                }
            }
            if self.stop.is_requested() || best.is_some() && self.looks.get() >= MOST_LOOKS {
                break;
            }
        }
        let Some(best) = best else {
            // What was not tried may do.
            let is_known = !self.stop.is_requested();
            return Err(self.no_room(nearest.filter(|_| is_known)));
        };
        let optimizations = self.without_idle(self.local_search(best)?)?;
        Ok((0..)
            .zip(&optimizations)
            .map(|(stage, optimizations)| optimizations.actions(self.settings[stage].stage.first_layer))
            .collect())
    }

    /// Stages that fit once enough was done, in the order of these measures; or what lacks where, when all of it was done.
    fn filled(
        &self,
        steps: u32,
        measures: &[Measure],
    ) -> Result<Result<Vec<ActionSet>, (i128, usize)>, QuestionError> {
        let none = |setting: &StageSetting| ActionSet::none(setting.stage.layer_count(), steps);
        let mut optimizations: Vec<ActionSet> = self.settings.iter().map(none).collect();
        let mut look = self.look(&optimizations)?;
        // What was tried of a layer and is of no use.
        let mut useless: BTreeSet<(usize, usize, Measure)> = BTreeSet::new();
        loop {
            let fullest = look.lacks.iter().enumerate().max_by_key(|(_, lacks)| **lacks);
            let Some((device, &lacks)) = fullest.filter(|(_, lacks)| **lacks > 0) else {
                return Ok(Ok(optimizations));
            };
            let next =
                measures.iter().find_map(|&measure| self.next(device, &optimizations, &useless, measure));
            let Some((stage, layer, measure)) = next.filter(|_| !self.stop.is_requested()) else {
                return Ok(Err((lacks, device)));
            };
            let mut more = optimizations.clone();
            if self.take(&mut more[stage], stage, layer, measure, &look) {
                let then = self.look(&more)?;
                let is_room_left =
                    then.host <= self.allowed.host_memory.0
                        && then.lacks.iter().enumerate().all(|(other, &lacks)| {
                            other == device || lacks <= 0 || lacks <= look.lacks[other]
                        });
                // What helps elsewhere alone may help here once more is done.
                if is_room_left && then.lacks[device] <= lacks {
                    (optimizations, look) = (more, then);
                    continue;
                }
            }
            useless.insert((stage, layer, measure));
        }
    }

    /// The layer of a device's stages of which this saves most for what it costs, and nothing is done yet.
    fn next(
        &self,
        device: usize,
        optimizations: &[ActionSet],
        useless: &BTreeSet<(usize, usize, Measure)>,
        measure: Measure,
    ) -> Option<(usize, usize, Measure)> {
        let mut best: Option<(f64, usize, usize)> = None;
        for stage in self.pipeline.interleaving.own(device) {
            for (layer, of) in self.blocks[stage].layers.iter().enumerate() {
                let (bytes, costs) = match measure {
                    _ if optimizations[stage].has(measure, layer) => continue,
                    Measure::Saved(Way::Recompute) => {
                        (of.activations.saturating_sub(of.input), of.seconds.again.max(f64::MIN_POSITIVE))
                    }
                    Measure::Saved(Way::CpuOffload | Way::PeerSwap) => (of.activations, 1.0),
                    Measure::Lasting(block) => (of.bytes(block), 1.0),
                };
                let is_moved = measure != Measure::Saved(Way::Recompute);
                let is_small = is_moved && bytes < self.allowed.smallest_block.0;
                if bytes == 0 || is_small || useless.contains(&(stage, layer, measure)) {
                    continue;
                }
                let worth = bytes as f64 / costs;
                if best.is_none_or(|(most, ..)| worth > most) {
                    best = Some((worth, stage, layer));
                }
            }
        }
        best.map(|(_, stage, layer)| (stage, layer, measure))
    }

    /// Has a stage do something more; false where there is nowhere to go.
    pub(super) fn take(
        &self,
        optimizations: &mut ActionSet,
        stage: usize,
        layer: usize,
        measure: Measure,
        look: &MemoryUse,
    ) -> bool {
        let peer = || self.roomiest_peer(stage, look);
        match measure {
            Measure::Saved(Way::PeerSwap) => {
                let Some(peer) = peer() else { return false };
                optimizations.saved[layer] = Some((Way::PeerSwap, peer));
            }
            Measure::Saved(way) => optimizations.saved[layer] = Some((way, 0)),
            Measure::Lasting(block) => {
                let may = |way| self.allowed.ways.contains(&way);
                let has_host = may(Way::CpuOffload) && self.allowed.host_memory.0 > 0;
                let to = if has_host || !may(Way::PeerSwap) { None } else { peer() };
                if !has_host && to.is_none() {
                    return false;
                }
                optimizations.lasting.insert((block, layer), to);
            }
        }
        true
    }

    /// The stage of another device of the same node that has most room; none where none has any.
    fn roomiest_peer(&self, stage: usize, look: &MemoryUse) -> Option<u32> {
        let devices = self.pipeline.interleaving.devices();
        let own = self.context.placed(&self.candidate.stages[stage].devices);
        let may_be = |device: &usize| {
            *device != stage % devices
                && may_be_peers(&own, &self.context.placed(&self.candidate.stages[*device].devices))
        };
        let room = |device: &usize| look.lacks[*device];
        let roomiest = (0..devices).filter(may_be).min_by_key(room)?;
        (look.lacks[roomiest] < 0).then(|| u32::try_from(roomiest).ok())?
    }

    fn iteration(&self, optimizations: &[ActionSet]) -> Result<f64, QuestionError> {
        let look = self.look(optimizations)?;
        self.seconds_of(&look.acted)
    }

    /// Seconds of an iteration of stages that do this.
    pub(super) fn seconds_of(&self, acted: &[Rc<ActionsPrediction>]) -> Result<f64, QuestionError> {
        self.simulations.set(self.simulations.get() + 1);
        let stages = TimedStage::all(self.candidate, acted.iter().map(|acted| &**acted), &self.seconds);
        let links = self.links.links(&used(&stages));
        let copied = self.pipeline.interleaving.iteration(self.candidate, &stages, links);
        Ok(copied.map_err(has_no_sense)?.iteration_seconds)
    }

    /// What devices hold when their stages do this.
    pub(super) fn look(&self, optimizations: &[ActionSet]) -> Result<MemoryUse, QuestionError> {
        self.looks.set(self.looks.get() + 1);
        let own = self.settings.iter().zip(optimizations);
        let acted = own.map(|(setting, optimizations)| {
            self.pipeline.replay(setting, optimizations.actions(setting.stage.first_layer))
        });
        Ok(self.looked(acted.collect::<Result<_, _>>()?))
    }

    /// What devices hold whose stages were replayed.
    pub(super) fn looked(&self, acted: Vec<Rc<ActionsPrediction>>) -> MemoryUse {
        let stages: Vec<&ActionsPrediction> = acted.iter().map(|acted| &**acted).collect();
        let held = self.pipeline.interleaving.held(&stages);
        let lacks = held.iter().zip(&self.candidate.stages).map(|(held, first)| {
            let Some(of) = on_device(held, &stages) else { return 0 };
            let (needed, peak) = (self.context.needed(&of), self.context.corrected(of.bytes.0));
            let beyond = |bytes: u64, most: u64| i128::from(bytes) - i128::from(most);
            beyond(needed, first.capacity.0).max(beyond(peak, self.most))
        });
        let placed = self.candidate.stages.iter().map(|stage| self.context.placed(&stage.devices));
        let placed: Vec<Vec<PlacedDevice>> = placed.collect();
        let host = most_taken(&placed, stages.iter().map(|acted| acted.host_peak()));
        MemoryUse { lacks: lacks.collect(), host, acted }
    }

    fn no_room(&self, nearest: Option<(i128, usize)>) -> QuestionError {
        let Some((lacks, device)) = nearest else { return RecommendError::Stopped.into() };
        self.lacks_with(lacks, device, &with_all(self.allowed))
    }

    /// What a device lacks with all that could be done.
    pub(super) fn lacks_with(&self, lacks: i128, device: usize, all: &str) -> QuestionError {
        let missing = Bytes(u64::try_from(lacks).unwrap_or(u64::MAX));
        let stages: Vec<String> =
            self.pipeline.interleaving.own(device).iter().map(ToString::to_string).collect();
        let why = format!(
            "even {all}, the device of stages {} needs {missing} more memory. Use smaller micro-batches{}, \
             or more devices",
            stages.join(", "),
            if self.most < u64::MAX { ", allow a higher peak (`constraints.max_peak_bytes`)" } else { "" },
        );
        let first = self.candidate.stages.get(device).and_then(|stage| stage.devices.first().copied());
        RecommendError::no_actions(why, missing, self.context.device_name(first)).into()
    }
}

impl<C: StageCosts> GreedyFit<'_, C> {
    /// The fastest of what the framework can say that fits.
    ///
    /// # Errors
    /// None of it fits, or the search was stopped before any did.
    pub(super) fn expressible(
        &self,
        framework_rules: FrameworkRules<'_>,
    ) -> Result<Vec<StageActions>, QuestionError> {
        let mut best: Option<(Vec<StageActions>, f64)> = None;
        let mut nearest: Option<(i128, usize)> = None;
        for runs in self.choices(framework_rules) {
            if self.stop.is_requested() {
                break;
            }
            let actions: Vec<StageActions> =
                runs.iter().map(|runs| StageActions::recomputing(runs)).collect();
            let own = self.settings.iter().zip(&actions);
            let acted = own.map(|(setting, actions)| self.pipeline.replay(setting, actions.clone()));
            let look = self.looked(acted.collect::<Result<_, _>>()?);
            let fullest = look.lacks.iter().enumerate().map(|(device, &lacks)| (lacks, device)).max();
            if let Some((lacks, device)) = fullest.filter(|(lacks, _)| *lacks > 0) {
                nearest = Some(nearest.filter(|(least, _)| *least <= lacks).unwrap_or((lacks, device)));
                continue;
            }
            let seconds = self.seconds_of(&look.acted)?;
            if best.as_ref().is_none_or(|(_, best)| seconds < *best) {
                best = Some((actions, seconds));
            }
        }
        match (best, nearest) {
            (Some((actions, _)), _) => Ok(actions),
            (None, Some((lacks, device))) if !self.stop.is_requested() => {
                Err(self.lacks_with(lacks, device, &framework_rules.with_all()))
            }
            _ => Err(RecommendError::Stopped.into()),
        }
    }

    /// What stages may recompute, the least first. Who takes turns counts alike in all stages.
    fn choices(&self, framework_rules: FrameworkRules<'_>) -> Vec<Vec<Runs>> {
        let stages: Vec<_> = self.settings.iter().map(|setting| setting.stage.layers()).collect();
        match framework_rules.rules.recomputing.choices(framework_rules.model, &stages) {
            Some(Choices::Alike(all)) => all,
            None | Some(Choices::Each(_)) => vec![vec![Runs::new(); stages.len()]],
        }
    }
}
