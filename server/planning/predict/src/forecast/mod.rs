//! "Will it fit?": what each device of given stages needs, against what it has.
//!
//! What a device holds that the memory accounting of a prediction does not show.
//! Published figures, so that people know the order of magnitude; none of them is added to a prediction.

mod warnings;

use std::collections::BTreeSet;

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::amounts::plural;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::Model;
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::training::stage::Partitioning;
use loadmaster_proto::warning::Warning;

use crate::{
    ActionsError, Interval, Margin, PipelineActions, Prediction, PredictionError, Predictor, StageSetting,
};

pub use loadmaster_proto::plan::prediction::Verdict;
pub use warnings::{on_top, warnings};

/// What given stages need.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    /// The stages in order.
    pub stages: Vec<StageForecast>,
    /// What to know before trusting the numbers, each once.
    pub warnings: Vec<Warning>,
    /// Names of the measurements behind the numbers, in order and each once.
    pub sources: Vec<String>,
}

/// What the devices of a stage need.
#[derive(Debug, Clone, PartialEq)]
pub struct StageForecast {
    /// The stage as it will be trained.
    pub setting: StageSetting,
    /// What its device with the highest peak needs.
    pub prediction: Prediction,
    /// Between which bytes the real peak is expected; none where no margin is known, or where the figures are not
    /// all that a device holds.
    pub interval: Option<Interval>,
    /// Position of its first device in the order of the pipeline.
    pub first_device: usize,
    /// What the smallest of its devices allows, and which one that is; none where no one said.
    pub smallest: Option<SmallestDevice>,
}

/// A device in the order of the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SmallestDevice {
    /// Its position.
    pub index: usize,
    /// Bytes that it allows.
    pub capacity: Bytes,
}

/// Why nothing is forecast.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ForecastError {
    /// A stage cannot be predicted.
    #[error(transparent)]
    Prediction(#[from] PredictionError),
    /// Memory optimizations that make no sense.
    #[error(transparent)]
    Actions(#[from] Invalid),
    /// The devices are not as many as the stages ask for.
    #[error(
        "the stages need {}, but {given} {} given. Give as many devices as the parallel sizes need",
        plural(*.needed, "device"),
        if *.given == 1 { "is" } else { "are" }
    )]
    DeviceCount {
        /// The degrees of the stages, added up.
        needed: usize,
        /// Capacities given.
        given: usize,
    },
}

impl StageForecast {
    /// The bytes that have to fit: the upper end of the interval, or what is predicted where there is none.
    pub fn needed(&self) -> Bytes {
        self.interval.map_or(self.prediction.bytes, |interval| interval.high)
    }

    /// Capacity less the bytes that have to fit; negative where they do not.
    pub fn slack(&self) -> Option<i128> {
        self.smallest.map(|device| i128::from(device.capacity.0) - i128::from(self.needed().0))
    }

    /// Whether it fits.
    pub fn verdict(&self) -> Verdict {
        let capacity = self.smallest.map(|device| device.capacity);
        Verdict::judge(self.prediction.bytes, self.interval, capacity)
    }
}

impl Forecast {
    /// The worst of the stages.
    pub fn verdict(&self) -> Verdict {
        self.stages.iter().map(StageForecast::verdict).max().unwrap_or(Verdict::NotAsked)
    }

    /// The first device, in pipeline order, that has the worst verdict; none where all fit with the margin
    /// or no one asked.
    pub fn first_too_small(&self) -> Option<usize> {
        let worst = self.verdict();
        if worst <= Verdict::Fits {
            return None;
        }
        let stage = self.stages.iter().find(|stage| stage.verdict() == worst)?;
        stage.smallest.map(|device| device.index)
    }
}

/// Forecasts stages in order on devices of the given capacities: none, or one for each device that the
/// stages' degrees add up to.
///
/// # Errors
/// A stage cannot be predicted, or the capacities are not as many as the devices.
pub fn forecast(
    predictor: &(impl Predictor + ?Sized),
    settings: &[StageSetting],
    capacities: &[Bytes],
    margin: Margin,
) -> Result<Forecast, ForecastError> {
    check_devices(settings, capacities)?;
    let predictions: Result<Vec<Prediction>, PredictionError> =
        settings.iter().map(|setting| predictor.stage(setting)).collect();
    Ok(of_predictions(predictor, settings, predictions?, capacities, margin))
}

pub fn check_devices(settings: &[StageSetting], capacities: &[Bytes]) -> Result<(), ForecastError> {
    let (needed, given) = (devices(settings), capacities.len());
    if given > 0 && given != needed {
        return Err(ForecastError::DeviceCount { needed, given });
    }
    Ok(())
}

pub fn of_predictions(
    predictor: &(impl Predictor + ?Sized),
    settings: &[StageSetting],
    predictions: Vec<Prediction>,
    capacities: &[Bytes],
    margin: Margin,
) -> Forecast {
    let mut first_device = 0;
    let mut stages = Vec::with_capacity(settings.len());
    for (&setting, &prediction) in settings.iter().zip(&predictions) {
        let next = first_device + setting.stage.devices() as usize;
        let own = capacities.get(first_device..next).unwrap_or_default();
        // The first of several, so that the answer names the first device that is too small.
        let smallest = (first_device..next).zip(own).min_by_key(|&(_, capacity)| capacity);
        stages.push(StageForecast {
            setting,
            prediction,
            interval: margin.interval_of(predictor, &prediction),
            first_device,
            smallest: smallest.map(|(index, &capacity)| SmallestDevice { index, capacity }),
        });
        first_device = next;
    }
    let sources: BTreeSet<String> = settings.iter().flat_map(|setting| predictor.sources(setting)).collect();
    Forecast {
        warnings: warnings(predictor, settings, &predictions, margin),
        sources: sources.into_iter().collect(),
        stages,
    }
}

impl From<ActionsError> for ForecastError {
    fn from(error: ActionsError) -> Self {
        match error {
            ActionsError::Invalid(invalid) => invalid.into(),
            ActionsError::Prediction(error) => error.into(),
        }
    }
}

/// Devices that stages take in all.
pub fn devices(settings: &[StageSetting]) -> usize {
    settings.iter().map(|setting| setting.stage.devices() as usize).sum()
}

/// The stages of a partitioning as they will be trained.
pub fn settings(training: &TrainingSpec, partitioning: &Partitioning) -> Vec<StageSetting> {
    let stage_count = u32::try_from(partitioning.stages().len()).unwrap_or(u32::MAX);
    (0..stage_count)
        .zip(partitioning.stages())
        .map(|(stage_index, &stage)| StageSetting { stage, stage_index, stage_count, training: *training })
        .collect()
}

#[cfg(test)]
mod tests;

/// What given stages need that do something about their memory.
#[derive(Debug, Clone)]
pub struct ActionsForecast {
    /// The devices, with what they set aside for other stages.
    pub forecast: Forecast,
    /// What each stage does, with its pools, and what comes of that.
    pub stages: PipelineActions,
}

/// As [`forecast`], of the stages of a pipeline that do these actions, in their order. Pools that are left out are
/// as large as needed.
///
/// # Errors
/// As [`forecast`], or actions that make no sense or cannot be predicted.
pub fn with_actions(
    predictor: &(impl Predictor + ?Sized),
    model: Option<&Model>,
    settings: &[StageSetting],
    actions: &[StageActions],
    capacities: &[Bytes],
    margin: Margin,
) -> Result<ActionsForecast, ForecastError> {
    check_devices(settings, capacities)?;
    let stages = PipelineActions::of(predictor, model, settings, actions)?;
    let predictions: Vec<Prediction> =
        (0..settings.len()).filter_map(|stage| stages.prediction(stage)).collect();
    let forecast = of_predictions(predictor, settings, predictions, capacities, margin);
    Ok(ActionsForecast { forecast, stages })
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const FRAGMENTATION: &str = "fragmentation of the caching allocator";

const OTHERS: Excluded = Excluded {
    what: "other processes on the device",
    typical: None,
    note: "if the capacity is the whole device memory, no other process may use the device",
};

/// Memory that predictions do not contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excluded {
    pub what: &'static str,
    /// What it typically takes, least and most bytes; none where no one can say.
    pub typical: Option<(u64, u64)>,
    /// When it takes that much.
    pub note: &'static str,
}

/// What predictions in a memory accounting for a kind of device exclude, of stages that exchange data with others or
/// not.
pub fn excluded(ledger: Accounting, device_kind: &str, communicates: bool) -> Vec<Excluded> {
    if ledger == Accounting::Device {
        // The driver sees all of it but what comes and goes with other programs.
        return vec![OTHERS];
    }
    if device_kind == "cpu" {
        return vec![
            Excluded {
                what: "scratch memory of oneDNN and the C library",
                typical: None,
                note: "taken from malloc, outside the allocator of a CPU slot",
            },
            Excluded {
                what: "the training process itself",
                typical: Some((200 * MIB, 600 * MIB)),
                note: "program, libtorch and threads; not part of a slot's capacity",
            },
        ];
    }
    let mut excluded = vec![
        Excluded {
            what: "CUDA context and kernels",
            typical: Some((200 * MIB, GIB)),
            note: "about 300 MiB with lazy loading (CUDA 11.7 and later), 1 GiB without",
        },
        Excluded {
            what: "cuBLAS workspaces outside libtorch's allocator",
            typical: Some((8_519_680, 32 * MIB)),
            note: "per cuBLAS handle and stream; 32 MiB on Hopper",
        },
        Excluded {
            what: FRAGMENTATION,
            typical: None,
            note: "the allocator rounds blocks to 512 B and segments to 2 MiB; a trial measures the fragmentation: \
                reserved minus allocated bytes",
        },
        OTHERS,
    ];
    if communicates {
        excluded.insert(
            2,
            Excluded {
                what: "NCCL communicators",
                typical: Some((200 * MIB, 6 * GIB)),
                note: "4 MiB per channel and connection; measured: 1.6 GiB for one communicator, 6 GiB for three",
            },
        );
    }
    if ledger == Accounting::Reserved {
        excluded.retain(|excluded| excluded.what != FRAGMENTATION);
    }
    excluded
}
