//! How much a request may try, so that its answer depends on no machine's speed, and comes in time.
//!
//! Each kind of work has a share of its own: what is spent on finding plans is not missing where they are weighed.

use loadmaster_search::{Progress, Stop};

/// Units of work for each of the shares of a request: about a third of a second.
const USUAL: u64 = 30_000_000;

/// For findings besides the plan: what a restriction costs, what would help.
const BESIDES: u64 = 1_500_000;

/// To list the places of parts of the devices, whatever is asked: about half a second.
const PLACES: u64 = 50_000_000;

/// To find out what lacks least where nothing fits.
const EXPLAINING: u64 = 50_000_000;

/// What every look at a set of devices may take for a request's own plan, however little is left: without it nothing
/// might be found.
const LEAST: u64 = 500_000;

/// What a search may still take when it was stopped with nothing in hand.
const LAST_LOOK: u64 = 1_000_000;

/// How many times the usual effort a search of so many seconds may take, on a machine on which the usual one takes the third of a
/// second that it is meant for. Once unless a request names its seconds. It depends on these alone, so that the same request has
/// the same answer wherever it is answered in time.
pub(crate) fn efforts(search_seconds: Option<f64>) -> u64 {
    search_seconds.map_or(1, |seconds| (seconds as u64).max(1))
}

/// What is left to be tried for a request.
#[derive(Debug, Clone)]
pub(crate) struct Effort {
    /// The flag, without an effort.
    pub(crate) stop: Stop,
    /// To find plans by a formula.
    formula: Stop,
    /// To price every stage of a question.
    prices: Stop,
    /// To simulate parts of plans.
    pub(crate) passes: Stop,
    /// To find the lowest peaks.
    peaks: Stop,
    /// To find where to begin once nothing is left to prove with.
    halves: Stop,
    /// To list places on parts of the devices.
    places: Stop,
    /// To improve what was found and what bounds it, besides all of these.
    further: Stop,
    /// What every look may take.
    least: u64,
    /// Its plans answer the request itself, so that their values are the request's progress.
    is_reported: bool,
}

impl Effort {
    /// Of a request.
    pub(crate) fn usual(stop: &Stop) -> Self {
        Self {
            peaks: stop.within(5 * USUAL),
            formula: stop.within(2 * USUAL),
            prices: stop.within(2 * USUAL),
            least: LEAST,
            ..Self::of(stop, USUAL)
        }
    }

    /// The same so many times: once for what every request may try, and the other times to go on from there.
    pub(crate) fn times(stop: &Stop, times: u64) -> Self {
        let further = times.saturating_sub(1).saturating_mul(USUAL);
        Self { further: stop.within(further), is_reported: true, ..Self::usual(stop) }
    }

    /// The progress of the request, where plans found with this effort answer it.
    pub(crate) fn progress(&self) -> Option<&Progress> {
        self.is_reported.then(|| self.stop.progress())
    }

    /// A part of what goes on from there, to simulate so much of one variant. Its prices come on top: a question that is too large
    /// for them was too large before.
    pub(crate) fn part_of_further(&self, work: u64) -> Self {
        let (passes, prices) = (self.stop.within(work), self.stop.within(2 * USUAL));
        Self { passes, prices, least: 0, ..self.clone() }
    }

    /// Takes from further effort what was spent of such a part, and no less than `least`, so that looks which cost nothing end, too.
    pub(crate) fn take_further(&self, part: &Self, work: u64, least: u64) {
        let spent = work.saturating_sub(part.passes.left()) + (2 * USUAL).saturating_sub(part.prices.left());
        self.further.take(spent.max(least));
    }

    /// What may be spent to go on from what was found.
    pub(crate) fn further(&self) -> &Stop {
        &self.further
    }

    /// For findings besides the plan.
    pub(crate) fn besides(stop: &Stop) -> Self {
        Self::of(stop, BESIDES)
    }

    /// To find out why nothing fits.
    pub(crate) fn explaining(stop: &Stop) -> Stop {
        stop.within(EXPLAINING)
    }

    /// One look that no one can stop, and that is soon over.
    pub(crate) fn last_look() -> Self {
        Self::of(&Stop::default(), LAST_LOOK)
    }

    fn of(stop: &Stop, each: u64) -> Self {
        let share = || stop.within(each);
        Self {
            stop: stop.clone(),
            formula: share(),
            prices: share(),
            passes: share(),
            peaks: share(),
            halves: share(),
            places: stop.within(PLACES),
            further: stop.within(0),
            least: 0,
            is_reported: false,
        }
    }

    /// Whether the search was requested to stop.
    pub(crate) fn is_requested(&self) -> bool {
        self.stop.is_requested()
    }

    /// Whether nothing is left to find plans with.
    pub(crate) fn is_blind(&self) -> bool {
        self.peaks.is_over()
    }

    /// Whether nothing is left of what it takes to look at more devices.
    pub(crate) fn is_short(&self) -> bool {
        self.is_blind() || self.is_spent() || self.formula.is_spent() || self.is_listed_out()
    }

    /// Whether nothing is left to weigh plans with.
    pub(crate) fn is_spent(&self) -> bool {
        self.passes.is_spent()
    }

    /// What a look at some devices by a formula may take.
    pub(crate) fn formula(&self) -> Stop {
        self.least(&self.formula)
    }

    /// What a look at some devices for the lowest peaks may take.
    pub(crate) fn peaks(&self) -> Stop {
        self.least(&self.peaks)
    }

    /// To try what fits by halves, when all else is spent.
    pub(crate) fn to_halve(&self) -> Self {
        Self { peaks: self.halves.clone(), ..self.clone() }
    }

    /// Counts work of listing places.
    pub(crate) fn list(&self, work: u64) {
        self.places.take(work);
    }

    /// Whether nothing is left of what it takes to list the places of more devices.
    pub(crate) fn is_listed_out(&self) -> bool {
        self.places.is_spent()
    }

    /// What a look at all stages of a question may take.
    pub(crate) fn prices(&self) -> Stop {
        self.least(&self.prices)
    }

    fn least(&self, share: &Stop) -> Stop {
        if share.is_spent() && self.least > 0 { self.stop.within(self.least) } else { share.clone() }
    }
}
