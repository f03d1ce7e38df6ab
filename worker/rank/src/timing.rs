//! Seconds per layer and pass.
//!
//! A backward pass is one call into libtorch. Hooks on the tensors between layers say when it gets from
//! one layer to the next, so the graph need not be split to be timed.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use loadmaster_proto::measurement::LayerTimes;
use loadmaster_proto::run::Phase;
use tch::Tensor;

use crate::error::RankError;
use crate::ffi;
use crate::progress;

/// A clock that waits for a device that works asynchronously before it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Clock {
    asynchronous_device: Option<i32>,
}

impl Clock {
    /// A clock for work on the host or on this CUDA device.
    pub fn new(asynchronous_device: Option<i32>) -> Self {
        Self { asynchronous_device }
    }

    /// A clock that waits for nothing: what it says of an asynchronous device is when work was given to it.
    #[must_use]
    pub fn without_waiting(self) -> Self {
        Self { asynchronous_device: None }
    }

    /// The moment when all work so far is done.
    ///
    /// # Errors
    /// When work on the device has failed.
    pub fn now(self) -> Result<Instant, RankError> {
        if let Some(device) = self.asynchronous_device {
            ffi::synchronize(device)?;
        }
        Ok(Instant::now())
    }
}

/// When the gradient at an edge was complete. Edge k lies before layer k.
#[derive(Debug, Clone, Copy)]
struct Mark {
    edge: usize,
    moment: Instant,
}

struct Marks {
    clock: Clock,
    marks: Vec<Mark>,
}

/// Hooks carry nothing but a number, and run on threads of libtorch.
static MARKS: Mutex<Marks> =
    Mutex::new(Marks { clock: Clock { asynchronous_device: None }, marks: Vec::new() });

fn marks() -> MutexGuard<'static, Marks> {
    MARKS.lock().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn gradient_complete(edge: u64) {
    let edge = usize::try_from(edge).unwrap_or_default();
    // What now runs is the layer below the edge: it is the one to name if memory runs out.
    progress::enter(Phase::Backward, edge.checked_sub(1));
    let mut marks = marks();
    // A failure of the device comes up again where it can be reported.
    if let Ok(moment) = marks.clock.now() {
        marks.marks.push(Mark { edge, moment });
    }
}

/// Notes when backward passes complete the gradient of the tensor at this edge.
///
/// # Errors
/// When libtorch refuses.
pub fn watch(tensor: &Tensor, edge: usize) -> Result<(), RankError> {
    Ok(ffi::on_gradient(tensor, gradient_complete, edge as u64)?)
}

/// Sums of seconds of one layer, and how many passes they are of.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    forward: Duration,
    backward: Duration,
    recompute: Duration,
    passes: u32,
}

/// The times of a stage's layers.
#[derive(Debug)]
pub struct Times {
    clock: Clock,
    first_layer: usize,
    layers: Vec<Sums>,
}

/// Which sum a forward pass counts towards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardKind {
    /// The ordinary one.
    First,
    /// Done again in a backward pass.
    Again,
}

impl Times {
    /// Starts at zero.
    pub fn new(clock: Clock, first_layer: usize, layer_count: usize) -> Self {
        marks().clock = clock;
        Self { clock, first_layer, layers: vec![Sums::default(); layer_count] }
    }

    /// Forgets everything so far, and goes on with this clock.
    pub fn restart(&mut self, clock: Clock) {
        marks().clock = clock;
        self.clock = clock;
        self.layers.fill(Sums::default());
    }

    /// The clock in use.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Adds a forward pass of a layer.
    pub fn add_forward(&mut self, layer: usize, kind: ForwardKind, seconds: Duration) {
        if let Some(sums) = self.layers.get_mut(layer - self.first_layer) {
            match kind {
                ForwardKind::First => {
                    sums.forward += seconds;
                    sums.passes += 1;
                }
                ForwardKind::Again => sums.recompute += seconds,
            }
        }
    }

    /// Runs a backward pass through layers `first..=last` and shares its time among them.
    ///
    /// # Errors
    /// Those of the pass.
    pub fn backward(
        &mut self,
        first: usize,
        last: usize,
        pass: impl FnOnce() -> Result<(), RankError>,
    ) -> Result<(), RankError> {
        marks().marks.clear();
        let begin = self.clock.now()?;
        progress::enter(Phase::Backward, Some(last));
        pass()?;
        let end = self.clock.now()?;
        let taken = std::mem::take(&mut marks().marks);
        let mut start = begin;
        for layer in (first..=last).rev() {
            // Without a mark nothing below this layer is trained: it is the last one at work.
            let stop = taken.iter().find(|mark| mark.edge == layer).map_or(end, |mark| mark.moment);
            if let Some(sums) = self.layers.get_mut(layer - self.first_layer) {
                sums.backward += stop.saturating_duration_since(start);
            }
            start = start.max(stop);
        }
        Ok(())
    }

    /// Mean seconds per pass.
    pub fn means(&self) -> Vec<LayerTimes> {
        let mean = |sum: Duration, passes: u32| sum.as_secs_f64() / f64::from(passes.max(1));
        (self.first_layer..)
            .zip(&self.layers)
            .map(|(layer, sums)| LayerTimes {
                layer,
                forward_seconds: mean(sums.forward, sums.passes),
                backward_seconds: mean(sums.backward, sums.passes),
                recompute_seconds: mean(sums.recompute, sums.passes),
            })
            .collect()
    }
}
