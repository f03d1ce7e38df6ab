//! What the predictors are meant to reach, and whether they do.

use crate::accuracy::row::{Group, Row};
use crate::report::{Goal, or_unmeasured};
use crate::stats::{Distribution, quantile};
use crate::table::percent;

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
    let rows_of = |group| rows.iter().filter(|row| row.group == group && is_default(row)).collect::<Vec<_>>();
    let imported: Vec<&Row> = rows.iter().filter(|row| row.group == Group::Imported).collect();
    let share = |share: f64| format!("{share:.4}");
    vec![
        judge(&rows_of(Group::Stages), "stages, degree 1", "p90 ≤ 1 %, p99 ≤ 3 %", |found| {
            found.p90 <= 0.01 && found.p99 <= 0.03
        }),
        judge(
            &rows_of(Group::Partitionings),
            "partitionings of VGG11 over 4 devices, composed of measured stages",
            "p90 ≤ 1 %, max ≤ 5 %",
            |found| found.p90 <= 0.01 && found.max <= 0.05,
        )
        .beside("≤ 14 % for 90 %"),
        judge(&rows_of(Group::Parallel), "data / tensor 2, 4", "p90 ≤ 2 %", |found| found.p90 <= 0.02),
        judge(&rows_of(Group::Extrapolated), "degree 8, 16; batch 4×", "p90 ≤ 5 %", |found| {
            found.p90 <= 0.05
        }),
        coverage(rows),
        upper_ends(&rows_of(Group::Odd)),
        judge(
            &imported,
            "peak memory of 14 GH200 plans, imported",
            "mean ≤ 5 %, lowest ≥ −5 %",
            |found| found.mean <= 0.05 && found.lowest >= -0.05,
        )
        .beside("5.7 % mean"),
        within_margin(&imported),
        Goal::at_most(
            "device-seconds, GPT-2 with 24 blocks, of the paper's",
            0.1,
            extras.profile_share,
            share,
        )
        .beside("10 (L − 1) runs"),
        Goal::at_most("plan chosen / best measured", 1.01, extras.plan_ratio, share).beside("1.05"),
    ]
}

/// A refusal is a goal missed: there was a question and no answer.
fn judge(rows: &[&Row], what: &str, wanted: &str, meets: impl Fn(&Distribution) -> bool) -> Goal {
    let errors: Vec<f64> = rows.iter().filter_map(|row| row.error()).collect();
    let refused = rows.len() - errors.len();
    let found = Distribution::of(&errors);
    let mut reached = or_unmeasured(found, |found| found.to_string());
    if refused > 0 {
        reached.push_str(&format!(", {refused} refused"));
    }
    let met = found.map(|found| refused == 0 && meets(&found));
    Goal::new(what, wanted, reached, met.or_else(|| (refused > 0).then_some(false)))
}

fn is_default(row: &Row) -> bool {
    row.predictor.split('/').next() == Some(DEFAULT)
}

/// How many devices had room for what was predicted and its margin, and the largest margin.
fn covered(rows: &[&Row]) -> (usize, f64) {
    let covered = rows.iter().filter(|row| row.is_covered() == Some(true)).count();
    (covered, rows.iter().filter_map(|row| row.margin()).fold(0.0, f64::max))
}

fn within_margin(rows: &[&Row]) -> Goal {
    let (covered, margin) = covered(rows);
    let measured = (!rows.is_empty()).then_some(covered == rows.len());
    let text = |_| format!("{covered} of {}, margin {}", rows.len(), percent(margin));
    Goal::new("GH200 plans with room at their margin", "all", or_unmeasured(measured, text), measured)
}

fn coverage(rows: &[Row]) -> Goal {
    let answered = |row: &&Row| is_default(row) && row.group != Group::Odd && row.error().is_some();
    let rows: Vec<&Row> = rows.iter().filter(answered).collect();
    let (covered, margin) = covered(&rows);
    let without = rows.iter().filter(|row| row.margin().is_none()).count();
    let measured = (!rows.is_empty()).then_some(covered == rows.len() && margin <= MOST_MARGIN);
    let text = |_| {
        let (all, margin) = (rows.len(), percent(margin));
        format!("{covered} of {all} covered, {without} without a margin, largest margin {margin}")
    };
    let reached = or_unmeasured(measured, text);
    Goal::new("coverage at the advertised margin, fp32", "100 %, margin ≤ 5 %", reached, measured)
        .beside("nobody reports it")
}

/// Stages in bf16 or of odd extents that needed more than was advertised. What is refused, or has no margin, is a
/// miss.
fn upper_ends(rows: &[&Row]) -> Goal {
    let mut margins: Vec<f64> = rows.iter().filter_map(|row| row.margin()).collect();
    margins.sort_by(f64::total_cmp);
    let above = rows.len() - covered(rows).0;
    let too_low = rows.iter().filter(|row| row.error().is_some_and(|error| error < 0.0)).count();
    let measured = (!rows.is_empty()).then_some(above == 0 && rows.len() >= ODD_STAGES);
    let text = |_| {
        format!(
            "{above} of {} above, {too_low} above what was predicted without the margin; margins p50 {}, p90 {}",
            rows.len(),
            percent(quantile(&margins, 0.5)),
            percent(quantile(&margins, 0.9)),
        )
    };
    let reached = or_unmeasured(measured, text);
    Goal::new("stages in bf16 and odd sizes above their upper end", "0 of ≥ 500", reached, measured)
        .beside("1 of 127")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accuracy::row::example;

    fn met(rows: &[Row], what: &str) -> Option<bool> {
        let goals = goals(rows, &Extras::default());
        goals.into_iter().find(|goal| goal.what.starts_with(what)).unwrap().met
    }

    /// Quantiles of the default predictor decide; a question without an answer is a miss, and so is one uncovered stage, too
    /// large a margin, or one stage in bf16 above its upper end.
    #[test]
    fn goals_are_met_by_every_answer_of_the_default_predictor() {
        let (odd, imported) = (Group::Odd, Group::Imported);
        let stage = |bytes, margin: f64| example(Group::Stages, "component/1", 10_000, bytes, Some(margin));
        let refused = Row { answer: Err("gap".to_owned()), ..stage(1, 0.0) };
        let mut rows = [vec![stage(10_050, 0.02); 9], vec![stage(10_250, 0.02)]].concat();
        rows.push(example(Group::Stages, "capture/1", 10_000, 20_000, None));
        assert_eq!(met(&rows, "stages, degree 1"), Some(true), "another predictor does not count");
        assert_eq!((met(&rows, "coverage"), met(&rows, "partitionings")), (Some(true), None));
        rows.extend([stage(10_250, 0.02), stage(10_250, 0.02)]);
        assert_eq!(met(&rows, "stages, degree 1"), Some(false));
        assert_eq!(met(&[stage(10_000, 0.02), refused.clone()], "stages, degree 1"), Some(false));
        assert_eq!(met(std::slice::from_ref(&refused), "stages, degree 1"), Some(false));

        assert_eq!(met(&[stage(9_900, 0.02), stage(9_000, 0.02)], "coverage"), Some(false));
        assert_eq!(met(&[stage(9_900, 0.2)], "coverage"), Some(false));
        let without = example(Group::Stages, "component/1", 10_000, 10_000, None);
        assert_eq!(met(&[without], "coverage"), Some(false));

        let with = |measured| example(odd, "component/2", measured, 10_000, Some(0.2));
        let mut rows = vec![with(11_900); ODD_STAGES];
        assert_eq!((met(&rows, "stages in bf16"), met(&rows, "coverage")), (Some(true), None));
        assert_eq!(met(&rows[1..], "stages in bf16"), Some(false), "too few");
        rows.push(with(12_001));
        assert_eq!(met(&rows, "stages in bf16"), Some(false));
        rows.pop();
        rows.push(Row { group: odd, ..refused });
        assert_eq!(met(&rows, "stages in bf16"), Some(false));

        let plan = |bytes| example(imported, "table/2", 10_000, bytes, Some(0.1));
        assert_eq!(met(&[plan(10_700), plan(9_600)], "peak memory"), Some(false), "mean 5.5 %");
        assert_eq!(met(&[plan(10_300), plan(9_600)], "peak memory"), Some(true));
        assert_eq!(met(&[plan(10_000), plan(9_400)], "peak memory"), Some(false), "much too low");
        assert_eq!(met(&[plan(9_100), plan(10_000)], "GH200 plans with room"), Some(true));
        assert_eq!(met(&[plan(9_000), plan(10_000)], "GH200 plans with room"), Some(false));
        assert!(goals(&[], &Extras::default()).iter().all(|goal| goal.met.is_none()));
    }
}
