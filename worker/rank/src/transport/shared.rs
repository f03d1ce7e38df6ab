//! Memory of each rank's device that all others may use at once, to measure how fast they copy into it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use super::pools::{cannot_share, check, give, lost, make, take};
use crate::error::RankError;
use crate::ffi::{Mapping, SetAside};
use crate::peers::Address;

/// A pool of this rank that all others may use, and theirs. It is lent for as long as this lives.
#[derive(Debug)]
pub(crate) struct SharedPools {
    /// Those of the others.
    pub(crate) others: BTreeMap<Address, Arc<Mapping>>,
    _set_aside: SetAside,
    _made: OwnedFd,
}

impl SharedPools {
    /// Sets so many bytes aside, hands them to everybody and takes as many of each.
    ///
    /// # Errors
    /// Out of memory; or a rank is gone, or sets aside something else.
    pub(crate) fn exchange(
        streams: &BTreeMap<Address, UnixStream>,
        own: Address,
        bytes: u64,
        deadline: Instant,
    ) -> Result<Self, RankError> {
        let set_aside = SetAside::new(bytes)?;
        let made = make(bytes).map_err(|error| cannot_share(own, &error))?;
        // All are told before anybody is listened to: nobody waits for somebody who waits.
        for (&peer, stream) in streams {
            give(stream, bytes, Some(&made)).map_err(|error| lost(peer, &error))?;
        }
        let mut others = BTreeMap::new();
        for (&peer, stream) in streams {
            let (theirs, descriptor) = take(stream, deadline).map_err(|error| lost(peer, &error))?;
            let descriptor = descriptor.filter(|_| theirs == bytes).ok_or_else(|| {
                RankError::Protocol(format!("{peer} sets {theirs} bytes aside, {bytes} were agreed on"))
            })?;
            check(&descriptor, bytes).map_err(|why| RankError::Protocol(format!("{peer}: {why}")))?;
            let memory = Mapping::shared(&descriptor, bytes).map_err(|error| cannot_share(peer, &error))?;
            others.insert(peer, Arc::new(memory));
        }
        Ok(Self { others, _set_aside: set_aside, _made: made })
    }
}
