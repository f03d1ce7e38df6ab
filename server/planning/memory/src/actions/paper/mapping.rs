//! Which stage is on which device, with what is done decided.

use std::collections::HashMap;

use loadmaster_proto::cluster::{CopyLink, Link};
use loadmaster_search::fleet::mapping::{self, Promise};
use loadmaster_simulate::copies::Keep;

use super::decision::BlockId;
use super::prices::Prices;
use super::replace::{is_on_peers, to_peers};
use super::{Decision, PlanError, Question};

/// The best mapping that was found, with blocks split over the links that it has.
#[derive(Debug)]
pub(super) struct BestMapping {
    pub(super) decided: Decision,
    pub(super) seconds: f64,
    pub(super) classes: Option<usize>,
    pub(super) is_exact: bool,
}

/// The best mapping by simulated seconds, edges of the pipeline included; stages in order where none is better, or
/// where it was stopped.
pub(super) fn best(question: &Question<'_>, decided: &Decision) -> Result<Option<BestMapping>, PlanError> {
    let untouched = Decision::nothing(question, &decided.mapping);
    let ran = untouched.simulated(question, Keep { steps: true, copies: false })?;
    let prices: Vec<Prices> =
        (0..question.stages.len()).map(|stage| Prices::of(question, &untouched, &ran, stage)).collect();
    let at_least = at_least(question, decided)?;
    let traffic = PeerTraffic::of(question, decided, &prices);
    let mut known: HashMap<Vec<u64>, Option<f64>> = HashMap::new();
    let mut error = None;
    let found = mapping::best(
        &question.node.graph(),
        question.stages.len(),
        question.mappings,
        |mapping| Promise { bound: at_least, guess: traffic.seconds(question, mapping) },
        |mapping| {
            if question.stop.is_requested() {
                return None;
            }
            // Mappings with the same links where anything is sent take the same time.
            *known.entry(traffic.links(question, mapping)).or_insert_with(|| {
                let placed = placed(question, decided, &prices, mapping)?;
                match placed.seconds(question) {
                    Ok(seconds) => Some(seconds),
                    Err(failed) => {
                        error.get_or_insert(failed);
                        None
                    }
                }
            })
        },
    );
    if let Some(error) = error {
        return Err(error);
    }
    if question.stop.is_requested() {
        return Ok(None);
    }
    Ok(found.and_then(|found| {
        let decided = placed(question, decided, &prices, &found.mapping)?;
        let mapping::Found { value: seconds, classes, is_exact, .. } = found;
        // Classes know the links of devices, and not what these share.
        let is_exact = is_exact && question.node.shared.is_empty();
        Some(BestMapping { decided, seconds, classes, is_exact })
    }))
}

/// The same on other devices, where blocks that go to peers are split anew; none where something has no room.
fn placed(
    question: &Question<'_>,
    decided: &Decision,
    prices: &[Prices],
    mapping: &[usize],
) -> Option<Decision> {
    let mut placed = Decision::nothing(question, mapping);
    for (stage, optimizations) in decided.optimizations.iter().enumerate() {
        let others: Vec<_> = optimizations
            .iter()
            .filter(|(_, optimization)| !is_on_peers(optimization))
            .map(|(of, optimization)| (*of, Some(optimization.clone())))
            .collect();
        placed.set(question, stage, &others);
    }
    for (stage, optimizations) in decided.optimizations.iter().enumerate() {
        for (&of, _) in optimizations.iter().filter(|(_, optimization)| is_on_peers(optimization)) {
            let optimization = to_peers(question, &placed, prices.get(stage)?, (stage, of))?;
            placed.set(question, stage, &[(of, Some(optimization))]);
        }
    }
    placed.fits(question).then_some(placed)
}

/// Seconds that no mapping is below: what goes to peers done at once, the fastest link between any two stages and to any host, and
/// nothing shared.
fn at_least(question: &Question<'_>, decided: &Decision) -> Result<f64, PlanError> {
    let mut ideal = question.node.clone();
    let links = ideal.pairs.iter().flatten().flatten().copied();
    let Some(by_peer) = links.reduce(|one, other| one.faster(other)) else { return Ok(0.0) };
    let hosts = ideal.host.clone().into_iter();
    let by_host = hosts.reduce(|one, other| {
        let [out, back] =
            [(one.out, other.out), (one.back, other.back)].map(|(one, other)| one.faster(other));
        CopyLink { out, back, both_bytes_per_second: None }
    });
    if let Some(by_host) = by_host {
        ideal.host.fill(by_host);
    }
    // Devices without a link reach each other over the host, which may be faster than any link.
    let over_host = by_host.map(|host| [host.out, host.back]);
    let fastest = over_host.into_iter().flatten().fold(by_peer, Link::faster);
    ideal.pairs.iter_mut().flatten().for_each(|link| *link = Some(fastest));
    ideal.shared.clear();
    ideal.cores = None;
    let mut kept = decided.clone();
    for optimizations in &mut kept.optimizations {
        optimizations.retain(|_, optimization| !is_on_peers(optimization));
    }
    let least = kept.seconds(&Question { node: &ideal, ..*question })?;
    // Sums that differ by rounding alone are no gain.
    Ok(least * (1.0 + 1e-9))
}

/// Who sends blocks, and who may receive them.
#[derive(Debug)]
struct PeerTraffic {
    /// Stages with blocks on peers, and their bytes in an iteration, one way.
    donors: Vec<(usize, f64)>,
    /// Stages with room.
    receivers: Vec<usize>,
}

impl PeerTraffic {
    fn of(question: &Question<'_>, decided: &Decision, prices: &[Prices]) -> Self {
        let mut donors = Vec::new();
        let mut alone = Decision::nothing(question, &decided.mapping);
        for (stage, optimizations) in decided.optimizations.iter().enumerate() {
            let bytes = |of: &BlockId| {
                let bytes = question.stages.get(stage).map_or(0, |blocks| blocks.bytes(of.0, of.1));
                let times =
                    prices.get(stage).and_then(|prices| prices.idle(*of)).map_or(1, |idle| idle.times);
                bytes as f64 * times as f64
            };
            let moved: f64 = optimizations
                .iter()
                .filter(|(_, optimization)| is_on_peers(optimization))
                .map(|(of, _)| bytes(of))
                .sum();
            if moved > 0.0 {
                donors.push((stage, moved));
            }
            let stays = optimizations.iter().filter(|(_, optimization)| !is_on_peers(optimization));
            let stays: Vec<_> = stays.map(|(of, optimization)| (*of, Some(optimization.clone()))).collect();
            alone.set(question, stage, &stays);
        }
        let has_room = |stage: &usize| alone.lacks(question, *stage) < 0;
        Self { donors, receivers: (0..question.stages.len()).filter(has_room).collect() }
    }

    /// Seconds of sending over all links at once, and of the pipeline's own edges: MPress asks for the least of the first.
    fn seconds(&self, question: &Question<'_>, mapping: &[usize]) -> f64 {
        let rate = |from: usize, to: usize| {
            question.node.link(mapping[from], mapping[to]).map_or(0.0, |link| link.bytes_per_second)
        };
        let of_donor = |&(stage, bytes): &(usize, f64)| {
            let reached: f64 =
                self.receivers.iter().filter(|&&to| to != stage).map(|&to| rate(stage, to)).sum();
            bytes / reached
        };
        let edges = question.edge_bytes.iter().enumerate().map(|(stage, &bytes)| {
            question.node.seconds(mapping[stage], mapping[stage + 1], bytes)
                * f64::from(question.micro_batches)
        });
        self.donors.iter().map(of_donor).chain(edges).sum()
    }

    /// All that the time of a mapping depends on.
    fn links(&self, question: &Question<'_>, mapping: &[usize]) -> Vec<u64> {
        let node = question.node;
        let link = |from: usize, to: usize| {
            let of = node.link(mapping[from], mapping[to]);
            of.map_or([0, 0], |link| [link.bytes_per_second.to_bits(), link.latency_seconds.to_bits()])
        };
        let pairs =
            self.donors.iter().flat_map(|&(stage, _)| self.receivers.iter().map(move |&to| (stage, to)));
        let edges = (1..mapping.len()).map(|stage| (stage - 1, stage));
        let both = pairs.chain(edges).flat_map(|(from, to)| [link(from, to), link(to, from)].concat());
        let own = mapping.iter().flat_map(|&device| {
            let host = node.host.get(device).map(|link| [link.out, link.back]);
            let ways = host.map_or([[0; 2]; 2], |ways| {
                ways.map(|way| [way.bytes_per_second.to_bits(), way.latency_seconds.to_bits()])
            });
            let capacity = node.capacity.get(device).copied().unwrap_or(0);
            // Where ways share something it matters which device each stage has.
            let place = if node.shared.is_empty() { 0 } else { device as u64 };
            [ways[0][0], ways[0][1], ways[1][0], ways[1][1], capacity, place]
        });
        both.chain(own).collect()
    }
}
