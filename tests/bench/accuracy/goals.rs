//! What the predictors are meant to reach, and whether they do.

use crate::accuracy::row::{Group, Row};
use crate::stats::{Distribution, quantile};
use crate::table::{Goal, or_unmeasured, percent};

/// The predictor that the goals are set for.
pub(crate) const DEFAULT: &str = "component";
/// Largest margin that may be advertised in fp32 at the extents of everyday models.
const MOST_MARGIN: f64 = 0.05;
/// Least stages in bf16 or of odd extents.
const ODD_STAGES: usize = 500;

/// What is not in the rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Extras {
    /// Device-seconds of the default profile over those of the paper's campaign, on the model of the goal.
    pub(crate) profile_share: Option<f64>,
    /// Highest peak of the chosen plan over that of the best one, as measured; the worst of all studies.
    pub(crate) plan_ratio: Option<f64>,
}

/// All goals over everything that was compared.
pub(crate) fn goals(rows: &[Row], extras: &Extras) -> Vec<Goal> {
    let of = |group| Selected::new(rows, group);
    let imported = Selected { rows: rows.iter().filter(|row| row.group == Group::Imported).collect() };
    vec![
        of(Group::Stages).judge("stages, degree 1", "-", "p90 ≤ 1 %, p99 ≤ 3 %", |found| {
            found.p90 <= 0.01 && found.p99 <= 0.03
        }),
        of(Group::Partitionings).judge(
            "partitionings of VGG11 over 4 devices, composed of measured stages",
            "≤ 14 % for 90 %",
            "p90 ≤ 1 %, max ≤ 5 %",
            |found| found.p90 <= 0.01 && found.max <= 0.05,
        ),
        of(Group::Parallel).judge("data / tensor 2, 4", "-", "p90 ≤ 2 %", |found| found.p90 <= 0.02),
        of(Group::Extrapolated)
            .judge("degree 8, 16; batch 4×", "-", "p90 ≤ 5 %", |found| found.p90 <= 0.05),
        coverage(rows),
        upper_ends(rows),
        imported.judge(
            "peak memory of 14 GH200 plans, imported",
            "5.7 % mean",
            "mean ≤ 5 %, lowest ≥ −5 %",
            |found| found.mean <= 0.05 && found.lowest >= -0.05,
        ),
        imported.within_margin(),
        ratio(
            "device-seconds, GPT-2 with 24 blocks",
            "10 (L − 1) runs",
            "≤ 1/10 of paper",
            extras.profile_share,
            0.1,
        ),
        ratio("plan chosen / best measured", "1.05", "≤ 1.01", extras.plan_ratio, 1.01),
    ]
}

/// The default predictor's rows of a group.
struct Selected<'a> {
    rows: Vec<&'a Row>,
}

impl<'a> Selected<'a> {
    fn new(rows: &'a [Row], group: Group) -> Self {
        Self { rows: rows.iter().filter(|row| row.group == group && is_default(row)).collect() }
    }

    /// A refusal is a goal missed: there was a question and no answer.
    fn judge(
        &self,
        what: &'static str,
        mark: &'static str,
        wanted: &'static str,
        meets: impl Fn(&Distribution) -> bool,
    ) -> Goal {
        let errors: Vec<f64> = self.rows.iter().filter_map(|row| row.error()).collect();
        let refused = self.rows.len() - errors.len();
        let Some(found) = Distribution::of(&errors) else {
            let met = (refused > 0).then_some(false);
            return Goal::new([what, mark], wanted, refusals(refused, "not measured"), met);
        };
        let reached = format!(
            "p90 {}, p99 {}, max {}, mean {}, lowest {} of {}{}",
            percent(found.p90),
            percent(found.p99),
            percent(found.max),
            percent(found.mean),
            percent(found.lowest),
            found.count,
            refusals(refused, "")
        );
        Goal::new([what, mark], wanted, reached, Some(refused == 0 && meets(&found)))
    }
}

impl Selected<'_> {
    /// Whether devices had room for what was predicted of imported plans and its margin.
    fn within_margin(&self) -> Goal {
        let judged: Vec<bool> = self.rows.iter().filter_map(|row| row.is_covered()).collect();
        let covered = judged.iter().filter(|covered| **covered).count();
        let margin = self.rows.iter().filter_map(|row| row.margin()).fold(0.0, f64::max);
        let asked = self.rows.len();
        let reached = match asked {
            0 => "not measured".to_owned(),
            _ => format!("{covered} of {asked}, margin {}", percent(margin)),
        };
        let met = (asked > 0).then_some(covered == asked);
        Goal::new(["GH200 plans with room at their margin", "-"], "all", reached, met)
    }
}

fn refusals(count: usize, none: &str) -> String {
    if count == 0 { none.to_owned() } else { format!(", {count} refused") }
}

fn is_default(row: &Row) -> bool {
    row.predictor.split('/').next() == Some(DEFAULT)
}

fn coverage(rows: &[Row]) -> Goal {
    let rows = || rows.iter().filter(|row| is_default(row) && row.group != Group::Odd);
    let judged: Vec<(&Row, bool)> = rows().filter_map(|row| Some((row, row.is_covered()?))).collect();
    let asked = rows().filter(|row| row.error().is_some()).count();
    let covered = judged.iter().filter(|(_, covered)| *covered).count();
    let margin = judged.iter().filter_map(|(row, _)| row.margin()).fold(0.0, f64::max);
    let (reached, met) = if asked == 0 {
        ("not measured".to_owned(), None)
    } else {
        let text = format!(
            "{covered} of {asked} covered, {} without a margin, largest margin {}",
            asked - judged.len(),
            percent(margin)
        );
        (text, Some(covered == asked && margin <= MOST_MARGIN))
    };
    Goal::new(
        ["coverage at the advertised margin, fp32", "nobody reports it"],
        "100 %, margin ≤ 5 %",
        reached,
        met,
    )
}

/// Stages in bf16 or of odd extents that needed more than was advertised. What is refused, or has no margin, is a
/// miss.
fn upper_ends(rows: &[Row]) -> Goal {
    let of: Vec<&Row> = rows.iter().filter(|row| is_default(row) && row.group == Group::Odd).collect();
    let mut margins: Vec<f64> = of.iter().filter_map(|row| row.margin()).collect();
    margins.sort_by(f64::total_cmp);
    let above = of.iter().filter(|row| row.is_covered() != Some(true)).count();
    let too_low = of.iter().filter(|row| row.error().is_some_and(|error| error < 0.0)).count();
    let (reached, met) = if of.is_empty() {
        ("not measured".to_owned(), None)
    } else {
        let text = format!(
            "{above} of {} above, {too_low} above what was predicted without the margin; margins p50 {}, p90 {}",
            of.len(),
            percent(quantile(&margins, 0.5)),
            percent(quantile(&margins, 0.9)),
        );
        (text, Some(above == 0 && of.len() >= ODD_STAGES))
    };
    Goal::new(["stages in bf16 and odd sizes above their upper end", "1 of 127"], "0 of ≥ 500", reached, met)
}

fn ratio(
    what: &'static str,
    mark: &'static str,
    wanted: &'static str,
    found: Option<f64>,
    most: f64,
) -> Goal {
    let reached = or_unmeasured(found, |found| format!("{found:.4}"));
    Goal::new([what, mark], wanted, reached, found.map(|found| found <= most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accuracy::row::{Answer, example};

    fn met(rows: &[Row], what: &str) -> Option<bool> {
        let goals = goals(rows, &Extras::default());
        goals.into_iter().find(|goal| goal.what.starts_with(what)).unwrap().met
    }

    fn stage(bytes: u64) -> Row {
        example(Group::Stages, "component/1", 10_000, bytes, Some(0.02))
    }

    /// Quantiles decide, other predictors do not count.
    #[test]
    fn a_goal_is_met_by_the_default_predictor_alone() {
        let mut rows = vec![stage(10_050); 9];
        rows.push(stage(10_250));
        assert_eq!(met(&rows, "stages, degree 1"), Some(true));
        rows.push(example(Group::Stages, "capture/1", 10_000, 20_000, None));
        assert_eq!(met(&rows, "stages, degree 1"), Some(true));
        rows.extend([stage(10_250), stage(10_250)]);
        assert_eq!(met(&rows, "stages, degree 1"), Some(false));
        assert_eq!(met(&rows, "partitionings"), None, "nothing measured is no miss");
    }

    /// A question without an answer is a miss, however good the other answers are.
    #[test]
    fn a_refusal_is_a_miss() {
        let refused = Row { answer: Answer::Refused("gap".to_owned()), ..stage(1) };
        assert_eq!(met(&[stage(10_000), refused.clone()], "stages, degree 1"), Some(false));
        assert_eq!(met(&[refused], "stages, degree 1"), Some(false));
    }

    /// One uncovered stage is one too many, and so is a margin that nobody could use.
    #[test]
    fn coverage_needs_every_stage_and_a_small_margin() {
        let with = |bytes, margin| example(Group::Stages, "component/1", 10_000, bytes, margin);
        assert_eq!(met(&[with(9_900, Some(0.02))], "coverage"), Some(true));
        assert_eq!(met(&[with(9_900, Some(0.02)), with(9_000, Some(0.02))], "coverage"), Some(false));
        assert_eq!(met(&[with(9_900, Some(0.2))], "coverage"), Some(false));
        assert_eq!(met(&[with(10_000, None)], "coverage"), Some(false));
        assert_eq!(met(&[], "coverage"), None);
    }

    /// Hundreds of stages, and none above; their wide margins are no concern of the other promise.
    #[test]
    fn no_stage_in_bf16_may_be_above_its_upper_end() {
        let with = |measured| example(Group::Odd, "component/2", measured, 10_000, Some(0.2));
        let mut rows = vec![with(11_900); ODD_STAGES - 1];
        assert_eq!(met(&rows, "stages in bf16"), Some(false), "too few");
        rows.push(with(12_000));
        assert_eq!(met(&rows, "stages in bf16"), Some(true));
        assert_eq!(met(&rows, "coverage"), None);
        rows.push(with(12_001));
        assert_eq!(met(&rows, "stages in bf16"), Some(false));
        rows.pop();
        rows.push(Row { answer: Answer::Refused("gap".to_owned()), ..with(1) });
        assert_eq!(met(&rows, "stages in bf16"), Some(false));
        assert_eq!(met(&[], "stages in bf16"), None);
    }

    /// Imported plans may err, but not much downwards.
    #[test]
    fn imported_plans_are_judged_by_mean_and_lowest() {
        let plan = |bytes| example(Group::Imported, "table/2", 10_000, bytes, None);
        assert_eq!(met(&[plan(10_700), plan(9_600)], "peak memory"), Some(false), "mean 5.5 %");
        assert_eq!(met(&[plan(10_300), plan(9_600)], "peak memory"), Some(true));
        assert_eq!(met(&[plan(10_000), plan(9_400)], "peak memory"), Some(false));
        let at_ten = |bytes| example(Group::Imported, "table/2", 10_000, bytes, Some(0.1));
        assert_eq!(met(&[at_ten(9_100), at_ten(10_000)], "GH200 plans with room"), Some(true));
        assert_eq!(met(&[at_ten(9_000), at_ten(10_000)], "GH200 plans with room"), Some(false));
        assert_eq!(met(&[plan(10_000)], "GH200 plans with room"), Some(false), "no margin is no promise");
    }

    #[test]
    fn ratios_are_compared_with_their_limit() {
        let extras = Extras { profile_share: Some(0.05), plan_ratio: Some(1.02) };
        let goals = goals(&[], &extras);
        assert_eq!(goals.iter().map(|goal| goal.met).collect::<Vec<_>>()[8..], [Some(true), Some(false)]);
    }
}
