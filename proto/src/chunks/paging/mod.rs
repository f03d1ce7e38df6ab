//! Which chunks are on a device, access by access.
//!
//! An iteration accesses chunks in an order that repeats, and beside what else the device holds there is room for so
//! many bytes of them, at every access for others (PatrickStar, § eviction: *Belady's* rule with the moments of its
//! tracer). What is counted is fetches: most of what is evicted is as it is on the host, and goes nowhere. Where chunks are of one
//! size, Belady's rule needs the fewest.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::error::Invalid;

/// The accesses of an iteration, and the room at each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessCycle {
    accesses: Vec<Access>,
    /// Bytes of chunks that there is room for meanwhile, the accessed ones included.
    room: Vec<u64>,
    /// Bytes of each chunk.
    bytes: Vec<u64>,
    /// Of each access, from it to the next of each of its chunks, in the next iteration if there is none in this.
    until_next: Vec<Vec<u64>>,
}

/// What is accessed at once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Access {
    /// Which chunks, each once.
    pub used: Vec<usize>,
    /// Those that leave behind it, whatever room there is: the next time they are others.
    pub let_go: Vec<usize>,
}

/// There is no room for what is accessed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// Which access, from 0.
    pub access: usize,
    /// Bytes that lack.
    pub missing: u64,
}

/// What an access does before it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    /// Chunks that leave, in this order.
    pub evicted: Vec<usize>,
    /// The accessed chunks that come.
    pub fetched: Vec<usize>,
}

impl AccessCycle {
    /// Accesses to one of several equal chunks each, and for how many of them there is room, side by side.
    ///
    /// # Errors
    /// No access, not as many rooms as accesses, or no room for the accessed chunk itself (`room[3]`).
    pub fn new(chunks: Vec<usize>, room: Vec<u64>) -> Result<Self, Invalid> {
        if chunks.is_empty() {
            return Err(Invalid::field("chunks", "is empty. List the chunks in the order of their accesses"));
        }
        if chunks.len() != room.len() {
            let why = format!(
                "has {} entries for {} accesses. Use one entry for each access",
                room.len(),
                chunks.len()
            );
            return Err(Invalid::field("room", why));
        }
        let count = chunks.iter().max().map_or(0, |most| most + 1);
        let accesses = chunks.iter().map(|&chunk| Access { used: vec![chunk], let_go: Vec::new() }).collect();
        Self::of_bytes(accesses, room, vec![1; count]).map_err(|Shortage { access, .. }| {
            let why = format!(
                "has room for 0 chunks, but this access needs chunk {}. Make room for at least one chunk, or use \
                 smaller chunks",
                chunks[access]
            );
            Invalid::field(format!("room[{access}]"), why)
        })
    }

    /// Accesses to chunks of these bytes, with the bytes that there is room for at each of them: none where none are named. A
    /// chunk without bytes takes none.
    ///
    /// # Errors
    /// Where the room is too small for what is accessed at once.
    pub fn of_bytes(accesses: Vec<Access>, mut room: Vec<u64>, bytes: Vec<u64>) -> Result<Self, Shortage> {
        room.resize(accesses.len(), 0);
        for (access, (Access { used, .. }, &room)) in accesses.iter().zip(&room).enumerate() {
            let needed = used.iter().fold(0_u64, |sum, &chunk| sum.saturating_add(of(&bytes, chunk)));
            if needed > room {
                return Err(Shortage { access, missing: needed - room });
            }
        }
        let until_next = until_next(&accesses);
        Ok(Self { accesses, room, bytes, until_next })
    }

    /// Accesses of an iteration.
    pub fn len(&self) -> usize {
        self.accesses.len()
    }

    /// Whether there are none: never of [`Self::new`].
    pub fn is_empty(&self) -> bool {
        self.accesses.is_empty()
    }

    /// Begins without a chunk on the device.
    pub fn residency(&self) -> Residency<'_> {
        let most = self.accesses.iter().flat_map(|access| &access.used).max().map_or(0, |most| most + 1);
        Residency {
            cycle: self,
            now: 0,
            held: 0,
            keys: vec![None; most],
            there: 0,
            leaving: BinaryHeap::new(),
        }
    }
}

fn of(bytes: &[u64], chunk: usize) -> u64 {
    bytes.get(chunk).copied().unwrap_or(0)
}

/// Backwards twice, so that each access finds the next of its chunks.
fn until_next(accesses: &[Access]) -> Vec<Vec<u64>> {
    let most = accesses.iter().flat_map(|access| &access.used).max().copied();
    let mut next: Vec<Option<usize>> = vec![None; most.map_or(0, |most| most + 1)];
    let mut until = vec![Vec::new(); accesses.len()];
    for position in (0..2 * accesses.len()).rev() {
        let access = position % accesses.len();
        let used = &accesses[access].used;
        // The first time, which is the next iteration's, is for what comes next alone.
        if position == access {
            let later = |&chunk: &usize| next[chunk].map_or(u64::MAX, |later| (later - position) as u64);
            until[access] = used.iter().map(later).collect();
        }
        used.iter().for_each(|&chunk| next[chunk] = Some(position));
    }
    until
}

/// Which chunks are on the device, while accesses go by.
#[derive(Debug, Clone)]
pub struct Residency<'a> {
    cycle: &'a AccessCycle,
    /// Accesses so far.
    now: u64,
    /// Bytes that are there.
    held: u64,
    /// Of each chunk that is there, by what it leaves: the least first.
    keys: Vec<Option<u64>>,
    /// How many are there.
    there: usize,
    /// Chunks by their keys, and by keys that they had: most are never asked for.
    leaving: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Residency<'_> {
    /// Goes through an iteration, and counts its fetches.
    pub fn iteration(&mut self) -> u64 {
        (0..self.cycle.len()).map(|_| self.access().fetched.len() as u64).sum()
    }

    /// Goes to the next access.
    pub fn access(&mut self) -> Moment {
        let Self { cycle, now, .. } = *self;
        if cycle.is_empty() {
            return Moment { evicted: Vec::new(), fetched: Vec::new() };
        }
        // Less than the length of a list.
        let position = (now % cycle.len() as u64) as usize;
        let Access { used, let_go } = &cycle.accesses[position];
        let before: Vec<Option<u64>> = used.iter().map(|chunk| self.take(*chunk)).collect();
        let asked = used.iter().fold(0_u64, |sum, &chunk| sum.saturating_add(of(&cycle.bytes, chunk)));
        let mut evicted = Vec::new();
        while self.held.saturating_add(asked) > cycle.room[position] {
            let Some(Reverse((key, leaves))) = self.leaving.pop() else { break };
            if self.has_key(leaves, key) {
                self.take(leaves);
                evicted.push(leaves);
            }
        }
        let mut fetched = Vec::new();
        for ((&chunk, before), &until_next) in used.iter().zip(before).zip(&cycle.until_next[position]) {
            let key = u64::MAX - now.saturating_add(until_next);
            if before.is_none() {
                fetched.push(chunk);
            }
            self.put(chunk, key);
        }
        for &chunk in let_go {
            self.take(chunk);
        }
        self.now += 1;
        Moment { evicted, fetched }
    }

    fn has_key(&self, chunk: usize, key: u64) -> bool {
        self.keys.get(chunk).is_some_and(|of| *of == Some(key))
    }

    fn put(&mut self, chunk: usize, key: u64) {
        let Some(of) = self.keys.get_mut(chunk) else { return };
        if of.replace(key).is_none() {
            self.there += 1;
            self.held = self.held.saturating_add(self::of(&self.cycle.bytes, chunk));
        }
        // No longer than what is there by much, however many iterations there are.
        if self.leaving.len() > 4 * self.there + 64 {
            let keys = &self.keys;
            self.leaving.retain(|Reverse((key, chunk))| keys[*chunk] == Some(*key));
        }
        self.leaving.push(Reverse((key, chunk)));
    }

    /// Removes a chunk. Returns the key by which it would have been evicted, none where it was not there.
    fn take(&mut self, chunk: usize) -> Option<u64> {
        let key = self.keys.get_mut(chunk)?.take()?;
        self.there -= 1;
        self.held = self.held.saturating_sub(of(&self.cycle.bytes, chunk));
        Some(key)
    }
}
