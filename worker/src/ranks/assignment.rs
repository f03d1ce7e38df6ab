//! The assignment of each rank of a run. Pure.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use loadmaster_proto::cluster::device::{Backend, Device};
use loadmaster_proto::measure::links::{Collectives, LinkWork};
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::measure::rank::{Contention, Edges, LinkSpec, RankDevice, RankSpec};
use loadmaster_proto::measure::run::{RankPosition, RunSpec, Task, Work};

use super::Supervisor;
use crate::run::Job;

/// A rank waits for a neighbour longer than the daemon waits for a quiet rank, so that the daemon
/// decides which of them hangs.
const NEIGHBOUR_MARGIN: Duration = Duration::from_secs(30);

/// The assignment of one rank.
#[derive(Debug)]
pub(super) struct Assignment {
    pub(super) rank: RankId,
    /// What it reads.
    pub(super) spec: Spec,
}

#[derive(Debug)]
pub(super) enum Spec {
    Train(Box<RankSpec>),
    /// It measures links.
    Links(Box<LinkSpec>),
}

impl Supervisor {
    /// The assignments of the ranks of a run, in order of the run's devices.
    pub(super) fn assignments(&self, job: &Job, folder: &Path) -> Vec<Assignment> {
        match &job.task {
            Task::Train(spec) => {
                let places = spec.ranks();
                let each = places.into_iter().zip(&job.lease.devices);
                each.map(|(place, device)| Assignment {
                    rank: RankId::of(&place),
                    spec: Spec::Train(Box::new(self.rank_spec(job, spec, place, device, folder))),
                })
                .collect()
            }
            Task::Links(work) => {
                let each = (0..work.devices).zip(&job.lease.devices);
                each.map(|(index, device)| Assignment {
                    rank: RankId { stage_index: 0, shard: index, devices: work.devices },
                    spec: Spec::Links(Box::new(self.link_spec(job, work, index, device, folder))),
                })
                .collect()
            }
        }
    }

    fn rank_spec(
        &self,
        job: &Job,
        spec: &RunSpec,
        place: RankPosition,
        device: &Device,
        folder: &Path,
    ) -> RankSpec {
        RankSpec {
            model: spec.model.clone(),
            training: spec.strategy.training_at(&place.position),
            position: place.position,
            shard: place.shard,
            edges: match &spec.strategy.work {
                Work::Solo(_) => Edges::Synthetic,
                Work::Partitioning(partitioning) => Edges::Sockets { partitioning: partitioning.clone() },
            },
            folder: folder.to_owned(),
            collectives: collectives(&job.lease.devices),
            iterations: spec.iterations,
            device: rank_device(device),
            threads: self.threads,
            contention: self.contention(device),
            neighbour_timeout_seconds: self.patience(),
            actions: spec.strategy.actions_at(&place.position),
            chunks: spec.strategy.chunks().cloned().map(Box::new),
            pace: self.pace(device),
            dump_gradients: None,
            dump_parameters: None,
        }
    }

    fn link_spec(&self, job: &Job, work: &LinkWork, index: u32, device: &Device, folder: &Path) -> LinkSpec {
        LinkSpec {
            work: work.clone(),
            index,
            device_id: device.id.clone(),
            folder: folder.to_owned(),
            collectives: collectives(&job.lease.devices),
            device: rank_device(device),
            threads: self.threads,
            neighbour_timeout_seconds: self.patience(),
            pace: self.pace(device),
        }
    }

    /// The cores of a GPU have no other user.
    fn contention(&self, device: &Device) -> Option<Contention> {
        let companions = self.slots_at_once.saturating_sub(1);
        let has_others = device.backend == Backend::Cpu && companions > 0;
        has_others.then(|| Contention { companions, turns: self.folder.turns() })
    }

    /// Copies of a GPU are as fast as its links.
    fn pace(&self, device: &Device) -> CopyPace {
        match device.backend {
            Backend::Cpu => self.copy_pace,
            Backend::Cuda => CopyPace::default(),
        }
    }

    fn patience(&self) -> f64 {
        (self.hang_timeout + NEIGHBOUR_MARGIN).as_secs_f64()
    }
}

fn rank_device(device: &Device) -> RankDevice {
    RankDevice {
        backend: device.backend,
        kind: device.kind.clone(),
        // The first that the rank sees.
        ordinal: 0,
        capacity: device.capacity,
        physical: device.physical,
        driver_version: device.driver_version.clone(),
    }
}

/// NCCL connects different GPUs; slots of one GPU, and of the host, exchange through the host's memory.
fn collectives(devices: &[Device]) -> Collectives {
    let uuids: BTreeSet<&str> = devices.iter().map(|device| device.uuid.as_str()).collect();
    let distinct = uuids.len() == devices.len() && !uuids.contains("");
    if distinct && devices.iter().all(|device| device.backend == Backend::Cuda) {
        Collectives::Nccl
    } else {
        Collectives::Host
    }
}

/// A rank of a run: a device of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RankId {
    pub(super) stage_index: u32,
    /// Which device of the stage.
    pub(super) shard: u32,
    /// Devices of the stage.
    pub(super) devices: u32,
}

impl RankId {
    /// The rank in this place.
    pub(super) fn of(place: &RankPosition) -> Self {
        Self {
            stage_index: place.position.stage_index,
            shard: place.shard,
            devices: place.position.stage.devices(),
        }
    }
}

/// `stage 2`, or `stage 2, shard 1` where the stage has several devices.
impl fmt::Display for RankId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stage {}", self.stage_index)?;
        if self.devices > 1 { write!(f, ", shard {}", self.shard) } else { Ok(()) }
    }
}
