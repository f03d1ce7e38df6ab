//! Seconds per layer and pass, and the median of several.
//!
//! A backward pass is one call into libtorch. Hooks on the tensors between layers say when it gets from
//! one layer to the next, so the graph need not be split to be timed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loadmaster_proto::measure::failure::Phase;
use loadmaster_proto::measure::measurement::LayerTimes;
use loadmaster_proto::training::actions::Step;
use tch::Tensor;

use crate::clock::{Moment, Timer};
use crate::collective::operators::keep_cause;
use crate::error::RankError;
use crate::ffi::{self, Gate};
use crate::layers::ForwardKind;
use crate::movement::Movement;
use crate::progress;

/// When the gradient at an edge was complete. Edge k lies before layer k.
#[derive(Debug)]
struct Mark {
    edge: usize,
    moment: Moment,
    /// When what happens between two layers was over.
    over: Moment,
}

/// A backward pass: its micro-batch, as the stage's steps call it, and its lowest layer.
#[derive(Debug, Clone, Copy)]
struct Under {
    micro_batch: u32,
    first: usize,
}

/// What hooks note, which run on threads of libtorch.
#[derive(Debug)]
struct Marks {
    timer: Timer,
    pass: Option<Under>,
    marks: Vec<Mark>,
}

fn locked(marks: &Mutex<Marks>) -> MutexGuard<'_, Marks> {
    marks.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether the pass may go on.
fn gradient_complete(edge: usize, marks: &Mutex<Marks>, movement: &Movement) -> bool {
    // What now runs is the layer below the edge: it is the one to name if memory runs out.
    progress::enter(Phase::Backward, edge.checked_sub(1));
    let mut marks = locked(marks);
    // A failure of the device comes up again where it can be reported.
    let Ok(moment) = marks.timer.now() else { return true };
    // At the lowest edge of a pass no layer of it is left to do.
    let next = marks.pass.filter(|pass| edge > pass.first).map(|pass| pass.micro_batch);
    let next =
        next.zip(edge.checked_sub(1)).map(|(micro_batch, layer)| Step::Backward { micro_batch, layer });
    let acted = next.map_or(Ok(false), |step| movement.lock().before(step));
    let over = marks.timer.now().unwrap_or_else(|_| moment.clone());
    marks.marks.push(Mark { edge, moment, over });
    acted.map_err(keep_cause).is_ok()
}

/// Seconds of passes of one kind: of each micro-batch, what it took in each iteration.
#[derive(Debug, Clone, Default)]
struct Samples(Vec<Vec<f64>>);

impl Samples {
    /// Most iterations that are remembered: a median needs no more.
    const MOST: usize = 100;

    fn add(&mut self, micro_batch: u32, taken_seconds: f64) {
        let micro_batch = micro_batch as usize;
        if self.0.len() <= micro_batch {
            self.0.resize_with(micro_batch + 1, Vec::new);
        }
        let of_iterations = &mut self.0[micro_batch];
        if of_iterations.len() < Self::MOST {
            of_iterations.push(taken_seconds);
        }
    }

    /// Of each micro-batch the median over the iterations, of these the mean. The first backward pass of an
    /// iteration makes the gradients and the others add to them, so micro-batches differ by more than chance,
    /// and iterations do not.
    fn typical(&self) -> f64 {
        let medians: f64 = self.0.iter().map(|of_iterations| median(of_iterations)).sum();
        medians / self.0.len().max(1) as f64
    }
}

/// What the passes of one layer took.
#[derive(Debug, Clone, Default)]
struct LayerSamples {
    forward: Samples,
    backward: Samples,
    recompute: Samples,
}

/// The times of a stage's layers.
#[derive(Debug)]
pub struct Times {
    timer: Timer,
    /// What holds a pass up that is being asked for.
    gate: Option<Gate>,
    first_layer: usize,
    layers: Vec<LayerSamples>,
    marks: Arc<Mutex<Marks>>,
}

impl Times {
    /// Starts at zero.
    pub fn new(first_layer: usize, layer_count: usize) -> Self {
        let layers = vec![LayerSamples::default(); layer_count];
        let marks = Marks { timer: Timer::Host, pass: None, marks: Vec::new() };
        Self { timer: Timer::Host, gate: None, first_layer, layers, marks: Arc::new(Mutex::new(marks)) }
    }

    /// Forgets everything so far, and goes on with this timer.
    pub fn restart(&mut self, timer: Timer) {
        locked(&self.marks).timer = timer.clone();
        self.timer = timer;
        self.layers.fill(LayerSamples::default());
    }

    /// The timer in use.
    pub fn timer(&self) -> &Timer {
        &self.timer
    }

    /// A pass begins: what it asks for is held up, if that is how it is timed. Returns when it begins.
    ///
    /// # Errors
    /// When the GPU refuses.
    pub fn begin_pass(&mut self) -> Result<Moment, RankError> {
        self.gate = self.timer.gate()?;
        self.timer.now()
    }

    /// Lets a pass go on: all of it was asked for, or the host waits for a part of it.
    pub fn let_go(&mut self) {
        self.gate = None;
    }

    /// Notes when backward passes complete the gradient of the tensor at this edge, where the boundary is before the layer below it.
    ///
    /// # Errors
    /// When libtorch refuses.
    pub fn watch(&self, tensor: &Tensor, edge: usize, movement: &Movement) -> Result<(), RankError> {
        let (marks, movement) = (self.marks.clone(), movement.clone());
        Ok(ffi::on_gradient(tensor, move || gradient_complete(edge, &marks, &movement))?)
    }

    /// Adds a forward pass of a layer, of so many seconds.
    pub fn add_forward(&mut self, layer: usize, kind: ForwardKind, micro_batch: u32, seconds: f64) {
        if let Some(passes) = self.layers.get_mut(layer - self.first_layer) {
            match kind {
                ForwardKind::First => passes.forward.add(micro_batch, seconds),
                ForwardKind::Again => passes.recompute.add(micro_batch, seconds),
            }
        }
    }

    /// Runs a micro-batch's backward pass through layers `first..=last` and shares its time among them.
    ///
    /// # Errors
    /// Those of the pass.
    pub fn backward(
        &mut self,
        (first, last): (usize, usize),
        (micro_batch, in_steps): (u32, u32),
        pass: impl FnOnce() -> Result<(), RankError>,
    ) -> Result<(), RankError> {
        {
            let mut marks = locked(&self.marks);
            marks.marks.clear();
            marks.pass = Some(Under { micro_batch: in_steps, first });
        }
        let begin = self.begin_pass()?;
        progress::enter(Phase::Backward, Some(last));
        let passed = pass();
        self.let_go();
        passed?;
        let end = begin.seconds_to(&self.timer.now()?)?;
        let taken = std::mem::take(&mut locked(&self.marks).marks);
        let mut start = 0.0;
        for layer in (first..=last).rev() {
            // Without a mark nothing below this layer is trained: it is the last one at work.
            let mark = taken.iter().find(|mark| mark.edge == layer);
            let [stop, over] = match mark {
                Some(mark) => [begin.seconds_to(&mark.moment)?, begin.seconds_to(&mark.over)?],
                None => [end; 2],
            };
            if let Some(passes) = self.layers.get_mut(layer - self.first_layer) {
                passes.backward.add(micro_batch, f64::max(stop - start, 0.0));
            }
            start = f64::max(start, over);
        }
        Ok(())
    }

    /// Seconds per pass, of each layer: medians over the iterations.
    pub fn typical(&self) -> Vec<LayerTimes> {
        (self.first_layer..)
            .zip(&self.layers)
            .map(|(layer, passes)| LayerTimes {
                layer,
                forward_seconds: passes.forward.typical(),
                backward_seconds: passes.backward.typical(),
                recompute_seconds: passes.recompute.typical(),
            })
            .collect()
    }
}

/// The middle one, or the mean of the two in the middle; nothing of nothing.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut ascending = values.to_vec();
    ascending.sort_by(f64::total_cmp);
    let (upper, lower) = (ascending.len() / 2, ascending.len().saturating_sub(1) / 2);
    match (ascending.get(lower), ascending.get(upper)) {
        (Some(lower), Some(upper)) => (lower + upper) / 2.0,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An iteration that was disturbed, whichever it was of each micro-batch, does not count; that the first
    /// backward pass is another one than the next does.
    #[test]
    fn seconds_of_a_pass_are_medians_over_iterations_and_means_over_micro_batches() {
        let mut times = Times::new(3, 2);
        for [first, second] in [[2.0, 90.0], [1.0, 5.0], [80.0, 4.0]] {
            times.add_forward(4, ForwardKind::First, 0, first);
            times.add_forward(4, ForwardKind::First, 1, second);
            times.add_forward(4, ForwardKind::Again, 1, first);
        }
        let [untouched, timed] = times.typical().try_into().unwrap();
        assert_eq!(untouched, LayerTimes { layer: 3, ..LayerTimes::default() });
        assert_eq!((timed.layer, timed.forward_seconds), (4, (2.0 + 5.0) / 2.0));
        assert_eq!((timed.recompute_seconds, timed.backward_seconds), (2.0 / 2.0, 0.0));
        times.restart(Timer::Host);
        assert_eq!(times.typical()[1].forward_seconds, 0.0);
    }

    #[test]
    fn a_long_training_is_not_remembered_whole() {
        let mut samples = Samples::default();
        for _ in 0..Samples::MOST + 10 {
            samples.add(0, 1.0);
        }
        assert_eq!((samples.0[0].len(), samples.typical()), (Samples::MOST, 1.0));
    }

    #[test]
    fn the_median_is_the_middle_one_or_between_the_two_in_the_middle() {
        assert_eq!(median(&[5.0, 1.0, 3.0]), 3.0);
        assert_eq!(median(&[2.0, 1.0]), 1.5);
        assert_eq!(median(&[4.0]), 4.0);
        assert_eq!(median(&[]), 0.0);
    }
}
