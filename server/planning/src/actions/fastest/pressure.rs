//! What each stage must do at least, and the seconds that follow.

use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::actions::Block;

use super::bound::{self, Bound, Pressure};
use super::chain::Chain;
use super::recipe::Stage;
use crate::actions::Question;
use crate::iteration::Order;
use crate::iteration::copies::LayerSeconds;
use crate::search::Seconds;

/// Seconds that nothing which takes at most `most` gets below; none where there is no such thing. `needs` are as for
/// [`super::plan`].
pub(super) fn bound(
    question: &Question<'_>,
    stages: &[Stage<'_>],
    needs: Option<&[i128]>,
    most: f64,
) -> Option<Bound> {
    let of_stage = |stage: &Stage<'_>| {
        let sum =
            |of: fn(&LayerSeconds) -> f64| stage.blocks.layers.iter().map(|layer| of(&layer.seconds)).sum();
        Seconds { forward: sum(|of| of.forward), backward: sum(|of| of.backward), step: sum(|of| of.update) }
    };
    let edge = |(stage, &bytes): (usize, &u64)| question.node.edge(stage, stage + 1, bytes);
    let edges = question.edge_bytes.iter().enumerate().map(edge).collect();
    let seconds = stages.iter().map(of_stage).collect();
    let schedule = if question.order == Order::Gpipe { Schedule::Gpipe } else { Schedule::OneFOneB };
    let chain = Chain::new(schedule, seconds, edges, question.overlap, question.micro_batches);
    let pressures: Vec<Pressure> = stages
        .iter()
        .map(|stage| {
            let missing = i128::from(stage.untouched.device) - i128::from(stage.room);
            let need = needs.and_then(|needs| needs.get(stage.index).copied()).unwrap_or(missing);
            pressure(question, stage, need, most)
        })
        .collect();
    bound::bound(&chain, &pressures, question.allowed.peers, question.stop)
}

fn pressure(question: &Question<'_>, stage: &Stage<'_>, need: i128, most: f64) -> Pressure {
    let sum = |block: Block| {
        let is_allowed = question.blocks.contains(&block);
        if is_allowed {
            stage.blocks.layers.iter().map(|layer| layer.bytes(block)).sum::<u64>() as f64
        } else {
            0.0
        }
    };
    let sums = |blocks: &[Block]| blocks.iter().copied().map(sum).sum::<f64>();
    let lasting = sums(&[Block::Weights, Block::Gradients, Block::Optimizer]);
    let of_micro_batch = sums(&[Block::Activations, Block::Inputs]);
    let moved = question.node.host.get(stage.index).map_or(0.0, |link| link.bytes_per_second * most);
    // What lasts leaves once in an iteration, and what a slot keeps as often as it has micro-batches.
    let times = stage.micro_batches.iter().copied().min().unwrap_or(1).max(1);
    let of_lasting = lasting.min(moved);
    let of_slots =
        (of_micro_batch * stage.micro_batches.len() as f64).min((moved - of_lasting) / f64::from(times));
    let host = if question.allowed.host {
        (of_lasting + of_slots).min(question.node.host_bytes as f64)
    } else {
        0.0
    };
    let again = |layer: &crate::actions::LayerBlocks| (layer.activations as f64, layer.seconds.again);
    let layers = if question.allowed.recompute { stage.blocks.layers.as_slice() } else { &[] };
    Pressure {
        need: need as f64,
        host,
        again: layers.iter().map(again).collect(),
        oldest: if question.order == Order::Gpipe { stage.micro_batches.len() - 1 } else { 0 },
    }
}
