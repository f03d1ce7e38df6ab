//! A simulation's input, numbered through, and the events at each boundary of a device.

use std::collections::BTreeSet;

use loadmaster_proto::training::boundaries::BoundaryAct;

use super::concurrent_copies::{WayTable, Ways};
use super::lanes::ParcelCopy;
use super::{CopiesError, CopyPipeline, DeviceSteps, Handover, Parcel, Place, Trip, Way};

/// A simulation's input, numbered through.
pub(super) struct Tables<'a> {
    pub(super) of: CopyPipeline<'a>,
    pub(super) devices: Vec<DeviceTable>,
    /// Parcels of trip t are those from `first_parcel[t]` to `first_parcel[t + 1]`.
    pub(super) first_parcel: Vec<u32>,
    parcels: Vec<ParcelTable>,
    /// Where they go.
    places: Vec<PlaceTable>,
    pub(super) ways: Vec<WayTable>,
    /// Rates that ways share.
    pub(super) groups: Vec<f64>,
    /// Lanes that must be looked at together, because one changes the speed of another.
    pub(super) components: usize,
    /// By component: nodes of CPU slots whose cores its jobs share.
    pub(super) nodes: Vec<Vec<u32>>,
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

/// A parcel. Small: there are many.
#[derive(Debug, Clone, Copy)]
pub(super) struct ParcelTable {
    pub(super) trip: u32,
    /// Where it goes, a number in [`Tables::places`].
    place: u32,
    pub(super) bytes: u64,
}

/// Where parcels of a device go, by which way, and by which they come back.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlaceTable {
    device: u32,
    out: u32,
    back: u32,
}

impl PlaceTable {
    /// The way there, or back.
    pub(super) fn way(self, is_back: bool) -> u32 {
        if is_back { self.back } else { self.out }
    }
}

/// What is taken by none.
const NOBODY: u32 = u32::MAX;

impl<'a> Tables<'a> {
    pub(super) fn of(of: CopyPipeline<'a>) -> Result<Self, CopiesError> {
        of.check()?;
        let links = of.links;
        let names: Vec<Way> = links.ways.keys().copied().collect();
        let askers = vec![BTreeSet::new(); names.len()];
        let mut ends = ParcelEnds { names: &names, askers, parcels: Vec::new(), places: Vec::new() };
        let mut first_parcel = vec![0_u32];
        let mut devices = Vec::with_capacity(of.devices.len());
        for (device, steps) in of.devices.iter().enumerate() {
            let first_trip = first_parcel.len() as u32 - 1;
            ends.of_device(device, steps, &mut first_parcel)?;
            devices.push(DeviceTable::of(steps, first_trip));
        }
        let ParcelEnds { askers, parcels, places, .. } = ends;
        let ways = Ways::of(links, &askers);
        let mut nodes = vec![Vec::new(); ways.components];
        for (node, of) in ways.nodes.iter().zip(&links.cores) {
            nodes[node.1 as usize].push(node.0);
            for &device in &of.devices {
                let own = &mut devices[device as usize];
                own.slots = if own.node == Some(*node) { own.slots + 1.0 } else { 1.0 };
                own.node = Some(*node);
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
        if work > super::device_steps::MAX_WORK {
            return Err(CopiesError::TooLarge { what: "edges of micro-batches", work });
        }
        let mut tables = Self {
            of,
            devices,
            first_parcel,
            parcels,
            places,
            ways: ways.ways,
            route_ways: ways.of_routes,
            components: ways.components,
            nodes,
            groups: links.shared.iter().map(|shared| shared.bytes_per_second).collect(),
            takers: vec![NOBODY; work],
            routes,
            micro_batches,
            is_cyclic: false,
        };
        for (index, device) in of.devices.iter().enumerate() {
            for handed in device.steps.iter().filter_map(|step| step.takes) {
                let at = tables.at(handed);
                tables.takers[at] = index as u32;
            }
            let stays = |trip: &Trip| trip.at.needed >= device.steps.len() && !trip.parcels.is_empty();
            tables.is_cyclic |= device.trips.iter().any(stays);
        }
        Ok(tables)
    }

    /// The parcel of a copy, whose it is, and the number of its way.
    pub(super) fn parcel(&self, copy: ParcelCopy) -> (&ParcelTable, u32, u32) {
        let parcel = &self.parcels[copy.parcel as usize];
        let place = self.place(parcel);
        (parcel, place.device, place.way(copy.is_back))
    }

    /// Where a parcel goes.
    pub(super) fn place(&self, parcel: &ParcelTable) -> PlaceTable {
        self.places[parcel.place as usize]
    }

    /// The number of what is handed over.
    pub(super) fn at(&self, handed: Handover) -> usize {
        let way = 2 * handed.edge as usize + usize::from(handed.is_backward);
        way * self.micro_batches + handed.micro_batch as usize
    }

    /// The parcels of a trip with their numbers.
    pub(super) fn parcels_of(&self, trip: u32) -> impl Iterator<Item = (u32, &ParcelTable)> {
        let (first, end) = (self.first_parcel[trip as usize], self.first_parcel[trip as usize + 1]);
        (first..).zip(&self.parcels[first as usize..end as usize])
    }
}

/// From where to where parcels go, while they are numbered.
struct ParcelEnds<'n> {
    names: &'n [Way],
    /// By way: the devices that ask for it.
    askers: Vec<BTreeSet<u32>>,
    parcels: Vec<ParcelTable>,
    places: Vec<PlaceTable>,
}

impl ParcelEnds<'_> {
    /// Adds a device's parcels, and where those of each trip end.
    fn of_device(
        &mut self,
        device: usize,
        steps: &DeviceSteps,
        first_parcel: &mut Vec<u32>,
    ) -> Result<(), CopiesError> {
        // Most trips go to the same few places.
        let mut known: Vec<(Place, u32)> = Vec::new();
        for (index, trip) in steps.trips.iter().enumerate() {
            for &Parcel { place, bytes } in trip.parcels.iter().filter(|parcel| parcel.bytes > 0) {
                let place = match known.iter().find(|of| of.0 == place) {
                    Some(&(_, number)) => number,
                    None => {
                        let at = |way: Way| {
                            let missing = CopiesError::NoWay { device, trip: index, way };
                            self.names.binary_search(&way).map(|at| at as u32).map_err(|_| missing)
                        };
                        let device = device as u32;
                        let ends =
                            PlaceTable { device, out: at(place.out(device))?, back: at(place.back(device))? };
                        self.askers[ends.out as usize].insert(device);
                        self.askers[ends.back as usize].insert(device);
                        known.push((place, self.places.len() as u32));
                        self.places.push(ends);
                        self.places.len() as u32 - 1
                    }
                };
                let trip = first_parcel.len() as u32 - 1;
                self.parcels.push(ParcelTable { trip, place, bytes });
            }
            first_parcel.push(self.parcels.len() as u32);
        }
        Ok(())
    }
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
            trip.at.boundaries().into_iter().enumerate().map(move |(act, boundary)| {
                let due = BoundaryEvent { trip: trip_number, is_of_last: boundary >= count };
                (4 * (boundary % count.max(1)) + act, due)
            })
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
            trip.map_or(0, |trip| trip.at.needed.saturating_sub(trip.at.fetched))
        };
        for boundary in 0..count {
            let at = 4 * boundary + BoundaryAct::Fetch as usize;
            due[begins[at] as usize..begins[at + 1] as usize].sort_by_key(until_needed);
        }
        Self { first_trip, begins, due, node: None, slots: 0.0 }
    }

    /// Whether nothing is due at a boundary.
    pub(super) fn is_idle(&self, boundary: usize) -> bool {
        self.begins[4 * boundary] == self.begins[4 * boundary + 4]
    }

    /// What is due at a boundary.
    pub(super) fn due(&self, boundary: usize, act: BoundaryAct) -> &[BoundaryEvent] {
        let at = 4 * boundary + act as usize;
        &self.due[self.begins[at] as usize..self.begins[at + 1] as usize]
    }
}
