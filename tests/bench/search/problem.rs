//! A planning problem that is ready to be searched.

use anyhow::{Context, Result};
use loadmaster_planning::cost::{KindOfDevice, PriceTerms, Pricing};
use loadmaster_planning::predict::{Margin, Predictor};
use loadmaster_planning::search::{
    Choice, Cuts, Fleet, FleetNode, Kind, Link, LinkOrigin, Places, Question, Spanning,
};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::profile::document::ProfileDocument;
use loadmaster_proto::training::{RecomputePolicy, Schedule, TrainingSpec};

use crate::search::document::table;

/// Everything but the prices, which are a part of what is timed.
pub(crate) struct Problem {
    /// One predictor for each kind of device.
    pub(crate) predictors: Vec<Box<dyn Predictor + Sync>>,
    pub(crate) training: TrainingSpec,
    pub(crate) choices: Vec<Choice>,
    pub(crate) fleet: Fleet,
    pub(crate) places: Places,
    pub(crate) within_capacity: bool,
}

/// What the devices of a problem are.
pub(crate) struct Devices {
    pub(crate) nodes: u32,
    pub(crate) per_node: u32,
    pub(crate) capacity: u64,
    pub(crate) spanning: Spanning,
    /// Of every link.
    pub(crate) bytes_per_second: f64,
}

impl Devices {
    /// One node with links that cost nothing.
    pub(crate) fn one_node(per_node: u32) -> Self {
        Self {
            nodes: 1,
            per_node,
            capacity: u64::MAX >> 1,
            spanning: Spanning::Never,
            bytes_per_second: 1e30,
        }
    }

    /// The nodes, all alike.
    pub(crate) fn fleet(&self) -> Fleet {
        let link =
            Link { bytes_per_second: self.bytes_per_second, latency_seconds: 0.0, origin: LinkOrigin::Given };
        let node = |index| FleetNode {
            name: format!("node{index}"),
            kind: 0,
            devices: self.per_node,
            whole: self.per_node,
            inside: link,
            outside: link,
            one_transfer: None,
            domains: Vec::new(),
            unlike: None,
        };
        Fleet {
            kinds: vec![Kind {
                name: "imagined".to_owned(),
                capacity: Bytes(self.capacity),
                hourly_price: None,
            }],
            nodes: (0..self.nodes).map(node).collect(),
            tiers: Vec::new(),
            is_one_node: false,
            may_grow: true,
        }
    }
}

impl Problem {
    /// Stages of a document on devices.
    pub(crate) fn new(document: &ProfileDocument, devices: &Devices, choices: Vec<Choice>) -> Result<Self> {
        let training = document.training.context("the problem names its training")?;
        let fleet = devices.fleet();
        let mut sizes: Vec<u32> = choices.iter().map(|choice| choice.devices()).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let places = Places::in_order(&fleet, &sizes, devices.spanning);
        Ok(Self {
            predictors: vec![Box::new(table(document)?)],
            training,
            choices,
            fleet,
            places,
            within_capacity: false,
        })
    }

    /// Prices all stages and asks.
    pub(crate) fn ask<R>(
        &self,
        schedule: Schedule,
        answer: impl FnOnce(&Question<'_, Pricing<'_>>) -> R,
    ) -> R {
        let kinds: Vec<KindOfDevice<'_>> =
            self.predictors.iter().map(|predictor| KindOfDevice::new(&**predictor)).collect();
        let training = TrainingSpec { schedule, ..self.training };
        let terms = PriceTerms {
            training,
            choices: &self.choices,
            links: self.places.links(),
            margin: Margin::Share(0.0),
            model: None,
        };
        let pricing = Pricing::new(&kinds, terms);
        let all: Vec<usize> = (0..self.choices.len()).collect();
        let layers = self.predictors.first().map_or(0, |predictor| predictor.layers());
        answer(&Question {
            costs: &pricing,
            fleet: &self.fleet,
            places: &self.places,
            choices: &all,
            schedule,
            micro_batches: training.micro_batches,
            stages: 1..=layers,
            cuts: &Cuts::anywhere(layers),
            within_capacity: self.within_capacity,
        })
    }
}

/// Powers of two up to `most`.
pub(crate) fn powers_of_two(most: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(1_u32), |n| n.checked_mul(2)).take_while(move |&n| n <= most)
}

/// Tensor shards alone.
pub(crate) fn shards(tensor: u32) -> Choice {
    Choice { data: 1, tensor, recompute: RecomputePolicy::None }
}
