//! The campaign of one profile: its runs, and what their measurements say.
//!
//! A layout follows from the profile's settings alone, so it is computed again whenever it is needed
//! rather than stored.

use loadmaster_proto::measurement::Measurement;
use loadmaster_proto::model::Model;
use loadmaster_proto::run::{Campaign, Work};
use loadmaster_proto::training::TrainingSpec;

use super::campaign::{CampaignError, PaperCampaign, StagesCampaign, paper, stages};
use super::metrics::{self, Metrics, Setting, StagePeak};

/// A campaign laid out for one model, training and number of devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// Whole partitionings.
    Paper {
        /// The partitionings.
        campaign: PaperCampaign,
        /// Micro-batches that every stage holds at once.
        in_flight: u32,
    },
    /// Stages alone.
    Stages(StagesCampaign),
}

impl Layout {
    /// Lays out `campaign` over `devices` pipeline stages.
    ///
    /// # Errors
    /// No device, more devices than layers, or a campaign that cannot measure what is needed there.
    pub fn new(
        campaign: Campaign,
        model: &Model,
        training: &TrainingSpec,
        devices: u32,
    ) -> Result<Self, CampaignError> {
        let count = devices as usize;
        match campaign {
            Campaign::Paper => Ok(Self::Paper {
                campaign: paper::paper(model.layers().len(), count, training)?,
                // The same for all stages: the campaign refuses schedules where it is not.
                in_flight: training.schedule.in_flight(devices, 0, training.micro_batches),
            }),
            Campaign::Stages => Ok(Self::Stages(stages::stages(model, training, count)?)),
        }
    }

    /// What to train, at each profiled micro-batch size.
    pub fn works(&self) -> Vec<Work> {
        match self {
            Self::Paper { campaign, .. } => {
                campaign.partitionings.iter().cloned().map(Work::Partitioning).collect()
            }
            Self::Stages(campaign) => campaign.runs.iter().copied().map(Work::Solo).collect(),
        }
    }

    /// Both metrics of every layer at every profiled setting, and what is missing.
    pub fn metrics(&self, model: &Model, micro_batch_sizes: &[u32], measurements: &[Measurement]) -> Metrics {
        let peaks: Vec<StagePeak> = measurements.iter().filter_map(StagePeak::of).collect();
        let (neighbours, in_flight, peaks) = match self {
            Self::Paper { campaign, in_flight } => (&campaign.neighbours, vec![*in_flight], peaks),
            Self::Stages(campaign) => {
                (&campaign.neighbours, campaign.in_flight.clone(), campaign.expand(&peaks))
            }
        };
        let wanted: Vec<Setting> = micro_batch_sizes
            .iter()
            .flat_map(|&micro_batch_size| {
                in_flight.iter().map(move |&in_flight| Setting { micro_batch_size, in_flight })
            })
            .collect();
        metrics::derive(&layer_names(model), neighbours, &wanted, &peaks)
    }
}

/// Names of a model's layers, in order.
pub fn layer_names(model: &Model) -> Vec<String> {
    model.layers().iter().map(|layer| layer.name.clone()).collect()
}
