//! How long as many micro-batches take in the long run of PipeDream whose stages compute layers again.

use super::seconds::{Timed, mean_backward};
use crate::iteration::copies::{Copied, DeviceTimes};
use crate::iteration::{Edge, Order, Pipeline, iteration_seconds};
use crate::predict::ActedStages;
use crate::recommend::find::Candidate;
use crate::recommend::plan::Writer;
use crate::search::Seconds;

impl Writer<'_> {
    /// By its closed form: nothing is copied. None without times.
    pub(super) fn endless(&self, candidate: &Candidate, stages: &ActedStages) -> Option<Timed> {
        let mut seconds: Vec<Seconds> = Vec::with_capacity(candidate.stages.len());
        for (stage, acted) in candidate.stages.iter().zip(&stages.acted) {
            let (layers, _) = self.layers(candidate, stage)?;
            let backward = mean_backward(acted, stage.first, &layers);
            seconds.push(Seconds { backward, ..stage.seconds? });
        }
        let edges: Vec<Edge> = candidate.edges.iter().map(|&both| Edge::halves(both)).collect();
        let micro_batches = candidate.batch.micro_batches;
        let (order, overlap) = (Order::PipeDream, candidate.overlap);
        let pipeline = Pipeline { stages: &seconds, edges: &edges, micro_batches, order, overlap };
        let work = |of: &Seconds| f64::from(micro_batches) * (of.passes() + of.step);
        // Where all share cores, no slower than all of it at once.
        let on_cores =
            self.cores_of_all(candidate).map(|cores| seconds.iter().map(work).sum::<f64>() / cores.slots);
        let iteration = iteration_seconds(&pipeline).ok()?.max(on_cores.unwrap_or(0.0));
        let busy = |of: &Seconds| DeviceTimes {
            end: iteration,
            busy: f64::from(micro_batches) * (of.passes() + of.step),
            ..DeviceTimes::default()
        };
        let devices = seconds.iter().map(busy).collect();
        let copied = Copied {
            iteration_seconds: iteration,
            iterations: 1,
            is_steady: true,
            devices,
            ..Copied::default()
        };
        let backward = seconds.iter().map(|of| of.backward).collect();
        Some(Timed { copied, edges, backward, copy_rates: None, rates: String::new() })
    }
}
