//! What a rule makes of the room that there is: intervals.

use std::ops::Range;

use super::intervals::ResidencyInterval;
use super::uses::{PayloadUses, Uses};
use crate::chunks::paging::{Access, AccessCycle, Shortage};
use crate::training::boundaries::BoundaryInterval;

/// How payloads come and leave: where there is no room, the payload with the farthest next use leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Paging {
    /// So many payloads are on their way before they are needed: one is fetched where the one so many places before it in the
    /// order of needs is needed, if there is room.
    pub ahead: usize,
    /// So many steps pass before a complete payload must be gone that is copied to the host, if there is room.
    pub behind: usize,
}

/// Steps between two uses of a payload, in which it may be away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// Its position among the uses' payloads.
    pub payload: usize,
    /// The steps: at least one, behind a use and before another.
    pub steps: Range<usize>,
}

/// Gaps of which it is not the rule that decides whether payloads are there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decided {
    /// In these they are.
    pub stays: Vec<Gap>,
    /// In these they are not, unless they come ahead of their need.
    pub leaves: Vec<Gap>,
}

impl Decided {
    /// Whether a payload leaves behind a step.
    fn leaves_behind(&self, payload: usize, step: usize) -> bool {
        self.leaves.iter().any(|gap| gap.payload == payload && gap.steps.start == step + 1)
    }
}

/// All gaps, payload by payload. `spills` says of a payload whether the host has a place for it before its gradients
/// are complete.
pub fn gaps(uses: &Uses, spills: impl Fn(&PayloadUses) -> bool) -> Vec<Gap> {
    let mut gaps = Vec::new();
    for (payload, of) in uses.payloads().iter().enumerate() {
        for pair in needed(of, of.changed.filter(|_| !spills(of))).windows(2) {
            let steps = pair[0] + 1..pair[1];
            gaps.extend((!steps.is_empty()).then_some(Gap { payload, steps }));
        }
    }
    gaps
}

impl Paging {
    /// Nothing is there but what a step needs.
    pub const AT_NEED: Self = Self { ahead: 0, behind: 0 };

    /// The intervals of an iteration with this much room for payloads in each step, where a chunk's payload takes `bytes`.
    /// `spills` says of a payload whether the host has a place for it before its gradients are complete.
    ///
    /// # Errors
    /// The first step that needs more than there is room for.
    pub fn intervals(
        &self,
        uses: &Uses,
        bytes: impl Fn(usize) -> u64,
        room: &[u64],
        spills: impl Fn(&PayloadUses) -> bool,
    ) -> Result<Vec<ResidencyInterval>, Shortage> {
        self.intervals_with(uses, bytes, room, spills, &Decided::default())
    }

    /// The same where it is decided of some [`gaps`] whether their payloads are there.
    ///
    /// # Errors
    /// The first step that needs more than there is room for, with what stays.
    pub fn intervals_with(
        &self,
        uses: &Uses,
        bytes: impl Fn(usize) -> u64,
        room: &[u64],
        spills: impl Fn(&PayloadUses) -> bool,
        decided: &Decided,
    ) -> Result<Vec<ResidencyInterval>, Shortage> {
        let payloads = uses.payloads();
        let bytes: Vec<u64> = payloads.iter().map(|of| bytes(of.payload.chunk)).collect();
        let mut there = There::new(uses, bytes, room, spills);
        there.stay(&decided.stays);
        there.come_earlier(uses, self.ahead);
        there.stay_later(uses, self.behind);
        let There { held, bytes, .. } = there;
        let mut last = vec![None; payloads.len()];
        for (step, held) in held.iter().enumerate() {
            held.iter().for_each(|&payload| last[payload] = Some(step));
        }
        let ends = |payload: usize, step: usize| {
            let is_there_next = || held.get(step + 1).is_some_and(|held| held.contains(&payload));
            last[payload] == Some(step) || decided.leaves_behind(payload, step) && !is_there_next()
        };
        let of = |(step, used): (usize, &Vec<usize>)| -> Vec<usize> {
            used.iter().copied().filter(|&payload| ends(payload, step)).collect()
        };
        let ending: Vec<Vec<usize>> = held.iter().enumerate().map(of).collect();
        let accesses = held.into_iter().zip(ending.iter().cloned());
        let accesses = accesses.map(|(used, let_go)| Access { used, let_go }).collect();
        let cycle = AccessCycle::of_bytes(accesses, room.to_vec(), bytes)?;
        Ok(told(uses, &cycle, ending))
    }
}

/// Which payloads must be there in each step.
struct There<'a> {
    held: Vec<Vec<usize>>,
    /// Bytes of those in each step.
    taken: Vec<u64>,
    bytes: Vec<u64>,
    room: &'a [u64],
    /// The steps in which payloads begin to be needed, and which, in order.
    begins: Vec<(usize, usize)>,
}

impl<'a> There<'a> {
    fn new(uses: &Uses, bytes: Vec<u64>, room: &'a [u64], spills: impl Fn(&PayloadUses) -> bool) -> Self {
        let steps = uses.steps();
        let (held, taken) = (vec![Vec::new(); steps], vec![0; steps]);
        let mut there = Self { held, taken, bytes, room, begins: Vec::new() };
        for (payload, of) in uses.payloads().iter().enumerate() {
            let mut before = None;
            for step in needed(of, of.changed.filter(|_| !spills(of))) {
                there.add(payload, step);
                if before.is_none_or(|before| before + 1 < step) {
                    there.begins.push((step, payload));
                }
                before = Some(step);
            }
        }
        there.begins.sort_unstable();
        there
    }

    /// Payloads are there in these gaps, and do not begin to be needed behind them.
    fn stay(&mut self, gaps: &[Gap]) {
        for Gap { payload, steps } in gaps {
            steps.clone().for_each(|step| self.add(*payload, step));
            self.begins.retain(|of| *of != (steps.end, *payload));
        }
    }

    /// Of a payload that is not there.
    fn add(&mut self, payload: usize, step: usize) {
        self.held[step].push(payload);
        self.taken[step] = self.taken[step].saturating_add(self.bytes[payload]);
    }

    /// Whether a payload more has room in a step in which it need not be there.
    fn has_room(&self, payload: usize, step: usize) -> bool {
        let all = self.taken[step].saturating_add(self.bytes[payload]);
        all <= self.room.get(step).copied().unwrap_or(0) && !self.held[step].contains(&payload)
    }

    fn come_earlier(&mut self, uses: &Uses, ahead: usize) {
        let mut begins = std::mem::take(&mut self.begins);
        // Gradients that are apart are made where the first of them is found, and what each rank has its part of on the device
        // comes from there: nothing is copied.
        begins.retain(|&(step, payload)| {
            let of = &uses.payloads()[payload];
            let is_made = of.payload.is_gradients && of.gradients.first() == Some(&step);
            !is_made && !uses.is_on_device(of.payload.chunk)
        });
        for (index, &(step, payload)) in begins.iter().enumerate() {
            let from = index.checked_sub(ahead).map_or(0, |earlier| begins[earlier].0);
            for earlier in (from..step).rev() {
                if !self.has_room(payload, earlier) {
                    break;
                }
                self.add(payload, earlier);
            }
        }
    }

    fn stay_later(&mut self, uses: &Uses, behind: usize) {
        for (payload, of) in uses.payloads().iter().enumerate() {
            let leaves = of.changed.filter(|_| !uses.is_on_device(of.payload.chunk));
            let Some((_, last)) = leaves else { continue };
            for later in (last + 1..self.held.len()).take(behind) {
                if !self.has_room(payload, later) {
                    break;
                }
                self.add(payload, later);
            }
        }
    }
}

/// The steps in which a payload must be there, ascending: those that use it, and all from one to another where it
/// may not leave.
pub(super) fn needed(of: &PayloadUses, stays: Option<(usize, usize)>) -> Vec<usize> {
    let Some((first, last)) = stays else { return of.steps.clone() };
    let before = of.steps.iter().copied().take_while(|&step| step < first);
    let behind = of.steps.iter().copied().filter(|&step| step > last);
    before.chain(first..=last).chain(behind).collect()
}

/// Returns the residency intervals of a paging rule, access by access. The payloads of `ending` are freed after each
/// access.
fn told(uses: &Uses, cycle: &AccessCycle, ending: Vec<Vec<usize>>) -> Vec<ResidencyInterval> {
    let mut residency = cycle.residency();
    let mut fetched: Vec<Option<usize>> = vec![None; uses.payloads().len()];
    let mut intervals = Vec::new();
    let mut end = |payload: usize, came: usize, freed: usize| {
        let of = &uses.payloads()[payload];
        let mut used = of.steps.iter().copied().filter(|step| (came..freed).contains(step));
        // What came early and had to leave before it was needed did not come.
        if let Some(needed) = used.next() {
            let leaves = used.next_back().unwrap_or(needed) + 1;
            let at = BoundaryInterval { fetched: came, needed, leaves, freed };
            intervals.push(ResidencyInterval { at, payload: of.payload });
        }
    };
    for (step, ending) in ending.into_iter().enumerate() {
        let moment = residency.access();
        for payload in moment.evicted {
            if let Some(came) = fetched[payload].take() {
                end(payload, came, step);
            }
        }
        for payload in moment.fetched {
            fetched[payload] = Some(step);
        }
        for payload in ending {
            if let Some(came) = fetched[payload].take() {
                end(payload, came, step + 1);
            }
        }
    }
    intervals.sort_unstable();
    intervals
}
