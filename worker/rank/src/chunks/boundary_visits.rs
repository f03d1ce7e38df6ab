//! Which payloads come and leave at which boundary.

use loadmaster_proto::chunks::residency::visits::{Visit, VisitCopies, Visits};

/// A visit: the position of its payload among the uses, when it is there, and what it moves.
#[derive(Debug, Clone, Copy)]
pub(super) struct PayloadVisit {
    pub(super) payload: usize,
    pub(super) visit: Visit,
    pub(super) copies: VisitCopies,
}

/// What is due at a boundary, in the order in which it happens.
#[derive(Debug, Clone, Default)]
pub(super) struct BoundaryEvents {
    pub(super) leave: Vec<PayloadVisit>,
    pub(super) are_gone: Vec<PayloadVisit>,
    pub(super) come: Vec<PayloadVisit>,
    pub(super) are_needed: Vec<PayloadVisit>,
}

/// The visits of an iteration, boundary by boundary: one more than there are steps.
#[derive(Debug, Default)]
pub(super) struct BoundaryVisits {
    due: Vec<BoundaryEvents>,
    /// Those that begin in the iteration before.
    pub(super) over_end: Vec<PayloadVisit>,
    /// Visits that begin with a copy.
    pub(super) fetches: u64,
}

impl BoundaryVisits {
    pub(super) fn new(visits: &Visits<'_>, steps: usize) -> Self {
        let mut visiting = Self { due: vec![BoundaryEvents::default(); steps + 1], ..Self::default() };
        for (payload, &visit, copies) in visits.all() {
            let told = PayloadVisit { payload, visit, copies };
            let due = &mut visiting.due;
            due[visit.leaves].leave.push(told);
            due[visit.freed].are_gone.push(told);
            due[visit.fetched].come.push(told);
            due[visit.needed].are_needed.push(told);
            visiting.over_end.extend(visit.is_over_end().then_some(told));
            visiting.fetches += u64::from(copies.comes);
        }
        // Copies of one boundary in the order in which they are waited for.
        visiting.due.iter_mut().for_each(|due| due.come.sort_by_key(|told| told.visit.awaited(steps)));
        visiting
    }

    /// What is due at a boundary.
    pub(super) fn due(&self, boundary: usize) -> BoundaryEvents {
        self.due.get(boundary).cloned().unwrap_or_default()
    }
}
