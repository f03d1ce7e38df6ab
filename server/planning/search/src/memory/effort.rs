//! How much a search has looked at, and whether it should go on.

use super::super::{Ended, Stop};

/// States between two looks at the flag, and the work of each.
const STATES_BETWEEN_LOOKS: u64 = 1 << 12;
const STATE: u64 = 4;

/// Work of asking for a stage.
const STAGE: u64 = 20;

/// Work of writing a move down.
const MOVE: u64 = 12;

/// The search was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stopped;

/// Why a search did not come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfinished {
    /// The search was stopped.
    Stopped,
    /// It would take more memory than its limits allow.
    TooMany,
}

impl Unfinished {
    /// How a search ends that is left so.
    pub(super) fn ended(self) -> Ended {
        match self {
            Self::Stopped => Ended::Stopped,
            Self::TooMany => Ended::Bounded,
        }
    }
}

impl From<Stopped> for Unfinished {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

/// What a search may use, and how much it has used.
#[derive(Debug)]
pub(super) struct MemoryEffort<'a> {
    stop: &'a Stop,
    /// States that were weighed.
    pub(super) states: u64,
    next_look: u64,
    pub(super) limits: SizeLimits,
}

/// Where a search gives up, so that it never takes more memory than a planner has.
#[derive(Debug, Clone, Copy)]
pub(super) struct SizeLimits {
    /// Most states that are weighed as if the search were stopped after them.
    pub(super) states: u64,
    /// Most states that are weighed one by one at the same time: 256 MiB of counts.
    pub(super) states_at_once: usize,
    /// Most stages that are written down: 192 MiB.
    pub(super) legs: usize,
    /// Most stages whatever their layers, by place and number of stages that follow: 160 MiB.
    pub(super) moves: usize,
    /// Most stages that are asked for: 256 MiB of answers, and as much while they are halved.
    pub(super) cells: usize,
}

impl SizeLimits {
    pub(super) const USUAL: Self =
        Self { states: u64::MAX, states_at_once: 1 << 26, legs: 1 << 23, moves: 1 << 23, cells: 1 << 25 };
}

impl<'a> MemoryEffort<'a> {
    pub(super) fn new(stop: &'a Stop, limits: SizeLimits) -> Self {
        Self { stop, states: 0, next_look: 0, limits }
    }

    /// Whether to go on.
    pub(super) fn look(&self) -> Result<(), Stopped> {
        if self.stop.is_over() { Err(Stopped) } else { Ok(()) }
    }

    /// Counts a move that is written down.
    pub(super) fn list(&self) -> Result<(), Stopped> {
        self.stop.take(MOVE);
        self.look()
    }

    /// Counts stages that are asked for.
    pub(super) fn ask(&self, stages: usize) -> Result<(), Stopped> {
        self.stop.take(STAGE.saturating_mul(stages as u64));
        self.look()
    }

    /// Counts states that were weighed.
    pub(super) fn weigh(&mut self, states: usize) -> Result<(), Stopped> {
        self.states += states as u64;
        if self.states < self.next_look {
            return Ok(());
        }
        self.stop.take(STATE * STATES_BETWEEN_LOOKS.max(states as u64));
        self.next_look = self.limits.states.min(self.states + STATES_BETWEEN_LOOKS);
        if self.states >= self.limits.states { Err(Stopped) } else { self.look() }
    }
}
