//! Memory optimizations of a stage: recompute, CPU offload and peer swap between its steps (MPress).
//!
//! | module | question |
//! |---|---|
//! | here | what is done to which blocks of which layers, and which actions may be chosen? |
//! | `steps` | what does a stage do one after another, where blocks may leave and come between, and what is recomputed together? |
//! | `absence` | when does a block leave, when is it gone, fetched and needed? |
//! | `forms` | which recomputation can be said in a number, as frameworks take it? |
//! | `check` | which actions make no sense, and why? |
//! | `notation` | how do people write them? |
//!
//! Planner and rank must agree on all of it to the byte, so it is defined here alone. `worker/rank/README.md` draws a boundary.
//!
//! # Points
//!
//! A stage does its [`Step`]s one after another; between two of them is a *boundary*, and boundary b lies before
//! step b. Nothing leaves, comes or is waited for but at boundaries. A block that step p leaves behind and step u
//! needs next begins to leave at boundary p + 1 and is gone at boundary p + 1 + [`Swap::release_after`].
//!
//! It is
//! fetched at boundary u − [`Swap::fetch_before`] and waited for at boundary u. Where it would be fetched no later
//! than it is gone, it stays. So the bytes of a device follow from the order of its steps, and time carries the
//! waiting.
//!
//! At boundary b, in this order:
//!
//! 1. copies of what leaves there begin, into pools;
//! 2. copies of what is gone from there on are waited for, and its memory is given back;
//! 3. what is fetched there gets memory, and its copy back begins: first that of what is needed first;
//! 4. what the next step needs is waited for, and its place in the pool is given back.
//!
//! So a block is in its pool at the boundaries `leaves..=needed`, and missing from its device during the steps
//! `freed..fetched`.
//!
//! # Which tensors a block is
//!
//! Memory of tensors (storages), each once and whole, that is live where it leaves:
//!
//! * *Activations* of a layer are what autograd saved in its forward pass, and the layer's input where its kept run
//!   begins with it and holds it; *inputs* are the input of a recomputed run. Parameters and buffers are none of them.
//! * What lies at the edge that the next layer reads stays: it is that layer's if that one holds it, too. What the lower
//!   layer alone holds leaves as its [`Part::Above`] when the next layer has read it, unless that one hands it on. So a
//!   tensor at an edge belongs to the highest layer that holds it, and what a stage hands over or passes on to no one
//!   stays.
//! * *Weights* of a layer are its trained tensors and their master copies, *gradients* what is accumulated for them,
//!   *optimizer* what the optimizer keeps of them between steps. A gradient whose memory a pass still reads stays where
//!   it is: autograd takes the first gradient of a parameter over as it comes, perhaps with the memory of one on its way.
//!
//! * A *version* of a layer is its trained tensors as a micro-batch went forward with them. It lasts from the [`Step::Renew`]
//!   that leaves them to it alone to the first step of its backward pass through the layer. Their master copies, gradients and
//!   the optimizer's state are of the newest alone.
//!
//! What leaves at a boundary and is not there does not leave; what is fetched and has not left is there. What no one holds
//! any more is not fetched. Weights that are away where an iteration begins are away as soon as they are made, so that
//! the first iteration needs no more than the others.
//!
//! Steps below the lowest trained layer do not happen, but their boundaries do, with the next one that is reached. A
//! block that goes to peers is split storage by storage ([`Stripe::split`]).

mod absence;
mod check;
mod forms;
mod notation;
mod steps;
mod wire;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::choice;
use crate::training::Schedule;
use crate::wire::v1;

pub use absence::{Absence, Part};
pub use check::ActionContext;
pub use forms::{Form, blocks};
pub use notation::{ParseActionError, StagedAction};
pub use steps::{Run, Step, Steps};

/// What a stage does about its memory, and what it sets aside for that. All its devices do the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StageActions {
    /// What is done. No block is subject to two of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Action>,
    /// Host memory that each of its devices takes before the first iteration, for what is there at once.
    pub host_pool: Bytes,
    /// What its own devices set aside before the first iteration for blocks of other stages, in order of these: of each
    /// that has actions which put blocks here, if it turns out to have none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peer_pools: Vec<PeerPool>,
}

/// Memory of a stage's devices that is set aside for another stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PeerPool {
    /// The other stage.
    pub stage: u32,
    /// What each of its devices may put there at once: the device that hosts several of them sets as much aside for
    /// each.
    pub bytes: Bytes,
}

/// Something that is done to blocks of a stage.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Action {
    /// The first of its layers, an index in the model.
    pub first_layer: usize,
    /// The last of its layers, inclusive.
    pub last_layer: usize,
    /// For which micro-batches: micro-batch i of an iteration is in slot `i mod in_flight`. Ascending; all of them
    /// where empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<u32>,
    /// What is done.
    pub optimization: Optimization,
}

/// What is done to blocks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Optimization {
    /// The layers are one run: its input is kept, and the rest is recomputed in the backward pass.
    Recompute,
    /// A block of each of the layers is away from the device between its uses.
    Swap(Swap),
}

/// Where blocks go, and when.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Swap {
    /// Which blocks.
    pub block: Block,
    /// Where they are meanwhile.
    pub to: Destination,
    /// Steps from the one that leaves a block behind to the boundary where it is gone (MPress leaves that to the
    /// copy's luck). More of them hide a longer copy, and hold the bytes for longer.
    pub release_after: u32,
    /// Steps from the boundary where a block is fetched to the step that needs it.
    pub fetch_before: u32,
}

/// Where blocks are while they are away.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Destination {
    /// The memory of the host.
    Host,
    /// Memory of devices of other stages on the same node, side by side: parts that add up to
    /// [`Stripe::WHOLE`] (MPress, device-to-device swap).
    Peers(Vec<Stripe>),
}

/// A part of each block, on the device of another stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stripe {
    /// The other stage. Device n of a stage sends to device `n mod devices` of that one.
    pub stage: u32,
    /// How much of each block, in ten-thousandths.
    pub share: u32,
}

/// What a stage holds from one step to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// What autograd saved in a layer of a micro-batch, the layer's input included where the layer holds it.
    Activations,
    /// The input of a recomputed run of a micro-batch.
    Inputs,
    /// Weights that a micro-batch went forward with and that were updated since (PipeDream).
    Versions,
    /// A layer's parameters, their master weights included.
    Weights,
    /// The gradients of a layer's parameters.
    Gradients,
    /// The optimizer's state of a layer.
    Optimizer,
}

choice! { Block = v1::MemoryBlock { Activations, Inputs, Versions, Weights, Gradients, Optimizer } }

impl Block {
    /// Whether there is one of each micro-batch in flight.
    pub fn is_of_micro_batch(self) -> bool {
        matches!(self, Self::Activations | Self::Inputs | Self::Versions)
    }

    /// Whether it may leave under a schedule: what never flushes has versions of its weights, and makes new weights and gradients in
    /// every update.
    pub fn may_leave(self, schedule: Schedule) -> bool {
        match self {
            Self::Versions => schedule.updates_always(),
            Self::Weights | Self::Gradients => !schedule.updates_always(),
            Self::Activations | Self::Inputs | Self::Optimizer => true,
        }
    }
}

impl Optimization {
    /// Which way to hold less it is.
    pub fn way(&self) -> Way {
        match self {
            Self::Recompute => Way::Recompute,
            Self::Swap(Swap { to: Destination::Host, .. }) => Way::CpuOffload,
            Self::Swap(Swap { to: Destination::Peers(_), .. }) => Way::PeerSwap,
        }
    }
}

impl Action {
    /// Most steps that a release or a fetch is away from its step.
    pub const MAX_STEPS: u32 = 1 << 16;

    /// Whether it is for micro-batches in this slot.
    pub fn is_for(&self, slot: u32) -> bool {
        self.slots.is_empty() || self.slots.contains(&slot)
    }

    /// Its layers.
    pub fn layers(&self) -> std::ops::RangeInclusive<usize> {
        self.first_layer..=self.last_layer
    }
}

impl StageActions {
    /// Most actions of a stage.
    pub const MAX_ACTIONS: usize = 1 << 14;

    /// Returns a copy of what each stage does; empty where none does anything.
    pub fn of_stages<'a>(stages: impl Iterator<Item = &'a Self> + Clone) -> Vec<Self> {
        if stages.clone().all(Self::is_empty) { Vec::new() } else { stages.cloned().collect() }
    }

    /// Whether nothing is done.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty() && self.host_pool.0 == 0 && self.peer_pools.is_empty()
    }

    /// The stages that its blocks go to.
    pub fn peers(&self) -> BTreeSet<u32> {
        let stripes = self.actions.iter().flat_map(|action| match &action.optimization {
            Optimization::Swap(Swap { to: Destination::Peers(stripes), .. }) => stripes.as_slice(),
            Optimization::Swap(_) | Optimization::Recompute => &[],
        });
        stripes.map(|stripe| stripe.stage).collect()
    }

    /// The swap of the blocks of this kind of a layer for a slot.
    pub fn swap(&self, layer: usize, block: Block, slot: u32) -> Option<&Swap> {
        self.actions.iter().find_map(|action| match &action.optimization {
            Optimization::Swap(swap)
                if swap.block == block && action.layers().contains(&layer) && action.is_for(slot) =>
            {
                Some(swap)
            }
            _ => None,
        })
    }
}

impl Stripe {
    /// What the shares of a block's stripes add up to.
    pub const WHOLE: u32 = 10_000;
    /// Most stripes of a block: as many as a node has other devices.
    pub const MAX: usize = 63;
    /// Stripes begin at multiples of so many bytes, as allocations do.
    const ALIGNMENT: u64 = 64;

    /// A share, or a sum of several, as people write it: `60%`.
    pub(super) fn percent(share: u64) -> String {
        format!("{}%", share as f64 * 100.0 / f64::from(Self::WHOLE))
    }

    /// How a block of so many bytes is split: bytes of each stripe in order. They add up to all of it.
    ///
    /// ```
    /// use loadmaster_proto::training::actions::Stripe;
    ///
    /// let stripes = [(1, 2_500), (3, 7_500)].map(|(stage, share)| Stripe { stage, share });
    /// assert_eq!(Stripe::split(&stripes, 1_000), [256, 744]);
    /// ```
    pub fn split(stripes: &[Self], bytes: u64) -> Vec<u64> {
        let mut shares = 0_u128;
        let mut begun = 0;
        let mut parts: Vec<u64> = Vec::with_capacity(stripes.len());
        for (index, stripe) in stripes.iter().enumerate() {
            shares += u128::from(stripe.share);
            let exact = u128::from(bytes) * shares.min(Self::WHOLE.into()) / u128::from(Self::WHOLE);
            let exact = u64::try_from(exact).unwrap_or(bytes);
            let end = if index + 1 == stripes.len() {
                bytes
            } else {
                exact.div_ceil(Self::ALIGNMENT).saturating_mul(Self::ALIGNMENT).min(bytes)
            };
            parts.push(end - begun);
            begun = end;
        }
        parts
    }
}

#[cfg(test)]
mod tests;

/// A way to hold less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// recomputing layers.
    Recompute,
    /// Having blocks in the memory of the host.
    CpuOffload,
    /// Having blocks on devices of other stages.
    PeerSwap,
}

choice! { Way = v1::MemoryOptimizationKind { Recompute, CpuOffload, PeerSwap } }

/// What may be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// Ways to hold less.
    pub ways: Vec<Way>,
    /// Which blocks may be away.
    pub blocks: Vec<Block>,
    /// Memory of each host that blocks may take.
    pub host_memory: Bytes,
    /// Blocks below this size stay: a copy has a price however little it moves.
    pub smallest_block: Bytes,
}

impl Default for Allowed {
    /// All ways, but no memory of hosts; the blocks that no pass but their own layer's uses.
    fn default() -> Self {
        Self {
            ways: Way::ALL.to_vec(),
            blocks: vec![Block::Activations, Block::Gradients, Block::Optimizer],
            host_memory: Bytes(0),
            smallest_block: Bytes(0),
        }
    }
}
