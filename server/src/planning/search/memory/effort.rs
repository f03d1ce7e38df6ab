//! How much a search has looked at, and whether it should go on.

use super::super::Stop;

/// States between two looks at the flag.
const STATES_BETWEEN_LOOKS: u64 = 1 << 12;

/// The search was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stopped;

/// What a search may use, and how much it has used.
#[derive(Debug)]
pub(super) struct Effort<'a> {
    stop: &'a Stop,
    /// States that were weighed.
    pub(super) states: u64,
    next_look: u64,
    pub(super) limits: Limits,
}

/// Where a search gives up, so that it never takes more memory than a planner has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Most states that are weighed as if the search were stopped after them.
    pub(super) states: u64,
    /// Most states that are weighed one by one at the same time: 512 MiB of counts.
    pub(super) states_at_once: usize,
    /// Most stages that are written down: 384 MiB.
    pub(super) arcs: usize,
    /// Most stages whatever their layers, by place and number of stages that follow: 512 MiB.
    pub(super) moves: usize,
    /// Most stages that are asked for: 512 MiB of answers, and as much while they are halved.
    pub(super) cells: usize,
}

impl Limits {
    pub(super) const USUAL: Self =
        Self { states: u64::MAX, states_at_once: 1 << 27, arcs: 1 << 24, moves: 1 << 24, cells: 1 << 26 };
}

impl<'a> Effort<'a> {
    pub(super) fn new(stop: &'a Stop, limits: Limits) -> Self {
        Self { stop, states: 0, next_look: 0, limits }
    }

    /// Whether to go on.
    pub(super) fn look(&self) -> Result<(), Stopped> {
        if self.stop.is_requested() { Err(Stopped) } else { Ok(()) }
    }

    /// Counts states that were weighed.
    pub(super) fn weigh(&mut self, states: usize) -> Result<(), Stopped> {
        self.states += states as u64;
        if self.states < self.next_look {
            return Ok(());
        }
        self.next_look = self.limits.states.min(self.states + STATES_BETWEEN_LOOKS);
        if self.states >= self.limits.states { Err(Stopped) } else { self.look() }
    }
}
