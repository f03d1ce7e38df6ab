//! The lowest highest peak that is reached.

use loadmaster_proto::amounts::Seconds;
use loadmaster_proto::plan::findings::Certificate;

use super::peaks::{Point, by_halves};
use super::proof::Progress;
use super::{Answer, FamilySolution, PlanFamily, Subproblem, Verdict};
use crate::result::QuestionError;
use loadmaster_search::Unit;

/// Most peaks that are asked for.
const MOST_ASKED: u32 = 12;

/// What is told of the seconds of a plan that was chosen for its peak alone.
fn slow_note(of: &Certificate) -> String {
    let bound = of.bound.map_or_else(String::new, |bound| format!(", and none is below {}", Seconds(bound)));
    format!(
        "it was chosen for its peak alone, with {} for an iteration{bound}: no faster one within this peak was found",
        Seconds(of.value)
    )
}

/// The fastest plan within the lowest peak for which one was found.
pub(super) fn lowest_peak<F: PlanFamily>(family: &F) -> Answer {
    let subproblem = family.whole();
    let first = family.compared(&subproblem).map_err(|error| family.explained(error, &subproblem))?;
    let floor = family.floor(&subproblem, family.peak(&first.plan));
    let bound = first.certificate.bound;
    let (lowest, asked) = lowest(family, &subproblem, first, (floor, MOST_ASKED))?;
    let within = subproblem.within(family.peak(&lowest.found.plan));
    let (found, is_fastest) = family.of_lowest_peak(lowest.found, &within, bound);
    let value = family.peak(&found.plan);
    let of_seconds = &found.certificate;
    let tried = Progress {
        states: of_seconds.states,
        is_stopped: of_seconds.stopped || family.stop().is_requested(),
        doubtful: Some(family.counted(floor.min(value))),
        passed_over: Vec::new(),
    };
    let criteria = family.criteria();
    let unit = if criteria.unit == Unit::Share { "share" } else { criteria.objective.unit() };
    let mut notes = vec![format!(
        "{asked} peaks were asked for: a lower one may be reached down to the bound{}; what it is compared with is held to the same \
         peak",
        family.floor_is()
    )];
    notes.extend((!is_fastest).then(|| slow_note(of_seconds)));
    let verdict = Verdict {
        certificate: tried.certificate(family.counted(value), unit),
        notes,
        among: is_fastest.then_some("within this peak"),
        beside: Some(&within),
        next_worth: None,
    };
    family.told(found, verdict)
}

/// From a plan on, the one with the lowest peak above a floor that is found with so many asks; and the asks that it took.
pub(super) fn lowest<F: PlanFamily>(
    family: &F,
    subproblem: &Subproblem,
    first: FamilySolution,
    floor_and_most: (u64, u32),
) -> Result<(Point<FamilySolution>, u32), QuestionError> {
    let peak = |found: &FamilySolution| family.peak(&found.plan);
    let lightest = family.lightest(subproblem, &first).filter(|light| peak(light) < peak(&first));
    let first = lightest.unwrap_or(first);
    let first = Point { cap: u64::MAX, peak: peak(&first), found: first };
    by_halves(first, floor_and_most, family.stop(), |cap| family.point(subproblem, cap))
}
