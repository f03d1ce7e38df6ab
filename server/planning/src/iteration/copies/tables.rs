//! What is due at which boundary, and which lanes depend on each other.

use std::collections::BTreeSet;

use super::{CopiesError, Handed, Place, Stepped, Way};

/// What a boundary does, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Leave = 0,
    Free = 1,
    Fetch = 2,
    Need = 3,
}

/// A simulation's input, numbered through.
pub(super) struct Tables<'a> {
    pub(super) of: Stepped<'a>,
    pub(super) devices: Vec<DeviceTable>,
    /// Parcels of trip t are those from `first_parcel[t]` to `first_parcel[t + 1]`.
    pub(super) first_parcel: Vec<u32>,
    pub(super) parcels: Vec<ParcelTable>,
    pub(super) ways: Vec<WayTable>,
    /// Rates that ways share.
    pub(super) groups: Vec<f64>,
    /// Cores of each node of CPU slots.
    pub(super) cores: Vec<f64>,
    /// Lanes that must be looked at together, because one changes the speed of another.
    pub(super) components: usize,
    /// By what is handed over: the device that takes it.
    pub(super) takers: Vec<u32>,
    /// By edge and direction: routes in [`Links::routes`](super::Links::routes).
    pub(super) routes: Vec<Vec<u32>>,
    /// The ways of each route.
    pub(super) route_ways: Vec<Vec<u32>>,
    micro_batches: usize,
    /// Whether a block stays away from one iteration to the next.
    pub(super) is_cyclic: bool,
}

/// What a device does at its boundaries.
pub(super) struct DeviceTable {
    /// The number of its first trip.
    pub(super) first_trip: u32,
    /// By boundary and act: where its entries begin in `due`; and their end.
    begins: Vec<u32>,
    due: Vec<Due>,
    /// Of CPU slots: their node, and the component that shares its cores.
    pub(super) node: Option<(u32, u32)>,
}

/// A trip whose act is due.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Due {
    pub(super) trip: u32,
    /// Whether it began in the iteration before.
    pub(super) is_of_last: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ParcelTable {
    pub(super) out: u32,
    pub(super) back: u32,
    pub(super) bytes: u64,
}

/// A way, and who uses it.
pub(super) struct WayTable {
    pub(super) way: Way,
    pub(super) bytes_per_second: f64,
    pub(super) latency_seconds: f64,
    pub(super) core_share: f64,
    /// Indices in [`Tables::groups`].
    pub(super) groups: Vec<u32>,
    /// Where its speed may change, or two devices ask for it.
    pub(super) component: Option<u32>,
}

/// What is taken by none.
const NOBODY: u32 = u32::MAX;

impl<'a> Tables<'a> {
    pub(super) fn of(of: Stepped<'a>) -> Result<Self, CopiesError> {
        of.check()?;
        let links = of.links;
        let names: Vec<Way> = links.ways.keys().copied().collect();
        let mut parcels = Vec::new();
        let mut first_parcel = vec![0_u32];
        let mut devices = Vec::with_capacity(of.devices.len());
        let mut askers: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); names.len()];
        for (device, steps) in of.devices.iter().enumerate() {
            // Most trips go to the same few places.
            let mut known: Vec<(Place, u32, u32)> = Vec::new();
            let first_trip = first_parcel.len() as u32 - 1;
            for (index, trip) in steps.trips.iter().enumerate() {
                for parcel in trip.parcels.iter().filter(|parcel| parcel.bytes > 0) {
                    let place = parcel.place;
                    let found = known.iter().find(|of| of.0 == place).copied();
                    let (_, out, back) = match found {
                        Some(found) => found,
                        None => {
                            let at = |way: Way| {
                                let missing = CopiesError::NoWay { device, trip: index, way };
                                names.binary_search(&way).map(|at| at as u32).map_err(|_| missing)
                            };
                            let own = device as u32;
                            let ways = (place, at(place.out(own))?, at(place.back(own))?);
                            askers[ways.1 as usize].insert(own);
                            askers[ways.2 as usize].insert(own);
                            known.push(ways);
                            ways
                        }
                    };
                    parcels.push(ParcelTable { out, back, bytes: parcel.bytes });
                }
                first_parcel.push(parcels.len() as u32);
            }
            devices.push(DeviceTable::of(steps, first_trip));
        }
        let at = |way: &Way| names.binary_search(way).ok().map(|at| at as u32);
        let positions = |ways: &[Way]| -> Vec<u32> {
            let found: BTreeSet<u32> = ways.iter().filter_map(at).collect();
            found.into_iter().collect()
        };
        let groups: Vec<Vec<u32>> = links.shared.iter().map(|shared| positions(&shared.ways)).collect();
        let route_ways: Vec<Vec<u32>> = links.routes.iter().map(|route| positions(&route.ways)).collect();
        let mut ways: Vec<WayTable> = links
            .ways
            .iter()
            .map(|(&way, rate)| WayTable {
                way,
                bytes_per_second: rate.bytes_per_second,
                latency_seconds: rate.latency_seconds,
                core_share: rate.core_share,
                groups: Vec::new(),
                component: None,
            })
            .collect();
        for (group, of) in groups.iter().enumerate() {
            of.iter().for_each(|&way| ways[way as usize].groups.push(group as u32));
        }
        // Ways first, then nodes.
        let mut together = Together::new(ways.len() + links.cores.len());
        let mut moves = vec![false; ways.len() + links.cores.len()];
        for of in &groups {
            of.iter().for_each(|&way| together.join(of[0], way));
            of.iter().for_each(|&way| moves[way as usize] = true);
        }
        route_ways.iter().flatten().for_each(|&way| moves[way as usize] = true);
        for (way, askers) in askers.iter().enumerate() {
            moves[way] |= askers.len() > 1;
        }
        for (node, of) in links.cores.iter().enumerate() {
            let own = (names.len() + node) as u32;
            moves[own as usize] = true;
            for (way, askers) in askers.iter().enumerate() {
                if of.devices.iter().any(|device| askers.contains(device)) {
                    together.join(own, way as u32);
                    moves[way] = true;
                }
            }
        }
        let mut numbers: Vec<Option<u32>> = vec![None; moves.len()];
        let mut components = 0;
        let mut component = |of: usize| {
            let first = together.first(of as u32) as usize;
            moves[of].then(|| {
                *numbers[first].get_or_insert_with(|| {
                    components += 1;
                    components - 1
                })
            })
        };
        for (index, way) in ways.iter_mut().enumerate() {
            way.component = component(index);
        }
        for (node, of) in links.cores.iter().enumerate() {
            let Some(component) = component(names.len() + node) else { continue };
            for &device in &of.devices {
                devices[device as usize].node = Some((node as u32, component));
            }
        }
        let handed =
            of.devices.iter().flat_map(|device| &device.steps).flat_map(|step| [step.takes, step.gives]);
        let micro_batches = handed.flatten().map(|handed| handed.micro_batch as usize + 1).max().unwrap_or(0);
        let mut routes = vec![Vec::new(); 2 * of.edges.len()];
        for (index, route) in links.routes.iter().enumerate() {
            routes[2 * route.edge as usize + usize::from(route.is_backward)].push(index as u32);
        }
        let work = micro_batches.saturating_mul(2 * of.edges.len());
        if work > super::stepped::MAX_WORK {
            return Err(CopiesError::TooLarge { what: "edges of micro-batches", work });
        }
        let mut tables = Self {
            of,
            devices,
            first_parcel,
            parcels,
            ways,
            groups: links.shared.iter().map(|shared| shared.bytes_per_second).collect(),
            cores: links.cores.iter().map(|of| of.cores).collect(),
            components: components as usize,
            takers: vec![NOBODY; work],
            routes,
            route_ways,
            micro_batches,
            is_cyclic: false,
        };
        for (index, device) in of.devices.iter().enumerate() {
            for handed in device.steps.iter().filter_map(|step| step.takes) {
                let at = tables.at(handed);
                tables.takers[at] = index as u32;
            }
            let stays = |trip: &super::Trip| trip.needed >= device.steps.len() && !trip.parcels.is_empty();
            tables.is_cyclic |= device.trips.iter().any(stays);
        }
        Ok(tables)
    }

    /// The number of what is handed over.
    pub(super) fn at(&self, handed: Handed) -> usize {
        let way = 2 * handed.edge as usize + usize::from(handed.is_backward);
        way * self.micro_batches + handed.micro_batch as usize
    }

    /// The parcels of a trip.
    pub(super) fn parcels(&self, trip: u32) -> &[ParcelTable] {
        &self.parcels
            [self.first_parcel[trip as usize] as usize..self.first_parcel[trip as usize + 1] as usize]
    }
}

impl DeviceTable {
    fn of(steps: &super::DeviceSteps, first_trip: u32) -> Self {
        let count = steps.steps.len();
        let acts = |(index, trip): (usize, &super::Trip)| {
            let trip_number = first_trip + index as u32;
            [trip.leaves, trip.freed, trip.fetched, trip.needed].into_iter().enumerate().map(
                move |(act, boundary)| {
                    let due = Due { trip: trip_number, is_of_last: boundary >= count };
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
        let mut due = vec![Due::default(); begins.last().map_or(0, |&all| all as usize)];
        moved().for_each(|(at, of)| {
            due[next[at] as usize] = of;
            next[at] += 1;
        });
        Self { first_trip, begins, due, node: None }
    }

    /// Whether nothing is due at a boundary.
    pub(super) fn is_idle(&self, boundary: usize) -> bool {
        self.begins[4 * boundary] == self.begins[4 * boundary + 4]
    }

    /// What is due at a boundary.
    pub(super) fn due(&self, boundary: usize, act: Act) -> &[Due] {
        let at = 4 * boundary + act as usize;
        &self.due[self.begins[at] as usize..self.begins[at + 1] as usize]
    }
}

/// Which numbers belong together.
struct Together(Vec<u32>);

impl Together {
    fn new(count: usize) -> Self {
        Self((0..count as u32).collect())
    }

    fn first(&mut self, mut of: u32) -> u32 {
        while self.0[of as usize] != of {
            self.0[of as usize] = self.0[self.0[of as usize] as usize];
            of = self.0[of as usize];
        }
        of
    }

    fn join(&mut self, one: u32, other: u32) {
        let (one, other) = (self.first(one), self.first(other));
        self.0[one.max(other) as usize] = one.min(other);
    }
}
