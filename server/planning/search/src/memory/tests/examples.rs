//! Small questions with answers that can be read off.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::training::Schedule;

use super::super::*;
use crate::tests::fleets;
use crate::{Choice, Cuts, Ended, Fleet, Link, LinkId, Peak, Pin, Places, Seconds, Spanning, StageAt};

/// Costs that are a function.
struct FunctionCosts<F> {
    layers: usize,
    choices: Vec<Choice>,
    peak: F,
}

impl<F: Fn(&StageAt, u32) -> Peak> StageCosts for FunctionCosts<F> {
    fn layers(&self) -> usize {
        self.layers
    }

    fn choices(&self) -> &[Choice] {
        &self.choices
    }

    fn seconds(&self, _: &StageAt) -> Option<Seconds> {
        None
    }

    fn peak(&self, stage: &StageAt, in_flight: u32) -> Option<Peak> {
        Some((self.peak)(stage, in_flight))
    }

    fn cut_seconds(&self, _: usize, _: LinkId, _: usize) -> f64 {
        0.0
    }

    fn cut_seconds_over(&self, _: usize, _: Link, _: usize) -> f64 {
        0.0
    }
}

fn plain(bytes: u64) -> Peak {
    Peak { bytes, needed: bytes }
}

/// Nodes of devices with these capacities, each kind of its own.
fn fleet(nodes: &[(u32, u64)]) -> Fleet {
    let kinds = nodes.iter().enumerate();
    let kinds = kinds.map(|(index, &(_, capacity))| fleets::kind(format!("kind{index}"), capacity)).collect();
    let node = |(index, &(devices, _)): (usize, &(u32, u64))| {
        fleets::node(format!("node{index}"), (index, devices), (1, 1))
    };
    fleets::fleet(kinds, nodes.iter().enumerate().map(node).collect())
}

/// What a test asks besides costs and devices.
struct ExampleQuestion<'a> {
    places: &'a Places,
    cuts: &'a Cuts,
}

impl ExampleQuestion<'_> {
    fn of<'q, C: StageCosts>(
        &'q self,
        costs: &'q C,
        fleet: &'q Fleet,
        choices: &'q [usize],
    ) -> Question<'q, C> {
        Question {
            costs,
            fleet,
            places: self.places,
            choices,
            schedule: Schedule::OneFOneB,
            micro_batches: 4,
            stages: 1..=costs.layers(),
            cuts: self.cuts,
            within_capacity: true,
        }
    }
}

/// The sizes of the stages of the best single pipeline, and their peaks.
fn pipeline(
    layers: usize,
    fleet: &Fleet,
    peak: impl Fn(&StageAt, u32) -> Peak,
) -> Option<(Vec<usize>, Vec<Run>)> {
    let costs = FunctionCosts { layers, choices: vec![Choice::SINGLE], peak };
    let asked = ExampleQuestion {
        places: &Places::in_order(fleet, &[1], Spanning::Never),
        cuts: &Cuts::anywhere(layers),
    };
    let found = leximax(&asked.of(&costs, fleet, &[0]), Unit::Bytes, &Stop::default());
    assert_eq!(found.ended, Ended::Proven);
    let best = found.best?;
    let sizes = best.stages.iter().map(|stage| stage.last + 1 - stage.first).collect();
    Some((sizes, best.value.runs().to_vec()))
}

fn lack(layers: usize, fleet: &Fleet, peak: impl Fn(&StageAt, u32) -> Peak) -> Option<Shortfall> {
    let costs = FunctionCosts { layers, choices: vec![Choice::SINGLE], peak };
    let asked = ExampleQuestion {
        places: &Places::in_order(fleet, &[1], Spanning::Never),
        cuts: &Cuts::anywhere(layers),
    };
    explain(&asked.of(&costs, fleet, &[0]), &Stop::default())
}

fn sums(layers: &[u64]) -> impl Fn(&StageAt, u32) -> Peak {
    |stage, _| plain(layers[stage.first..=stage.last].iter().sum())
}

/// Leximax where the paper's tie rule stops: [10, 9, 9] before [10, 10, 1].
#[test]
fn the_second_highest_peak_decides_between_equal_highest_ones() {
    let peak = |stage: &StageAt, _: u32| match (stage.first, stage.last) {
        (0, 0) | (1, 1) | (0, 1) => plain(10),
        (2, 2) | (3, 3) => plain(9),
        (2, 3) => plain(1),
        _ => plain(99),
    };
    let (_, runs) = pipeline(4, &fleet(&[(3, u64::MAX)]), peak).unwrap();
    assert_eq!(runs, [Run { peak: 10, devices: 1 }, Run { peak: 9, devices: 2 }]);
}

/// Equal peaks: the smallest first stage, then the smallest second one.
#[test]
fn ties_go_to_the_earliest_cuts() {
    let (sizes, _) = pipeline(5, &fleet(&[(3, u64::MAX)]), |_, _| plain(7)).unwrap();
    assert_eq!(sizes, [1, 1, 3]);
}

/// A margin decides what fits and not what is best: the even cut needs more than the devices have, the best
/// of the others is taken, and shortages are reported in bytes needed.
#[test]
fn what_must_fit_may_be_more_than_what_is_compared() {
    let peak = |stage: &StageAt, _: u32| {
        let bytes = 4 * (stage.last + 1 - stage.first) as u64;
        Peak { bytes, needed: bytes + if (stage.first, stage.last) == (0, 1) { 10 } else { 1 } }
    };
    let (sizes, runs) = pipeline(4, &fleet(&[(2, 13)]), peak).unwrap();
    assert_eq!((sizes, runs[0]), (vec![1, 3], Run { peak: 12, devices: 1 }));
    let Some(Shortfall::Plan { shortage, .. }) = lack(4, &fleet(&[(2, 12)]), peak) else { panic!("it fits") };
    assert_eq!(shortage.missing(), Bytes(1));
}

#[test]
fn a_layer_that_fits_nowhere_is_named_with_the_bytes_that_it_lacks() {
    let fleet = fleet(&[(1, 10), (1, 12), (1, 9)]);
    let Some(Shortfall::Plan { layer: Some(1), shortage, .. }) = lack(3, &fleet, sums(&[1, 20, 1])) else {
        panic!("it fits")
    };
    assert_eq!((shortage.stage.first, shortage.stage.last, shortage.stage.from), (1, 1, 1));
    assert_eq!((shortage.needed, shortage.capacity, shortage.missing()), (Bytes(20), Bytes(12), Bytes(8)));
}

#[test]
fn the_best_attempt_is_named_where_only_the_sum_is_too_large() {
    let Some(Shortfall::Plan { layer: None, best, shortage }) = lack(4, &fleet(&[(2, 10)]), sums(&[6; 4]))
    else {
        panic!("it fits")
    };
    assert_eq!(best.stages.iter().map(|stage| stage.last).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(best.value.runs(), [Run { peak: 2, devices: 2 }]);
    assert_eq!((shortage.stage.from, shortage.needed), (0, Bytes(12)));
}

#[test]
fn more_devices_than_layers_and_no_device_have_no_plan() {
    for nodes in [&[(3, u64::MAX)][..], &[]] {
        assert_eq!(pipeline(2, &fleet(nodes), |_, _| plain(0)), None);
        assert_eq!(lack(2, &fleet(nodes), |_, _| plain(0)), Some(Shortfall::NoPlan(Obstacle::Devices)));
    }
    assert_eq!(pipeline(0, &fleet(&[(1, 1)]), |_, _| plain(0)), None);
}

/// A layer that is pinned behind the one after it, and layers that must stay together where there are two stages.
#[test]
fn pins_and_cuts_that_rule_every_plan_out_are_named() {
    let fleet = fleet(&[(1, 9), (1, 9)]);
    let costs = FunctionCosts { layers: 2, choices: vec![Choice::SINGLE], peak: |_: &StageAt, _| plain(1) };
    let mut pinned = Cuts::anywhere(2);
    pinned.pin(Pin { layer: 0, device: 1 });
    let mut together = pinned.clone();
    together.keep_together(0..=1);
    for (cuts, obstacle) in [(pinned, Obstacle::Pins), (together, Obstacle::Cuts)] {
        let asked = ExampleQuestion { places: &Places::in_order(&fleet, &[1], Spanning::Never), cuts: &cuts };
        let lack = explain(&asked.of(&costs, &fleet, &[0]), &Stop::default());
        assert_eq!(lack, Some(Shortfall::NoPlan(obstacle)));
    }
}

/// Devices of 10 and 40 bytes: bytes are balanced evenly and fill the small one, shares are not.
#[test]
fn shares_fill_devices_in_proportion() {
    let fleet = fleet(&[(1, 10), (1, 40)]);
    let costs = FunctionCosts { layers: 20, choices: vec![Choice::SINGLE], peak: sums(&[1; 20]) };
    let asked = ExampleQuestion {
        places: &Places::in_order(&fleet, &[1], Spanning::Never),
        cuts: &Cuts::anywhere(20),
    };
    let question = asked.of(&costs, &fleet, &[0]);
    let first = |unit| leximax(&question, unit, &Stop::default()).best.map(|best| best.stages[0].last + 1);
    assert_eq!((first(Unit::Bytes), first(Unit::Share)), (Some(10), Some(4)));
}

/// Under 1F1B an early stage holds more micro-batches, so it gets fewer layers.
#[test]
fn stages_that_hold_more_micro_batches_get_fewer_layers() {
    let peak =
        |stage: &StageAt, in_flight: u32| plain(u64::from(in_flight) * (stage.last + 1 - stage.first) as u64);
    let (sizes, _) = pipeline(12, &fleet(&[(3, u64::MAX)]), peak).unwrap();
    assert_eq!(sizes, [2, 3, 7]);
}

/// A choice of an equal number of devices is made for every stage by itself.
#[test]
fn each_stage_takes_the_choice_with_the_fewest_bytes() {
    let fleet = fleet(&[(4, u64::MAX)]);
    let data = Choice { data: 2, ..Choice::SINGLE };
    let tensor = Choice { tensor: 2, ..Choice::SINGLE };
    let peak = |stage: &StageAt, _: u32| plain(if (stage.first == 0) == (stage.choice == 0) { 3 } else { 5 });
    let costs = FunctionCosts { layers: 2, choices: vec![data, tensor], peak };
    let asked = ExampleQuestion {
        places: &Places::in_order(&fleet, &[2], Spanning::Never),
        cuts: &Cuts::anywhere(2),
    };
    let found = leximax(&asked.of(&costs, &fleet, &[0, 1]), Unit::Bytes, &Stop::default());
    let best = found.best.unwrap();
    assert_eq!(best.stages.iter().map(|stage| stage.choice).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(best.value.runs(), [Run { peak: 3, devices: 4 }]);
}

/// A search that is stopped before it begins claims nothing.
#[test]
fn a_stopped_search_claims_nothing() {
    let fleet = fleet(&[(2, 9)]);
    let costs = FunctionCosts { layers: 4, choices: vec![Choice::SINGLE], peak: sums(&[1; 4]) };
    let asked = ExampleQuestion {
        places: &Places::in_order(&fleet, &[1], Spanning::Never),
        cuts: &Cuts::anywhere(4),
    };
    let stop = Stop::default();
    stop.request();
    let found = leximax(&asked.of(&costs, &fleet, &[0]), Unit::Bytes, &stop);
    assert_eq!((found.best, found.bound, found.ended), (None, None, Ended::Stopped));
    assert_eq!(explain(&asked.of(&costs, &fleet, &[0]), &stop), None);
}

/// CAPTURE's problem, 96 layers on 8 nodes of 8, with degrees up to 8: the states that are weighed stay far below
/// the plans, of which there are more than 10^30.
#[test]
fn captures_problem_is_small() {
    let fleet = fleet(&[(8, u64::MAX); 8]);
    let degrees = [1, 2, 4, 8];
    let choices: Vec<Choice> = degrees.iter().map(|&data| Choice { data, ..Choice::SINGLE }).collect();
    let layers: Vec<u64> = (0..96_u64).map(|layer| 1_000 + (layer * 7_919) % 97).collect();
    let peak = |stage: &StageAt, _: u32| {
        let sum: u64 = layers[stage.first..=stage.last].iter().sum();
        plain(sum + 4 * sum / degrees[stage.choice] as u64)
    };
    let costs = FunctionCosts { layers: 96, choices, peak };
    let asked = ExampleQuestion {
        places: &Places::in_order(&fleet, &degrees, Spanning::Never),
        cuts: &Cuts::anywhere(96),
    };
    let found = leximax(&asked.of(&costs, &fleet, &[0, 1, 2, 3]), Unit::Bytes, &Stop::default());
    assert_eq!(found.ended, Ended::Proven);
    assert_eq!(found.bound, found.best.map(|best| best.value));
    assert!(found.states < 200_000, "{}", found.states);
}
