//! A run that somebody measured, and what is predicted of it.

use anyhow::{Context, Result};
use loadmaster::planning::predictor::{Margin, Predictor, Share};
use loadmaster::planning::pricing::{Pricing, Terms};
use loadmaster::planning::search::{Choice, KindSet, Link, LinkOrigin, Seconds, StageAt, StageCosts};
use loadmaster::planning::simulate::{Order, Overlap, Pipeline, iteration_seconds};
use loadmaster::planning::time::{Edge, iteration};
use loadmaster_proto::training::{RecomputePolicy, TrainingSpec};

/// A measured run.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) name: String,
    /// The job and its devices: runs of one group are choices for the same thing.
    pub(super) group: String,
    /// Its degrees.
    pub(super) kind: String,
    /// Seconds of an iteration.
    pub(super) measured: f64,
    pub(super) predicted: Predicted,
}

/// Seconds of an iteration, predicted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Predicted {
    /// As the frameworks run: transfers occupy both ends.
    pub(super) simulated: f64,
    /// If transfers overlapped computing.
    pub(super) overlapped: f64,
    /// AMP, eq. 5.
    pub(super) formula: f64,
    /// The same without any communication, but for what the layers' times contain.
    pub(super) silent: f64,
}

/// How a run was made.
#[derive(Debug)]
pub(super) struct Plan {
    /// First and last layer of each stage.
    pub(super) stages: Vec<(usize, usize)>,
    pub(super) data: u32,
    pub(super) tensor: u32,
    /// 1F1B; the micro-batch size is that of one replica.
    pub(super) training: TrainingSpec,
    /// Bytes per second between replicas and between stages.
    pub(super) bytes_per_second: f64,
}

/// Predicts a plan as a search would.
///
/// # Errors
/// The table does not reach it.
pub(super) fn predict(predictor: &(dyn Predictor + Sync), plan: &Plan) -> Result<Predicted> {
    let choice = Choice { data: plan.data, tensor: plan.tensor, recompute: RecomputePolicy::None };
    let training = plan.training.with_micro_batch_size(plan.training.micro_batch_size * plan.data);
    let link =
        Link { bytes_per_second: plan.bytes_per_second, latency_seconds: 0.0, origin: LinkOrigin::Assumed };
    let terms =
        Terms { training, choices: &[choice], links: &[link], margin: Margin::default(), model: None };
    let pricing = Pricing::new(&[predictor], terms);
    let at = |&(first, last): &(usize, usize)| StageAt {
        first,
        last,
        choice: 0,
        kinds: KindSet::one(0),
        tensor_link: 0,
        data_link: 0,
        tensor_rings: 1,
        data_rings: 1,
    };
    let stages = plan.stages.iter().map(|stage| {
        let stage = at(stage);
        pricing.seconds(&stage).with_context(|| pricing.why_not(&stage, 1).unwrap_or_default())
    });
    let stages = stages.collect::<Result<Vec<Seconds>>>()?;
    let between = plan.stages.iter().take(stages.len() - 1);
    let edges: Vec<Edge> = between.map(|&(_, last)| Edge::halves(pricing.cut_seconds(last, 0, 0))).collect();
    let pipeline = Pipeline {
        stages: &stages,
        edges: &edges,
        micro_batches: training.micro_batches,
        order: Order::OneFOneB,
        overlap: Overlap::Nothing,
    };
    let silent = plan.stages.iter().zip(&stages).map(|(&stage, &seconds)| {
        let step = updates(predictor, plan, stage).unwrap_or(seconds.step);
        Seconds { step, ..seconds }
    });
    let silent: Vec<Seconds> = silent.collect();
    Ok(Predicted {
        simulated: iteration_seconds(&pipeline)?,
        overlapped: iteration_seconds(&Pipeline { overlap: Overlap::Computing, ..pipeline })?,
        formula: iteration(&stages, &edges, training.micro_batches),
        silent: iteration(&silent, &[], training.micro_batches),
    })
}

/// Seconds of a stage's updates without synchronisation.
fn updates(predictor: &(dyn Predictor + Sync), plan: &Plan, (first, last): (usize, usize)) -> Option<f64> {
    let share = Share { micro_batch_size: plan.training.micro_batch_size, tensor_degree: plan.tensor };
    let costs = predictor.layer_costs(share);
    costs.get(first..=last)?.iter().map(|cost| Some(cost.as_ref()?.seconds.step)).sum()
}
