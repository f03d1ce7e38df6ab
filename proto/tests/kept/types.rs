//! The types whose form is kept. This is the one place of these tests that knows where types live.

use std::fmt::Display;

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::stage::ChunkedStage;
use loadmaster_proto::cluster::device::{Backend, Device, GpuLink};
use loadmaster_proto::cluster::import::ClusterFormat;
use loadmaster_proto::cluster::{Cluster, ClusterSource, LinkClass, LinkOrigin};
use loadmaster_proto::measure::chunked::ChunkRun;
use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::failure::{OutOfMemory, Phase, RunFailure};
use loadmaster_proto::measure::links::{Collectives, LinkMeasurement, LinkWork, RankLinks};
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::measure::rank::{LinkSpec, Probe, RankEvent, RankSpec};
use loadmaster_proto::measure::run::{ProfilingMode, RunSpec, SoloStage, Task, Work};
use loadmaster_proto::measure::trace::{LayerComponents, LayerContent, LayerTrace};
use loadmaster_proto::model::import::ModelSource;
use loadmaster_proto::model::layer::{Activation, Layer, NormKind, NormPosition, Perceptron};
use loadmaster_proto::model::{Loss, Model};
use loadmaster_proto::name::CommandName;
use loadmaster_proto::plan::constraints::Constraints;
use loadmaster_proto::plan::objective::{
    Framework, MemoryUnit, NodeSpanning, Objective, PlanShape, SearchMode,
};
use loadmaster_proto::plan::placement::Placement;
use loadmaster_proto::plan::prediction::{Breakdown, Interval, Origin, SecondsInterval, StageSeconds};
use loadmaster_proto::plan::report::Report;
use loadmaster_proto::profile::ProfileSettings;
use loadmaster_proto::profile::document::ProfileDocument;
use loadmaster_proto::reason::Reason;
use loadmaster_proto::training::overlap::Overlap;
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::stage::{Parallelism, Partitioning, StageConfig};
use loadmaster_proto::training::step_kind::StepKind;
use loadmaster_proto::training::{Precision, RecomputePolicy, Schedule, StaticBytes, TrainingSpec};
use loadmaster_proto::wire::v1;
use prost::{Message, Name};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A message as it travels.
pub(crate) struct Wire {
    /// Its full name, as descriptors have it.
    pub(crate) message: String,
    pub(crate) bytes: Vec<u8>,
}

/// A type with what is kept of its values.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// Reads JSON and writes it once more.
    pub(crate) written: fn(&str) -> Result<String, String>,
    /// The value's message; none for types that travel in others only.
    pub(crate) wire: fn(&str) -> Option<Wire>,
    /// The JSON of a message's value; none for messages that are only sent.
    pub(crate) of_wire: fn(&[u8]) -> Option<String>,
    /// What else a value says: its id, its notation.
    pub(crate) says: fn(&str) -> Option<String>,
}

fn read<T: DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).unwrap()
}

fn write<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap()
}

fn wire<M: Message + Name>(message: M) -> Option<Wire> {
    Some(Wire { message: M::full_name(), bytes: message.encode_to_vec() })
}

fn message<M: Message + Default>(bytes: &[u8]) -> M {
    M::decode(bytes).unwrap()
}

macro_rules! kinds {
    ($($name:literal $type:ty { $($field:ident: $value:expr),* $(,)? })+) => {
        &[$(Kind {
            name: $name,
            $($field: $value,)*
            ..Kind {
                name: $name,
                written: |json| serde_json::from_str::<$type>(json).map(|value| write(&value)).map_err(|e| e.to_string()),
                wire: |_| None,
                of_wire: |_| None,
                says: |_| None,
            }
        },)+]
    };
}

/// There and back: `From` and `TryFrom`.
macro_rules! to {
    (& $type:ty => $wire:ident) => {
        |json| wire(v1::$wire::from(&read::<$type>(json)))
    };
    ($type:ty => $wire:ident) => {
        |json| wire(v1::$wire::from(read::<$type>(json)))
    };
}
macro_rules! of {
    ($wire:ident => $type:ty) => {
        |bytes| Some(write(&<$type>::try_from(message::<v1::$wire>(bytes)).unwrap()))
    };
}

/// Every type that is stored or travels.
pub(crate) const KINDS: &[Kind] = kinds! {
    "StageConfig" StageConfig {
        wire: to!(StageConfig => StageConfig),
        of_wire: of!(StageConfig => StageConfig),
        says: |json| Some(read::<StageConfig>(json).to_string()),
    }
    "Partitioning" Partitioning {
        wire: to!(&Partitioning => PipelineLayout),
        of_wire: of!(PipelineLayout => Partitioning),
        says: |json| Some(read::<Partitioning>(json).to_string()),
    }
    "Scenario" Scenario { says: |json| Some(read::<Scenario>(json).to_string()) }
    "Bytes" Bytes { says: |json| Some(read::<Bytes>(json).to_string()) }
    "CommandName" CommandName {}
    "TrainingSpec" TrainingSpec {
        wire: to!(TrainingSpec => TrainingSpec),
        of_wire: of!(TrainingSpec => TrainingSpec),
    }
    "StaticBytes" StaticBytes {}
    "ModelSource" ModelSource {
        wire: to!(&ModelSource => ModelSource),
        of_wire: of!(ModelSource => ModelSource),
        says: |json| read::<ModelSource>(json).build().ok().map(|model| format!("{} {}", model.id(), write(&model))),
    }
    "Layer" Layer {
        wire: to!(&Layer => Layer),
        of_wire: of!(Layer => Layer),
        says: |json| Some(read::<Layer>(json).kind.normalised().fingerprint()),
    }
    "LayerContent" LayerContent {}
    "Model" Model {
        wire: to!(&Model => Model),
        of_wire: of!(Model => Model),
        says: |json| Some(read::<Model>(json).id()),
    }
    "Work" Work {}
    "SoloStage" SoloStage { of_wire: of!(SoloStage => SoloStage) }
    "RunSpec" RunSpec {
        wire: to!(&RunSpec => RunSpec),
        of_wire: of!(RunSpec => RunSpec),
    }
    "LinkWork" LinkWork { wire: to!(&LinkWork => LinkWork), of_wire: of!(LinkWork => LinkWork) }
    "LinkWork of a run" LinkWork { wire: |json| wire(v1::RunSpec::from(&Task::Links(read(json)))) }
    "LinkMeasurement" LinkMeasurement {
        wire: to!(&LinkMeasurement => MeasuredLinks),
        of_wire: of!(MeasuredLinks => LinkMeasurement),
    }
    "Environment" Environment { wire: to!(Environment => Environment), of_wire: of!(Environment => Environment) }
    "Device" Device { wire: to!(&Device => Device), of_wire: of!(Device => Device) }
    "GpuLink" GpuLink { wire: to!(&GpuLink => GpuLink), of_wire: of!(GpuLink => GpuLink) }
    "ChunkedStage" ChunkedStage { wire: to!(&ChunkedStage => ChunkedStage), of_wire: of!(ChunkedStage => ChunkedStage) }
    "ChunkRun" ChunkRun { wire: to!(&ChunkRun => ChunkTraffic), of_wire: of!(ChunkTraffic => ChunkRun) }
    "CopyPace" CopyPace { wire: to!(&CopyPace => CopyBandwidth), of_wire: of!(CopyBandwidth => CopyPace) }
    "LayerTape" LayerTrace { wire: to!(&LayerTrace => LayerAllocationTrace), of_wire: of!(LayerAllocationTrace => LayerTrace) }
    "LayerComponents" LayerComponents { wire: to!(LayerComponents => LayerComponents) }
    "Measurement" Measurement { wire: to!(&Measurement => Measurement), of_wire: of!(Measurement => Measurement) }
    "OutOfMemory" OutOfMemory { wire: to!(&OutOfMemory => OutOfMemory), of_wire: of!(OutOfMemory => OutOfMemory) }
    "RunFailure" RunFailure {
        wire: to!(&RunFailure => RunFailure),
        of_wire: of!(RunFailure => RunFailure),
    }
    "Report" Report { wire: to!(&Report => Report), of_wire: of!(Report => Report) }
    "Placement" Placement {
        wire: to!(&Placement => Placement),
        says: |json| Some(read::<Placement>(json).name().unwrap().to_string()),
    }
    "Constraints" Constraints { wire: to!(&Constraints => Constraints), of_wire: of!(Constraints => Constraints) }
    "Cluster" Cluster {
        wire: to!(&Cluster => Cluster),
        of_wire: of!(Cluster => Cluster),
        says: |json| Some(read::<Cluster>(json).id()),
    }
    "Interval" Interval { wire: to!(Interval => MemoryInterval) }
    "SecondsInterval" SecondsInterval { wire: to!(SecondsInterval => SecondsInterval) }
    "StageSeconds" StageSeconds { wire: to!(StageSeconds => StageSeconds) }
    "Breakdown" Breakdown { wire: |json| wire(read::<Breakdown>(json).to_wire(Accounting::Reserved)) }
    "ProfileSettings" ProfileSettings {}
    "ProfileDocument" ProfileDocument {}
    "RankSpec" RankSpec {}
    "LinkSpec" LinkSpec {}
    "RankLinks" RankLinks {}
    "RankEvent" RankEvent {}
    "Probe" Probe {}
};

/// All words of an enum: serde's error for an unknown one lists them.
fn variants<T: DeserializeOwned>() -> Vec<(String, T)> {
    let Err(error) = serde_json::from_str::<T>(r#""?""#) else { panic!("there is a word '?'") };
    let error = error.to_string();
    let (_, known) = error.split_once("expected").unwrap();
    let words = known.split('`').skip(1).step_by(2);
    words.map(|word| (word.to_owned(), serde_json::from_value(word.into()).unwrap())).collect()
}

/// One line for each word: its enum, how it is stored, what else it is called.
fn lines<T: DeserializeOwned + Serialize>(name: &str, others: impl Fn(&T) -> Vec<String>) -> Vec<String> {
    let variants = variants::<T>();
    let line = |(word, value): &(String, T)| {
        assert_eq!(write(value), format!("{word:?}"), "{name} is written as it is read");
        format!("{name} {word} {}", others(value).join(" ")).trim_end().to_owned()
    };
    variants.iter().map(line).collect()
}

fn shown(value: &impl Display) -> String {
    format!("shown={value}")
}

fn named(word: &str) -> String {
    format!("named={word}")
}

macro_rules! sent {
    ($wire:ident, $value:expr) => {
        format!("wire={}", v1::$wire::from(*$value).as_str_name())
    };
}

/// The words of all enums.
pub(crate) fn words() -> Vec<String> {
    let reasons =
        Reason::ALL.iter().map(|reason| format!("Reason {} code={:?}", reason.as_str(), reason.code()));
    [
        lines::<Activation>("Activation", |value| vec![sent!(Activation, value)]),
        lines::<Backend>("Backend", |_| Vec::new()),
        lines::<ProfilingMode>("ProfilingMode", |_| Vec::new()),
        lines::<ClusterFormat>("ClusterFormat", |value| vec![sent!(ClusterFormat, value)]),
        lines::<ClusterSource>("ClusterSource", |value| vec![sent!(ClusterSource, value)]),
        lines::<Collectives>("Collectives", |_| Vec::new()),
        lines::<Framework>("Framework", |value| vec![shown(value)]),
        lines::<Accounting>("Ledger", |value| vec![named(value.as_str()), sent!(MemoryAccounting, value)]),
        lines::<LinkClass>("LinkClass", |value| vec![named(value.as_str()), sent!(LinkClass, value)]),
        lines::<LinkOrigin>("LinkOrigin", |value| vec![sent!(SpeedOrigin, value)]),
        lines::<Loss>("Loss", |value| vec![sent!(Loss, value)]),
        lines::<MemoryUnit>("MemoryUnit", |value| vec![sent!(MemoryUnit, value)]),
        lines::<NodeSpanning>("NodeSpanning", |value| vec![shown(value), sent!(NodeSpanning, value)]),
        lines::<NormKind>("NormKind", |_| Vec::new()),
        lines::<NormPosition>("NormPosition", |_| Vec::new()),
        lines::<Objective>("Objective", |value| {
            vec![shown(value), format!("unit={:?}", value.unit()), sent!(Objective, value)]
        }),
        lines::<Origin>("Origin", |value| vec![sent!(ProfileCoverage, value)]),
        lines::<Overlap>("Overlap", |value| vec![shown(value), sent!(CommunicationOverlap, value)]),
        lines::<Parallelism>("Parallelism", |value| vec![sent!(Parallelism, value)]),
        lines::<Perceptron>("Perceptron", |_| Vec::new()),
        lines::<Phase>("Phase", |value| vec![named(value.as_str())]),
        lines::<PlanShape>("PlanShape", |value| vec![shown(value), sent!(ParallelismLayout, value)]),
        lines::<Precision>("Precision", |_| Vec::new()),
        lines::<RecomputePolicy>("RecomputePolicy", |value| vec![sent!(RecomputePolicy, value)]),
        lines::<Schedule>("Schedule", |value| vec![sent!(Schedule, value)]),
        lines::<SearchMode>("SearchMode", |value| vec![shown(value), sent!(SearchMode, value)]),
        lines::<StepKind>("StepKind", |value| vec![named(value.as_str()), sent!(StepKind, value)]),
        reasons.collect(),
    ]
    .concat()
}
