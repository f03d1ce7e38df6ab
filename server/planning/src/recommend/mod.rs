//! From a wish to a plan, with what proves it, what came next, and what restricted it.
//!
//! | file | question |
//! |---|---|
//! | `question`, `chain` | what is asked, of which profile, on which devices? |
//! | `batches`, `reach` | which micro-batches, schedules and degrees may be chosen? |
//! | `wish` | what is asked for, with all defaults filled in? |
//! | `launcher` | what can each launcher run? |
//! | `holds` | what does it hold of every parameter? |
//! | `market` | where do the prices of stages come from? |
//! | `prices`, `corrected` | how do predictors give them, and what are they multiplied with? |
//! | `part` | which part of the devices does a plan take? |
//! | `variant` | which questions have to be asked: batch, schedule, degrees? |
//! | `solve` | which search answers which question? |
//! | `annealed` | what does AMP's annealing come by? |
//! | `ranking` | which plans are best on given devices? |
//! | `attempt` | which devices, which batch? |
//! | `effort` | how much may be tried? |
//! | `fewest` | how few devices, or how cheap ones, are enough? |
//! | `relaxed` | what does any plan on so many devices need at least? |
//! | `certificate` | how good is the answer, and what was rejected? |
//! | `restriction` | what do shape and launcher cost? |
//! | `lack`, `remedies` | why does nothing fit, and what would help? |
//! | `compared` | what do well-known rules need? |
//! | `transfers` | do devices compute while they exchange with the stages next to them? |
//! | `given` | what does a plan need that the caller names? |
//! | `incomparable` | which plans must not be compared, in what? |
//! | `largest_model` | which is the largest of several models that fits? |
//! | `plan` | what is told and kept of a candidate? |
//!
//! A formula finds good plans among millions at once. What certificates say rests on simulation: plans are ranked by
//! simulated seconds, and no plan is faster, as simulated, than the bound.

mod annealed;
mod attempt;
mod batches;
mod candidate;
mod certificate;
mod chain;
mod compared;
mod corrected;
mod effort;
mod fewest;
mod given;
pub mod holds;
mod incomparable;
mod lack;
mod largest_model;
mod launcher;
mod market;
mod part;
mod plan;
mod prices;
mod question;
mod ranking;
mod reach;
mod relaxed;
mod remedies;
mod restriction;
mod solve;
mod transfers;
mod variant;
mod wish;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::model::Model;
use loadmaster_proto::plan::certificate::Certificate;
use loadmaster_proto::plan::compared::{Baseline, RestrictionCost};
use loadmaster_proto::plan::objective::{Objective, SearchMode};
use loadmaster_proto::training::Optimizer;

use super::search::{Fleet, Stop};
use attempt::attempt;
pub use batches::{batches, least_share, left_out, recompute, schedules};
pub use candidate::{Candidate, CandidateStage};
pub use chain::ProfiledChain;
pub use corrected::{Corrected, Factors};
use effort::Effort;
pub use given::{GIVEN, given};
pub use incomparable::incomparable;
pub use lack::{Lack, Short};
pub use largest_model::largest_model;
pub use launcher::{CutUnit, Rules};
pub use market::{Batch, LayerFacts, Market};
use part::{Part, Parts};
pub use plan::NamedPlan;
pub use prices::Prices;
pub use question::{Question, QuestionError};
pub use remedies::Remedy;
pub use transfers::{Transfers, transfers};
pub use variant::{Variant, divisors, variants};
pub use wish::{MAX_BATCHES, Wish};

/// What a recommendation is about.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// Names of the layers in order.
    pub names: &'a [String],
    /// The model; none of a chain that is known by name alone.
    pub model: Option<&'a Model>,
    /// All devices that may be used.
    pub fleet: &'a Fleet,
    /// What they are called, in the fleet's order.
    pub devices: &'a [String],
    /// How parameters are updated, for rules that weigh them.
    pub optimizer: &'a Optimizer,
}

impl Scene<'_> {
    /// What a device is called.
    pub fn device(&self, device: u32) -> Option<String> {
        self.devices.get(device as usize).cloned()
    }

    /// What some devices are called: the first, and the last where they are several.
    pub fn device_range(&self, devices: &[u32]) -> String {
        let name = |device: Option<&u32>| device.and_then(|&device| self.device(device)).unwrap_or_default();
        match devices {
            [_] => name(devices.first()),
            _ => format!("{} to {}", name(devices.first()), name(devices.last())),
        }
    }
}

/// The answer to a wish.
#[derive(Debug, Clone, PartialEq)]
pub struct Recommendation {
    /// The best plan.
    pub best: Candidate,
    /// What proves it.
    pub certificate: Certificate,
    /// Name and version of the search.
    pub solver: String,
    /// The plans that came next, best first, with their values as the certificate counts them.
    pub alternatives: Vec<(Candidate, f64)>,
    /// The whole front between memory and time, the fastest first; empty but for that objective.
    pub front: Vec<Candidate>,
    /// Plans of well-known rules.
    pub compared: Vec<Baseline>,
    /// What shape and launcher cost; none where they restrict nothing.
    pub restriction: Option<RestrictionCost>,
    /// What to know besides, for people.
    pub notes: Vec<String>,
}

/// Why nothing is recommended.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RecommendError {
    /// The launcher cannot run the model.
    #[error("{0}")]
    Launcher(String),
    /// An objective in seconds without any.
    #[error(
        "the profile has no times, which {objective} and limits on time need: profile with \
         `--campaign minimal`, or ask for the lowest peak memory"
    )]
    NoTimes {
        /// What was asked for.
        objective: Objective,
    },
    /// An objective in money without prices.
    #[error(
        "{objective} needs the hourly price of every kind of device: name them in the cluster, or with `--price`"
    )]
    NoPrices {
        /// What was asked for.
        objective: Objective,
    },
    /// A mode of a paper that answers another question.
    #[error("{0}")]
    Mode(String),
    /// The search was stopped before it found anything.
    #[error(
        "the search was stopped before it found a plan: give it more time with `--deadline`, or restrict it"
    )]
    Stopped,
    /// A stage that was given cannot be predicted.
    #[error("{0}")]
    Unpredictable(String),
    /// The partitioning that was given covers another number of layers.
    #[error("the partitioning covers {covered} layers, the model has {layers}")]
    CoversOther {
        /// Layers of the partitioning.
        covered: usize,
        /// Layers of the model.
        layers: usize,
    },
    /// The partitioning that was given takes another number of devices.
    #[error(
        "the stages need {needed} devices, {there} are given: name as many devices as the degrees add up to"
    )]
    DeviceCount {
        /// The degrees of the stages, added up.
        needed: u32,
        /// Devices.
        there: u32,
    },
    /// The partitioning that was given does not fit.
    #[error(
        "{partitioning} does not fit: device {position} ({device}) needs {needed} of {capacity}, {missing} too much"
    )]
    GivenDoesNotFit {
        /// The partitioning.
        partitioning: String,
        /// Position of the first device that is too small.
        position: u32,
        /// That device, as people know it.
        device: String,
        /// What it must hold, the margin included.
        needed: Bytes,
        /// What it allows.
        capacity: Bytes,
        /// What is missing.
        missing: Bytes,
    },
    /// Plans fit, but none is fast enough or small enough.
    #[error("{}", no_plan(.reason, .remedies))]
    Limits {
        /// How far plans are from the limits, for people.
        reason: String,
        /// Whether it is proven that no plan keeps to them.
        is_proof: bool,
        /// What would keep to them; each was checked.
        remedies: Vec<Remedy>,
    },
    /// Nothing fits.
    #[error("{}", no_plan(.reason, .remedies))]
    NoPlan {
        /// Why, for people.
        reason: String,
        /// What lacks in the best attempt.
        lack: Box<Lack>,
        /// The first device that lacks it, as people know it.
        device: String,
        /// Name of the layer that fits nowhere, or empty.
        layer_name: String,
        /// What would help; each was checked.
        remedies: Vec<Remedy>,
    },
}

impl RecommendError {
    /// Whether it is proven that no plan fits. A search that looked at a part of the plans proves nothing.
    pub fn is_proof(&self) -> bool {
        match self {
            Self::NoPlan { lack, .. } => !matches!(&**lack, Lack::NoPlan { why } if why == UNPROVEN),
            Self::Limits { is_proof, .. } => *is_proof,
            _ => false,
        }
    }
}

fn no_plan(reason: &str, remedies: &[Remedy]) -> String {
    if remedies.is_empty() {
        return reason.to_owned();
    }
    let each: Vec<String> = remedies
        .iter()
        .map(|remedy| format!("{} (`{}`: {})", remedy.what, remedy.option, remedy.plan.describe()))
        .collect();
    format!("{reason}; what would fit: {}", each.join("; or "))
}

/// Recommends the plan that is best by the wish's objective.
/// Stopped, it gives the best that it has, and leaves out what it would tell besides: what was rejected, what the
/// restrictions cost, what would help.
///
/// # Errors
/// What cannot be asked of this profile or launcher, or why no plan fits, with what would help.
pub fn recommend<M: Market>(
    market: &M,
    scene: &Scene<'_>,
    wish: &Wish,
    stop: &Stop,
) -> Result<Recommendation, RecommendError> {
    check(market, scene, wish)?;
    let cuts = wish.cuts_for(scene.model).map_err(RecommendError::Launcher)?;
    let found = attempt(market, wish, scene.fleet, &cuts, &Effort::usual(stop));
    let pool = certificate::pool(market, wish, &found, scene.fleet, &cuts, stop);
    let Some(best) = pool.first().cloned() else {
        if found.is_stopped {
            return Err(RecommendError::Stopped);
        }
        return Err(nothing(market, scene, wish, &found, &cuts, stop));
    };
    let mut certificate = certificate::certificate(market, scene, wish, &found, &pool, &cuts, stop);
    let is_brief = wish.brief || stop.is_requested();
    let restriction =
        if is_brief { None } else { restriction::restriction(market, scene, wish, &pool, stop) };
    let (mut alternatives, mut front) = (Vec::new(), Vec::new());
    if wish.objective == Objective::Pareto {
        front = pool;
    } else {
        alternatives = certificate::alternatives(wish, &pool);
    }
    let compared = if is_brief { Vec::new() } else { compared::compared(market, scene, wish, &best, &cuts) };
    let mut notes: Vec<String> = Vec::new();
    if let Some(rules) = wish.rules.filter(|rules| !rules.note.is_empty()) {
        notes.push(rules.note.to_owned());
    }
    if !found.open.is_empty() {
        notes
            .push(format!("not looked at whole: {}; a better plan may be among them", found.open.join(", ")));
    }
    // What was told besides may have been cut short too: another deadline would have told more.
    certificate.stopped |= stop.is_requested();
    let solver = solve::solver(wish);
    Ok(Recommendation { best, certificate, solver, alternatives, front, compared, restriction, notes })
}

fn check<M: Market>(market: &M, scene: &Scene<'_>, wish: &Wish) -> Result<(), RecommendError> {
    let needs_times = matches!(wish.objective, Objective::MinIterationTime | Objective::Pareto)
        || wish.constraints.max_iteration_seconds.is_some();
    if needs_times && !market.has_times() {
        return Err(RecommendError::NoTimes { objective: wish.objective });
    }
    let is_priced = scene
        .fleet
        .nodes
        .iter()
        .all(|node| scene.fleet.kinds.get(node.kind).is_some_and(|kind| kind.hourly_price.is_some()));
    if wish.objective == Objective::MinCost && !is_priced {
        return Err(RecommendError::NoPrices { objective: wish.objective });
    }
    solve::check_mode(wish).map_err(RecommendError::Mode)
}

/// Of a search that found nothing, where it is not known either that there is nothing.
const UNPROVEN: &str = "the search found no plan, which does not prove that there is none: ask for the search mode \
                        exact, or restrict shape, degrees or devices";

/// Of a search that proved that there is nothing, where finding out why takes too long.
const UNEXPLAINED: &str = "no plan fits, and what comes closest would take too long to find out: restrict shape, degrees \
                           or devices";

/// Most parts of the devices that are asked why nothing fits.
const MOST_EXPLAINED: usize = 64;

/// Most micro-batches of which each is asked why nothing fits: the smallest, which are the nearest to fitting.
const MOST_BATCHES_EXPLAINED: usize = 16;

/// The parts of the devices that a wish's plans may take: all of them, or some where they may be idle.
fn allowed_parts(scene: &Scene<'_>, wish: &Wish, cuts: &super::search::Cuts) -> Vec<Part> {
    let may_idle = wish.constraints.allow_idle_devices
        || matches!(wish.objective, Objective::MinDevices | Objective::MinCost);
    if !may_idle {
        return vec![Part::whole(scene.fleet)];
    }
    let is_even = wish.rules.is_some_and(|rules| rules.even_nodes);
    let (mut parts, _) = Parts::of(scene.fleet, cuts, is_even).all();
    parts.truncate(MOST_EXPLAINED);
    parts
}

/// Why there is no plan, and what would help.
fn nothing<M: Market>(
    market: &M,
    scene: &Scene<'_>,
    wish: &Wish,
    found: &attempt::Attempt,
    cuts: &super::search::Cuts,
    stop: &Stop,
) -> RecommendError {
    let parts = allowed_parts(scene, wish, cuts);
    let is_limited =
        wish.constraints.max_iteration_seconds.is_some() || wish.constraints.max_peak_bytes.is_some();
    let effort = Effort::usual(stop);
    let fits = |part: &Part| attempt::first_fit(market, wish, part, cuts, &effort).is_some();
    if is_limited && parts.iter().any(fits) {
        return RecommendError::Limits {
            reason: beyond_limits(market, scene, wish, cuts, stop),
            is_proof: !found.is_bounded && !found.is_stopped && wish.mode == SearchMode::Exact,
            remedies: remedies::for_limits(market, scene, wish, stop),
        };
    }
    // A program of a paper may miss what is there.
    if wish.mode != SearchMode::Exact && parts.iter().any(fits) {
        return RecommendError::NoPlan {
            reason: UNPROVEN.to_owned(),
            lack: Box::new(Lack::NoPlan { why: UNPROVEN.to_owned() }),
            device: String::new(),
            layer_name: String::new(),
            remedies: Vec::new(),
        };
    }
    let mut asked = wish.clone();
    if asked.batches.len() > MOST_BATCHES_EXPLAINED {
        asked.batches.sort_by_key(|batch| batch.micro_batch_size);
        asked.batches.truncate(MOST_BATCHES_EXPLAINED);
    }
    let mut lacking: Option<Lack> = None;
    let explaining = Effort::explaining(stop);
    // A layer is said to fit nowhere if that is so wherever it may be.
    let mut nowhere: Option<Option<usize>> = (parts.len() == MOST_EXPLAINED).then_some(None);
    for part in &parts {
        let variants = variants(&asked, part, market.layers());
        let one = match part.cuts(cuts) {
            Some(cuts) => lack::lack(market, &asked, &variants, part, &cuts, &explaining),
            None => Some(Lack::NoPlan { why: "a layer is pinned to a device that is not there".to_owned() }),
        };
        if let Some(Lack::Plan { layer, .. }) = &one {
            nowhere = Some(nowhere.map_or(*layer, |other| other.filter(|_| other == *layer)));
        }
        lacking = lack::closer(lacking, one);
    }
    if let Some(Lack::Plan { layer, .. }) = &mut lacking {
        *layer = nowhere.flatten();
    }
    if explaining.is_over() {
        // Another plan may lack less.
        lacking = None;
    }
    if lacking.is_none() && stop.is_requested() {
        return RecommendError::Stopped;
    }
    let is_unexplained = explaining.is_over() && !found.is_bounded;
    let why = if is_unexplained { UNEXPLAINED } else { UNPROVEN };
    let lack = lacking.unwrap_or_else(|| Lack::NoPlan { why: why.to_owned() });
    let device = lack.short().and_then(|short| scene.device(*short.devices.first()?));
    let layer_name = match &lack {
        Lack::Plan { layer, .. } => layer.and_then(|layer| scene.names.get(layer).cloned()),
        Lack::NoPlan { .. } => None,
    };
    RecommendError::NoPlan {
        reason: lack.describe(scene),
        remedies: remedies::remedies(market, scene, wish, stop),
        device: device.unwrap_or_default(),
        layer_name: layer_name.unwrap_or_default(),
        lack: Box::new(lack),
    }
}

/// Plans fit the devices, but not the limits of the request: how far they are from them.
fn beyond_limits<M: Market>(
    market: &M,
    scene: &Scene<'_>,
    wish: &Wish,
    cuts: &super::search::Cuts,
    stop: &Stop,
) -> String {
    let mut text = "plans fit the devices, but none keeps to the limits".to_owned();
    let unlimited = |objective| {
        let mut free = Wish { objective, mode: SearchMode::Exact, ..wish.clone() };
        (free.constraints.max_iteration_seconds, free.constraints.max_peak_bytes) = (None, None);
        free.constraints.allow_idle_devices |=
            matches!(wish.objective, Objective::MinDevices | Objective::MinCost);
        let ranking = attempt::on_any_part(market, &free, scene.fleet, cuts, &Effort::besides(stop));
        ranking.candidates.into_iter().next()
    };
    if let Some(limit) = wish.constraints.max_iteration_seconds
        && let Some(seconds) = unlimited(Objective::MinIterationTime).and_then(|plan| plan.seconds())
    {
        let keeps = if seconds <= limit {
            ", which is within it: what was asked for besides was not found in time, so restrict the search"
        } else {
            ""
        };
        text.push_str(&format!(
            "; the fastest takes {seconds:.4} s for an iteration, the limit is {limit} s (`--max-iteration`){keeps}"
        ));
    }
    if let Some(most) = wish.constraints.max_peak_bytes
        && let Some(plan) = unlimited(Objective::MinPeakMemory)
    {
        text.push_str(&format!(
            "; the lowest peak is {}, the limit is {} (`--max-peak`)",
            Bytes(plan.peak_bytes()),
            Bytes(most)
        ));
    }
    text
}

#[cfg(test)]
mod brute;
#[cfg(test)]
mod tests;
