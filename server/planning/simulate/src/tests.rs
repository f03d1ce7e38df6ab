//! Known cases by hand, and every order against the oracle.

use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::schedule::Pass;
use proptest::prelude::*;

use super::engine::EngineOptions;
use super::*;
use crate::Seconds;

fn equal(stages: usize, forward: f64, backward: f64) -> Vec<Seconds> {
    vec![Seconds { forward, backward, step: 0.0 }; stages]
}

fn pipeline<'a>(stages: &'a [Seconds], edges: &'a [Edge], micro_batches: u32, order: Order) -> Pipeline<'a> {
    Pipeline { stages, edges, micro_batches, order, overlap: Overlap::Computing }
}

/// What the oracle says of these turns.
fn clock(pipeline: &Pipeline<'_>, turns: &[Vec<Turn>]) -> f64 {
    let seconds = |&Seconds { forward, backward, step }: &Seconds| loadmaster_oracle::Seconds {
        forward,
        backward,
        step,
    };
    let edge = |&Edge { forward, backward }: &Edge| loadmaster_oracle::Edge { forward, backward };
    let pass = |turn: &Turn| loadmaster_oracle::Pass {
        stage: turn.stage as usize,
        is_forward: matches!(turn.pass, Pass::Forward(_)),
        micro_batch: index_of(turn.pass) as usize,
    };
    let turns: Vec<Vec<_>> = turns.iter().map(|turns| turns.iter().map(pass).collect()).collect();
    let known = loadmaster_oracle::Pipeline {
        stages: &pipeline.stages.iter().map(seconds).collect::<Vec<_>>(),
        edges: &pipeline.edges.iter().map(edge).collect::<Vec<_>>(),
        micro_batches: pipeline.micro_batches,
        transfers: match pipeline.overlap {
            Overlap::Computing => loadmaster_oracle::CommunicationOverlap::On,
            Overlap::Nothing => loadmaster_oracle::CommunicationOverlap::Off,
        },
    };
    known.in_turns(&turns)
}

/// The ends of a pipeline whose sequence is known from another one of as many stages.
fn known_ends(pipeline: &Pipeline<'_>) -> Ends {
    let mut known = KnownTurns::default();
    let other = equal(pipeline.stages.len(), 3.0, 1.0);
    ends(&Pipeline { stages: &other, ..*pipeline }, &mut known).unwrap();
    ends(pipeline, &mut known).unwrap()
}

fn expected_ends(simulated: &Simulated) -> Ends {
    let (first_passes, _) = simulated.lanes[0].step.unwrap();
    Ends { first_passes, iteration: simulated.iteration_seconds }
}

/// Seconds in quarters, so that sums are exact and both ways of adding up agree to the bit.
fn quarters(most: u32) -> impl Strategy<Value = f64> {
    (0..=most).prop_map(|quarters| f64::from(quarters) / 4.0)
}

fn stages(count: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<Seconds>> {
    let stage = (quarters(40), quarters(40), quarters(40));
    let stage = stage.prop_map(|(forward, backward, step)| Seconds { forward, backward, step });
    prop::collection::vec(stage, count)
}

fn edges(count: usize) -> impl Strategy<Value = Vec<Edge>> {
    let edge = (quarters(12), quarters(12)).prop_map(|(forward, backward)| Edge { forward, backward });
    prop::collection::vec(edge, count)
}

fn overlap() -> impl Strategy<Value = Overlap> {
    prop_oneof![Just(Overlap::Computing), Just(Overlap::Nothing)]
}

fn chain() -> impl Strategy<Value = (Vec<Seconds>, Vec<Edge>)> {
    stages(1..7).prop_flat_map(|stages| {
        let edges = edges(stages.len() - 1);
        (Just(stages), edges)
    })
}

proptest! {
    /// The walk is as exact as the clock, under GPipe and 1F1B, with and without overlap; and no simulation is
    /// faster than the bound that prunes.
    #[test]
    fn a_walk_finds_what_a_clock_shows(
        (stages, edges) in chain(), micro_batches in 1_u32..12, overlap in overlap(),
    ) {
        for order in [Order::Gpipe, Order::OneFOneB] {
            let pipeline = Pipeline { overlap, ..pipeline(&stages, &edges, micro_batches, order) };
            let turns = order.turns(stages.len(), micro_batches);
            let simulated = simulate(&pipeline).unwrap();
            prop_assert_eq!(simulated.iteration_seconds, clock(&pipeline, &turns));
            prop_assert_eq!(simulated.iteration_seconds, iteration_seconds(&pipeline).unwrap());
            prop_assert_eq!(known_ends(&pipeline), expected_ends(&simulated));
            prop_assert!(at_least(&pipeline) <= simulated.iteration_seconds, "{} > {}", at_least(&pipeline), simulated.iteration_seconds);
        }
    }

    /// The same for chunks that are interleaved over devices.
    #[test]
    fn an_interleaved_walk_finds_what_a_clock_shows(
        devices in 1_u32..5, chunks in 1_usize..4, groups in 1_u32..4, overlap in overlap(), seed in stages(12), ways in edges(12),
    ) {
        let count = devices as usize * chunks;
        let stages = &seed[..count];
        let edges = &ways[..count - 1];
        let order = Order::Interleaved { devices };
        let pipeline = Pipeline { overlap, ..pipeline(stages, edges, devices * groups, order) };
        let simulated = simulate(&pipeline).unwrap();
        prop_assert_eq!(simulated.iteration_seconds, clock(&pipeline, &order.turns(count, devices * groups)));
        prop_assert_eq!(known_ends(&pipeline), expected_ends(&simulated));
        prop_assert!(at_least(&pipeline) <= simulated.iteration_seconds);
    }

    /// What is held at once is what `proto` says, which the memory predictors go by.
    #[test]
    fn micro_batches_in_flight_are_those_of_the_schedule((stages, edges) in chain(), micro_batches in 1_u32..12) {
        for schedule in [Schedule::Gpipe, Schedule::OneFOneB] {
            let simulated = simulate(&pipeline(&stages, &edges, micro_batches, schedule.into())).unwrap();
            let count = stages.len() as u32;
            let said: Vec<u32> = (0..count).map(|stage| schedule.in_flight(count, stage, micro_batches)).collect();
            prop_assert_eq!(simulated.in_flight, said);
        }
    }

    /// What a device holds at once is what its timeline shows: at the start of each forward pass, those that have
    /// begun and whose backward pass has not ended, of all its chunks.
    #[test]
    fn what_a_device_holds_at_once_is_on_its_timeline(
        devices in 1_u32..5, chunks in 1_usize..5, groups in 1_u32..5, is_flat in any::<bool>(),
        overlap in overlap(), seed in stages(16), ways in edges(16),
    ) {
        let count = devices as usize * chunks;
        // Passes of no time share no moment with what ends or begins then.
        let some = |seconds: f64| seconds + 0.25;
        let seed: Vec<Seconds> = seed
            .iter()
            .map(|of| Seconds { forward: some(of.forward), backward: some(of.backward), step: of.step })
            .collect();
        let orders = if is_flat { vec![Order::Gpipe, Order::OneFOneB] } else { vec![Order::Interleaved { devices }] };
        for order in orders {
            let pipeline = Pipeline { overlap, ..pipeline(&seed[..count], &ways[..count - 1], devices * groups, order) };
            let simulated = simulate(&pipeline).unwrap();
            let shown: Vec<u32> = simulated.lanes.iter().map(|lane| most_held(&lane.passes)).collect();
            prop_assert_eq!(&simulated.at_once, &shown);
            let by_chunk: Vec<u32> = (0..count as u32)
                .map(|chunk| {
                    let lane = &simulated.lanes[chunk as usize % simulated.lanes.len()];
                    let own: Vec<TimedPass> =
                        lane.passes.iter().filter(|timed| timed.stage == chunk).copied().collect();
                    most_held(&own)
                })
                .collect();
            prop_assert_eq!(simulated.in_flight, by_chunk);
        }
    }

    /// Passes of a device never overlap, and a micro-batch is passed on in the chain's order.
    #[test]
    fn a_timeline_is_possible((stages, edges) in chain(), micro_batches in 1_u32..9) {
        for order in [Order::Gpipe, Order::OneFOneB] {
            let simulated = simulate(&pipeline(&stages, &edges, micro_batches, order)).unwrap();
            let mut ends = std::collections::HashMap::new();
            for lane in &simulated.lanes {
                prop_assert!(lane.passes.windows(2).all(|pair| pair[0].end <= pair[1].start));
                for timed in &lane.passes {
                    ends.insert((timed.stage, timed.pass == Pass::Forward(index_of(timed.pass)), index_of(timed.pass)), *timed);
                }
            }
            for (&(stage, is_forward, index), timed) in &ends {
                let before = if is_forward { stage.checked_sub(1) } else { Some(stage + 1) };
                if let Some(input) = before.and_then(|before| ends.get(&(before, is_forward, index))) {
                    prop_assert!(input.end <= timed.start);
                }
            }
            prop_assert_eq!(ends.len(), stages.len() * 2 * micro_batches as usize);
        }
    }

}

proptest! {
    #![proptest_config(loadmaster_samples::cases(48))]

    /// PipeDream's closed form is where the simulated time between updates settles.
    #[test]
    fn pipedream_settles_at_its_period(
        stages in stages(1..6), ways in edges(5), overlap in overlap(), micro_batches in 1_u32..5,
    ) {
        let edges = &ways[..stages.len() - 1];
        let pipeline = Pipeline { overlap, ..pipeline(&stages, edges, micro_batches, Order::PipeDream) };
        let count = 4_000;
        let turns = Order::PipeDream.turns(stages.len(), count);
        let endless = Pipeline { micro_batches: count, ..pipeline };
        let walk = EngineOptions { keep_passes: true, updates_always: true };
        let run = engine::run(&endless, &turns, walk).unwrap();
        let ends: Vec<f64> = run.lanes[0].passes.iter().filter(|timed| matches!(timed.pass, Pass::Backward(_))).map(|timed| timed.end).collect();
        // 60 is a multiple of every number of micro-batches after which a cycle of five stages repeats.
        let settled = (ends[3_900] - ends[3_900 - 60]) / 60.0;
        let period = simulate(&pipeline).unwrap().iteration_seconds / f64::from(micro_batches);
        prop_assert!((settled - period).abs() < 1e-9, "{settled} {period}");
    }
}

/// Most spans from the start of a forward to the end of its backward pass that share a moment.
fn most_held(passes: &[TimedPass]) -> u32 {
    let is_forward = |timed: &&TimedPass| matches!(timed.pass, Pass::Forward(_));
    let spans: Vec<(f64, f64)> = passes
        .iter()
        .filter(is_forward)
        .map(|went| {
            let is_back = |timed: &&TimedPass| {
                timed.stage == went.stage && timed.pass == Pass::Backward(index_of(went.pass))
            };
            (went.start, passes.iter().find(is_back).unwrap().end)
        })
        .collect();
    let held = |at: f64| spans.iter().filter(|&&(begin, end)| begin <= at && at < end).count() as u32;
    passes.iter().map(|timed| held(timed.start)).max().unwrap_or(0)
}

fn index_of(pass: Pass) -> u32 {
    match pass {
        Pass::Forward(index) | Pass::Backward(index) => index,
    }
}

/// The bubble that every paper states: (S − 1) / (m + S − 1), for GPipe and 1F1B alike.
#[test]
fn equal_stages_idle_for_the_known_bubble() {
    for (count, micro_batches) in [(1, 1), (2, 4), (4, 8), (8, 64), (16, 64)] {
        let stages = equal(count, 1.0, 2.0);
        let edges = vec![Edge::default(); count - 1];
        for order in [Order::Gpipe, Order::OneFOneB] {
            let simulated = simulate(&pipeline(&stages, &edges, micro_batches, order)).unwrap();
            let known = (count - 1) as f64 / (f64::from(micro_batches) + (count - 1) as f64);
            assert!((simulated.bubble - known).abs() < 1e-12, "{order:?} {count} {micro_batches}");
            assert_eq!(simulated.passes_seconds, 3.0 * (f64::from(micro_batches) + (count - 1) as f64));
        }
    }
}

/// Interleaving v chunks divides the bubble's seconds by v (Megatron-LM, SC'21, 2.2).
#[test]
fn interleaving_divides_the_bubble_by_the_chunks() {
    for (devices, chunks, micro_batches) in [(4_u32, 2_u32, 8_u32), (4, 4, 16), (8, 3, 32)] {
        let count = (devices * chunks) as usize;
        let stages = equal(count, 1.0 / f64::from(chunks), 2.0 / f64::from(chunks));
        let edges = vec![Edge::default(); count - 1];
        let order = Order::Interleaved { devices };
        let simulated = simulate(&pipeline(&stages, &edges, micro_batches, order)).unwrap();
        let bubble = 3.0 * f64::from(devices - 1) / f64::from(chunks);
        assert!((simulated.passes_seconds - 3.0 * f64::from(micro_batches) - bubble).abs() < 1e-9);
    }
}

/// AMP's formula is no bound of 1F1B: a heavy first stage works while the second one passes micro-batches on.
#[test]
fn amps_formula_can_exceed_the_simulation() {
    let stages = [equal(1, 10.0, 10.0), equal(1, 1.0, 1.0)].concat();
    let edges = [Edge::default()];
    let pipeline = pipeline(&stages, &edges, 4, Order::OneFOneB);
    assert_eq!(iteration_seconds(&pipeline).unwrap(), 80.0);
    assert_eq!(iteration(&stages, &edges, 4, Overlap::Computing), 82.0);
    assert_eq!(at_least(&pipeline), 80.0);
}

/// PipeDream keeps as many versions of a stage's weights as micro-batches in flight there, and never idles the
/// slowest stage.
#[test]
fn pipedream_keeps_weight_versions_and_never_flushes() {
    let stages = [equal(3, 1.0, 2.0), equal(1, 2.0, 3.0)].concat();
    let edges = [Edge::default(); 3];
    let simulated = simulate(&pipeline(&stages, &edges, 6, Order::PipeDream)).unwrap();
    assert_eq!((simulated.iteration_seconds, simulated.weight_versions), (30.0, vec![4, 3, 2, 1]));
    let last = simulated.lanes.last().unwrap();
    assert_eq!((last.busy, last.step), (30.0, None));
    assert!((simulated.bubble - 3.0 * 12.0 / 120.0).abs() < 1e-12);
}

/// What makes no pipeline is refused with the number that is wrong.
#[test]
fn wrong_numbers_are_named() {
    let stages = equal(4, 1.0, 1.0);
    let edges = [Edge::default(); 3];
    let of = |stages: &[Seconds], edges: &[Edge], count, order| {
        simulate(&pipeline(stages, edges, count, order)).unwrap_err().to_string()
    };
    assert!(of(&[], &[], 1, Order::Gpipe).contains("at least 1 stage"));
    assert!(of(&stages, &edges, 0, Order::Gpipe).contains("1 micro-batch"));
    assert!(of(&stages, &edges[..2], 1, Order::Gpipe).contains("3 edges"));
    assert!(of(&stages, &edges, 6, Order::Interleaved { devices: 4 }).contains("micro_batches is 6"));
    assert!(of(&stages, &edges, 6, Order::Interleaved { devices: 3 }).contains("stages is 4"));
    assert!(of(&stages, &edges, 6, Order::Interleaved { devices: 0 }).contains("multiple"));
    assert!(of(&stages, &edges, u32::MAX, Order::OneFOneB).contains("too many"));
    let mut endless = stages;
    endless[2].backward = f64::NAN;
    assert!(of(&endless, &edges, 1, Order::Gpipe).contains("stage 2"));
}
