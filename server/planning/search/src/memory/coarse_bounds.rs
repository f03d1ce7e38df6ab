//! Questions that are too large to tell apart how many stages follow each stage.
//!
//! Under 1F1B a stage holds at least one micro-batch, and at most as many as the first stage of the longest
//! pipeline. If all held the most, a plan would need no less than it does; if all held one, no more. So the
//! first of these two smaller questions has plans that fit, and the second has a bound.

use loadmaster_proto::training::Schedule;

use super::super::{Assignment, Ended, Question, Searched, StageCosts, Stop, Unit};
use super::costs::Measure;
use super::effort::{SizeLimits, Unfinished};
use super::exact::{self, lone};
use super::{Peaks, peaks_of};

/// The best plan if all stages held as many micro-batches as one may, with what it really needs. `why` the
/// question itself was not searched.
pub(super) fn leximax<C: StageCosts>(
    question: &Question<'_, C>,
    unit: Unit,
    stop: &Stop,
    limits: SizeLimits,
    why: Unfinished,
) -> Searched<Peaks> {
    let nothing = Searched { best: None, bound: None, states: 0, ended: why.ended() };
    if question.schedule == Schedule::Gpipe || why == Unfinished::Stopped {
        return nothing;
    }
    let measure = Measure::Peak(unit);
    let least = match exact::bottleneck(&alike(question, 1), measure, stop, limits) {
        Ok(least) => least,
        Err(why) => return Searched { ended: why.ended(), ..nothing },
    };
    if least.best.is_none() {
        return Searched { states: least.states, ended: least.ended, ..nothing };
    }
    let bound = least.bound.map(|peak| Peaks::of([lone(peak)]));
    let most = question.in_flight(question.stages.end().min(&question.costs.layers()).saturating_sub(1));
    match exact::leximax(&alike(question, most), measure, stop, limits) {
        Ok(found) => {
            let best = found.best.and_then(|best| {
                let value = peaks_of(question, unit, &best.stages)?;
                Some(Assignment { value, ..best })
            });
            let ended = if found.ended == Ended::Stopped { Ended::Stopped } else { Ended::Bounded };
            Searched { best, bound, states: least.states + found.states, ended }
        }
        Err(why) => Searched { bound, states: least.states, ended: why.ended(), ..nothing },
    }
}

/// The question where every stage holds this many micro-batches.
fn alike<'a, C>(question: &Question<'a, C>, in_flight: u32) -> Question<'a, C> {
    let stages = question.stages.clone();
    Question { schedule: Schedule::Gpipe, micro_batches: in_flight, stages, ..*question }
}
