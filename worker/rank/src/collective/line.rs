//! A connection between two devices of a stage: bytes in lockstep, with patience.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tch::Kind;

use super::Reduction;
use crate::error::RankError;
use crate::peers::Address;
use crate::progress;

/// How often a waiting rank says that it lives. It waits as long as its peer does the same: the daemon
/// decides which of them hangs, and the end of a peer ends the connection.
const WAITING_PAUSE: Duration = Duration::from_millis(100);
/// Marks the start of an exchange and the version of its layout.
const MAGIC: u32 = 0x4c4d_4301;
/// magic, operation, number format, two zeros, sequence number, bytes.
const HEADER_BYTES: usize = 4 + 1 + 1 + 2 + 8 + 8;

/// What an exchange is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// All values become one.
    Reduce(Reduction),
    /// Parts are put together.
    Gather,
    /// Each has the sum of its part.
    ReduceScatter,
}

/// What both ends of an exchange must agree on before a byte of it is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) operation: Operation,
    pub(super) kind: Kind,
    /// Exchanges before it.
    pub(super) sequence: u64,
    /// Bytes that the sender has to give.
    pub(super) bytes: u64,
}

impl Header {
    fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4] = match self.operation {
            Operation::Reduce(Reduction::Sum) => 1,
            Operation::Reduce(Reduction::Max) => 2,
            Operation::Gather => 3,
            Operation::ReduceScatter => 4,
        };
        bytes[5] = self.kind as i32 as u8;
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }
}

/// A connection to one peer.
#[derive(Debug)]
pub(super) struct Line {
    stream: UnixStream,
    peer: Address,
}

impl Line {
    pub(super) fn new(stream: UnixStream, peer: Address) -> Result<Self, RankError> {
        let timeouts = stream
            .set_read_timeout(Some(WAITING_PAUSE))
            .and_then(|()| stream.set_write_timeout(Some(WAITING_PAUSE)));
        timeouts.map_err(|error| RankError::Other(format!("cannot communicate with {peer}: {error}")))?;
        Ok(Self { stream, peer })
    }

    pub(super) fn send_header(&mut self, header: Header) -> Result<(), RankError> {
        self.send(&header.encode())
    }

    /// Reads a header that must be this one.
    pub(super) fn expect_header(&mut self, header: Header) -> Result<(), RankError> {
        let mut bytes = [0; HEADER_BYTES];
        self.receive(&mut bytes)?;
        if bytes == header.encode() {
            return Ok(());
        }
        Err(RankError::Protocol(format!(
            "{} runs a different collective operation. This rank expected {header:?}",
            self.peer
        )))
    }

    pub(super) fn send(&mut self, mut bytes: &[u8]) -> Result<(), RankError> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(0) => return Err(self.lost(&io::ErrorKind::WriteZero.into())),
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) => self.bear(&error)?,
            }
        }
        Ok(())
    }

    pub(super) fn receive(&mut self, into: &mut [u8]) -> Result<(), RankError> {
        let mut filled = 0;
        while filled < into.len() {
            match self.stream.read(&mut into[filled..]) {
                Ok(0) => return Err(self.lost(&io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => filled += count,
                Err(error) => self.bear(&error)?,
            }
        }
        Ok(())
    }

    /// Goes on waiting after an error that says no more than that nothing happened yet.
    fn bear(&self, error: &io::Error) -> Result<(), RankError> {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                progress::tick();
                Ok(())
            }
            io::ErrorKind::Interrupted => Ok(()),
            _ => Err(self.lost(error)),
        }
    }

    fn lost(&self, error: &io::Error) -> RankError {
        RankError::LostNeighbour(format!("lost {}: {error}", self.peer))
    }
}
