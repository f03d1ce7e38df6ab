//! Which actions make no sense, and why.

use std::collections::HashSet;

use super::{Action, Block, Destination, Optimization, StageActions, Stripe, Swap};
use crate::error::{Invalid, in_range};
use crate::model::Model;
use crate::training::stage::StageConfig;
use crate::training::{RecomputePolicy, TrainingSpec};

/// The stage that actions are for.
#[derive(Debug, Clone, Copy)]
pub struct ActionContext<'a> {
    /// The whole model; none where only the names of its layers are known, of which no weight is tied.
    pub model: Option<&'a Model>,
    /// How it is trained, with this stage's own recompute policy.
    pub training: &'a TrainingSpec,
    /// Its layers and degrees.
    pub stage: &'a StageConfig,
    /// Its position in the pipeline.
    pub index: u32,
    /// Stages in the pipeline.
    pub count: u32,
}

/// Most bytes of a pool: far more than any host has, and sums still have room.
const MAX_POOL: u64 = 1 << 48;

impl StageActions {
    /// Checks that the actions can be done in this stage. Whether a peer is on the same node and has room is for those
    /// to check who know its device.
    ///
    /// # Errors
    /// Names the field of the action, and what would be right.
    pub fn check(&self, of: ActionContext<'_>) -> Result<(), Invalid> {
        in_range("optimizations", self.actions.len(), 0..=Self::MAX_ACTIONS)?;
        in_range("host_pool_bytes", self.host_pool.0, 0..=MAX_POOL)?;
        for (index, peer_pools) in self.peer_pools.iter().enumerate() {
            let at = |invalid: Invalid| invalid.under(&format!("peer_pools[{index}]"));
            in_range("bytes", peer_pools.bytes.0, 0..=MAX_POOL).map_err(at)?;
            in_range("stage", peer_pools.stage, 0..=of.count.saturating_sub(1)).map_err(at)?;
            let is_later = index == 0 || self.peer_pools[index - 1].stage < peer_pools.stage;
            if peer_pools.stage == of.index || !is_later {
                let why = format!(
                    "{} is not valid. List only other stages, each once, in ascending order",
                    peer_pools.stage
                );
                return Err(at(Invalid::field("stage", why)));
            }
        }
        let mut taken = Taken::default();
        // Runs first: what is recomputed decides which blocks there are.
        for recomputes in [true, false] {
            for (index, action) in self.actions.iter().enumerate() {
                if (action.optimization == Optimization::Recompute) == recomputes {
                    self.check_action(action, of, &mut taken)
                        .map_err(|invalid| invalid.of_entry(index).of_field("optimizations"))?;
                }
            }
        }
        Ok(())
    }

    fn check_action(&self, action: &Action, of: ActionContext<'_>, taken: &mut Taken) -> Result<(), Invalid> {
        let StageConfig { first_layer, last_layer, .. } = *of.stage;
        in_range("first_layer", action.first_layer, first_layer..=last_layer)?;
        in_range("last_layer", action.last_layer, action.first_layer..=last_layer)?;
        let TrainingSpec { schedule, micro_batches, recompute, .. } = *of.training;
        if schedule.updates_always() && !action.slots.is_empty() {
            let why = format!(
                "cannot be set with the schedule {schedule}, which treats all micro-batches alike. Remove the \
                 micro-batch slots, or use 1f1b"
            );
            return Err(Invalid::field("micro_batch_slots", why));
        }
        let in_flight = schedule.in_flight(of.count, of.index, micro_batches).max(1);
        for (position, &slot) in action.slots.iter().enumerate() {
            let field = format!("micro_batch_slots[{position}]");
            in_range(&field, slot, 0..=in_flight - 1)?;
            if position > 0 && action.slots[position - 1] >= slot {
                let why =
                    "is not above the slot before it. List each micro-batch slot once, in ascending order";
                return Err(Invalid::field(field, why));
            }
        }
        match &action.optimization {
            Optimization::Recompute if recompute != RecomputePolicy::None => Err(Invalid::field(
                "recompute",
                format!(
                    "cannot be combined with the recompute policy {recompute}, which applies to every layer. Use the \
                     recompute policy none"
                ),
            )),
            Optimization::Recompute => taken.all("recompute", action, None, in_flight),
            Optimization::Swap(swap) => {
                self.check_swap(action, swap, of, in_flight).map_err(|invalid| invalid.under("swap"))?;
                taken.all("swap.block", action, Some(swap.block), in_flight)
            }
        }
    }

    fn check_swap(
        &self,
        action: &Action,
        swap: &Swap,
        of: ActionContext<'_>,
        in_flight: u32,
    ) -> Result<(), Invalid> {
        in_range("release_delay_steps", swap.release_after, 0..=Action::MAX_STEPS)?;
        in_range("prefetch_distance_steps", swap.fetch_before, 0..=Action::MAX_STEPS)?;
        if let Destination::Peers(stripes) = &swap.to {
            check_stripes(stripes, of).map_err(|invalid| invalid.of_field("peer_stripes"))?;
        }
        let refuse = |why: String| Err(Invalid::field("block", why));
        let (block, schedule) = (swap.block, of.training.schedule);
        match (block, schedule.updates_always()) {
            (Block::Versions, false) => {
                return refuse(format!(
                    "versions (stashed weights) exist only with PipeDream, but the schedule is {schedule}. Use another \
                     block"
                ));
            }
            (Block::Versions, true) if in_flight == 1 => {
                return refuse(
                    "versions (stashed weights) do not exist on a stage with one micro-batch in flight, such as the \
                     last stage. Remove this swap"
                        .to_owned(),
                );
            }
            (Block::Weights | Block::Gradients, true) => {
                return refuse(format!(
                    "{block} cannot be swapped with the schedule {schedule}, which creates new {block} in every \
                     backward pass. Swap versions, activations, inputs or optimizer, or use 1f1b"
                ));
            }
            _ => {}
        }
        if !block.is_of_micro_batch() && !action.slots.is_empty() {
            return refuse(format!(
                "the block {block} belongs to all micro-batches, so it cannot be swapped for some of them. Remove the \
                 micro-batch slots"
            ));
        }
        let tied = action.layers().find(|&layer| of.model.is_some_and(|model| model.is_tied(layer)));
        if let (Some(layer), Block::Weights | Block::Gradients) = (tied, block) {
            return refuse(format!(
                "{block} of layer {layer} cannot be swapped, because the weight is tied to another layer. Use layers \
                 without tied weights"
            ));
        }
        for slot in (0..in_flight).filter(|&slot| action.is_for(slot)) {
            let runs = self.runs(of.stage.layers(), of.training.recompute, slot);
            for layer in action.layers() {
                let Some(run) = runs.iter().find(|run| run.layers.contains(&layer)) else { continue };
                match block {
                    Block::Activations if run.is_recomputed => {
                        return refuse(format!(
                            "activations of layer {layer} are recomputed, so none are stored. Swap the inputs of the \
                             first layer in the recomputed range"
                        ));
                    }
                    Block::Inputs if !run.is_recomputed || *run.layers.start() != layer => {
                        return refuse(format!(
                            "inputs exist only for the first layer of a recomputed range, but layer {layer} is not \
                             such a layer. Use such a layer, or swap activations"
                        ));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

fn check_stripes(stripes: &[Stripe], of: ActionContext<'_>) -> Result<(), Invalid> {
    in_range("", stripes.len(), 1..=Stripe::MAX)?;
    let mut seen = HashSet::new();
    let mut sum = 0_u64;
    for (index, stripe) in stripes.iter().enumerate() {
        let at = |field: &str, why: String| Err(Invalid::field(field, why).of_entry(index));
        if stripe.stage == of.index {
            return at("stage", format!("{} is the stage itself. Use another stage as peer", stripe.stage));
        }
        in_range("stage", stripe.stage, 0..=of.count.saturating_sub(1))
            .map_err(|invalid| invalid.of_entry(index))?;
        if !seen.insert(stripe.stage) {
            return at("stage", format!("{} is listed twice. List each peer once", stripe.stage));
        }
        let share = u64::from(stripe.share);
        if !(1..=u64::from(Stripe::WHOLE)).contains(&share) {
            let [own, least, most] = [share, 1, Stripe::WHOLE.into()].map(Stripe::percent);
            return at("share", format!("{own} is out of range. Use {least} to {most}"));
        }
        sum += share;
    }
    if sum != u64::from(Stripe::WHOLE) {
        return Err(Invalid::field(
            "",
            format!(
                "have shares with a sum of {}. Use shares with a sum of {}",
                Stripe::percent(sum),
                Stripe::percent(Stripe::WHOLE.into())
            ),
        ));
    }
    Ok(())
}

/// Blocks that an action is on already: none for recomputing.
#[derive(Debug, Default)]
struct Taken(HashSet<(usize, Option<Block>, u32)>);

impl Taken {
    fn all(
        &mut self,
        field: &str,
        action: &Action,
        block: Option<Block>,
        in_flight: u32,
    ) -> Result<(), Invalid> {
        for layer in action.layers() {
            for slot in (0..in_flight).filter(|&slot| action.is_for(slot)) {
                if !self.0.insert((layer, block, slot)) {
                    let what = block.map_or_else(
                        || "is recomputed".to_owned(),
                        |block| format!("has its {block} swapped"),
                    );
                    return Err(invalid!(field, "layer {layer} {what} twice for slot {slot}"));
                }
            }
        }
        Ok(())
    }
}
