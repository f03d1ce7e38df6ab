//! Tensor degrees that a search may use: those that its profiles have figures of, unless the request names others.

use loadmaster_proto::plan::objective::PlanShape;
use loadmaster_proto::plan::request::Goal;
use loadmaster_proto::training::stage::StageConfig;

use loadmaster_predict::Predictor;

/// What a search is restricted to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Reach {
    /// Tensor degrees, ascending; none where nothing restricts them.
    pub tensor_degrees: Vec<u32>,
    /// What to say about that, for people.
    pub note: Option<String>,
}

impl Reach {
    /// Of a request that is answered with these predictors, on nodes of at most so many devices.
    pub(crate) fn of<'a>(
        goal: &Goal,
        predictors: impl Iterator<Item = &'a (dyn Predictor + Send + Sync)>,
        largest_node: u32,
    ) -> Self {
        let named = &goal.constraints.tensor_degrees;
        if !named.is_empty() {
            return Self { tensor_degrees: named.clone(), note: None };
        }
        let common = predictors
            .filter_map(|predictor| predictor.tensor_degrees())
            .reduce(|one, other| (one.0.max(other.0), one.1.min(other.1)));
        // From rows of one degree none is extrapolated: whoever asks is told which row lacks.
        let Some((least, largest)) = common.filter(|(least, largest)| least < largest) else {
            return Self::default();
        };
        let powers = (0..=StageConfig::MAX_TENSOR_DEGREE.ilog2()).map(|power| 1_u32 << power);
        let (within, beyond): (Vec<u32>, Vec<u32>) =
            powers.partition(|degree| (least..=largest).contains(degree));
        if within.is_empty() {
            return Self::default();
        }
        // Only what would have been tried is missed.
        let is_sharded = !matches!(goal.shape, PlanShape::SinglePipeline | PlanShape::PerStageReplicas);
        let is_missed = is_sharded && beyond.iter().any(|&degree| degree > largest && degree <= largest_node);
        let listed: Vec<String> = within.iter().map(u32::to_string).collect();
        let note = is_missed.then(|| {
            format!(
                "tensor degrees were searched within the profile's rows alone ({}): name others in \
                 constraints.tensor_degrees to have figures extrapolated to them",
                listed.join(", ")
            )
        });
        Self { tensor_degrees: within, note }
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::plan::constraints::Constraints;

    use super::*;
    use loadmaster_predict::{Prediction, PredictionError, StageSetting};

    /// Has figures of these tensor degrees.
    struct Rows(Option<(u32, u32)>);

    impl Predictor for Rows {
        fn name(&self) -> &'static str {
            "rows/1"
        }

        fn layers(&self) -> usize {
            1
        }

        fn stage(&self, _setting: &StageSetting) -> Result<Prediction, PredictionError> {
            Err(PredictionError::NoSuchStage { first: 0, last: 0, layers: 1 })
        }

        fn sources(&self, _setting: &StageSetting) -> Vec<String> {
            Vec::new()
        }

        fn tensor_degrees(&self) -> Option<(u32, u32)> {
            self.0
        }
    }

    fn reach(goal: Goal, rows: &[Rows], largest_node: u32) -> Reach {
        let predictors = rows.iter().map(|rows| rows as &(dyn Predictor + Send + Sync));
        Reach::of(&goal, predictors, largest_node)
    }

    fn grid() -> Goal {
        Goal { shape: PlanShape::UniformGrid, ..Goal::default() }
    }

    /// What no row is about is a guess, and the search says that it did not make it.
    #[test]
    fn a_search_stays_within_the_rows_and_says_so() {
        let found = reach(grid(), &[Rows(Some((1, 4)))], 8);
        assert_eq!(found.tensor_degrees, [1, 2, 4]);
        assert!(found.note.unwrap().contains("(1, 2, 4)"));
        let small = reach(grid(), &[Rows(Some((1, 4)))], 4);
        assert_eq!(small.note, None, "no node has more devices: nothing was left out");
        let two = reach(grid(), &[Rows(Some((1, 8))), Rows(Some((2, 4))), Rows(None)], 8);
        assert_eq!(two.tensor_degrees, [2, 4], "what both kinds of devices have rows of");
    }

    /// Who names a degree gets it, and predictors without such limits restrict nothing.
    #[test]
    fn named_degrees_are_used_as_they_are() {
        let constraints = Constraints { tensor_degrees: vec![8], ..Constraints::default() };
        let named = Goal { constraints, ..grid() };
        assert_eq!(reach(named, &[Rows(Some((1, 4)))], 8).tensor_degrees, [8]);
        assert_eq!(reach(grid(), &[Rows(None)], 8), Reach::default());
        assert_eq!(reach(grid(), &[Rows(Some((1, 1)))], 8), Reach::default());
    }
}
