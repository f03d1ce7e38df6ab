//! A stage for a replay: its layers, and which of them are recomputed together.

use loadmaster_proto::measure::trace::{LayerTrace, Passage};
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::actions::{Run, StageActions};
use loadmaster_proto::training::sharding::part_length;

use super::machine::{BlockClass, BlockId, Machine};
use super::playing::{Playing, StageEnds, play_step};

/// Bytes of an fp32 scalar.
const FP32: u64 = 4;

/// A layer of a stage with what is played for it.
#[derive(Debug, Clone)]
pub(super) struct StageLayer<'a> {
    pub(super) trace: &'a LayerTrace,
    /// Nothing before it in its stage is trained, and the stage is the model's first. Only a run that begins with the
    /// stage passes no gradient on: others want their inputs' in any case.
    pub(super) untrained_input: bool,
    /// Replaces the first passage, where a gradient that the layer adds to exists already.
    pub(super) first: Option<&'a Passage>,
    /// Replaces later passages in a run that also has the stage's first layer, where autograd adds up what both compute.
    pub(super) later_with_first: Option<&'a Passage>,
    /// The optimizer updates its parameters here; not those of a head that shares the embedding's.
    pub(super) updates: bool,
    /// Scalars of its parameters where replicas divide them; else none.
    pub(super) divided: Vec<u64>,
    /// Bytes of the largest buffer in which replicas that divide its parameters exchange what each has updated.
    pub(super) gather: u64,
}

/// A stage for a replay. Layers have their positions in it, from 0.
#[derive(Debug, Clone)]
pub(super) struct ReplayStage<'a> {
    pub(super) layers: Vec<StageLayer<'a>>,
    /// The runs of the micro-batches in each slot; those that come once more where there are fewer.
    pub(super) runs: Vec<Vec<Run>>,
    /// Its input's gradient is wanted: it is not the model's first stage.
    pub(super) wants_gradient: bool,
    /// First and last layer share a weight with a layer in another stage: their gradients are exchanged.
    pub(super) exchanges: bool,
    /// Replicas among which optimizer states are divided: each updates its part.
    pub(super) parts: u32,
}

/// Which of an iteration's micro-batches a backward pass is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum PassTurn {
    /// The first: gradients are created.
    First,
    /// A later one: they are added to.
    Later,
}

/// The runs of a stage of so many layers under a policy, the same for all its micro-batches.
pub(super) fn runs_of(policy: RecomputePolicy, layers: usize) -> Vec<Vec<Run>> {
    let last = layers.checked_sub(1);
    vec![last.map_or_else(Vec::new, |last| StageActions::default().runs(0..=last, policy, 0))]
}

impl<'a> ReplayStage<'a> {
    /// The runs of a micro-batch.
    pub(super) fn runs(&self, micro_batch: u32) -> &[Run] {
        self.runs.get(micro_batch as usize % self.runs.len().max(1)).map_or(&[], Vec::as_slice)
    }

    /// The passage of a micro-batch with its graph through a layer of a run.
    pub(super) fn passage(&self, index: usize, turn: PassTurn, run: &Run) -> &'a Passage {
        let layer = &self.layers[index];
        let untrained = layer.untrained_input && *run.layers.start() == 0;
        match (turn, layer.first, layer.trace.untrained_input.as_deref().filter(|_| untrained)) {
            (PassTurn::First, Some(first), _) => first,
            (PassTurn::First, None, Some([first, _])) => first,
            (PassTurn::Later, _, Some([_, later])) => later,
            (PassTurn::First, None, None) => &layer.trace.first,
            (PassTurn::Later, _, None) => {
                let with_first = layer.later_with_first.filter(|_| *run.layers.start() == 0);
                with_first.unwrap_or(&layer.trace.later)
            }
        }
    }

    pub(super) fn playing(&self, index: usize, passage: &'a Passage) -> Playing<'a> {
        Playing::new(passage, StageEnds { first: index == 0, last: index + 1 == self.layers.len() })
    }

    /// Gradients are added up with those of other stages.
    pub(super) fn exchange(&self, machine: &mut Machine) {
        for layer in self.layers.iter().filter(|_| self.exchanges) {
            play_step(machine, &layer.trace.step, &layer.trace.step.exchange, |bytes| bytes);
        }
    }

    /// The optimizer updates a layer.
    pub(super) fn update(&self, machine: &mut Machine, index: usize) {
        if let Some(layer) = self.layers.get(index).filter(|layer| layer.updates) {
            play_step(machine, &layer.trace.step, &layer.trace.step.update, |bytes| {
                self.updated(layer, bytes)
            });
            if layer.gather > 0 {
                let buffer = machine.allocate(layer.gather, BlockClass::Communication);
                machine.release(buffer);
            }
        }
    }

    /// Returns what a block takes while a layer is updated: of tensors like a parameter in fp32 there is this replica's part. Steps have
    /// other blocks, too, like numbers that are the same for all scalars.
    fn updated(&self, layer: &StageLayer<'_>, bytes: u64) -> u64 {
        match layer.divided.iter().find(|&&scalars| FP32.saturating_mul(scalars) == bytes) {
            Some(&scalars) => FP32.saturating_mul(part_length(scalars, self.parts)),
            None => bytes,
        }
    }

    /// The end of an iteration: `gradients` are freed after the optimizer step.
    pub(super) fn step(&self, machine: &mut Machine, gradients: Vec<BlockId>) {
        self.exchange(machine);
        (0..self.layers.len()).for_each(|layer| self.update(machine, layer));
        gradients.into_iter().for_each(|id| machine.release(id));
    }
}

/// Equal layers that follow each other: for each layer the first and the last of those around it.
#[derive(Debug)]
pub(super) struct Runs(Vec<(usize, usize)>);

impl Runs {
    /// From the contents of all layers in order.
    pub(super) fn of(contents: &[String]) -> Self {
        let mut runs = Vec::with_capacity(contents.len());
        for run in contents.chunk_by(|one, other| one == other) {
            let first = runs.len();
            runs.extend(std::iter::repeat_n((first, first + run.len() - 1), run.len()));
        }
        Self(runs)
    }

    /// The first stage that plays the same as this one: within equal layers it does not matter where a stage
    /// begins, but at the model's ends. So as many stages are played as have different layers.
    pub(super) fn stand_in(&self, first: usize, last: usize) -> (usize, usize) {
        match self.0.get(first) {
            Some(&(begin, end)) if first > 0 && last <= end && last + 1 < self.0.len() => {
                let shift = first - begin.max(1);
                (first - shift, last - shift)
            }
            _ => (first, last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stages of equal layers share one; those with another layer or an end of the model stand for themselves.
    #[test]
    fn equal_layers_stand_in_for_each_other_but_at_the_ends() {
        let runs = Runs::of(&["a", "b", "b", "b", "c", "c", "c"].map(str::to_owned));
        assert_eq!([(1, 2), (2, 3)].map(|(first, last)| runs.stand_in(first, last)), [(1, 2); 2]);
        assert_eq!((runs.stand_in(3, 3), runs.stand_in(5, 5)), ((1, 1), (4, 4)));
        for itself in [(0, 0), (0, 2), (2, 4), (4, 6), (5, 6), (9, 9)] {
            assert_eq!(runs.stand_in(itself.0, itself.1), itself);
        }
        let alike = Runs::of(&["b", "b", "b", "b"].map(str::to_owned));
        assert_eq!(
            (alike.stand_in(2, 2), alike.stand_in(0, 1), alike.stand_in(3, 3)),
            ((1, 1), (0, 1), (3, 3))
        );
    }
}
