//! Collectives through the host's memory, over sockets.
//!
//! The first device of the stage adds up: always in the order of the devices, so that all get the same
//! bits, run after run. What is exchanged lies in host memory outside libtorch's allocators, so a device's
//! peak is that of a real exchange between GPUs.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;

use loadmaster_proto::training::shard::Shard;
use tch::{Kind, Tensor};

use super::line::{Header, Line, Operation};
use super::sum::reduce;
use super::{Collective, Reduction};
use crate::error::RankError;
use crate::ffi;
use crate::peers::Address;
use crate::tensor::to_host;

/// Bytes that are added up at once: what the first device holds of each other one.
const CHUNK: usize = 4 << 20;

/// Collectives through the host's memory.
#[derive(Debug)]
pub(super) struct Host {
    own: Shard,
    /// To every other device on the first one, to the first one on others.
    lines: Vec<Line>,
    /// Exchanges so far.
    sequence: u64,
    /// The bytes of a reduction, own and another device's. They are kept: memory that a process has not touched yet costs
    /// as much as the exchange.
    own_bytes: Vec<u8>,
    their_bytes: Vec<u8>,
}

impl Host {
    /// Starts from connections to all peers, sorted by device.
    ///
    /// # Errors
    /// When a peer is missing.
    pub(super) fn new(own: Shard, peers: BTreeMap<Address, UnixStream>) -> Result<Self, RankError> {
        let expected = if own.index == 0 { own.degree - 1 } else { 1 };
        if peers.len() != expected as usize {
            return Err(RankError::Other(format!("{} devices connected instead of {expected}", peers.len())));
        }
        let lines = peers.into_iter().map(|(peer, stream)| Line::new(stream, peer));
        let lines = lines.collect::<Result<_, _>>()?;
        Ok(Self { own, lines, sequence: 0, own_bytes: Vec::new(), their_bytes: Vec::new() })
    }

    /// On how many devices this is so.
    #[cfg(feature = "nccl")]
    pub(super) fn count(&mut self, is_so: bool) -> Result<u32, RankError> {
        let mut bytes = f64::from(u8::from(is_so)).to_ne_bytes();
        self.reduce(&mut bytes, Kind::Double, Reduction::Sum)?;
        Ok(f64::from_ne_bytes(bytes) as u32)
    }

    /// Gives the first device's bytes to all.
    #[cfg(feature = "nccl")]
    pub(super) fn share(&mut self, bytes: &mut [u8]) -> Result<(), RankError> {
        let length = |index| if index == 0 { bytes.len() } else { 0 };
        let mut parts: Vec<Vec<u8>> = (0..self.own.degree).map(|index| vec![0; length(index)]).collect();
        if let Some(first) = parts.first_mut() {
            first.copy_from_slice(bytes);
            self.gather(&mut parts, Kind::Uint8)?;
        }
        if let Some(first) = parts.first() {
            bytes.copy_from_slice(first);
        }
        Ok(())
    }

    fn header(&mut self, operation: Operation, kind: Kind, bytes: usize) -> Header {
        self.sequence += 1;
        Header { operation, kind, sequence: self.sequence, bytes: bytes as u64 }
    }

    /// Reduces bytes of one number format over all devices.
    fn reduce(&mut self, bytes: &mut [u8], kind: Kind, reduction: Reduction) -> Result<(), RankError> {
        let header = self.header(Operation::Reduce(reduction), kind, bytes.len());
        if self.own.index > 0 {
            for line in &mut self.lines {
                line.send_header(header)?;
                for chunk in bytes.chunks_mut(CHUNK) {
                    line.send(chunk)?;
                    line.receive(chunk)?;
                }
            }
            return Ok(());
        }
        self.lines.iter_mut().try_for_each(|line| line.expect_header(header))?;
        let theirs = at_least(&mut self.their_bytes, bytes.len().min(CHUNK));
        for chunk in bytes.chunks_mut(CHUNK) {
            let theirs = theirs.get_mut(..chunk.len()).unwrap_or_default();
            for line in &mut self.lines {
                line.receive(theirs)?;
                reduce(kind, reduction, chunk, theirs)?;
            }
            self.lines.iter_mut().try_for_each(|line| line.send(chunk))?;
        }
        Ok(())
    }

    /// Adds up the parts of all devices, and gives each the sum of its own: `bytes` are all parts, one behind the other.
    /// Always in the order of the devices, as [`Self::reduce`] does.
    fn scatter(&mut self, bytes: &mut [u8], part: usize, kind: Kind) -> Result<(), RankError> {
        let header = self.header(Operation::ReduceScatter, kind, bytes.len());
        let own = self.own.index as usize;
        if own > 0 {
            for line in &mut self.lines {
                line.send_header(header)?;
                line.send(bytes)?;
                line.receive(bytes.chunks_mut(part.max(1)).nth(own).unwrap_or_default())?;
            }
            return Ok(());
        }
        self.lines.iter_mut().try_for_each(|line| line.expect_header(header))?;
        let mut theirs = vec![0; bytes.len().min(CHUNK)];
        for line in &mut self.lines {
            for chunk in bytes.chunks_mut(CHUNK) {
                let theirs = theirs.get_mut(..chunk.len()).unwrap_or_default();
                line.receive(theirs)?;
                reduce(kind, Reduction::Sum, chunk, theirs)?;
            }
        }
        for (line, sum) in self.lines.iter_mut().zip(bytes.chunks(part.max(1)).skip(1)) {
            line.send(sum)?;
        }
        Ok(())
    }

    /// Fills in the parts of the others.
    fn gather(&mut self, parts: &mut [Vec<u8>], kind: Kind) -> Result<(), RankError> {
        let own = self.own.index as usize;
        let own_bytes = parts.get(own).map_or(0, Vec::len);
        let header = self.header(Operation::Gather, kind, own_bytes);
        if own > 0 {
            for line in &mut self.lines {
                line.send_header(header)?;
                line.send(parts.get(own).map_or(&[], Vec::as_slice))?;
                for (index, part) in parts.iter_mut().enumerate() {
                    if index != own {
                        line.receive(part)?;
                    }
                }
            }
            return Ok(());
        }
        for (line, part) in self.lines.iter_mut().zip(parts.iter_mut().skip(1)) {
            line.expect_header(Header { bytes: part.len() as u64, ..header })?;
            line.receive(part)?;
        }
        for (line, index) in self.lines.iter_mut().zip(1..) {
            for (_, part) in parts.iter().enumerate().filter(|&(other, _)| other != index) {
                line.send(part)?;
            }
        }
        Ok(())
    }
}

/// The first bytes of memory that grows where it is too small.
fn at_least(kept: &mut Vec<u8>, length: usize) -> &mut [u8] {
    if kept.len() < length {
        kept.resize(length, 0);
    }
    kept.get_mut(..length).unwrap_or_default()
}

impl Collective for Host {
    fn all_reduce(&mut self, tensor: &Tensor, reduction: Reduction) -> Result<(), RankError> {
        let kind = tensor.f_kind()?;
        let mut kept = std::mem::take(&mut self.own_bytes);
        let bytes = at_least(&mut kept, tensor.numel() * kind.elt_size_in_bytes());
        tensor.f_copy_data_u8(bytes, tensor.numel())?;
        self.reduce(bytes, kind, reduction)?;
        ffi::fill(tensor, bytes)?;
        self.own_bytes = kept;
        Ok(())
    }

    fn reduce_scatter(&mut self, parts: &[Tensor]) -> Result<(), RankError> {
        let Some(own) = parts.get(self.own.index as usize) else { return Ok(()) };
        let kind = own.f_kind()?;
        let length = own.numel() * kind.elt_size_in_bytes();
        let mut bytes = Vec::with_capacity(length * parts.len());
        for part in parts {
            bytes.extend(to_host(part)?);
        }
        self.scatter(&mut bytes, length, kind)?;
        let sum = bytes.chunks(length.max(1)).nth(self.own.index as usize).unwrap_or_default();
        Ok(ffi::fill(own, sum)?)
    }

    fn all_gather(&mut self, parts: &[Tensor]) -> Result<(), RankError> {
        let own = self.own.index as usize;
        let mut bytes = Vec::with_capacity(parts.len());
        for (index, part) in parts.iter().enumerate() {
            let length = part.numel() * part.f_kind()?.elt_size_in_bytes();
            bytes.push(if index == own { to_host(part)? } else { vec![0; length] });
        }
        let kind = parts.first().map_or(Ok(Kind::Float), Tensor::f_kind)?;
        self.gather(&mut bytes, kind)?;
        for (index, (part, bytes)) in parts.iter().zip(&bytes).enumerate() {
            if index != own {
                ffi::fill(part, bytes)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    /// Connected hosts of a stage, the first device first.
    fn hosts(degree: u32) -> Vec<Host> {
        let address = |shard| Address { stage: 0, shard };
        let (mut first, mut others) = (BTreeMap::new(), Vec::new());
        for shard in 1..degree {
            let (here, there) = UnixStream::pair().unwrap();
            first.insert(address(shard), here);
            others.push(Host::new(Shard { index: shard, degree }, [(address(0), there)].into()).unwrap());
        }
        let first = Host::new(Shard { index: 0, degree }, first).unwrap();
        std::iter::once(first).chain(others).collect()
    }

    fn on_each<T: Send + 'static>(
        degree: u32,
        work: impl Fn(u32, &mut Host) -> T + Copy + Send + 'static,
    ) -> Vec<T> {
        let threads: Vec<_> = (0..)
            .zip(hosts(degree))
            .map(|(index, mut host)| std::thread::spawn(move || work(index, &mut host)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }

    /// Sums and maxima are right on every device and the same to the bit, over several chunks too.
    #[test]
    fn every_device_gets_the_same_reduction() {
        let length = (CHUNK / 4 + 1000) as i64;
        let results = on_each(4, move |index, host| {
            let tensor = Tensor::arange(length, (Kind::Float, Device::Cpu)) * 0.1 + f64::from(index);
            host.all_reduce(&tensor, Reduction::Sum).unwrap();
            let largest = Tensor::from_slice(&[f64::from(index), -f64::from(index)]);
            host.all_reduce(&largest, Reduction::Max).unwrap();
            (tensor, Vec::<f64>::try_from(largest).unwrap())
        });
        let expected = Tensor::arange(length, (Kind::Float, Device::Cpu)) * 0.4 + 6.0;
        let relative = ((&results[0].0 - &expected).abs() / &expected).max().double_value(&[]);
        assert!(relative < 1e-5, "{relative}");
        for (sum, largest) in &results {
            assert!(sum.equal(&results[0].0));
            assert_eq!(*largest, [3.0, 0.0]);
        }
    }

    /// Each device has the sum of its part, the same bits as if it were reduced as a whole, over several chunks too.
    #[test]
    fn every_device_gets_the_sum_of_its_part() {
        let length = (CHUNK / 2 + 100) as i64;
        let results = on_each(3, move |index, host| {
            let whole = Tensor::arange(3 * length, (Kind::Float, Device::Cpu)) * 0.1 + f64::from(index) * 0.3;
            let parts: Vec<Tensor> = (0..3).map(|part| whole.narrow(0, part * length, length)).collect();
            let reduced = whole.copy();
            host.reduce_scatter(&parts).unwrap();
            host.all_reduce(&reduced, Reduction::Sum).unwrap();
            (parts[index as usize].copy(), reduced.narrow(0, i64::from(index) * length, length))
        });
        for (own, reduced) in results {
            assert!(own.equal(&reduced));
        }
    }

    /// Parts of different lengths, an empty one too, arrive everywhere in their places.
    #[test]
    fn every_device_gets_every_part() {
        let results = on_each(3, |own, host| {
            let parts: Vec<Tensor> = (0..3_i64)
                .map(|index| {
                    let length = (2 - index) * 5;
                    let value = if index == i64::from(own) { f64::from(own) } else { -1.0 };
                    Tensor::full([length, 2], value, (Kind::BFloat16, Device::Cpu))
                })
                .collect();
            host.all_gather(&parts).unwrap();
            Tensor::cat(&parts, 0).to_kind(Kind::Double)
        });
        for result in results {
            assert_eq!(result.size(), [15, 2]);
            assert_eq!(result.sum(Kind::Double).double_value(&[]), 10.0);
            assert_eq!(result.min().double_value(&[]), 0.0);
        }
    }

    /// Devices that do not take part in the same exchange find out instead of adding up what does not belong
    /// together, and a device that is gone is missed.
    #[test]
    fn other_exchanges_and_lost_devices_are_errors() {
        let results = on_each(2, |index, host| {
            let tensor = Tensor::ones([2 + i64::from(index)], (Kind::Float, Device::Cpu));
            host.all_reduce(&tensor, Reduction::Sum)
        });
        assert!(matches!(results[0], Err(RankError::Protocol(_))), "{results:?}");
        assert!(matches!(results[1], Err(RankError::LostNeighbour(_))), "{results:?}");
    }
}
