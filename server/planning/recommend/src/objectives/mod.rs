//! Objectives: one file each, for every kind of plan.
//!
//! | module | question |
//! |---|---|
//! | here | what must a family of plans be able to answer, and how good is an answer? |
//! | `fewest_devices` | how few devices are enough, or how cheap ones? |
//! | `largest_batch` | how large a micro-batch fits? |
//! | `largest_model` | which is the largest of several models that fits, or of a family? It asks whole questions |
//! | `lowest_peak` | how low a peak is reached? |
//! | `front` | what does less memory cost in time, and which peaks are asked for? |
//!
//! All but the largest model ask a [`PlanFamily`] for the fastest plan within a [`Subproblem`]: some devices, some micro-batches and
//! a peak. A family that finds nothing need not be right: a value is proven only where every better one is proven impossible, and else leaves a gap.

mod fewest_devices;
mod front;
mod largest_batch;
mod largest_model;
mod lowest_peak;

use loadmaster_proto::amounts::Seconds;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::comparison::Alternative;
use loadmaster_proto::plan::findings::{Certificate, Rejected};
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::training::stage::Partitioning;
use loadmaster_proto::warning::{Warning, WarningCode};

use super::context::Context;
use super::memory_optimizations::LayerMinima;
use super::plan::{NamedPlan, keep};
use super::problem::Criteria;
use super::result::{QuestionError, RecommendError, certified};
use super::search::{Candidate, Inquiry, Job, Solution, best_value, on_any_subset};
pub(crate) use fewest_devices::DeviceWorth;
pub(crate) use front::rungs_around;
pub use largest_model::{Family, ScaledModel, largest_model};
use loadmaster_search::Stop;
use loadmaster_search::cost::{Batch, Market};
use loadmaster_search::fleet::Subset;

/// A plan, and the plans that it names.
pub(crate) type Answer = Result<(Plan, Vec<NamedPlan>), QuestionError>;

/// What a plan may take.
#[derive(Debug, Clone)]
pub(crate) struct Subproblem {
    /// Its devices: all of them, unless they may be idle.
    pub(crate) devices: Subset,
    pub(crate) batches: Vec<Batch>,
    /// The highest peak, as the family counts it; none besides the devices' memory and the criteria's limit.
    pub(crate) most: Option<u64>,
    /// Another share of that, and of what devices have, which a search may take, as so many of so many parts. The caller then
    /// checks that the plan keeps to the subproblem itself.
    pub(crate) beyond: Option<(u64, u64)>,
    pub(crate) may_idle: bool,
}

impl Subproblem {
    /// All of these devices, with these micro-batches.
    pub(crate) fn on(devices: &Subset, batches: &[Batch]) -> Self {
        Self {
            devices: devices.clone(),
            batches: batches.to_vec(),
            most: None,
            beyond: None,
            may_idle: false,
        }
    }

    /// The same within a peak.
    pub(crate) fn within(&self, most: u64) -> Self {
        Self { most: Some(most), ..self.clone() }
    }
}

/// The fastest plan that was found within a subproblem.
#[derive(Debug, Clone)]
pub(crate) struct FamilySolution {
    /// Without a certificate.
    pub(crate) plan: Plan,
    /// Its stages without memory optimizations, where they are known.
    pub(crate) candidate: Option<Candidate>,
    /// Of its seconds; of its peak where it is not known seconds.
    pub(crate) certificate: Certificate,
    /// The scope of the certificate's bound, human-readable; empty where another text reports it.
    pub(crate) bound_is: String,
    /// Those that come next, with what they are worth.
    pub(crate) next: Vec<(Plan, f64)>,
}

impl FamilySolution {
    /// A plan alone.
    pub(crate) fn new(plan: Plan, certificate: Certificate) -> Self {
        Self { plan, candidate: None, certificate, bound_is: String::new(), next: Vec::new() }
    }
}

/// What was found within a peak.
#[derive(Debug, Clone)]
pub(crate) struct Point<T> {
    /// The peak that it was held to.
    pub(crate) cap: u64,
    /// Its own.
    pub(crate) peak: u64,
    pub(crate) found: T,
}

/// Whether a family has plans on some devices with some micro-batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Availability {
    /// It has some, which may be searched.
    Searched,
    /// It has some, all of which are too long to be searched.
    TooLong,
    /// It has none.
    Absent,
}

/// What an objective reports of its plan.
pub(crate) struct Verdict<'a> {
    /// How good the plan is by the objective.
    pub(crate) certificate: Certificate,
    /// What to know besides, human-readable.
    pub(crate) notes: Vec<Warning>,
    /// The plans among which this one is the fastest, where its seconds are reported.
    pub(crate) among: Option<&'a str>,
    /// What the plans that it is compared with may take; none where that is what the request says.
    pub(crate) beside: Option<&'a Subproblem>,
    /// What the plans that come next are worth; none where they are not reported.
    pub(crate) next_worth: Option<f64>,
}

/// What all families read of a question.
#[derive(Clone, Copy)]
pub(crate) struct FamilyContext<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) job: &'a Job<'a>,
    pub(crate) criteria: &'a Criteria,
    /// The stages, where the request names them.
    pub(crate) given: Option<&'a Partitioning>,
    pub(crate) stop: &'a Stop,
    /// What layers need alone, as far as it is known.
    pub(crate) known: &'a LayerMinima,
}

impl<'a> FamilyContext<'a> {
    /// The same by other criteria, with what is known of layers by these.
    pub(crate) fn with<'b>(self, criteria: &'b Criteria, known: &'b LayerMinima) -> FamilyContext<'b>
    where
        'a: 'b,
    {
        FamilyContext { criteria, known, ..self }
    }
}

/// A family of plans: what all objectives ask of it.
pub(crate) trait PlanFamily {
    fn context(&self) -> &FamilyContext<'_>;

    /// Returns all that the question leaves.
    fn whole(&self) -> Subproblem;

    /// Returns the fastest plan within a subproblem, alone.
    ///
    /// # Errors
    /// Nothing was found that fits and keeps to the limits.
    fn fastest(&self, subproblem: &Subproblem) -> Result<FamilySolution, QuestionError>;

    /// Returns the same with what it is compared with, and with the bound of its seconds.
    ///
    /// # Errors
    /// As there.
    fn compared(&self, subproblem: &Subproblem) -> Result<FamilySolution, QuestionError> {
        self.fastest(subproblem)
    }

    /// Returns a plan that was found for its peak with what it is compared with, and whether it is the fastest within that peak.
    fn of_lowest_peak(
        &self,
        found: FamilySolution,
        _within: &Subproblem,
        _bound: Option<f64>,
    ) -> (FamilySolution, bool) {
        (found, true)
    }

    /// Returns the fastest plan within a peak, as a point of a front.
    ///
    /// # Errors
    /// As [`Self::fastest`].
    fn point(&self, subproblem: &Subproblem, cap: u64) -> Result<Point<FamilySolution>, QuestionError> {
        let found = self.fastest(&subproblem.within(cap))?;
        Ok(Point { cap, peak: self.peak(&found.plan), found })
    }

    /// Returns whether points come with all that is reported of a plan: comparisons, and a proof of its seconds.
    fn compares_points(&self) -> bool;

    /// Returns a plan that holds little, from which a search for the lowest peak may begin.
    fn lightest(&self, _subproblem: &Subproblem, _first: &FamilySolution) -> Option<FamilySolution> {
        None
    }

    /// Returns whether there are plans for so many devices.
    fn may_take(&self, _devices: u32) -> bool {
        true
    }

    /// Returns whether all choices of as many devices of each kind have the same plans.
    fn stand_for_all(&self) -> bool {
        false
    }

    /// Returns whether there are plans on these devices with these micro-batches.
    ///
    /// # Errors
    /// What is wrong with the question.
    fn availability(&self, _devices: &Subset, _batches: &[Batch]) -> Result<Availability, QuestionError> {
        Ok(Availability::Searched)
    }

    /// Returns why nothing fits into any subproblem, where that is known before any search.
    fn nowhere(&self) -> Option<RecommendError> {
        None
    }

    /// Returns the plan to fall back to where a search for the fewest devices is stopped.
    fn spare(&self) -> Option<FamilySolution>;

    /// Returns why nothing fits into a subproblem, where that is proven without a search that [`Self::fastest`] does not make.
    fn lacks(&self, _subproblem: &Subproblem) -> Option<RecommendError> {
        None
    }

    /// Returns whether it is proven that nothing fits into a subproblem.
    fn is_impossible(&self, subproblem: &Subproblem) -> bool {
        self.lacks(subproblem).is_some()
    }

    /// Returns whether a search that finds nothing may prove that there is nothing.
    fn is_exact(&self) -> bool;

    /// Returns a peak that no plan within a subproblem gets below, where one reaches `known`.
    fn floor(&self, subproblem: &Subproblem, known: u64) -> u64;

    /// Returns what that floor is, human-readable; empty where it needs no words.
    fn floor_is(&self) -> &'static str {
        ""
    }

    /// Returns a plan's highest peak as subproblems count it.
    fn peak(&self, plan: &Plan) -> u64;

    /// Returns such a peak as a certificate counts it.
    fn counted(&self, peak: u64) -> f64;

    /// Returns such a peak human-readable.
    fn peak_text(&self, peak: u64) -> String {
        Bytes(peak).to_string()
    }

    /// Returns an error with what would help.
    fn explained(&self, error: QuestionError, _subproblem: &Subproblem) -> QuestionError {
        error
    }

    /// Returns why there are no such plans on any devices.
    fn why_absent(&self) -> QuestionError {
        RecommendError::no_plan(
            "no number of devices has enough memory for the training, with all allowed changes",
        )
        .into()
    }

    /// Returns what was looked at, human-readable, where that is not every plan.
    fn looked_at(&self) -> Option<Warning>;

    /// Says what another plan comes to, of those that a subproblem allows, or else the request.
    ///
    /// # Errors
    /// What is wrong with the question.
    fn compare(&self, _plan: &mut Plan, _beside: Option<&Subproblem>) -> Result<(), QuestionError> {
        Ok(())
    }

    /// Returns the plan with all that is reported of it.
    ///
    /// # Errors
    /// What is wrong with the question.
    fn told(&self, found: FamilySolution, verdict: Verdict<'_>) -> Answer {
        let FamilySolution { mut plan, certificate: of_seconds, mut next, .. } = found;
        plan.warnings.extend(self.looked_at());
        plan.warnings.extend(verdict.notes);
        let among = verdict.among.filter(|_| plan.iteration_seconds().is_some());
        plan.warnings.extend(among.map(|among| seconds_note(among, &of_seconds)));
        plan.found.certificate = Some(verdict.certificate);
        self.compare(&mut plan, verdict.beside)?;
        let Some(worth) = verdict.next_worth else { return Ok((plan, Vec::new())) };
        next.iter_mut().for_each(|(_, own)| *own = worth);
        let others = annotate_next(&mut plan, next)?;
        Ok((plan, others))
    }

    /// Returns the fastest plan, which no other objective has.
    ///
    /// # Errors
    /// As [`Self::fastest`].
    fn shortest(&self) -> Answer;
}

/// Returns the best plan of a family by the criteria's objective, and the plans that it names.
///
/// # Errors
/// Nothing that is allowed makes one fit within the limits, as far as anything was found, or the search was stopped before.
pub(crate) fn best<F: PlanFamily>(family: &F) -> Answer {
    match family.context().criteria.objective {
        // Of several models the caller asks for one after another.
        Objective::MinIterationTime | Objective::MaxModel => family.shortest(),
        Objective::MinDevices | Objective::MinCost => fewest_devices::fewest_devices(family),
        Objective::MaxBatch => largest_batch::largest_batch(family),
        Objective::MinPeakMemory => lowest_peak::lowest_peak(family),
        Objective::Pareto => front::front(family),
    }
}

/// Reports the plans that came next with their values, and gives them names.
///
/// # Errors
/// The stages of a plan do not follow each other.
pub(crate) fn annotate_next(
    plan: &mut Plan,
    next: Vec<(Plan, f64)>,
) -> Result<Vec<NamedPlan>, QuestionError> {
    let mut others: Vec<NamedPlan> = Vec::with_capacity(next.len());
    for (other, value) in next {
        let summary = other.outline()?;
        let name = Some(keep(&mut others, other)?);
        plan.found.alternatives.push(Alternative { plan: name, summary, value });
    }
    Ok(others)
}

/// Returns the best plans by what their stages cost alone, by the criteria's objective.
pub(crate) fn attempt<M: Market>(inquiry: Inquiry<'_, M>) -> Solution {
    let criteria = inquiry.criteria;
    match criteria.objective {
        Objective::MinDevices | Objective::MinCost => fewest_devices::exact_fewest_devices(inquiry),
        Objective::MaxBatch => largest_batch::exact_largest_batch(inquiry),
        // Of several models the caller asks for one after another.
        Objective::MinPeakMemory | Objective::MaxModel | Objective::MinIterationTime | Objective::Pareto => {
            let ranking = on_any_subset(inquiry);
            let value = best_value(criteria, &ranking.candidates);
            let bound = ranking.bound.filter(|bound| bound.is_finite());
            Solution::new(ranking, value, bound)
        }
    }
}

/// Most alternatives that a certificate names.
const NAMED: usize = 3;

/// The progress of a search for an objective.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// States weighed.
    pub(crate) states: u64,
    /// Whether it was stopped.
    pub(crate) is_stopped: bool,
    /// The best value that is not proven impossible; none yet.
    pub(crate) doubtful: Option<f64>,
    /// What has no plan, as far as anything was found, with the value that it would have had.
    pub(crate) passed_over: Vec<Rejected>,
}

impl Progress {
    /// Notes what has no plan.
    pub(crate) fn pass_over(&mut self, what: String, value: f64, is_proven: bool) {
        if !is_proven {
            self.doubtful = self.doubtful.or(Some(value));
        }
        let reason = if is_proven {
            "no allowed change makes a plan fit within the limits"
        } else {
            "no plan was found that fits within the limits, but it is not proven that none exists"
        };
        self.passed_over.push(Rejected { what, value: Some(value), reason: reason.to_owned() });
    }

    /// The certificate of a plan of this value, where nothing better is possible but what is doubtful.
    pub(crate) fn certificate(mut self, value: f64, unit: &str) -> Certificate {
        // The nearest come last.
        self.passed_over.reverse();
        self.passed_over.truncate(NAMED);
        let bound = self.doubtful.unwrap_or(value);
        Certificate {
            proven: bound == value,
            stopped: self.is_stopped,
            states: self.states,
            rejected: self.passed_over,
            ..certified(value, Some(bound), unit)
        }
    }
}

/// Returns the note on the seconds of a plan that is best at another objective.
pub(crate) fn seconds_note(among: &str, certificate: &Certificate) -> Warning {
    let bound = certificate
        .bound
        .map_or_else(String::new, |bound| format!(", and no such plan takes less than {}", Seconds(bound)));
    let own = Seconds(certificate.value);
    WarningCode::OtherValue.says(format!(
        "this is the fastest plan that was found {among}. The plan takes {own} per iteration{bound}"
    ))
}

/// Returns whether an error states that no plan was found, not that the question is wrong.
pub(crate) fn is_nothing_found(error: &RecommendError) -> bool {
    matches!(
        error,
        RecommendError::NoPlan { .. }
            | RecommendError::Limits { .. }
            | RecommendError::GivenDoesNotFit { .. }
            | RecommendError::Stopped
    )
}

/// Such an error.
///
/// # Errors
/// Any other one.
pub(crate) fn nothing_found(error: QuestionError) -> Result<RecommendError, QuestionError> {
    match error {
        QuestionError::Recommend(error) if is_nothing_found(&error) => Ok(error),
        other => Err(other),
    }
}
