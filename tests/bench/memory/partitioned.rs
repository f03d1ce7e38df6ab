//! Actions chosen together with the partitioning, as a request that names no stages asks for them: from tapes of layers to
//! a plan with its baselines.

use std::sync::Arc;
use std::time::Instant;

use loadmaster_predict::Margin;
use loadmaster_predict::component::Component;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::model::layer::{Layer, LayerKind};
use loadmaster_proto::model::{Model, ModelInput};
use loadmaster_proto::name::{ModelName, ProfileName};
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::comparison::Baseline;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::plan::request::PlanRequest;
use loadmaster_proto::training::{Schedule, TrainingSpec};
use loadmaster_recommend::{PlanQuestion, ProfiledChain};
use loadmaster_samples::{linear_measurement, plan_request, training};
use loadmaster_search::Stop;
use loadmaster_search::fleet::{DeviceGroup, of_groups};
use loadmaster_tests::ADAM;

use crate::memory::Scope;
use crate::report::{Claim, Figure};

/// Layers, devices, and the seconds within which there should be an answer.
const PROBLEMS: [(usize, u32, f64); 2] = [(48, 8, 0.5), (96, 64, 10.0)];
const WIDTH: i64 = 256;
const SAMPLES: u32 = 64;
const MICRO_BATCHES: u32 = 32;
/// Seconds that a layer goes forward.
const FORWARD: f64 = 5e-3;
/// As much as a layer keeps of a micro-batch, in the seconds of its passes.
const HOST: f64 = 60e6;
const PEERS: f64 = 4.0 * HOST;
/// Of what the first stage holds untouched, what a device has.
const SHARE: f64 = 0.45;

fn spec() -> TrainingSpec {
    TrainingSpec { optimizer: ADAM, ..training(Schedule::OneFOneB, SAMPLES, MICRO_BATCHES) }
}

/// Bytes of what is handed on, and of what a layer keeps besides its input: every third one somewhat more.
fn bytes(layer: usize) -> [u64; 2] {
    let edge = u64::from(SAMPLES) * 4 * WIDTH as u64;
    [edge, edge * (12 + layer as u64 % 3)]
}

fn recording(model: &Model, layer: usize) -> Measurement {
    let forward = FORWARD * (1.0 + (layer % 5) as f64 / 20.0);
    let recorded = linear_measurement(model, layer, SAMPLES, forward, bytes(layer));
    Measurement { capacity: Bytes(1 << 40), environment: Environment::default(), ..recorded }
}

/// The fastest plan of such a chain on so many devices that hold less than its first stage needs.
pub(crate) fn question(layers: usize, devices: u32) -> Option<PlanQuestion> {
    let linear = LayerKind::Linear { in_features: WIDTH, out_features: WIDTH };
    let chain = (0..layers).map(|layer| Layer { name: format!("linear{layer}"), kind: linear });
    let model = Model::new("chain".to_owned(), ModelInput::Vector { size: WIDTH }, chain.collect()).ok()?;
    let recordings: Vec<Measurement> = (0..layers).map(|layer| recording(&model, layer)).collect();
    let named = recordings.iter().map(|recording| ("runs/1/measurements/0-0", recording));
    let predictor = Component::new(&model, &spec(), named).ok()?;
    let kept: u64 = (0..layers).map(|layer| bytes(layer).iter().sum::<u64>()).sum();
    let lasting = (layers * 4 * 4 * (WIDTH * WIDTH) as usize) as u64;
    // What a stage of an equal part of the layers has of as many micro-batches as there are stages.
    let untouched = (lasting / u64::from(devices)
        + kept.min(kept / u64::from(devices) * u64::from(MICRO_BATCHES.min(devices))))
        as f64;
    let capacity = (untouched * SHARE) as u64;
    let chain = ProfiledChain {
        profile: ProfileName::parse("profile", "profiles/chain").ok()?,
        model_name: ModelName::parse("model", "models/chain").ok()?,
        device_kind: "gpu".to_owned(),
        training: spec(),
        layer_names: model.layers().iter().map(|layer| layer.name.clone()).collect(),
        parameters: Some(model.parameter_count()),
        model: Some(model),
        framework: String::new(),
        predictor: Box::new(predictor),
        known: Arc::default(),
        host: None,
        chunk_check: None,
    };
    let group = DeviceGroup { count: devices, capacity: Bytes(capacity), kind: "gpu".to_owned() };
    let pace = CopyPace { host: Some(HOST), peer: Some(PEERS) };
    let usual = plan_request(Objective::MinIterationTime, Bytes(1 << 40), pace);
    let request = PlanRequest { search_seconds: Some(60.0), ..usual };
    Some(PlanQuestion {
        request,
        chain: Arc::new(chain),
        others: Vec::new(),
        fleet: of_groups(&[group], None).ok()?,
        training: spec(),
        margin: Margin::Share(0.0),
        corrections: None,
    })
}

/// What other choosers of actions take of the plan's seconds, for the same stages.
fn beside(plan: &Plan) -> String {
    let of = |of: &Baseline| {
        let ratio = of.time_ratio.map_or_else(|| "none".to_owned(), |ratio| format!("{ratio:.3}"));
        format!("; {} {ratio}", of.name)
    };
    plan.found.baselines.iter().map(of).collect()
}

/// Both problems; the smaller one alone where it should be quick.
pub(crate) fn figures(Scope { is_quick, gaps, .. }: &Scope) -> Vec<Figure> {
    let problems = if *is_quick { &PROBLEMS[..1] } else { &PROBLEMS };
    let of = |&(layers, devices, goal): &(usize, u32, f64)| {
        let what = format!("{layers} layers on {devices} devices, with the partitioning");
        let Some(question) = question(layers, devices) else {
            return Figure::new(what, "no question", "", Claim::Goal(false));
        };
        let began = Instant::now();
        let answer = question.answer(&Stop::default());
        let took = began.elapsed().as_secs_f64();
        let (ours, is_met) = match &answer {
            Ok(((_, plan), _)) => {
                let of = plan.found.certificate.as_ref();
                let told = of.and_then(|of| Some((of.value, of.gap?)));
                let stages = plan.stages.len();
                gaps.add("with the partitioning", told.map_or(f64::INFINITY, |(_, gap)| gap));
                let told = told.map_or_else(String::new, |(value, gap)| {
                    format!("{value:.4} s, gap {:.1} %", 100.0 * gap)
                });
                (format!("{stages} stages, {told}{}", beside(plan)), true)
            }
            Err(error) => (error.to_string(), false),
        };
        let published = format!("nobody; goal a plan, within {goal} s");
        Figure::new(what, ours, published, Claim::Goal(is_met)).took(took).within(goal)
    };
    problems.iter().map(of).collect()
}
