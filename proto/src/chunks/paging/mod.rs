//! Which chunks are on a device, access by access.
//!
//! An iteration accesses chunks in an order that repeats, and beside what else the device holds there is room for so
//! many of them, at every access for others (PatrickStar, § eviction: *Belady's* rule with the moments of its tracer).
//! Chunks are of one size, and what is evicted is not copied anywhere, so what counts is fetches.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};

use crate::error::Invalid;

/// Iterations after which a residency should repeat itself. Known rules do after a few.
const MOST_ITERATIONS: u64 = 1_000;

/// The accesses of an iteration, and the room at each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessCycle {
    /// Which chunk.
    chunks: Vec<usize>,
    /// Chunks that there is room for meanwhile, the accessed one included.
    room: Vec<usize>,
    /// Accesses from each one to the next of the same chunk, in the next iteration if there is none in this.
    until_next: Vec<u64>,
}

/// Who leaves when there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Eviction {
    /// Whose next access is farthest: no rule fetches less.
    Belady,
    /// Whose last access is longest ago.
    Lru,
    /// Who was fetched first.
    Fifo,
}

/// What an access does before it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    /// Chunks that leave, in this order.
    pub evicted: Vec<usize>,
    /// Whether the accessed chunk comes.
    pub is_fetch: bool,
}

/// Fetches once residency repeats itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steady {
    /// In so many iterations.
    pub fetches: u64,
    /// After which all is as before.
    pub iterations: u64,
}

impl AccessCycle {
    /// Accesses and rooms side by side.
    ///
    /// # Errors
    /// No access, not as many rooms as accesses, or no room for the accessed chunk itself (`room[3]`).
    pub fn new(chunks: Vec<usize>, room: Vec<usize>) -> Result<Self, Invalid> {
        if chunks.is_empty() {
            return Err(Invalid::field("chunks", "is empty: name the chunks in the order of their accesses"));
        }
        if chunks.len() != room.len() {
            let why =
                format!("has {} entries, must have one for each of {} accesses", room.len(), chunks.len());
            return Err(Invalid::field("room", why));
        }
        if let Some(moment) = room.iter().position(|&room| room == 0) {
            let why = format!(
                "is 0, but chunk {} is accessed then: make room for one chunk, or choose smaller chunks",
                chunks[moment]
            );
            return Err(Invalid::field(format!("room[{moment}]"), why));
        }
        let until_next = until_next(&chunks);
        Ok(Self { chunks, room, until_next })
    }

    /// Accesses of an iteration.
    pub fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Begins without a chunk on the device.
    pub fn residency(&self, eviction: Eviction) -> Residency<'_> {
        Residency { cycle: self, eviction, now: 0, keys: HashMap::new(), leaving: BTreeSet::new() }
    }

    /// Fetches per iteration in the long run; none where residency does not repeat itself within a thousand
    /// iterations.
    pub fn steady(&self, eviction: Eviction) -> Option<Steady> {
        let mut residency = self.residency(eviction);
        let mut fetches = 0;
        let mut seen = HashMap::from([(Vec::new(), (0, 0))]);
        for iteration in 1..=MOST_ITERATIONS {
            fetches += residency.iteration();
            if let Some((before, fetched)) = seen.insert(residency.order(), (iteration, fetches)) {
                return Some(Steady { fetches: fetches - fetched, iterations: iteration - before });
            }
        }
        None
    }
}

/// Backwards twice, so that each access finds the next of its chunk.
fn until_next(chunks: &[usize]) -> Vec<u64> {
    let mut next = HashMap::new();
    let mut until = vec![0; chunks.len()];
    for position in (0..2 * chunks.len()).rev() {
        let access = position % chunks.len();
        if let Some(later) = next.insert(chunks[access], position) {
            until[access] = (later - position) as u64;
        }
    }
    until
}

/// Which chunks are on the device, while accesses go by.
#[derive(Debug, Clone)]
pub struct Residency<'a> {
    cycle: &'a AccessCycle,
    eviction: Eviction,
    /// Accesses so far.
    now: u64,
    /// By what a chunk that is there leaves: the least first.
    keys: HashMap<usize, u64>,
    leaving: BTreeSet<(u64, usize)>,
}

impl Residency<'_> {
    /// Goes through an iteration, and counts its fetches.
    pub fn iteration(&mut self) -> u64 {
        (0..self.cycle.len()).map(|_| u64::from(self.access().is_fetch)).sum()
    }

    /// Goes to the next access.
    pub fn access(&mut self) -> Moment {
        let Self { cycle, eviction, now, .. } = *self;
        // Less than the length of a list.
        let position = (now % cycle.len() as u64) as usize;
        let chunk = cycle.chunks[position];
        let before = self.keys.remove(&chunk);
        if let Some(key) = before {
            self.leaving.remove(&(key, chunk));
        }
        let mut evicted = Vec::new();
        while self.keys.len() >= cycle.room[position] {
            let Some((_, leaves)) = self.leaving.pop_first() else { break };
            self.keys.remove(&leaves);
            evicted.push(leaves);
        }
        let key = match (eviction, before) {
            (Eviction::Belady, _) => u64::MAX - (now + cycle.until_next[position]),
            (Eviction::Fifo, Some(fetched)) => fetched,
            (Eviction::Lru, _) | (Eviction::Fifo, None) => now,
        };
        self.keys.insert(chunk, key);
        self.leaving.insert((key, chunk));
        self.now += 1;
        Moment { evicted, is_fetch: before.is_none() }
    }

    /// The chunks that are there, who leaves first first: all that what comes next depends on, at the end of an
    /// iteration.
    fn order(&self) -> Vec<usize> {
        self.leaving.iter().map(|&(_, chunk)| chunk).collect()
    }
}
