//! Which numbers make no sense.

use loadmaster_proto::training::boundaries::BoundaryInterval;

use super::device_steps::{CopyPipeline, MAX_WORK};
use super::{Place, Trip, Way};

/// What cannot be simulated with copies.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CopiesError {
    /// Nothing to do.
    #[error("a simulation needs at least 1 device with at least 1 step")]
    Empty,
    /// A number that is none, or out of range.
    #[error("{what} is {number}. Use {range}")]
    Number {
        /// Which one.
        what: String,
        /// What it was said to be.
        number: f64,
        /// What it must be.
        range: &'static str,
    },
    /// Something that is not there.
    #[error("{what} is {index}, but there are {count}")]
    Index {
        /// What names it.
        what: String,
        /// Which one it names.
        index: u64,
        /// How many there are.
        count: usize,
    },
    /// Boundaries in no order.
    #[error(
        "swap {trip} of device {device} {why}: the steps of evict, free, fetch and use are {}, {}, {} and {}",
        of.at.leaves, of.at.freed, of.at.fetched, of.at.needed
    )]
    Trip {
        /// Whose.
        device: usize,
        /// Which one.
        trip: usize,
        /// What is wrong with it.
        why: &'static str,
        /// The trip.
        of: Trip,
    },
    /// A block that cannot get where it should be.
    #[error("swap {trip} of device {device} copies {way}, but the bandwidth is not known")]
    NoWay {
        /// Whose.
        device: usize,
        /// Which one.
        trip: usize,
        /// What it needs.
        way: Way,
    },
    /// Too much to do.
    #[error("{work} {what} are too many to simulate. The maximum is {MAX_WORK}")]
    TooLarge {
        /// `steps` or `copies`.
        what: &'static str,
        /// How many there are.
        work: usize,
    },
    /// Devices that wait for what none of them hands over.
    #[error("step {step} of device {device} needs an input that no earlier step produces")]
    Deadlock {
        /// The first device that waits.
        device: usize,
        /// Where.
        step: usize,
    },
}

/// Seconds that a single step, transfer or latency may take: some ten million years. Sums stay numbers.
const MOST_SECONDS: f64 = 1e15;

impl CopyPipeline<'_> {
    /// Whether all numbers are some.
    pub(super) fn check(&self) -> Result<(), CopiesError> {
        let devices = self.devices.len();
        if self.devices.iter().all(|device| device.steps.is_empty()) {
            return Err(CopiesError::Empty);
        }
        let steps = self.devices.iter().map(|device| device.steps.len()).sum();
        let parcels = |trip: &Trip| trip.parcels.len().saturating_add(1);
        let copies = self.devices.iter().flat_map(|device| &device.trips).map(parcels).sum();
        for (what, work) in [("steps", steps), ("copies", copies)] {
            if work > MAX_WORK {
                return Err(CopiesError::TooLarge { what, work });
            }
        }
        for (index, device) in self.devices.iter().enumerate() {
            for (at, step) in device.steps.iter().enumerate() {
                let what = || format!("devices[{index}].steps[{at}]");
                seconds(|| what() + ".seconds", step.seconds)?;
                for handed in [step.takes, step.gives].into_iter().flatten() {
                    within(|| what() + ".edge", handed.edge, self.edges.len())?;
                    // As many tables have a place for it.
                    within(|| what() + ".micro_batch", handed.micro_batch, MAX_WORK)?;
                }
            }
            for (at, trip) in device.trips.iter().enumerate() {
                if let Some(why) = trip.fault(device.steps.len()) {
                    return Err(CopiesError::Trip { device: index, trip: at, why, of: trip.clone() });
                }
                for parcel in &trip.parcels {
                    let Place::Peer(peer) = parcel.place else { continue };
                    within(|| format!("devices[{index}].trips[{at}].peer"), peer, devices)?;
                    if peer as usize == index {
                        let why = "goes to the device itself";
                        return Err(CopiesError::Trip { device: index, trip: at, why, of: trip.clone() });
                    }
                }
            }
        }
        for (index, edge) in self.edges.iter().enumerate() {
            seconds(|| format!("edges[{index}].forward"), edge.forward)?;
            seconds(|| format!("edges[{index}].backward"), edge.backward)?;
        }
        self.check_links()
    }

    fn check_links(&self) -> Result<(), CopiesError> {
        for (way, rate) in &self.links.ways {
            pace(|| format!("the bandwidth of copies {way}"), rate.bytes_per_second)?;
            seconds(|| format!("the latency of copies {way}"), rate.latency_seconds)?;
            if !(0.0..=1.0).contains(&rate.core_share) {
                let what = format!("the core share of copies {way}");
                return Err(CopiesError::Number { what, number: rate.core_share, range: "0 to 1" });
            }
        }
        for (index, shared) in self.links.shared.iter().enumerate() {
            pace(|| format!("shared[{index}]"), shared.bytes_per_second)?;
        }
        for (index, of) in self.links.cores.iter().enumerate() {
            if !(of.cores.is_finite() && of.cores >= 1e-3) {
                let what = format!("cores[{index}]");
                return Err(CopiesError::Number {
                    what,
                    number: of.cores,
                    range: "at least 0.001, and finite",
                });
            }
            if !(of.contention_slowdown.is_finite() && of.contention_slowdown >= 1.0) {
                let what = format!("cores[{index}].contention_slowdown");
                let (number, range) = (of.contention_slowdown, "at least 1, and finite");
                return Err(CopiesError::Number { what, number, range });
            }
            seconds(|| format!("cores[{index}].slowdown_seconds_per_byte"), of.slowdown_seconds_per_byte)?;
            for &device in &of.devices {
                within(|| format!("cores[{index}].devices"), device, self.devices.len())?;
            }
        }
        for (index, route) in self.links.routes.iter().enumerate() {
            pace(|| format!("routes[{index}]"), route.bytes_per_second)?;
            within(|| format!("routes[{index}].edge"), route.edge, self.edges.len())?;
        }
        Ok(())
    }
}

impl Trip {
    /// What is wrong with its boundaries on a device of so many steps.
    fn fault(&self, steps: usize) -> Option<&'static str> {
        let BoundaryInterval { fetched, needed, leaves, freed } = self.at;
        if !(leaves <= freed && freed <= fetched && fetched <= needed) {
            Some("must be evicted, freed, fetched and used in this order")
        } else if leaves > steps {
            Some("is evicted after the last step")
        } else if needed >= steps.saturating_mul(2) {
            Some("is used after the next iteration")
        } else if needed >= leaves.saturating_add(steps) {
            Some("is evicted before it is back")
        } else {
            None
        }
    }
}

fn seconds(what: impl Fn() -> String, number: f64) -> Result<(), CopiesError> {
    if (0.0..=MOST_SECONDS).contains(&number) {
        return Ok(());
    }
    Err(CopiesError::Number { what: what(), number, range: "0 to 1e15 seconds" })
}

/// With at least a byte in a second, no copy of 64 bits of bytes takes more seconds than a number holds.
fn pace(what: impl Fn() -> String, number: f64) -> Result<(), CopiesError> {
    if number.is_finite() && number >= 1.0 {
        return Ok(());
    }
    Err(CopiesError::Number {
        what: what(),
        number,
        range: "a finite bandwidth of at least 1 byte per second",
    })
}

fn within(what: impl Fn() -> String, index: u32, count: usize) -> Result<(), CopiesError> {
    if (index as usize) < count {
        return Ok(());
    }
    Err(CopiesError::Index { what: what(), index: index.into(), count })
}
