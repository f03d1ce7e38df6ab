//! The stages that memory optimizations are chosen for.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::constraints::Constraints;
use loadmaster_proto::plan::objective::{Objective, PlanShape, SearchMode};
use loadmaster_proto::training::RecomputePolicy;

use loadmaster_search::cost::Market;

use crate::problem::Criteria;
use crate::result::{RecommendError, Recommendation, recommend};
use crate::search::{Candidate, CandidateStage, Job};
use loadmaster_predict::MOST_BYTES;
use loadmaster_search::{Fleet, Stop};

/// How many tenths of their memory devices are taken to have.
const SIZES: [u64; 6] = [40, 25, 18, 14, 12, 10];
/// The same for pipelines with more stages than the fastest has; first as if memory did not matter.
const OF_DEPTHS: [u64; 4] = [u64::MAX, 40, 18, 10];
/// After how many states that were weighed for them no more of them are looked for.
const MOST_STATES: u64 = 300_000;

/// Stages as they are without any action, whether they fit or not.
#[derive(Debug)]
pub(crate) struct Stages {
    pub(super) candidates: Vec<Candidate>,
    /// Some of them once more, on each other's devices.
    pub(super) mapped: Vec<Candidate>,
    /// What no plan is faster than that was looked at; none where it is the stages' own untouched iteration.
    pub(super) bound: Option<f64>,
    /// Whether the search for them was stopped.
    pub(super) stopped: bool,
    /// States that were weighed for them.
    pub(super) states: u64,
}

impl Stages {
    /// Those that a request names.
    pub(crate) fn named(untouched: Candidate) -> Self {
        Self { candidates: vec![untouched], mapped: Vec::new(), bound: None, stopped: false, states: 0 }
    }

    /// Those of the fastest pipelines of the criteria's shape: if memory did not matter, and if devices had a few times the
    /// memory that they have, so that actions have less and less to do. Memory optimizations only add to what stages do, so the
    /// bound of the first is one of every pipeline of the shape with any actions.
    ///
    /// # Errors
    /// There is no such pipeline.
    pub(crate) fn fastest<M: Market>(
        market: &M,
        job: &Job<'_>,
        criteria: &Criteria,
        stop: &Stop,
    ) -> Result<Self, RecommendError> {
        let criteria = Criteria {
            objective: Objective::MinIterationTime,
            mode: SearchMode::Exact,
            recompute: vec![RecomputePolicy::None],
            alternatives: 0,
            brief: true,
            efforts: 1,
            ..criteria.clone()
        };
        let sized = |criteria: &Criteria, of: &dyn Fn(u64) -> u64| {
            let mut fleet: Fleet = job.fleet.clone();
            for kind in &mut fleet.kinds {
                kind.capacity = Bytes(of(kind.capacity.0).min(MOST_BYTES));
            }
            recommend(market, &Job { fleet: &fleet, ..*job }, criteria, stop)
        };
        let found = sized(&criteria, &|_| MOST_BYTES)?;
        let certificate = found.certificate;
        // What is best with much memory is best with less, too, as long as it fits.
        let mut best = found.best.clone();
        let mut stages = Self {
            candidates: vec![found.best],
            mapped: Vec::new(),
            bound: certificate.bound,
            stopped: certificate.stopped,
            states: certificate.states,
        };
        let with = |bytes: u64, tenths: u64| bytes.saturating_mul(tenths) / 10;
        for tenths in SIZES {
            let has_room = |stage: &CandidateStage| {
                let capacity = with(job.fleet.capacity(stage.kinds).0, tenths);
                stage.peak.needed <= capacity.min(MOST_BYTES)
            };
            if best.stages.iter().all(has_room) {
                continue;
            }
            if let Some(found) = stages.try_one(|| sized(&criteria, &|bytes| with(bytes, tenths)), stop) {
                best = found;
            }
        }
        if criteria.shape != PlanShape::SinglePipeline {
            stages.deeper(market.layers().min(job.fleet.devices() as usize), &criteria, &sized, stop);
        }
        for stage in stages.candidates.iter_mut().flat_map(|of| &mut of.stages) {
            stage.capacity = job.fleet.capacity(stage.kinds);
        }
        Ok(stages)
    }

    /// Where stages may have several devices: single pipelines, and deeper ones of the shape, which leave actions less to do.
    fn deeper(
        &mut self,
        most: usize,
        criteria: &Criteria,
        sized: &impl Fn(&Criteria, &dyn Fn(u64) -> u64) -> Result<Recommendation, RecommendError>,
        stop: &Stop,
    ) {
        let with = |bytes: u64, tenths: u64| bytes.saturating_mul(tenths) / 10;
        let single = Criteria { shape: PlanShape::SinglePipeline, ..criteria.clone() };
        self.try_one(|| sized(&single, &|_| MOST_BYTES), stop);
        for tenths in SIZES {
            self.try_one(|| sized(&single, &|bytes| with(bytes, tenths)), stop);
        }
        let most_states = self.states.saturating_add(MOST_STATES);
        for power in 1..=most.max(1).ilog2() {
            let deep = deep(criteria, 1 << power);
            for tenths in OF_DEPTHS {
                if self.states < most_states {
                    self.try_one(|| sized(&deep, &|bytes| with(bytes, tenths)), stop);
                }
            }
        }
    }

    /// One more, if there is one, which is kept if it is another one.
    fn try_one(
        &mut self,
        find: impl FnOnce() -> Result<Recommendation, RecommendError>,
        stop: &Stop,
    ) -> Option<Candidate> {
        if stop.is_requested() {
            return None;
        }
        let found = find().ok()?;
        self.states = self.states.saturating_add(found.certificate.states);
        if !self.candidates.iter().any(|known| known.is_same(&found.best)) {
            self.candidates.push(found.best.clone());
        }
        Some(found.best)
    }
}

/// The same criteria, of pipelines with no fewer stages.
fn deep(criteria: &Criteria, stages: usize) -> Criteria {
    let least = criteria.constraints.min_stages.unwrap_or(1).max(stages);
    let constraints = Constraints { min_stages: Some(least), ..criteria.constraints.clone() };
    Criteria { constraints, ..criteria.clone() }
}
