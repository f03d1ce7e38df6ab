//! Measuring how fast the devices of a worker exchange bytes.
//!
//! All ranks walk through the same list of exchanges: each pair sends a tensor back and forth, one pair at
//! a time while the others wait, and then groups of growing size all-reduce one. What is timed is what
//! training does: tensors between stages and sums within a stage, over host sockets, or with NCCL between
//! different GPUs. Then devices copy as memory actions do ([`copies`]), and at last the host updates parameters as it does for
//! trainings in chunks ([`updates`]).

mod copies;
mod mesh;
mod updates;

use std::fs;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use loadmaster_proto::measure::failure::Phase;
use loadmaster_proto::measure::links::{GroupLink, LinkPoint, LinkWork, PairLink, RankLinks};
use loadmaster_proto::measure::rank::LinkSpec;
use mesh::Mesh;
use tch::Tensor;

use crate::clock::Clock;
use crate::collective::Reduction;
use crate::error::RankError;
use crate::memory::Memory;
use crate::tensor::Form;
use crate::timing::median;
use crate::{library, progress};

/// Exchanges with other ranks as one of them.
///
/// # Errors
/// Why there is no measurement.
pub fn measure(spec: &LinkSpec) -> Result<RankLinks, RankError> {
    library::check_version()?;
    let memory = Memory::open(&spec.device)?;
    tch::set_num_threads(i32::try_from(spec.threads).unwrap_or(i32::MAX));
    let exchanges = spec.work.pairs().count() + spec.work.groups().len();
    progress::start((exchanges + copies::passes(&spec.work) + updates::passes(&spec.work)) as u64);
    exchange(spec, &memory).map_err(|error| {
        let (phase, layer) = progress::whereabouts();
        memory.explain(error, phase, layer)
    })
}

fn exchange(spec: &LinkSpec, memory: &Memory) -> Result<RankLinks, RankError> {
    let patience = Duration::try_from_secs_f64(spec.neighbour_timeout_seconds).unwrap_or_default();
    let mesh = Mesh::connect(spec, memory.device(), Instant::now() + patience)?;
    let mut rank = Rank {
        own: spec.index,
        work: &spec.work,
        memory,
        clock: Clock::new(memory.asynchronous_device()),
        mesh,
    };
    progress::enter(Phase::Exchange, None);
    let pairs = rank.pairs()?;
    let groups = rank.groups(spec)?;
    let copies = copies::measure(&mut rank, spec)?;
    let updates = updates::measure(&rank, spec)?;
    let transport = rank.mesh.transport();
    rank.mesh.finish()?;
    Ok(RankLinks {
        index: spec.index,
        device_id: spec.device_id.clone(),
        transport,
        pairs,
        groups,
        environment: library::environment(&spec.device, spec.threads),
        copies: Some(copies),
        updates: Some(updates),
    })
}

/// One of the ranks that exchange.
struct Rank<'a> {
    own: u32,
    work: &'a LinkWork,
    memory: &'a Memory,
    clock: Clock,
    mesh: Mesh,
}

impl Rank<'_> {
    /// The pairs whose earlier member this rank is.
    fn pairs(&self) -> Result<Vec<PairLink>, RankError> {
        let mut pairs = Vec::new();
        for (first, second) in self.work.pairs() {
            self.mesh.wait_for_all()?;
            if self.own == first {
                let points = self.points(|tensor| {
                    let start = self.clock.now()?;
                    self.mesh.send(second, tensor)?;
                    drop(self.mesh.receive(second, tensor)?);
                    // There and back.
                    Ok((self.clock.now()? - start).as_secs_f64() / 2.0)
                })?;
                pairs.push(PairLink::new(first, second, points)?);
            } else if self.own == second {
                self.points(|tensor| {
                    let received = self.mesh.receive(first, tensor)?;
                    self.mesh.send(first, &received)?;
                    Ok(0.0)
                })?;
            }
            progress::pass_done();
        }
        Ok(pairs)
    }

    /// The groups, as the first rank sees them; on others nothing, whatever they took part in.
    fn groups(&self, spec: &LinkSpec) -> Result<Vec<GroupLink>, RankError> {
        let mut groups = Vec::new();
        let mut cooling = Cooling::new(self.work.devices, self.memory.gpu().is_some());
        for size in self.work.groups() {
            self.mesh.wait_for_all()?;
            if let Some(group) = self.mesh.group(size, spec.collectives)? {
                let together = Tensor::f_zeros([1], (tch::Kind::Float, self.memory.device()))?;
                let points = self.points(|tensor| {
                    // Gradients were last touched long before they are summed.
                    cooling.cool();
                    // So that no one's lateness is taken for the link's.
                    group.all_reduce(&together, Reduction::Sum)?;
                    let start = self.clock.now()?;
                    group.all_reduce(tensor, Reduction::Sum)?;
                    Ok((self.clock.now()? - start).as_secs_f64())
                })?;
                if self.own == 0 {
                    groups.push(GroupLink::new((0..size).collect(), points)?);
                }
            }
            progress::pass_done();
        }
        Ok(groups)
    }

    /// Median seconds of an exchange of each size, the first one of a size not counted.
    fn points(
        &self,
        mut exchange: impl FnMut(&Tensor) -> Result<f64, RankError>,
    ) -> Result<Vec<LinkPoint>, RankError> {
        let mut points = Vec::with_capacity(self.work.payload_bytes.len());
        for &payload_bytes in &self.work.payload_bytes {
            let Form { kind, shape } = Form::of_bytes(payload_bytes);
            let tensor = Tensor::f_zeros(shape, (kind, self.memory.device()))?;
            exchange(&tensor)?;
            let mut seconds = Vec::with_capacity(self.work.repeats as usize);
            for _ in 0..self.work.repeats {
                seconds.push(exchange(&tensor)?);
                progress::tick();
            }
            points.push(LinkPoint { payload_bytes, seconds: typical(&seconds) });
        }
        Ok(points)
    }
}

/// The middle one. A clock's tick at least, as no exchange takes no time.
fn typical(seconds: &[f64]) -> f64 {
    const TICK: f64 = 1e-9;
    median(seconds).max(TICK)
}

/// Fewest and most bytes that are written so that no cache has what is used next.
const BEYOND: RangeInclusive<usize> = 64 << 20..=256 << 20;
/// Most bytes of that of all ranks together: this is the host's memory, and outside every slot.
const TOGETHER: usize = 1 << 30;
/// Where Linux says how large the last cache is: `32768K`.
const LAST_CACHE: &str = "/sys/devices/system/cpu/cpu0/cache/index3/size";

/// Memory that is written between two exchanges. GPUs need none: theirs does not come through the host's caches.
#[derive(Debug)]
struct Cooling(Vec<u64>);

impl Cooling {
    /// For a rank on a CPU slot, and nothing to write where it has a GPU.
    fn new(ranks: u32, on_gpu: bool) -> Self {
        Self(vec![0; if on_gpu { 0 } else { beyond_caches(ranks) / size_of::<u64>() }])
    }

    /// Leaves nothing of what is exchanged next in a cache.
    fn cool(&mut self) {
        self.0.iter_mut().for_each(|word| *word = word.wrapping_add(1));
        std::hint::black_box(&self.0);
    }
}

/// Bytes that no cache of the host has: twice the last cache, as far as it is known and within reason; of all ranks together no more than there is anywhere.
fn beyond_caches(ranks: u32) -> usize {
    let most = (TOGETHER / ranks.max(1) as usize).max(BEYOND.start() / 4);
    let known = fs::read_to_string(LAST_CACHE).ok();
    let kibibytes = known.and_then(|text| text.trim().strip_suffix('K')?.parse::<usize>().ok());
    kibibytes.unwrap_or_default().saturating_mul(2 << 10).clamp(*BEYOND.start(), *BEYOND.end()).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_exchange_takes_no_time() {
        assert_eq!(typical(&[5.0, 1.0, 3.0]), 3.0);
        assert!(typical(&[]) > 0.0 && typical(&[0.0]) > 0.0);
    }
}
