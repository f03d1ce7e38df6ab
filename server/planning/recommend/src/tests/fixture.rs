//! A small chain as a rank records it, asked for plans with memory optimizations; and what a brute force that knows
//! no search makes of it.

use std::sync::Arc;

use loadmaster_oracle::{Draws, compositions};
use loadmaster_predict::Margin;
use loadmaster_predict::choose::AnyPredictor;
use loadmaster_predict::component::Component;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::import::{ClusterFormat, ImportOptions, import};
use loadmaster_proto::measure::host::Host;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::measure::trace::LayerTrace;
use loadmaster_proto::model::layer::{Layer, LayerKind};
use loadmaster_proto::model::zoo::{Gpt2, Zoo};
use loadmaster_proto::model::{Model, ModelInput};
use loadmaster_proto::name::{ModelName, ProfileName};
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::plan::request::{Goal, PlanRequest};
use loadmaster_proto::plan::{Plan, PlanStage};
use loadmaster_proto::training::actions::{
    Action, Allowed, Block, Destination, Optimization, StageActions, Stripe, Swap, Way,
};
use loadmaster_proto::training::stage::{Partitioning, StageConfig};
use loadmaster_proto::training::{Optimizer, Precision, Schedule, TrainingSpec};
use loadmaster_samples::{linear_measurement, plan_request, training};
use loadmaster_search::Stop;
use loadmaster_search::fleet::{DeviceGroup, PlannedFleet, Selection, fleet, of_groups};

use crate::{NamedPlan, PlanQuestion, ProfiledChain, QuestionError};
use crate::{Placement, PlacementError, PlacementProblem};

const WIDTH: i64 = 32;
pub(crate) const LAYERS: usize = 5;
const SIZES: [u32; 2] = [2, 4];

fn spec() -> TrainingSpec {
    let optimizer =
        Optimizer::Adam { learning_rate: 1e-3, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 };
    TrainingSpec { optimizer, precision: Precision::Fp32, ..training(Schedule::OneFOneB, 4, 4) }
}

fn model(layers: usize) -> Model {
    let linear = LayerKind::Linear { in_features: WIDTH, out_features: WIDTH };
    let layers = (0..layers).map(|_| Layer { name: "linear".to_owned(), kind: linear });
    Model::new("chain".to_owned(), ModelInput::Vector { size: WIDTH }, layers.collect()).unwrap()
}

/// A GPT-2: embedding, four blocks, norm and head, each as a layer of a chain.
pub(crate) fn gpt(untied_head: bool) -> Model {
    small_gpt(untied_head).build().unwrap()
}

pub(crate) fn small_gpt(untied_head: bool) -> Zoo {
    Zoo::Gpt2(Gpt2 {
        blocks: 4,
        hidden_size: 8,
        heads: 2,
        sequence_length: 4,
        positions: 4,
        vocabulary_size: 16,
        untied_head,
        dropout: 0.0,
    })
}

/// A layer that keeps its input, and something of its own that is as large and half: more in later layers.
fn recording(model: &Model, layer: usize, size: u32) -> Measurement {
    let edge = u64::from(size) * 1_024;
    let forward = f64::from(size) * 1e-3 * (1.0 + layer as f64 / 4.0);
    linear_measurement(model, layer, size, forward, [edge, edge * (3 + layer as u64) / 2])
}

/// What answers for a model whose layers were recorded in every size, with their allocation traces changed.
pub(crate) fn component(model: &Model, change: impl Fn(&mut LayerTrace)) -> Component {
    let of = |(size, layer): (u32, usize)| {
        let mut recording = recording(model, layer, size);
        recording.trace.iter_mut().for_each(|trace| change(trace));
        recording
    };
    let layers = model.layers().len();
    let all = SIZES.iter().flat_map(|&size| (0..layers).map(move |layer| (size, layer)));
    let recordings: Vec<Measurement> = all.map(of).collect();
    let named = recordings.iter().map(|recording| ("runs/1/measurements/0-0", recording));
    Component::new(model, &spec(), named).unwrap()
}

/// A question about the chain, changed as a test likes.
pub(crate) struct Fixture {
    pub(crate) request: PlanRequest,
    pub(crate) devices: u32,
    pub(crate) capacity: u64,
    pub(crate) price: Option<f64>,
    /// Nodes of a cluster that has as many devices each; 0 where no one described any.
    pub(crate) nodes: u32,
    /// Keys of these nodes besides.
    pub(crate) node_keys: String,
    pub(crate) chain: Arc<ProfiledChain>,
    /// Micro-batches of an iteration, of four samples each.
    pub(crate) micro_batches: u32,
}

impl Fixture {
    /// Devices with so much memory, whose links bring away as much in a pass as a few layers keep.
    pub(crate) fn new(objective: Objective, devices: u32, capacity: u64) -> Self {
        Self::on(None, objective, devices, capacity)
    }

    /// The same on the slots of a host.
    pub(crate) fn on(host: Option<Host>, objective: Objective, devices: u32, capacity: u64) -> Self {
        Self::of(model(LAYERS), host, objective, devices, capacity)
    }

    /// The same of a longer or shorter chain.
    pub(crate) fn of_layers(layers: usize, objective: Objective, devices: u32, capacity: u64) -> Self {
        Self::of(model(layers), None, objective, devices, capacity)
    }

    /// The same of a model whose layers keep as much and take as long as those of the chain.
    pub(crate) fn of(
        model: Model,
        host: Option<Host>,
        objective: Objective,
        devices: u32,
        capacity: u64,
    ) -> Self {
        let component = component(&model, |_| {});
        let chain = ProfiledChain {
            profile: ProfileName::parse("problem.profile", "profiles/chain").unwrap(),
            model_name: ModelName::parse("model", "models/chain").unwrap(),
            device_kind: "cpu".to_owned(),
            training: spec(),
            layer_names: model.layers().iter().map(|layer| layer.name.clone()).collect(),
            parameters: Some(model.parameter_count()),
            model: Some(model),
            framework: String::new(),
            predictor: Box::new(component),
            known: Arc::default(),
            host,
            chunk_check: None,
        };
        let pace = CopyPace { host: Some(4e6), peer: Some(8e6) };
        let request = plan_request(objective, Bytes(1 << 20), pace);
        Self {
            request,
            devices,
            capacity,
            price: None,
            nodes: 0,
            node_keys: String::new(),
            chain: Arc::new(chain),
            micro_batches: spec().micro_batches,
        }
    }

    /// The same of recordings that were made before they said what autograd saves.
    pub(crate) fn recorded_earlier(&self) -> Self {
        let model = self.chain.model.clone().unwrap();
        let earlier = |trace: &mut LayerTrace| {
            trace.has_saved = false;
            [&mut trace.first, &mut trace.later].into_iter().for_each(|passage| passage.saved.clear());
        };
        self.predicted_by(Box::new(component(&model, earlier)))
    }

    /// The same, answered for by another predictor.
    pub(crate) fn predicted_by(&self, predictor: AnyPredictor) -> Self {
        let ProfiledChain { profile, model_name, device_kind, layer_names, model, .. } = &*self.chain;
        let chain = ProfiledChain {
            profile: profile.clone(),
            model_name: model_name.clone(),
            device_kind: device_kind.clone(),
            training: self.chain.training,
            layer_names: layer_names.clone(),
            parameters: self.chain.parameters,
            model: model.clone(),
            framework: String::new(),
            predictor,
            known: Arc::default(),
            host: self.chain.host,
            chunk_check: None,
        };
        self.with(|fixture| fixture.chain = Arc::new(chain))
    }

    /// The same question with this changed.
    pub(crate) fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
        let Self { request, devices, capacity, price, nodes, node_keys, chain, micro_batches } = self;
        let mut other = Self {
            request: request.clone(),
            devices: *devices,
            capacity: *capacity,
            price: *price,
            nodes: *nodes,
            node_keys: node_keys.clone(),
            chain: Arc::clone(chain),
            micro_batches: *micro_batches,
        };
        change(&mut other);
        other
    }

    /// The same, for the fastest plan.
    pub(crate) fn fastest(&self) -> Self {
        self.with(|fixture| fixture.request.goal.objective = Some(Objective::MinIterationTime))
    }

    pub(crate) fn question(&self) -> PlanQuestion {
        let mut fleet = if self.nodes == 0 { self.groups() } else { self.cluster() };
        if let Some(price) = self.price {
            fleet = fleet.with_prices(&[("cpu".to_owned(), price)].into());
        }
        PlanQuestion {
            request: self.request.clone(),
            chain: Arc::clone(&self.chain),
            others: Vec::new(),
            fleet,
            training: TrainingSpec { micro_batches: self.micro_batches, ..spec() },
            margin: Margin::Share(0.0),
            corrections: None,
        }
    }

    fn groups(&self) -> PlannedFleet {
        let group =
            DeviceGroup { count: self.devices, capacity: Bytes(self.capacity), kind: "cpu".to_owned() };
        of_groups(&[group], None).unwrap()
    }

    fn cluster(&self) -> PlannedFleet {
        let Self { nodes, node_keys: keys, capacity, .. } = self;
        let devices = self.devices / nodes;
        let node = |node: u32| {
            format!(
                "  - {{name: n{node}, kind: cpu, devices: {devices}, link: {{bandwidth: 5GB/s}}, network: {{bandwidth: 1GB/s}}{keys}}}\n"
            )
        };
        let nodes: String = (0..*nodes).map(node).collect();
        let text = format!(
            "format: loadmaster.cluster/1\nkinds: [{{name: cpu, memory: {capacity}B, usable_memory: {capacity}B}}]\nnodes:\n{nodes}"
        );
        let cluster = import(ClusterFormat::Loadmaster, &text, &ImportOptions::default()).unwrap();
        fleet(&cluster, &Selection::default()).unwrap().with_cluster(cluster)
    }

    pub(crate) fn answer(&self) -> Result<(NamedPlan, Vec<NamedPlan>), QuestionError> {
        self.answer_until(&Stop::default())
    }

    /// The same, until `stop` is requested.
    pub(crate) fn answer_until(&self, stop: &Stop) -> Result<(NamedPlan, Vec<NamedPlan>), QuestionError> {
        self.question().answer(stop)
    }

    /// The plan that is answered.
    pub(crate) fn plan(&self) -> Plan {
        self.answer().unwrap().0.1
    }

    /// What these actions of these stages come to, on devices without a limit; none where they make no sense.
    pub(crate) fn given(
        &self,
        stages: &Partitioning,
        batch: u32,
        actions: Vec<StageActions>,
    ) -> Option<Plan> {
        let given = self.with(|fixture| {
            fixture.request.partitioning = Some(stages.clone());
            fixture.request.stage_actions = actions;
            fixture.request.allowed = None;
            fixture.request.goal = Goal::default();
            let all: u32 = stages.stages().iter().map(StageConfig::devices).sum();
            let devices = all / fixture.request.virtual_stages;
            (fixture.devices, fixture.capacity, fixture.nodes) = (devices, 1 << 40, 0);
        });
        let mut question = given.question();
        // As many samples of an iteration as ever.
        question.training.micro_batches =
            question.training.micro_batches * question.training.micro_batch_size / batch;
        question.training.micro_batch_size = batch;
        question.answer(&Stop::default()).ok().map(|((_, plan), _)| plan)
    }

    /// Plans with actions drawn by lot among those that are allowed, for every way to cut the chain into so many stages.
    pub(crate) fn drawn(&self, stages: usize, batch: u32, draws: u64) -> Vec<Plan> {
        let all = compositions(LAYERS, stages);
        let all: Vec<_> = all.iter().map(|sizes| Partitioning::from_sizes(sizes).unwrap()).collect();
        self.drawn_for(&all, batch, draws)
    }

    /// The same for every way to cut it into stages of replicas, which take so many devices together.
    pub(crate) fn drawn_of_replicas(&self, devices: usize, batch: u32, draws: u64) -> Vec<Plan> {
        let of = |stages: usize| {
            let replicas = compositions(devices, stages);
            compositions(LAYERS, stages).into_iter().flat_map(move |sizes| {
                replicas.clone().into_iter().map(move |replicas| (sizes.clone(), replicas))
            })
        };
        let splits =
            |(_, replicas): &(_, Vec<usize>)| replicas.iter().all(|&of| (batch as usize).is_multiple_of(of));
        let partitioning = |(sizes, replicas): (Vec<usize>, Vec<usize>)| {
            let plain = Partitioning::from_sizes(&sizes).unwrap();
            let stages = plain.stages().iter().zip(replicas);
            let stages = stages.map(|(stage, data)| StageConfig { data_degree: data as u32, ..*stage });
            Partitioning::new(stages.collect()).unwrap()
        };
        let all: Vec<_> = (1..=LAYERS.min(devices)).flat_map(of).filter(splits).map(partitioning).collect();
        self.drawn_for(&all, batch, draws)
    }

    fn drawn_for(&self, all: &[Partitioning], batch: u32, draws: u64) -> Vec<Plan> {
        let allowed = self.request.allowed.clone().unwrap();
        let mut plans = Vec::new();
        let mut random = Draws::new(all.first().map_or(0, |first| first.stages().len() as u64));
        for partitioning in all {
            let stages = partitioning.stages();
            // One after another: nothing, all that leaves most, and what the lot says.
            for turn in 0..draws {
                let of = |(stage, config): (usize, &StageConfig)| {
                    let layers = config.first_layer..config.last_layer + 1;
                    drawn_actions(&mut random, &allowed, turn, stage, stages.len(), layers)
                };
                let actions = stages.iter().enumerate().map(of).collect();
                let plan = self.given(partitioning, batch, actions);
                let host = |plan: &Plan| -> u64 {
                    let of = |stage: &PlanStage| {
                        stage.offload.as_ref().map_or(0, |of| of.host_peak.0) * stage.devices.len() as u64
                    };
                    plan.stages.iter().map(of).sum()
                };
                plans.extend(plan.filter(|plan| host(plan) <= allowed.host_memory.0));
            }
        }
        plans
    }
}

/// What a stage does in a plan that is drawn.
fn drawn_actions(
    draws: &mut Draws,
    allowed: &Allowed,
    turn: u64,
    stage: usize,
    stages: usize,
    layers: std::ops::Range<usize>,
) -> StageActions {
    let mut actions = Vec::new();
    let has = |way: Way| allowed.ways.contains(&way);
    for layer in layers {
        // The second plan has all that it can away, the third computes all once more, the others as the lot says.
        let choice = match turn {
            0 => 9,
            1 => 1,
            2 => 0,
            _ => draws.below(4),
        };
        let points = |draws: &mut Draws| if turn < 4 { [0, 0] } else { [draws.below(3), draws.below(3)] };
        let [release, fetch] = points(draws);
        let mut swap = |block: Block, to: Destination| {
            let (release_after, fetch_before) = (release as u32, fetch as u32);
            let swap = Swap { block, to, release_after, fetch_before };
            let optimization = Optimization::Swap(swap);
            actions.push(Action { first_layer: layer, last_layer: layer, slots: Vec::new(), optimization });
        };
        let peer = (stage + 1) % stages;
        match choice {
            0 if has(Way::Recompute) => actions.push(Action {
                first_layer: layer,
                last_layer: layer,
                slots: Vec::new(),
                optimization: Optimization::Recompute,
            }),
            1 if has(Way::CpuOffload) => swap(Block::Activations, Destination::Host),
            2 if has(Way::PeerSwap) && stages > 1 => {
                let stripe = Stripe { stage: peer as u32, share: 10_000 };
                swap(Block::Activations, Destination::Peers(vec![stripe]));
            }
            _ => {}
        }
        if turn > 0 && has(Way::CpuOffload) && (turn < 3 || draws.below(2) == 0) {
            for block in [Block::Gradients, Block::Optimizer] {
                let swap = Swap { block, to: Destination::Host, release_after: 0, fetch_before: 0 };
                let optimization = Optimization::Swap(swap);
                actions.push(Action {
                    first_layer: layer,
                    last_layer: layer,
                    slots: Vec::new(),
                    optimization,
                });
            }
        }
    }
    StageActions { actions, ..StageActions::default() }
}

/// A node: its devices, and how fast its network (KB/s) and its way to the host (MB/s) are; 0 where the latter are not known.
pub(crate) type Node = (u32, u32, u32);

/// Nodes whose devices allow so many bytes.
pub(crate) fn nodes(nodes: &[Node], bytes: u64) -> PlannedFleet {
    let node = |(index, &(devices, network, host)): (usize, &Node)| {
        let host = match host {
            0 => String::new(),
            rate => format!(", host: {{link: {{bandwidth: {rate}MB/s}}}}"),
        };
        format!(
            "  - {{name: n{index}, kind: cpu, devices: {devices}, link: {{bandwidth: 5GB/s}}, network: {{bandwidth: \
             {network}KB/s}}{host}}}\n"
        )
    };
    let nodes: String = nodes.iter().enumerate().map(node).collect();
    let text = format!(
        "format: loadmaster.cluster/1\nkinds: [{{name: cpu, memory: {bytes}B, usable_memory: {bytes}B}}]\nnodes:\n{nodes}"
    );
    let cluster = import(ClusterFormat::Loadmaster, &text, &ImportOptions::default()).unwrap();
    fleet(&cluster, &Selection::default()).unwrap().with_cluster(cluster)
}

pub(crate) fn bind(plan: &Plan, fixture: &Fixture, fleet: PlannedFleet) -> Result<Placement, PlacementError> {
    let question = PlacementProblem { plan: plan.clone(), chains: vec![Arc::clone(&fixture.chain)], fleet };
    question.answer(&Stop::default())
}

pub(crate) fn is_same(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-12 * one.abs().max(other.abs())
}
