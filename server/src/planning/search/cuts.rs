//! Where the chain may be cut, and which layers must be on which device.

use std::ops::RangeInclusive;

/// A layer that has to be on a device.
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

    /// Always after this layer.
    pub fn require_after(&mut self, layer: usize) {
        if let Some(must) = self.must.get_mut(layer) {
            *must = true;
        }
    }

    /// This layer on this device.
    pub fn pin(&mut self, pin: Pin) {
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
