//! Updates of parameters on the host, as a training in chunks has them: the optimizer's step in one pass over its lists.
//!
//! The same code updates as in training (`movement/chunks/lists.rs`), with the rank's own threads, in memory of the same kind. Each step is
//! over the next of several sets of lists, so that none of them is in a cache.

use std::sync::Arc;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::links::LinkWork;
use loadmaster_proto::measure::links::updates::{DeviceUpdates, TimedUpdate};
use loadmaster_proto::measure::rank::LinkSpec;
use loadmaster_proto::training::step_kind::StepKind;
use loadmaster_proto::training::{Optimizer, Precision};

use super::{Rank, beyond_caches, typical};
use crate::error::RankError;
use crate::ffi::{Mapping, Number};
use crate::movement::chunks::host_step::HostStep;
use crate::movement::chunks::lists::{Bf16, Instructions, Lists, Scalar};
use crate::progress;
use crate::tape::defect;

/// Lists of a parameter that are in fp32, at most: the weight and two moments.
const FP32_LISTS: u64 = 3;
/// Bytes of a parameter in all lists, with its gradient in fp32.
const PARAMETER_BYTES: u64 = 4 * (1 + FP32_LISTS);

/// How many passes of progress this is.
pub(super) fn passes(work: &LinkWork) -> usize {
    work.devices as usize + 1
}

/// Every kind of step for this rank alone, the others waiting, and for all ranks at once.
pub(super) fn measure(rank: &Rank<'_>, spec: &LinkSpec) -> Result<DeviceUpdates, RankError> {
    let mut host = HostLists::new(rank, spec)?;
    let mut alone = Vec::new();
    for device in 0..spec.work.devices {
        rank.mesh.wait_for_all()?;
        if device == spec.index {
            for step in StepKind::ALL {
                alone.push(host.typical_seconds(rank, step, || Ok(()))?);
            }
        }
        progress::pass_done();
    }
    let mut steps = Vec::new();
    for (step, alone_seconds) in StepKind::ALL.into_iter().zip(alone) {
        let together_seconds = host.typical_seconds(rank, step, || rank.mesh.wait_for_all())?;
        steps.push(TimedUpdate { step, parameters: host.parameters, alone_seconds, together_seconds });
    }
    // No one goes on while another one still updates beside no one.
    rank.mesh.wait_for_all()?;
    progress::pass_done();
    Ok(DeviceUpdates { device: spec.index, steps })
}

/// Lists in the host's memory.
struct HostLists {
    memory: Arc<Mapping>,
    /// Of a set.
    parameters: u64,
    sets: u64,
    /// The set that is updated next.
    next: u64,
    threads: usize,
}

impl HostLists {
    fn new(rank: &Rank<'_>, spec: &LinkSpec) -> Result<Self, RankError> {
        let parameters = spec.work.updated_parameters();
        let set = PARAMETER_BYTES * parameters;
        let sets = (beyond_caches(spec.work.devices) as u64).div_ceil(set).max(1);
        let memory = Arc::new(rank.memory.host_pool(Bytes(sets * set))?);
        let threads = usize::try_from(spec.threads).unwrap_or(1);
        Ok(Self { memory, parameters, sets, next: 0, threads })
    }

    /// Median seconds of a step that begins when `begin` is over, the first one not counted.
    fn typical_seconds(
        &mut self,
        rank: &Rank<'_>,
        kind: StepKind,
        begin: impl Fn() -> Result<(), RankError>,
    ) -> Result<f64, RankError> {
        let step = HostStep::new(rule(kind), 1);
        let mut seconds = Vec::with_capacity(rank.work.repeats as usize);
        for repeat in 0..=rank.work.repeats {
            begin()?;
            let start = rank.clock.now()?;
            match kind.precision() {
                Precision::Fp32 => self.update::<f32>(&step)?,
                Precision::Bf16 | Precision::Bf16Fp32Gradients => self.update::<Bf16>(&step)?,
            }
            let taken = (rank.clock.now()? - start).as_secs_f64();
            if repeat > 0 {
                seconds.push(taken);
            }
            progress::tick();
        }
        Ok(typical(&seconds))
    }

    /// One step over the next set. Memory begins as zeros, and stays so: gradients of zero change nothing.
    fn update<L: Scalar + Number>(&mut self, step: &HostStep) -> Result<(), RankError> {
        let start = self.next * PARAMETER_BYTES * self.parameters;
        self.next = (self.next + 1) % self.sets;
        let lacks =
            || defect("a buffer of a CPU optimizer step is outside the memory allocated for this step");
        let list = |index: u64| {
            let at = start + 4 * (1 + index) * self.parameters;
            self.memory.numbers::<f32>(at, self.parameters).ok_or_else(lacks)
        };
        let mut parameters = self.memory.numbers::<L>(start, self.parameters).ok_or_else(lacks)?;
        let [mut weights, mut first, mut second] = [list(0)?, list(1)?, list(2)?];
        let lists = Lists {
            parameters: parameters.all(),
            weights: weights.all(),
            first: first.all(),
            second: second.all(),
        };
        lists.step(step, Instructions::Widest, self.threads);
        Ok(())
    }
}

/// A rule of this kind. What its numbers are does not matter to how long it takes.
fn rule(kind: StepKind) -> Optimizer {
    let learning_rate = 1e-3;
    match kind.state_lists() {
        0 => Optimizer::Sgd { learning_rate, momentum: 0.0, weight_decay: 0.0 },
        1 => Optimizer::Sgd { learning_rate, momentum: 0.9, weight_decay: 0.0 },
        _ => Optimizer::Adam { learning_rate, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is timed is the step that it is called.
    #[test]
    fn a_rule_is_of_its_kind() {
        for kind in StepKind::ALL {
            assert_eq!(StepKind::of(&rule(kind), kind.precision()), kind);
        }
    }
}
