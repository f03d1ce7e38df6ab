//! Prices against what predictors say of whole stages, and their parts by hand.

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::model::Model;
use loadmaster_proto::profile::document::ProfileDocument;
use loadmaster_proto::training::sharding::StateSharding;
use loadmaster_proto::training::{Optimizer, RecomputePolicy, Schedule, TrainingSpec};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{Choice, KindSet, Link, LinkOrigin, Peak, Seconds, StageAt, StageCosts};
use loadmaster_predict::layer_table::TablePredictor;
use loadmaster_predict::{
    Exchange, LayerCost, Margin, Origin, Prediction, PredictionError, Predictor, Share, StageSeconds,
    StageSetting,
};
use loadmaster_samples::training;

const RECOMPUTES: [RecomputePolicy; 3] =
    [RecomputePolicy::None, RecomputePolicy::Stage, RecomputePolicy::Layer];

fn link(bytes_per_second: f64, latency_seconds: f64) -> Link {
    Link { bytes_per_second, latency_seconds, origin: LinkOrigin::Given }
}

fn adam(schedule: Schedule, micro_batch_size: u32, micro_batches: u32) -> TrainingSpec {
    let optimizer =
        Optimizer::Adam { learning_rate: 0.1, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.0 };
    TrainingSpec { optimizer, ..training(schedule, micro_batch_size, micro_batches) }
}

/// Layers of these numbers at tensor-parallel sizes 1 and 2 and one sample: parameters, kept, output bytes, and
/// milliseconds forward; backward takes twice as long, an update a tenth.
fn document(layers: &[[u64; 4]], ledger: &str) -> Value {
    let rows = layers.iter().enumerate().map(|(layer, &[parameters, kept, output, milliseconds])| {
        let row = |degree: u64| {
            json!({"micro_batch_size": 1, "tensor_degree": degree, "parameter_bytes": parameters * 8 / degree,
                   "activation_bytes": kept, "output_bytes": output, "input_bytes": 16})
        };
        let time = |degree: u32| {
            let seconds = milliseconds as f64 / 1024.0 / f64::from(degree);
            json!({"micro_batch_size": 1, "tensor_degree": degree, "forward_seconds": seconds,
                   "backward_seconds": 2.0 * seconds, "update_seconds": 0.125 * seconds})
        };
        json!({"first_layer": layer, "last_layer": layer, "bytes": [row(1), row(2)], "times": [time(1), time(2)]})
    });
    let names: Vec<Value> = (0..layers.len()).map(|layer| json!({"name": format!("layer{layer}")})).collect();
    json!({
        "format": "loadmaster.profile/1",
        "provenance": {"source": "a test", "tool": "hand", "device_kind": "cpu", "ledger": ledger},
        "model": {"opaque": {"name": "chain", "layers": names}},
        "layer_table": {"overhead_bytes": 5, "times_without_collectives": false, "layers": rows.collect::<Vec<Value>>()},
    })
}

fn table(document: &Value) -> TablePredictor {
    TablePredictor::new(&ProfileDocument::parse(&document.to_string()).unwrap()).unwrap()
}

fn terms<'a>(training: TrainingSpec, choices: &'a [Choice], links: &'a [Link]) -> PriceTerms<'a> {
    PriceTerms { training, choices, links, margin: Margin::default(), model: None }
}

fn at(first: usize, last: usize, choice: usize) -> StageAt {
    StageAt {
        first,
        last,
        choice,
        kinds: KindSet::one(0),
        tensor_link: 0,
        data_link: 0,
        tensor_rings: 1,
        data_rings: 1,
    }
}

fn layers() -> impl Strategy<Value = Vec<[u64; 4]>> {
    // Few distinct layers, so that equal ones meet.
    let layer = prop::sample::select(vec![[3, 50, 16, 4], [7, 80, 16, 9], [3, 90, 24, 1], [0, 10, 8, 2]]);
    prop::collection::vec(layer, 1..9)
}

proptest! {
    /// A search reads from sums and curves what the predictor says of each stage as a whole: seconds and bytes,
    /// for every choice, schedule, number of micro-batches and place in the pipeline.
    #[test]
    fn prices_are_what_the_predictor_says(
        layers in layers(), micro_batches in 1_u32..6,
        ledger in prop::sample::select(vec!["allocated", "device"]),
        schedule in prop::sample::select(Schedule::ALL.to_vec()),
    ) {
        let table = table(&document(&layers, ledger));
        let mut choices = Vec::new();
        for (data, tensor) in [(1, 1), (2, 1), (1, 2), (2, 2)] {
            for sharding in StateSharding::ALL.iter().copied().filter(|of| of.is_none() || data > 1) {
                choices.extend(RECOMPUTES.map(|recompute| Choice { recompute, sharding, ..Choice::SINGLE }.resized(data, tensor)));
            }
        }
        let training = adam(schedule, 4, micro_batches);
        let links = [link(f64::INFINITY, 0.0)];
        let pricing = Pricing::new(&[KindOfDevice::new(&table)], terms(training, &choices, &links));
        for (choice, way) in choices.iter().enumerate() {
            for (first, last) in (0..layers.len()).flat_map(|first| (first..layers.len()).map(move |last| (first, last))) {
                let stage = at(first, last, choice);
                let in_flights = match schedule {
                    Schedule::Gpipe => micro_batches..=micro_batches,
                    Schedule::OneFOneB => 1..=micro_batches,
                    Schedule::PipeDream => 1..=8,
                };
                for in_flight in in_flights {
                    let setting = StageSetting {
                        stage: way.stage(first, last),
                        stage_index: 0,
                        stage_count: in_flight,
                        training: TrainingSpec { recompute: way.recompute, ..training },
                    };
                    let whole = table.stage(&setting).unwrap();
                    let peak = pricing.peak(&stage, in_flight).unwrap();
                    let high = whole.interval().unwrap().high.0;
                    prop_assert_eq!((peak.bytes, peak.needed), (whole.bytes.0, high));
                    let (seconds, said) = (pricing.seconds(&stage).unwrap(), whole.seconds.unwrap());
                    prop_assert!((seconds.forward - said.forward).abs() < 1e-9);
                    prop_assert!((seconds.backward - said.backward).abs() < 1e-9);
                    prop_assert!((seconds.step - said.step).abs() < 1e-9);
                }
                prop_assert_eq!(pricing.why_not(&stage, 1), None);
            }
        }
    }

    /// Stages of a row are priced together as they are one by one: on one kind of device and on two, at degrees that a
    /// layer does not allow, and where there is no such stage.
    #[test]
    fn rows_are_priced_as_their_stages(
        layers in layers(), micro_batches in 1_u32..6, in_flight in 1_u32..6, ends in (0_usize..9, 0_usize..9),
    ) {
        let (table, other) = (table(&document(&layers, "device")), table(&document(&layers, "allocated")));
        let choices = [(1, 1), (2, 1), (3, 1), (1, 2)].map(|(data, tensor)| Choice { data, tensor, ..Choice::SINGLE });
        let training = adam(Schedule::OneFOneB, 4, micro_batches);
        let kinds = [KindOfDevice::new(&table), KindOfDevice::new(&other)];
        let pricing = Pricing::new(&kinds, terms(training, &choices, &[]));
        for factor in [1.0, 1.5] {
            let factors = Factors { bytes: factor, seconds: 1.0 };
            let pricing = CalibratedCosts::new(Pricing::new(&kinds, terms(training, &choices, &[])), vec![factors; 2]);
            for kinds in [KindSet::one(0), KindSet::one(1), KindSet::one(0).with(KindSet::one(1))] {
                for (choice, first) in (0..5).flat_map(|choice| (0..layers.len()).map(move |first| (choice, first))) {
                    let stage = StageAt { kinds, ..at(first, first, choice) };
                    let lasts = ends.0..ends.1;
                    let alone = lasts.clone().map(|last| pricing.peak(&StageAt { last, ..stage }, in_flight));
                    prop_assert_eq!(pricing.peaks(&stage, lasts.clone(), in_flight), alone.collect::<Vec<_>>());
                }
            }
        }
        prop_assert!(pricing.peaks(&at(0, 0, 0), 0..layers.len(), 1).iter().all(Option::is_some));
    }
}

/// Stages of equal layers take the same time to the last bit, wherever they begin: a search meets as many
/// distinct times as there are kinds of stages.
#[test]
fn equal_layers_make_equal_stages() {
    let mut rows = document(&[[3, 50, 16, 4]; 48], "allocated");
    for layer in rows["layer_table"]["layers"].as_array_mut().unwrap() {
        layer["times"][0]["forward_seconds"] = json!(0.001_234_567_89);
    }
    let (table, choices) = (table(&rows), [Choice::SINGLE]);
    let pricing =
        Pricing::new(&[KindOfDevice::new(&table)], terms(adam(Schedule::Gpipe, 1, 4), &choices, &[]));
    for length in 1..48 {
        let times: Vec<Option<Seconds>> =
            (0..48 - length).map(|first| pricing.seconds(&at(first, first + length, 0))).collect();
        assert!(times.iter().all(|time| time.is_some() && *time == times[0]), "{length}");
    }
}

/// By hand: a stage of two replicas sums 2 · 80 bytes of gradients over a link of 100 bytes a second, and its
/// input and the gradient of it come over another.
#[test]
fn replicas_sum_gradients_and_cuts_take_both_ways() {
    let table = table(&document(&[[10, 50, 32, 0]; 3], "allocated"));
    let choices = [Choice { data: 2, ..Choice::SINGLE }, Choice { data: 4, ..Choice::SINGLE }];
    let links = [link(100.0, 0.5), link(16.0, 0.25)];
    let pricing =
        Pricing::new(&[KindOfDevice::new(&table)], terms(adam(Schedule::Gpipe, 8, 4), &choices, &links));
    // 2 (n − 1) turns of an n-th of 160 bytes.
    assert_eq!(pricing.seconds(&at(0, 1, 0)).unwrap().step, 2.0 * (0.8 + 0.5));
    let over_other = StageAt { data_link: 1, ..at(0, 1, 1) };
    assert_eq!(pricing.seconds(&over_other).unwrap().step, 6.0 * (2.5 + 0.25));
    // Four samples for each replica, 128 bytes of them, there and back.
    assert_eq!(pricing.cut_seconds(0, 1, 0), 2.0 * (8.0 + 0.25));
    assert_eq!(pricing.cut_seconds(0, 1, 1), 2.0 * (4.0 + 0.25));
}

/// Groups that use a node's link to the outside at once have their part of its bandwidth each, and all of its latency.
#[test]
fn groups_share_a_network() {
    let table = table(&document(&[[10, 50, 32, 0]; 3], "allocated"));
    let choices = [Choice { data: 2, ..Choice::SINGLE }];
    let links = [link(100.0, 0.5)];
    let pricing =
        Pricing::new(&[KindOfDevice::new(&table)], terms(adam(Schedule::Gpipe, 8, 4), &choices, &links));
    let shared = StageAt { data_rings: 4, ..at(0, 1, 0) };
    assert_eq!(pricing.seconds(&shared).unwrap().step, 2.0 * (0.8 * 4.0 + 0.5));
}

/// Seconds of shards contain their collectives, unless the table says that they do not: then each direction
/// sums twice the output over the shards' link, and recomputation sums once more.
#[test]
fn collectives_of_shards_are_counted_once() {
    let mut rows = document(&[[10, 50, 32, 0]; 3], "allocated");
    let choices = [2, 1].map(|tensor| Choice { tensor, recompute: RecomputePolicy::Stage, ..Choice::SINGLE });
    let links = [link(64.0, 0.5)];
    let seconds = |rows: &Value, choice| {
        let table = table(rows);
        Pricing::new(&[KindOfDevice::new(&table)], terms(adam(Schedule::Gpipe, 1, 4), &choices, &links))
            .seconds(&at(0, 1, choice))
    };
    assert_eq!(seconds(&rows, 0), Some(Seconds::default()));
    rows["layer_table"]["times_without_collectives"] = json!(true);
    // Two layers of 64 bytes, over 2 shards: two turns of half of them; and four sums' latencies.
    let forward = 2.0 * (64.0 / 64.0 + 4.0 * 0.5);
    assert_eq!(seconds(&rows, 0), Some(Seconds { forward, backward: 2.0 * forward, step: 0.0 }));
    assert_eq!(seconds(&rows, 1), Some(Seconds::default()));
}

/// Replicas wait before each step for a share of the passes since the last one: all of an iteration, or one where every
/// micro-batch is followed by a step.
#[test]
fn replicas_wait_for_each_other_before_a_step() {
    let asked = Asked { bytes: 10, seconds: Some(1.0) };
    let choices = [Choice::SINGLE, Choice { data: 2, ..Choice::SINGLE }];
    let step = |schedule, choice| {
        let terms = terms(adam(schedule, 2, 4), &choices, &[]);
        Pricing::new(&[KindOfDevice::new(&asked)], terms).seconds(&at(0, 1, choice)).unwrap().step
    };
    // Two layers of a second each.
    assert_eq!([0, 1].map(|choice| step(Schedule::Gpipe, choice)), [0.0, 4.0 * 2.0 * 0.25]);
    assert_eq!([0, 1].map(|choice| step(Schedule::PipeDream, choice)), [0.0, 2.0 * 0.25]);
}

/// A predictor of fixed bytes that has to be asked for every place, with a margin.
struct Asked {
    bytes: u64,
    seconds: Option<f64>,
}

impl Predictor for Asked {
    fn name(&self) -> &'static str {
        "asked/1"
    }

    fn layers(&self) -> usize {
        4
    }

    fn stage(&self, setting: &StageSetting) -> Result<Prediction, PredictionError> {
        if setting.stage.last_layer == 3 {
            return Err(PredictionError::NotProfiled("layer 3 was not measured".to_owned()));
        }
        Ok(Prediction {
            bytes: Bytes(self.bytes * u64::from(setting.in_flight())),
            breakdown: None,
            seconds: None,
            margin: Some(0.1),
            seconds_margin: None,
            predictor: self.name(),
            origin: Origin::Profiled,
        })
    }

    fn ledger(&self) -> Accounting {
        Accounting::Allocated
    }

    fn sources(&self, _: &StageSetting) -> Vec<String> {
        Vec::new()
    }

    fn waiting_share(&self, replicas: u32) -> f64 {
        if replicas > 1 { 0.25 } else { 0.0 }
    }

    fn layer_costs(&self, _: Share) -> Vec<Option<LayerCost>> {
        let Some(forward) = self.seconds else { return Vec::new() };
        let seconds = StageSeconds { forward, backward: 0.0, step: 0.0 };
        let cost = LayerCost {
            seconds,
            exchange: Exchange::default(),
            gradient_bytes: 0,
            output_bytes: 0,
            origin: Origin::Interpolated,
        };
        vec![Some(cost); 3]
    }
}

/// On devices of two kinds the slowest and the largest count; on one of them, its own.
#[test]
fn mixed_kinds_cost_as_the_worst_of_them() {
    let (small, slow) = (Asked { bytes: 10, seconds: Some(1.0) }, Asked { bytes: 7, seconds: Some(3.0) });
    let choices = [Choice::SINGLE];
    let pricing = Pricing::new(
        &[KindOfDevice::new(&small), KindOfDevice::new(&slow)],
        terms(adam(Schedule::OneFOneB, 1, 4), &choices, &[]),
    );
    let both = StageAt { kinds: KindSet::one(0).with(KindSet::one(1)), ..at(1, 2, 0) };
    assert_eq!(pricing.peak(&both, 2), Some(Peak { bytes: 20, needed: 22 }));
    assert_eq!(pricing.peak(&StageAt { kinds: KindSet::one(1), ..both }, 2).unwrap().bytes, 14);
    assert_eq!(pricing.seconds(&both).unwrap().forward, 6.0);
    assert_eq!(
        (pricing.seconds(&at(1, 2, 0)).unwrap().forward, pricing.origin(&both)),
        (2.0, Some(Origin::Interpolated))
    );
    assert!(pricing.has_seconds());
}

/// What has no price says why, and what to do about it.
#[test]
fn what_has_no_price_says_why() {
    let asked = Asked { bytes: 10, seconds: None };
    let choices =
        [Choice::SINGLE, Choice { data: 2, ..Choice::SINGLE }, Choice { tensor: 2, ..Choice::SINGLE }];
    let model: Model = {
        use loadmaster_proto::model::zoo::{Gpt2, Zoo};
        Zoo::Gpt2(Gpt2 { blocks: 2, heads: 3, hidden_size: 12, ..Gpt2::default() }).build().unwrap()
    };
    let terms = PriceTerms { model: Some(&model), ..terms(adam(Schedule::Gpipe, 3, 4), &choices, &[]) };
    let pricing = Pricing::new(&[KindOfDevice::new(&asked)], terms);
    let why = |stage: &StageAt| pricing.why_not(stage, 4).unwrap();
    assert!(!pricing.has_seconds());
    assert_eq!((pricing.seconds(&at(0, 1, 0)), pricing.seconds(&at(0, 3, 0))), (None, None));
    assert!(why(&at(0, 1, 0)).contains("has no times of layers"), "{}", why(&at(0, 1, 0)));
    assert!(pricing.peak(&at(0, 1, 0), 4).is_some());
    assert!(pricing.peak(&at(0, 3, 0), 4).is_none() && why(&at(0, 3, 0)).contains("not measured"));
    assert!(pricing.peak(&at(0, 1, 1), 4).is_none() && why(&at(0, 1, 1)).contains("multiple of 2"));
    assert!(pricing.peak(&at(1, 1, 2), 4).is_none() && why(&at(1, 1, 2)).contains("2 tensor shards"));
    assert!(pricing.peak(&at(0, 0, 2), 4).is_some(), "an embedding has no heads");
    assert!(pricing.peak(&at(2, 1, 0), 4).is_none() && pricing.peak(&at(0, 9, 0), 4).is_none());
}
