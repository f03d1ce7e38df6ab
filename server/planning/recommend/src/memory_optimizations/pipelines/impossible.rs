//! What is proven impossible within a subproblem, whatever memory optimizations do.
//!
//! No stage needs less than one of its layers needs alone. During its own passes a layer has its weights, what it saved and what it
//! computes. All else may be away. What is held at a stage's edges, and what allocators hold besides, is left out: within a stage it
//! may be less.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::objective::PlanShape;
use loadmaster_proto::training::actions::{Allowed, Block, Way as Move};
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{RecomputePolicy, Schedule, TrainingSpec};

use super::ActionsQuestion;
use super::floor::{Every, Floor};
use super::remedies::{Tried, remedies};
use crate::memory_optimizations::replay_fit::ways;
use crate::objectives::{Subproblem, is_nothing_found};
use crate::problem::{Criteria, Variant, variants_of_any_size};
use crate::result::{QuestionError, RecommendError};
use crate::search::Candidate;
use loadmaster_memory::actions::LayerBlocks;
use loadmaster_predict::StageSetting;
use loadmaster_search::Choice;
use loadmaster_search::cost::Batch;
use loadmaster_search::fleet::Subset;

/// Most ways to run a stage in which it is looked at what a layer needs alone at least.
const MOST_WAYS: usize = 32;
/// The same for whether it fits in none of them: most layers do in the first one.
const MOST_LACKING: usize = 512;

impl ActionsQuestion<'_> {
    /// Whether it is proven that no plan fits within a subproblem and keeps to the limits.
    pub(super) fn is_proven_impossible(&self, subproblem: &Subproblem) -> bool {
        self.lacks_room(subproblem).is_some() || self.lacks_layer(subproblem).is_some() || {
            let every = Every::new(self, subproblem);
            !Floor::of(self, &every).may_fit(&|capacity| self.most_bytes(subproblem, Bytes(capacity)))
        }
    }

    /// The first of a subproblem's pipelines that are not proven impossible, the most promising first; none where there are too many to be
    /// listed.
    pub(super) fn that_may_fit(&self, subproblem: &Subproblem, most: usize) -> Option<Vec<Candidate>> {
        let every = Every::new(self, subproblem);
        let mut fit =
            Floor::of(self, &every).that_may_fit(&|capacity| self.most_bytes(subproblem, Bytes(capacity)))?;
        fit.truncate(most);
        Some(fit)
    }

    /// An error with what would help; where nothing does, with what was tried.
    pub(super) fn with_remedies(&self, error: QuestionError, subproblem: &Subproblem) -> QuestionError {
        let QuestionError::Recommend(mut error) = error else { return error };
        if !is_nothing_found(&error) || matches!(error, RecommendError::Stopped) {
            return error.into();
        }
        let is_proof = error.is_proof();
        let Tried { helps, in_vain } = remedies(self, &error, subproblem);
        if let RecommendError::NoPlan { reason, remedies, .. }
        | RecommendError::Limits { reason, remedies, .. } = &mut error
        {
            if !is_proof {
                reason.push_str("; it is not proven that no other plan fits");
            }
            if helps.is_empty() && !in_vain.is_empty() {
                reason.push_str(&format!("; no plan was found with {} either", in_vain.join(", or with ")));
            }
            if self.family.stop.is_requested() {
                reason.push_str(
                    "; the search for changes that help was stopped: use a longer `search.time_limit`",
                );
            }
            remedies.extend(helps);
        }
        error.into()
    }

    /// Where a layer fits on no device of a subproblem, whatever else leaves: the one that lacks most of those that are looked at.
    pub(super) fn lacks_layer(&self, subproblem: &Subproblem) -> Option<RecommendError> {
        let fleet = &subproblem.devices.fleet;
        let kinds = fleet.nodes.iter().filter_map(|node| fleet.kinds.get(node.kind));
        let most = kinds.map(|kind| self.most_bytes(subproblem, kind.capacity)).max()?;
        let mut lacking: Option<(u64, Reverse<usize>)> = None;
        let mut looked_at = 0;
        for layer in 0..self.family.job.names.len() {
            let ways = self.ways(layer, subproblem).filter(|ways| ways.len() <= MOST_LACKING)?;
            if looked_at + ways.len() > MOST_LACKING && lacking.is_some() {
                break;
            }
            if let Some(missing) = self.lacks_alone(layer, &ways, most) {
                looked_at += ways.len();
                lacking = lacking.max(Some((missing, Reverse(layer))));
            }
        }
        let (missing, Reverse(layer)) = lacking?;
        let name = self.family.job.names.get(layer)?;
        let why = format!(
            "layer {layer} ({name}) needs {} more memory on any device, even with all allowed offload and swap. The \
             passes of this layer need this memory on the device",
            Bytes(missing)
        );
        Some(RecommendError::no_actions(why, Bytes(missing), String::new()).proven().at_layer(name))
    }

    /// Why no plan fits on these devices, however their stages take turns, where what is always there or what layers need alone says so.
    pub(crate) fn lacks_anyhow(&self, devices: &Subset, batches: &[Batch]) -> Option<RecommendError> {
        let subproblem = Subproblem::on(devices, batches);
        self.lacks_room(&subproblem).or_else(|| self.lacks_layer(&subproblem))
    }

    /// Bytes that some device needs at least, however its stages take turns: what a layer needs alone.
    pub(crate) fn least_anyhow(&self, subproblem: &Subproblem) -> u64 {
        let alone = (0..self.family.job.names.len()).map(|layer| self.least_alone(layer, subproblem));
        self.family.context.corrected(alone.max().unwrap_or(0))
    }

    /// Bytes that the devices of a layer need at least, in whichever way it is run; 0 where that is not known.
    pub(super) fn least_alone(&self, layer: usize, subproblem: &Subproblem) -> u64 {
        let ways = self.ways(layer, subproblem).filter(|ways| ways.len() <= MOST_WAYS).unwrap_or_default();
        ways.into_iter().map(|way| self.layer_minimum(layer, way)).min().unwrap_or(0)
    }

    /// Bytes that devices of a layer lack in each way to run it, the fewest of them; none where it fits in one, or
    /// it is not known.
    fn lacks_alone(&self, layer: usize, ways: &[LayerSetting], most: u64) -> Option<u64> {
        let mut fewest = None;
        for &way in ways {
            let needed = self.family.context.corrected(self.layer_minimum(layer, way));
            let lacks = needed.checked_sub(most).filter(|&lacks| lacks > 0)?;
            fewest = Some(fewest.map_or(lacks, |fewest: u64| fewest.min(lacks)));
        }
        fewest
    }

    /// The ways in which a stage with a layer may be run, those first that need least; none where it is not known.
    fn ways(&self, layer: usize, subproblem: &Subproblem) -> Option<Vec<LayerSetting>> {
        let schedules = &self.family.criteria.schedules;
        let all =
            subproblem.batches.iter().flat_map(|&batch| schedules.iter().map(move |&order| (batch, order)));
        let of = |choice: Choice| {
            // What is recomputed is chosen with the layer's other memory optimizations.
            let choice = Choice { recompute: RecomputePolicy::None, ..choice };
            move |(batch, schedule)| LayerSetting { batch, schedule, choice }
        };
        if let Some(given) = self.family.given {
            let own = given.stages().iter().find(|stage| stage.layers().contains(&layer))?;
            return Some(all.map(of(Choice::of(own, RecomputePolicy::None))).collect());
        }
        if self.family.criteria.shape == PlanShape::SinglePipeline {
            return Some(all.map(of(Choice::SINGLE)).collect());
        }
        let criteria = Criteria {
            batches: subproblem.batches.clone(),
            recompute: vec![RecomputePolicy::None],
            ..self.family.criteria.clone()
        };
        let variants = variants_of_any_size(&criteria, &subproblem.devices, self.family.job.names.len());
        let ways = variants.iter().flat_map(|Variant { batch, schedule, choices, .. }| {
            choices.iter().map(|&choice| of(choice)((*batch, *schedule)))
        });
        let ways: HashSet<LayerSetting> = ways.collect();
        let mut ways: Vec<LayerSetting> = ways.into_iter().collect();
        ways.sort_by_key(|way| {
            let Choice { data, tensor, sharding, .. } = way.choice;
            (way.batch.micro_batch_size, Reverse(tensor), Reverse(data), Reverse(sharding))
        });
        Some(ways)
    }

    /// Where what is always somewhere, weights and what the optimizer keeps, has no room on the devices and in what may be
    /// taken of the host.
    pub(super) fn lacks_room(&self, subproblem: &Subproblem) -> Option<RecommendError> {
        let (last, batch) = (self.family.job.names.len().checked_sub(1)?, subproblem.batches.first()?);
        let training = TrainingSpec {
            micro_batch_size: batch.micro_batch_size,
            micro_batches: batch.micro_batches,
            ..self.family.context.training
        };
        let stage = StageConfig::single(0, last);
        let whole = StageSetting { stage, stage_index: 0, stage_count: 1, training };
        let parts = self.family.context.chain.predictor.stage(&whole).ok()?.breakdown?;
        let allowed = self.choice.allowed;
        let leaves = |block: Block, bytes: u64| if allowed.blocks.contains(&block) { bytes } else { 0 };
        let fleet = &subproblem.devices.fleet;
        let names: HashSet<&str> = fleet.nodes.iter().map(|node| node.name.as_str()).collect();
        let hosts = if fleet.is_one_node { 1 } else { names.len().max(1) };
        let at_hosts = allowed.host_memory.0.saturating_mul(hosts as u64);
        let may_leave = leaves(Block::Weights, parts.weights)
            .saturating_add(leaves(Block::Optimizer, parts.optimizer))
            .min(if allowed.ways.contains(&Move::CpuOffload) { at_hosts } else { 0 });
        let stays = parts.weights.saturating_add(parts.optimizer).saturating_sub(may_leave);
        let stays = self.family.context.corrected(stays);
        let on_node = |node: &loadmaster_search::FleetNode| {
            let capacity =
                fleet.kinds.get(node.kind).map_or(0, |kind| self.most_bytes(subproblem, kind.capacity));
            capacity.saturating_mul(u64::from(node.devices))
        };
        let there = fleet.nodes.iter().map(on_node).fold(0, u64::saturating_add);
        let missing = stays.checked_sub(there).filter(|&missing| missing > 0).map(Bytes)?;
        let why = format!(
            "weights and optimizer state need {missing} more memory in total, even with the allowed CPU memory"
        );
        Some(RecommendError::no_actions(why, missing, String::new()).proven())
    }
}

/// What was asked of layers before: every peak, device and pipeline asks for the same.
#[derive(Debug, Default)]
pub(crate) struct LayerMinima(RefCell<HashMap<(usize, LayerSetting), u64>>);

/// A way to run a stage: how samples come in, in which order, and how its devices share them, its tensors and its states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LayerSetting {
    pub(super) batch: Batch,
    pub(super) schedule: Schedule,
    pub(super) choice: Choice,
}

impl ActionsQuestion<'_> {
    /// Bytes that a device of any stage with a layer that is run so needs at least; 0 where that is not known.
    pub(super) fn layer_minimum(&self, layer: usize, way: LayerSetting) -> u64 {
        let key = (layer, way);
        if let Some(&known) = self.family.known.0.borrow().get(&key) {
            return known;
        }
        let least = self.replayed_minimum(layer, way);
        self.family.known.0.borrow_mut().insert(key, least);
        least
    }

    fn replayed_minimum(&self, layer: usize, way: LayerSetting) -> u64 {
        let LayerSetting { batch, schedule, choice } = way;
        let last = self.family.job.names.len().saturating_sub(1);
        let stage_index = if layer == 0 { 0 } else { 1 + u32::from(layer == last) };
        let training = TrainingSpec {
            micro_batch_size: batch.micro_batch_size,
            micro_batches: 1,
            // In the last stage there is one version of its weights.
            schedule: if schedule.updates_always() { Schedule::OneFOneB } else { schedule },
            recompute: loadmaster_proto::training::RecomputePolicy::None,
            ..self.family.context.training
        };
        let stage = choice.stage(layer, layer);
        let setting = StageSetting { stage, stage_index, stage_count: 3, training };
        let needed = |actions| {
            let acted = self.family.context.chain.predictor.acted(&setting, &actions).ok()?;
            let prediction = acted.prediction(0);
            let parts = prediction.breakdown?;
            // How gradients are gathered for their sum depends on the stage's other layers.
            let gathered = if stage.devices() > 1 { parts.communication } else { 0 };
            let beside = parts.edges.saturating_add(parts.overhead).saturating_add(gathered);
            Some(prediction.bytes.0.saturating_sub(beside))
        };
        let ways = ways(self.family.context.chain, &setting, &anywhere(self.choice.allowed));
        let all = ways.into_iter().map(needed);
        all.collect::<Option<Vec<u64>>>().and_then(|all| all.into_iter().min()).unwrap_or(0)
    }

    /// Bytes that a stage of these layers needs at least, each of which needs so much alone: during a layer's own passes,
    /// with what others have that may not leave.
    pub(super) fn least_of_stage(&self, layers: &[LayerBlocks], alone: &[u64]) -> u64 {
        let stays = |block: Block, of: &LayerBlocks| {
            let allowed = self.choice.allowed;
            let leaves =
                allowed.blocks.contains(&block) && allowed.ways.iter().any(|way| *way != Move::Recompute);
            if leaves { 0 } else { of.bytes(block) }
        };
        let kept = |of: &LayerBlocks| stays(Block::Weights, of).saturating_add(stays(Block::Optimizer, of));
        let all: u64 = layers.iter().map(kept).fold(0, u64::saturating_add);
        // Both ends of a tied weight may have it in common.
        let tied = self.family.context.chain.predictor.tied_bytes(1).saturating_mul(4);
        let mut least = 0;
        let mut gradients = 0_u64;
        for (of, &alone) in layers.iter().zip(alone).rev() {
            let others = all.saturating_sub(kept(of)).saturating_add(gradients).saturating_sub(tied);
            least = least.max(alone.saturating_add(others));
            // Later layers go backward first.
            gradients = gradients.saturating_add(stays(Block::Gradients, of));
        }
        least
    }
}

/// What may be done if the host had room for all that may leave to anywhere.
fn anywhere(allowed: &Allowed) -> Allowed {
    let mut anywhere = allowed.clone();
    if anywhere.ways.contains(&Move::PeerSwap) && !anywhere.ways.contains(&Move::CpuOffload) {
        anywhere.ways.push(Move::CpuOffload);
    }
    anywhere
}
