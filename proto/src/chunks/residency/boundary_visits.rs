//! The visits of an iteration, boundary by boundary.

use super::visits::{Visit, VisitCopies, Visits};
use crate::training::boundaries::{BoundaryAct, BoundaryTable};

/// A visit with what it moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadVisit {
    /// The position of its payload among the uses.
    pub payload: usize,
    /// When the payload is there.
    pub visit: Visit,
    /// What it moves.
    pub copies: VisitCopies,
}

/// The visits of an iteration by what is due at each boundary: one more than there are steps.
#[derive(Debug, Clone, Default)]
pub struct BoundaryVisits {
    all: Vec<PayloadVisit>,
    due: BoundaryTable,
}

impl BoundaryVisits {
    /// Makes the table. `acts` returns for each act whether a visit that moves this has anything to do in it.
    pub fn new(visits: &Visits<'_>, acts: impl Fn(VisitCopies) -> [bool; 4]) -> Self {
        let steps = visits.steps();
        let all = visits.all().map(|(payload, &visit, copies)| PayloadVisit { payload, visit, copies });
        let all: Vec<PayloadVisit> = all.collect();
        let at = |index: usize| {
            let PayloadVisit { visit, copies, .. } = all[index];
            let (boundaries, acts) = (visit.at.boundaries(), acts(copies));
            std::array::from_fn(|act| acts[act].then_some(boundaries[act]))
        };
        // Copies of one boundary in the order in which they are waited for.
        let due = BoundaryTable::new((all.len(), steps + 1), at, |index| all[index].visit.at.awaited(steps));
        Self { all, due }
    }

    /// Returns all of them, payload by payload.
    pub fn all(&self) -> &[PayloadVisit] {
        &self.all
    }

    /// Returns the visits of which an act is due at a boundary.
    pub fn due(&self, boundary: usize, act: BoundaryAct) -> impl Iterator<Item = &PayloadVisit> {
        self.due.due(boundary, act).iter().map(|&index| &self.all[index])
    }
}
