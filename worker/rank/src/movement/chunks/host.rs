//! Chunks in the host's memory, and the thread that updates them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Instant;

use loadmaster_proto::chunks::host::{HostMemory, HostPart};
use loadmaster_proto::chunks::stage::StepKernel;
use loadmaster_proto::training::{Optimizer, Precision};

use super::device_step;
use super::host_step::HostStep;
use super::lists::{Bf16, Instructions, Lists, Scalar, round_all};
use crate::completion::{Completion, Doing};
use crate::error::RankError;
use crate::ffi::{Mapping, Number};
use crate::movement::lane::First;
use crate::tape::defect;

/// How chunks are updated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Updating {
    pub(super) rule: Optimizer,
    pub(super) precision: Precision,
    pub(super) kernel: StepKernel,
    pub(super) threads: usize,
}

/// An update of a chunk that was asked for.
#[derive(Debug)]
pub(super) struct Update {
    /// Its gradients are there when this is done.
    pub(super) after: Completion,
    /// Where its gradients are, and its new parameters will be.
    pub(super) gradients: HostPart,
    /// Where its parameters are to be besides.
    pub(super) copies: Vec<HostPart>,
    /// What the optimizer keeps, the fp32 copy first.
    pub(super) state: Vec<HostPart>,
    /// Whether its gradients are zero again behind it: those of a table on the host, which are added up there.
    pub(super) clears: bool,
    /// Elements of each tensor that has a gradient: from which one on, and how many.
    pub(super) tensors: Vec<(u64, u64)>,
    /// Which update of the training it is, from 1.
    pub(super) steps: i32,
    pub(super) end: Doing,
}

/// The thread that updates chunks, one after the other.
#[derive(Debug)]
pub(super) struct Updater {
    asked: Sender<Update>,
    busy_nanoseconds: Arc<AtomicU64>,
}

impl Updater {
    /// Starts it. It ends when no one can ask any more.
    pub(super) fn start(memory: Arc<Mapping>, updating: Updating) -> Result<Self, RankError> {
        let (asked, updates) = mpsc::channel();
        let busy_nanoseconds = Arc::<AtomicU64>::default();
        let busy = busy_nanoseconds.clone();
        std::thread::Builder::new()
            .name("updates chunks".to_owned())
            .spawn(move || work(&updates, &memory, updating, &busy))
            .map_err(|error| {
                RankError::Other(format!("cannot start the thread of the CPU optimizer: {error}"))
            })?;
        Ok(Self { asked, busy_nanoseconds })
    }

    /// Asks for an update. Never more of them than an iteration has chunks.
    pub(super) fn ask(&self, update: Update) {
        // Where its thread is gone the update comes back, is dropped, and has failed.
        drop(self.asked.send(update));
    }

    /// Seconds in which it updated since the last call.
    pub(super) fn take_seconds(&self) -> f64 {
        self.busy_nanoseconds.swap(0, Ordering::Relaxed) as f64 / 1e9
    }
}

fn work(updates: &Receiver<Update>, memory: &Arc<Mapping>, updating: Updating, busy: &AtomicU64) {
    for update in updates {
        if !update.after.is_done_at_last() {
            continue;
        }
        let begin = Instant::now();
        let done = match updating.precision {
            Precision::Fp32 => update.run::<f32>(memory, updating),
            Precision::Bf16 | Precision::Bf16Fp32Gradients => update.run::<Bf16>(memory, updating),
        };
        let nanoseconds = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        busy.fetch_add(nanoseconds, Ordering::Relaxed);
        match done {
            Ok(()) => update.end.complete(),
            // Whoever waits for it is told that it failed; why is for people.
            Err(error) => eprintln!("loadmaster-rank: the CPU optimizer did not update a chunk: {error}"),
        }
    }
}

impl Update {
    fn run<L: Scalar + Number>(&self, memory: &Arc<Mapping>, updating: Updating) -> Result<(), RankError> {
        for &(first, elements) in &self.tensors {
            let lacks = || defect("a chunk is not in CPU memory");
            let fp32 = |part: Option<&HostPart>| match part {
                Some(part) => memory.numbers::<f32>(part.start + 4 * first, elements).ok_or_else(lacks),
                None => memory.numbers::<f32>(0, 0).ok_or_else(lacks),
            };
            let own = |part: &HostPart| {
                memory.numbers::<L>(part.start + size_of::<L>() as u64 * first, elements).ok_or_else(lacks)
            };
            let mut parameters = own(&self.gradients)?;
            let [mut weights, mut first_moments, mut second_moments] =
                [fp32(self.state.first())?, fp32(self.state.get(1))?, fp32(self.state.get(2))?];
            let lists = Lists {
                parameters: parameters.all(),
                weights: weights.all(),
                first: first_moments.all(),
                second: second_moments.all(),
            };
            match updating.kernel {
                StepKernel::OnePass => {
                    let step = HostStep::new(updating.rule, self.steps);
                    lists.step(&step, Instructions::Widest, updating.threads);
                }
                StepKernel::TensorWise => device_step::step_tensor_wise(lists, updating.rule, self.steps)?,
            }
            for copy in &self.copies {
                own(copy)?.all().copy_from_slice(parameters.all());
            }
            if self.clears {
                parameters.all().fill(L::round(0.0));
            }
        }
        Ok(())
    }
}

/// A buffer that gradients or rounded parameters pass through.
#[derive(Debug)]
pub(super) struct Passage {
    pub(super) index: usize,
    pub(super) part: HostPart,
    /// What must be over before anything may go there.
    pub(super) before: Option<Completion>,
}

/// Parameters that are made of their fp32 copy, from where a GPU copies them: it does nothing else.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rounding {
    pub(super) weights: HostPart,
    pub(super) to: HostPart,
    pub(super) elements: u64,
    pub(super) threads: usize,
}

impl Rounding {
    /// Behind all of these.
    pub(super) fn behind(self, after: Vec<Completion>, memory: Arc<Mapping>) -> First {
        let Self { weights, to, elements, threads } = self;
        Box::new(move || {
            let are_done = after.iter().all(Completion::is_done_at_last);
            let from = memory.numbers::<f32>(weights.start, elements);
            let to = memory.numbers::<Bf16>(to.start, elements);
            match from.zip(to).filter(|_| are_done) {
                Some((mut from, mut to)) => round_all(from.all(), to.all(), threads),
                None => return false,
            }
            true
        })
    }
}

/// A rank's chunks in the host's memory.
#[derive(Debug)]
pub(super) struct HostChunks {
    pub(super) mapping: Arc<Mapping>,
    pub(super) memory: HostMemory,
    pub(super) updater: Updater,
    /// The last update of each chunk.
    pub(super) updated: Vec<Option<Completion>>,
    /// When each buffer that something passes through is free.
    passed: Vec<Option<Completion>>,
    /// The one that is next.
    next: usize,
}

impl HostChunks {
    pub(super) fn new(mapping: Mapping, memory: HostMemory, updating: Updating) -> Result<Self, RankError> {
        let mapping = Arc::new(mapping);
        Ok(Self {
            updater: Updater::start(mapping.clone(), updating)?,
            mapping,
            updated: vec![None; memory.chunks.len()],
            passed: vec![None; memory.staging.len()],
            memory,
            next: 0,
        })
    }

    /// A buffer for what has no place: one after the other, so that each waits for what was asked for before it alone. Whoever
    /// gets it says until when it is used.
    pub(super) fn pass_through(&mut self) -> Result<Passage, RankError> {
        let index = self.next;
        let part = self.memory.staging.get(index).copied();
        let part = part.ok_or_else(|| defect("the rank has no pinned CPU buffer to copy a chunk through"))?;
        self.next = (index + 1) % self.memory.staging.len();
        Ok(Passage { index, part, before: self.passed[index].clone() })
    }

    /// A buffer is free again when this is over.
    pub(super) fn is_used_until(&mut self, index: usize, used: Completion) {
        self.passed[index] = Some(used);
    }

    /// Waits until all updates that were asked for are done.
    pub(super) fn settle(&self) -> Result<(), RankError> {
        self.updated.iter().flatten().try_for_each(Completion::wait)
    }
}
