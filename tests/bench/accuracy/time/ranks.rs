//! How good the run is that is predicted to be the fastest.

use std::collections::BTreeMap;
use std::fmt;

use super::case::Case;

/// Over all groups of at least two runs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ranks {
    pub(super) groups: usize,
    /// How many have the truly fastest run first, and among the first two.
    first: usize,
    second: usize,
    /// The worst place of a truly fastest run.
    pub(super) worst: usize,
    /// Time lost by taking the run predicted best, as a share of the fastest one's: mean and most.
    mean_loss: f64,
    most_loss: f64,
}

impl Ranks {
    pub(super) fn of(cases: &[Case]) -> Self {
        let mut groups: BTreeMap<&str, Vec<&Case>> = BTreeMap::new();
        for case in cases {
            groups.entry(&case.group).or_default().push(case);
        }
        let mut ranks = Self { groups: 0, first: 0, second: 0, worst: 0, mean_loss: 0.0, most_loss: 0.0 };
        for group in groups.into_values().filter(|group| group.len() > 1) {
            let predicted = |case: &Case| case.predicted(0);
            let by = |of: fn(&Case) -> f64| group.iter().min_by(|a, b| of(a).total_cmp(&of(b))).copied();
            let (Some(best), Some(chosen)) = (by(|case| case.measured), by(|case| case.predicted(0))) else {
                continue;
            };
            // Ties count against the prediction.
            let rank = group.iter().filter(|case| predicted(case) <= predicted(best)).count();
            let loss = chosen.measured / best.measured - 1.0;
            ranks.groups += 1;
            ranks.first += usize::from(rank <= 1);
            ranks.second += usize::from(rank <= 2);
            ranks.worst = ranks.worst.max(rank);
            ranks.mean_loss += loss;
            ranks.most_loss = ranks.most_loss.max(loss);
        }
        ranks.mean_loss /= ranks.groups.max(1) as f64;
        ranks
    }
}

impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { groups, first, second, worst, mean_loss, most_loss } = self;
        write!(
            f,
            "first in {first} of {groups} groups, within two in {second}, at worst place {worst}; the run predicted \
             best takes {:.2} % longer than the best one on average, {:.2} % at most",
            100.0 * mean_loss,
            100.0 * most_loss
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accuracy::time::case::Answer;

    fn case(group: &str, measured: f64, simulated: f64) -> Case {
        let answers = vec![Answer { seconds: simulated, closed_form: 0.0, transfers: String::new() }];
        Case { name: String::new(), group: group.to_owned(), measured, answers }
    }

    /// The place of the truly fastest counts, ties count against it, and a group of one says nothing.
    #[test]
    fn the_fastest_is_looked_for_among_the_predictions() {
        let right = [case("a", 1.0, 1.5), case("a", 2.0, 1.9)];
        let third = [case("b", 1.0, 3.0), case("b", 1.2, 2.0), case("b", 5.0, 3.0)];
        let ranks = Ranks::of(&[&right[..], &third[..], &[case("c", 1.0, 9.0)]].concat());
        assert_eq!((ranks.groups, ranks.first, ranks.second, ranks.worst), (2, 1, 1, 3));
        assert!((ranks.most_loss - 0.2).abs() < 1e-12 && (ranks.mean_loss - 0.1).abs() < 1e-12);
    }
}
