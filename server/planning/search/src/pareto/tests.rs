//! The front against the enumeration of all plans.

use proptest::prelude::*;

use super::super::testing::{Shape, cases, enumerate, instances};
use super::super::time::Parts;
use super::*;

/// Peak and seconds of the plans that none beats, fastest first, by the definition.
fn expected<C: StageCosts>(question: &Question<'_, C>, unit: Unit) -> Vec<(u64, f64)> {
    let plans = enumerate(question).into_iter().filter_map(|plan| {
        let mut parts = Parts::default();
        let mut peak = 0;
        for stage in &plan {
            let seconds = stage.seconds?;
            parts.passes += seconds.passes();
            parts.inputs += stage.entry;
            parts.largest = parts.largest.max(seconds.passes());
            parts.step = parts.step.max(seconds.step);
            peak = peak.max(unit.of(stage.peak.bytes, loadmaster_proto::bytes::Bytes(stage.capacity)));
        }
        Some((peak, parts.time(question.micro_batches).0))
    });
    let plans: Vec<(u64, f64)> = plans.collect();
    let beats = |one: &(u64, f64), other: &(u64, f64)| one.0 <= other.0 && one.1 <= other.1 && one != other;
    let mut front: Vec<(u64, f64)> =
        plans.iter().filter(|plan| !plans.iter().any(|other| beats(other, plan))).copied().collect();
    front.sort_by(|one, other| one.1.total_cmp(&other.1));
    front.dedup();
    front
}

proptest! {
    #![proptest_config(cases(150))]

    /// The front is that of all plans: nothing missing, nothing beaten.
    #[test]
    fn fronts_agree_with_brute_force(
        instance in (0..5_usize).prop_flat_map(|shape| instances(Shape::ALL[shape])),
        shares in any::<bool>(),
    ) {
        let question = instance.question();
        let unit = if shares { Unit::Share } else { Unit::Bytes };
        let found = front(&question, unit, &Stop::default());
        prop_assert_eq!(found.ended, Ended::Proven);
        let points: Vec<(u64, f64)> = found.points.iter().map(|point| (point.peak, point.plan.value.0)).collect();
        prop_assert_eq!(points, expected(&question, unit));
    }

    /// Fronts of two questions come together as one front of both.
    #[test]
    fn merged_fronts_keep_what_none_beats(one in instances(Shape::PerStageMesh), other in instances(Shape::UniformGrid)) {
        let fronts = [one, other].map(|instance| front(&instance.question(), Unit::Bytes, &Stop::default()));
        let points: Vec<(usize, Point)> = fronts
            .iter()
            .enumerate()
            .flat_map(|(index, front)| front.points.iter().map(move |point| (index, point.clone())))
            .collect();
        let together = merged(points.clone());
        for (_, point) in &points {
            let is_matched =
                |(_, kept): &(usize, Point)| kept.peak <= point.peak && kept.plan.value <= point.plan.value;
            prop_assert!(together.iter().any(is_matched));
        }
        for pair in together.windows(2) {
            prop_assert!(pair[0].1.plan.value < pair[1].1.plan.value && pair[0].1.peak > pair[1].1.peak);
        }
    }
}
