//! The front against the enumeration of all plans.

use proptest::prelude::*;

use super::*;
use crate::tests::instances::{Shape, cases, closed_form, enumerate, instances};
use loadmaster_proto::bytes::Bytes;

/// Peak and seconds of the plans that none beats, fastest first, by the definition.
fn expected<C: StageCosts>(question: &Question<'_, C>, unit: Unit) -> Vec<(u64, f64)> {
    let plans = enumerate(question).into_iter().filter_map(|plan| {
        let peak = plan.iter().map(|stage| unit.of(stage.peak.bytes, Bytes(stage.capacity))).max()?;
        Some((closed_form(&plan, question.micro_batches)?, peak as f64))
    });
    let front = loadmaster_oracle::front(plans.collect());
    front.into_iter().map(|(seconds, peak)| (peak as u64, seconds)).collect()
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
        // The oracle has peaks as floating-point numbers: shares have more digits than these keep.
        let rounded = |peak: u64| peak as f64 as u64;
        let points: Vec<(u64, f64)> =
            found.points.iter().map(|point| (rounded(point.peak), point.plan.value.0)).collect();
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
