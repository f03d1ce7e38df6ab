//! What users reported of their own runs.

use loadmaster_proto::wire::v1::{MemoryFigure, Report};

use super::grid::Side::{Left, Right};
use super::grid::{Facts, Grid};
use super::{common_ledger, figure, id, ledger, or_none};
use crate::show;
use crate::text::terminal_abilities::Look;
use crate::text::{count, plain, plural, seconds, time};

show!(Report as one);
show!(ListReportsResponse of reports as list);

fn one(observation: &Report, look: Look) -> String {
    let mut facts = Facts::default();
    facts.add("observation", &observation.name);
    facts.add("plan", or_none(&observation.plan, look));
    facts.add("iteration", iteration(observation, look));
    facts.add("peaks", peaks(observation, look));
    facts.add("iterations", count(observation.iteration_count));
    facts.add("device kind", or_none(&observation.device_kind, look));
    facts.add("source", or_none(&observation.source, look));
    facts.add("reported", time(observation.create_time.as_ref(), look));
    facts.render()
}

/// Observations, one per line.
fn list(observations: &[Report], look: Look) -> String {
    if observations.is_empty() {
        return "no observations\n".to_owned();
    }
    grid(observations, look).render()
}

/// A row for each.
pub fn grid(observations: &[Report], look: Look) -> Grid {
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
    for observation in observations {
        grid.row([
            id(&observation.plan),
            iteration(observation, look),
            peaks(observation, look),
            count(observation.iteration_count),
            or_none(&observation.device_kind, look),
            or_none(&observation.source, look),
            time(observation.create_time.as_ref(), look),
        ]);
    }
    grid
}

/// What was reported of a plan, a line for each, newest first; nothing where nothing was.
pub(super) fn of_plan(observations: &[Report], look: Look) -> String {
    let line = |observation: &Report| {
        let source = match observation.source.as_str() {
            "" => String::new(),
            source => format!(" {} {}", look.dot(), plain(source)),
        };
        format!(
            "observed  {} per iteration  peaks {}  over {} on {}{source}\n",
            iteration(observation, look),
            peaks(observation, look),
            plural(observation.iteration_count, "iteration"),
            or_none(&observation.device_kind, look),
        )
    };
    observations.iter().map(line).collect()
}

fn iteration(observation: &Report, look: Look) -> String {
    match observation.iteration_seconds {
        0.0 => look.none().to_owned(),
        measured => seconds(measured),
    }
}

/// The bytes in the order of the stages; the ledger once where they share it.
fn peaks(observation: &Report, look: Look) -> String {
    let figures: &[MemoryFigure] = &observation.stage_peaks;
    if figures.is_empty() {
        return look.none().to_owned();
    }
    let common = common_ledger(figures);
    let bytes: Vec<String> = figures.iter().map(|one| figure(one, common)).collect();
    bytes.join(", ") + &common.map_or_else(String::new, |common| format!(" ({})", ledger(common)))
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::v1::MemoryAccounting;

    use super::*;

    fn observation(ledgers: &[MemoryAccounting]) -> Report {
        let figures = ledgers.iter().map(|&ledger| MemoryFigure {
            bytes: 1 << 30,
            accounting: ledger.into(),
            ..MemoryFigure::default()
        });
        Report {
            name: "plans/7f/observations/1".to_owned(),
            plan: "plans/7f".to_owned(),
            iteration_seconds: 0.42,
            stage_peaks: figures.collect(),
            iteration_count: 20,
            device_kind: "cpu".to_owned(),
            source: "job\u{1b}7".to_owned(),
            ..Report::default()
        }
    }

    /// Every byte count is labelled with its ledger: once where all share it, else each.
    #[test]
    fn peaks_name_their_ledger() {
        let text = list(&[observation(&[MemoryAccounting::Device; 2])], Look::PLAIN);
        assert!(text.contains("1.00 GiB, 1.00 GiB (device)"), "{text}");
        let text =
            list(&[observation(&[MemoryAccounting::Device, MemoryAccounting::Allocated])], Look::PLAIN);
        assert!(text.contains("1.00 GiB device, 1.00 GiB allocated"), "{text}");
        assert!(list(&[observation(&[])], Look::PLAIN).contains("420.0 ms  -"));
    }

    /// A plan shows what was reported of it, without control characters of the reporter.
    #[test]
    fn a_plan_shows_its_observations() {
        assert_eq!(
            of_plan(&[observation(&[MemoryAccounting::Device])], Look::PLAIN),
            "observed  420.0 ms per iteration  peaks 1.00 GiB (device)  over 20 iterations on cpu - job 7\n"
        );
        assert_eq!(of_plan(&[], Look::PLAIN), "");
    }
}
