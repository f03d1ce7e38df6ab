//! The search against the enumeration of all plans.

mod orders;
mod recompute;

use proptest::prelude::*;

use super::*;
use crate::tests::instances::{
    Dice, Instance, Shape, WeighedStage, cases, closed_form, enumerate, instances,
};

/// The best of all plans within a cap.
fn best(question: &Question<'_, Dice>, cap: Option<Cap>) -> Option<f64> {
    let within = |stage: &WeighedStage| {
        cap.is_none_or(|cap| {
            let capacity = loadmaster_proto::bytes::Bytes(stage.capacity);
            cap.unit.of(stage.peak.bytes, capacity) <= cap.most
        })
    };
    let plans = enumerate(question).into_iter().filter(|plan| plan.iter().all(within));
    plans.filter_map(|plan| closed_form(&plan, question.micro_batches)).reduce(f64::min)
}

/// The answer is proven, worth what it says, and nothing is better.
fn check(instance: &Instance, cap: Option<Cap>) -> Result<(), TestCaseError> {
    let question = instance.question();
    let expected = best(&question, cap);
    let limits = Limits { cap, below: None };
    let answer = fastest(&question, &limits, &Stop::default());
    prop_assert_eq!(answer.ended, Ended::Proven);
    prop_assert_eq!(answer.best.as_ref().map(|plan| plan.value.0), expected);
    if let Some(plan) = &answer.best {
        prop_assert_eq!(answer.bound, Some(plan.value));
        let parts = parts(&question, &plan.stages).expect("a plan that was found can be run");
        prop_assert_eq!(parts.time(question.micro_batches), plan.value);
        let known = enumerate(&question).iter().any(|other| {
            other.len() == plan.stages.len()
                && other.iter().zip(&plan.stages).all(|(other, stage)| other.placed == *stage)
        });
        prop_assert!(known, "not a plan of the question: {:?}", plan);
        // What is not below the best is not looked for.
        let none = fastest(&question, &Limits { cap, below: Some(plan.value) }, &Stop::default());
        prop_assert!(none.best.is_none());
        prop_assert_eq!(none.bound, Some(plan.value));
    }
    Ok(())
}

macro_rules! shapes {
    ($($name:ident: $shape:ident;)*) => {
        proptest! {
            #![proptest_config(cases(120))]
            $(
                /// The lowest iteration time of the shape is that of the best of all its plans.
                #[test]
                fn $name(instance in instances(Shape::$shape), cap in proptest::option::of((any::<bool>(), 0_u64..40))) {
                    let cap = cap.map(|(share, most)| if share {
                        Cap { unit: Unit::Share, most: most * (Unit::WHOLE / 30) }
                    } else {
                        Cap { unit: Unit::Bytes, most }
                    });
                    check(&instance, cap)?;
                }
            )*
        }
    };
}

shapes! {
    uniform_grids_agree_with_brute_force: UniformGrid;
    equal_devices_agree_with_brute_force: EqualDevices;
    replicas_per_stage_agree_with_brute_force: PerStageReplicas;
    single_pipelines_agree_with_brute_force: SinglePipeline;
    meshes_per_stage_agree_with_brute_force: PerStageMesh;
}

proptest! {
    #![proptest_config(cases(60))]

    /// A race keeps the fastest plans of several questions, in order, and knows that none is faster.
    #[test]
    fn races_keep_the_fastest(
        instances in proptest::collection::vec((0..5_usize).prop_flat_map(|shape| instances(Shape::ALL[shape])), 1..6),
        most in 1_usize..4,
    ) {
        let mut race = Race::new(most, None);
        for (index, instance) in instances.iter().enumerate() {
            race.enter(index, &instance.question(), &Stop::default());
        }
        let mut expected: Vec<(f64, usize)> = instances
            .iter()
            .enumerate()
            .filter_map(|(index, instance)| Some((best(&instance.question(), None)?, index)))
            .collect();
        expected.sort_by(|one, other| one.0.total_cmp(&other.0));
        let kept: Vec<f64> = race.kept().iter().map(|(_, plan)| plan.value.0).collect();
        let fastest: Vec<f64> = expected.iter().take(most).map(|&(value, _)| value).collect();
        prop_assert_eq!(&kept, &fastest);
        let (key, answer) = race.finish();
        prop_assert_eq!(answer.ended, Ended::Proven);
        prop_assert_eq!(answer.best.map(|plan| plan.value.0), fastest.first().copied());
        prop_assert_eq!(key.is_some(), !fastest.is_empty());
    }

    /// Counting the stages to come late, or never, finds the same, or says how far off it may be.
    #[test]
    fn late_counting_is_exact_and_none_is_bounded(instance in (0..5_usize).prop_flat_map(|shape| instances(Shape::ALL[shape]))) {
        let question = instance.question();
        let expected = best(&question, None);
        let late = WhenCounted { at_once: 0, ..WhenCounted::USUAL };
        let answer = fastest_counting(&question, &Limits::default(), late, &Stop::default());
        prop_assert_eq!(answer.ended, Ended::Proven);
        prop_assert_eq!(answer.best.map(|plan| plan.value.0), expected);
        let never = WhenCounted { at_once: 0, at_all: 0 };
        let answer = fastest_counting(&question, &Limits::default(), never, &Stop::default());
        let value = answer.best.as_ref().map_or(f64::INFINITY, |plan| plan.value.0);
        let expected = expected.unwrap_or(f64::INFINITY);
        prop_assert!(value >= expected);
        prop_assert!(answer.bound.is_some_and(|bound| bound.0 <= expected));
        prop_assert!(answer.ended == Ended::Bounded || value == expected);
    }

    /// A stopped search reports that it was stopped, and neither its plan nor its bound is too good.
    #[test]
    fn stopped_searches_are_honest(instance in instances(Shape::PerStageMesh)) {
        let question = instance.question();
        let stop = Stop::default();
        stop.request();
        let answer = fastest(&question, &Limits::default(), &stop);
        let expected = best(&question, None).unwrap_or(f64::INFINITY);
        prop_assert_eq!(answer.ended, Ended::Stopped);
        prop_assert!(answer.bound.is_none_or(|bound| bound.0 <= expected));
        prop_assert!(answer.best.is_none_or(|plan| plan.value.0 >= expected));
    }

    /// One that its effort ends is bounded, and neither its plan nor its bound is too good.
    #[test]
    fn searches_that_effort_ends_are_honest(instance in instances(Shape::PerStageMesh), effort in 0_u64..20_000) {
        let question = instance.question();
        let answer = fastest(&question, &Limits::default(), &Stop::default().within(effort));
        let expected = best(&question, None).unwrap_or(f64::INFINITY);
        prop_assert!(answer.ended != Ended::Stopped);
        prop_assert!(answer.bound.is_none_or(|bound| bound.0 <= expected));
        prop_assert!(answer.best.as_ref().is_none_or(|plan| plan.value.0 >= expected));
        if answer.ended == Ended::Proven {
            prop_assert_eq!(answer.best.map_or(f64::INFINITY, |plan| plan.value.0), expected);
        }
    }
}
