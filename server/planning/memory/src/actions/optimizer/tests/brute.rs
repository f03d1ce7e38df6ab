//! Plans of small pipelines, against all others that there are, by simulation.

use std::collections::BTreeMap;

use loadmaster_proto::measure::host::CopiedByte;
use loadmaster_proto::training::actions::{
    Action, Block, Destination, Optimization, StageActions, Stripe, Swap,
};
use proptest::prelude::*;

use super::{MB, layer, node, question, stages};
use crate::actions::optimizer::{Effort, Known, bound, plan};
use crate::actions::tests::{at, on_host};
use crate::actions::{Allowed, NodeDevices, PlanError, Question, StageBlocks, StageWork, paper, simulation};
use loadmaster_simulate::Order;
use loadmaster_simulate::copies::{Shared, SlotCores, Way};

/// Most plans of an instance that are simulated: all of most of them, every so manyth of the others.
const MOST_PLANS: usize = 1500;

/// Most ways to treat a stage's units that are tried.
const MOST_OF_STAGE: usize = 4096;

/// Blocks of a stage that are away together.
const LEVELS: [&[Block]; 5] = [
    &[Block::Optimizer],
    &[Block::Inputs],
    &[Block::Weights],
    &[Block::Optimizer, Block::Gradients],
    &[Block::Optimizer, Block::Gradients, Block::Weights, Block::Inputs],
];

/// Steps until a block is gone, and from where it is fetched.
const POINTS: [(u32, u32); 3] = [(0, 0), (1, 1), (2, 1)];

/// What is done to the activations of a layer in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stays,
    Again,
    /// Once more, with the layer below, which is, too.
    AgainWithBelow,
    Host,
    Peer(u32),
}

/// Which other blocks of a stage are away, each with where to.
type Away = Vec<(Block, Destination)>;

/// All that a stage may do, as far as it is tried.
struct Labels<'q> {
    question: &'q Question<'q>,
    stage: usize,
    fates: Vec<Fate>,
    aways: Vec<Away>,
    /// The number of what is done to its units, of what else is away, and of its points.
    all: Vec<(usize, usize, usize)>,
}

impl<'q> Labels<'q> {
    fn of(question: &'q Question<'q>, stage: usize) -> Self {
        let allowed = question.allowed;
        let is_near =
            |of: &usize| question.node.link(stage, *of).is_some() && question.node.link(*of, stage).is_some();
        let near: Vec<u32> = (0..question.stages.len())
            .filter(|of| allowed.peers && is_near(of))
            .map(|of| of as u32)
            .collect();
        let mut fates = vec![Fate::Stays];
        if allowed.recompute {
            fates.extend([Fate::Again, Fate::AgainWithBelow]);
        }
        fates.extend(allowed.host.then_some(Fate::Host));
        fates.extend(near.iter().map(|&of| Fate::Peer(of)));
        let aways = aways(question, &near);
        let mut labels = Self { question, stage, fates, aways, all: Vec::new() };
        labels.list();
        labels
    }

    /// Lists each of them once.
    fn list(&mut self) {
        let units = self.layers() * self.question.in_flight(self.stage) as usize;
        let number = self.fates.len().saturating_pow(units as u32);
        // All of few units; of more, as many as look everywhere.
        let step = if number <= MOST_OF_STAGE { 1 } else { (number / MOST_OF_STAGE) | 1 };
        for index in (0..number).step_by(step) {
            let units = self.units(index);
            let is_again = |fate: Fate| matches!(fate, Fate::Again | Fate::AgainWithBelow);
            let is_on_a_run = |(at, fate): (usize, &Fate)| {
                *fate != Fate::AgainWithBelow || at % self.layers() > 0 && is_again(units[at - 1])
            };
            if !units.iter().enumerate().all(is_on_a_run) {
                continue;
            }
            let has_runs = units.iter().any(|&fate| is_again(fate));
            let leave = units.iter().any(|fate| matches!(fate, Fate::Host | Fate::Peer(_)));
            for (number, away) in self.aways.iter().enumerate() {
                if away.iter().all(|of| of.0 == Block::Inputs) && !away.is_empty() && !has_runs {
                    continue;
                }
                let points = if leave || !away.is_empty() { POINTS.len() } else { 1 };
                self.all.extend((0..points).map(|points| (index, number, points)));
            }
        }
    }

    fn layers(&self) -> usize {
        self.question.stages[self.stage].layers.len()
    }

    /// What is done to its units, slot by slot.
    fn units(&self, mut index: usize) -> Vec<Fate> {
        let units = self.layers() * self.question.in_flight(self.stage) as usize;
        let mut next = || {
            let fate = self.fates[index % self.fates.len()];
            index /= self.fates.len();
            fate
        };
        (0..units).map(|_| next()).collect()
    }

    fn actions(&self, label: usize) -> StageActions {
        let (units, away, points) = self.all[label];
        actions(self.question, self.stage, &self.units(units), &self.aways[away], POINTS[points])
    }
}

/// What else may be away of a stage with such peers: nothing, or the blocks of a level on the host, on a peer, on two of them side by
/// side, or one block on the host and the others on a peer.
fn aways(question: &Question<'_>, near: &[u32]) -> Vec<Away> {
    let peers = |stages: &[u32]| {
        let share = Stripe::WHOLE / stages.len() as u32;
        Destination::Peers(stages.iter().map(|&stage| Stripe { stage, share }).collect())
    };
    let host = question.allowed.host.then_some(Destination::Host);
    let mut alike: Vec<Destination> = host.iter().cloned().collect();
    alike.extend(near.iter().map(|&of| peers(&[of])));
    let mut all = vec![Away::new()];
    for blocks in LEVELS.iter().filter(|level| level.iter().all(|block| question.blocks.contains(block))) {
        all.extend(alike.iter().map(|to| blocks.iter().map(|&block| (block, to.clone())).collect()));
        if near.len() > 1 {
            all.push(blocks.iter().map(|&block| (block, peers(&near[..2]))).collect());
        }
        if let (Some(host), [first, others @ ..], [.., last]) = (&host, blocks, near)
            && !others.is_empty()
        {
            let others = others.iter().map(|&block| (block, peers(&[*last])));
            all.push(std::iter::once((*first, host.clone())).chain(others).collect());
        }
    }
    all
}

fn actions(
    question: &Question<'_>,
    stage: usize,
    units: &[Fate],
    away: &Away,
    (release_after, fetch_before): (u32, u32),
) -> StageActions {
    let StageBlocks { first_layer: first, layers, .. } = &question.stages[stage];
    let (first, layers) = (*first, layers.len());
    let swap = |block, to| Optimization::Swap(Swap { block, to, release_after, fetch_before });
    let inputs = away.iter().find(|of| of.0 == Block::Inputs).map(|of| &of.1);
    let mut all = StageActions::default();
    for slot in 0..units.len() / layers {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for layer in 0..layers {
            let to = match units[slot * layers + layer] {
                Fate::Stays => continue,
                Fate::AgainWithBelow if runs.last().is_some_and(|run| run.1 + 1 == layer) => {
                    runs.last_mut().unwrap().1 = layer;
                    continue;
                }
                Fate::Again | Fate::AgainWithBelow => {
                    runs.push((layer, layer));
                    continue;
                }
                Fate::Host => Destination::Host,
                Fate::Peer(stage) => Destination::Peers(vec![Stripe { stage, share: Stripe::WHOLE }]),
            };
            let optimization = swap(Block::Activations, to);
            all.actions.push(Action {
                first_layer: first + layer,
                last_layer: first + layer,
                slots: vec![slot as u32],
                optimization,
            });
        }
        if let Some(to) = inputs {
            all.actions.extend(runs.iter().map(|&(from, _)| Action {
                first_layer: first + from,
                last_layer: first + from,
                slots: vec![slot as u32],
                optimization: swap(Block::Inputs, to.clone()),
            }));
        }
        all.actions.extend(runs.into_iter().map(|(from, to)| Action {
            first_layer: first + from,
            last_layer: first + to,
            slots: vec![slot as u32],
            optimization: Optimization::Recompute,
        }));
    }
    for (block, to) in away.iter().filter(|of| of.0 != Block::Inputs) {
        let optimization = swap(*block, to.clone());
        all.actions.push(Action {
            first_layer: first,
            last_layer: first + layers - 1,
            slots: Vec::new(),
            optimization,
        });
    }
    all
}

/// What a stage holds step by step, and what it keeps elsewhere at once: on the host, and on each peer.
pub(super) fn held(
    question: &Question<'_>,
    stage: usize,
    actions: &StageActions,
) -> (u64, u64, BTreeMap<u32, u64>) {
    let blocks = &question.stages[stage];
    let work = StageWork::of(blocks, question.place(stage), question.order, question.micro_batches, actions);
    let steps = work.steps.all().len();
    let device = (0..steps).map(|step| at(blocks, &work, step)).max().unwrap_or(0);
    let host = (0..=steps).map(|boundary| on_host(blocks, &work, boundary, actions)).max().unwrap_or(0);
    let mut peers = BTreeMap::new();
    for peer in actions.peers() {
        // As if that peer were the host, and the others were not there.
        let to_it = |action: &Action, whole: u64| match &action.optimization {
            Optimization::Swap(swap) => match &swap.to {
                Destination::Peers(stripes) => of_stripe(stripes, peer, whole),
                Destination::Host => 0,
            },
            Optimization::Recompute => 0,
        };
        let at_boundary = |boundary: usize| -> u64 {
            let is_there = |from: usize, to: usize| {
                (from..=to).contains(&boundary) || (from..=to).contains(&(boundary + steps))
            };
            let there = work.absences.iter().filter(|one| is_there(one.at.leaves, one.at.needed));
            let own = there.filter(|one| one.part == loadmaster_proto::training::actions::Part::Own);
            own.map(|one| to_it(&actions.actions[one.action], blocks.bytes(one.layer, one.block))).sum()
        };
        peers.insert(peer, (0..=steps).map(at_boundary).max().unwrap_or(0));
    }
    (device, host, peers)
}

/// What of a block a peer has: each stripe begins at a multiple of 64 bytes, and the last one takes the rest.
fn of_stripe(stripes: &[Stripe], peer: u32, whole: u64) -> u64 {
    let begins = |at: usize| {
        let before: u64 = stripes[..at].iter().map(|of| u64::from(of.share)).sum();
        if at == stripes.len() { whole } else { (whole * before / 10_000).next_multiple_of(64).min(whole) }
    };
    let at = stripes.iter().position(|of| of.stage == peer);
    at.map_or(0, |at| begins(at + 1) - begins(at))
}

/// Whether every device and every host has room, one after another, with all devices of a stage.
pub(super) fn fits(question: &Question<'_>, plan: &[StageActions]) -> bool {
    let node = question.node;
    let held: Vec<_> = plan.iter().enumerate().map(|(stage, of)| held(question, stage, of)).collect();
    // The host of each device of a stage.
    let devices = |stage: usize| -> Vec<usize> {
        let of_hosts = node.hosts.get(stage).cloned().unwrap_or_else(|| vec![1]);
        of_hosts.iter().enumerate().flat_map(|(host, &count)| vec![host; count as usize]).collect()
    };
    let mut at_hosts = BTreeMap::new();
    for (stage, of) in held.iter().enumerate() {
        devices(stage).into_iter().for_each(|host| *at_hosts.entry(host).or_insert(0) += of.1);
    }
    let has_room = |stage: usize, device: usize| {
        let mut peer_pools = 0;
        for (from, of) in held.iter().enumerate() {
            let guests = (0..devices(from).len()).filter(|guest| guest % devices(stage).len() == device);
            peer_pools += of.2.get(&(stage as u32)).copied().unwrap_or(0) * guests.count() as u64;
        }
        held[stage].0 + peer_pools <= node.capacity[stage]
    };
    let has_room = |stage: usize| (0..devices(stage).len()).all(|device| has_room(stage, device));
    at_hosts.values().all(|&bytes| bytes <= node.host_bytes) && (0..plan.len()).all(has_room)
}

/// The same devices where each stage has several, on two hosts: those that lie on other hosts are no peers.
fn spread(node: &NodeDevices, devices: &[[u32; 2]], host_bytes: u64) -> NodeDevices {
    let hosts: Vec<Vec<u32>> = devices.iter().map(|of| of.to_vec()).collect();
    let host_of = |stage: usize, device: u32| usize::from(device >= devices[stage][0]);
    let count = |stage: usize| devices[stage].iter().sum::<u32>();
    let may_be_peers = |from: usize, to: usize| {
        (0..count(from)).all(|device| host_of(from, device) == host_of(to, device % count(to)))
    };
    let mut pairs = node.pairs.clone();
    for (from, row) in pairs.iter_mut().enumerate() {
        row.iter_mut()
            .enumerate()
            .filter(|(to, _)| !may_be_peers(from, *to))
            .for_each(|(_, link)| *link = None);
    }
    NodeDevices { hosts, pairs, host_bytes, ..node.clone() }
}

/// What all stages do by number, of as many as the labels of one times those of the next.
fn numbered(labels: &[Labels<'_>], mut number: usize) -> Vec<StageActions> {
    let mut of_stage = |labels: &Labels<'_>| {
        let own = labels.actions(number % labels.all.len());
        number /= labels.all.len();
        own
    };
    labels.iter().map(&mut of_stage).collect()
}

/// One layer lacks 30 MB beside two micro-batches, of which one goes backward at a time: 20 MB of activations are not enough, so that
/// optimizer's state must be on the other device, the only place there is. Of all labels one by one none is faster than what is found.
#[test]
fn no_label_is_faster_than_what_is_found_with_state_on_a_peer() {
    let stages = stages(&[vec![layer(20, 10)], vec![layer(20, 10)]]);
    let tight = NodeDevices { capacity: vec![90 * MB, 400 * MB], ..node(2, 0, 1e9, 4e9) };
    let blocks = [Block::Activations, Block::Inputs, Block::Weights, Block::Gradients, Block::Optimizer];
    let allowed = Allowed { recompute: false, host: false, peers: true };
    let asked = Question { blocks: &blocks, micro_batches: 3, ..question(&stages, &tight, allowed) };
    let found = plan(&asked, Known::default(), Effort::All).unwrap();
    let labels: Vec<Labels<'_>> = (0..2).map(|stage| Labels::of(&asked, stage)).collect();
    let number: usize = labels.iter().map(|labels| labels.all.len()).product();
    let fitting = (0..number).map(|number| numbered(&labels, number)).filter(|plan| fits(&asked, plan));
    let timed = fitting.map(|plan| (simulation::seconds(&asked, &[0, 1], &plan).unwrap(), plan));
    let (best, label) = timed.min_by(|one, other| one.0.total_cmp(&other.0)).unwrap();
    for actions in [&label, &found.actions] {
        let is_parked = |action: &Action| match &action.optimization {
            Optimization::Swap(swap) => {
                swap.block == Block::Optimizer && matches!(swap.to, Destination::Peers(_))
            }
            Optimization::Recompute => false,
        };
        assert!(actions[0].actions.iter().any(is_parked), "{actions:?}");
    }
    let same = 1e-9 * best;
    assert!(found.seconds <= best + same && found.bound <= best + same, "{best}: {found:?}");
}

#[derive(Debug, Clone)]
struct Instance {
    layers: Vec<Vec<(u64, u32)>>,
    micro_batches: u32,
    is_gpipe: bool,
    pressure: f64,
    /// How much less than what lasts there may be room for.
    below: f64,
    /// By stage: for which part of what lasts there is more room than on the others, so that it may be a peer.
    spare: Vec<f64>,
    has_all_blocks: bool,
    host: f64,
    /// How many times as fast copies come back from there.
    back: f64,
    peer: f64,
    /// What links to the host share, as a multiple of one: all of them one way, and the first both ways.
    uplink: Option<(f64, f64)>,
    /// Slots with cores of their own, of all devices, threads of each, and how much slower they are together.
    cores: Option<(f64, f64, f64)>,
    allowed: Allowed,
    /// Of each stage, its devices on two hosts, and as much of these hosts' memory as this part of what all hold.
    spread: Option<(Vec<[u32; 2]>, f64)>,
}

fn instance() -> impl Strategy<Value = Instance> {
    let layer = || (1_u64..8, 1_u32..8).prop_map(|(kept, forward)| (kept * 20, forward));
    let shape = prop_oneof![
        proptest::collection::vec(proptest::collection::vec(layer(), 1..3), 1..3),
        proptest::collection::vec(proptest::collection::vec(layer(), 1..2), 2..4),
        proptest::collection::vec(proptest::collection::vec(layer(), 1..4), 3..4),
        proptest::collection::vec(proptest::collection::vec(layer(), 2..4), 1..2),
    ];
    let ways = (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(recompute, host, peers)| Allowed {
        recompute,
        host,
        peers,
    });
    let below = prop_oneof![Just(0.0), 0.0..0.8_f64];
    let spare = proptest::collection::vec(prop_oneof![2 => Just(0.0), 1 => 0.0..2.0_f64], 4);
    let tight = (0.0..1.0_f64, below, spare, any::<bool>());
    let devices =
        prop_oneof![Just([1, 0]), Just([2, 0]), Just([0, 1]), Just([1, 1]), Just([2, 2]), Just([3, 1]),];
    let spread = proptest::option::of((proptest::collection::vec(devices, 4), 0.0..2.0_f64));
    // From less than a device's to more than all of them want.
    let ratio = prop_oneof![Just(1.0), 1.0..1.5_f64];
    let cores = proptest::option::of((0.4..4.0_f64, 1.0..3.0_f64, ratio));
    let uplink = proptest::option::of((0.3..2.0_f64, 0.5..3.0_f64));
    // Devices that are alone share links and cores.
    let shared = prop_oneof![(uplink, cores, Just(None)), (Just(None), Just(None), spread)];
    let back = prop_oneof![2 => Just(1.0), 1 => (-1.0..1.0_f64).prop_map(|power| 10_f64.powf(power))];
    let links = ((-1.0..2.0_f64, back), -1.0..2.0_f64, shared);
    (shape, 1_u32..5, any::<bool>(), tight, links, ways).prop_map(
        |(
            layers,
            micro_batches,
            is_gpipe,
            (pressure, below, spare, has_all_blocks),
            ((host, back), peer, (uplink, cores, spread)),
            allowed,
        )| {
            Instance {
                spread,
                layers,
                micro_batches,
                is_gpipe,
                pressure,
                below,
                spare,
                has_all_blocks,
                // From a tenth to a hundred times as fast as layers are computed.
                host: 1e10 * 10_f64.powf(host),
                back,
                peer: 1e10 * 10_f64.powf(peer),
                uplink,
                cores,
                allowed,
            }
        },
    )
}

proptest! {
    #![proptest_config(loadmaster_samples::cases(40))]

    /// The bound is above no plan, whatever it does to which slot and when, and above nothing that is proven, on devices with
    /// cores and links of their own and on such that share them; what is found fits step by step, takes as long as is said, and is no
    /// slower than MPress's; and something is found where any of them fits that needs no room of others.
    #[test]
    fn nothing_is_faster_than_the_bound_or_than_what_is_proven(instance in instance()) {
        let of = |layers: &Vec<(u64, u32)>| layers.iter().map(|&(kept, forward)| layer(kept, forward)).collect();
        let stages = stages(&instance.layers.iter().map(of).collect::<Vec<_>>());
        let cores = instance.cores.map(|(slots, threads, contention_slowdown)| SlotCores {
            threads,
            contention_slowdown,
            copies: CopiedByte { core_seconds: 0.2 / instance.host, slowdown_seconds: (contention_slowdown - 1.0) / instance.host },
            ..SlotCores::plain(slots)
        });
        let mut shared = Vec::new();
        if let Some((all, both)) = instance.uplink {
            let ways = (0..stages.len() as u32).map(Way::ToHost).collect();
            shared.push(Shared { ways, bytes_per_second: all * instance.host });
            let ways = vec![Way::ToHost(0), Way::FromHost(0)];
            shared.push(Shared { ways, bytes_per_second: both * instance.host });
        }
        let mut roomy = NodeDevices { shared, cores, ..node(stages.len(), u64::MAX / 4, instance.host, instance.peer) };
        roomy.host.iter_mut().for_each(|link| link.back.bytes_per_second *= instance.back);
        let roomy = match &instance.spread {
            None => roomy,
            Some((devices, part)) => {
                let all: u64 = stages.iter().flat_map(|of| &of.layers).map(|of| of.activations + of.lasting()).sum();
                spread(&roomy, &devices[..stages.len()], (all as f64 * part) as u64)
            }
        };
        let order = if instance.is_gpipe { Order::Gpipe } else { Order::OneFOneB };
        let asked = Question { order, micro_batches: instance.micro_batches, ..question(&stages, &roomy, instance.allowed) };
        // Between what lasts and what is held when nothing is done.
        let none = vec![StageActions::default(); stages.len()];
        let most = (0..stages.len()).map(|stage| held(&asked, stage, &none[stage]).0).max().unwrap();
        let lasting = stages.iter().map(|stage| stage.layers.iter().map(|of| of.lasting()).sum::<u64>()).max().unwrap();
        let least = lasting - (lasting as f64 * instance.below) as u64;
        let capacity = most - ((most - least) as f64 * instance.pressure) as u64;
        let all_blocks = [Block::Activations, Block::Inputs, Block::Weights, Block::Gradients, Block::Optimizer];
        let asked = if instance.has_all_blocks { Question { blocks: &all_blocks, ..asked } } else { asked };
        let spare = |&part: &f64| capacity + (lasting as f64 * part) as u64;
        let tight = NodeDevices { capacity: instance.spare[..stages.len()].iter().map(spare).collect(), ..roomy.clone() };
        let asked = Question { node: &tight, ..asked };
        let found = plan(&asked, Known::default(), Effort::All);
        let mapping: Vec<usize> = (0..stages.len()).collect();
        let greedy = paper::plan(&asked);
        if let Ok(found) = &found {
            prop_assert!(fits(&asked, &found.actions), "{:?}", found.actions);
            let seconds = simulation::seconds(&asked, &mapping, &found.actions).unwrap();
            prop_assert!((seconds - found.seconds).abs() <= 1e-9 * seconds);
            // Iterations that go on in the next one are differences of long times.
            prop_assert!(found.bound <= found.seconds);
            // What shares cores may be faster with something to do than without.
            prop_assert!(found.untouched_seconds <= found.bound * (1.0 + 1e-9) || cores.is_some());
            if let Ok(greedy) = &greedy {
                prop_assert!(found.seconds <= greedy.seconds * (1.0 + 1e-9), "{} {}", found.seconds, greedy.seconds);
            }
        } else {
            prop_assert!(matches!(found, Err(PlanError::NoRoom { .. })), "{found:?}");
            prop_assert!(greedy.is_err());
        }
        let of_stages: Vec<Labels<'_>> = (0..stages.len()).map(|stage| Labels::of(&asked, stage)).collect();
        let number: usize = of_stages.iter().map(|labels| labels.all.len()).product();
        let is_whole = number <= MOST_PLANS;
        // A step that has no small factor in common with the sizes looks everywhere.
        let step = if is_whole { 1 } else { (number / MOST_PLANS) | 1 };
        for index in (0..number).step_by(step) {
            let plan = numbered(&of_stages, index);
            if !fits(&asked, &plan) {
                continue;
            }
            // How stages divide what is little for all of them is not tried in every way.
            let is_divided = instance.spread.is_some() || plan.iter().any(|of| !of.peers().is_empty());
            prop_assert!(found.is_ok() || is_divided, "there is {plan:?}");
            let seconds = simulation::seconds(&asked, &mapping, &plan).unwrap();
            if let Ok(found) = &found {
                prop_assert!(found.bound <= seconds * (1.0 + 1e-9), "bound {} above {seconds}: {plan:?}", found.bound);
            }
            let least = bound(&asked, Known::default(), seconds).unwrap();
            prop_assert!(least.is_some_and(|least| least <= seconds * (1.0 + 1e-9)), "{least:?} {seconds} {plan:?}");
        }
    }
}
