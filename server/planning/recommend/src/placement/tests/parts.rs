//! Machines whose devices are of several kinds, or allow different bytes, held against every way to put ranks on them.

use std::cmp::Reverse;

use super::*;

/// Devices, kind and whether they are large: a part of a machine.
type DrawnPart = (u32, usize, bool);

/// Parts of a machine with its speeds inside and outside, and its leaf.
type DrawnMachine = (Vec<DrawnPart>, u32, u32, u32);

/// Bytes that devices allow, small ones and large ones.
const CAPACITIES: [u64; 2] = [40, 80];

/// Where the plan has a rank: node, kind, and whether the device is large.
type Slot = (usize, usize, bool);

fn named(name: &str, machine: DrawnMachine) -> (String, DrawnMachine) {
    (name.to_owned(), machine)
}

/// The parts of machines stand together, or by kind and size as those of a cluster do.
fn machines_of(machines: &[(String, DrawnMachine)], tiers: &[u32], are_together: bool) -> Fleet {
    let mut parts: Vec<(&str, DrawnNode)> = Vec::new();
    for (name, (own, inside, outside, leaf)) in machines {
        parts.extend(own.iter().map(|&(devices, kind, is_large)| {
            (name.as_str(), (devices, kind, is_large, *inside, *outside, *leaf))
        }));
    }
    if !are_together {
        parts.sort_by_key(|(_, of)| (of.5, of.1, Reverse(of.2)));
    }
    let nodes: Vec<DrawnNode> = parts.iter().map(|(_, of)| *of).collect();
    let mut fleet = fleet(&nodes, tiers, None);
    for (node, (name, _)) in fleet.nodes.iter_mut().zip(parts) {
        node.name = name.to_owned();
    }
    for (index, kind) in fleet.kinds.iter_mut().enumerate() {
        kind.capacity = Bytes(CAPACITIES[index % 2]);
    }
    fleet
}

/// A plan of these stages whose ranks are in these slots; no stage needs more than they allow.
fn plan_in(stages: &[DrawnStage], slots: &[Slot], schedule: Schedule) -> Plan {
    let mut plan = plan(stages, &[(slots.len() as u32, 0)], schedule);
    let mut slots = slots.iter();
    for stage in &mut plan.stages {
        for (device, &(node, kind, is_large)) in stage.devices.iter_mut().zip(&mut slots) {
            device.node = format!("planned{node}");
            device.kind = KINDS[kind].to_owned();
            device.capacity = CAPACITIES[usize::from(is_large)];
        }
        stage.capacity = stage.devices.iter().map(|device| device.capacity).min().unwrap();
        stage.predicted_peak = stage.predicted_peak.min(stage.capacity);
    }
    plan
}

/// All ways to give every rank a device that suits it, those of a node of the plan on one machine that no other node of the plan
/// has: by rank the fleet's node.
fn every_way(plan: &Plan, fleet: &Fleet) -> Vec<Vec<usize>> {
    let ranks: Vec<(&str, &str, u64)> = plan
        .stages
        .iter()
        .flat_map(|stage| {
            stage.devices.iter().map(|of| (of.node.as_str(), of.kind.as_str(), stage.predicted_peak))
        })
        .collect();
    let mut all: Vec<Vec<usize>> = vec![Vec::new()];
    for (rank, &(planned, kind, bytes)) in ranks.iter().enumerate() {
        let is_open = |way: &[usize], node: usize| {
            let (of, name) = (&fleet.nodes[node], |node: usize| fleet.nodes[node].name.as_str());
            let suits = fleet.kinds[of.kind].name == kind && fleet.kinds[of.kind].capacity.0 >= bytes;
            let is_free = way.iter().filter(|&&other| other == node).count() < of.devices as usize;
            let keeps = ranks[..rank]
                .iter()
                .zip(way)
                .all(|(&(other, ..), &at)| (other == planned) == (name(at) == name(node)));
            suits && is_free && keeps
        };
        let longer = |way: Vec<usize>| -> Vec<Vec<usize>> {
            let open = (0..fleet.nodes.len()).filter(|&node| is_open(&way, node));
            open.map(|node| [way.as_slice(), &[node]].concat()).collect()
        };
        all = all.into_iter().flat_map(longer).collect();
    }
    all
}

/// Nodes by rank as seats.
fn seats(way: &[usize]) -> Vec<Seat> {
    let mut seats: Vec<Seat> = Vec::new();
    for (rank, &node) in way.iter().enumerate() {
        if way[..rank].contains(&node) {
            continue;
        }
        seats.push(Seat { node, ranks: (0..way.len()).filter(|&other| way[other] == node).collect() });
    }
    seats
}

fn drawn_machines() -> impl Strategy<Value = Vec<DrawnMachine>> {
    let part = (1_u32..5, 0_usize..2, any::<bool>());
    // Of each kind and size a machine has one part.
    let parts = prop::collection::vec(part, 1..3).prop_map(|parts| {
        let distinct: BTreeMap<(usize, bool), u32> =
            parts.into_iter().map(|(devices, kind, is_large)| ((kind, is_large), devices)).collect();
        distinct.into_iter().map(|((kind, is_large), devices)| (devices, kind, is_large)).collect()
    });
    prop::collection::vec((parts, 1_u32..3, 1_u32..3, 0_u32..3), 1..4)
}

fn few_stages() -> impl Strategy<Value = Vec<DrawnStage>> {
    let tensor = prop::sample::select(vec![1_u32, 1, 2]);
    let stage = (1_u32..3, tensor, prop::sample::select(vec![10_u64, 40, 80]));
    let ranks = |stages: &Vec<DrawnStage>| stages.iter().map(|(data, tensor, _)| data * tensor).sum::<u32>();
    prop::collection::vec(stage, 1..5).prop_filter("few ranks", move |stages| ranks(stages) <= 6)
}

/// Slots of six ranks: of one node or several, of one kind or two.
fn drawn_slots() -> impl Strategy<Value = Vec<Slot>> {
    (1_usize..4, 1_usize..3)
        .prop_flat_map(|(nodes, kinds)| prop::collection::vec((0..nodes, 0..kinds, any::<bool>()), 6))
}

fn drawn_tiers() -> impl Strategy<Value = Vec<u32>> {
    prop_oneof![Just(Vec::new()), Just(vec![3]), Just(vec![3, 1])]
}

/// The slots that the ranks of these stages are in.
fn of_ranks<'s>(slots: &'s [Slot], stages: &[DrawnStage]) -> &'s [Slot] {
    &slots[..stages.iter().map(|(data, tensor, _)| (data * tensor) as usize).sum()]
}

/// Holds what is found against all ways, where there are any.
fn check_against(
    every: &[Vec<usize>],
    (plan, fleet): (&Plan, &Fleet),
    ways: &Ways<'_>,
    seed: u64,
) -> Result<f64, TestCaseError> {
    prop_assert_eq!(ways.kept == Cohesion::Nodes, !every.is_empty());
    let casino = Casino::new(seed, plan.stages.len(), 5);
    let pricer = Pricer::of(&casino, plan, &[]);
    let (_, found) = fastest(ways, &pricer, &Stop::default()).unwrap().expect("every way has seconds");
    check_devices(plan, fleet, &found.stages)?;
    let seconds = found.seconds.expect("every way has seconds");
    let all = every.iter().filter_map(|way| pricer.seconds(ways, &seats(way)));
    let Some(best) = all.reduce(f64::min) else { return Ok(seconds) };
    let least = pricer.least(ways, &seats(&every[0])).expect("every way has seconds");
    prop_assert!(least <= best, "{least} is no bound of {best}");
    prop_assert!(found.least <= Some(best) && seconds >= best, "{found:?} and {best} of {}", every.len());
    prop_assert!(!found.is_proven || seconds == best, "{seconds} is proven, and {best} possible");
    // So few are all looked at.
    prop_assert!(found.is_proven || every.len() > 500, "{} ways", every.len());
    Ok(seconds)
}

proptest! {
    #![proptest_config(cases(400))]

    /// A plan's nodes are on machines that suit them if there are such, whichever of their parts has which rank, and then no way is
    /// faster than what is proved.
    #[test]
    fn a_machine_has_what_a_node_of_the_plan_had_if_it_can(
        seed in any::<u64>(),
        stages in few_stages(),
        slots in drawn_slots(),
        machines in drawn_machines(),
        tiers in drawn_tiers(),
        are_together in any::<bool>(),
        schedule in prop::sample::select(vec![Schedule::Gpipe, Schedule::OneFOneB]),
    ) {
        let machines: Vec<_> =
            machines.into_iter().enumerate().map(|(index, of)| named(&format!("given{index}"), of)).collect();
        let fleet = machines_of(&machines, &tiers, are_together);
        let plan = plan_in(&stages, of_ranks(&slots, &stages), schedule);
        let every = every_way(&plan, &fleet);
        match Ways::of(&plan, &fleet, Vec::new()) {
            Ok(ways) => drop(check_against(&every, (&plan, &fleet), &ways, seed)?),
            Err(error) => {
                prop_assert!(every.is_empty(), "{error}, and {:?} is a way", every.first());
                prop_assert!(!error.stages.is_empty());
            }
        }
    }

    /// On the nodes that it was planned for a plan is as fast as it was planned, or faster, whatever else was given, in any order.
    #[test]
    fn on_its_own_nodes_a_plan_is_no_slower(
        seed in any::<u64>(),
        stages in few_stages(),
        slots in drawn_slots(),
        more in prop::collection::vec((0_usize..3, 0_usize..2, any::<bool>()), 0..3),
        others in prop::option::of(drawn_machines()),
        order in any::<prop::sample::Index>(),
        (inside, outside) in (1_u32..3, 1_u32..3),
        are_together in any::<bool>(),
        schedule in prop::sample::select(vec![Schedule::Gpipe, Schedule::OneFOneB]),
    ) {
        let slots = of_ranks(&slots, &stages);
        let plan = plan_in(&stages, slots, schedule);
        let mut parts: BTreeMap<usize, BTreeMap<(usize, bool), u32>> = BTreeMap::new();
        for &(node, kind, is_large) in slots {
            *parts.entry(node).or_default().entry((kind, is_large)).or_default() += 1;
        }
        // A few more devices, of nodes that there are.
        for (node, kind, is_large) in more {
            if let Some(own) = parts.get_mut(&node) {
                *own.entry((kind, is_large)).or_default() += 1;
            }
        }
        let planned = |(node, parts): (usize, BTreeMap<(usize, bool), u32>)| {
            let parts = parts.into_iter().map(|((kind, is_large), devices)| (devices, kind, is_large));
            named(&format!("planned{node}"), (parts.collect(), inside, outside, 0))
        };
        let mut machines: Vec<_> = parts.into_iter().map(planned).collect();
        let others = others.into_iter().flatten().take(1).map(|of| named("other", of));
        machines.extend(others);
        let turn = order.index(machines.len());
        machines.rotate_left(turn);
        let fleet = machines_of(&machines, &[], are_together);
        let ways = Ways::of(&plan, &fleet, Vec::new()).unwrap();
        let at = |&(node, kind, is_large): &Slot| {
            let kind = 2 * kind + usize::from(is_large);
            let own = |of: &FleetNode| of.name == format!("planned{node}") && of.kind == kind;
            fleet.nodes.iter().position(own).unwrap()
        };
        let own: Vec<usize> = slots.iter().map(at).collect();
        let casino = Casino::new(seed, plan.stages.len(), 5);
        let as_planned = Pricer::of(&casino, &plan, &[]).seconds(&ways, &seats(&own)).unwrap();
        let every = every_way(&plan, &fleet);
        let found = check_against(&every, (&plan, &fleet), &ways, seed)?;
        prop_assert!(found <= as_planned, "{found}, and {as_planned} as planned");
    }
}

/// Stages of one device each that need these bytes.
fn singles(needs: &[u64]) -> Vec<DrawnStage> {
    needs.iter().map(|&bytes| (1, 1, bytes)).collect()
}

const LARGE: Slot = (0, 0, true);
const SMALL: Slot = (0, 0, false);

/// A machine of so many large and small devices of a kind.
fn machine(name: &str, large: u32, small: u32) -> (String, DrawnMachine) {
    let parts = [(large, 0, true), (small, 0, false)].into_iter().filter(|part| part.0 > 0);
    named(name, (parts.collect(), 2, 1, 0))
}

/// By stage, whether its devices are large; and what is kept together.
fn sizes(plan: &Plan, machines: &[(String, DrawnMachine)]) -> (Vec<Vec<bool>>, Cohesion) {
    let fleet = machines_of(machines, &[], false);
    let ways = Ways::of(plan, &fleet, Vec::new()).unwrap();
    let begins = fleet.begins();
    let is_large = |&device: &u32| {
        let node = begins.partition_point(|begin| *begin <= device) - 1;
        fleet.nodes[node].kind % 2 == 1
    };
    let devices = ways.first().unwrap();
    (devices.iter().map(|stage| stage.iter().map(is_large).collect()).collect(), ways.kept)
}

/// The rank that needs least has the device that allows least.
#[test]
fn one_smaller_device_is_no_obstacle() {
    let plan = plan_in(&singles(&[70, 20, 70, 70]), &[LARGE; 4], Schedule::OneFOneB);
    let (sizes, kept) = sizes(&plan, &[machine("a04", 3, 1)]);
    assert_eq!((sizes.concat(), kept), (vec![true, false, true, true], Cohesion::Nodes));
}

/// Shards may be on several parts of a machine, as they were planned to be.
#[test]
fn shards_span_the_parts_of_a_machine() {
    let plan = plan_in(&[(1, 4, 20)], &[LARGE, LARGE, LARGE, SMALL], Schedule::OneFOneB);
    let (sizes, kept) = sizes(&plan, &[machine("a04", 3, 1)]);
    assert_eq!((sizes.concat(), kept), (vec![true, true, true, false], Cohesion::Nodes));
}

/// Ranks of a part need not follow each other.
#[test]
fn large_and_small_devices_take_turns() {
    let plan = plan_in(&singles(&[70, 30, 70, 30]), &[LARGE, SMALL, LARGE, SMALL], Schedule::OneFOneB);
    let (sizes, kept) = sizes(&plan, &[machine("given", 2, 2)]);
    assert_eq!((sizes.concat(), kept), (vec![true, false, true, false], Cohesion::Nodes));
}

/// Ranks stay on the parts that they were planned on, where these have room, though others are large enough.
#[test]
fn parts_stay_together() {
    let plan = plan_in(&singles(&[70, 70, 30, 30]), &[LARGE, LARGE, SMALL, SMALL], Schedule::OneFOneB);
    for given in [machine("given", 2, 2), machine("given", 3, 2)] {
        let (sizes, kept) = sizes(&plan, &[given]);
        assert_eq!((sizes.concat(), kept), (vec![true, true, false, false], Cohesion::Nodes));
    }
    // Pairs of shards do where the part has no room for all.
    let plan = plan_in(&[(1, 2, 20), (1, 2, 20)], &[LARGE; 4], Schedule::OneFOneB);
    let (sizes, kept) = self::sizes(&plan, &[machine("given", 3, 3)]);
    assert_eq!((sizes, kept), (vec![vec![true, true], vec![false, false]], Cohesion::Nodes));
}

/// A machine of which one part alone has no room for the ranks of a node is one that they may be on.
#[test]
fn the_faster_machine_is_not_passed_over() {
    let plan = plan_in(&singles(&[70, 70, 70, 20]), &[LARGE, LARGE, LARGE, SMALL], Schedule::OneFOneB);
    let slower = named("a01", (vec![(4, 0, true)], 0, 1, 0));
    let faster = named("a04", (vec![(3, 0, true), (1, 0, false)], 3, 3, 0));
    let fleet = machines_of(&[slower, faster], &[], false);
    let ways = Ways::of(&plan, &fleet, Vec::new()).unwrap();
    let casino = Casino::new(3, 4, 5);
    let (way, found) = fastest(&ways, &Pricer::of(&casino, &plan, &[]), &Stop::default()).unwrap().unwrap();
    assert!(way.iter().all(|seat| fleet.nodes[seat.node].name == "a04") && found.is_proven, "{found:?}");
}

/// Hundreds of machines of two parts are bound as well, each rank as it was planned.
#[test]
fn hundreds_of_machines_of_two_parts_are_bound_with_a_gap() {
    let of =
        |index: u32| named(&format!("given{index}"), (vec![(2, 0, true), (2, 0, false)], 3, 2, index / 16));
    let machines: Vec<_> = (0..512).map(of).collect();
    let fleet = machines_of(&machines, &[3, 1], false);
    let slots: Vec<Slot> = (0..2_048).map(|rank| (rank / 4, 0, rank % 4 < 2)).collect();
    let stages: Vec<DrawnStage> = (0..64).map(|_| (16, 2, 10)).collect();
    let plan = plan_in(&stages, &slots, Schedule::OneFOneB);
    let ways = Ways::of(&plan, &fleet, Vec::new()).unwrap();
    assert_eq!(ways.kept, Cohesion::Nodes);
    let casino = Casino::new(3, 64, 5);
    let (_, found) = fastest(&ways, &Pricer::of(&casino, &plan, &[]), &Stop::default()).unwrap().unwrap();
    let (seconds, least) = (found.seconds.unwrap(), found.least.unwrap());
    assert!(least > 0.0 && least <= seconds, "{least} {seconds}");
    check_devices(&plan, &fleet, &found.stages).unwrap();
}

/// Shards of devices of several kinds are on one machine or none; where nothing is split each kind may have a machine of its own.
#[test]
fn shards_of_several_kinds_are_not_torn() {
    let slots = [(0, 0, true), (0, 0, true), (0, 1, true), (0, 1, true)];
    let split = plan_in(&[(1, 4, 10)], &slots, Schedule::OneFOneB);
    let of_kind = |name: &str, kind: usize| named(name, (vec![(2, kind, true)], 2, 1, 0));
    let apart = machines_of(&[of_kind("x", 0), of_kind("y", 1)], &[], true);
    let refused = Ways::of(&split, &apart, Vec::new()).unwrap_err().to_string();
    assert!(refused.contains("stage 0 has tensor-parallel size 4, which must be on one node"), "{refused}");
    let both = named("x", (vec![(2, 0, true), (2, 1, true)], 2, 1, 0));
    let whole = machines_of(&[both], &[], true);
    assert_eq!(Ways::of(&split, &whole, Vec::new()).unwrap().kept, Cohesion::Nodes);
    let slots = [(0, 0, true), (0, 1, true), (0, 0, true), (0, 1, true)];
    let single = plan_in(&singles(&[10; 4]), &slots, Schedule::OneFOneB);
    assert_eq!(Ways::of(&single, &apart, Vec::new()).unwrap().kept, Cohesion::Kinds);
}

/// What a device allows is not known where the plan's allow several amounts.
#[test]
fn a_kind_of_several_sizes_has_no_usual_one() {
    let slots = [(0, 0, true), (0, 0, true), (0, 1, true), (0, 1, false)];
    let mut plan = plan_in(&singles(&[10; 4]), &slots, Schedule::OneFOneB);
    let sized = Some(Bytes(80));
    assert_eq!(usual_kinds(&plan), BTreeMap::from([("small", sized), ("large", None)]));
    plan.stages[3].devices[0].capacity = 80;
    assert_eq!(usual_kinds(&plan), BTreeMap::from([("small", sized), ("large", sized)]));
    plan.stages[0].devices[0].kind = String::new();
    assert_eq!(usual_kinds(&plan).get(plan.device_kind.as_str()), Some(&sized));
    for stage in &mut plan.stages {
        stage.devices.clear();
    }
    assert_eq!(usual_kinds(&plan), BTreeMap::from([("small", None)]));
}

/// Where no stage is split into shards, the error does not mention shards.
#[test]
fn what_no_order_gives_is_told_without_shards() {
    let slots = [(0, 0, true), (1, 0, true), (2, 0, true), (3, 0, true)];
    let plan = plan_in(&singles(&[70, 30, 70, 30]), &slots, Schedule::OneFOneB);
    let given = machines_of(&[machine("x", 2, 0), machine("y", 0, 2)], &[], false);
    let told = Ways::of(&plan, &given, Vec::new()).unwrap_err().to_string();
    assert!(told.contains("without a large enough device") && !told.contains("shards"), "{told}");
    // On one machine any of its devices is at hand.
    assert_eq!(sizes(&plan, &[machine("x", 2, 2)]).1, Cohesion::Shards);
}
