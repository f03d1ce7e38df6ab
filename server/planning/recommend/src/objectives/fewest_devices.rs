//! The fewest or cheapest devices that hold the training.

use loadmaster_proto::amounts::plural;

use super::{
    Answer, Availability, FamilyContext, FamilySolution, PlanFamily, Progress, Subproblem, Verdict,
    nothing_found,
};
use crate::result::RecommendError;
use crate::search::DeviceWorth;
use loadmaster_search::fleet::Subsets;

/// Most choices of devices that are asked about.
const MOST_ASKED: usize = 512;
/// Most of them of one size.
const MOST_WAYS: usize = 8;

/// The fastest plan on the fewest or cheapest devices for which one was found.
pub(super) fn fewest_devices<F: PlanFamily>(family: &F) -> Answer {
    let FamilyContext { context, job, criteria, stop, .. } = *family.context();
    let fleet = job.fleet;
    let device_worth = DeviceWorth { fleet, objective: criteria.objective };
    device_worth.check()?;
    if let Some(error) = family.nowhere() {
        return Err(family.explained(error.into(), &family.whole()));
    }
    // What is left where the search is stopped.
    let spare = family.spare();
    let subsets = Subsets::of(fleet, &criteria.cuts, criteria.starts_evenly(), criteria.keeps_order);
    let speeds = device_worth.speeds(context.prices, criteria);
    let mut sizes = subsets.sizes(speeds, |counts| device_worth.of_counts(counts));
    let (mut tried, mut last, mut asked) = (Progress::default(), None, 0);
    while let Some((worth, counts)) = sizes.next_size() {
        let devices: u32 = counts.iter().sum();
        if !family.may_take(devices) && !stop.is_requested() {
            continue;
        }
        if stop.is_requested() || asked >= MOST_ASKED {
            tried.is_stopped = stop.is_requested();
            tried.doubtful = tried.doubtful.or(Some(worth));
            break;
        }
        let (choices, mut is_proven) = match family.stand_for_all() {
            true => (subsets.with(&counts, 1).0, true),
            false => subsets.with(&counts, MOST_WAYS),
        };
        let mut is_possible = !is_proven;
        for devices in choices {
            let availability = family.availability(&devices, &criteria.batches)?;
            is_possible |= availability != Availability::Absent;
            if availability != Availability::Searched {
                is_proven &= availability == Availability::Absent;
                continue;
            }
            asked += 1;
            let subproblem = Subproblem::on(&devices, &criteria.batches);
            let found = match family.lacks(&subproblem) {
                Some(error) => Err(error.into()),
                None => family.compared(&subproblem),
            };
            match found {
                Ok(found) => return on_fewest(family, found, tried, worth),
                Err(error) => {
                    let error = nothing_found(error)?;
                    is_proven &= error.is_proof();
                    last = Some((error, subproblem));
                }
            }
        }
        // On other numbers there are no such plans.
        if is_possible {
            tried.pass_over(plural(devices, "device"), worth, is_proven);
        }
    }
    if let Some(found) = spare {
        let value = device_worth.of_plan(&found.plan);
        return on_fewest(family, found, tried, value);
    }
    if tried.is_stopped {
        return Err(RecommendError::Stopped.into());
    }
    let Some((error, subproblem)) = last else {
        return Err(family.explained(family.why_absent(), &family.whole()));
    };
    let error = if tried.doubtful.is_none() { error.proven() } else { error.unproven() };
    Err(family.explained(error.into(), &subproblem))
}

fn on_fewest<F: PlanFamily>(family: &F, found: FamilySolution, mut tried: Progress, value: f64) -> Answer {
    tried.states = tried.states.saturating_add(found.certificate.states);
    tried.is_stopped |= found.certificate.stopped;
    let verdict = Verdict {
        certificate: tried.certificate(value, family.context().criteria.objective.unit()),
        notes: Vec::new(),
        among: Some("on these devices"),
        beside: None,
        next_worth: Some(value),
    };
    family.told(found, verdict)
}
