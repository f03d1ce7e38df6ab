//! What is due at which boundary of an iteration.

use loadmaster_proto::chunks::residency::visits::{Visit, VisitCopies, Visits};

use super::clocks::Told;
use crate::predict::Away;

/// Numbers of what is due at each boundary, side by side.
#[derive(Debug, Clone)]
struct Due {
    numbers: Vec<usize>,
    /// Where those of each boundary end.
    ends: Vec<usize>,
}

impl Due {
    /// Of so many things those that are due at a boundary, up to the last; those of one are in their order.
    fn of(count: usize, last: usize, boundary: impl Fn(usize) -> Option<usize>) -> Self {
        let mut ends = vec![0; last + 1];
        let due = || (0..count).filter_map(|number| Some((number, boundary(number)?)));
        due().for_each(|(_, boundary)| ends[boundary] += 1);
        let mut before = 0;
        for of in &mut ends {
            // Where they begin, until they are in their places.
            before += std::mem::replace(of, before);
        }
        let mut numbers = vec![0; before];
        for (number, boundary) in due() {
            numbers[ends[boundary]] = number;
            ends[boundary] += 1;
        }
        Self { numbers, ends }
    }

    fn at(&self, boundary: usize) -> &[usize] {
        &self.numbers[self.begin(boundary)..self.ends[boundary]]
    }

    fn begin(&self, boundary: usize) -> usize {
        boundary.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// Those of one boundary in another order.
    fn sort_by_key(&mut self, key: impl Fn(usize) -> usize) {
        for boundary in 0..self.ends.len() {
            let range = self.begin(boundary)..self.ends[boundary];
            self.numbers[range].sort_by_key(|&number| key(number));
        }
    }
}

/// Visits that leave, are gone, come and are needed.
#[derive(Debug, Clone)]
pub(super) struct DueVisits {
    told: Vec<Told>,
    due: [Due; 4],
}

impl DueVisits {
    /// Those of an iteration of so many steps.
    pub(super) fn of(visits: &Visits<'_>, steps: usize) -> Self {
        let told: Vec<Told> =
            visits.all().map(|(payload, &visit, copies)| (payload, visit, copies)).collect();
        let due = |of: fn(&Visit, VisitCopies) -> Option<usize>| {
            Due::of(told.len(), steps, |number| of(&told[number].1, told[number].2))
        };
        let leave = due(|visit, copies| copies.leaves_changed.then_some(visit.leaves));
        let are_gone = due(|visit, copies| copies.leaves_changed.then_some(visit.freed));
        let mut come = due(|visit, copies| copies.comes.then_some(visit.fetched));
        let are_needed = due(|visit, copies| (copies.comes || copies.is_gathered).then_some(visit.needed));
        // Copies of one boundary in the order in which they are waited for.
        come.sort_by_key(|number| told[number].1.awaited(steps));
        Self { told, due: [leave, are_gone, come, are_needed] }
    }

    /// Those of a boundary, in the order in which they happen.
    pub(super) fn at(&self, boundary: usize) -> [impl Iterator<Item = &Told>; 4] {
        self.due.each_ref().map(|due| due.at(boundary).iter().map(|&number| &self.told[number]))
    }
}

/// The same of what micro-batches have on the host, by its number.
#[derive(Debug, Clone)]
pub(super) struct DueKept([Due; 4]);

impl DueKept {
    /// That of an iteration of so many steps.
    pub(super) fn of(away: &[Away], steps: usize) -> Self {
        // What has no bytes is not copied.
        let due = |of: fn(&Away) -> usize| {
            Due::of(away.len(), steps, |number| (away[number].bytes > 0).then(|| of(&away[number])))
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
