//! Memory of one rank's device that another rank uses: who has to do with whom, and how it is handed over.
//!
//! The rank that sets memory aside counts it as its own and makes it as a file that lies in memory alone; the descriptor
//! goes over a connection of the two. From then on the other copies on its own. The kernel frees the memory when both are
//! gone, however they end.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use loadmaster_proto::measure::rank::{Edges, RankSpec};
use loadmaster_proto::training::actions::{Deed, Destination, Stripe};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::error::RankError;
use crate::ffi::{Mapping, SetAside};
use crate::peers::{Address, Appointment, Tie};
use crate::progress;

/// Marks what is said about a pool, and the version of its layout: magic, four zeros, bytes.
const MAGIC: u32 = 0x4c4d_5001;
const WORD_BYTES: usize = 4 + 4 + 8;
/// How often a waiting stage says that it lives.
const WAITING_PAUSE: Duration = Duration::from_millis(100);
/// A made-up pool has room for whatever comes.
const ENDLESS: u64 = 1 << 40;

/// Who lends memory to whom, seen from one rank.
#[derive(Debug, Default)]
pub(crate) struct Lending {
    /// What is set aside for each rank of other stages.
    hosted: BTreeMap<Address, u64>,
    /// The ranks on whose devices this one parks blocks: one of each stage.
    borrowed: BTreeSet<Address>,
}

impl Lending {
    /// That of the rank of a specification.
    pub(crate) fn of(spec: &RankSpec) -> Self {
        let devices = |stage: u32| match &spec.edges {
            Edges::Sockets { partitioning } => {
                partitioning.stages().get(stage as usize).map_or(1, |stage| stage.devices()).max(1)
            }
            // Nobody knows them.
            Edges::Synthetic => spec.position.stage.devices().max(1),
        };
        let own_devices = spec.position.stage.devices().max(1);
        let mut lending = Self::default();
        for hosted in &spec.actions.hosted {
            for shard in (0..devices(hosted.stage)).filter(|shard| shard % own_devices == spec.shard) {
                lending.hosted.insert(Address { stage: hosted.stage, shard }, hosted.bytes.0);
            }
        }
        for action in &spec.actions.actions {
            if let Deed::Swap(swap) = &action.deed
                && let Destination::Peers(stripes) = &swap.to
            {
                let rank = |stripe: &Stripe| Address {
                    stage: stripe.stage,
                    shard: spec.shard % devices(stripe.stage),
                };
                lending.borrowed.extend(stripes.iter().map(rank));
            }
        }
        lending
    }

    /// Who must be met for it.
    pub(crate) fn appointments(&self) -> impl Iterator<Item = Appointment> + '_ {
        self.hosted.keys().chain(&self.borrowed).map(|&peer| (Tie::Pool, peer))
    }

    /// Pools that nobody else has a part in: theirs are made up, this one's count.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub(crate) fn alone(&self) -> Result<Pools, RankError> {
        let mut pools = Pools::default();
        for &bytes in self.hosted.values() {
            pools.set_aside.push(SetAside::new(bytes)?);
        }
        for peer in &self.borrowed {
            let memory = Mapping::endless(ENDLESS).map_err(|error| cannot_share(*peer, &error))?;
            pools.borrowed.insert(peer.stage, Arc::new(memory));
        }
        Ok(pools)
    }

    /// Hands pools over and takes those of others, over the connections that were made.
    ///
    /// # Errors
    /// Out of memory; or a peer is gone, or sets nothing aside although it should.
    pub(crate) fn exchange(
        &self,
        met: &mut BTreeMap<Appointment, UnixStream>,
        deadline: Instant,
    ) -> Result<Pools, RankError> {
        let mut pools = Pools { lenders: self.borrowed.clone(), ..Pools::default() };
        let appointments: BTreeSet<Appointment> = self.appointments().collect();
        // All are told before anybody is listened to: nobody waits for somebody who waits.
        for &(tie, peer) in &appointments {
            let stream =
                met.remove(&(tie, peer)).ok_or_else(|| RankError::Other(format!("{peer} was not met")))?;
            let bytes = self.hosted.get(&peer).copied().unwrap_or_default();
            let made = if bytes > 0 {
                pools.set_aside.push(SetAside::new(bytes)?);
                Some(make(bytes).map_err(|error| cannot_share(peer, &error))?)
            } else {
                None
            };
            give(&stream, bytes, made.as_ref()).map_err(|error| lost(peer, &error))?;
            pools.made.extend(made);
            pools.streams.insert(peer, stream);
        }
        for (&peer, stream) in &pools.streams {
            let (bytes, descriptor) = take(stream, deadline).map_err(|error| lost(peer, &error))?;
            if !self.borrowed.contains(&peer) {
                continue;
            }
            let Some(descriptor) = descriptor else {
                // Of nothing there is no file: whatever is put there is too much.
                let memory = Mapping::made(0).map_err(|error| cannot_share(peer, &error))?;
                pools.borrowed.insert(peer.stage, Arc::new(memory));
                continue;
            };
            check(&descriptor, bytes).map_err(|why| RankError::Protocol(format!("{peer}: {why}")))?;
            let memory = Mapping::shared(&descriptor, bytes).map_err(|error| cannot_share(peer, &error))?;
            pools.borrowed.insert(peer.stage, Arc::new(memory));
        }
        Ok(pools)
    }
}

/// Memory that a rank lends and borrows. It is lent for as long as this lives.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    /// On the device of each stage.
    pub(crate) borrowed: BTreeMap<u32, Arc<Mapping>>,
    /// Which devices these are.
    lenders: BTreeSet<Address>,
    set_aside: Vec<SetAside>,
    made: Vec<OwnedFd>,
    streams: BTreeMap<Address, UnixStream>,
}

impl Pools {
    /// Bytes of this device that others may use.
    pub(crate) fn set_aside(&self) -> u64 {
        self.set_aside.iter().map(SetAside::bytes).sum()
    }

    /// Notices when one of them has ended.
    ///
    /// # Errors
    /// When one has.
    pub(crate) fn check_peers(&self) -> Result<(), RankError> {
        for (&peer, stream) in &self.streams {
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            if let Ok((_, 0)) = rustix::net::recv(stream, &mut [0_u8; 1][..], flags) {
                return Err(lost(peer, &io::Error::from(io::ErrorKind::UnexpectedEof)));
            }
        }
        Ok(())
    }

    /// Tells everybody how much of theirs was used at most, and returns how much of this device's was: the sum of what each
    /// had at its worst.
    ///
    /// # Errors
    /// When somebody is gone.
    pub(crate) fn finish(self, used: &[(u32, u64)]) -> Result<u64, RankError> {
        for (&peer, mut stream) in &self.streams {
            let of = used.iter().find(|&&(stage, _)| stage == peer.stage && self.lenders.contains(&peer));
            let most = of.map_or(0, |&(_, bytes)| bytes);
            stream.write_all(&word(most)).map_err(|error| lost(peer, &error))?;
        }
        let mut most = 0_u64;
        for (&peer, stream) in &self.streams {
            let mut bytes = [0; WORD_BYTES];
            read_patiently(stream, &mut bytes).map_err(|error| lost(peer, &error))?;
            most = most.saturating_add(number(&bytes).map_err(|error| lost(peer, &error))?);
        }
        Ok(most)
    }
}

pub(super) fn cannot_share(peer: Address, error: &io::Error) -> RankError {
    RankError::Other(format!("cannot share memory with {peer}: {error}"))
}

pub(super) fn lost(peer: Address, error: &io::Error) -> RankError {
    if error.kind() == io::ErrorKind::InvalidData {
        return RankError::Protocol(format!("{peer} does not keep to the protocol: {error}"));
    }
    RankError::LostNeighbour(format!("lost {peer}, which shares memory with this rank: {error}"))
}

/// Memory with a descriptor. Its size is fixed, so that nobody can take it from under another's feet.
pub(super) fn make(bytes: u64) -> io::Result<OwnedFd> {
    let made = memfd_create("loadmaster-pool", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&made, bytes)?;
    fcntl_add_seals(&made, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(made)
}

/// What is wrong with a descriptor that should share so many bytes.
pub(super) fn check(descriptor: &OwnedFd, bytes: u64) -> Result<(), String> {
    let size = fstat(descriptor).map_err(|error| error.to_string())?.st_size;
    let seals = fcntl_get_seals(descriptor).map_err(|error| error.to_string())?;
    if u64::try_from(size) != Ok(bytes) || bytes == 0 || !seals.contains(SealFlags::SHRINK) {
        return Err(format!("a pool of {bytes} bytes has {size}, or may shrink"));
    }
    Ok(())
}

fn word(bytes: u64) -> [u8; WORD_BYTES] {
    let mut word = [0; WORD_BYTES];
    word[..4].copy_from_slice(&MAGIC.to_le_bytes());
    word[8..].copy_from_slice(&bytes.to_le_bytes());
    word
}

fn number(word: &[u8; WORD_BYTES]) -> io::Result<u64> {
    let [magic, zeros, low, high] = [0, 4, 8, 12].map(|at| {
        let mut four = [0; 4];
        four.copy_from_slice(&word[at..at + 4]);
        u32::from_le_bytes(four)
    });
    if (magic, zeros) != (MAGIC, 0) {
        let what = "what came says nothing of a pool";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(u64::from(high) << 32 | u64::from(low))
}

pub(super) fn give(stream: &UnixStream, bytes: u64, descriptor: Option<&OwnedFd>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.map(AsFd::as_fd);
    if let Some(descriptor) = &descriptors {
        ancillary.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(descriptor)));
    }
    let word = word(bytes);
    // So few bytes go whole or not at all.
    match sendmsg(stream, &[IoSlice::new(&word)], &mut ancillary, SendFlags::NOSIGNAL)? {
        WORD_BYTES => Ok(()),
        _ => Err(io::Error::from(io::ErrorKind::WriteZero)),
    }
}

pub(super) fn take(stream: &UnixStream, deadline: Instant) -> io::Result<(u64, Option<OwnedFd>)> {
    let mut bytes = [0; WORD_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    stream.set_read_timeout(Some(WAITING_PAUSE))?;
    let count = loop {
        let received =
            recvmsg(stream, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC);
        match received {
            Ok(received) => break received.bytes,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) if Instant::now() < deadline => {
                progress::tick();
            }
            Err(error) => return Err(error.into()),
        }
    };
    let mut descriptor = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            // More than one was not agreed on: the others are closed.
            rights.for_each(|right| descriptor = Some(right));
        }
    }
    if count == 0 {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
    }
    read_patiently(stream, &mut bytes[count..])?;
    Ok((number(&bytes)?, descriptor))
}

/// Reads as many bytes, however long they take: their sender lives, or the stream ends.
fn read_patiently(mut stream: &UnixStream, bytes: &mut [u8]) -> io::Result<()> {
    stream.set_read_timeout(Some(WAITING_PAUSE))?;
    let mut done = 0;
    while done < bytes.len() {
        match stream.read(&mut bytes[done..]) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            Ok(count) => done += count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                progress::tick();
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    /// What one side writes into a pool the other one reads: it is the same memory, and neither can resize it.
    #[test]
    fn a_descriptor_is_the_same_memory_elsewhere() {
        let (here, there) = UnixStream::pair().unwrap();
        let made = make(8_192).unwrap();
        give(&here, 8_192, Some(&made)).unwrap();
        give(&there, 0, None).unwrap();
        let (bytes, taken) = take(&there, soon()).unwrap();
        let taken = taken.unwrap();
        assert_eq!((bytes, check(&taken, bytes)), (8_192, Ok(())));
        assert!(check(&taken, 4_096).is_err());
        assert_eq!(take(&here, soon()).unwrap().0, 0);
        assert!(ftruncate(&taken, 1).is_err() && ftruncate(&made, 10_000).is_err());
        rustix::io::pwrite(&made, b"block", 100).unwrap();
        let mut read = [0; 5];
        rustix::io::pread(&taken, &mut read, 100).unwrap();
        assert_eq!(&read, b"block");
    }

    /// Who is gone is noticed, and nonsense is no pool.
    #[test]
    fn a_peer_that_is_gone_or_talks_nonsense_is_an_error() {
        let (here, there) = UnixStream::pair().unwrap();
        drop(there);
        assert_eq!(take(&here, soon()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let (here, mut there) = UnixStream::pair().unwrap();
        there.write_all(&[7; WORD_BYTES]).unwrap();
        assert_eq!(take(&here, soon()).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let pools =
            Pools { streams: BTreeMap::from([(Address { stage: 1, shard: 0 }, here)]), ..Pools::default() };
        assert!(pools.check_peers().is_ok());
        drop(there);
        assert!(matches!(pools.check_peers(), Err(RankError::LostNeighbour(_))));
        assert!(check(&std::fs::File::open("/dev/null").unwrap().into(), 0).is_err());
    }
}
