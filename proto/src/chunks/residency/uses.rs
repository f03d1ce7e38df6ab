//! Which payloads the steps of an iteration use, and when gradients are in them.
//!
//! A chunk's block on the device is its *payload*. The gradient of a parameter takes the parameter's space when the last
//! step that reads the parameter is over (PatrickStar, § reusing parameter chunks). Gradients can be there before that:
//! where several micro-batches pass one after the other, and for a tied weight that its lower end computes once more. Then the
//! chunk's gradients are a second payload, in which they are added up.

use super::Payload;
use super::tensors::TensorUses;
use crate::chunks::embedding::{EmbeddingPlace, HostTable};
use crate::chunks::groups::Sharing;
use crate::chunks::layout::Layout;
use crate::model::Model;
use crate::model::layer::{Layer, Parameter};
use crate::training::actions::{Step, Steps};

/// What the steps of an iteration do with payloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uses {
    payloads: Vec<PayloadUses>,
    /// Positions in `payloads` of each chunk's gradients, where they have a payload of their own; those of parameters are
    /// the chunks'.
    gradients: Vec<Option<usize>>,
    /// Whether each step ends with its layer's gradients in their chunks.
    delivers: Vec<bool>,
    /// Of each chunk whether its state is on the device, and then the step behind which all its gradients are there, if any ever
    /// are.
    on_device: Vec<Option<OnDevice>>,
    /// Whether ranks share them, so that of those each has its part there alone, and payloads interval.
    are_shared: bool,
}

/// A chunk whose state is on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OnDevice {
    completed: Option<usize>,
}

/// What the steps of an iteration do with one payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadUses {
    /// Which.
    pub payload: Payload,
    /// Steps that need it, ascending.
    pub steps: Vec<usize>,
    /// Steps that end with a gradient in it, ascending.
    pub gradients: Vec<usize>,
    /// From the step that puts the first gradient into it to the one behind which all are there; none where no gradient
    /// goes.
    pub changed: Option<(usize, usize)>,
}

impl PayloadUses {
    pub(super) fn new(payload: Payload, steps: Vec<usize>, gradients: Vec<usize>) -> Self {
        let changed = gradients.first().copied().zip(gradients.last().copied());
        Self { payload, steps, gradients, changed }
    }

    /// Whether a step that is no use of it lies between the first of its gradients and the last: it may have to leave
    /// unfinished, to somewhere.
    pub fn is_interrupted(&self) -> bool {
        let Some((first, last)) = self.changed else { return false };
        // Uses ascend.
        let before = |end: usize| self.steps.partition_point(|&step| step < end);
        before(last + 1) - before(first) < last - first + 1
    }
}

impl Uses {
    /// Those of a model that is trained whole on one device, in these steps of [`Steps::of_chunks`], with its embedding table
    /// there.
    pub fn of(model: &Model, layout: &Layout, steps: &Steps, embedding: EmbeddingPlace) -> Self {
        TensorUses::new(layer_tensors(model, embedding).into(), steps).in_chunks(layout)
    }

    /// The parameters of each chunk in order, gradients that are apart, and which steps deliver.
    pub(super) fn new(parameters: Vec<PayloadUses>, apart: Vec<PayloadUses>, delivers: Vec<bool>) -> Self {
        let (mut payloads, mut gradients) = (parameters, Vec::new());
        gradients.resize(payloads.len(), None);
        for of in apart {
            gradients[of.payload.chunk] = Some(payloads.len());
            payloads.push(of);
        }
        let on_device = vec![None; gradients.len()];
        Self { payloads, gradients, delivers, on_device, are_shared: false }
    }

    /// The same where the state of these chunks is on the device. What no one shares is there whole, always: no one needs to
    /// fetch it. Of what ranks share each has its part there, of which payloads are gathered for their intervals.
    #[must_use]
    pub fn with_on_device(mut self, chunks: &[usize], sharing: &Sharing) -> Self {
        self.are_shared = sharing.ranks() > 1;
        for &chunk in chunks {
            let completed = self.completed(chunk);
            if let Some(of) = self.on_device.get_mut(chunk) {
                *of = Some(OnDevice { completed });
            }
        }
        for position in 0..self.payloads.len() {
            let payload = self.payloads[position].payload;
            if self.stays_whole(payload.chunk) {
                self.payloads[position] = PayloadUses::new(payload, Vec::new(), Vec::new());
            }
        }
        self
    }

    /// Whether the state of a chunk is on the device, or each rank's part of it on that rank's.
    pub fn is_on_device(&self, chunk: usize) -> bool {
        self.on_device.get(chunk).is_some_and(Option::is_some)
    }

    /// Whether a chunk is always on the device, whole: its state is, and no other rank shares it.
    pub fn stays_whole(&self, chunk: usize) -> bool {
        !self.are_shared && self.is_on_device(chunk)
    }

    /// The chunks on the device all of whose gradients are there behind a step.
    pub fn completed_on_device(&self, step: usize) -> impl Iterator<Item = usize> {
        self.completions_on_device().filter(move |(_, at)| *at == step).map(|(chunk, _)| chunk)
    }

    /// The chunks on the device whose gradients are all there behind some step, ascending, and that step.
    pub fn completions_on_device(&self) -> impl Iterator<Item = (usize, usize)> {
        let all = self.on_device.iter().enumerate();
        all.filter_map(|(chunk, of)| Some((chunk, of.as_ref()?.completed?)))
    }

    /// All payloads: the parameters of each chunk in order, then gradients that are apart.
    pub fn payloads(&self) -> &[PayloadUses] {
        &self.payloads
    }

    /// Where a payload is among them, if it is one.
    pub fn position(&self, of: Payload) -> Option<usize> {
        let apart = *self.gradients.get(of.chunk)?;
        if of.is_gradients { apart } else { Some(of.chunk) }
    }

    /// Where the gradients of a chunk are added up: its position among the payloads, the parameters' own where they take
    /// their space.
    pub fn gradients_of(&self, chunk: usize) -> usize {
        self.gradients.get(chunk).copied().flatten().unwrap_or(chunk)
    }

    /// The step behind which all gradients of a chunk are there, which has intervals; none where there are none.
    pub fn completed(&self, chunk: usize) -> Option<usize> {
        let gradients = self.payloads.get(self.gradients_of(chunk))?;
        gradients.changed.map(|(_, last)| last)
    }

    /// Whether the gradients of a chunk are a payload of their own.
    pub fn are_apart(&self, chunk: usize) -> bool {
        self.gradients.get(chunk).is_some_and(Option::is_some)
    }

    /// Steps of an iteration.
    pub fn steps(&self) -> usize {
        self.delivers.len()
    }

    /// Whether a step ends with its layer's gradients in their chunks: each backward pass, or the last of a layer's where
    /// they follow each other, so that gradients are added up before they go there.
    pub fn delivers(&self, step: usize) -> bool {
        self.delivers.get(step).copied().unwrap_or(false)
    }

    /// Bytes of the payloads that each step needs, or that may not leave meanwhile, where a chunk's payload takes `bytes`:
    /// the least of `R(t)`. Those of which `is_left_out` is true do not count; `spills` says of a payload whether the host has
    /// a place for it before its gradients are complete.
    pub fn bare_bytes(
        &self,
        bytes: impl Fn(usize) -> u64,
        is_left_out: impl Fn(&PayloadUses) -> bool,
        spills: impl Fn(&PayloadUses) -> bool,
    ) -> Vec<u64> {
        let mut bare = vec![0_u64; self.steps()];
        for of in self.payloads.iter().filter(|of| !is_left_out(of)) {
            let bytes = bytes(of.payload.chunk);
            let mut add = |step: usize| bare[step] = bare[step].saturating_add(bytes);
            let stays = of.changed.filter(|_| !spills(of)).map_or(0..0, |(first, last)| first..last + 1);
            of.steps.iter().filter(|step| !stays.contains(step)).for_each(|&step| add(step));
            stays.for_each(add);
        }
        bare
    }

    /// Positions of the payloads that each step needs.
    pub fn by_step(&self) -> Vec<Vec<usize>> {
        let mut by_step = vec![Vec::new(); self.steps()];
        for (position, of) in self.payloads.iter().enumerate() {
            for &step in &of.steps {
                by_step[step].push(position);
            }
        }
        by_step
    }
}

/// Which steps end with gradients in chunks.
pub(super) fn deliveries(layers: usize, steps: &Steps) -> Vec<bool> {
    let backward = |step: &Step| match *step {
        Step::Backward { layer, .. } => Some(layer),
        _ => None,
    };
    let follow_each_other =
        steps.all().iter().filter_map(backward).is_sorted_by(|above, below| above >= below);
    let mut left = vec![0_usize; layers];
    steps.all().iter().filter_map(backward).for_each(|layer| left[layer] += 1);
    let mut delivers = |step: &Step| {
        let Some(layer) = backward(step) else { return false };
        left[layer] -= 1;
        !follow_each_other || left[layer] == 0
    };
    steps.all().iter().map(&mut delivers).collect()
}

/// A tensor that a layer computes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerTensor {
    /// Its position among the tensors that are laid out.
    pub tensor: usize,
    /// Whether the layer's backward pass reads it.
    pub is_read_back: bool,
}

/// The tensors that each layer of a whole model computes with on the device: a tied head with the embedding's, too, and the
/// embedding not with a table that is on the host.
pub fn layer_tensors(model: &Model, embedding: EmbeddingPlace) -> Vec<Vec<LayerTensor>> {
    let mut next = 0;
    let of = |layer: &Layer| {
        let own = layer.kind.parameters();
        let tensors = own.iter().map(|parameter| {
            next += 1;
            LayerTensor { tensor: next - 1, is_read_back: is_read_back(parameter) }
        });
        let mut tensors: Vec<LayerTensor> = tensors.collect();
        // The embedding's table is the first tensor of the first layer.
        let shared = layer.kind.shared_parameter();
        let table = HostTable::TENSOR;
        tensors.extend(shared.map(|of| LayerTensor { tensor: table, is_read_back: is_read_back(&of) }));
        tensors
    };
    let mut layers: Vec<Vec<LayerTensor>> = model.layers().iter().map(of).collect();
    if let (EmbeddingPlace::Host, Some(first)) = (embedding, layers.first_mut()) {
        first.retain(|of| of.tensor != HostTable::TENSOR);
    }
    layers
}

/// Whether a backward pass reads a parameter: tables that rows are taken from, or that are added, it does not.
fn is_read_back(parameter: &Parameter) -> bool {
    parameter.module() != parameter.name
}
