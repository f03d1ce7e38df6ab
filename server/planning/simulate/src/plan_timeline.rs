//! A plan's iteration under its own schedule or another one.

use loadmaster_proto::plan::Plan;
use loadmaster_proto::training::Schedule;
use loadmaster_proto::warning::{Warning, WarningCode};

use super::order::Order;
use super::pipeline::{Pipeline, SimulateError, Simulated};
use super::simulate::simulate;
use super::{Edge, Overlap};
use crate::Seconds;

/// What a timeline of stages with memory optimizations lacks, human-readable.
pub const NO_COPIES: &str = "the timeline does not contain copies of memory optimizations, waits for these copies, or \
    waits for shared CPU cores. The iteration time of the plan contains all three";

/// The order of the passes that is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskedOrder {
    /// The plan's own.
    Own,
    /// All forward passes first.
    Gpipe,
    /// One forward, one backward.
    OneFOneB,
    /// The same over so many chunks of every device.
    Interleaved {
        /// Chunks per device.
        chunks: u32,
    },
    /// Without a flush.
    PipeDream,
}

impl AskedOrder {
    /// The plan's own where that is what is named: the plan says more of it than its passes.
    #[must_use]
    pub fn or_own(self, plan: &Plan) -> Self {
        let is_own = match self {
            Self::Own => true,
            Self::Gpipe => plan.training.schedule == Schedule::Gpipe,
            Self::OneFOneB => plan.training.schedule == Schedule::OneFOneB,
            Self::PipeDream => plan.training.schedule == Schedule::PipeDream,
            Self::Interleaved { .. } => false,
        };
        if is_own && !plan.is_interleaved() { Self::Own } else { self }
    }
}

/// A plan's iteration.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanTimeline {
    /// Who passes what when.
    pub order: Order,
    /// Whether transfers overlap computing.
    pub overlap: Overlap,
    /// What happens.
    pub simulated: Simulated,
    /// What it does not say of the plan, human-readable.
    pub warnings: Vec<Warning>,
}

/// Simulates a plan; none where its profile has no times. Transfers do what the plan predicted unless `overlap` says
/// otherwise.
///
/// # Errors
/// What the order cannot do with these stages and micro-batches.
pub fn timeline(
    plan: &Plan,
    asked: AskedOrder,
    overlap: Option<Overlap>,
) -> Result<Option<PlanTimeline>, SimulateError> {
    let Some((mut stages, mut edges)) = pipeline_of(plan) else { return Ok(None) };
    let own = own_order(plan);
    if plan.is_interleaved() {
        let same = AskedOrder::Interleaved { chunks: plan.virtual_stages };
        if asked != AskedOrder::Own && asked != same {
            return Err(SimulateError::OnlyInterleaved { virtual_stages: plan.virtual_stages });
        }
    }
    let asked = if plan.is_interleaved() { AskedOrder::Own } else { asked };
    let devices = u32::try_from(stages.len()).unwrap_or(u32::MAX);
    let order = match asked {
        AskedOrder::Own => own,
        AskedOrder::Gpipe => Order::from(Schedule::Gpipe),
        AskedOrder::OneFOneB => Order::from(Schedule::OneFOneB),
        AskedOrder::Interleaved { .. } => Order::Interleaved { devices },
        AskedOrder::PipeDream => Order::PipeDream,
    };
    let predicted = plan.found.iteration.as_ref().map(|of| of.overlap);
    let overlap = overlap.or(predicted).unwrap_or_default();
    let mut warnings = Vec::new();
    if let AskedOrder::Interleaved { chunks } = asked {
        warnings.push(WarningCode::ScheduleDiffers.says(format!(
            "each device is assumed to have {chunks} virtual pipeline stages that take equal time. The stage \
             boundaries of the plan are for one stage per device"
        )));
        (stages, edges) = interleaved(&stages, &edges, chunks);
    }
    if is_stepped(plan) {
        warnings.push(WarningCode::CopiesNotSimulated.says(NO_COPIES));
    }
    if order != own {
        warnings.push(WarningCode::ScheduleDiffers.says(
            "the memory was predicted for the plan's own schedule. Another schedule may have more micro-batches in \
             flight",
        ));
    }
    let micro_batches = plan.training.micro_batches;
    let simulated = simulate(&Pipeline { stages: &stages, edges: &edges, micro_batches, order, overlap })?;
    Ok(Some(PlanTimeline { order, overlap, simulated, warnings }))
}

/// Who passes what when in a plan.
fn own_order(plan: &Plan) -> Order {
    if !plan.is_interleaved() {
        return Order::from(plan.training.schedule);
    }
    Order::Interleaved { devices: u32::try_from(plan.positions()).unwrap_or(u32::MAX) }
}

/// Whether a plan's seconds are of its steps: passes alone do not tell them.
pub fn is_stepped(plan: &Plan) -> bool {
    plan.found.copy_rates.is_some() || plan.stages.iter().any(|stage| !stage.actions.is_empty())
}

/// Whether a plan can be simulated: its profile had times.
pub fn has_times(plan: &Plan) -> bool {
    pipeline_of(plan).is_some()
}

/// Seconds of a plan's stages and edges; none where its profile has no times.
fn pipeline_of(plan: &Plan) -> Option<(Vec<Seconds>, Vec<Edge>)> {
    let stages: Option<Vec<Seconds>> = plan
        .stages
        .iter()
        .map(|stage| {
            stage.seconds.map(|of| Seconds { forward: of.forward, backward: of.backward, step: of.step })
        })
        .collect();
    let stages = stages?;
    let edges: Vec<Edge> = plan.found.edge_seconds.iter().map(|&both| Edge::halves(both)).collect();
    (edges.len() + 1 == stages.len()).then_some((stages, edges))
}

/// Chunks of equal parts of each stage's time. The edge from the last device back to the first one is taken to be
/// as slow as the slowest of the others.
fn interleaved(stages: &[Seconds], edges: &[Edge], chunks: u32) -> (Vec<Seconds>, Vec<Edge>) {
    let share = 1.0 / f64::from(chunks.max(1));
    let (mut parts, mut ways) = (Vec::new(), Vec::new());
    let back =
        edges.iter().copied().reduce(|a, b| if a.both() >= b.both() { a } else { b }).unwrap_or_default();
    for chunk in 0..chunks {
        for (index, stage) in stages.iter().enumerate() {
            parts.push(Seconds {
                forward: stage.forward * share,
                backward: stage.backward * share,
                step: stage.step * share,
            });
            let is_last = chunk + 1 == chunks && index + 1 == stages.len();
            if !is_last {
                ways.push(edges.get(index).copied().unwrap_or(back));
            }
        }
    }
    (parts, ways)
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::training::schedule::Pass;

    use super::*;

    /// Interleaved, a device has at most what its chunks hold at the same moment: as many as go forward before the
    /// first one comes back. Its chunks are full one after another; added up, that would be 12, 12, 10 and 6.
    #[test]
    fn a_device_of_chunks_holds_what_they_hold_at_once() {
        let stage = Seconds { forward: 1.0, backward: 2.0, step: 0.0 };
        let (devices, micro_batches) = (4, 8);
        let (stages, edges) = interleaved(&[stage; 4], &[Edge::default(); 3], 2);
        let order = Order::Interleaved { devices };
        let overlap = Overlap::Computing;
        let pipeline = Pipeline { stages: &stages, edges: &edges, micro_batches, order, overlap };
        let simulated = simulate(&pipeline).unwrap();
        assert_eq!(simulated.at_once, [11, 9, 7, 5]);
        let open = simulated.lanes[0].passes.iter().scan(0, |open, timed| {
            *open += if matches!(timed.pass, Pass::Forward(_)) { 1 } else { -1 };
            Some(*open)
        });
        assert_eq!(open.max(), Some(11));
    }
}
