//! A simulation's input, numbered through.

use std::collections::BTreeSet;

use super::due::DeviceTable;
use super::together::{WayTable, Ways};
use super::{CopiesError, DeviceSteps, Handed, Parcel, Place, Stepped, Trip, Way};

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

#[derive(Debug, Clone, Copy)]
pub(super) struct ParcelTable {
    pub(super) out: u32,
    pub(super) back: u32,
    pub(super) bytes: u64,
}

/// What is taken by none.
const NOBODY: u32 = u32::MAX;

impl<'a> Tables<'a> {
    pub(super) fn of(of: Stepped<'a>) -> Result<Self, CopiesError> {
        of.check()?;
        let links = of.links;
        let names: Vec<Way> = links.ways.keys().copied().collect();
        let mut ends =
            Ends { names: &names, askers: vec![BTreeSet::new(); names.len()], parcels: Vec::new() };
        let mut first_parcel = vec![0_u32];
        let mut devices = Vec::with_capacity(of.devices.len());
        for (device, steps) in of.devices.iter().enumerate() {
            let first_trip = first_parcel.len() as u32 - 1;
            ends.of_device(device, steps, &mut first_parcel)?;
            devices.push(DeviceTable::of(steps, first_trip));
        }
        let Ends { askers, parcels, .. } = ends;
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
        if work > super::stepped::MAX_WORK {
            return Err(CopiesError::TooLarge { what: "edges of micro-batches", work });
        }
        let mut tables = Self {
            of,
            devices,
            first_parcel,
            parcels,
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
            let stays = |trip: &Trip| trip.needed >= device.steps.len() && !trip.parcels.is_empty();
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

/// From where to where parcels go, while they are numbered.
struct Ends<'n> {
    names: &'n [Way],
    /// By way: the devices that ask for it.
    askers: Vec<BTreeSet<u32>>,
    parcels: Vec<ParcelTable>,
}

impl Ends<'_> {
    /// Adds a device's parcels, and where those of each trip end.
    fn of_device(
        &mut self,
        device: usize,
        steps: &DeviceSteps,
        first_parcel: &mut Vec<u32>,
    ) -> Result<(), CopiesError> {
        // Most trips go to the same few places.
        let mut known: Vec<(Place, u32, u32)> = Vec::new();
        for (index, trip) in steps.trips.iter().enumerate() {
            for &Parcel { place, bytes } in trip.parcels.iter().filter(|parcel| parcel.bytes > 0) {
                let (_, out, back) = match known.iter().find(|of| of.0 == place) {
                    Some(&found) => found,
                    None => {
                        let at = |way: Way| {
                            let missing = CopiesError::NoWay { device, trip: index, way };
                            self.names.binary_search(&way).map(|at| at as u32).map_err(|_| missing)
                        };
                        let own = device as u32;
                        let ends = (place, at(place.out(own))?, at(place.back(own))?);
                        self.askers[ends.1 as usize].insert(own);
                        self.askers[ends.2 as usize].insert(own);
                        known.push(ends);
                        ends
                    }
                };
                self.parcels.push(ParcelTable { out, back, bytes });
            }
            first_parcel.push(self.parcels.len() as u32);
        }
        Ok(())
    }
}
