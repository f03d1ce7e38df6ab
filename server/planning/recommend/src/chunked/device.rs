//! The devices that train in chunks: replicas of the whole model on like devices of one node, which share its chunks, each on one
//! device or split into shards over several.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::cluster::{Link, Node};
use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::PlacedDevice;

use super::ChunksQuestion;
use crate::problem::ProfiledChain;
use loadmaster_predict::Share;
use loadmaster_search::FleetNode;
use loadmaster_search::cost::{Batch, Factors};
use loadmaster_simulate::copies::SlotCores;

/// Like devices of one node, with the profile of their kind.
#[derive(Clone)]
pub(super) struct ChunkDevices<'a> {
    /// As people know them.
    pub(super) names: Vec<String>,
    /// As their cluster knows them: at least one.
    pub(super) placed: Vec<PlacedDevice>,
    /// How many replicas they are, which share chunks.
    pub(super) replicas: u32,
    /// How many shards each of these is.
    pub(super) shards: u32,
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
    /// How many of them there are.
    pub(super) fn ranks(&self) -> u32 {
        u32::try_from(self.placed.len()).unwrap_or(u32::MAX)
    }

    /// How many times as long passes and updates take because ranks on CPU slots share the cores of their host. All of
    /// them do the same at the same time. 1 on other devices, and where the cores are not known.
    pub(super) fn slower(&self) -> f64 {
        let host = self.chain.host.filter(|_| self.kind() == CPU_KIND);
        host.map_or(1.0, |host| SlotCores::of(host).slower(self.ranks()))
    }

    /// Human-readable.
    pub(super) fn told(&self) -> String {
        self.names.join(", ")
    }

    /// Their kind, as profiles name it.
    pub(super) fn kind(&self) -> &str {
        self.placed.first().map_or("", |placed| placed.kind.as_str())
    }
}

impl<'a> ChunksQuestion<'a> {
    /// Every choice of devices that may train one of these batches, the fewest first, in every split into replicas and shards. All
    /// of the fleet where none may stay idle, else as many like ones of each kind of nodes as there are, those with most memory first;
    /// of equal nodes those of the first. Shapes are of pipelines and restrict none of them.
    ///
    /// # Errors
    /// Devices that must be used and are not alike, or are not as many as may share chunks or a micro-batch.
    pub(super) fn devices(&self, batches: &[Batch]) -> Result<Vec<ChunkDevices<'a>>, Invalid> {
        let fleet = self.context.fleet;
        let constraints = &self.request.goal.constraints;
        let field = self.request.goal.devices_field();
        let refuse = |why: String| Err(Invalid::field(field, why));
        let count = fleet.fleet.devices();
        if count == 0 {
            return refuse("has no device. Use for example 1x16GiB".to_owned());
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
            most / *ranks >= self.criteria.least_share.min(most)
        };
        let most = fleet.fleet.nodes.iter().map(|node| node.devices).max().unwrap_or(0);
        let shards = self.shards(most.min(count), batches)?;
        let split = |devices: u32| -> Vec<(u32, u32)> {
            let shards = shards.iter().filter(|&&shards| devices.is_multiple_of(shards));
            shards.map(|&shards| (devices / shards, shards)).collect()
        };
        let is_possible = |of: &&(u32, u32)| may_be(&of.0) && divides(&of.0);
        let degrees: Vec<(u32, u32)> = if constraints.allow_idle_devices {
            let all: Vec<(u32, u32)> = (1..=most).flat_map(split).collect();
            all.iter().filter(is_possible).filter(|of| is_known(&of.0)).copied().collect()
        } else {
            if fleet.fleet.nodes.len() > 1 {
                return refuse(format!(
                    "has {count} devices of several kinds or on several nodes, but chunked training needs equal \
                     devices of one node. Use one node, or set `constraints.allow_idle_devices`"
                ));
            }
            let all = split(count);
            if !all.is_empty() && !all.iter().any(|(replicas, _)| divides(replicas)) {
                let sizes: Vec<String> =
                    batches.iter().map(|batch| batch.micro_batch_size.to_string()).collect();
                return refuse(format!(
                    "has {count} devices, which do not divide a micro-batch of {} samples evenly. Use another \
                     `problem.micro_batch_size`, or set `constraints.allow_idle_devices`",
                    sizes.join(" or ")
                ));
            }
            all.iter().filter(is_possible).copied().collect()
        };
        if degrees.is_empty() {
            let is_of_shards = constraints.data_degrees.is_empty() && !constraints.tensor_degrees.is_empty();
            let field = match (asked, is_of_shards) {
                (Some(_), _) => "constraints.pipeline_layout",
                (None, true) => "constraints.tensor_parallel_sizes",
                (None, false) => "constraints.data_parallel_sizes",
            };
            let why = format!(
                "has no valid size. The data-parallel size must divide `problem.micro_batch_size`. Data- and \
                 tensor-parallel size together must use {} equal devices of one node",
                if constraints.allow_idle_devices {
                    format!("at most {count}")
                } else {
                    format!("all {count}")
                }
            );
            return Err(Invalid::field(field, why));
        }
        Ok(degrees.into_iter().flat_map(|split| self.like(split)).collect())
    }

    /// How many shards replicas may be split into on a node of so many devices. Those that are named, or all powers of two that
    /// the profile knows the seconds of, as far as layers can be split so. A framework's replicas are whole.
    ///
    /// # Errors
    /// No layer can be split into a number that is named.
    fn shards(&self, most: u32, batches: &[Batch]) -> Result<Vec<u32>, Invalid> {
        let constraints = &self.request.goal.constraints;
        let chain = self.context.chain;
        let check = |shards: u32| {
            let mut layers = chain.model.iter().flat_map(|model| model.layers());
            layers.try_for_each(|layer| layer.kind.check_tensor_degree(shards))
        };
        let given = self.request.partitioning.as_ref().and_then(|given| given.stages().first());
        let (named, field) = match given {
            Some(stage) => (vec![stage.tensor_degree.max(1)], "constraints.pipeline_layout"),
            None => (constraints.tensor_degrees.clone(), "constraints.tensor_parallel_sizes"),
        };
        if named.is_empty() {
            let powers = (0..=most.max(1).ilog2()).map(|power| 1_u32 << power);
            let knows = |shards: u32| {
                let share =
                    |batch: &Batch| Share { micro_batch_size: batch.micro_batch_size, tensor_degree: shards };
                let mut costs = batches.iter().map(|batch| chain.predictor.layer_costs(share(batch)));
                costs.any(|costs| costs.iter().all(Option::is_some))
            };
            let is_open = |&shards: &u32| {
                shards == 1 || (self.criteria.rules.is_none() && check(shards).is_ok() && knows(shards))
            };
            return Ok(powers.filter(is_open).collect());
        }
        let can: Vec<u32> = named.iter().copied().filter(|&shards| check(shards).is_ok()).collect();
        match named.iter().find_map(|&shards| check(shards).err()).filter(|_| can.is_empty()) {
            Some(why) => {
                Err(Invalid::field(field, format!("splits layers in a way that is not possible: {why}")))
            }
            None => Ok(can),
        }
    }

    /// So many replicas of so many shards each, on like devices of one node: of each kind of nodes that has them the first, those with
    /// most memory first.
    fn like(&self, split: (u32, u32)) -> Vec<ChunkDevices<'a>> {
        let fleet = self.context.fleet;
        let ranks = split.0.saturating_mul(split.1);
        let capacity = |node: &FleetNode| fleet.fleet.kinds.get(node.kind).map(|kind| kind.capacity);
        let copies = |node: &FleetNode| fleet.described(&node.name).and_then(|node| node.copies.as_ref());
        let are_like = |one: &FleetNode, other: &FleetNode| {
            one.kind == other.kind && one.inside == other.inside && copies(one) == copies(other)
        };
        let mut unlike: Vec<(&FleetNode, u32)> = Vec::new();
        for (node, begin) in fleet.fleet.nodes.iter().zip(fleet.fleet.begins()) {
            if node.devices >= ranks && !unlike.iter().any(|(known, _)| are_like(known, node)) {
                unlike.push((node, begin));
            }
        }
        unlike.sort_by_key(|(node, _)| std::cmp::Reverse(capacity(node)));
        unlike.into_iter().filter_map(|(node, begin)| self.on(node, begin, split)).collect()
    }

    /// Replicas of so many shards each on the first devices of a node, which are from `begin` on.
    fn on(&self, node: &FleetNode, begin: u32, (replicas, shards): (u32, u32)) -> Option<ChunkDevices<'a>> {
        let fleet = self.context.fleet;
        let ranks = replicas.checked_mul(shards)?;
        let placed: Vec<PlacedDevice> =
            (begin..begin.saturating_add(ranks)).map(|device| fleet.placed(device)).collect();
        let first = placed.first()?;
        let of_kind = self.context.kinds.iter().find(|(chain, _)| chain.device_kind == first.kind);
        let (chain, factors) = of_kind.copied().unwrap_or((self.context.chain, Factors::NONE));
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
            replicas,
            shards,
        })
    }
}
