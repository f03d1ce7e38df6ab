//! Which stage is on which device of a node (MPress, III-C).
//!
//! | module | question |
//! |---|---|
//! | here | which devices and links are alike? |
//! | `symmetries` | which renumberings of the devices leave the links as they are? |
//! | `classes` | which mappings are there, when those are told apart that the links tell apart? |
//! | `best` | which mapping is best? |
//! | `orders` | which mappings may be best where neighbours alone send each other something? |
//!
//! On a hybrid cube mesh of 8 devices 4 renumberings change nothing, so that 8! mappings are 10,080 different ones; on
//! a switch all are the same.

mod best;
mod classes;
mod orders;
mod symmetries;
#[cfg(test)]
pub(crate) mod tests;

pub use best::{Found, Promise, best, exchanged};
pub use orders::{DeviceOrder, DevicesWanted, Orders};

/// Devices of a node and the links between them, as far as they can be told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkGraph {
    devices: usize,
    /// A number for each device, the same for those that are alike.
    kinds: Vec<usize>,
    /// The same for each ordered pair of devices, row by row.
    links: Vec<usize>,
}

impl LinkGraph {
    /// The graph of these devices, with what is between any two of them, from the first to the second. Two of either are
    /// alike if they are equal: a difference that matters must be part of them.
    pub fn new<D: PartialEq, L: PartialEq>(devices: &[D], link: impl Fn(usize, usize) -> L) -> Self {
        let count = devices.len();
        let pairs: Vec<L> = (0..count)
            .flat_map(|from| (0..count).map(move |to| (from, to)))
            .map(|(a, b)| link(a, b))
            .collect();
        let mut links = numbered(&pairs.iter().collect::<Vec<_>>());
        // A device has no link to itself, whatever was said of it.
        (0..count).for_each(|device| links[device * count + device] = usize::MAX);
        Self { devices: count, kinds: numbered(&devices.iter().collect::<Vec<_>>()), links }
    }

    /// How many devices there are.
    pub fn devices(&self) -> usize {
        self.devices
    }

    fn link(&self, from: usize, to: usize) -> Option<usize> {
        self.links.get(from * self.devices + to).copied()
    }

    fn is_like(&self, one: usize, other: usize) -> bool {
        self.kinds.get(one) == self.kinds.get(other)
    }
}

/// The number of the first equal one of each.
fn numbered<T: PartialEq>(all: &[T]) -> Vec<usize> {
    let mut distinct: Vec<(usize, &T)> = Vec::new();
    let mut number = |index: usize, one| {
        let known = distinct.iter().find(|(_, other)| *other == one).map(|(first, _)| *first);
        known.unwrap_or_else(|| {
            distinct.push((index, one));
            index
        })
    };
    all.iter().enumerate().map(|(index, one)| number(index, one)).collect()
}
