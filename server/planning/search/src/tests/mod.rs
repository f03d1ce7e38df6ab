//! How many states each search weighs, and what it finds, on the same questions as ever: what a search counts is what
//! its effort ends at, so a change of one number here changes plans.

pub(crate) mod fleets;
pub(crate) mod instances;

use loadmaster_proto::training::Schedule;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::memory::{bottleneck, leximax};
use super::pareto::front;
use super::simulated::{self, Fastest, Terms};
use super::time::{Cap, Limits, fastest};
use super::*;
use instances::{Dice, Instance, Shape, instances};
use loadmaster_simulate::Overlap;

/// Thrown questions of a shape, the same each time.
fn thrown(shape: Shape) -> Vec<Instance> {
    let mut runner = TestRunner::deterministic();
    let mut next = || instances(shape).new_tree(&mut runner).expect("instances are never rejected").current();
    (0..40).map(|_| next()).collect()
}

/// A question with so many ways to the end that time counts them late: stages of 1, 2 or 4 of 16 devices.
fn wide(schedule: Schedule, stages: RangeInclusive<usize>, capacity: u64) -> Instance {
    let node = |index: usize| fleets::node(format!("node{index}"), (index % 2, 4), (2, 1));
    let kind = |bytes: u64| fleets::kind(format!("of {bytes}"), bytes);
    let kinds = vec![kind(capacity), kind(capacity + capacity / 4)];
    let fleet = fleets::fleet(kinds, (0..4).map(node).collect());
    let ways = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1)];
    let choice = |(data, tensor)| Choice { data, tensor, ..Choice::SINGLE };
    let layers = 20;
    let mut cuts = Cuts::anywhere(layers);
    cuts.keep_together(3..=4);
    cuts.pin(Pin { layer: 9, device: 6 });
    let costs = Dice {
        seed: 7,
        layers,
        choices: ways.map(choice).to_vec(),
        sides: 40,
        adds_up: true,
        one_missing_in: u64::MAX,
        links: vec![2, 3],
    };
    Instance {
        costs,
        places: Places::in_order(&fleet, &[1, 2, 4], Spanning::Never),
        fleet,
        choices: (0..ways.len()).collect(),
        schedule,
        micro_batches: 6,
        stages,
        cuts,
        within_capacity: true,
    }
}

/// States, and the sum of the values, that each search comes to in all of the questions: leximax over bytes, over shares and
/// within an effort, bottleneck, time without and with a cap and within an effort, the front, and simulated seconds.
fn counted(instances: &[Instance]) -> [(u64, u64); 9] {
    let free = Stop::default();
    let terms = Terms {
        overlap: Overlap::Computing,
        unit: Unit::Bytes,
        most_bytes: None,
        is_timed: true,
        counts_waits: false,
    };
    let sum = |what: &dyn Fn(&Question<'_, Dice>) -> (u64, u64)| {
        let each = instances.iter().map(|instance| what(&instance.question()));
        each.fold((0, 0), |(states, values), (more, value)| (states + more, values + value))
    };
    let memory = |question: &Question<'_, Dice>, unit, stop: &Stop| {
        let found = leximax(question, unit, stop);
        let peaks = found.best.iter().flat_map(|best| best.value.runs());
        // Shares are large.
        (found.states, peaks.map(|run| run.peak % 1_000_003 * u64::from(run.devices)).sum())
    };
    let time = |question: &Question<'_, Dice>, cap, stop: &Stop| {
        let found = fastest(question, &Limits { cap, below: None }, stop);
        (found.states, found.best.map_or(0, |best| best.value.0 as u64))
    };
    let cap = Some(Cap { unit: Unit::Bytes, most: 60 });
    [
        sum(&|question| memory(question, Unit::Bytes, &free)),
        sum(&|question| memory(question, Unit::Share, &free)),
        sum(&|question| memory(question, Unit::Bytes, &free.within(6_000))),
        sum(&|question| {
            let found = bottleneck(question, Unit::Bytes, &free);
            (found.states, found.best.map_or(0, |best| best.value))
        }),
        sum(&|question| time(question, None, &free)),
        sum(&|question| time(question, cap, &free)),
        sum(&|question| time(question, None, &free.within(100_000))),
        sum(&|question| {
            let found = front(question, Unit::Bytes, &free);
            let points = found.points.iter().map(|point| point.peak + point.plan.value.0 as u64);
            (found.states, points.sum())
        }),
        sum(&|question| {
            let mut wanted = Fastest::below(f64::INFINITY);
            let found = simulated::search(question, terms, &mut wanted, &free, &free.within(2_000_000));
            (found.states, wanted.best.map_or(0, |best| best.seconds as u64))
        }),
    ]
}

#[rustfmt::skip]
const THROWN: [[(u64, u64); 9]; 5] = [
    [(447, 277), (423, 3_178_532), (30, 0), (174, 177), (1186, 1016), (1186, 1016), (1186, 1016), (1920, 3116), (182, 1004)],
    [(484, 1534), (456, 7_692_758), (28, 0), (187, 261), (1117, 1222), (1117, 1222), (1117, 1222), (1479, 2007), (143, 1238)],
    [(534, 1134), (510, 13_848_926), (28, 0), (195, 198), (1430, 1107), (1430, 1107), (1430, 1107), (2303, 3582), (249, 1089)],
    [(1780, 1709), (1700, 12_855_603), (36, 0), (906, 376), (4590, 1748), (4414, 1607), (4590, 1748), (9649, 4749), (2132, 1690)],
    [(1754, 1412), (1706, 10_079_521), (36, 0), (901, 340), (7236, 1531), (7082, 1400), (7236, 1531), (16_222, 6450), (3032, 1498)],
];

#[test]
fn thrown_questions_take_as_many_states_as_ever() {
    let found: Vec<_> = Shape::ALL.iter().map(|&shape| counted(&thrown(shape))).collect();
    assert_eq!(found, THROWN);
}

#[rustfmt::skip]
const WIDE: [[(u64, u64); 9]; 4] = [
    [(5325, 1443), (5010, 6_209_899), (0, 0), (3774, 111), (2092, 1122), (340, 0), (2092, 1122), (44_444, 12_966), (3401, 1106)],
    [(6309, 1443), (6147, 6_704_389), (0, 0), (4779, 111), (14_851, 1222), (340, 0), (8852, 1222), (116_434, 24_008), (4336, 1343)],
    [(3095, 2444), (3793, 10_432_774), (0, 0), (2263, 175), (10_051, 1337), (340, 0), (10_051, 1337), (56_209, 15_305), (5677, 2396)],
    [(4615, 1552), (4577, 8_752_776), (0, 0), (3407, 111), (8760, 1280), (340, 0), (7001, 1296), (106_381, 33_566), (4904, 0)],
];

#[test]
fn wide_questions_take_as_many_states_as_ever() {
    let questions = [
        (Schedule::OneFOneB, 1..=20, 400),
        (Schedule::OneFOneB, 5..=8, 500),
        (Schedule::Gpipe, 1..=6, 900),
        (Schedule::OneFOneB, 6..=7, 250),
    ];
    let found = questions.map(|(schedule, stages, capacity)| counted(&[wide(schedule, stages, capacity)]));
    assert_eq!(found, WIDE);
}
