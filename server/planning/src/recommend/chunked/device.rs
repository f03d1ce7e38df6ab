//! The devices that train in chunks: replicas of the whole model on like devices of one node, which share its chunks.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::cluster::{Link, Node};
use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::PlacedDevice;

use super::ChunksQuestion;
use crate::cost::{Batch, Factors};
use crate::iteration::copies::SlotCores;
use crate::recommend::ask::ProfiledChain;
use crate::search::FleetNode;

/// Like devices of one node, with the profile of their kind.
#[derive(Clone)]
pub(super) struct ChunkDevices<'a> {
    /// As people know them.
    pub(super) names: Vec<String>,
    /// As their cluster knows them: at least one.
    pub(super) placed: Vec<PlacedDevice>,
    /// Bytes that a plan may take of each.
    pub(super) capacity: Bytes,
    pub(super) chain: &'a ProfiledChain,
    /// What its predictions are multiplied with.
    pub(super) factors: Factors,
    /// Their node, as far as it is described.
    pub(super) node: Option<&'a Node>,
    /// The slowest link between two of them.
    pub(super) inside: Link,
}

impl ChunkDevices<'_> {
    /// How many replicas share the chunks.
    pub(super) fn ranks(&self) -> u32 {
        u32::try_from(self.placed.len()).unwrap_or(u32::MAX)
    }

    /// How many times as long passes and updates take because replicas on CPU slots, all of which do the same at the same time,
    /// outnumber the cores of their host; 1 on other devices, and where nobody knows the cores.
    pub(super) fn slower(&self) -> f64 {
        let host = self.chain.host.filter(|_| self.kind() == CPU_KIND);
        host.map_or(1.0, |host| SlotCores::of(host).slower(self.ranks()))
    }

    /// For people.
    pub(super) fn told(&self) -> String {
        self.names.join(", ")
    }

    /// Their kind, as profiles name it.
    pub(super) fn kind(&self) -> &str {
        self.placed.first().map_or("", |placed| placed.kind.as_str())
    }
}

impl<'a> ChunksQuestion<'a> {
    /// Every choice of devices that may train one of these batches, the fewest first: all of the fleet where none may stay idle,
    /// else as many of its largest like ones as there are, of equal nodes those of the first. Shapes are of pipelines and restrict
    /// none of them.
    ///
    /// # Errors
    /// Devices that must be used and are not alike, or are not as many as may share chunks or a micro-batch.
    pub(super) fn devices(&self, batches: &[Batch]) -> Result<Vec<ChunkDevices<'a>>, Invalid> {
        let fleet = self.writer.fleet;
        let constraints = &self.request.goal.constraints;
        let field = if self.request.goal.cluster.is_some() { "cluster" } else { "devices" };
        let refuse = |why: String| Err(Invalid::field(field, why));
        let count = fleet.fleet.devices();
        if count == 0 {
            return refuse("has no device: name one, for example 1x16GiB".to_owned());
        }
        let given = self.request.partitioning.as_ref().and_then(|given| given.stages().first());
        let asked = given.map(|stage| stage.data_degree);
        let may_be = |ranks: &u32| {
            let is_allowed = constraints.data_degrees.is_empty() || constraints.data_degrees.contains(ranks);
            is_allowed && asked.is_none_or(|asked| asked == *ranks)
        };
        let divides = |ranks: &u32| batches.iter().any(|batch| batch.micro_batch_size.is_multiple_of(*ranks));
        // Seconds of fewer samples than were profiled are not known.
        let is_known = |ranks: &u32| {
            let most = batches.iter().map(|batch| batch.micro_batch_size).max().unwrap_or(0);
            most / *ranks >= self.wish.least_share.min(most)
        };
        let degrees: Vec<u32> = if constraints.allow_idle_devices {
            let most = fleet.fleet.nodes.iter().map(|node| node.devices).max().unwrap_or(0);
            (1..=most).filter(may_be).filter(divides).filter(is_known).collect()
        } else {
            if fleet.fleet.nodes.len() > 1 {
                return refuse(format!(
                    "has {count} devices of several kinds or nodes that a plan must use, and chunks are shared by like devices \
                     of one node: name one node's, or let others stay idle with `constraints.allow_idle_devices`"
                ));
            }
            if !divides(&count) {
                let sizes: Vec<String> =
                    batches.iter().map(|batch| batch.micro_batch_size.to_string()).collect();
                return refuse(format!(
                    "has {count} devices that a plan must use, over which a micro-batch of {} is not split evenly: choose \
                     another `micro_batch_size`, or let devices stay idle with `constraints.allow_idle_devices`",
                    sizes.join(" or ")
                ));
            }
            Some(count).filter(may_be).into_iter().collect()
        };
        if degrees.is_empty() {
            let field = if asked.is_some() { "partitioning" } else { "constraints.data_degrees" };
            let why = format!(
                "leaves no number of replicas that share chunks: it must divide the micro-batch, and be {} like devices of one \
                 node",
                if constraints.allow_idle_devices {
                    format!("at most {count}")
                } else {
                    format!("all {count}")
                }
            );
            return Err(Invalid::field(field, why));
        }
        Ok(degrees.into_iter().filter_map(|ranks| self.largest(ranks)).collect())
    }

    /// So many like devices of one node, those with most memory; none where no node has them.
    fn largest(&self, ranks: u32) -> Option<ChunkDevices<'a>> {
        let fleet = self.writer.fleet;
        let capacity = |node: &FleetNode| fleet.fleet.kinds.get(node.kind).map(|kind| kind.capacity);
        let begins = fleet.fleet.begins();
        let nodes = fleet.fleet.nodes.iter().zip(begins).filter(|(node, _)| node.devices >= ranks);
        let (node, begin) =
            nodes.reduce(|one, other| if capacity(other.0) > capacity(one.0) { other } else { one })?;
        let placed: Vec<PlacedDevice> =
            (begin..begin.saturating_add(ranks)).map(|device| fleet.placed(device)).collect();
        let first = placed.first()?;
        let of_kind = self.writer.kinds.iter().find(|(chain, _)| chain.device_kind == first.kind);
        let (chain, factors) = of_kind.copied().unwrap_or((self.writer.chain, Factors::NONE));
        let most = self.request.goal.constraints.max_peak_bytes.unwrap_or(u64::MAX);
        let names = fleet.names();
        Some(ChunkDevices {
            names: names.into_iter().skip(begin as usize).take(ranks as usize).collect(),
            capacity: Bytes(first.capacity.min(most)),
            chain,
            factors,
            node: fleet.described(&first.node),
            inside: node.inside,
            placed,
        })
    }
}
