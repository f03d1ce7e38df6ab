//! The search against every plan, each simulated.

use proptest::prelude::*;

use super::*;
use crate::memory::{Peaks, Run};
use crate::tests::instances::{Instance, Shape, WeighedStage, cases, enumerate, instances};
use crate::{Schedule, Seconds};
use loadmaster_oracle::{CommunicationOverlap, Edge, Pipeline, front};

/// A plan's simulated seconds, peaks and highest peak; none where its seconds are not known.
fn weigh(instance: &Instance, plan: &[WeighedStage], terms: Terms) -> Option<(f64, Peaks)> {
    let question = instance.question();
    let seconds = plan.iter().map(|stage| {
        let Seconds { forward, backward, step } = stage.seconds?;
        Some(loadmaster_oracle::Seconds { forward, backward, step })
    });
    let edges = plan.windows(2).map(|pair| {
        let step = question.places.steps(pair[1].placed.from)[pair[1].placed.step];
        let seconds = |stage: &WeighedStage| {
            question.costs.cut_seconds(pair[0].placed.last, step.entry, stage.placed.choice)
        };
        // Half of the way there and back.
        Edge::each_way(seconds(&pair[0]).max(seconds(&pair[1])) / 2.0)
    });
    let simulated = Pipeline {
        stages: &seconds.collect::<Option<Vec<_>>>()?,
        edges: &edges.collect::<Vec<_>>(),
        micro_batches: instance.micro_batches,
        transfers: match terms.overlap {
            Overlap::Computing => CommunicationOverlap::On,
            Overlap::Nothing => CommunicationOverlap::Off,
        },
    };
    let schedule = match instance.schedule {
        Schedule::Gpipe => loadmaster_oracle::Schedule::Gpipe,
        _ => loadmaster_oracle::Schedule::OneFOneB,
    };
    let peaks = Peaks::of(plan.iter().map(|stage| Run { peak: stage.peak.bytes, devices: stage.devices }));
    Some((simulated.iteration(schedule), peaks))
}

fn all(instance: &Instance, terms: Terms) -> Vec<(f64, Peaks)> {
    let most = terms.most_bytes.unwrap_or(u64::MAX);
    let plans = enumerate(&instance.question()).into_iter().filter_map(|plan| weigh(instance, &plan, terms));
    plans.filter(|(_, peaks)| peaks.highest().unwrap_or(0) <= most).collect()
}

fn any_instance() -> impl Strategy<Value = (Instance, Terms)> {
    let instance = (0..Shape::ALL.len()).prop_flat_map(|shape| instances(Shape::ALL[shape]));
    let most = prop_oneof![2 => Just(None), 1 => (0_u64..60).prop_map(Some)];
    (instance, any::<bool>(), any::<bool>(), most).prop_map(|(instance, blocks, counts_waits, most_bytes)| {
        let overlap = if blocks { Overlap::Nothing } else { Overlap::Computing };
        (instance, Terms { overlap, unit: Unit::Bytes, most_bytes, is_timed: true, counts_waits })
    })
}

fn run(instance: &Instance, terms: Terms, wanted: &mut dyn Wanted, effort: u64) -> Outcome {
    let passes = Stop::default().within(effort.saturating_mul(branch::PASS));
    search(&instance.question(), terms, wanted, &Stop::default(), &passes)
}

proptest! {
    #![proptest_config(cases(400))]

    /// No plan is faster, as simulated; and what all plans need at least is no more than any of them needs.
    #[test]
    fn no_plan_is_faster((instance, terms) in any_instance()) {
        let plans = all(&instance, terms);
        let least = plans.iter().map(|(seconds, _)| *seconds).reduce(f64::min);
        let mut fastest = Fastest::below(f64::INFINITY);
        let outcome = run(&instance, terms, &mut fastest, u64::MAX);
        prop_assert_eq!(fastest.best.map(|plan| plan.seconds), least);
        prop_assert_eq!((outcome.ended, outcome.open_seconds), (Ended::Proven, f64::INFINITY));
        let whole = at_least(&instance.question(), terms, &Stop::default()).unwrap();
        prop_assert!(whole.seconds <= least.unwrap_or(f64::INFINITY));
        let lowest = plans.iter().filter_map(|(_, peaks)| peaks.highest()).min();
        prop_assert!(whole.highest <= lowest.unwrap_or(u64::MAX));
    }

    /// Ended early, it says what no plan is faster than.
    #[test]
    fn an_ended_search_bounds_what_it_left_out((instance, terms) in any_instance(), effort in 0_u64..400) {
        let least = all(&instance, terms).into_iter().map(|(seconds, _)| seconds).reduce(f64::min);
        let mut fastest = Fastest::below(f64::INFINITY);
        let outcome = run(&instance, terms, &mut fastest, effort);
        let found = fastest.best.map_or(f64::INFINITY, |plan| plan.seconds);
        if let Some(least) = least {
            prop_assert!(found.min(outcome.open_seconds) <= least, "{found} {outcome:?} {least}");
        }
        prop_assert!(outcome.ended == Ended::Bounded || outcome.open_seconds.is_infinite());
    }

    /// No plan within a time has lower peaks, and of equals none is faster.
    #[test]
    fn no_plan_within_a_time_has_lower_peaks((instance, terms) in any_instance(), limit in 1.0..80.0_f64) {
        let limit = limit.round();
        let within = all(&instance, terms).into_iter().filter(|(seconds, _)| *seconds <= limit);
        let lowest = within.map(|(_, peaks)| peaks).min();
        let mut wanted = LowestPeaks::within(limit, None);
        let outcome = run(&instance, terms, &mut wanted, u64::MAX);
        prop_assert_eq!(wanted.best.map(|plan| plan.peaks), lowest);
        prop_assert_eq!((outcome.ended, outcome.open_peak), (Ended::Proven, u64::MAX));
    }

    /// A front has every pair of seconds and highest peak that no plan beats in both.
    #[test]
    fn fronts_are_complete((instance, terms) in any_instance()) {
        let plans = all(&instance, terms);
        let pairs = plans.iter().map(|(seconds, peaks)| (*seconds, peaks.highest().unwrap_or(0) as f64)).collect();
        let expected = front(pairs);
        let mut found = SimulatedFront::default();
        run(&instance, terms, &mut found, u64::MAX);
        let mut known: Vec<(f64, f64)> =
            found.known.iter().map(|&(seconds, peak)| (seconds, peak as f64)).collect();
        known.sort_by(|one, other| one.0.total_cmp(&other.0));
        prop_assert_eq!(known, expected);
    }
}
