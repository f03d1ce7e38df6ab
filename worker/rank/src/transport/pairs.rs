//! Tensors back and forth between any two ranks, over the connections that stages use.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixStream;

use loadmaster_proto::measure::links::LinkWork;
use tch::{Device, Tensor};

use super::Crossing;
use super::frame::Frame;
use super::link::{Link, Lost};
use crate::error::RankError;
use crate::peers::{Address, Appointment, Tie};
use crate::tensor::{Form, to_device, to_host};

/// Connections to all other ranks.
#[derive(Debug)]
pub(crate) struct Pairs {
    device: Device,
    links: BTreeMap<u32, Link>,
}

impl Pairs {
    /// Who must be met.
    pub(crate) fn appointments(own: Address, ranks: u32) -> BTreeSet<Appointment> {
        let peers = (0..ranks).filter(|&shard| shard != own.shard);
        peers.map(|shard| (Tie::Neighbour, Address { shard, ..own })).collect()
    }

    /// Starts talking over the connections that were made: `exchanges` tensors of each size come in turn.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(crate) fn start(
        met: &mut BTreeMap<Appointment, UnixStream>,
        work: &LinkWork,
        exchanges: u32,
        device: Device,
    ) -> Result<Self, RankError> {
        let sizes = work.payload_bytes.iter();
        let forms: Vec<Form> =
            sizes.flat_map(|&bytes| (0..exchanges).map(move |_| Form::of_bytes(bytes))).collect();
        let lost = Lost::default();
        let appointments: Vec<Appointment> =
            met.keys().copied().filter(|&(tie, _)| tie == Tie::Neighbour).collect();
        let mut links = BTreeMap::new();
        for appointment in appointments {
            let Some(stream) = met.remove(&appointment) else { continue };
            let (_, peer) = appointment;
            let incoming = (Crossing::Activation, forms.clone());
            let link = Link::start(stream, peer.to_string(), incoming, lost.clone())
                .map_err(|error| RankError::Other(format!("cannot communicate with {peer}: {error}")))?;
            links.insert(peer.shard, link);
        }
        Ok(Self { device, links })
    }

    /// Gives a tensor away.
    ///
    /// # Errors
    /// When the peer is gone.
    pub(crate) fn send(&self, peer: u32, tensor: &Tensor) -> Result<(), RankError> {
        let form = Form { kind: tensor.f_kind()?, shape: tensor.size() };
        let bytes = to_host(tensor)?;
        self.link(peer)?.send(Frame { crossing: Crossing::Activation, micro_batch: 0, form, bytes })
    }

    /// Waits for a tensor.
    ///
    /// # Errors
    /// When the peer is gone or sends something else, or the device is full.
    pub(crate) fn receive(&self, peer: u32) -> Result<Tensor, RankError> {
        let Frame { form, bytes, .. } = self.link(peer)?.receive()?;
        Ok(to_device(&bytes, &form, self.device)?)
    }

    /// Waits until everything has been sent.
    ///
    /// # Errors
    /// When a peer is gone.
    pub(crate) fn finish(self) -> Result<(), RankError> {
        self.links.into_values().try_for_each(Link::finish)
    }

    fn link(&self, peer: u32) -> Result<&Link, RankError> {
        self.links.get(&peer).ok_or_else(|| RankError::Other(format!("rank {peer} is missing")))
    }
}
