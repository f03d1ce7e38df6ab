//! Bytes of a parameter on either side, and bytes that an iteration moves, in closed form.
//!
//! The maps are alike, and their tensors and parts whole lines in both number formats: no layout adds a byte.

use super::{stage, training};
use crate::chunks::host::HostParameters;
use crate::chunks::residency::intervals::{Moved, ResidencyInterval};
use crate::chunks::stage::{ChunkEviction, ChunkedStage, Chunks};
use crate::model::layer::{Layer, LayerKind};
use crate::model::{Model, ModelInput};
use crate::training::boundaries::BoundaryInterval;
use crate::training::chunk_order::ChunkOrder;
use crate::training::{Precision, RecomputePolicy, Schedule, TrainingSpec};

const WIDTH: i64 = 256;
const MAPS: usize = 5;
/// Of a map, which is a chunk, and of all.
const ELEMENTS: u64 = 256 * 257;
const PARAMETERS: u64 = ELEMENTS * MAPS as u64;

/// Maps, and a layer without parameters behind them: no chunk is there for its last step forward and for its first one back at
/// once.
fn maps() -> Model {
    let map = LayerKind::Linear { in_features: WIDTH, out_features: WIDTH };
    let kinds = std::iter::repeat_n(map, MAPS).chain([LayerKind::Relu]);
    let layers = kinds.map(|kind| Layer { name: "layer".to_owned(), kind }).collect();
    Model::new("maps".to_owned(), ModelInput::Vector { size: WIDTH }, layers).unwrap()
}

/// Both number formats, with the bytes of their scalars.
const FORMATS: [(Precision, u64); 2] = [(Precision::Bf16, 2), (Precision::Fp32, 4)];

fn passes(micro_batches: u32, recompute: RecomputePolicy, precision: Precision) -> TrainingSpec {
    training((Schedule::Gpipe, micro_batches), recompute, precision)
}

/// A device and its host, of a parameter: all of it where it is, s more where gradients accumulate beside parameters that are still
/// read, and buffers for what passes the host.
#[test]
fn a_parameter_takes_the_bytes_of_the_table() {
    use ChunkOrder::{Layer, MicroBatch};
    use HostParameters::{Cast as Made, Stored as Kept};
    for (precision, s) in FORMATS {
        for (order, copy, is_on_device, device, host) in [
            (Layer, Kept, false, 0, s + 12),
            (Layer, Made, false, 0, 12),
            (Layer, Made, true, s + 12, 0),
            (MicroBatch, Kept, false, 0, 2 * s + 12),
            (MicroBatch, Made, false, 0, s + 12),
            (MicroBatch, Made, true, 2 * s + 12, 0),
        ] {
            let on_device = if is_on_device { (0..MAPS).collect() } else { Vec::new() };
            let stage = ChunkedStage { on_device, ..stage(ELEMENTS, order, copy) };
            let chunks = stage.lay_out(&maps(), &passes(3, RecomputePolicy::None, precision)).unwrap();
            let staging = &chunks.host.staging;
            assert!(staging.iter().all(|part| part.bytes == s * ELEMENTS) && staging.len() <= stage.staging);
            let passing = s * ELEMENTS * staging.len() as u64;
            let told = (chunks.on_device_bytes(), chunks.host.bytes - passing);
            assert_eq!(told, (device * PARAMETERS, host * PARAMETERS), "{precision} {order} {copy}");
        }
    }
}

/// Residency intervals in which nothing stays but gradients that are added up on the device.
fn bare_intervals(stage: &ChunkedStage, chunks: &Chunks) -> Vec<ResidencyInterval> {
    let mut intervals = stage.bare_intervals(chunks).unwrap();
    intervals.retain(|interval| !interval.payload.is_gradients);
    let apart = chunks.uses.payloads().iter().filter(|of| of.payload.is_gradients);
    intervals.extend(apart.map(|of| {
        let (first, last) = of.changed.unwrap();
        ResidencyInterval {
            at: BoundaryInterval { fetched: first, needed: first, leaves: last + 1, freed: last + 1 },
            payload: of.payload,
        }
    }));
    intervals
}

/// With nothing kept a rank's part of all parameters comes for each sweep, gradients leave once, and ranks gather and add up what
/// they do not own. A sweep serves all micro-batches in `layer` order, and one in the other; exclusive moves bring parameters
/// back besides, as PatrickStar does.
#[test]
fn an_iteration_moves_what_the_closed_form_says() {
    let dropped = |order, copy| stage(ELEMENTS, order, copy);
    let exclusive = ChunkedStage {
        moves: ChunkEviction::WriteBack,
        ..dropped(ChunkOrder::Layer, HostParameters::Stored)
    };
    for (precision, s) in FORMATS {
        for (ranks, micro_batches) in [1, 2, 4, 8].into_iter().flat_map(|ranks| [(ranks, 1), (ranks, 3)]) {
            let w = u64::from(ranks);
            let (own, others) = (s * PARAMETERS / w, s * PARAMETERS / w * (w - 1));
            for (stage, sweeps, down) in [
                (&dropped(ChunkOrder::Layer, HostParameters::Cast), 1, own),
                (&dropped(ChunkOrder::Layer, HostParameters::Stored), 1, own),
                (&exclusive, 1, 2 * own),
                (&dropped(ChunkOrder::MicroBatch, HostParameters::Cast), u64::from(micro_batches), own),
            ] {
                for recompute in [RecomputePolicy::None, RecomputePolicy::Layer] {
                    let training = passes(micro_batches, recompute, precision).with_micro_batch_size(ranks);
                    let chunks = stage.lay_out_shared(&maps(), &training, ranks).unwrap();
                    let intervals = bare_intervals(stage, &chunks);
                    let closed = Moved {
                        up: 2 * sweeps * own,
                        down,
                        backward_up: sweeps * own,
                        unchanged_down: down - own,
                        fetches: 2 * sweeps * MAPS as u64,
                        gathered: 2 * sweeps * others,
                        scattered: others,
                        ..Moved::default()
                    };
                    let told = chunks.moved(&stage.told(&chunks, &intervals).unwrap());
                    assert_eq!(
                        told, closed,
                        "{precision}, {ranks} ranks, {micro_batches}, {:?}",
                        stage.order
                    );
                }
            }
        }
    }
}
