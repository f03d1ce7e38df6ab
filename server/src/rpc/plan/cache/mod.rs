//! What a planner keeps between calls, so that what was read and found once is not read and found again.
//!
//! | kept | at most | good as long as |
//! |---|---|---|
//! | profiles with their predictors, and what these remember of their answers | 256 MiB | the profile's revision stays |
//! | which plan answered a request | 16,384 requests | the revisions of all that the answer depends on stay |
//! | plans as messages, without trials, reports and labels | 64 MiB | for ever: plans never change but for these |
//! | names of layers and sizes of models | 16 MiB | for ever: models never change |
//! | devices of clusters as searches see them | 32 MiB | the cluster's revision stays |
//!
//! The least recently used goes first. Nothing of it matters: a planner that starts again reads and searches once more,
//! and each of several planners on one database has its own. Revisions are asked of the database in every call, so
//! that it does not matter who changed something.

mod answers;
mod lru;
mod plans;
mod revisions;

use std::fmt;
use std::sync::Arc;

use loadmaster_proto::plan::summary::SummaryModel;
use loadmaster_proto::wire::v1;
use serde::Serialize;

pub(super) use answers::fingerprint;
use answers::{Answered, Question};
use lru::Lru;
pub(super) use revisions::Revisions;
use revisions::{ChainEntry, ChainKey, FleetEntry, FleetKey, Named};

/// Most bytes of profiles with their predictors, as far as they can be told.
const MOST_CHAIN_BYTES: usize = 256 << 20;
/// Most requests whose answers are known.
const MOST_ANSWERS: usize = 16_384;
/// Most bytes of plans as messages.
const MOST_PLAN_BYTES: usize = 64 << 20;
/// Most bytes of names of layers.
const MOST_NAME_BYTES: usize = 16 << 20;
/// Most bytes of devices of clusters.
const MOST_FLEET_BYTES: usize = 32 << 20;

/// Everything that is kept between calls. Cheap to clone.
#[derive(Clone)]
pub(in crate::rpc) struct Memory(Arc<Caches>);

struct Caches {
    chains: Lru<ChainKey, ChainEntry>,
    answers: Lru<Question, Answered>,
    /// By id.
    plans: Lru<String, Arc<v1::Plan>>,
    /// By the model's id.
    models: Lru<String, Arc<CachedModel>>,
    fleets: Lru<FleetKey, FleetEntry>,
}

/// The parts of a model that plans as messages need.
#[derive(Debug)]
pub(in crate::rpc::plan) struct CachedModel {
    pub(in crate::rpc::plan) layer_names: Vec<String>,
    pub(in crate::rpc::plan) summary: SummaryModel,
}

impl Default for Memory {
    fn default() -> Self {
        Self(Arc::new(Caches {
            chains: Lru::new(MOST_CHAIN_BYTES),
            answers: Lru::new(MOST_ANSWERS),
            plans: Lru::new(MOST_PLAN_BYTES),
            models: Lru::new(MOST_NAME_BYTES),
            fleets: Lru::new(MOST_FLEET_BYTES),
        }))
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("chains", &self.0.chains)
            .field("answers", &self.0.answers)
            .field("plans", &self.0.plans)
            .field("models", &self.0.models)
            .field("fleets", &self.0.fleets)
            .finish()
    }
}

/// How long a value is as JSON: about what it takes in memory. 0 where it cannot be written.
pub(super) fn json_bytes(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.saturating_add(bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value).map_or(0, |()| count.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_as_large_as_their_json() {
        assert_eq!(json_bytes(&vec![1, 22, 333]), "[1,22,333]".len());
    }
}
