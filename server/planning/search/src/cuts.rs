//! Where the chain may be cut, and which layers must be on which device.

use std::ops::{Range, RangeInclusive};

use super::topology::Fleet;

/// A layer that has to be on a device. Like devices of a node are interchangeable: what a plan has to do is to give
/// the layer's stage one of them for every device that its layers are pinned to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pin {
    /// Index of the layer.
    pub layer: usize,
    /// Index of the device in the fleet.
    pub device: usize,
}

/// Allowed cuts and pinned layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cuts {
    /// `after[l]`: whether the chain may be cut between layer l and l + 1. One entry per layer; the last
    /// is the end of the chain and always allowed.
    after: Vec<bool>,
    /// `must[l]`: whether it must be.
    must: Vec<bool>,
    pins: Vec<Pin>,
}

impl Cuts {
    /// Everywhere.
    pub fn anywhere(layers: usize) -> Self {
        Self { after: vec![true; layers], must: vec![false; layers], pins: Vec::new() }
    }

    /// Never within these layers: they stay together.
    pub fn keep_together(&mut self, layers: RangeInclusive<usize>) {
        for layer in *layers.start()..*layers.end() {
            if let Some(after) = self.after.get_mut(layer) {
                *after = false;
            }
        }
    }

    /// Returns how many layers the chain has.
    pub fn layers(&self) -> usize {
        self.after.len()
    }

    /// Always after this layer.
    pub fn require_after(&mut self, layer: usize) {
        if let Some(must) = self.must.get_mut(layer) {
            *must = true;
        }
    }

    /// This layer on this device. Layers on one device are in one stage, with all that is between them.
    pub fn pin(&mut self, pin: Pin) {
        let on_it = self.pins.iter().filter(|other| other.device == pin.device).map(|other| other.layer);
        let (first, last) =
            on_it.fold((pin.layer, pin.layer), |(first, last), layer| (first.min(layer), last.max(layer)));
        self.keep_together(first..=last);
        self.pins.push(pin);
    }

    /// The same cuts with other pins.
    #[must_use]
    pub fn with_pins(&self, pins: Vec<Pin>) -> Self {
        Self { after: self.after.clone(), must: self.must.clone(), pins }
    }

    /// The same cuts, with every layer on any device.
    #[must_use]
    pub fn without_pins(&self) -> Self {
        Self { pins: Vec::new(), ..self.clone() }
    }

    /// The pinned layers.
    pub fn pins(&self) -> &[Pin] {
        &self.pins
    }

    /// By first layer: the first layer that a stage on these devices must not have, because it is pinned to a device
    /// of a node of which the stage has too few; empty without pins.
    pub fn walls(&self, fleet: &Fleet, taken: &[Range<u32>]) -> Vec<usize> {
        if self.pins.is_empty() {
            return Vec::new();
        }
        let layers = self.after.len();
        let mut walls = vec![layers; layers];
        let mut begin = 0;
        for node in &fleet.nodes {
            let own = begin..begin + node.devices;
            begin = own.end;
            let mut pins: Vec<Pin> = self.pins.to_vec();
            pins.retain(|pin| u32::try_from(pin.device).is_ok_and(|device| own.contains(&device)));
            if pins.is_empty() {
                continue;
            }
            pins.sort_unstable_by_key(|pin| pin.layer);
            let of_node =
                |range: &Range<u32>| range.end.min(own.end).saturating_sub(range.start.max(own.start));
            let there: u32 = taken.iter().map(of_node).sum();
            for (first, wall) in walls.iter_mut().enumerate() {
                let mut needed: Vec<usize> = Vec::new();
                for pin in pins.iter().filter(|pin| pin.layer >= first) {
                    if !needed.contains(&pin.device) {
                        needed.push(pin.device);
                    }
                    if needed.len() > there as usize {
                        *wall = (*wall).min(pin.layer);
                        break;
                    }
                }
            }
        }
        walls
    }

    /// Whether a stage may end with this layer.
    pub fn may_end(&self, layer: usize) -> bool {
        layer + 1 == self.after.len() || self.after.get(layer).copied().unwrap_or(false)
    }

    /// Whether a stage must end with this layer.
    pub fn must_end(&self, layer: usize) -> bool {
        layer + 1 == self.after.len() || self.must.get(layer).copied().unwrap_or(false)
    }

    /// Whether a stage may be exactly these layers: it begins and ends where a cut is allowed, and no cut that
    /// must be lies within it.
    pub fn may_be_stage(&self, first: usize, last: usize) -> bool {
        (first == 0 || self.may_end(first - 1))
            && self.may_end(last)
            && !(first..last).any(|layer| self.must.get(layer).copied().unwrap_or(false))
    }
}
