//! What a stage with memory optimizations holds, worked out a second time: from layers by what they hold on to instead of from
//! allocation traces, with tensors that have owners, and the contract of [`loadmaster_proto::training::actions`]
//! taken literally.

use std::collections::{BTreeMap, BTreeSet};

use loadmaster_proto::training::actions::{Absence, Block, Part, Step, Steps};

use super::traces::Shape;

/// Who holds a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// The micro-batch's way from the layer below an edge to the one above it.
    Carried(u32, usize),
    /// The run of the micro-batch that begins with the layer.
    RunInput(u32, usize),
    Saved(u32, usize),
    Unsaved(u32, usize),
    /// The gradient of what is at an edge.
    GradientAt(u32, usize),
    ParameterGradient(usize),
    Scratch,
}

#[derive(Debug)]
struct Tensor {
    bytes: u64,
    owners: BTreeSet<Owner>,
    is_away: bool,
}

/// A stage, layer by layer, with the bytes of what it keeps.
pub(super) struct Oracle<'a> {
    pub(super) shapes: &'a [Shape],
    pub(super) is_first: bool,
    /// Layers up to this one have nothing trained before them.
    pub(super) untrained: usize,
    /// The stage's first layer in the model.
    pub(super) first_layer: usize,
    pub(super) steps: &'a Steps,
    pub(super) absences: &'a [Absence],
    pub(super) synchronisation: u64,
    pub(super) creates: Option<u32>,
    /// Steps behind which the gradients of their layers are elsewhere; none where they wait for the update.
    delivers: Option<BTreeSet<usize>>,
    tensors: Vec<Tensor>,
    /// What is at an edge of a micro-batch.
    at_edge: BTreeMap<(u32, usize), usize>,
    moving: Vec<Vec<usize>>,
    peak: u64,
}

/// What comes of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// At each boundary and within each step.
    pub(super) curve: Vec<(u64, u64)>,
    /// Of each absence the tensors' bytes.
    pub(super) away: Vec<Vec<u64>>,
}

impl<'a> Oracle<'a> {
    pub(super) fn new(
        shapes: &'a [Shape],
        (is_first, untrained): (bool, usize),
        (first_layer, steps, absences): (usize, &'a Steps, &'a [Absence]),
        synchronisation: u64,
    ) -> Self {
        let backward = |step: &Step| {
            if let Step::Backward { micro_batch, .. } = step { Some(*micro_batch) } else { None }
        };
        Self {
            shapes,
            is_first,
            untrained,
            first_layer,
            steps,
            absences,
            synchronisation,
            creates: steps.all().iter().find_map(backward).filter(|_| steps.turn().is_none()),
            delivers: None,
            tensors: Vec::new(),
            at_edge: BTreeMap::new(),
            moving: vec![Vec::new(); absences.len()],
            peak: 0,
        }
    }

    /// Gradients of a layer go elsewhere when no backward pass of the layer follows before one of another.
    pub(super) fn in_chunks(mut self) -> Self {
        let backward = |(index, step): (usize, &Step)| match *step {
            Step::Backward { layer, .. } => Some((index, layer)),
            _ => None,
        };
        let backward: Vec<_> = self.steps.all().iter().enumerate().filter_map(backward).collect();
        let is_last_of_layer = |at: &usize| backward.get(at + 1).is_none_or(|next| next.1 != backward[*at].1);
        self.delivers = Some((0..backward.len()).filter(is_last_of_layer).map(|at| backward[at].0).collect());
        self
    }

    /// Whether a layer's parameters have no gradients when a micro-batch goes backward.
    fn makes_gradients(&self, i: u32, layer: usize) -> bool {
        match self.delivers {
            Some(_) => self.owned(Owner::ParameterGradient(layer)).is_empty(),
            None => self.creates.is_none_or(|creates| creates == i),
        }
    }

    fn live(&self) -> u64 {
        self.tensors.iter().filter(|of| !of.owners.is_empty() && !of.is_away).map(|of| of.bytes).sum()
    }

    fn make(&mut self, bytes: u64, owner: Owner) -> usize {
        self.tensors.push(Tensor { bytes, owners: BTreeSet::from([owner]), is_away: false });
        self.peak = self.peak.max(self.live());
        self.tensors.len() - 1
    }

    fn owned(&self, owner: Owner) -> Vec<usize> {
        (0..self.tensors.len()).filter(|&tensor| self.tensors[tensor].owners.contains(&owner)).collect()
    }

    fn drop_owner(&mut self, owner: Owner) {
        for tensor in &mut self.tensors {
            if tensor.owners.remove(&owner) {
                assert!(!tensor.is_away || !tensor.owners.is_empty(), "{owner:?} frees what is away");
            }
        }
    }

    fn bytes_at(&self, edge: usize) -> u64 {
        self.shapes[..edge].iter().fold(64, |bytes, shape| if shape.hands_on { bytes } else { shape.output })
    }

    fn begins(&self, micro_batch: u32, layer: usize) -> bool {
        let run = self.steps.run(self.first_layer + layer, self.steps.slot(micro_batch)).unwrap();
        *run.layers.start() == self.first_layer + layer
    }

    fn is_recomputed(&self, micro_batch: u32, layer: usize) -> bool {
        self.steps.run(self.first_layer + layer, self.steps.slot(micro_batch)).unwrap().is_recomputed
    }

    /// A layer computes its output from what is at the edge below it.
    fn compute(&mut self, i: u32, layer: usize, has_graph: bool) {
        let shape = self.shapes[layer];
        let input = self.at_edge[&(i, layer)];
        assert!(!self.tensors[input].is_away, "the input of layer {layer} is away");
        self.make(shape.forward_scratch, Owner::Scratch);
        let output =
            if shape.hands_on { input } else { self.make(shape.output, Owner::Carried(i, layer + 1)) };
        self.tensors[output].owners.insert(Owner::Carried(i, layer + 1));
        self.at_edge.insert((i, layer + 1), output);
        let (saved, unsaved) = (Owner::Saved(i, layer), Owner::Unsaved(i, layer));
        self.make(shape.retained, saved);
        self.make(shape.unsaved, unsaved);
        self.drop_owner(Owner::Scratch);
        if has_graph {
            for (keeps, tensor) in [(shape.keeps_input, input), (shape.keeps_output, output)] {
                if keeps {
                    self.tensors[tensor].owners.insert(saved);
                }
            }
        } else {
            self.drop_owner(saved);
            self.drop_owner(unsaved);
        }
        self.drop_owner(Owner::Carried(i, layer));
    }

    fn step(&mut self, step: Step) {
        let count = self.shapes.len();
        let first = self.first_layer;
        let position = |layer: usize| layer - first;
        match step {
            // Nothing has gone forward yet where a pipeline is being filled.
            Step::Again { micro_batch, .. } | Step::Backward { micro_batch, .. }
                if !self.at_edge.contains_key(&(micro_batch, 0)) => {}
            Step::Forward { micro_batch: i, layer } => {
                let layer = position(layer);
                if layer == 0 {
                    let input = self.make(64, Owner::Carried(i, 0));
                    self.at_edge.insert((i, 0), input);
                }
                let wants = self.is_recomputed(i, layer) || layer > 0 || !self.is_first;
                if self.begins(i, layer) && wants {
                    let input = self.at_edge[&(i, layer)];
                    self.tensors[input].owners.insert(Owner::RunInput(i, layer));
                }
                self.compute(i, layer, !self.is_recomputed(i, layer));
                if layer + 1 == count {
                    self.drop_owner(Owner::Carried(i, count));
                }
            }
            Step::Again { micro_batch: i, layer } => {
                let layer = position(layer);
                self.receive(i);
                if self.begins(i, layer) {
                    let input = self.owned(Owner::RunInput(i, layer))[0];
                    self.at_edge.insert((i, layer), input);
                }
                self.compute(i, layer, true);
                let run = self.steps.run(self.first_layer + layer, self.steps.slot(i)).unwrap();
                if *run.layers.end() == self.first_layer + layer {
                    self.drop_owner(Owner::Carried(i, layer + 1));
                }
            }
            Step::Backward { micro_batch: i, layer } => self.backward(i, position(layer)),
            // As much is freed as is made.
            Step::Renew => {}
            Step::Exchange => {
                self.make(self.synchronisation, Owner::Scratch);
                self.drop_owner(Owner::Scratch);
            }
            Step::Update { layer } => {
                self.make(self.shapes[position(layer)].step_scratch, Owner::Scratch);
                self.drop_owner(Owner::Scratch);
                if position(layer) + 1 == count {
                    (0..count).for_each(|layer| self.drop_owner(Owner::ParameterGradient(layer)));
                }
            }
        }
    }

    /// The gradient of the stage's output, with the first step that goes back.
    fn receive(&mut self, i: u32) {
        let count = self.shapes.len();
        if self.at_edge.insert((i, usize::MAX), 0).is_none() {
            self.make(self.bytes_at(count), Owner::GradientAt(i, count));
        }
    }

    fn backward(&mut self, i: u32, layer: usize) {
        self.receive(i);
        for tensor in self.owned(Owner::Saved(i, layer)) {
            assert!(!self.tensors[tensor].is_away, "layer {layer} needs what is away");
        }
        let (above, below) = (Owner::GradientAt(i, layer + 1), Owner::GradientAt(i, layer));
        if let Some(&gradient) = self.owned(above).first() {
            self.compute_back(i, layer, gradient);
        }
        // Layers that no gradient has reached keep what they saved for as long as the pass takes.
        self.drop_owner(Owner::RunInput(i, layer));
        if layer == 0 {
            self.drop_owner(below);
            for layer in 0..self.shapes.len() {
                self.drop_owner(Owner::Saved(i, layer));
                self.drop_owner(Owner::Unsaved(i, layer));
            }
            self.at_edge.retain(|&(of, _), _| of != i);
        }
    }

    /// A run that begins with the model asks for no gradients below its lowest trained layer.
    fn passes_on(&self, i: u32, layer: usize) -> bool {
        let run = self.steps.run(self.first_layer + layer, self.steps.slot(i)).unwrap();
        let begins_with_model = self.is_first && *run.layers.start() == self.first_layer;
        !begins_with_model || layer > self.untrained
    }

    fn compute_back(&mut self, i: u32, layer: usize, gradient: usize) {
        let (shape, is_first) = (self.shapes[layer], self.makes_gradients(i, layer));
        let (above, below) = (Owner::GradientAt(i, layer + 1), Owner::GradientAt(i, layer));
        self.make(shape.backward_scratch, Owner::Scratch);
        let of_parameters = if is_first { Owner::ParameterGradient(layer) } else { Owner::Scratch };
        self.make(shape.parameters, of_parameters);
        if self.passes_on(i, layer) {
            if shape.hands_on {
                self.tensors[gradient].owners.insert(below);
            } else {
                self.make(self.bytes_at(layer), below);
            }
        }
        if is_first && shape.steals && !shape.hands_on {
            self.tensors[gradient].owners.insert(Owner::ParameterGradient(layer));
        }
        for owner in [Owner::Scratch, Owner::Saved(i, layer), Owner::Unsaved(i, layer), above] {
            self.drop_owner(owner);
        }
    }

    /// What an absence means where it leaves.
    fn meant(&self, absence: &Absence) -> Vec<usize> {
        let layer = absence.layer - self.first_layer;
        if absence.block == Block::Gradients {
            return self.owned(Owner::ParameterGradient(layer));
        }
        let Some(i) = absence.micro_batch.filter(|_| absence.block != Block::Versions) else {
            return Vec::new();
        };
        let edge = |edge: usize| self.at_edge.get(&(i, edge)).copied();
        let holds = |layer: usize, tensor: &usize| {
            let owners = &self.tensors[*tensor].owners;
            owners.contains(&Owner::Saved(i, layer)) || owners.contains(&Owner::RunInput(i, layer))
        };
        let all = (0..self.tensors.len()).filter(|tensor| holds(layer, tensor));
        match absence.part {
            Part::Own => all.filter(|&tensor| edge(layer + 1) != Some(tensor)).collect(),
            Part::Above => all
                .filter(|&tensor| edge(layer + 1) == Some(tensor) && edge(layer + 2) != Some(tensor))
                .filter(|tensor| !holds(layer + 1, tensor))
                .collect(),
        }
    }

    /// Plays the iteration.
    pub(super) fn play(mut self) -> Answer {
        let mut answer = Answer { curve: Vec::new(), away: vec![Vec::new(); self.absences.len()] };
        let absences = self.absences;
        // Without a flush the pipeline is full the second time.
        let (count, times) = (self.steps.all().len(), if self.steps.turn().is_some() { 2 } else { 1 });
        let at = |boundary: usize, point: fn(&Absence) -> usize| {
            let is_here = move |index: &usize| {
                (0..times).any(|time| point(&absences[*index]) + time * count == boundary)
            };
            (0..absences.len()).filter(is_here)
        };
        for (boundary, &step) in (0..times).flat_map(|_| self.steps.all()).enumerate() {
            for index in at(boundary, |absence| absence.at.leaves) {
                self.moving[index] = self.meant(&absences[index]);
                let tensors = self.moving[index].iter();
                answer.away[index] = tensors.map(|&tensor| self.tensors[tensor].bytes).collect();
            }
            for index in at(boundary, |absence| absence.at.freed) {
                for &tensor in &self.moving[index] {
                    assert!(!self.tensors[tensor].is_away, "it leaves twice");
                    self.tensors[tensor].is_away = true;
                }
            }
            for index in at(boundary, |absence| absence.at.fetched) {
                self.moving[index].iter().for_each(|&tensor| self.tensors[tensor].is_away = false);
            }
            self.peak = self.live();
            let at_boundary = self.peak;
            self.step(step);
            if let (Some(delivers), Step::Backward { layer, .. }) = (&self.delivers, step)
                && delivers.contains(&boundary)
            {
                self.drop_owner(Owner::ParameterGradient(layer - self.first_layer));
            }
            if boundary + count >= times * count {
                answer.curve.push((at_boundary, self.peak));
            }
        }
        assert!(times > 1 || self.live() == 0, "an iteration leaves nothing behind");
        answer
    }
}
