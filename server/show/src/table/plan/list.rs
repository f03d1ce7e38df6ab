//! Plans in a list: a row each, with what tells them apart.

use loadmaster_proto::wire::v1::{Launcher, Plan};

use super::recommendation;
use crate::show::show;
use crate::table::grid::Grid;
use crate::table::grid::Side::{self, Left, Right};
use crate::table::{common_ledger, figure, id, labels, ledger, or_none};
use crate::text::terminal_abilities::Look;
use crate::text::{plain, plural, ratio, seconds, time};

show!(ListPlansResponse of plans as list);

/// Longest partition that is shown whole.
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
    let measured = |plan: &Plan| plan.trainings.as_ref().and_then(|of| of.measured_peak.clone());
    let peaks: Vec<_> =
        plans.iter().flat_map(|plan| [plan.predicted_peak.clone(), measured(plan)]).flatten().collect();
    let common = common_ledger(&peaks);
    let note = common.map_or_else(String::new, |common| format!(" ({})", ledger(common)));
    let column = |title: &str, side, of: Reading| (title.to_owned(), side, of);
    let named = |text: &str| (!text.is_empty()).then(|| id(text));
    vec![
        column("plan", Left, Box::new(move |plan| Some(id(&plan.name)))),
        column("profile", Left, Box::new(move |plan| Some(or_none(&id(&plan.profile), look)))),
        column("partition", Left, Box::new(move |plan| partition(&plan.partition, look))),
        column(
            "devices",
            Right,
            Box::new(|plan| (plan.device_count > 0).then(|| plan.device_count.to_string())),
        ),
        column("objective", Left, Box::new(|plan| Some(recommendation::objective(plan)))),
        column("launcher", Left, Box::new(launcher)),
        column("cluster", Left, Box::new(move |plan| named(&plan.cluster))),
        column(
            &format!("peak{note}"),
            Right,
            Box::new(move |plan| plan.predicted_peak.as_ref().map(|peak| figure(peak, common))),
        ),
        column(
            "iteration",
            Right,
            Box::new(|plan| plan.iteration.as_ref().map(|of| seconds(of.iteration_seconds))),
        ),
        column(
            &format!("measured{note}"),
            Right,
            Box::new(move |plan| measured(plan).map(|peak| figure(&peak, common))),
        ),
        column(
            "error",
            Right,
            Box::new(|plan| plan.trainings.as_ref().and_then(|of| of.peak_error_ratio).map(ratio)),
        ),
        column("labels", Left, Box::new(|plan| labels(&plan.labels))),
        column("created", Left, Box::new(move |plan| Some(time(plan.create_time.as_ref(), look)))),
    ]
}

/// The stages, of long pipelines the first ones.
fn partition(text: &str, look: Look) -> Option<String> {
    if text.len() <= LONGEST {
        return (!text.is_empty()).then(|| plain(text));
    }
    let end = text.floor_char_boundary(LONGEST);
    let end = text[..end].rfind('-').map_or(end, |dash| dash + 1);
    let stages = i32::try_from(text.split('-').count()).unwrap_or(i32::MAX);
    Some(format!("{}{} {}", plain(&text[..end]), look.cut(), plural(stages, "stage")))
}

fn launcher(plan: &Plan) -> Option<String> {
    match plan.launcher() {
        Launcher::Unspecified => None,
        known => {
            let word = known.as_str_name().trim_start_matches("LAUNCHER_").to_lowercase().replace('_', "-");
            Some(if plan.launcher_version.is_empty() {
                word
            } else {
                format!("{word} {}", plain(&plan.launcher_version))
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::v1::{
        FigureSource, IterationEstimate, Ledger, MemoryFigure, Objective, PlanTrainings,
    };

    use super::*;

    fn peak(mib: i64) -> MemoryFigure {
        MemoryFigure {
            bytes: mib << 20,
            ledger: Ledger::Allocated.into(),
            source: FigureSource::Predicted.into(),
            ..MemoryFigure::default()
        }
    }

    fn plan() -> Plan {
        Plan {
            name: "plans/7f3c".to_owned(),
            profile: "profiles/vgg11-1a2b".to_owned(),
            partition: "22-2d2-6".to_owned(),
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
            "plan  profile     partition  devices  objective        peak (allocated)  iteration  created\n\
             7f3c  vgg11-1a2b  22-2d2-6         4  min-peak-memory        812.00 MiB     1.50 s  -\n"
        );
        let other = Plan {
            name: "plans/81aa".to_owned(),
            partition: vec!["1"; 96].join("-"),
            device_count: 96,
            objective: Objective::MinIterationTime.into(),
            launcher: Launcher::TorchPipelining.into(),
            cluster: "clusters/pod1".to_owned(),
            trainings: Some(PlanTrainings {
                measured_peak: Some(peak(800)),
                peak_error_ratio: Some(0.015),
                ..PlanTrainings::default()
            }),
            ..plan()
        };
        let text = list(&[plan(), other], Look::PLAIN);
        let rows: Vec<&str> = text.lines().collect();
        for (cell, row) in [
            ("launcher", 0),
            ("cluster", 0),
            ("1-1-1-1-1-1-1-1-1-1-1-1-1-1-~ 96 stages", 2),
            ("min-iteration-time", 2),
            ("torch-pipelining", 2),
            ("pod1", 2),
            ("800.00 MiB", 2),
            ("+1.5 %", 2),
        ] {
            assert!(rows[row].contains(cell), "{cell}:\n{text}");
        }
    }
}
