//! Memory optimizations in messages.

use super::{Action, Destination, Optimization, PeerPool, StageActions, Stripe, Swap};
use crate::error::{Invalid, required};
use crate::message;
use crate::wire::{ToWire, field, v1};

message! { StageActions <=> v1::StageMemoryOptimizations { actions = optimizations, host_pool = host_pool_bytes, peer_pools } }

message! { PeerPool <=> v1::PeerPool { stage, bytes } }

message! { Stripe <=> v1::PeerStripe { stage, share } }

message! { Action <=> v1::MemoryOptimization }

impl From<&Action> for v1::MemoryOptimization {
    fn from(action: &Action) -> Self {
        use v1::memory_optimization::Action as Wire;
        let optimization = match &action.optimization {
            Optimization::Recompute => Wire::Recompute(v1::Recompute {}),
            Optimization::Swap(swap) => Wire::Swap(swap.into()),
        };
        Self {
            first_layer: action.first_layer.to_wire(),
            last_layer: action.last_layer.to_wire(),
            micro_batch_slots: action.slots.to_wire(),
            action: Some(optimization),
        }
    }
}

impl TryFrom<v1::MemoryOptimization> for Action {
    type Error = Invalid;

    fn try_from(wire: v1::MemoryOptimization) -> Result<Self, Invalid> {
        use v1::memory_optimization::Action as Wire;
        Ok(Self {
            first_layer: field("first_layer", wire.first_layer)?,
            last_layer: field("last_layer", wire.last_layer)?,
            slots: field("micro_batch_slots", wire.micro_batch_slots)?,
            optimization: match required("action", wire.action)? {
                Wire::Recompute(v1::Recompute {}) => Optimization::Recompute,
                Wire::Swap(swap) => Optimization::Swap(field("swap", swap)?),
            },
        })
    }
}

message! { Swap <=> v1::MemorySwap }

impl From<&Swap> for v1::MemorySwap {
    fn from(swap: &Swap) -> Self {
        let (place, peers) = match &swap.to {
            Destination::Host => (v1::MemoryPlace::Host, Vec::new()),
            Destination::Peers(stripes) => (v1::MemoryPlace::Peers, stripes.to_wire()),
        };
        Self {
            block: swap.block.to_wire(),
            place: place.into(),
            peer_stripes: peers,
            release_delay_steps: swap.release_after.to_wire(),
            prefetch_distance_steps: swap.fetch_before.to_wire(),
        }
    }
}

impl TryFrom<v1::MemorySwap> for Swap {
    type Error = Invalid;

    fn try_from(wire: v1::MemorySwap) -> Result<Self, Invalid> {
        let block: Option<_> = field("block", wire.block)?;
        let peers: Vec<Stripe> = field("peer_stripes", wire.peer_stripes)?;
        let to = match v1::MemoryPlace::try_from(wire.place) {
            Ok(v1::MemoryPlace::Host) if peers.is_empty() => Destination::Host,
            Ok(v1::MemoryPlace::Host) => {
                let why =
                    "are set, but the blocks go to CPU memory. Remove the peers, or use peers as destination";
                return Err(Invalid::field("peer_stripes", why));
            }
            Ok(v1::MemoryPlace::Peers) => Destination::Peers(peers),
            Ok(v1::MemoryPlace::Unspecified) => {
                return Err(Invalid::field("to", "is required. Use host or peers"));
            }
            Err(_) => return Err(invalid!("to", "{} is not a known value", wire.place)),
        };
        Ok(Self {
            block: required("block", block)?,
            to,
            release_after: field("release_delay_steps", wire.release_delay_steps)?,
            fetch_before: field("prefetch_distance_steps", wire.prefetch_distance_steps)?,
        })
    }
}
