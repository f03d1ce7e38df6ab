//! What is due at which boundary of a device.

use super::{DeviceSteps, Trip};

/// What a boundary does, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Leave = 0,
    Free = 1,
    Fetch = 2,
    Need = 3,
}

/// What a device does at its boundaries.
pub(super) struct DeviceTable {
    /// The number of its first trip.
    pub(super) first_trip: u32,
    /// By boundary and act: where its entries begin in `due`; and their end.
    begins: Vec<u32>,
    due: Vec<BoundaryEvent>,
    /// Of CPU slots: their node, and the component that shares its cores.
    pub(super) node: Option<(u32, u32)>,
    /// How many slots of that node it stands for.
    pub(super) slots: f64,
}

/// A trip whose act is due.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BoundaryEvent {
    pub(super) trip: u32,
    /// Whether it began in the iteration before.
    pub(super) is_of_last: bool,
}

impl DeviceTable {
    pub(super) fn of(steps: &DeviceSteps, first_trip: u32) -> Self {
        let count = steps.steps.len();
        let acts = |(index, trip): (usize, &Trip)| {
            let trip_number = first_trip + index as u32;
            [trip.leaves, trip.freed, trip.fetched, trip.needed].into_iter().enumerate().map(
                move |(act, boundary)| {
                    let due = BoundaryEvent { trip: trip_number, is_of_last: boundary >= count };
                    (4 * (boundary % count.max(1)) + act, due)
                },
            )
        };
        let moved =
            || steps.trips.iter().enumerate().filter(|(_, trip)| !trip.parcels.is_empty()).flat_map(acts);
        let mut begins = vec![0_u32; 4 * count + 1];
        moved().for_each(|(at, _)| begins[at + 1] += 1);
        for at in 0..4 * count {
            begins[at + 1] += begins[at];
        }
        let mut next = begins.clone();
        let mut due = vec![BoundaryEvent::default(); begins.last().map_or(0, |&all| all as usize)];
        moved().for_each(|(at, of)| {
            due[next[at] as usize] = of;
            next[at] += 1;
        });
        // What is needed first comes first.
        let until_needed = |of: &BoundaryEvent| {
            let trip = steps.trips.get((of.trip - first_trip) as usize);
            trip.map_or(0, |trip| trip.needed.saturating_sub(trip.fetched))
        };
        for boundary in 0..count {
            let at = 4 * boundary + Act::Fetch as usize;
            due[begins[at] as usize..begins[at + 1] as usize].sort_by_key(until_needed);
        }
        Self { first_trip, begins, due, node: None, slots: 0.0 }
    }

    /// Whether nothing is due at a boundary.
    pub(super) fn is_idle(&self, boundary: usize) -> bool {
        self.begins[4 * boundary] == self.begins[4 * boundary + 4]
    }

    /// What is due at a boundary.
    pub(super) fn due(&self, boundary: usize, act: Act) -> &[BoundaryEvent] {
        let at = 4 * boundary + act as usize;
        &self.due[self.begins[at] as usize..self.begins[at + 1] as usize]
    }
}
