//! Why a question has no answer.

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::amounts::plural;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::objective::Objective;

use super::remedies::Remedy;
use super::why_not::WhyNot;
use loadmaster_memory::chunks::NoRoom;
use loadmaster_predict::PredictionError;

/// Of a search that found nothing, where it is not known either that there is nothing.
pub(super) const UNPROVEN: &str = "the search found no plan, but it is not proven that none exists. Use the search mode \
    exact, or restrict the layout, parallel sizes or devices";

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QuestionError {
    /// A field of the request is wrong.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A stage cannot be predicted.
    #[error(transparent)]
    Prediction(#[from] PredictionError),
    /// No plan can be recommended.
    #[error(transparent)]
    Recommend(#[from] RecommendError),
}

impl QuestionError {
    /// [`RecommendError::with_note`], where there is a note and no plan can be recommended.
    #[must_use]
    pub(crate) fn with_note(self, note: Option<&str>) -> Self {
        match (self, note) {
            (Self::Recommend(error), Some(note)) => error.with_note(note).into(),
            (other, _) => other,
        }
    }
}

/// Why nothing is recommended.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RecommendError {
    /// The framework cannot run the model.
    #[error("{0}")]
    Framework(String),
    /// An objective in seconds without any.
    #[error(
        "{objective} and limits on time need layer times, but the profile has none. Profile with `profiling_mode` \
         PROFILING_MODE_PER_LAYER, or minimize the peak memory"
    )]
    NoTimes {
        /// What was asked for.
        objective: Objective,
    },
    /// An objective in money without prices.
    #[error(
        "{objective} needs the hourly price of every kind of device. Set the prices in the cluster, or in \
         `objective.hourly_prices`"
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
        "the search was stopped before it found a plan. Set a longer `search.time_limit`, or restrict the layout, \
         parallel sizes or devices"
    )]
    Stopped,
    /// A stage that was given cannot be predicted.
    #[error("{0}")]
    Unpredictable(String),
    /// The partitioning that was given covers another number of layers.
    #[error(
        "the pipeline layout has {covered} layers, but the model has {layers}. Use a layout of {layers} layers"
    )]
    CoversOther {
        /// Layers of the partitioning.
        covered: usize,
        /// Layers of the model.
        layers: usize,
    },
    /// The partitioning that was given takes another number of devices.
    #[error(
        "the stages need {}, but {there} {} given. Give as many devices as the parallel sizes need",
        plural(*.needed, "device"),
        if *.there == 1 { "is" } else { "are" }
    )]
    DeviceCount {
        /// The degrees of the stages, added up.
        needed: u32,
        /// Devices.
        there: u32,
    },
    /// The partitioning that was given does not fit.
    #[error(
        "{partitioning} does not fit: {} needs {needed} of {capacity}, {missing} too much. Use larger devices, or less \
         memory (`problem.recompute`, `memory.optimizations`). Without `constraints.pipeline_layout`, the planner \
         searches other stages",
        told(*.position, .device)
    )]
    GivenDoesNotFit {
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
        /// How far plans are from the limits, human-readable.
        reason: String,
        /// Whether it is proven that no plan keeps to them.
        is_proof: bool,
        /// What would keep to them; each was checked.
        remedies: Vec<Remedy>,
    },
    /// There is no room for a training in chunks.
    #[error("{}{}{}{}", .lack, at(.step.as_deref()), no_more_than(*.most), no_more_of_host(*.host))]
    NoRoomInChunks {
        /// The choice that lacks least, what it lacks, and what would help.
        lack: Box<NoRoom>,
        /// The step that lacks memory of the device; none where the host alone lacks.
        step: Option<Box<LackingStep>>,
        /// The most that the request allows on it, where that is less than it has.
        most: Option<Bytes>,
        /// All that its node's host has, where more of it would help.
        host: Option<Bytes>,
    },
    /// Neither with chunks nor without them.
    #[error("no plan fits. Without chunked training: {plain}. With chunked training: {chunked}")]
    Neither {
        /// Why not without chunks.
        plain: String,
        /// What lacks in chunks.
        chunked: Box<RecommendError>,
    },
    /// Nothing fits.
    #[error("{}", no_plan(.reason, .remedies))]
    NoPlan {
        /// Why, human-readable.
        reason: String,
        /// What lacks in the best attempt.
        why_not: Box<WhyNot>,
        /// The first device that lacks it, as people know it.
        device: String,
        /// Name of the layer that fits nowhere, or empty.
        layer_name: String,
        /// What would help; each was checked.
        remedies: Vec<Remedy>,
    },
}

/// A step of a training in chunks that lacks memory of its device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LackingStep {
    /// What is done in it, human-readable.
    pub told: String,
    /// Name of the layer that does it.
    pub layer: String,
    /// The device, as people know it.
    pub device: String,
    /// The memory accounting that its bytes are of.
    pub ledger: Accounting,
}

impl RecommendError {
    /// Why there is no plan, without its remedies.
    pub fn reason(&self) -> String {
        match self {
            Self::NoPlan { reason, .. } | Self::Limits { reason, .. } => reason.clone(),
            Self::NoRoomInChunks { lack, step, most, host } => {
                let (step, most, host) = (at(step.as_deref()), no_more_than(*most), no_more_of_host(*host));
                format!("{}{step}{most}{host}", lack.reason())
            }
            Self::Neither { plain, chunked } => {
                format!(
                    "no plan fits. Without chunked training: {plain}. With chunked training: {}",
                    chunked.reason()
                )
            }
            other => other.to_string(),
        }
    }

    /// Its remedies; none of errors that have none.
    pub fn remedies_mut(&mut self) -> Option<&mut Vec<Remedy>> {
        match self {
            Self::NoPlan { remedies, .. } | Self::Limits { remedies, .. } => Some(remedies),
            _ => None,
        }
    }

    /// Whether it is memory or time that lacks: with less to train there may be a plan.
    pub(crate) fn lacks(&self) -> bool {
        match self {
            Self::NoPlan { why_not, .. } => why_not.missing().is_some(),
            Self::GivenDoesNotFit { .. }
            | Self::Limits { .. }
            | Self::NoRoomInChunks { .. }
            | Self::Neither { .. } => true,
            _ => false,
        }
    }

    /// The same with something that its reason leaves open, where it is that there is no plan.
    #[must_use]
    pub(crate) fn with_note(self, note: &str) -> Self {
        match self {
            Self::NoPlan { reason, why_not, device, layer_name, remedies } => {
                let reason = format!("{reason}; {note}");
                Self::NoPlan { reason, why_not, device, layer_name, remedies }
            }
            Self::Limits { reason, is_proof, remedies } => {
                Self::Limits { reason: format!("{reason}; {note}"), is_proof, remedies }
            }
            other => other,
        }
    }

    /// Where given stages need more than this device has. The device is reported by its position and its name.
    pub(crate) fn given_does_not_fit(
        partitioning: String,
        (position, device): (u32, String),
        needed: u64,
        capacity: u64,
    ) -> Self {
        let missing = Bytes(needed.saturating_sub(capacity));
        let (needed, capacity) = (Bytes(needed), Bytes(capacity));
        Self::GivenDoesNotFit { partitioning, position, device, needed, capacity, missing }
    }

    /// Where nothing but the reason is known.
    pub(crate) fn no_plan(why: &str) -> Self {
        Self::NoPlan {
            reason: why.to_owned(),
            why_not: Box::new(WhyNot::NoPlan { why: why.to_owned() }),
            device: String::new(),
            layer_name: String::new(),
            remedies: Vec::new(),
        }
    }

    /// Where nothing that was tried of the allowed memory optimizations makes a stage fit on this device, which lacks so much.
    pub(crate) fn no_actions(why: String, missing: Bytes, device: String) -> Self {
        let why_not = Box::new(WhyNot::Actions { why: why.clone(), missing, is_proven: false });
        Self::NoPlan { reason: why, why_not, device, layer_name: String::new(), remedies: Vec::new() }
    }

    /// The same, and nothing allowed does.
    #[must_use]
    pub(crate) fn proven(self) -> Self {
        self.with_proof(true)
    }

    /// The same, and something else that was not looked at may do.
    #[must_use]
    pub(crate) fn unproven(self) -> Self {
        self.with_proof(false)
    }

    fn with_proof(mut self, is_proof: bool) -> Self {
        match &mut self {
            Self::NoPlan { why_not, .. } => {
                if let WhyNot::Actions { is_proven, .. } | WhyNot::Plan { is_proven, .. } = &mut **why_not {
                    *is_proven = is_proof;
                }
            }
            Self::Limits { is_proof: of_limits, .. } => *of_limits = is_proof,
            _ => {}
        }
        self
    }

    /// The same, where the request allows no more than this on devices that have more.
    #[must_use]
    pub(crate) fn within(mut self, most: Option<Bytes>) -> Self {
        if let Self::NoPlan { reason, .. } = &mut self {
            reason.push_str(&no_more_than(most));
        }
        self
    }

    /// The same, of a layer that fits on no device.
    #[must_use]
    pub(crate) fn at_layer(mut self, name: &str) -> Self {
        if let Self::NoPlan { layer_name, .. } = &mut self {
            name.clone_into(layer_name);
        }
        self
    }

    /// Whether it is proven that no plan fits. A search that looked at a part of the plans proves nothing.
    pub fn is_proof(&self) -> bool {
        match self {
            Self::NoPlan { why_not, .. } => why_not.is_proven(),
            Self::Limits { is_proof, .. } => *is_proof,
            _ => false,
        }
    }
}

/// A device as people know it, with its position where its name does not say that.
fn told(position: u32, device: &str) -> String {
    let counted = format!("device {position}");
    if device == counted { counted } else { format!("{counted} ({device})") }
}

/// What a request allows on a device.
fn no_more_than(most: Option<Bytes>) -> String {
    most.map_or_else(String::new, |most| {
        format!("; the limit of each device is {most} (`constraints.max_peak_bytes`)")
    })
}

fn no_more_of_host(host: Option<Bytes>) -> String {
    host.map_or_else(String::new, |host| {
        format!("; the cluster allows {host} of CPU memory on the node of this device")
    })
}

/// Which moment of which device lacks memory.
fn at(step: Option<&LackingStep>) -> String {
    step.map_or_else(String::new, |LackingStep { told: pass, device, ledger: accounting, .. }| {
        format!(
            " (the memory of {device} is too small in this step: {pass}; the missing bytes are {accounting} memory)"
        )
    })
}

fn no_plan(reason: &str, remedies: &[Remedy]) -> String {
    if remedies.is_empty() {
        return reason.to_owned();
    }
    let each: Vec<String> =
        remedies.iter().map(|remedy| format!("{} ({})", remedy.what, remedy.plan.describe())).collect();
    format!("{reason}; changes that help: {}", each.join("; or "))
}
