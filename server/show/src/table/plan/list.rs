//! Plans in a list: a row each, with what tells them apart.

use loadmaster_proto::plan::prediction::UNUSABLE_MARGIN;
use loadmaster_proto::wire::v1::{IterationEstimate, Plan, TrainingSummary};

use super::recommendation;
use crate::show;
use crate::table::grid::Grid;
use crate::table::grid::Side::{self, Left, Right};
use crate::table::{accounting, common_accounting, figure, id, interference, labels, or_none};
use crate::text::terminal_abilities::Look;
use crate::text::{count, percent, plain, plural, ratio, seconds, time, title};

show!(ListPlansResponse of plans as list);

/// Longest pipeline layout that is shown whole.
const LONGEST: usize = 28;

/// What a plan has in a column.
type Reading = Box<dyn Fn(&Plan) -> Option<String>>;
/// A column: its title, its side and what its cells read.
type PlanColumn = (String, Side, Reading);

/// Plans, one per line.
fn list(plans: &[Plan], look: Look) -> String {
    if plans.is_empty() {
        return "no plans\n".to_owned();
    }
    grid(plans, look).render()
}

/// A row for each. Columns in which no plan has anything are left out.
pub fn grid(plans: &[Plan], look: Look) -> Grid {
    let columns: Vec<PlanColumn> = columns(plans, look)
        .into_iter()
        .filter(|(_, _, of)| plans.iter().any(|plan| of(plan).is_some()))
        .collect();
    let titles: Vec<(&str, Side)> = columns.iter().map(|(title, side, _)| (title.as_str(), *side)).collect();
    let mut grid = Grid::new(&titles, look);
    for plan in plans {
        let cells = columns.iter().map(|(_, _, of)| of(plan).unwrap_or_else(|| look.none().to_owned()));
        grid.rows(cells.collect());
    }
    grid
}

fn columns(plans: &[Plan], look: Look) -> Vec<PlanColumn> {
    let measured = |plan: &Plan| trainings(plan).measured_peak;
    let peaks: Vec<_> =
        plans.iter().flat_map(|plan| [plan.predicted_peak.clone(), measured(plan)]).flatten().collect();
    let common = common_accounting(&peaks);
    let note = common.map_or_else(String::new, |common| format!(" ({})", accounting(common)));
    let column = |title: &str, side, of: Reading| (title.to_owned(), side, of);
    let named = |text: &str| (!text.is_empty()).then(|| id(text));
    vec![
        column("plan", Left, Box::new(move |plan| Some(id(&plan.name)))),
        column(
            "title",
            Left,
            Box::new(move |plan| Some(title(plan.summary.as_ref(), look)).filter(|title| !title.is_empty())),
        ),
        column(
            &format!("peak{note}"),
            Right,
            Box::new(move |plan| plan.predicted_peak.as_ref().map(|peak| figure(peak, common))),
        ),
        column(
            &format!("measured{note}"),
            Right,
            Box::new(move |plan| measured(plan).map(|peak| figure(&peak, common))),
        ),
        column("peak error", Right, Box::new(|plan| trainings(plan).peak_error_ratio.map(ratio))),
        column("iteration", Right, Box::new(|plan| plan.iteration.as_ref().map(iteration))),
        column("MFU", Right, Box::new(|plan| plan.summary.as_ref()?.model_flops_utilization.map(percent))),
        column(
            "devices",
            Right,
            Box::new(|plan| (plan.device_count > 0).then(|| plan.device_count.to_string())),
        ),
        column("objective", Left, Box::new(|plan| Some(recommendation::objective(plan)))),
        column("pipeline layout", Left, Box::new(move |plan| pipeline_layout(&plan.layout_notation, look))),
        column("trials", Right, Box::new(trials)),
        column("measured seconds", Right, Box::new(measured_seconds)),
        column("seconds error", Right, Box::new(|plan| trainings(plan).iteration_error_ratio.map(ratio))),
        column("reports", Right, Box::new(reports)),
        column("reported seconds", Right, Box::new(|plan| trainings(plan).reported_seconds.map(seconds))),
        column("report error", Right, Box::new(|plan| trainings(plan).reported_error_ratio.map(ratio))),
        column("alternative of", Left, Box::new(move |plan| named(&plan.recommended_plan))),
        column("labels", Left, Box::new(|plan| labels(&plan.labels))),
        column("profile", Left, Box::new(move |plan| Some(or_none(&id(&plan.profile), look)))),
        column("cluster", Left, Box::new(move |plan| named(&plan.cluster))),
        column("created", Left, Box::new(move |plan| Some(time(plan.create_time.as_ref(), look)))),
    ]
}

/// What its trainings showed; nothing where the planner does not tell.
fn trainings(plan: &Plan) -> TrainingSummary {
    plan.training_summary.clone().unwrap_or_default()
}

/// How often it was tried, and how many of these trials measured something, unless all did.
fn trials(plan: &Plan) -> Option<String> {
    match trainings(plan) {
        TrainingSummary { trial_count: 0, .. } => None,
        TrainingSummary { trial_count: trials, succeeded_trial_count: succeeded, .. }
            if trials == succeeded =>
        {
            Some(count(trials.into()))
        }
        TrainingSummary { trial_count: trials, succeeded_trial_count: succeeded, .. } => {
            Some(format!("{} of {}", count(succeeded.into()), count(trials.into())))
        }
    }
}

/// Predicted seconds, as far as they can be used.
fn iteration(of: &IterationEstimate) -> String {
    let is_wide = of.interval.as_ref().is_some_and(|interval| interval.margin_ratio > UNUSABLE_MARGIN);
    if is_wide { "unusable".to_owned() } else { seconds(of.iteration_seconds) }
}

/// Those of the newest trial that measured something, which is what filters call `measured_seconds`.
fn measured_seconds(plan: &Plan) -> Option<String> {
    let of = trainings(plan);
    let text = of.iteration_seconds.map(seconds)?;
    Some(text + interference::mark(of.contended, of.oversubscribed))
}

/// How often users reported a training of it.
fn reports(plan: &Plan) -> Option<String> {
    Some(trainings(plan).report_count).filter(|&times| times > 0).map(|times| count(times.into()))
}

/// The stages, of long pipelines the first ones.
fn pipeline_layout(text: &str, look: Look) -> Option<String> {
    if text.len() <= LONGEST {
        return (!text.is_empty()).then(|| plain(text));
    }
    let end = text.floor_char_boundary(LONGEST);
    let end = text[..end].rfind('-').map_or(end, |dash| dash + 1);
    let stages = i32::try_from(text.split('-').count()).unwrap_or(i32::MAX);
    Some(format!("{}{} {}", plain(&text[..end]), look.cut(), plural(stages, "stage")))
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::v1::{FigureOrigin, MemoryAccounting, MemoryFigure, Objective};

    use super::*;

    fn peak(mib: i64) -> MemoryFigure {
        MemoryFigure {
            bytes: mib << 20,
            accounting: MemoryAccounting::Allocated.into(),
            origin: FigureOrigin::Predicted.into(),
            ..MemoryFigure::default()
        }
    }

    fn plan() -> Plan {
        Plan {
            name: "plans/7f3c".to_owned(),
            profile: "profiles/vgg11-1a2b".to_owned(),
            layout_notation: "22-2d2-6".to_owned(),
            device_count: 4,
            objective: Objective::MinPeakMemory.into(),
            predicted_peak: Some(peak(812)),
            iteration: Some(IterationEstimate { iteration_seconds: 1.5, ..IterationEstimate::default() }),
            ..Plan::default()
        }
    }

    /// Two plans of one profile differ in what is shown, and what none has takes no room.
    #[test]
    fn plans_are_told_apart() {
        assert_eq!(list(&[], Look::PLAIN), "no plans\n");
        assert_eq!(
            list(&[plan()], Look::PLAIN),
            "plan  peak (allocated)  iteration  devices  objective        pipeline layout  profile     created\n\
             7f3c        812.00 MiB     1.50 s        4  min-peak-memory  22-2d2-6         vgg11-1a2b  -\n"
        );
        let other = Plan {
            name: "plans/81aa".to_owned(),
            layout_notation: vec!["1"; 96].join("-"),
            device_count: 96,
            objective: Objective::MinIterationTime.into(),
            cluster: "clusters/pod1".to_owned(),
            training_summary: Some(TrainingSummary {
                measured_peak: Some(peak(800)),
                peak_error_ratio: Some(0.015),
                ..TrainingSummary::default()
            }),
            ..plan()
        };
        let text = list(&[plan(), other], Look::PLAIN);
        let rows: Vec<&str> = text.lines().collect();
        for (cell, row) in [
            ("cluster", 0),
            ("1-1-1-1-1-1-1-1-1-1-1-1-1-1-~ 96 stages", 2),
            ("min-iteration-time", 2),
            ("pod1", 2),
            ("800.00 MiB", 2),
            ("+1.5 %", 2),
        ] {
            assert!(rows[row].contains(cell), "{cell}:\n{text}");
        }
    }

    /// A plan whose user named its stages is best at nothing, and says why.
    #[test]
    fn given_stages_are_no_unspecified_objective() {
        let text = list(&[Plan { objective: Objective::Unspecified.into(), ..plan() }], Look::PLAIN);
        assert!(text.contains("  stages given  ") && !text.contains("unspecified"), "{text}");
    }

    /// Plans that were stored because another one names them say so.
    #[test]
    fn alternatives_name_the_plan_that_they_are_alternatives_of() {
        let other = Plan { name: "plans/b".to_owned(), recommended_plan: "plans/a".to_owned(), ..plan() };
        let text = list(&[plan(), other], Look::PLAIN);
        let cells = |line: usize| split(text.lines().nth(line).unwrap());
        let column = cells(0).iter().position(|title| *title == "alternative of").unwrap();
        assert_eq!((cells(1)[column], cells(2)[column]), ("-", "a"), "{text}");
        assert!(!list(&[plan()], Look::PLAIN).contains("alternative of"));
    }

    /// How often a plan was trained stands beside what that took, each with its unit and how far off the prediction was.
    #[test]
    fn trainings_stand_beside_what_was_predicted() {
        let trainings = TrainingSummary {
            trial_count: 3,
            succeeded_trial_count: 2,
            report_count: 1_200,
            iteration_seconds: Some(2.0),
            iteration_error_ratio: Some(-0.25),
            contended: true,
            reported_seconds: Some(0.75),
            reported_error_ratio: Some(1.0),
            ..TrainingSummary::default()
        };
        let trained = Plan { training_summary: Some(trainings), ..plan() };
        let text = list(std::slice::from_ref(&trained), Look::PLAIN);
        let rows: Vec<Vec<&str>> = text.lines().map(split).collect();
        let beside = |title: &str| {
            let column = rows[0].iter().position(|of| *of == title);
            column.and_then(|column| rows[1].get(column).copied())
        };
        for (title, cell) in [
            ("iteration", "1.50 s"),
            ("trials", "2 of 3"),
            ("measured seconds", "2.00 s (contended)"),
            ("seconds error", "-25.0 %"),
            ("reports", "1,200"),
            ("reported seconds", "750.0 ms"),
            ("report error", "+100.0 %"),
        ] {
            assert_eq!(beside(title), Some(cell), "{title}:\n{text}");
        }
        let all = TrainingSummary { trial_count: 2, succeeded_trial_count: 2, ..TrainingSummary::default() };
        assert_eq!(trials(&Plan { training_summary: Some(all), ..plan() }).as_deref(), Some("2"));
        let narrow = list(&[trained], Look { width: Some(100), ..Look::PLAIN });
        assert!(narrow.lines().all(|line| line.chars().count() <= 100), "{narrow}");
        assert!(narrow.contains("(columns not shown: "), "what had no room is told:\n{narrow}");
    }

    /// Cells, which have two spaces between them.
    fn split(line: &str) -> Vec<&str> {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
    }
}
