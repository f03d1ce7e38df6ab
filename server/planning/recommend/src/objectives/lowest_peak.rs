//! The lowest highest peak that is reached, by halves.

use loadmaster_proto::amounts::Seconds;
use loadmaster_proto::plan::findings::Certificate;
use loadmaster_proto::warning::{Warning, WarningCode};

use super::{Answer, FamilySolution, PlanFamily, Point, Progress, Subproblem, Verdict, nothing_found};
use crate::result::QuestionError;
use loadmaster_search::{Stop, Unit};

/// Most peaks that are asked for.
const MOST_ASKED: u32 = 12;
/// As close as this part of a peak no lower one is looked for.
const CLOSE: u64 = 4_096;

/// Returns the note on the seconds of a plan that was chosen for its peak alone.
fn slow_note(certificate: &Certificate) -> Warning {
    let bound =
        certificate.bound.map_or_else(String::new, |bound| format!(", and none is below {}", Seconds(bound)));
    WarningCode::OtherValue.says(format!(
        "the plan was chosen for its peak only and takes {} per iteration{bound}. No faster plan within this peak was found",
        Seconds(certificate.value)
    ))
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
        is_stopped: of_seconds.stopped || family.context().stop.is_requested(),
        doubtful: Some(family.counted(floor.min(value))),
        passed_over: Vec::new(),
    };
    let criteria = family.context().criteria;
    let unit = if criteria.unit == Unit::Share { "share" } else { criteria.objective.unit() };
    let mut notes = vec![WarningCode::SearchIncomplete.says(format!(
        "the search tried {asked} limits on the peak memory. A lower peak may exist, down to the bound{}. Plans \
         for comparison were searched within the peak of this plan",
        family.floor_is()
    ))];
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
    by_halves(first, floor_and_most, family.context().stop, |cap| family.point(subproblem, cap))
}

/// From what was found on, what has the lowest peak above a floor that is found with at most so many asks, by halves; and the asks
/// that it took.
///
/// # Errors
/// What is wrong with the question.
fn by_halves<T>(
    first: Point<T>,
    (floor, most): (u64, u32),
    stop: &Stop,
    ask: impl Fn(u64) -> Result<Point<T>, QuestionError>,
) -> Result<(Point<T>, u32), QuestionError> {
    let (mut low, mut best, mut asked) = (floor, first, 0);
    loop {
        let high = best.peak;
        if high <= low || high - low <= high / CLOSE || asked >= most || stop.is_requested() {
            return Ok((best, asked));
        }
        // The floor itself first: it may be reached.
        let middle = if asked == 0 { low } else { low + (high - low) / 2 };
        asked += 1;
        match ask(middle) {
            Ok(found) if found.peak < high => best = found,
            Ok(_) => low = middle + 1,
            Err(error) => {
                nothing_found(error)?;
                low = middle + 1;
            }
        }
    }
}
