//! Which stage is on which device of a node (MPress, III-C).
//!
//! | module | question |
//! |---|---|
//! | here | which devices and links are alike, and which mapping is best? |
//! | `orders` | which mappings may be best where neighbours alone send each other something? |
//!
//! On a hybrid cube mesh of 8 devices 4 renumberings change nothing, so that 8! mappings are 10,080 different ones; on
//! a switch all are the same.

mod orders;
#[cfg(test)]
pub(crate) mod tests;

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

impl LinkGraph {
    /// Most devices of which all mappings are listed: there are n! of them.
    pub const MOST_LISTED: usize = 8;

    /// One of every class of mappings, by stage its device, in ascending order: two are in one class if a renumbering that
    /// leaves every link as it is makes one of the other. None of more devices than [`Self::MOST_LISTED`], or more stages
    /// than devices.
    ///
    /// A symmetry that moves no device of a mapping's first stages may still move others. So each stage one after
    /// another takes the first device of every orbit of the symmetries that leave the devices of the stages before
    /// it where they are: these choices meet every class once.
    pub fn classes(&self, stages: usize) -> Option<Vec<Vec<usize>>> {
        if self.devices > Self::MOST_LISTED || stages > self.devices {
            return None;
        }
        let symmetries = self.symmetries();
        let mut all = Vec::new();
        let mut mapping = Vec::with_capacity(stages);
        each(stages, self.devices, &symmetries.iter().collect::<Vec<_>>(), &mut mapping, &mut all);
        Some(all)
    }
}

fn each(
    stages: usize,
    devices: usize,
    symmetries: &[&Vec<usize>],
    mapping: &mut Vec<usize>,
    all: &mut Vec<Vec<usize>>,
) {
    if mapping.len() == stages {
        all.push(mapping.clone());
        return;
    }
    for device in 0..devices {
        // What is first of its orbit is so of its class: a device that is taken is alone in its.
        let is_first =
            || symmetries.iter().all(|symmetry| symmetry.get(device).is_some_and(|&to| to >= device));
        if mapping.contains(&device) || !is_first() {
            continue;
        }
        let leave: Vec<&Vec<usize>> =
            symmetries.iter().filter(|symmetry| symmetry.get(device) == Some(&device)).copied().collect();
        mapping.push(device);
        each(stages, devices, &leave, mapping, all);
        mapping.pop();
    }
}

impl LinkGraph {
    /// All automorphisms: by device, the device that takes its place. The first one changes nothing. A switch has n! of
    /// them, so this is for few devices.
    fn symmetries(&self) -> Vec<Vec<usize>> {
        let mut all = Vec::new();
        self.extend(&mut Vec::with_capacity(self.devices), &mut vec![false; self.devices], &mut all);
        all
    }

    /// Lets the next device be each one that has the same links to those before it.
    fn extend(&self, images: &mut Vec<usize>, taken: &mut [bool], all: &mut Vec<Vec<usize>>) {
        let next = images.len();
        if next == self.devices {
            all.push(images.clone());
            return;
        }
        for image in 0..self.devices {
            let is_free = taken.get(image) == Some(&false);
            if is_free && self.is_like(next, image) && self.has_links_of(next, image, images) {
                taken[image] = true;
                images.push(image);
                self.extend(images, taken, all);
                images.pop();
                taken[image] = false;
            }
        }
    }

    fn has_links_of(&self, device: usize, image: usize, images: &[usize]) -> bool {
        images.iter().enumerate().all(|(before, &placed)| {
            self.link(device, before) == self.link(image, placed)
                && self.link(before, device) == self.link(placed, image)
        })
    }
}

/// The best mapping that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// By stage, its device.
    pub mapping: Vec<usize>,
    /// Its value.
    pub value: f64,
    /// How many mappings the links tell apart; none where they are too many to list.
    pub classes: Option<usize>,
    /// Of how many the value was asked.
    pub valued: usize,
    /// Whether no other mapping has a smaller value.
    pub is_exact: bool,
}

/// What is known of a mapping before it is valued.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Promise {
    /// Its value is at least this.
    pub bound: f64,
    /// That with less of this is looked at first.
    pub guess: f64,
}

/// The mapping of so many stages with the smallest value, of equally good ones the one that was valued first: stages in the
/// order of the devices come before all others. `promise` says quickly what to expect, `value` what it is; none of a
/// mapping that is impossible. No mapping at all: nothing is possible.
///
/// Exact on nodes of up to [`LinkGraph::MOST_LISTED`] devices if at most `most` values have to be asked for. On larger ones
/// stages change places by twos as long as that helps, from the order of the devices on.
pub fn best(
    graph: &LinkGraph,
    stages: usize,
    most: usize,
    mut promise: impl FnMut(&[usize]) -> Promise,
    mut value: impl FnMut(&[usize]) -> Option<f64>,
) -> Option<Found> {
    let Some(all) = graph.classes(stages) else { return exchanged(graph.devices(), stages, most, value) };
    let classes = all.len();
    let mut promised: Vec<(Promise, Vec<usize>)> =
        all.into_iter().map(|mapping| (promise(&mapping), mapping)).collect();
    // The first of all is in order; what is likely to be best comes next, so that the rest is soon left out.
    if let Some((_, others)) = promised.split_first_mut() {
        others.sort_by(|(a, _), (b, _)| a.guess.total_cmp(&b.guess));
    }
    let mut found: Option<Found> = None;
    let (mut valued, mut is_exact) = (0, true);
    for (promise, mapping) in promised {
        if found.as_ref().is_some_and(|found| promise.bound >= found.value) {
            continue;
        }
        if valued == most {
            is_exact = false;
            break;
        }
        valued += 1;
        let Some(value) = value(&mapping) else { continue };
        if found.as_ref().is_none_or(|found| value < found.value) {
            found = Some(Found { mapping, value, classes: Some(classes), valued, is_exact: true });
        }
    }
    found.map(|found| Found { valued, is_exact, ..found })
}

/// Exchanges the devices of two places, used or not, as long as that makes the value smaller and at most so many are asked for;
/// from the order of the devices on.
pub fn exchanged(
    devices: usize,
    stages: usize,
    most: usize,
    mut value: impl FnMut(&[usize]) -> Option<f64>,
) -> Option<Found> {
    let mut order: Vec<usize> = (0..devices).collect();
    let mut least = value(order.get(..stages)?);
    let mut valued = 1;
    loop {
        let before = least;
        for one in 0..stages {
            for other in one + 1..devices {
                if valued >= most {
                    break;
                }
                order.swap(one, other);
                valued += 1;
                let changed = order.get(..stages).and_then(&mut value);
                if changed.is_some_and(|changed| least.is_none_or(|least| changed < least)) {
                    least = changed;
                } else {
                    order.swap(one, other);
                }
            }
        }
        if least == before {
            break;
        }
    }
    let mapping = order.get(..stages)?.to_vec();
    least.map(|value| Found { mapping, value, classes: None, valued, is_exact: false })
}
