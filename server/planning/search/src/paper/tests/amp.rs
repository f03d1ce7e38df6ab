//! AMP's modes against the exact search.

use proptest::prelude::*;

use super::super::super::time::{Limits, Time, fastest};
use super::super::super::{
    Choice, Cuts, Ended, Link, LinkId, Peak, Places, Question, Searched, Seconds, Spanning, StageAt,
    StageCosts, Stop,
};
use super::super::{Annealing, Recursion, Strategy as Way, annealing, pipe_ast};
use crate::tests::instances::{Dice, Instance, Shape, cases, instances};

/// A question that AMP's program knows: stages that cost the sum of their layers, on devices that are alike,
/// with nothing else in the way.
fn plain(mut instance: Instance) -> Instance {
    instance.costs.adds_up = true;
    instance.costs.one_missing_in = u64::MAX;
    instance.within_capacity = false;
    instance.stages = 1..=usize::MAX;
    instance.cuts = Cuts::anywhere(instance.costs.layers);
    for node in &mut instance.fleet.nodes {
        node.kind = 0;
    }
    instance.places = Places::in_order(&instance.fleet, &[1], Spanning::Never);
    instance.choices = vec![0];
    instance.costs.links.resize(instance.places.links().len(), 1);
    instance
}

/// Costs without the second that every stage of the dice takes beyond its layers, and without steps.
#[derive(Debug)]
struct LayersAlone<'a>(&'a Dice);

impl StageCosts for LayersAlone<'_> {
    fn layers(&self) -> usize {
        self.0.layers
    }

    fn choices(&self) -> &[Choice] {
        self.0.choices()
    }

    fn seconds(&self, stage: &StageAt) -> Option<Seconds> {
        let seconds = self.0.seconds(stage)?;
        Some(Seconds { forward: seconds.forward - 1.0, step: 0.0, ..seconds })
    }

    fn peak(&self, stage: &StageAt, in_flight: u32) -> Option<Peak> {
        self.0.peak(stage, in_flight)
    }

    fn cut_seconds(&self, layer: usize, link: LinkId, choice: usize) -> f64 {
        self.0.cut_seconds(layer, link, choice)
    }

    fn cut_seconds_over(&self, layer: usize, link: Link, choice: usize) -> f64 {
        self.0.cut_seconds_over(layer, link, choice)
    }
}

fn value(answer: &Searched<Time>) -> Option<f64> {
    answer.best.as_ref().map(|plan| plan.value.0)
}

proptest! {
    #![proptest_config(cases(100))]

    /// Equation 8 finds the best assignment where a stage is its layers; the authors' program finds none better.
    #[test]
    fn the_assignment_of_the_paper_is_the_best(instance in instances(Shape::SinglePipeline).prop_map(plain)) {
        let costs = LayersAlone(&instance.costs);
        let question = Question {
            costs: &costs,
            fleet: &instance.fleet,
            places: &instance.places,
            choices: &instance.choices,
            schedule: instance.schedule,
            micro_batches: instance.micro_batches,
            stages: instance.stages.clone(),
            cuts: &instance.cuts,
            within_capacity: false,
        };
        let exact = value(&fastest(&question, &Limits::default(), &Stop::default()));
        let paper = pipe_ast(&question, Recursion::Equation, &Stop::default());
        prop_assert_eq!(value(&paper), exact);
        prop_assert_eq!(paper.ended, Ended::Bounded);
        let program = value(&pipe_ast(&question, Recursion::Program, &Stop::default()));
        prop_assert_eq!(program.is_some(), exact.is_some());
        prop_assert!(program >= exact);
    }

    /// Whatever the question, a plan of AMP's is one of its plans, so none beats the exact search.
    #[test]
    fn plans_of_the_paper_are_plans(instance in (0..5_usize).prop_flat_map(|shape| instances(Shape::ALL[shape]))) {
        let question = instance.question();
        let exact = value(&fastest(&question, &Limits::default(), &Stop::default()));
        for recursion in [Recursion::Equation, Recursion::Program] {
            if let Some(found) = value(&pipe_ast(&question, recursion, &Stop::default())) {
                prop_assert!(exact.is_some_and(|exact| exact <= found));
            }
        }
    }

    /// The same seed anneals to the same answer, whose stages take all devices.
    #[test]
    fn annealing_is_reproducible(instance in instances(Shape::PerStageMesh), seed in any::<u64>()) {
        let ways: Vec<Way> = [(1, 1), (2, 1), (1, 2)]
            .map(|(data, tensor)| Way { data, tensor, micro_batch: 1 })
            .to_vec();
        let settings = Annealing { seed, iterations: 10 };
        let anneal = || {
            annealing(&instance.fleet, &ways, settings, &Stop::default(), |way, places| {
                let costs = Dice { links: vec![1; places.links().len()], ..instance.costs.clone() };
                let choices: Vec<usize> = (0..costs.choices.len())
                    .filter(|&choice| (costs.choices[choice].data, costs.choices[choice].tensor) == (way.data, way.tensor))
                    .collect();
                let cuts = Cuts::anywhere(costs.layers);
                let question = Question { costs: &costs, places, choices: &choices, cuts: &cuts, ..instance.question() };
                fastest(&question, &Limits::default(), &Stop::default()).best
            })
        };
        let (annealed, answer) = anneal();
        prop_assert_eq!(annealed.is_some(), answer.best.is_some());
        if let (Some(annealed), Some(plan)) = (&annealed, &answer.best) {
            let mut devices: Vec<u32> = annealed.places.resolve(&plan.stages).into_iter().flatten().collect();
            devices.sort_unstable();
            prop_assert_eq!(devices, (0..instance.fleet.devices()).collect::<Vec<u32>>());
        }
        prop_assert_eq!(anneal(), (annealed, answer));
    }
}
