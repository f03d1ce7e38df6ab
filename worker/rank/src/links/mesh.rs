//! All ranks of a run that measures links: any two of them exchange tensors, and the first few all-reduce.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use loadmaster_proto::measure::links::Collectives;
use loadmaster_proto::measure::rank::LinkSpec;
use tch::{Device, Kind, Tensor};

use crate::collective::{Group, Reduction};
use crate::error::RankError;
use crate::peers::{Address, Appointment, Membership, Tie};
use crate::transport::{Pairs, meet};

#[cfg(feature = "nccl")]
use std::sync::{Mutex, PoisonError};

#[cfg(feature = "nccl")]
use crate::collective::nccl::Nccl;

/// All ranks, seen from one of them.
#[derive(Debug)]
pub(crate) struct Mesh {
    own: Address,
    ranks: u32,
    /// To the first rank, or from it to all others: groups talk over copies of these.
    streams: BTreeMap<Appointment, UnixStream>,
    /// To all others, for memory that they share.
    pools: BTreeMap<Address, UnixStream>,
    /// All ranks, through the host's memory, to wait for each other.
    all: Option<Group>,
    between_two: BetweenTwo,
}

/// How two ranks exchange tensors.
#[derive(Debug)]
enum BetweenTwo {
    /// Over sockets, as stages do.
    Host(Pairs),
    /// Between different GPUs, as frameworks do.
    #[cfg(feature = "nccl")]
    Nccl(Mutex<Nccl>),
}

impl Mesh {
    /// Meets all ranks.
    ///
    /// # Errors
    /// When a peer does not connect in time.
    pub(crate) fn connect(spec: &LinkSpec, device: Device, deadline: Instant) -> Result<Self, RankError> {
        let own = Address { stage: 0, shard: spec.index };
        let ranks = spec.work.devices;
        let everybody = Membership::of_first(ranks, own);
        let mut wanted: BTreeSet<Appointment> = Pairs::appointments(own, ranks);
        wanted.extend(everybody.peers().iter().map(|&peer| (Tie::Shard, peer)));
        let others = (0..ranks).filter(|&shard| shard != own.shard).map(|shard| Address { shard, ..own });
        let sharing: BTreeSet<Address> = others.collect();
        wanted.extend(sharing.iter().map(|&peer| (Tie::Pool, peer)));
        let mut met = meet(&spec.folder, own, &wanted, deadline)?;
        let pools =
            sharing.into_iter().filter_map(|peer| Some((peer, met.remove(&(Tie::Pool, peer))?))).collect();
        // One exchange of each size is not timed.
        let exchanges = spec.work.repeats.saturating_add(1);
        let pairs = Pairs::start(&mut met, &spec.work, exchanges, device)?;
        let all = Group::join(&everybody, &mut copies(&met)?, Collectives::Host)?;
        let between_two = between_two(spec, &everybody, &met, pairs)?;
        Ok(Self { own, ranks, streams: met, pools, all, between_two })
    }

    /// Connections to all others, over which memory is shared.
    pub(crate) fn pool_streams(&self) -> &BTreeMap<Address, UnixStream> {
        &self.pools
    }

    /// How two ranks exchange tensors in the end.
    pub(crate) fn transport(&self) -> Collectives {
        match self.between_two {
            BetweenTwo::Host(_) => Collectives::Host,
            #[cfg(feature = "nccl")]
            BetweenTwo::Nccl(_) => Collectives::Nccl,
        }
    }

    /// Gives a tensor to another rank.
    ///
    /// # Errors
    /// When it is gone.
    pub(crate) fn send(&self, to: u32, tensor: &Tensor) -> Result<(), RankError> {
        match &self.between_two {
            BetweenTwo::Host(pairs) => pairs.send(to, tensor),
            #[cfg(feature = "nccl")]
            BetweenTwo::Nccl(nccl) => {
                Ok(nccl.lock().unwrap_or_else(PoisonError::into_inner).send(to, tensor)?)
            }
        }
    }

    /// Waits for another rank's tensor, which is like this one.
    ///
    /// # Errors
    /// When it is gone, or the device is full.
    pub(crate) fn receive(&self, from: u32, like: &Tensor) -> Result<Tensor, RankError> {
        match &self.between_two {
            BetweenTwo::Host(pairs) => {
                let received = pairs.receive(from)?;
                debug_assert_eq!(received.size(), like.size());
                Ok(received)
            }
            #[cfg(feature = "nccl")]
            BetweenTwo::Nccl(nccl) => {
                let received = like.f_empty_like()?;
                nccl.lock().unwrap_or_else(PoisonError::into_inner).receive(from, &received)?;
                Ok(received)
            }
        }
    }

    /// The first `size` ranks, where this one is among them.
    ///
    /// # Errors
    /// When one is gone.
    pub(crate) fn group(&self, size: u32, collectives: Collectives) -> Result<Option<Group>, RankError> {
        if self.own.shard >= size.min(self.ranks) {
            return Ok(None);
        }
        Group::join(&Membership::of_first(size, self.own), &mut copies(&self.streams)?, collectives)
    }

    /// Waits until every rank waits here.
    ///
    /// # Errors
    /// When one is gone.
    pub(crate) fn wait_for_all(&self) -> Result<(), RankError> {
        let Some(all) = &self.all else { return Ok(()) };
        all.all_reduce(&Tensor::f_zeros([1], (Kind::Float, Device::Cpu))?, Reduction::Sum)
    }

    /// Waits until everything has been sent.
    ///
    /// # Errors
    /// When a rank is gone.
    pub(crate) fn finish(self) -> Result<(), RankError> {
        match self.between_two {
            BetweenTwo::Host(pairs) => pairs.finish(),
            #[cfg(feature = "nccl")]
            BetweenTwo::Nccl(_) => Ok(()),
        }
    }
}

/// The same connections once more: what is written to either is read at their other end.
fn copies(
    streams: &BTreeMap<Appointment, UnixStream>,
) -> Result<BTreeMap<Appointment, UnixStream>, RankError> {
    streams
        .iter()
        .map(|(&appointment, stream)| Ok((appointment, stream.try_clone()?)))
        .collect::<std::io::Result<_>>()
        .map_err(|error| RankError::Other(format!("cannot duplicate a connection: {error}")))
}

#[cfg(feature = "nccl")]
fn between_two(
    spec: &LinkSpec,
    everybody: &Membership,
    met: &BTreeMap<Appointment, UnixStream>,
    pairs: Pairs,
) -> Result<BetweenTwo, RankError> {
    if spec.collectives == Collectives::Host || spec.work.devices < 2 {
        return Ok(BetweenTwo::Host(pairs));
    }
    Ok(match crate::collective::nccl(everybody, &mut copies(met)?)? {
        Some(nccl) => BetweenTwo::Nccl(Mutex::new(nccl)),
        None => BetweenTwo::Host(pairs),
    })
}

#[cfg(not(feature = "nccl"))]
fn between_two(
    _spec: &LinkSpec,
    _everybody: &Membership,
    _met: &BTreeMap<Appointment, UnixStream>,
    pairs: Pairs,
) -> Result<BetweenTwo, RankError> {
    Ok(BetweenTwo::Host(pairs))
}
