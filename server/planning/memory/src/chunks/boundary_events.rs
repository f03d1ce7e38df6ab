//! What is due at which boundary of an iteration.

use loadmaster_proto::chunks::residency::group_index::GroupIndex;
use loadmaster_proto::chunks::residency::visits::{Visit, VisitCopies, Visits};

use super::lane_clocks::PayloadVisit;
use loadmaster_predict::Away;

/// Visits that leave, are gone, come and are needed.
#[derive(Debug, Clone)]
pub(super) struct BoundaryVisits {
    told: Vec<PayloadVisit>,
    /// By boundary.
    due: [GroupIndex; 4],
}

impl BoundaryVisits {
    /// Those of an iteration of so many steps.
    pub(super) fn of(visits: &Visits<'_>, steps: usize) -> Self {
        let told: Vec<PayloadVisit> =
            visits.all().map(|(payload, &visit, copies)| (payload, visit, copies)).collect();
        let due = |of: fn(&Visit, VisitCopies) -> Option<usize>| {
            GroupIndex::of(told.len(), steps + 1, |number| of(&told[number].1, told[number].2))
        };
        let leave = due(|visit, copies| copies.leaves_changed.then_some(visit.leaves));
        let are_gone = due(|visit, copies| copies.leaves_changed.then_some(visit.freed));
        let come = due(|visit, copies| copies.comes.then_some(visit.fetched));
        let are_needed = due(|visit, copies| (copies.comes || copies.is_gathered).then_some(visit.needed));
        // Copies of one boundary in the order in which they are waited for.
        let come = come.sorted_by_key(|number| told[number].1.awaited(steps));
        Self { told, due: [leave, are_gone, come, are_needed] }
    }

    /// Those of a boundary, in the order in which they happen.
    pub(super) fn at(&self, boundary: usize) -> [impl Iterator<Item = &PayloadVisit>; 4] {
        self.due.each_ref().map(|due| due.at(boundary).iter().map(|&number| &self.told[number]))
    }
}

/// The same of what micro-batches have on the host, by its number.
#[derive(Debug, Clone)]
pub(super) struct BoundaryActivations([GroupIndex; 4]);

impl BoundaryActivations {
    /// That of an iteration of so many steps.
    pub(super) fn of(away: &[Away], steps: usize) -> Self {
        // What has no bytes is not copied.
        let due = |of: fn(&Away) -> usize| {
            GroupIndex::of(away.len(), steps + 1, |number| {
                (away[number].bytes > 0).then(|| of(&away[number]))
            })
        };
        Self([
            due(|away| away.absence.leaves),
            due(|away| away.absence.freed),
            due(|away| away.absence.fetched),
            due(|away| away.absence.needed),
        ])
    }

    /// That of a boundary, in the order in which it happens.
    pub(super) fn at(&self, boundary: usize) -> [&[usize]; 4] {
        self.0.each_ref().map(|due| due.at(boundary))
    }
}
