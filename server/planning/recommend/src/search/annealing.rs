//! AMP's search mode with simulated annealing over placements: strategies and tilings are drawn, layers assigned
//! by AMP's own program.

use super::candidate::Candidate;
use super::inquiry::Inquiry;
use super::solve::Solved;
use crate::problem::Variant;
use loadmaster_search::cost::Market;
use loadmaster_search::paper::{Annealing, Recursion, Strategy, annealing, pipe_ast};
use loadmaster_search::time::Time;
use loadmaster_search::{Assignment, Places, Spanning};
use loadmaster_simulate::Overlap;

/// The best plan of uniform grids that annealing comes by; nothing is proven of it.
pub(super) fn anneal<M: Market>(inquiry: Inquiry<'_, M>, variants: &[Variant]) -> Solved {
    let mut strategies: Vec<Strategy> = Vec::new();
    for strategy in variants.iter().filter_map(strategy) {
        if !strategies.contains(&strategy) {
            strategies.push(strategy);
        }
    }
    let settings = Annealing { seed: inquiry.criteria.seed, ..Annealing::default() };
    let estimate = |wanted: &Strategy, places: &Places| {
        let ranks = (0..places.last()).flat_map(|from| places.devices(from, 0).iter().cloned().flatten());
        if !keeps_spanning(inquiry, places) || !inquiry.criteria.may_start_on(inquiry.fleet(), ranks) {
            return None;
        }
        best_on(inquiry, variants, wanted, places).map(|(plan, _)| plan)
    };
    let (found, searched) = annealing(inquiry.fleet(), &strategies, settings, &inquiry.effort.stop, estimate);
    let best = found.and_then(|found| {
        let (_, candidate) = best_on(inquiry, variants, &found.strategy, &found.places)?;
        candidate.map(|candidate| Candidate { overlap: inquiry.criteria.overlap, ..candidate })
    });
    Solved { best, bound: None, states: searched.states, ended: searched.ended }
}

/// Whether no stage takes devices of more nodes than the criteria allow. A tiling need not take the nodes one after another,
/// so that exact searches, which do, bound nothing here.
fn keeps_spanning<M: Market>(inquiry: Inquiry<'_, M>, places: &Places) -> bool {
    let fleet = inquiry.fleet();
    let (spanning, begins) = (inquiry.criteria.spanning_on(fleet), fleet.begins());
    let node = |device: u32| begins.partition_point(|&begin| begin <= device);
    (0..places.count()).all(|from| {
        let from = u32::try_from(from).unwrap_or(u32::MAX);
        (0..places.steps(from).len()).all(|step| {
            let devices: Vec<u32> = places.devices(from, step).iter().cloned().flatten().collect();
            let mut nodes: Vec<usize> = devices.iter().map(|&device| node(device)).collect();
            nodes.sort_unstable();
            nodes.dedup();
            let is_whole = |&node: &usize| {
                let of = node.checked_sub(1).and_then(|index| fleet.nodes.get(index));
                let own = devices
                    .iter()
                    .filter(|&&device| begins.partition_point(|&begin| begin <= device) == node);
                of.is_some_and(|of| of.devices == of.whole && own.count() == of.devices as usize)
            };
            match spanning {
                Spanning::Never => nodes.len() < 2,
                Spanning::WholeNodes => nodes.len() < 2 || nodes.iter().all(is_whole),
                Spanning::Anywhere => true,
            }
        })
    })
}

/// What a variant of one way to run all stages is to AMP.
fn strategy(variant: &Variant) -> Option<Strategy> {
    let choice = variant.choices.first()?;
    Some(Strategy { data: choice.data, tensor: choice.tensor, micro_batch: variant.batch.micro_batch_size })
}

/// The best assignment of layers on given places, over the schedules and recompute policies of a strategy.
fn best_on<M: Market>(
    inquiry: Inquiry<'_, M>,
    variants: &[Variant],
    wanted: &Strategy,
    places: &Places,
) -> Option<(Assignment<Time>, Option<Candidate>)> {
    let of_strategy = variants.iter().filter(|variant| strategy(variant).as_ref() == Some(wanted));
    let assigned = of_strategy.filter_map(|variant| {
        let costs = inquiry.market.costs(variant.schedule, variant.batch, &variant.choices, places.links());
        let choices: Vec<usize> = (0..variant.choices.len()).collect();
        let question = variant.question(&costs, (inquiry.fleet(), places), &choices, inquiry.cuts);
        let best = pipe_ast(&question, Recursion::Equation, &inquiry.effort.stop).best?;
        let candidate =
            Candidate::of(&question, &best.stages, variant.batch, Overlap::default(), inquiry.subset);
        Some((best, candidate))
    });
    assigned.min_by(|(one, _), (other, _)| one.value.0.total_cmp(&other.value.0))
}
