//! Pins what the parts of a prediction are, by hand-made tables whose sums are easy.

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::chunks::activations::{ActivationPoints, on_host};
use loadmaster_proto::model::layer::{Layer, LayerKind};
use loadmaster_proto::model::{Model, ModelInput};
use loadmaster_proto::training::actions::{
    Action, Block, Destination, Optimization, StageActions, Step, Swap,
};
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{Optimizer, RecomputePolicy, Schedule, TrainingSpec};
use loadmaster_samples::chunked;
use serde_json::{Value, json};

use super::*;
use crate::forecast::{Verdict, forecast};
use crate::tests::training;
use crate::{Breakdown, Margin, Origin, PredictionError, StageSeconds};

/// An embedding, six blocks and a head, at tensor-parallel sizes 1 and 2, one sample.
fn document(ledger: &str) -> Value {
    let row = |degree: u64, parameters: u64, activation: u64, output: u64| {
        json!({"micro_batch_size": 1, "tensor_degree": degree, "parameter_bytes": parameters / degree,
               "activation_bytes": activation / degree, "input_bytes": 10, "output_bytes": output})
    };
    let times = json!([
        {"micro_batch_size": 1, "tensor_degree": 1, "forward_seconds": 1.0, "backward_seconds": 2.0,
         "update_seconds": 0.5}
    ]);
    let group = |first: u64, last: u64, rows: [Value; 2]| json!({"first_layer": first, "last_layer": last, "bytes": rows, "times": times});
    let layers: Vec<Value> = (0..8).map(|layer| json!({"name": format!("layer{layer}")})).collect();
    json!({
        "format": "loadmaster.profile/1",
        "provenance": {"source": "a test", "tool": "hand", "device_kind": "cpu", "ledger": ledger},
        "model": {"opaque": {"name": "chain", "layers": layers}},
        "layer_table": {"overhead_bytes": 5, "layers": [
            group(0, 0, [row(1, 400, 20, 10), row(2, 400, 20, 10)]),
            group(1, 6, [row(1, 80, 100, 10), row(2, 80, 100, 10)]),
            group(7, 7, [row(1, 240, 60, 2), row(2, 240, 60, 2)]),
        ]}
    })
}

fn table(document: &Value) -> TablePredictor {
    TablePredictor::new(&ProfileDocument::parse(&document.to_string()).unwrap()).unwrap()
}

fn adam(schedule: Schedule, micro_batches: u32) -> TrainingSpec {
    let optimizer =
        Optimizer::Adam { learning_rate: 0.1, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.0 };
    TrainingSpec { optimizer, ..training(schedule, 1, micro_batches) }
}

fn setting(stage: StageConfig, training: TrainingSpec) -> StageSetting {
    StageSetting { stage, stage_index: 1, stage_count: 3, training }
}

fn parts(table: &TablePredictor, setting: &StageSetting) -> Breakdown {
    let prediction = table.stage(setting).unwrap();
    let breakdown = prediction.breakdown.unwrap();
    assert_eq!(breakdown.total(), prediction.bytes.0);
    breakdown
}

/// Sixteen bytes per parameter under fp32 Adam, kept bytes per micro-batch in flight, the input held for
/// each of them, one gradient received.
#[test]
fn an_inner_stage_holds_what_it_must() {
    let table = table(&document("allocated"));
    let inner = setting(StageConfig::single(2, 4), adam(Schedule::OneFOneB, 9));
    let expected = Breakdown {
        weights: 240,
        gradients: 240,
        optimizer: 480,
        activations: 2 * 300,
        edges: 2 * 10 + 10,
        communication: 0,
        transient: 100,
        overhead: 5,
    };
    assert_eq!(parts(&table, &inner), expected);
    let seconds = table.stage(&inner).unwrap().seconds.unwrap();
    assert_eq!((seconds.forward, seconds.backward, seconds.step), (3.0, 6.0, 1.5));
}

/// The model's ends have no edge of their own.
#[test]
fn a_whole_model_has_no_edges() {
    let table = table(&document("allocated"));
    let whole = parts(&table, &setting(StageConfig::single(0, 7), adam(Schedule::Gpipe, 4)));
    assert_eq!((whole.edges, whole.activations, whole.transient), (0, 4 * 680, 100));
}

/// A caching allocator does not give the blocks of one kind of layer to another.
#[test]
fn transients_of_kinds_add_up_where_an_allocator_keeps_blocks() {
    let whole = setting(StageConfig::single(0, 7), adam(Schedule::Gpipe, 4));
    for ledger in ["reserved", "device"] {
        let table = table(&document(ledger));
        assert_eq!(parts(&table, &whole).transient, 20 + 100 + 60);
        assert_ne!(table.ledger(), Accounting::Allocated);
    }
    let mut stated = document("device");
    for row in stated["layer_table"]["layers"][1]["bytes"].as_array_mut().unwrap() {
        row["transient_bytes"] = json!(7);
    }
    assert_eq!(parts(&table(&stated), &whole).transient, 20 + 7 + 60, "a stated figure is taken");
}

/// Recomputation keeps inputs instead, and the pass at work has its activations back.
#[test]
fn recomputation_keeps_inputs() {
    let table = table(&document("allocated"));
    let stage = |recompute| {
        let training = TrainingSpec { recompute, ..adam(Schedule::Gpipe, 4) };
        let parts = parts(&table, &setting(StageConfig::single(2, 4), training));
        (parts.activations, parts.edges)
    };
    assert_eq!(stage(RecomputePolicy::Layer), (4 * 20 + 100, 4 * 10 + 10));
    assert_eq!(stage(RecomputePolicy::Stage), (300, 4 * 10 + 10));
    let training = TrainingSpec { recompute: RecomputePolicy::Stage, ..adam(Schedule::Gpipe, 4) };
    let seconds = table.stage(&setting(StageConfig::single(2, 4), training)).unwrap().seconds.unwrap();
    assert_eq!(seconds.backward, 9.0);
}

/// Shards are read at their degree, replicas at their share of the batch and with a copy of the gradients.
#[test]
fn degrees_divide_what_they_divide() {
    let table = table(&document("allocated"));
    let stage = |data_degree, tensor_degree, size| {
        let stage = StageConfig { data_degree, tensor_degree, ..StageConfig::single(2, 4) };
        let training = TrainingSpec { micro_batch_size: size, ..adam(Schedule::Gpipe, 1) };
        let origin = table.stage(&setting(stage, training)).unwrap().origin;
        let parts = parts(&table, &setting(stage, training));
        (parts.weights, parts.activations, parts.communication, origin)
    };
    assert_eq!(stage(1, 2, 1), (120, 150, 0, Origin::Imported));
    assert_eq!(stage(1, 4, 1), (60, 75, 0, Origin::Extrapolated));
    assert_eq!(stage(2, 1, 2), (240, 300, 240, Origin::Imported));
    assert_eq!(stage(2, 2, 2), (120, 150, 120, Origin::Imported));
}

/// Seconds are known from the size on at which all layers have them; a pass of fewer samples is no faster, on one device
/// or because replicas share it.
#[test]
fn no_pass_is_faster_than_at_the_smallest_listed_size() {
    assert_eq!(table(&document("allocated")).smallest_share(), Some(1));
    let mut larger = document("allocated");
    for (layer, size) in [(0, 2), (1, 4), (2, 4)] {
        larger["layer_table"]["layers"][layer]["times"][0]["micro_batch_size"] = json!(size);
    }
    let table = table(&larger);
    assert_eq!(table.smallest_share(), Some(4));
    let seconds = |micro_batch_size, data_degree| {
        let stage = StageConfig { data_degree, ..StageConfig::single(2, 4) };
        let training = TrainingSpec { micro_batch_size, ..adam(Schedule::Gpipe, 4) };
        let prediction = table.stage(&setting(stage, training)).unwrap();
        (prediction.seconds.unwrap(), prediction.seconds_margin)
    };
    let listed = StageSeconds { forward: 3.0, backward: 6.0, step: 1.5 };
    for (size, data_degree) in [(1, 1), (3, 1), (4, 1), (4, 2), (8, 4)] {
        assert_eq!(seconds(size, data_degree), (listed, None), "{size} over {data_degree}");
    }
    assert_eq!(seconds(8, 1).0.forward, 6.0, "what is listed at one size grows with the samples");
    let mut untimed = document("allocated");
    untimed["layer_table"]["layers"][1].as_object_mut().unwrap().remove("times");
    assert_eq!(self::table(&untimed).smallest_share(), None);
}

/// Assumptions that a user can replace by figures are said, and none is where all are there.
#[test]
fn assumptions_are_warnings() {
    let inner = setting(StageConfig::single(2, 4), adam(Schedule::Gpipe, 1));
    let assumed = table(&document("device")).warnings(&inner);
    assert!(
        assumed[0].message.contains("no transient_bytes") && assumed[1].message.contains("no safety margin"),
        "{assumed:?}"
    );
    let mut stated = document("allocated");
    stated["layer_table"]["margin"] = json!(0.03);
    for row in stated["layer_table"]["layers"][1]["bytes"].as_array_mut().unwrap() {
        row["transient_bytes"] = json!(7);
    }
    assert!(table(&stated).warnings(&inner).is_empty());
}

/// Real peaks are expected within a tenth, or within what the document says; figures of stages and the curves that
/// a search reads agree.
#[test]
fn a_table_has_the_default_margin_or_its_own() {
    let inner = setting(StageConfig::single(2, 4), adam(Schedule::Gpipe, 1));
    let mut stated = document("allocated");
    stated["layer_table"]["margin"] = json!(0.03);
    for (document, margin) in [(document("allocated"), MARGIN), (stated, 0.03)] {
        let table = table(&document);
        assert_eq!(table.stage(&inner).unwrap().margin, Some(margin));
        let curves = table.curves(&inner, usize::MAX).unwrap();
        assert!(!curves.is_empty() && curves.iter().all(|curve| curve.margin == Some(margin)));
    }
}

/// In the memory accounting of the driver a peak is not whole without what a device holds besides tensors: nothing fits then,
/// whatever margin is asked for, and the first thing told is which key is missing.
#[test]
fn nothing_fits_while_the_device_constant_is_not_known() {
    let inner = setting(StageConfig::single(2, 4), adam(Schedule::Gpipe, 1));
    let capacity = [Bytes(1 << 40)];
    let verdict = |document: &Value, margin| {
        let found = forecast(&table(document), &[inner], &capacity, margin).unwrap();
        (found.verdict(), found.stages[0].interval.is_some(), found.warnings[0].clone())
    };
    let mut bare = document("device");
    bare["layer_table"].as_object_mut().unwrap().remove("overhead_bytes");
    for margin in [Margin::Known, Margin::Share(0.5)] {
        let (verdict, is_bounded, warning) = verdict(&bare, margin);
        assert_eq!((verdict, is_bounded), (Verdict::Uncertain, false));
        assert!(warning.message.contains("layer_table.overhead_bytes"), "{warning}");
    }
    let small = forecast(&table(&bare), &[inner], &[Bytes(10)], Margin::Known).unwrap();
    assert_eq!(small.verdict(), Verdict::DoesNotFit, "what does not fit without it does not fit");
    let mut zero = bare.clone();
    zero["layer_table"]["overhead_bytes"] = json!(0);
    assert_eq!(verdict(&zero, Margin::Known).0, Verdict::Fits, "nothing is a figure too");
    // Memory accountings that do not show it list it among what they exclude.
    for ledger in ["allocated", "reserved"] {
        bare["provenance"]["ledger"] = json!(ledger);
        assert_eq!(verdict(&bare, Margin::Known).0, Verdict::Fits);
    }
}

/// Frameworks keep copies that follow from neither precision nor optimizer: `DeepSpeed` in fp32 a master copy and flat
/// gradients, 24 bytes per parameter instead of 16.
#[test]
fn copies_of_the_framework_are_counted_where_the_table_states_them() {
    let inner = setting(StageConfig::single(2, 4), adam(Schedule::Gpipe, 1));
    let mut copies = document("allocated");
    copies["layer_table"]["copies_bytes_per_parameter"] = json!(8);
    let (plain, copies) = (parts(&table(&document("allocated")), &inner), parts(&table(&copies), &inner));
    let scalars = 240 / 4;
    assert_eq!(plain.weights + plain.gradients + plain.optimizer, 16 * scalars);
    assert_eq!(copies.weights + copies.gradients + copies.optimizer, 24 * scalars);
    assert_eq!(copies, Breakdown { optimizer: copies.optimizer, ..plain });
}

/// A degree that no row has is a guess, which is named with the rows that there are; degrees between rows are not.
#[test]
fn degrees_beyond_the_rows_are_named() {
    let table = table(&document("allocated"));
    assert_eq!(table.tensor_degrees(), Some((1, 1)), "seconds have rows of degree 1 alone");
    let warned = |tensor_degree| {
        let stage = StageConfig { tensor_degree, ..StageConfig::single(2, 4) };
        let warnings = table.warnings(&setting(stage, adam(Schedule::Gpipe, 1)));
        warnings.into_iter().find(|warning| warning.message.contains("outside the range of the layer table"))
    };
    assert_eq!(warned(1), None);
    let warning = warned(8).unwrap();
    assert!(
        warning.message.contains("tensor-parallel size 8")
            && warning.message.contains("sizes of layers 1 to 6: 1, 2"),
        "{warning}"
    );

    let mut timed = document("allocated");
    timed["layer_table"]["times_without_collectives"] = json!(false);
    for group in timed["layer_table"]["layers"].as_array_mut().unwrap() {
        let mut row = group["times"][0].clone();
        row["tensor_degree"] = json!(4);
        group["times"].as_array_mut().unwrap().push(row);
    }
    assert_eq!(
        super::TablePredictor::tensor_degrees(&self::table(&timed)),
        Some((1, 2)),
        "bytes reach to 2 alone"
    );
}

/// A profiler that times layer by layer waits for the host where kernels are short: a pass over one sample is
/// listed as longer than one over two. It takes no longer, between the two and for other degrees neither, and
/// the answer says that the table was not taken at its word.
#[test]
fn a_pass_over_fewer_samples_takes_no_longer() {
    let mut waiting = document("allocated");
    let row = |size: u32, forward: f64, backward: f64| {
        json!({"micro_batch_size": size, "tensor_degree": 1, "forward_seconds": forward,
               "backward_seconds": backward, "update_seconds": 0.5})
    };
    waiting["layer_table"]["layers"][1]["times"] =
        json!([row(1, 2.5, 1.0), row(2, 1.5, 2.0), row(4, 1.75, 3.5), row(8, 3.0, 6.5)]);
    let table = table(&waiting);
    let at = |micro_batch_size| {
        let training = TrainingSpec { micro_batch_size, ..adam(Schedule::Gpipe, 1) };
        let stage = setting(StageConfig::single(2, 2), training);
        let seconds = table.stage(&stage).unwrap().seconds.unwrap();
        (seconds.forward, seconds.backward, seconds.step, table.warnings(&stage).len())
    };
    let warned = 3;
    assert_eq!(at(1), (1.5, 1.0, 0.5, warned));
    assert_eq!(at(2), (1.5, 2.0, 0.5, warned));
    assert_eq!(at(3), (1.625, 2.75, 0.5, warned));
    assert_eq!(at(8), (3.0, 6.5, 0.5, warned));
    let plain = setting(StageConfig::single(0, 0), adam(Schedule::Gpipe, 1));
    assert_eq!(table.warnings(&plain).len(), 2, "other layers were timed well");
}

/// What a table cannot answer is an error that names layer, field and remedy.
#[test]
fn gaps_are_named() {
    let mut gap = document("allocated");
    for row in gap["layer_table"]["layers"][1]["bytes"].as_array_mut().unwrap() {
        row.as_object_mut().unwrap().remove("activation_bytes");
    }
    let error = table(&gap).stage(&setting(StageConfig::single(2, 4), adam(Schedule::Gpipe, 1)));
    let message = error.unwrap_err().to_string();
    assert!(message.contains("no activation_bytes of layer 2 (layer2)"), "{message}");
    let outside = setting(StageConfig::single(2, 8), adam(Schedule::Gpipe, 1));
    let error = table(&document("allocated")).stage(&outside).unwrap_err();
    assert!(matches!(error, PredictionError::NoSuchStage { last: 8, .. }));

    let mut bare = document("allocated");
    for group in bare["layer_table"]["layers"].as_array_mut().unwrap() {
        group.as_object_mut().unwrap().remove("bytes");
    }
    let bare = ProfileDocument::parse(&bare.to_string()).unwrap();
    assert_eq!(TablePredictor::new(&bare).unwrap_err(), TableError::NoBytes);
}

/// The largest numbers that a file may have, of as many micro-batches and layers as there may be, stay the largest
/// there are, and never restart at nothing.
#[test]
fn huge_numbers_of_a_file_are_added_up_without_an_overflow() {
    let mut huge = document("device");
    for rows in huge["layer_table"]["layers"].as_array_mut().unwrap() {
        for row in rows["bytes"].as_array_mut().unwrap() {
            for field in ["parameter_bytes", "activation_bytes", "input_bytes", "output_bytes"] {
                row[field] = json!(1_u64 << 48);
            }
        }
    }
    for recompute in [RecomputePolicy::None, RecomputePolicy::Stage, RecomputePolicy::Layer] {
        let training = TrainingSpec { recompute, ..adam(Schedule::Gpipe, 10_000) };
        let parts = parts(&table(&huge), &setting(StageConfig::single(1, 6), training));
        assert!(parts.weights >= 6 << 48 && parts.weights <= 1 << 59, "{parts:?}");
        let held = if recompute == RecomputePolicy::Stage { 6 << 48 } else { 1 << 59 };
        assert!(parts.activations >= held && parts.activations <= 1 << 59, "{parts:?}");
    }
}

/// Three maps, of which the table knows these bytes: parameters, kept, transient, input and output.
const MAPS: [[u64; 5]; 3] = [[40, 20, 1, 10, 10], [80, 100, 2, 10, 10], [60, 60, 3, 10, 2]];

fn maps() -> (Model, Value) {
    let kind = LayerKind::Linear { in_features: 4, out_features: 4 };
    let layers = MAPS.map(|_| Layer { name: "linear".to_owned(), kind }).to_vec();
    let model = Model::new("maps".to_owned(), ModelInput::Vector { size: 4 }, layers).unwrap();
    let group = |(layer, [parameters, kept, transient, input, output]): (usize, [u64; 5])| {
        let row = json!({"micro_batch_size": 1, "tensor_degree": 1, "parameter_bytes": parameters,
                         "activation_bytes": kept, "transient_bytes": transient, "input_bytes": input,
                         "output_bytes": output});
        json!({"first_layer": layer, "last_layer": layer, "bytes": [row]})
    };
    let groups: Vec<Value> = MAPS.into_iter().enumerate().map(group).collect();
    let mut document = document("allocated");
    document["model"] = json!({"known": model});
    document["layer_table"] = json!({"overhead_bytes": 5, "layers": groups});
    (model, document)
}

/// Of chunks of any size, in which all micro-batches of a layer follow each other.
fn in_chunks(
    document: &Value,
    model: &Model,
    training: TrainingSpec,
    stage: StageConfig,
    actions: &StageActions,
) -> Result<Moments, PredictionError> {
    let chunks = chunked(1 << 30).lay_out(model, &training).unwrap();
    let setting = StageSetting { stage, stage_index: 0, stage_count: 1, training };
    table(document).moments(&setting, &chunks, actions)
}

/// Step by step what layers keep and have between them, the gradients of one of them until its last micro-batch is over, what the
/// pass holds besides and what the table says of the device.
#[test]
fn steps_in_chunks_hold_what_must_be_there_at_once() {
    let (model, document) = maps();
    let whole = StageConfig::single(0, 2);
    let curve = |recompute, micro_batches, actions: &StageActions| {
        let training = TrainingSpec { recompute, ..adam(Schedule::Gpipe, micro_batches) };
        let moments = in_chunks(&document, &model, training, whole, actions).unwrap();
        assert_eq!(moments.margin, Some(MARGIN));
        let curve: Vec<u64> = moments.curve.iter().map(|step| step.most.total()).collect();
        assert_eq!(moments.upper, curve);
        (curve, moments.pool_bytes().0)
    };
    let none = StageActions::default();
    assert_eq!(curve(RecomputePolicy::None, 1, &none), (vec![36, 137, 188, 258, 227, 76], 0));
    assert_eq!(
        curve(RecomputePolicy::None, 2, &none).0,
        [36, 66, 167, 267, 318, 368, 438, 388, 357, 257, 106, 76]
    );
    assert_eq!(curve(RecomputePolicy::Layer, 1, &none).0, [26, 37, 38, 98, 168, 137, 227, 46, 86]);
    // Of the first two maps what they keep is on the host while others pass.
    let points = ActivationPoints { release_after: 0, fetch_before: 0 };
    let away = on_host(3, RecomputePolicy::None, points);
    assert_eq!(curve(RecomputePolicy::None, 1, &away), (vec![36, 117, 68, 138, 207, 76], 120));
}

/// Chunked training is not predicted for a part of a model, from bytes of another accounting, or for layers without
/// bytes.
#[test]
fn what_a_table_cannot_tell_of_chunks_is_named() {
    let (model, document) = maps();
    let training = adam(Schedule::Gpipe, 1);
    let ask = |document: &Value, last| {
        let asked =
            in_chunks(document, &model, training, StageConfig::single(0, last), &StageActions::default());
        asked.unwrap_err()
    };
    assert_eq!(ask(&document, 1), PredictionError::PartInChunks { first: 0, last: 1, layers: 3 });
    let mut other = document.clone();
    other["layer_table"]["ledger"] = json!("reserved");
    assert!(ask(&other, 2).to_string().contains("Import a table of allocated bytes"));
    let mut gap = document;
    gap["layer_table"]["layers"][1]["bytes"][0].as_object_mut().unwrap().remove("activation_bytes");
    assert!(ask(&gap, 2).to_string().contains("activation_bytes of layer 1"));
}

/// A search compares plans with and without memory optimizations: without any, the steps have the peak and the seconds of the stage.
#[test]
fn steps_without_memory_optimizations_have_the_peak_of_the_stage() {
    let policies = [RecomputePolicy::None, RecomputePolicy::Layer, RecomputePolicy::Stage];
    let mut compared = 0;
    for ledger in ["allocated", "reserved"] {
        let table = table(&document(ledger));
        for (first, last) in (0..8).flat_map(|first| (first..8).map(move |last| (first, last))) {
            for (schedule, micro_batches) in [Schedule::Gpipe, Schedule::OneFOneB]
                .into_iter()
                .flat_map(|of| (1..5).map(move |count| (of, count)))
            {
                for (recompute, data_degree) in policies.into_iter().flat_map(|of| [(of, 1), (of, 2)]) {
                    let stage = StageConfig { data_degree, ..StageConfig::single(first, last) };
                    let training =
                        TrainingSpec { recompute, micro_batch_size: 2, ..adam(schedule, micro_batches) };
                    let of_stage = setting(stage, training);
                    let [whole, acted] = [
                        table.stage(&of_stage).unwrap(),
                        table.acted(&of_stage, &StageActions::default()).unwrap().prediction(0),
                    ];
                    assert_eq!(acted.breakdown, whole.breakdown, "{of_stage:?}");
                    assert_eq!((acted.bytes, acted.seconds), (whole.bytes, whole.seconds), "{of_stage:?}");
                    compared += 1;
                }
            }
        }
    }
    assert_eq!(compared, 2 * 36 * 8 * 6);
}

fn acted(first_layer: usize, last_layer: usize, optimization: Optimization) -> StageActions {
    let action = Action { first_layer, last_layer, slots: Vec::new(), optimization };
    StageActions { actions: vec![action], ..StageActions::default() }
}

/// Of a recomputed run each of four micro-batches keeps the input, 10 bytes, and the running backward pass has all of the run.
#[test]
fn a_run_of_a_table_is_recomputed() {
    let table = table(&document("allocated"));
    let inner = setting(StageConfig::single(2, 4), adam(Schedule::Gpipe, 4));
    let of_run = table.acted(&inner, &acted(3, 4, Optimization::Recompute)).unwrap().prediction(0);
    let parts = of_run.breakdown.unwrap();
    assert_eq!((parts.activations, parts.edges), (4 * (100 + 10) + 200, 4 * 10 + 10));
    assert_eq!(of_run.seconds.unwrap().backward, 6.0 + 2.0);
    // A run that begins with the stage has the stage's input.
    let of_all = table.acted(&inner, &acted(2, 4, Optimization::Recompute)).unwrap().prediction(0);
    let whole = TrainingSpec { recompute: RecomputePolicy::Stage, ..inner.training };
    assert_eq!(of_all.bytes, table.stage(&StageSetting { training: whole, ..inner }).unwrap().bytes);
}

/// Activations of two of three layers are in CPU memory, except those of the running micro-batch: 4 × 300 bytes less those of three
/// others. The optimizer state is offloaded completely.
#[test]
fn blocks_of_a_table_are_offloaded() {
    let table = table(&document("allocated"));
    let inner = setting(StageConfig::single(2, 4), adam(Schedule::Gpipe, 4));
    let swap =
        |block| Optimization::Swap(Swap { block, to: Destination::Host, release_after: 0, fetch_before: 0 });
    let of_saved = table.acted(&inner, &acted(2, 3, swap(Block::Activations))).unwrap();
    assert_eq!(of_saved.prediction(0).breakdown.unwrap().activations, 4 * 300 - 3 * 200);
    // The pool has the margin of the table, 10 %.
    assert_eq!((of_saved.host_peak(), of_saved.pools[0].moved_bytes), (880, 800));
    let of_state = table.acted(&inner, &acted(2, 4, swap(Block::Optimizer))).unwrap();
    assert_eq!(of_state.prediction(0).bytes.0, table.stage(&inner).unwrap().bytes.0 - 480);
    assert_eq!(of_state.host_peak(), 528);
    let reserved = self::table(&document("reserved"));
    let of_saved = reserved.acted(&inner, &acted(2, 3, swap(Block::Activations))).unwrap();
    assert_eq!(of_saved.prediction(0).bytes.0, reserved.stage(&inner).unwrap().bytes.0 - 600);
    // PipeDream keeps weight versions, which a table does not contain.
    let pipedream = StageSetting { training: adam(Schedule::PipeDream, 4), ..inner };
    let refused = table.acted(&pipedream, &StageActions::default()).unwrap_err().to_string();
    assert!(refused.contains("need allocation traces"), "{refused}");
}

/// What a stage keeps at the boundary before its first backward pass, where micro-batches differ by slot; and what nobody else keeps.
#[test]
fn boundaries_and_slots_of_a_table() {
    let table = table(&document("allocated"));
    let inner = setting(StageConfig::single(2, 4), adam(Schedule::OneFOneB, 4));
    let action =
        Action { first_layer: 3, last_layer: 3, slots: vec![1], optimization: Optimization::Recompute };
    let actions = StageActions { actions: vec![action], ..StageActions::default() };
    let acted = table.acted(&inner, &actions).unwrap();
    let step = Step::Backward { micro_batch: 0, layer: 4 };
    let at = acted.curve[acted.steps.index(step).unwrap()];
    // State, overhead, two micro-batches of which the second keeps the input of layer 3, and the stage's input of both.
    assert_eq!(at.at_boundary, 960 + 5 + 300 + 210 + 2 * 10);
    assert_eq!(at.most.total(), at.at_boundary + 10 + 100);
    // Layer 4 keeps its input, 10 bytes, though the table lists less for it.
    let mut little = document("allocated");
    for row in little["layer_table"]["layers"][1]["bytes"].as_array_mut().unwrap() {
        (row["activation_bytes"], row["transient_bytes"]) = (json!(4), json!(100));
    }
    let run = acted_of(&self::table(&little), &inner, acted_run(3, 3));
    assert_eq!(run.breakdown.unwrap().activations, 2 * (4 + 10 + 10) + 4);
    let reserved = self::table(&document("reserved")).acted(&inner, &StageActions::default()).unwrap();
    assert_eq!(reserved.curve[0].at_boundary, 960 + 5 + 100, "the allocator keeps transient bytes");
    let none = StageSetting { stage: StageConfig::single(0, 8), ..inner };
    assert!(matches!(table.acted(&none, &StageActions::default()), Err(PredictionError::NoSuchStage { .. })));
}

fn acted_run(first_layer: usize, last_layer: usize) -> StageActions {
    acted(first_layer, last_layer, Optimization::Recompute)
}

fn acted_of(table: &TablePredictor, setting: &StageSetting, actions: StageActions) -> Prediction {
    table.acted(setting, &actions).unwrap().prediction(0)
}
