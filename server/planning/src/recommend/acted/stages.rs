//! The stages that memory actions are chosen for.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::objective::{Objective, PlanShape, SearchMode};
use loadmaster_proto::training::RecomputePolicy;

use crate::cost::Market;

use crate::predict::MOST_BYTES;
use crate::recommend::answer::{RecommendError, recommend};
use crate::recommend::ask::Wish;
use crate::recommend::find::{Candidate, Job};
use crate::search::{Fleet, Stop};

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

    /// Those of the fastest pipeline on all devices, one for each stage, if memory did not matter. Memory actions only add
    /// to what stages do, so its bound is one of every pipeline with any actions.
    ///
    /// # Errors
    /// There is no such pipeline.
    pub(in crate::recommend) fn fastest<M: Market>(
        market: &M,
        job: &Job<'_>,
        wish: &Wish,
        stop: &Stop,
    ) -> Result<Self, RecommendError> {
        let mut roomy: Fleet = job.fleet.clone();
        for kind in &mut roomy.kinds {
            kind.capacity = Bytes(MOST_BYTES);
        }
        let wish = Wish {
            objective: Objective::MinIterationTime,
            shape: PlanShape::SinglePipeline,
            mode: SearchMode::Exact,
            recompute: vec![RecomputePolicy::None],
            alternatives: 0,
            brief: true,
            ..wish.clone()
        };
        let found = recommend(market, &Job { fleet: &roomy, ..*job }, &wish, stop)?;
        let mut untouched = found.best;
        for stage in &mut untouched.stages {
            stage.capacity = job.fleet.capacity(stage.kinds);
        }
        let certificate = found.certificate;
        Ok(Self {
            candidates: vec![untouched],
            bound: certificate.bound,
            stopped: certificate.stopped,
            states: certificate.states,
        })
    }
}
