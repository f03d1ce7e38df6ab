//! Memory of each rank's device that all others may use at once, to measure how fast they copy into it.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use super::shared_memory::{MemoryGrant, give, lost, take};
use crate::error::RankError;
use crate::ffi::Mapping;
use crate::memory::Memory;
use crate::peers::Address;

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
        // All are told before anybody is listened to: nobody waits for somebody who waits.
        for (&peer, stream) in streams {
            give(stream, Some(&lent)).map_err(|error| lost(peer, &error))?;
        }
        let mut others = BTreeMap::new();
        for (&peer, stream) in streams {
            let taken = take(peer, stream, deadline, memory)?;
            let theirs = taken.filter(|theirs| theirs.bytes() == bytes).ok_or_else(|| {
                RankError::Protocol(format!(
                    "{peer} does not set the {bytes} bytes aside that were agreed on"
                ))
            })?;
            others.insert(peer, Arc::new(theirs));
        }
        Ok(Self { others, _lent: lent })
    }
}
