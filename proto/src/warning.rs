//! Warnings: the limits of an answer that is valid all the same, each with a stable code.
//!
//! The codes are an interface, as the [reasons](crate::reason) of errors are: a code never changes its meaning. `deploy/errors.md`
//! lists them, and a test holds that page to this list.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::choice;
use crate::wire::v1;

/// How much a warning matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It explains a number or a choice.
    Info,
    /// A number can be wrong, or a step is left to the caller.
    Warning,
    /// The answer cannot be used as it is.
    Error,
}

choice! { Severity = v1::Severity { Info, Warning, Error } }

/// A limit of an answer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Warning {
    /// Its identifier.
    pub code: WarningCode,
    /// How much it matters; it follows from the code.
    pub severity: Severity,
    /// The stage that it is about; none if it is about the whole answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<u32>,
    /// The human-readable text: the fact, its values and the remedy.
    pub message: String,
}

impl Warning {
    /// Returns the same warning, about a stage.
    #[must_use]
    pub fn of_stage(self, stage: usize) -> Self {
        Self { stage: u32::try_from(stage).ok(), ..self }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<&Warning> for v1::Warning {
    fn from(warning: &Warning) -> Self {
        Self {
            code: warning.code.as_str().to_owned(),
            severity: v1::Severity::from(warning.severity).into(),
            stage: warning.stage.and_then(|stage| i32::try_from(stage).ok()),
            message: warning.message.clone(),
        }
    }
}

impl From<Warning> for v1::Warning {
    fn from(warning: Warning) -> Self {
        Self::from(&warning)
    }
}

/// Warnings as they are sent.
pub fn sent<'a>(warnings: impl IntoIterator<Item = &'a Warning>) -> Vec<v1::Warning> {
    warnings.into_iter().map(Into::into).collect()
}

macro_rules! codes {
    ($($(#[doc = $when:literal])+ $code:ident = $name:literal, $severity:ident;)*) => {
        /// The identifier of a warning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum WarningCode {
            $($(#[doc = $when])+ #[serde(rename = $name)] $code,)*
        }

        impl WarningCode {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$code,)*];

            /// As it travels.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$code => $name,)* }
            }

            /// How much it matters.
            pub const fn severity(self) -> Severity {
                match self { $(Self::$code => Severity::$severity,)* }
            }

            /// When it is given.
            pub const fn when(self) -> &'static str {
                match self { $(Self::$code => concat!($($when),+),)* }
            }

            /// Returns a warning with this code.
            pub fn says(self, message: impl Into<String>) -> Warning {
                Warning { code: self, severity: self.severity(), stage: None, message: message.into() }
            }
        }
    };
}

codes! {
    /// A stage does not fit with the bytes that the framework adds.
    StageDoesNotFit = "STAGE_DOES_NOT_FIT", Error;
    /// A stage fits as predicted, and not with its margin, or it has no margin.
    StageFitUncertain = "STAGE_FIT_UNCERTAIN", Warning;
    /// The bytes that the framework holds besides the plan's are not known.
    FrameworkMemoryUnknown = "FRAMEWORK_MEMORY_UNKNOWN", Warning;
    /// The framework that the plan is for cannot train it.
    FrameworkCannotTrain = "FRAMEWORK_CANNOT_TRAIN", Error;
    /// The bytes of a device besides tensors are missing in the profile, so no stage is said to fit.
    OverheadUnknown = "OVERHEAD_UNKNOWN", Warning;
    /// Contexts, communication libraries or fragmentation come on top of the predicted bytes.
    MemoryNotCounted = "MEMORY_NOT_COUNTED", Info;
    /// A prediction is beyond the profiled micro-batch sizes, micro-batches in flight or degrees.
    Extrapolated = "EXTRAPOLATED", Warning;
    /// No margin of the predicted bytes is known.
    MarginUnknown = "MARGIN_UNKNOWN", Warning;
    /// The requested margin is less than the predictor's own.
    MarginTooSmall = "MARGIN_TOO_SMALL", Warning;
    /// No margin of the predicted seconds is known.
    TimeMarginUnknown = "TIME_MARGIN_UNKNOWN", Info;
    /// A device takes fewer samples than were profiled, so its passes are taken to last as long as with the fewest.
    BatchBelowProfiled = "BATCH_BELOW_PROFILED", Info;
    /// Scratch memory of kernels is estimated, not recorded at this size.
    ScratchMemoryEstimated = "SCRATCH_MEMORY_ESTIMATED", Warning;
    /// Other processes used the devices during measurements, so measured seconds are too long.
    MeasurementsDisturbed = "MEASUREMENTS_DISTURBED", Warning;
    /// Two formulas for the same memory disagree.
    PredictorsDisagree = "PREDICTORS_DISAGREE", Warning;
    /// The layer table of an imported profile leaves a value out, and a default is used.
    TableIncomplete = "TABLE_INCOMPLETE", Warning;
    /// CPU slots share cores, or the number of cores is not known, so seconds hold for one run per core only.
    CoresShared = "CORES_SHARED", Warning;
    /// Seconds leave out the exchange between replicas.
    LinksNotCounted = "LINKS_NOT_COUNTED", Info;
    /// The shards of a stage are on several nodes.
    ShardsAcrossNodes = "SHARDS_ACROSS_NODES", Warning;
    /// The seconds depend on these transfer or update rates.
    RatesUsed = "RATES_USED", Info;
    /// The framework holds another number of bytes per parameter than the figures count.
    ParameterBytesDiffer = "PARAMETER_BYTES_DIFFER", Info;
    /// The profile does not state the bytes per parameter that its framework keeps besides.
    ParameterBytesUnstated = "PARAMETER_BYTES_UNSTATED", Warning;
    /// The schedule trains with gradients of older weights.
    StaleGradients = "STALE_GRADIENTS", Warning;
    /// Some chunks are larger than the chunk size, for one tensor each.
    ChunksOversized = "CHUNKS_OVERSIZED", Info;
    /// The cluster has less CPU memory than the request allows.
    HostMemoryLimited = "HOST_MEMORY_LIMITED", Info;
    /// More warnings of this kind are left out.
    WarningsOmitted = "WARNINGS_OMITTED", Info;
    /// Some plans were not considered.
    SearchIncomplete = "SEARCH_INCOMPLETE", Info;
    /// The deadline stopped the search.
    SearchStopped = "SEARCH_STOPPED", Warning;
    /// The scope of the certificate's bound.
    BoundScope = "BOUND_SCOPE", Info;
    /// The value of another plan, or of this plan by another objective.
    OtherValue = "OTHER_VALUE", Info;
    /// The plan is for a model that was scaled from the profiled one.
    ModelScaled = "MODEL_SCALED", Info;
    /// A part of the request has no effect.
    InputUnused = "INPUT_UNUSED", Warning;
    /// A property of the framework that matters for the plan.
    FrameworkNote = "FRAMEWORK_NOTE", Info;
    /// Devices were left out because the scheduler starts no job over several islands.
    DevicesExcluded = "DEVICES_EXCLUDED", Warning;
    /// Links between devices were simplified.
    LinksSimplified = "LINKS_SIMPLIFIED", Info;
    /// Links are assumed, not measured or given.
    LinksAssumed = "LINKS_ASSUMED", Warning;
    /// The catalog does not have this kind of device, so its links are assumed.
    DeviceKindUnknown = "DEVICE_KIND_UNKNOWN", Warning;
    /// A bandwidth is higher than any hardware has.
    BandwidthImplausible = "BANDWIDTH_IMPLAUSIBLE", Warning;
    /// A device has no NVLink, although its kind or its neighbours have.
    NvlinkMissing = "NVLINK_MISSING", Warning;
    /// The cluster has several islands, and a plan uses nodes of one.
    ClusterHasIslands = "CLUSTER_HAS_ISLANDS", Warning;
    /// The scheduler allows only some numbers of nodes, which plans do not take into account.
    NodeCountsRestricted = "NODE_COUNTS_RESTRICTED", Warning;
    /// The nodes given differ from those of the plan.
    NodesDiffer = "NODES_DIFFER", Warning;
    /// Some of the devices given have no rank.
    DevicesIdle = "DEVICES_IDLE", Info;
    /// Seconds on these devices cannot be predicted.
    TimeUnknown = "TIME_UNKNOWN", Warning;
    /// A profile of the plan cannot be read any more, or has changed.
    ProfileUnreadable = "PROFILE_UNREADABLE", Warning;
    /// The timeline leaves out copies, or waiting for them.
    CopiesNotSimulated = "COPIES_NOT_SIMULATED", Warning;
    /// The timeline is of another schedule than the plan's.
    ScheduleDiffers = "SCHEDULE_DIFFERS", Warning;
    /// Memory over time, or a timeline, is not part of the response.
    TimelineIncomplete = "TIMELINE_INCOMPLETE", Info;
    /// The timeline stands for several ranks or iterations.
    TimelineRepresentative = "TIMELINE_REPRESENTATIVE", Info;
    /// The newest trial needed more memory besides chunks than was planned, so chunks moved otherwise.
    ChunksReplanned = "CHUNKS_REPLANNED", Warning;
    /// The compared plans are of different models.
    ModelsDiffer = "MODELS_DIFFER", Warning;
    /// The compared plans have different numbers of samples per iteration.
    BatchesDiffer = "BATCHES_DIFFER", Warning;
    /// The compared bytes are of different accountings.
    AccountingsDiffer = "ACCOUNTINGS_DIFFER", Warning;
    /// The compared predictions come from different profiles.
    ProfilesDiffer = "PROFILES_DIFFER", Warning;
    /// The compared predictions come from different predictors.
    PredictorsDiffer = "PREDICTORS_DIFFER", Warning;
    /// The compared predictions are calibrated differently.
    CalibrationsDiffer = "CALIBRATIONS_DIFFER", Warning;
    /// The compared seconds assume different communication overlap.
    OverlapsDiffer = "OVERLAPS_DIFFER", Warning;
    /// A setting of the training program is left to the user.
    SetupNeeded = "SETUP_NEEDED", Info;
    /// The export trains otherwise than the plan's model or optimizer.
    TrainingDiffers = "TRAINING_DIFFERS", Warning;
    /// The framework holds more or less memory than the plan counts.
    MemoryDiffers = "MEMORY_DIFFERS", Warning;
    /// The export was checked with another version or package than it is for.
    ProofPartial = "PROOF_PARTIAL", Info;
    /// Ranks are on other devices than the framework uses by default.
    RankOrderDiffers = "RANK_ORDER_DIFFERS", Warning;
    /// Several ranks are on one GPU.
    GpuShared = "GPU_SHARED", Warning;
    /// Devices without a cluster are taken to be in one node.
    NodesAssumed = "NODES_ASSUMED", Warning;
    /// A property of the manifest that matters before it is applied.
    ManifestNote = "MANIFEST_NOTE", Info;
    /// The imported model leaves out a part of its source.
    ModelSourceIncomplete = "MODEL_SOURCE_INCOMPLETE", Warning;
}

impl fmt::Display for WarningCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_warnings_keep_code_severity_and_stage() {
        let warning = WarningCode::Extrapolated.says("beyond").of_stage(2);
        let stored = serde_json::to_string(&warning).unwrap();
        assert_eq!(stored, r#"{"code":"EXTRAPOLATED","severity":"warning","stage":2,"message":"beyond"}"#);
        assert_eq!(serde_json::from_str::<Warning>(&stored).unwrap(), warning);
        let sent = v1::Warning::from(warning);
        assert_eq!(
            (sent.code.as_str(), sent.severity(), sent.stage),
            ("EXTRAPOLATED", v1::Severity::Warning, Some(2))
        );
    }

    #[test]
    fn codes_are_upper_snake_case_and_unique() {
        let mut names: Vec<&str> = WarningCode::ALL.iter().map(|code| code.as_str()).collect();
        assert!(names.iter().all(
            |name| name.len() < 64 && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
        ));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), WarningCode::ALL.len());
    }
}
