//! Some devices of a fleet: what a plan on fewer devices than there are takes.

use crate::{Cuts, Fleet, FleetNode, Pin, UnlikeLinks, UnlikeNodes};

/// Some devices of a fleet, as a fleet of their own.
#[derive(Debug, Clone)]
pub struct Subset {
    /// The devices.
    pub fleet: Fleet,
    /// Which of the whole fleet's devices each of them is, ascending: that several times where they come by one after another.
    pub origin: Vec<u32>,
}

impl Subset {
    /// All of it.
    pub fn whole(fleet: &Fleet) -> Self {
        let mut fleet = fleet.clone();
        // Devices that it does not have are no one's.
        for node in fleet.nodes.iter_mut().filter(|node| node.unlike.is_some()) {
            node.unlike = node.unlike.as_ref().map(UnlikeLinks::alone);
        }
        Self { origin: (0..fleet.devices()).collect(), fleet }
    }

    /// Its devices one behind the other, `each` times one after another: as a pipeline comes by whose devices have
    /// so many stages each.
    #[must_use]
    pub fn in_turn(&self, each: u32) -> Self {
        // A pipeline never leaves the only node there is.
        let nodes = match self.fleet.nodes.as_slice() {
            [only] => {
                let (devices, whole) = (only.devices.saturating_mul(each), only.whole.saturating_mul(each));
                vec![FleetNode { devices, whole, ..only.clone() }]
            }
            nodes => (0..each).flat_map(|_| nodes.iter().cloned()).collect(),
        };
        let mut fleet = self.fleet.with_nodes(nodes);
        // Edges are priced over the links of the very devices once it is known which these are.
        fleet.nodes.iter_mut().for_each(|node| node.unlike = None);
        Self { fleet, origin: self.origin.repeat(each as usize) }
    }

    /// So many devices of each node, pinned ones before others; nodes of none are left out.
    pub fn of(fleet: &Fleet, taken: &[u32], pins: &[Pin]) -> Self {
        let mut subset = Self { fleet: fleet.with_nodes(Vec::new()), origin: Vec::new() };
        let mut begin = 0;
        for (node, &devices) in fleet.nodes.iter().zip(taken) {
            let devices = devices.min(node.devices);
            let own = begin..begin + node.devices;
            begin = own.end;
            if devices == 0 {
                continue;
            }
            let mut chosen: Vec<u32> = pinned(pins, &own);
            chosen.truncate(devices as usize);
            let first = own.start;
            let others: Vec<u32> = own.filter(|device| !chosen.contains(device)).collect();
            chosen.extend(others.into_iter().take(devices as usize - chosen.len()));
            chosen.sort_unstable();
            let places: Vec<u32> = chosen.iter().map(|device| device - first).collect();
            subset.origin.extend(chosen);
            subset.fleet.nodes.push(node.taking(&places));
        }
        subset
    }

    pub fn devices(&self) -> u32 {
        self.fleet.devices()
    }

    /// Its nodes whose links are unlike, by the places of their devices in the whole fleet.
    pub fn unlike(&self) -> UnlikeNodes<'_> {
        UnlikeNodes::of(&self.fleet, |device| self.origin.get(device as usize).copied())
    }

    /// The same devices with edges at their best: see [`Fleet::with_fastest_edges`].
    #[must_use]
    pub fn with_fastest_edges(&self) -> Self {
        Self { fleet: self.fleet.with_fastest_edges(), origin: self.origin.clone() }
    }

    /// Price of an hour of its devices; none where the price of one is not known.
    pub fn hourly_price(&self) -> Option<f64> {
        let nodes = self.fleet.nodes.iter();
        nodes.map(|node| Some(f64::from(node.devices) * self.fleet.kinds.get(node.kind)?.hourly_price?)).sum()
    }

    /// Restrictions on the whole fleet as restrictions on this subset; none where a layer is pinned to a device
    /// that the subset does not have.
    pub fn cuts(&self, cuts: &Cuts) -> Option<Cuts> {
        if cuts.pins().is_empty() {
            return Some(cuts.clone());
        }
        let pins = cuts.pins().iter().map(|pin| {
            let device = self.origin.binary_search(&u32::try_from(pin.device).ok()?).ok()?;
            Some(Pin { layer: pin.layer, device })
        });
        Some(cuts.with_pins(pins.collect::<Option<Vec<Pin>>>()?))
    }

    /// Whether all of its machines have equally many devices, as torchrun starts processes.
    pub fn is_even(&self) -> bool {
        self.fleet.is_even()
    }
}

/// The pinned devices of a node, ascending, each once.
pub(super) fn pinned(pins: &[Pin], node: &std::ops::Range<u32>) -> Vec<u32> {
    let devices = pins.iter().filter_map(|pin| u32::try_from(pin.device).ok());
    let mut devices: Vec<u32> = devices.filter(|device| node.contains(device)).collect();
    devices.sort_unstable();
    devices.dedup();
    devices
}
