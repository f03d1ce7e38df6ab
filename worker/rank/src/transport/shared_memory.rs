//! Memory of one rank's device that another one uses, handed over a connection of the two; or that all others use at once.
//!
//! Of a CPU slot it is a file that lies in memory alone, whose descriptor goes along. Of a GPU it is libtorch's, and the
//! handle goes along under which the driver of the other one finds it, which copies through the host where one GPU does not
//! reach the other. From then on the other one copies on its own. What is lent is freed when both are gone, however they end.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use tch::{Kind, Tensor};

use crate::error::RankError;
use crate::ffi::{Mapping, SetAside, SharedMemory};
use crate::memory::Memory;
use crate::peers::Address;
use crate::progress;

/// Marks what is said about a pool, and the version of its layout: magic, four zeros, bytes.
const MAGIC: u32 = 0x4c4d_5003;
const WORD_BYTES: usize = 4 + 4 + 8;
/// How often a waiting stage says that it lives.
const WAITING_PAUSE: Duration = Duration::from_millis(100);

/// Memory of this rank's device that is set aside for others, as long as this lives.
#[derive(Debug)]
pub(super) enum MemoryGrant {
    /// Of a CPU slot, where it only counts: what is used is the file.
    Slot { set_aside: SetAside, file: OwnedFd },
    /// Of a GPU.
    Gpu { bytes: u64, shared: SharedMemory, _memory: Tensor },
}

impl MemoryGrant {
    /// So many bytes.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub(super) fn new(bytes: u64, memory: &Memory) -> Result<Self, RankError> {
        let Some(gpu) = memory.gpu() else {
            let set_aside = SetAside::new(bytes)?;
            let file = make(bytes)
                .map_err(|error| RankError::Other(format!("cannot create shared memory: {error}")))?;
            return Ok(Self::Slot { set_aside, file });
        };
        let count = i64::try_from(bytes).unwrap_or(i64::MAX);
        let made = Tensor::f_empty([count], (Kind::Uint8, memory.device()))?;
        Ok(Self::Gpu { bytes, shared: gpu.share(&made)?, _memory: made })
    }

    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Slot { set_aside, .. } => set_aside.bytes(),
            Self::Gpu { bytes, .. } => *bytes,
        }
    }
}

/// Tells another rank what is set aside for it, if anything is.
///
/// # Errors
/// When it is gone.
pub(super) fn give(stream: &UnixStream, lent: Option<&MemoryGrant>) -> io::Result<()> {
    let mut said = word(lent.map_or(0, MemoryGrant::bytes)).to_vec();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let file = match lent {
        Some(MemoryGrant::Slot { file, .. }) => Some(file.as_fd()),
        Some(MemoryGrant::Gpu { shared, .. }) => {
            said.extend(shared.to_bytes());
            None
        }
        None => None,
    };
    if let Some(file) = &file {
        ancillary.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(file)));
    }
    // So few bytes go whole or not at all.
    if sendmsg(stream, &[IoSlice::new(&said)], &mut ancillary, SendFlags::NOSIGNAL)? == said.len() {
        Ok(())
    } else {
        Err(io::Error::from(io::ErrorKind::WriteZero))
    }
}

/// What another rank has set aside for this one; none where it says that it is nothing.
///
/// # Errors
/// When it is gone, says something else, or its memory cannot be reached from here.
pub(super) fn take(
    peer: Address,
    stream: &UnixStream,
    deadline: Instant,
    memory: &Memory,
) -> Result<Option<Mapping>, RankError> {
    let lost = |error: io::Error| lost(peer, &error);
    let (bytes, file) = heard(stream, deadline).map_err(lost)?;
    if bytes == 0 {
        return Ok(None);
    }
    if let Some(gpu) = memory.gpu() {
        let mut shared = [0; SharedMemory::BYTES];
        read_patiently(stream, &mut shared).map_err(lost)?;
        let mapping = Mapping::of_peer(SharedMemory::from_bytes(shared), bytes, gpu).map_err(|failure| {
            RankError::Other(format!(
                "this rank cannot swap to the GPU of {peer}, whose memory is not accessible: {failure}. Offload to CPU \
                 memory instead."
            ))
        })?;
        return Ok(Some(mapping));
    }
    let file = file.ok_or_else(|| RankError::Protocol(format!("{peer} sent no memory for {bytes} bytes")))?;
    check(&file, bytes).map_err(|why| RankError::Protocol(format!("{peer}: {why}")))?;
    Ok(Some(Mapping::shared(&file, bytes).map_err(|error| cannot_share(peer, &error))?))
}

pub(super) fn cannot_share(peer: Address, error: &io::Error) -> RankError {
    RankError::Other(format!("cannot share memory with {peer}: {error}"))
}

pub(super) fn lost(peer: Address, error: &io::Error) -> RankError {
    if error.kind() == io::ErrorKind::InvalidData {
        return RankError::Protocol(format!("{peer} violates the protocol: {error}"));
    }
    RankError::LostNeighbour(format!("lost {peer}, which shares memory with this rank: {error}"))
}

/// Memory with a descriptor. Its size is fixed, so that no one can take it from under another's feet.
fn make(bytes: u64) -> io::Result<OwnedFd> {
    let made = memfd_create("loadmaster-pool", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&made, bytes)?;
    fcntl_add_seals(&made, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(made)
}

/// What is wrong with a descriptor that should share so many bytes.
fn check(descriptor: &OwnedFd, bytes: u64) -> Result<(), String> {
    let size = fstat(descriptor).map_err(|error| error.to_string())?.st_size;
    let seals = fcntl_get_seals(descriptor).map_err(|error| error.to_string())?;
    if u64::try_from(size) != Ok(bytes) || bytes == 0 || !seals.contains(SealFlags::SHRINK) {
        return Err(format!(
            "a shared memory pool must have {bytes} bytes and a fixed size, but has {size} bytes or can shrink"
        ));
    }
    Ok(())
}

/// Says a number of bytes.
pub(super) fn say(mut stream: &UnixStream, bytes: u64) -> io::Result<()> {
    stream.write_all(&word(bytes))
}

/// What [`say`] said, however long it takes.
pub(super) fn hear(stream: &UnixStream) -> io::Result<u64> {
    let mut bytes = [0; WORD_BYTES];
    read_patiently(stream, &mut bytes)?;
    number(&bytes)
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
        let what = "a received message does not describe a shared memory pool";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(u64::from(high) << 32 | u64::from(low))
}

/// The bytes that another rank says it has set aside, with the file that came along.
fn heard(stream: &UnixStream, deadline: Instant) -> io::Result<(u64, Option<OwnedFd>)> {
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

/// A pool of this rank that all others may use, and theirs. It is lent for as long as this lives.
#[derive(Debug)]
pub(crate) struct SharedPools {
    /// Those of the others.
    pub(crate) others: BTreeMap<Address, Arc<Mapping>>,
    _lent: MemoryGrant,
}

impl SharedPools {
    /// Sets so many bytes aside, hands them to everybody and takes as many of each.
    ///
    /// # Errors
    /// Out of memory; or a rank is gone, or sets aside something else.
    pub(crate) fn exchange(
        streams: &BTreeMap<Address, UnixStream>,
        bytes: u64,
        deadline: Instant,
        memory: &Memory,
    ) -> Result<Self, RankError> {
        let lent = MemoryGrant::new(bytes, memory)?;
        // Each rank writes to all peers before it reads from one, so no rank waits for a rank that waits.
        for (&peer, stream) in streams {
            give(stream, Some(&lent)).map_err(|error| lost(peer, &error))?;
        }
        let mut others = BTreeMap::new();
        for (&peer, stream) in streams {
            let taken = take(peer, stream, deadline, memory)?;
            let theirs = taken.filter(|theirs| theirs.bytes() == bytes).ok_or_else(|| {
                RankError::Protocol(format!(
                    "{peer} did not share a memory buffer of the {bytes} bytes that this run needs"
                ))
            })?;
            others.insert(peer, Arc::new(theirs));
        }
        Ok(Self { others, _lent: lent })
    }
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
        let lent = MemoryGrant::Slot { set_aside: SetAside::new(8_192).unwrap(), file: make(8_192).unwrap() };
        give(&here, Some(&lent)).unwrap();
        give(&there, None).unwrap();
        let (bytes, taken) = heard(&there, soon()).unwrap();
        let taken = taken.unwrap();
        assert_eq!((bytes, check(&taken, bytes)), (8_192, Ok(())));
        assert!(check(&taken, 4_096).is_err());
        assert_eq!(heard(&here, soon()).unwrap().0, 0);
        let MemoryGrant::Slot { file, .. } = &lent else { panic!("{lent:?}") };
        assert!(ftruncate(&taken, 1).is_err() && ftruncate(file, 10_000).is_err());
        rustix::io::pwrite(file, b"block", 100).unwrap();
        let mut read = [0; 5];
        rustix::io::pread(&taken, &mut read, 100).unwrap();
        assert_eq!(&read, b"block");
    }

    /// Who is gone is noticed, and nonsense is no pool.
    #[test]
    fn a_peer_that_is_gone_or_talks_nonsense_is_an_error() {
        let (here, there) = UnixStream::pair().unwrap();
        drop(there);
        assert_eq!(heard(&here, soon()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let (here, mut there) = UnixStream::pair().unwrap();
        there.write_all(&[7; WORD_BYTES]).unwrap();
        assert_eq!(heard(&here, soon()).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(check(&std::fs::File::open("/dev/null").unwrap().into(), 0).is_err());
    }
}
