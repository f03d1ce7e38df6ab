//! A question about a scene, and how a request says it.

use loadmaster_oracle::{
    CommunicationOverlap, Goal, Objective, Recompute, Schedule, Shape, Sharding, Spanning, Unit, words,
};
use loadmaster_proto::wire::v1;
use serde::{Deserialize, Serialize};

use crate::certificates::scene::Scene;

/// Pipeline schedules that are asked for.
pub(crate) const SCHEDULES: &[Schedule] = &[Schedule::Gpipe, Schedule::OneFOneB];

/// One request, without where its profile and cluster are stored. What is left out is not sent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Question {
    pub(crate) objective: Objective,
    pub(crate) mode: Mode,
    pub(crate) shape: Option<Shape>,
    pub(crate) framework: Option<Framework>,
    pub(crate) micro_batch_size: Option<u32>,
    pub(crate) micro_batches: Option<u32>,
    pub(crate) global_batch: Option<u32>,
    pub(crate) schedule: Option<Schedule>,
    pub(crate) recompute: Option<Recompute>,
    pub(crate) sizes: Vec<u32>,
    pub(crate) schedules: Vec<Schedule>,
    pub(crate) policies: Vec<Recompute>,
    pub(crate) policy_per_stage: bool,
    #[serde(default)]
    pub(crate) shardings: Vec<Sharding>,
    pub(crate) data_degrees: Vec<u32>,
    pub(crate) tensor_degrees: Vec<u32>,
    pub(crate) min_stages: Option<u32>,
    pub(crate) max_stages: Option<u32>,
    /// Layer and device: `node/index`, or a position.
    pub(crate) pins: Vec<(usize, String)>,
    pub(crate) keep_together: Vec<(usize, usize)>,
    pub(crate) cut_after: Vec<usize>,
    pub(crate) excluded: Vec<String>,
    pub(crate) spanning: Option<Spanning>,
    #[serde(default)]
    pub(crate) transfers: Option<CommunicationOverlap>,
    pub(crate) max_seconds: Option<f64>,
    pub(crate) max_peak: Option<u64>,
    pub(crate) may_idle: bool,
    pub(crate) margin: f64,
    pub(crate) unit: Option<Unit>,
    pub(crate) merge_to: Option<u32>,
    pub(crate) search_seconds: Option<f64>,
    pub(crate) alternatives: i32,
    /// By name of the kind.
    pub(crate) prices: Vec<(String, f64)>,
    pub(crate) is_brief: bool,
    pub(crate) seed: i64,
}

impl Question {
    /// The plainest one: everything as the profile has it.
    pub(crate) fn plain(objective: Objective) -> Self {
        Self {
            objective,
            mode: Mode::Exact,
            shape: None,
            framework: None,
            micro_batch_size: None,
            micro_batches: None,
            global_batch: None,
            schedule: None,
            recompute: None,
            sizes: Vec::new(),
            schedules: Vec::new(),
            policies: Vec::new(),
            policy_per_stage: false,
            shardings: Vec::new(),
            data_degrees: Vec::new(),
            tensor_degrees: Vec::new(),
            min_stages: None,
            max_stages: None,
            pins: Vec::new(),
            keep_together: Vec::new(),
            cut_after: Vec::new(),
            excluded: Vec::new(),
            spanning: None,
            transfers: None,
            max_seconds: None,
            max_peak: None,
            may_idle: false,
            margin: 0.0,
            unit: None,
            merge_to: None,
            search_seconds: None,
            alternatives: 0,
            prices: Vec::new(),
            is_brief: true,
            seed: 0,
        }
    }

    /// How transfers go on: always named, because what is best known of frameworks and kinds is no business of the search.
    pub(crate) fn transfers(&self) -> CommunicationOverlap {
        self.transfers.unwrap_or(CommunicationOverlap::On)
    }

    /// What its plans are weighed by.
    pub(crate) fn goal(&self) -> Goal {
        Goal {
            objective: self.objective,
            unit: self.unit.unwrap_or(Unit::Bytes),
            transfers: self.transfers(),
            max_seconds: self.max_seconds,
            max_peak: self.max_peak,
        }
    }

    /// As a message; `profiles` are the stored names of the scene's kinds, `cluster` that of its cluster.
    pub(crate) fn request(
        &self,
        scene: &Scene,
        profiles: &[String],
        cluster: &str,
    ) -> v1::RecommendPlanRequest {
        let number = |value: Option<u32>| value.map_or(0, |value| value as i32);
        let numbers = |list: &[u32]| list.iter().map(|&value| value as i32).collect::<Vec<_>>();
        let constraints = v1::Constraints {
            data_parallel_sizes: numbers(&self.data_degrees),
            tensor_parallel_sizes: numbers(&self.tensor_degrees),
            micro_batch_sizes: numbers(&self.sizes),
            schedules: self.schedules.iter().map(|schedule| schedule.to_wire()).collect(),
            recompute_policies: self.policies.iter().map(|policy| policy.to_wire()).collect(),
            recompute_per_stage: self.policy_per_stage,
            state_shardings: self.shardings.iter().map(|sharding| sharding.to_wire()).collect(),
            min_stage_count: number(self.min_stages),
            max_stage_count: number(self.max_stages),
            layer_pins: self
                .pins
                .iter()
                .map(|(layer, device)| v1::LayerPin { layer: *layer as i32, device: device.clone() })
                .collect(),
            uncut_layer_ranges: self
                .keep_together
                .iter()
                .map(|&(first, last)| v1::LayerRange { first_layer: first as i32, last_layer: last as i32 })
                .collect(),
            stage_end_layers: self.cut_after.iter().map(|&layer| layer as i32).collect(),
            excluded_devices: self.excluded.clone(),
            node_spanning: self.spanning.map_or(0, Spanning::to_wire),
            max_iteration_time: self.max_seconds.map(duration),
            max_peak_bytes: self.max_peak.map_or(0, |bytes| bytes as i64),
            allow_idle_devices: self.may_idle,
            parallelism_layout: self.shape.map_or(0, Shape::to_wire),
            pipeline_layout: None,
        };
        v1::RecommendPlanRequest {
            problem: Some(v1::Problem {
                profile: profiles[0].clone(),
                other_profiles: profiles[1..].to_vec(),
                devices: scene.groups(),
                cluster: cluster.to_owned(),
                micro_batch_size: number(self.micro_batch_size),
                micro_batch_count: number(self.micro_batches),
                global_batch_size: self.global_batch.map_or(0, i64::from),
                framework: self.framework.map(Framework::id).unwrap_or_default(),
                schedule: self.schedule.map_or(0, Schedule::to_wire),
                recompute: self.recompute.map_or(0, Recompute::to_wire),
                safety_margin: Some(self.margin),
                communication_overlap: self.transfers().to_wire(),
                ..Default::default()
            }),
            objective: Some(v1::ObjectiveOptions {
                kind: self.objective.to_wire(),
                memory_unit: self.unit.map_or(0, Unit::to_wire),
                hourly_prices: self.prices.iter().cloned().collect(),
                ..Default::default()
            }),
            search: Some(v1::SearchOptions {
                layer_group_count: number(self.merge_to),
                mode: self.mode.to_wire(),
                time_limit: self.search_seconds.map(duration),
                seed: self.seed,
            }),
            output: Some(v1::OutputOptions {
                // As the questions were drawn: 0 is the default, and -1 none.
                alternative_count: (self.alternatives != 0).then_some(self.alternatives.max(0)),
                skip_comparisons: self.is_brief,
            }),
            validate_only: true,
            constraints: Some(constraints),
            ..Default::default()
        }
    }
}

words!(
    /// How plans are searched.
    Mode as SearchMode { Exact, Capture, McapBruteForce, McapBayesian, Amp, AmpAnnealing }
);
fn duration(seconds: f64) -> prost_types::Duration {
    std::time::Duration::try_from_secs_f64(seconds).ok().and_then(|of| of.try_into().ok()).unwrap_or_default()
}

/// The framework that is to run a plan, by the id that requests name it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Framework {
    Megatron,
    MegatronBridge,
    Torchtitan,
    TorchPipelining,
    Deepspeed,
    ColossalAi,
    Accelerate,
    Galvatron,
    Torchgpipe,
    Trainer,
    Other,
}

impl Framework {
    pub(crate) const ALL: &'static [Self] = &[
        Self::Megatron,
        Self::MegatronBridge,
        Self::Torchtitan,
        Self::TorchPipelining,
        Self::Deepspeed,
        Self::ColossalAi,
        Self::Accelerate,
        Self::Galvatron,
        Self::Torchgpipe,
        Self::Trainer,
        Self::Other,
    ];

    fn id(self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        value.as_str().unwrap_or_default().to_owned()
    }
}
