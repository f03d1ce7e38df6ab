//! Memory actions in messages.

use super::{Action, Deed, Destination, Hosted, StageActions, Stripe, Swap};
use crate::error::{Invalid, required};
use crate::message;
use crate::wire::{ToWire, field, v1};

message! { StageActions <=> v1::StageActions { actions, host_pool = host_pool_bytes, hosted } }

message! { Hosted <=> v1::HostedPool { stage, bytes } }

message! { Stripe <=> v1::MemoryStripe { stage, share } }

message! { Action <=> v1::MemoryAction }

impl From<&Action> for v1::MemoryAction {
    fn from(action: &Action) -> Self {
        use v1::memory_action::Deed as Wire;
        let deed = match &action.deed {
            Deed::Recompute => Wire::Recompute(v1::Recompute {}),
            Deed::Swap(swap) => Wire::Swap(swap.into()),
        };
        Self {
            first_layer: action.first_layer.to_wire(),
            last_layer: action.last_layer.to_wire(),
            slots: action.slots.to_wire(),
            deed: Some(deed),
        }
    }
}

impl TryFrom<v1::MemoryAction> for Action {
    type Error = Invalid;

    fn try_from(wire: v1::MemoryAction) -> Result<Self, Invalid> {
        use v1::memory_action::Deed as Wire;
        Ok(Self {
            first_layer: field("first_layer", wire.first_layer)?,
            last_layer: field("last_layer", wire.last_layer)?,
            slots: field("slots", wire.slots)?,
            deed: match required("deed", wire.deed)? {
                Wire::Recompute(v1::Recompute {}) => Deed::Recompute,
                Wire::Swap(swap) => Deed::Swap(field("swap", swap)?),
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
            to: place.into(),
            peers,
            release_after: swap.release_after.to_wire(),
            fetch_before: swap.fetch_before.to_wire(),
        }
    }
}

impl TryFrom<v1::MemorySwap> for Swap {
    type Error = Invalid;

    fn try_from(wire: v1::MemorySwap) -> Result<Self, Invalid> {
        let block: Option<_> = field("block", wire.block)?;
        let peers: Vec<Stripe> = field("peers", wire.peers)?;
        let to = match v1::MemoryPlace::try_from(wire.to) {
            Ok(v1::MemoryPlace::Host) if peers.is_empty() => Destination::Host,
            Ok(v1::MemoryPlace::Host) => {
                return Err(Invalid::field("peers", "are named, but `to` is the host: leave them out"));
            }
            Ok(v1::MemoryPlace::Peers) => Destination::Peers(peers),
            Ok(v1::MemoryPlace::Unspecified) => {
                return Err(Invalid::field("to", "is required: host or peers"));
            }
            Err(_) => return Err(Invalid::field("to", format!("{} is unknown", wire.to))),
        };
        Ok(Self {
            block: required("block", block)?,
            to,
            release_after: field("release_after", wire.release_after)?,
            fetch_before: field("fetch_before", wire.fetch_before)?,
        })
    }
}
