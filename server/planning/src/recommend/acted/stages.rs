//! The stages that memory actions are chosen for.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::objective::{Objective, PlanShape, SearchMode};
use loadmaster_proto::training::RecomputePolicy;

use crate::cost::Market;

use crate::predict::MOST_BYTES;
use crate::recommend::answer::{RecommendError, recommend};
use crate::recommend::ask::Wish;
use crate::recommend::find::{Candidate, CandidateStage, Job};
use crate::search::{Fleet, Stop};

/// How many tenths of their memory devices are taken to have.
const SIZES: [u64; 6] = [40, 25, 18, 14, 12, 10];

/// Stages as they are without any action, whether they fit or not.
#[derive(Debug)]
pub(in crate::recommend) struct Stages {
    pub(super) candidates: Vec<Candidate>,
    /// What no plan is faster than that was looked at; none where it is the stages' own untouched iteration.
    pub(super) bound: Option<f64>,
    /// Whether the search for them was stopped.
    pub(super) stopped: bool,
    /// States that were weighed for them.
    pub(super) states: u64,
}

impl Stages {
    /// Those that a request names.
    pub(in crate::recommend) fn named(untouched: Candidate) -> Self {
        Self { candidates: vec![untouched], bound: None, stopped: false, states: 0 }
    }

    /// Those of the fastest pipelines, one device for each stage: if memory did not matter, and if devices had a few times the
    /// memory that they have, so that actions have less and less to do. Memory actions only add to what stages do, so the
    /// bound of the first is one of every pipeline with any actions.
    ///
    /// # Errors
    /// There is no such pipeline.
    pub(in crate::recommend) fn fastest<M: Market>(
        market: &M,
        job: &Job<'_>,
        wish: &Wish,
        stop: &Stop,
    ) -> Result<Self, RecommendError> {
        let wish = Wish {
            objective: Objective::MinIterationTime,
            shape: PlanShape::SinglePipeline,
            mode: SearchMode::Exact,
            recompute: vec![RecomputePolicy::None],
            alternatives: 0,
            brief: true,
            ..wish.clone()
        };
        let sized = |of: &dyn Fn(u64) -> u64| {
            let mut fleet: Fleet = job.fleet.clone();
            for kind in &mut fleet.kinds {
                kind.capacity = Bytes(of(kind.capacity.0).min(MOST_BYTES));
            }
            recommend(market, &Job { fleet: &fleet, ..*job }, &wish, stop)
        };
        let found = sized(&|_| MOST_BYTES)?;
        let certificate = found.certificate;
        // What is best with much memory is best with less, too, as long as it fits.
        let mut best = found.best.clone();
        let mut stages = Self {
            candidates: vec![found.best],
            bound: certificate.bound,
            stopped: certificate.stopped,
            states: certificate.states,
        };
        for tenths in SIZES {
            if stop.is_requested() {
                break;
            }
            let has_room = |stage: &CandidateStage| {
                let capacity = job.fleet.capacity(stage.kinds).0.saturating_mul(tenths) / 10;
                stage.peak.needed <= capacity.min(MOST_BYTES)
            };
            if best.stages.iter().all(has_room) {
                continue;
            }
            let Ok(found) = sized(&|bytes| bytes.saturating_mul(tenths) / 10) else { continue };
            stages.states = stages.states.saturating_add(found.certificate.states);
            let is_known = |known: &Candidate| {
                let cuts = |of: &Candidate| of.stages.iter().map(|of| of.last).collect::<Vec<_>>();
                (cuts(known), known.schedule, known.batch)
                    == (cuts(&found.best), found.best.schedule, found.best.batch)
            };
            if !stages.candidates.iter().any(is_known) {
                stages.candidates.push(found.best.clone());
            }
            best = found.best;
        }
        for stage in stages.candidates.iter_mut().flat_map(|of| &mut of.stages) {
            stage.capacity = job.fleet.capacity(stage.kinds);
        }
        Ok(stages)
    }
}
