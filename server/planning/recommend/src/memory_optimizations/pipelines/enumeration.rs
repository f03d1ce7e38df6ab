//! Every pipeline on the devices of a subproblem, where they are few enough to be listed.

use loadmaster_proto::plan::objective::PlanShape;
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::stage::{Partitioning, StageConfig};

use super::ActionsQuestion;
use super::subproblem::named_by;
use crate::fixed_partition::untouched;
use crate::objectives::Subproblem;
use crate::problem::{Criteria, Variant, variants};
use crate::result::RecommendError;
use crate::search::{Candidate, Job};
use loadmaster_search::Cuts;
use loadmaster_search::fleet::Subset;

/// Most pipelines that are listed.
const MOST_LISTED: usize = 300;
/// Most stages that are looked at for them.
const MOST_LOOKS: usize = 100_000;

/// Pipelines as they are untouched.
pub(super) struct Every {
    pub(super) candidates: Vec<Candidate>,
    /// Whether every one is listed that a plan within the subproblem may be.
    pub(super) is_complete: bool,
}

impl Every {
    const UNKNOWN: Self = Self { candidates: Vec::new(), is_complete: false };

    /// Every pipeline, whatever memory it takes.
    pub(super) fn of(question: &ActionsQuestion<'_>, subproblem: &Subproblem) -> Self {
        let ActionsQuestion { criteria, job, .. } = question;
        if let Some(given) = question.given {
            let asked = Criteria { batches: subproblem.batches.clone(), ..(*criteria).clone() };
            let one = untouched(question.builder.prices, job, &asked, given);
            return one.map_or(Self::UNKNOWN, |one| Self { candidates: vec![one], is_complete: true });
        }
        // Of devices that are all alike it does not matter which ones are taken in which order.
        let fleet = &subproblem.devices.fleet;
        let Ok(cuts) = criteria.cuts_for(job.model) else { return Self::UNKNOWN };
        if fleet.nodes.len() != 1 {
            return Self::UNKNOWN;
        }
        let criteria = Criteria {
            batches: subproblem.batches.clone(),
            recompute: vec![RecomputePolicy::None],
            ..(*criteria).clone()
        };
        let (layers, devices) = (job.names.len(), subproblem.devices.devices());
        let least = if subproblem.may_idle { 1 } else { devices };
        let is_single = criteria.shape == PlanShape::SinglePipeline;
        let devices =
            if is_single { devices.min(u32::try_from(layers).unwrap_or(u32::MAX)) } else { devices };
        if devices.saturating_sub(least) as usize > MOST_LISTED {
            return Self::UNKNOWN;
        }
        let (mut listed, mut count, mut looks) = (Vec::new(), 0, MOST_LOOKS);
        for taken in least..=devices {
            let subset = Subset::of(fleet, &[taken], &[]);
            for variant in variants(&criteria, &subset, layers) {
                let mut list = List { cuts: &cuts, variant: &variant, layers, all: Vec::new(), looks };
                list.extend(taken, &mut Vec::new());
                let List { all, looks: left, .. } = list;
                (count, looks) = (count + all.len(), left);
                if count > MOST_LISTED || looks == 0 {
                    return Self::UNKNOWN;
                }
                listed.push((subset.clone(), variant, all));
            }
        }
        let mut every = Self { candidates: Vec::new(), is_complete: true };
        for (subset, variant, stages) in listed {
            let one = Criteria {
                batches: vec![variant.batch],
                schedules: vec![variant.schedule],
                ..criteria.clone()
            };
            let job = Job { fleet: &subset.fleet, ..**job };
            for stages in stages {
                let is_alone = stages.iter().all(|stage| stage.devices() == 1);
                let Ok(of) = Partitioning::new(stages) else { continue };
                let mut candidate = match untouched(question.builder.prices, &job, &one, &of) {
                    Ok(candidate) => candidate,
                    // Degrees that the profile knows nothing of are no plan's.
                    Err(RecommendError::Unpredictable(_)) if !is_alone => continue,
                    Err(_) => {
                        every.is_complete = false;
                        continue;
                    }
                };
                for stage in &mut candidate.stages {
                    let devices = named_by(&subset, &stage.devices);
                    stage.devices = named_by(&subproblem.devices, &devices);
                }
                every.candidates.push(candidate);
            }
        }
        every
    }
}

/// Pipelines of a variant, as far as they are few.
struct List<'a> {
    cuts: &'a Cuts,
    variant: &'a Variant,
    layers: usize,
    all: Vec<Vec<StageConfig>>,
    /// How many stages may still be looked at.
    looks: usize,
}

impl List<'_> {
    /// Lists those that go on behind these stages with so many devices.
    fn extend(&mut self, devices: u32, stages: &mut Vec<StageConfig>) {
        let variant = self.variant;
        let first = stages.last().map_or(0, |stage| stage.last_layer + 1);
        if first == self.layers {
            if variant.stages.contains(&stages.len()) {
                self.all.push(stages.clone());
            }
            return;
        }
        let largest = variant.choices.iter().map(|choice| choice.devices()).max().unwrap_or(0);
        for last in (first..self.layers).filter(|&last| self.cuts.may_be_stage(first, last)) {
            let to_come = self.layers - last - 1;
            for choice in &variant.choices {
                let Some(left) = devices.checked_sub(choice.devices()) else { continue };
                // Each stage to come has a layer and a device.
                let may_end = (left == 0) == (to_come == 0) && left as usize <= to_come * largest as usize;
                let is_over = self.all.len() > MOST_LISTED || self.looks == 0;
                if is_over || !may_end || stages.len() >= *variant.stages.end() {
                    continue;
                }
                self.looks -= 1;
                let (data_degree, tensor_degree) = (choice.data, choice.tensor);
                stages.push(StageConfig { first_layer: first, last_layer: last, data_degree, tensor_degree });
                self.extend(left, stages);
                stages.pop();
            }
        }
    }
}
