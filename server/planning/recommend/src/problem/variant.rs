//! What has to be settled before a search can be asked: batch, schedule, and who may share work how.

use std::fmt;
use std::ops::RangeInclusive;

use loadmaster_proto::plan::objective::PlanShape;
use loadmaster_proto::training::sharding::StateSharding;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{RecomputePolicy, Schedule};

use super::criteria::Criteria;
use loadmaster_search::cost::Batch;
use loadmaster_search::fleet::Subset;
use loadmaster_search::{Choice, Cuts, Fleet, Places, Question, Spanning};

/// One question to a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    /// How the samples come in.
    pub batch: Batch,
    /// Order of the passes.
    pub schedule: Schedule,
    /// The ways in which a stage may be run, in a fixed order.
    pub choices: Vec<Choice>,
    /// How many stages a plan may have.
    pub stages: RangeInclusive<usize>,
}

impl Variant {
    /// The numbers of devices that a stage may take, ascending.
    pub fn sizes(&self) -> Vec<u32> {
        let mut sizes: Vec<u32> = self.choices.iter().map(|choice| choice.devices()).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The question to a search on these places of a fleet, for plans that fit its devices.
    pub(crate) fn question<'q, C>(
        &self,
        costs: &'q C,
        (fleet, places): (&'q Fleet, &'q Places),
        choices: &'q [usize],
        cuts: &'q Cuts,
    ) -> Question<'q, C> {
        let (schedule, micro_batches, stages) =
            (self.schedule, self.batch.micro_batches, self.stages.clone());
        Question {
            costs,
            fleet,
            places,
            choices,
            schedule,
            micro_batches,
            stages,
            cuts,
            within_capacity: true,
        }
    }
}

/// Human-readable: `micro-batch 8 × 4, 1f1b, data2×tensor4`.
impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "micro-batch {}, {}", self.batch, self.schedule)?;
        match self.choices.as_slice() {
            [only] => write!(f, ", {only}"),
            choices => write!(f, ", {} combinations of layout options", choices.len()),
        }
    }
}

/// Everything that has to be asked for criteria on these devices; no plan of the shape is in none of them.
pub fn variants(criteria: &Criteria, subset: &Subset, layers: usize) -> Vec<Variant> {
    let mut variants = Vec::new();
    let policies: Vec<Vec<RecomputePolicy>> = if criteria.constraints.recompute_per_stage {
        vec![criteria.recompute.clone()]
    } else {
        criteria.recompute.iter().map(|&policy| vec![policy]).collect()
    };
    for &batch in &criteria.batches {
        for &schedule in &criteria.schedules {
            for policies in &policies {
                for (degrees, stages) in degrees(criteria, subset, batch, layers) {
                    for sharding in shardings(criteria, &degrees) {
                        let choices = choices(criteria, &degrees, policies, &[sharding]);
                        variants.push(Variant { batch, schedule, choices, stages: stages.clone() });
                    }
                }
            }
        }
    }
    variants
}

/// The state shardings that stages of these degrees may have: one entry where none of them has replicas.
fn shardings(criteria: &Criteria, degrees: &[(u32, u32)]) -> Vec<StateSharding> {
    match criteria.constraints.shardings.as_slice() {
        [] => vec![StateSharding::None],
        [first, ..] if degrees.iter().all(|&(data, _)| data == 1) => vec![*first],
        all => all.to_vec(),
    }
}

/// The ways to run a stage, each once.
fn choices(
    criteria: &Criteria,
    degrees: &[(u32, u32)],
    policies: &[RecomputePolicy],
    shardings: &[StateSharding],
) -> Vec<Choice> {
    let like = Choice { sequence: criteria.sequence_parallel, ..Choice::SINGLE };
    let mut choices: Vec<Choice> = Vec::new();
    for &(data, tensor) in degrees {
        for &recompute in policies {
            for &sharding in shardings {
                let choice = Choice { recompute, sharding, ..like }.resized(data, tensor);
                if choices.last() != Some(&choice) {
                    choices.push(choice);
                }
            }
        }
    }
    choices
}

/// (Data, tensor) degrees that stages of a plan may mix, and how many stages it may have.
type DegreeGroup = (Vec<(u32, u32)>, RangeInclusive<usize>);

/// The sets of (data, tensor) degrees that stages of a plan may mix, each with the number of stages.
fn degrees(criteria: &Criteria, subset: &Subset, batch: Batch, layers: usize) -> Vec<DegreeGroup> {
    let counts = criteria.stage_counts(layers);
    let devices = subset.devices();
    let all = pairs(criteria, subset, batch);
    // Stages of n devices each, where n times their number is all of them.
    let equal = |size: u32| {
        let stages = usize::try_from(devices / size.max(1)).unwrap_or(usize::MAX);
        (devices.is_multiple_of(size.max(1)) && counts.contains(&stages)).then_some(stages..=stages)
    };
    let groups: Vec<DegreeGroup> = families(criteria, &all)
        .into_iter()
        .filter_map(|degrees| {
            let is_equal = matches!(
                criteria.shape,
                PlanShape::SinglePipeline | PlanShape::UniformGrid | PlanShape::EqualDevices
            );
            let size = degrees.first().map(|&(data, tensor)| data * tensor)?;
            let stages = if is_equal { equal(size)? } else { counts.clone() };
            Some((degrees, stages))
        })
        .collect();
    groups.into_iter().filter(|(degrees, stages)| !degrees.is_empty() && !stages.is_empty()).collect()
}

/// The degrees that stages of one plan of the shape may mix, of those that a stage may have.
fn families(criteria: &Criteria, all: &[(u32, u32)]) -> Vec<Vec<(u32, u32)>> {
    match criteria.shape {
        PlanShape::SinglePipeline => vec![all.iter().copied().filter(|&degrees| degrees == (1, 1)).collect()],
        PlanShape::UniformGrid => all.iter().map(|&degrees| vec![degrees]).collect(),
        PlanShape::EqualDevices => {
            let mut sizes: Vec<u32> = all.iter().map(|&(data, tensor)| data * tensor).collect();
            sizes.sort_unstable();
            sizes.dedup();
            let of = |size: u32| all.iter().copied().filter(|&(d, t)| d * t == size).collect();
            sizes.into_iter().map(of).collect()
        }
        PlanShape::PerStageReplicas => vec![all.iter().copied().filter(|&(_, tensor)| tensor == 1).collect()],
        PlanShape::PerStageMesh => vec![all.to_vec()],
    }
}

/// Everything that has to be asked for criteria on subsets of these devices of any size: the variants, whatever number of
/// stages their degrees make.
pub(crate) fn variants_of_any_size(criteria: &Criteria, subset: &Subset, layers: usize) -> Vec<Variant> {
    let stages = criteria.stage_counts(layers);
    let mut variants = Vec::new();
    for &batch in &criteria.batches {
        for degrees in families(criteria, &pairs(criteria, subset, batch)) {
            for &schedule in &criteria.schedules {
                let shardings = shardings(criteria, &degrees);
                let choices = choices(criteria, &degrees, &criteria.recompute, &shardings);
                if !choices.is_empty() {
                    variants.push(Variant { batch, schedule, choices, stages: stages.clone() });
                }
            }
        }
    }
    variants
}

/// The (data, tensor) degrees that one stage may have: what request, framework and nodes allow. Replicas split a
/// micro-batch evenly, so that the data-parallel size divides it, and leave each device its least share.
fn pairs(criteria: &Criteria, subset: &Subset, batch: Batch) -> Vec<(u32, u32)> {
    let constraints = &criteria.constraints;
    let is_listed = |list: &[u32], degree: u32| list.is_empty() || list.contains(&degree);
    let largest = subset.fleet.nodes.iter().map(|node| node.devices).max().unwrap_or(0);
    let most = match criteria.spanning_on(&subset.fleet) {
        Spanning::Never => largest,
        Spanning::WholeNodes | Spanning::Anywhere => subset.devices(),
    };
    let tensors = (0..=StageConfig::MAX_TENSOR_DEGREE.ilog2()).map(|power| 1 << power);
    let tensors: Vec<u32> =
        tensors.filter(|&t| t <= most && is_listed(&constraints.tensor_degrees, t)).collect();
    let mut pairs = Vec::new();
    for data in divisors(u64::from(batch.micro_batch_size)) {
        let Ok(data) = u32::try_from(data) else { continue };
        if data > most.min(StageConfig::MAX_DATA_DEGREE) || !is_listed(&constraints.data_degrees, data) {
            continue;
        }
        if batch.micro_batch_size / data < criteria.least_share.min(batch.micro_batch_size) {
            break;
        }
        for &tensor in &tensors {
            let size = data.saturating_mul(tensor);
            if size <= most {
                pairs.push((data, tensor));
            }
        }
    }
    pairs
}

/// All divisors of a number, ascending.
pub fn divisors(number: u64) -> Vec<u64> {
    let mut low: Vec<u64> = Vec::new();
    let mut high: Vec<u64> = Vec::new();
    let mut candidate = 1_u64;
    while candidate.saturating_mul(candidate) <= number {
        if number.is_multiple_of(candidate) {
            low.push(candidate);
            if candidate != number / candidate {
                high.push(number / candidate);
            }
        }
        candidate += 1;
    }
    low.extend(high.into_iter().rev());
    low
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::bytes::Bytes;
    use loadmaster_proto::plan::constraints::Constraints;
    use loadmaster_proto::plan::objective::{Objective, SearchMode};

    use super::*;
    use loadmaster_search::fleet::{self, DeviceGroup};
    use loadmaster_search::{Cuts, Unit};
    use loadmaster_simulate::Overlap;

    /// The data-parallel sizes that are asked about on eight devices of a node, by micro-batch size.
    fn data_degrees(least_share: u32, sizes: &[u32]) -> Vec<(u32, Vec<u32>)> {
        let groups = [DeviceGroup { count: 8, capacity: Bytes(1 << 30), kind: "cpu".to_owned() }];
        let fleet = fleet::of_groups(&groups, None).unwrap().fleet;
        let batch =
            |&micro_batch_size: &u32| Batch { micro_batch_size, micro_batches: 64 / micro_batch_size };
        let criteria = Criteria {
            objective: Objective::MinIterationTime,
            shape: PlanShape::PerStageReplicas,
            rules: None,
            constraints: Constraints::default(),
            batches: sizes.iter().map(batch).collect(),
            least_share,
            schedules: vec![Schedule::OneFOneB],
            recompute: vec![RecomputePolicy::None],
            may_shard: false,
            sequence_parallel: false,
            overlap: Overlap::default(),
            is_merged: false,
            unit: Unit::Bytes,
            mode: SearchMode::Exact,
            seed: 0,
            cuts: Cuts::anywhere(8),
            keeps_order: true,
            alternatives: 0,
            brief: true,
            efforts: 1,
        };
        let degrees = |variant: Variant| {
            let degrees = variant.choices.iter().map(|choice| choice.data);
            (variant.batch.micro_batch_size, degrees.collect())
        };
        variants(&criteria, &Subset::whole(&fleet), 8).into_iter().map(degrees).collect()
    }

    /// Replicas leave each device no fewer samples than were profiled. Where a requested micro-batch is smaller as a whole,
    /// it stays on one device.
    #[test]
    fn replicas_leave_each_device_its_least_share() {
        assert_eq!(data_degrees(1, &[2, 8]), [(2, vec![1, 2]), (8, vec![1, 2, 4, 8])]);
        assert_eq!(data_degrees(4, &[2, 8, 32]), [(2, vec![1]), (8, vec![1, 2]), (32, vec![1, 2, 4, 8])]);
    }

    /// Every divisor once, in order.
    #[test]
    fn divisors_are_complete_and_ascending() {
        for number in 1..200_u64 {
            let expected: Vec<u64> = (1..=number).filter(|d| number.is_multiple_of(*d)).collect();
            assert_eq!(divisors(number), expected);
        }
        assert!(divisors(0).is_empty());
    }
}
