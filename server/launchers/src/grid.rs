//! The grid of ranks that most frameworks build: as many stages, replicas and shards everywhere.

use loadmaster_proto::plan::{PlacedDevice, Plan, PlanStage};

use crate::StageRefusal;
use crate::export_parts::RankPlace;

/// Places along the pipeline by replicas by shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Places along the pipeline: stages, but where devices have several of them interleaved.
    pub stages: u32,
    /// Stages that the devices of each have interleaved.
    pub virtual_stages: u32,
    /// Replicas of each.
    pub replicas: u32,
    /// Shards of each replica.
    pub shards: u32,
}

/// In which order a framework numbers a grid's ranks; shards are always next to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AxisOrder {
    /// Stage by stage, replica by replica: as plans have them.
    StagesFirst,
    /// Replica by replica, stage by stage.
    ReplicasFirst,
}

impl Grid {
    /// The grid of a plan whose stages have the same degrees.
    ///
    /// # Errors
    /// The stages that have other degrees than the first, or whose replicas have unequal shares of the samples.
    pub fn of(plan: &Plan) -> Result<Self, Vec<StageRefusal>> {
        let Some(first) = plan.stages.first().map(|stage| stage.config) else {
            return Err(vec![StageRefusal::of_plan("has no stage")]);
        };
        let (replicas, shards) = (first.data_degree, first.tensor_degree);
        let differs = plan.stages.iter().enumerate().filter_map(|(index, stage)| {
            let config = stage.config;
            let is_same = (config.data_degree, config.tensor_degree) == (replicas, shards);
            let why = format!(
                "has data-parallel size {} and tensor-parallel size {}, but the first stage has {replicas} and {shards}. Use \
                 equal sizes for all stages",
                config.data_degree, config.tensor_degree
            );
            (!is_same).then(|| StageRefusal::of_stage(index, why))
        });
        let mut refused: Vec<StageRefusal> = differs.collect();
        if !plan.training.micro_batch_size.is_multiple_of(replicas.max(1)) {
            refused.push(StageRefusal::of_plan(format!(
                "has micro-batches of {} samples, which data-parallel size {replicas} does not divide. Use another \
                 micro-batch size",
                plan.training.micro_batch_size
            )));
        }
        let stages = u32::try_from(plan.positions()).unwrap_or(u32::MAX);
        let virtual_stages = plan.virtual_stages.max(1);
        if refused.is_empty() { Ok(Self { stages, virtual_stages, replicas, shards }) } else { Err(refused) }
    }

    /// Whether devices have several interleaved stages.
    pub fn is_interleaved(&self) -> bool {
        self.virtual_stages > 1
    }

    /// What people read behind `stages`: `, 2 on each device in turn`, or nothing where each device has one.
    pub(crate) fn turns(&self) -> String {
        if self.is_interleaved() {
            format!(", {} interleaved on each device", self.virtual_stages)
        } else {
            String::new()
        }
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        self.stages.saturating_mul(self.replicas).saturating_mul(self.shards)
    }

    /// The number of a rank.
    pub fn rank(&self, order: AxisOrder, (stage, replica, shard): (u32, u32, u32)) -> u32 {
        let (slow, fast, most) = match order {
            AxisOrder::StagesFirst => (stage, replica, self.replicas),
            AxisOrder::ReplicasFirst => (replica, stage, self.stages),
        };
        (slow * most + fast) * self.shards + shard
    }

    /// Every rank of a plan, in order, with its device: where devices have several interleaved stages, with the first of them.
    pub fn places(&self, plan: &Plan, order: AxisOrder) -> Vec<RankPlace> {
        let mut places = Vec::with_capacity(self.ranks() as usize);
        for (index, stage) in plan.first_stages().iter().enumerate() {
            // As many as the grid says, whose number is one.
            let at = index as u32;
            for replica in 0..self.replicas {
                for shard in 0..self.shards {
                    let device = stage.devices.get((replica * self.shards + shard) as usize).cloned();
                    let rank = self.rank(order, (at, replica, shard));
                    places.push(RankPlace { rank, stage: index, replica, shard, device });
                }
            }
        }
        places.sort_by_key(|place| place.rank);
        places
    }
}

/// Every rank of a plan whose stages need not be alike, stage by stage, with its device: with the first of its stages where it has
/// several one after another.
pub(crate) fn places_in_order(plan: &Plan) -> Vec<RankPlace> {
    let of = |(stage, of): (usize, &PlanStage)| {
        let config = of.config;
        let devices: Vec<Option<PlacedDevice>> =
            (0..config.devices()).map(|at| of.devices.get(at as usize).cloned()).collect();
        devices.into_iter().zip(0..).map(move |(device, at): (_, u32)| {
            let shard = at % config.tensor_degree.max(1);
            RankPlace { rank: 0, stage, replica: config.replica(at), shard, device }
        })
    };
    let places = plan.first_stages().iter().enumerate().flat_map(of);
    places.zip(0..).map(|(place, rank)| RankPlace { rank, ..place }).collect()
}
