//! What users reported of their own runs.

use loadmaster_proto::wire::v1::{MemoryFigure, Report};

use super::grid::Side::{Left, Right};
use super::grid::{Facts, Grid};
use super::{accounting, common_accounting, figure, id, or_none};
use crate::show;
use crate::text::terminal_abilities::Look;
use crate::text::{count, plain, plural, seconds, time};

show!(Report as one);
show!(ListReportsResponse of reports as list);

fn one(report: &Report, look: Look) -> String {
    let mut facts = Facts::default();
    facts.add("report", &report.name);
    facts.add("plan", or_none(&report.plan, look));
    facts.add("iteration", iteration(report, look));
    facts.add("peaks", peaks(report, look));
    facts.add("iterations", count(report.iteration_count));
    facts.add("device kind", or_none(&report.device_kind, look));
    facts.add("source", or_none(&report.source, look));
    facts.add("reported", time(report.create_time.as_ref(), look));
    facts.render()
}

/// Reports, one per line.
fn list(reports: &[Report], look: Look) -> String {
    if reports.is_empty() {
        return "no reports\n".to_owned();
    }
    grid(reports, look).render()
}

/// A row for each.
pub fn grid(reports: &[Report], look: Look) -> Grid {
    let mut grid = Grid::new(
        &[
            ("plan", Left),
            ("iteration", Right),
            ("peaks of the stages", Left),
            ("iterations", Right),
            ("device kind", Left),
            ("source", Left),
            ("reported", Left),
        ],
        look,
    );
    for report in reports {
        grid.row([
            id(&report.plan),
            iteration(report, look),
            peaks(report, look),
            count(report.iteration_count),
            or_none(&report.device_kind, look),
            or_none(&report.source, look),
            time(report.create_time.as_ref(), look),
        ]);
    }
    grid
}

/// What was reported of a plan, a line for each, newest first; nothing where nothing was.
pub(super) fn of_plan(reports: &[Report], look: Look) -> String {
    let line = |report: &Report| {
        let source = match report.source.as_str() {
            "" => String::new(),
            source => format!(" {} {}", look.dot(), plain(source)),
        };
        format!(
            "observed  {} per iteration  peaks {}  over {} on {}{source}\n",
            iteration(report, look),
            peaks(report, look),
            plural(report.iteration_count, "iteration"),
            or_none(&report.device_kind, look),
        )
    };
    reports.iter().map(line).collect()
}

fn iteration(report: &Report, look: Look) -> String {
    match report.iteration_seconds {
        0.0 => look.none().to_owned(),
        measured => seconds(measured),
    }
}

/// The bytes in the order of the stages; the accounting once where they share it.
fn peaks(report: &Report, look: Look) -> String {
    let figures: &[MemoryFigure] = &report.stage_peaks;
    if figures.is_empty() {
        return look.none().to_owned();
    }
    let common = common_accounting(figures);
    let bytes: Vec<String> = figures.iter().map(|one| figure(one, common)).collect();
    bytes.join(", ") + &common.map_or_else(String::new, |common| format!(" ({})", accounting(common)))
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::v1::MemoryAccounting;

    use super::*;

    fn report(accountings: &[MemoryAccounting]) -> Report {
        let figures = accountings.iter().map(|&accounting| MemoryFigure {
            bytes: 1 << 30,
            accounting: accounting.into(),
            ..MemoryFigure::default()
        });
        Report {
            name: "plans/7f/reports/1".to_owned(),
            plan: "plans/7f".to_owned(),
            iteration_seconds: 0.42,
            stage_peaks: figures.collect(),
            iteration_count: 20,
            device_kind: "cpu".to_owned(),
            source: "job\u{1b}7".to_owned(),
            ..Report::default()
        }
    }

    /// Every byte count is labelled with its accounting: once where all share it, else each.
    #[test]
    fn peaks_name_their_accounting() {
        let text = list(&[report(&[MemoryAccounting::Device; 2])], Look::PLAIN);
        assert!(text.contains("1.00 GiB, 1.00 GiB (device)"), "{text}");
        let text = list(&[report(&[MemoryAccounting::Device, MemoryAccounting::Allocated])], Look::PLAIN);
        assert!(text.contains("1.00 GiB device, 1.00 GiB allocated"), "{text}");
        assert!(list(&[report(&[])], Look::PLAIN).contains("420.0 ms  -"));
    }

    /// A plan shows what was reported of it, without control characters of the reporter.
    #[test]
    fn a_plan_shows_its_reports() {
        assert_eq!(
            of_plan(&[report(&[MemoryAccounting::Device])], Look::PLAIN),
            "observed  420.0 ms per iteration  peaks 1.00 GiB (device)  over 20 iterations on cpu - job 7\n"
        );
        assert_eq!(of_plan(&[], Look::PLAIN), "");
    }
}
