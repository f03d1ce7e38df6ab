//! Planning problems as profile documents: every search reads them in the form in which any other
//! framework's measurements come in.

use anyhow::{Context, Result};
use loadmaster_planning::predict::layer_table::TablePredictor;
use loadmaster_proto::model::layer::elements;
use loadmaster_proto::model::zoo::{AmoebaNet, Zoo};
use loadmaster_proto::profile::document::ProfileDocument;
use serde_json::{Value, json};

use crate::search::chain::Chain;
use crate::search::problem::powers_of_two;

/// Bytes of a unit of volume. Volumes are multiples of 1/89, so bytes are whole and seconds exact.
pub(crate) const BYTES_PER_VOLUME: f64 = 89e6;

/// One setting of a layer table.
pub(crate) struct Row {
    /// Shards of the layer.
    pub(crate) tensor_degree: u32,
    /// Samples per pass.
    pub(crate) micro_batch_size: u32,
    /// Both passes, seconds.
    pub(crate) seconds: f64,
    pub(crate) parameter_bytes: u64,
    pub(crate) activation_bytes: u64,
}

/// A profile of the chain whose layers have these rows; training is SGD in fp32 with one sample per pass.
pub(crate) fn profile(
    chain: &Chain,
    micro_batches: u32,
    rows: impl Fn(usize) -> Vec<Row>,
) -> Result<ProfileDocument> {
    let layers = (0..chain.layers()).map(|layer| layer_rows(chain, layer, &rows(layer))).collect::<Vec<_>>();
    let names: Vec<Value> = (0..chain.layers())
        .map(|layer| {
            let parameters = (chain.param_size[layer] * 83e4).round() as u64;
            json!({"name": format!("layer{layer}"), "parameter_count": parameters})
        })
        .collect();
    let document = json!({
        "format": "loadmaster.profile/1",
        "provenance": {
            "source": "a problem by formula",
            "tool": "bench search",
            "device_kind": "imagined",
            "ledger": "allocated",
        },
        "model": {"opaque": {"name": chain.name, "layers": names}},
        "training": {
            "precision": "fp32",
            "optimizer": {"kind": "sgd", "learning_rate": 0.01, "momentum": 0.9, "weight_decay": 0.0},
            "schedule": "one_f_one_b",
            "micro_batch_size": 1,
            "micro_batches": micro_batches,
            "recompute": "none",
            "seed": 0,
        },
        // The formulas have the sums of shards in their seconds, and what they say is exact.
        "layer_table": {"times_without_collectives": false, "margin": 0.0, "layers": layers},
    });
    ProfileDocument::parse(&document.to_string()).context("the problem makes no profile document")
}

/// The predictor over it.
pub(crate) fn table(document: &ProfileDocument) -> Result<TablePredictor> {
    Ok(TablePredictor::new(document)?)
}

/// AMP's problem: whole layers on one device, seconds as the formula has them.
pub(crate) fn whole_layers(chain: &Chain) -> Result<ProfileDocument> {
    profile(chain, chain.num_microbatches, |layer| vec![row(chain, layer, 1, chain.time_s[layer])])
}

/// Alpa's problem: n devices take `t / n · (1 + 0.05 log2 n) + 0.02 (n − 1) / n · w` seconds.
pub(crate) fn shared_layers(chain: &Chain, most_devices: u32) -> Result<ProfileDocument> {
    profile(chain, chain.num_microbatches, |layer| {
        powers_of_two(most_devices)
            .map(|n| {
                let devices = f64::from(n);
                let computing = chain.time_s[layer] / devices * (1.0 + 0.05 * devices.log2());
                let exchanging = 0.02 * (devices - 1.0) / devices * chain.param_size[layer];
                row(chain, layer, n, computing + exchanging)
            })
            .collect()
    })
}

fn row(chain: &Chain, layer: usize, tensor_degree: u32, seconds: f64) -> Row {
    let share = |volume: f64| (volume * 1e6 / f64::from(tensor_degree)).round() as u64;
    Row {
        tensor_degree,
        micro_batch_size: 1,
        seconds,
        parameter_bytes: share(4.0 * 83.0 * chain.param_size[layer]),
        activation_bytes: share(100.0 * 79.0 * chain.activation_size[layer]),
    }
}

fn layer_rows(chain: &Chain, layer: usize, rows: &[Row]) -> Value {
    let edge = |layer: Option<usize>| {
        let volume = layer.and_then(|layer| chain.boundary_volume.get(layer));
        volume.map_or(0, |volume| (volume * BYTES_PER_VOLUME).round() as u64)
    };
    let times = rows.iter().map(|row| {
        json!({
            "micro_batch_size": row.micro_batch_size,
            "tensor_degree": row.tensor_degree,
            "forward_seconds": row.seconds / 3.0,
            "backward_seconds": row.seconds - row.seconds / 3.0,
        })
    });
    let bytes = rows.iter().map(|row| {
        json!({
            "micro_batch_size": row.micro_batch_size,
            "tensor_degree": row.tensor_degree,
            "parameter_bytes": row.parameter_bytes,
            "activation_bytes": row.activation_bytes,
            "transient_bytes": 0,
            "input_bytes": edge(layer.checked_sub(1)),
            "output_bytes": edge(Some(layer)),
        })
    });
    json!({
        "first_layer": layer,
        "last_layer": layer,
        "times": times.collect::<Vec<_>>(),
        "bytes": bytes.collect::<Vec<_>>(),
    })
}

/// CAPTURE's problem: replicas share a stage's `most_devices` samples, shards its tensors. Bytes alone.
pub(crate) fn samples(chain: &Chain, most_devices: u32) -> Result<ProfileDocument> {
    let mut document = shared_layers(chain, most_devices)?;
    // A stage pass of as many samples as there may be replicas.
    if let Some(training) = &mut document.training {
        training.micro_batch_size = most_devices;
        training.micro_batches = 4;
    }
    Ok(document)
}

/// A GPT-2 of these blocks at hidden size and sequence 1,024, in half precision, as tables of its kind have it: one
/// sample per row; devices this many times slower than the reference.
pub(crate) fn gpt2(blocks: usize, global_batch: u32, slower: f64) -> Result<ProfileDocument> {
    const HIDDEN: f64 = 1024.0;
    const SEQUENCE: f64 = 1024.0;
    let layers = blocks + 2;
    let is_block = |layer: usize| (1..=blocks).contains(&layer);
    let chain = Chain {
        name: format!("gpt2-{blocks}"),
        num_microbatches: global_batch,
        p2p_seconds_per_unit: 0.0,
        time_s: (0..layers)
            .map(|layer| match layer {
                0 => 0.4e-3,
                _ if is_block(layer) => 9e-3,
                _ => 14e-3,
            })
            .map(|seconds| seconds * slower)
            .collect(),
        boundary_volume: vec![2.0 * HIDDEN * SEQUENCE / BYTES_PER_VOLUME; layers],
        param_size: vec![0.0; layers],
        activation_size: vec![0.0; layers],
    };
    profile(&chain, global_batch, |layer| {
        let parameters = if is_block(layer) { 12.0 * HIDDEN * HIDDEN } else { 50_304.0 * HIDDEN };
        let kept = if is_block(layer) {
            34.0 * HIDDEN * SEQUENCE + 5.0 * 16.0 * SEQUENCE * SEQUENCE
        } else {
            2.0 * HIDDEN * SEQUENCE
        };
        let row = |n: u32| {
            let devices = f64::from(n);
            // Sharded work, and the all-reduces of activations that a table's times contain.
            let exchanging = if n > 1 { 0.4e-3 * (devices - 1.0) / devices } else { 0.0 };
            Row {
                tensor_degree: n,
                micro_batch_size: 1,
                seconds: chain.time_s[layer] / devices * (1.0 + 0.05 * devices.log2()) + exchanging,
                parameter_bytes: (2.0 * parameters / devices) as u64,
                activation_bytes: (kept / devices) as u64,
            }
        };
        powers_of_two(8).map(row).collect()
    })
}

/// AmoebaNet-D with bytes that follow from its shapes: four bytes a parameter, and of each layer's activations
/// its output five times.
pub(crate) fn zoo(cells: u32, filters: u32) -> Result<ProfileDocument> {
    let (cells, filters) = (cells.into(), filters.into());
    let model = Zoo::AmoebaNetD(AmoebaNet { cells, filters, ..AmoebaNet::default() }).build()?;
    let layers = model.layers().len();
    let edge = |k: usize| model.edge(k).iter().map(|shape| 4 * elements(shape)).sum::<u64>();
    let chain = Chain {
        name: model.slug(),
        num_microbatches: 4,
        p2p_seconds_per_unit: 0.0,
        time_s: vec![1.0; layers],
        boundary_volume: (1..=layers).map(|k| edge(k) as f64 / BYTES_PER_VOLUME).collect(),
        param_size: vec![0.0; layers],
        activation_size: vec![0.0; layers],
    };
    profile(&chain, 4, |layer| {
        vec![Row {
            tensor_degree: 1,
            micro_batch_size: 1,
            seconds: 1.0,
            parameter_bytes: 4 * model.layers()[layer].kind.parameter_count(),
            activation_bytes: 5 * edge(layer + 1),
        }]
    })
}
