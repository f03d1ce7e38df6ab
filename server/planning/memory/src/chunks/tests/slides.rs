//! The machines of PatrickStar's slides, and the models that they are said to hold: by tables of what transformers keep, which are
//! no recordings.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::activations::ActivationPlace;
use loadmaster_proto::chunks::embedding::EmbeddingPlace;
use loadmaster_proto::chunks::host::HostParameters;
use loadmaster_proto::training::chunk_order::ChunkOrder;
use loadmaster_proto::training::{Precision, RecomputePolicy};
use loadmaster_samples::TabledGpt2;

use super::draw::{RATES, training};
use crate::chunks::{
    Baseline, ChunkChoices, ChunkQuestion, NoChunks, PassChoice, Passes, ProfiledPasses, StepCosts, fits,
    largest,
};
use loadmaster_predict::layer_table::TablePredictor;
use loadmaster_predict::{Margin, PredictionError};

const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// Like nodes, whose host each node's devices share evenly. Memory comes in powers of two; chunks may have 0.95 of a device and 0.9
/// of a host.
#[derive(Debug, Clone, Copy)]
struct Machine {
    replicas: u32,
    shards: u32,
    nodes: u64,
    /// Bytes of a device, and of a node's host.
    device: u64,
    host: u64,
}

const fn machine(replicas: u32, nodes: u64, device: u64, host: u64) -> Machine {
    Machine { replicas, shards: 1, nodes, device: device * GIB, host }
}

impl Machine {
    fn devices(&self) -> u64 {
        u64::from(self.replicas * self.shards)
    }

    fn question(&self, of: TabledGpt2, choices: ChunkChoices) -> ChunkQuestion {
        let size = TabledGpt2::SAMPLES * self.replicas;
        ChunkQuestion {
            model: of.model(),
            training: training(Precision::Bf16, 1).with_micro_batch_size(size),
            ranks: self.replicas,
            shards: self.shards,
            capacity: Bytes(self.device / 100 * 95),
            host_memory: Bytes(self.host / 100 * 90 * self.nodes / self.devices()),
            rates: RATES,
            choices,
        }
    }
}

/// Every layer is recomputed; where its input is meanwhile is chosen.
fn choices() -> ChunkChoices {
    ChunkChoices { recomputes: vec![RecomputePolicy::Layer], ..ChunkChoices::default() }
}

fn passes<'a>(asked: &'a ChunkQuestion, table: &'a TablePredictor) -> ProfiledPasses<'a> {
    ProfiledPasses {
        predictor: table,
        model: &asked.model,
        training: asked.training,
        ranks: asked.ranks,
        shards: asked.shards,
        margin: Margin::Known,
        factors: [1.0; 2],
    }
}

fn table(of: TabledGpt2) -> TablePredictor {
    TablePredictor::new(&of.document()).unwrap()
}

/// With all activations on the device: held inputs, a layer that is recomputed, and its gradients; and what the closed form
/// leaves out, the gradients of both its edges. With three layers' parameters that is the published N.
#[test]
fn steps_hold_the_closed_form_besides_chunks() {
    for (hidden, blocks, published) in
        [(4096, 90, "5.9"), (8192, 37, "11.4"), (8192, 75, "14.0"), (12_288, 96, "27.9")]
    {
        let of = TabledGpt2 { hidden, blocks };
        let (asked, table) = (machine(1, 1, 32, 240 * GIB).question(of, choices()), table(of));
        for order in ChunkOrder::ALL {
            let recompute = RecomputePolicy::Layer;
            let choice = PassChoice { order, recompute, embedding: EmbeddingPlace::Chunk, activations: None };
            let needed = passes(&asked, &table).costs(choice).unwrap().needed;
            let most = needed.into_iter().max().unwrap() - 2 * of.edge();
            assert_eq!(most, of.edge() * blocks + of.kept() + of.parameters(), "{hidden} {order}");
            assert_eq!(format!("{:.1}", (most + 3 * of.parameters()) as f64 / 1e9), published);
        }
    }
}

/// The models of the slides are held as PatrickStar was published.
#[test]
fn patrickstar_holds_the_models_of_its_slides() {
    for (machine, hidden, blocks) in [
        // 12B, 18B, 68B and 175B.
        (machine(1, 1, 32, 240 * GIB), 4096, 60),
        (machine(8, 1, 32, 240 * GIB), 4096, 90),
        (machine(8, 1, 40, TIB), 9216, 66),
        (machine(32, 4, 40, TIB), 12_288, 96),
    ] {
        let of = TabledGpt2 { hidden, blocks };
        let (asked, table) = (machine.question(of, choices()), table(of));
        let rule = Baseline::PATRICKSTAR;
        let found = rule.plan(&asked, &passes(&asked, &table), RecomputePolicy::Layer);
        assert!(found.is_ok(), "{machine:?}: {}", found.unwrap_err());
    }
}

/// Larger ones in any chunks, with fewer nodes.
#[test]
fn chunks_hold_larger_models_than_the_slides() {
    for (machine, hidden, blocks) in [
        // 18B, 30B, 80B and 175B.
        (machine(1, 1, 32, 240 * GIB), 4096, 90),
        (machine(8, 1, 32, 240 * GIB), 8192, 37),
        (machine(8, 1, 40, TIB), 8192, 99),
        (machine(24, 3, 40, TIB), 12_288, 96),
    ] {
        let of = TabledGpt2 { hidden, blocks };
        let (asked, table) = (machine.question(of, choices()), table(of));
        assert!(fits(&asked, &passes(&asked, &table), &|| false).unwrap(), "{machine:?}");
    }
}

/// A question with the table that answers it.
struct Tabled {
    asked: ChunkQuestion,
    table: TablePredictor,
}

impl Passes for Tabled {
    fn costs(&self, of: PassChoice) -> Result<StepCosts, PredictionError> {
        passes(&self.asked, &self.table).costs(of)
    }
}

/// With inputs on the device, the largest models of these hidden sizes come to the published closed form of all bytes that there are,
/// which counts three layers' parameters where one is at work: at most a twenty-fifth less, since chunks are whole. They are never
/// larger than that form without any parameters at work: a parameter takes twelve bytes of the host where copies are made and
/// fourteen where they are kept, or fourteen of the devices beside what steps hold.
#[test]
fn the_largest_models_come_to_the_closed_form() {
    for (machine, hidden, host_copy, published) in [
        (machine(1, 1, 32, 240 * GIB), 4096, HostParameters::Cast, 21.2),
        (machine(1, 1, 32, 240 * GIB), 4096, HostParameters::Stored, 18.5),
        (machine(8, 1, 32, 240 * GIB), 8192, HostParameters::Cast, 31.5),
        (machine(8, 1, 32, 240 * GIB), 8192, HostParameters::Stored, 28.7),
        (machine(8, 1, 40, TIB), 8192, HostParameters::Cast, 90.3),
        (machine(8, 1, 40, TIB), 8192, HostParameters::Stored, 79.6),
        (machine(16, 2, 40, TIB), 12_288, HostParameters::Cast, 164.8),
    ] {
        let choices = ChunkChoices {
            host_copies: vec![host_copy],
            activations: vec![ActivationPlace::Device],
            ..choices()
        };
        let asked = |blocks| machine.question(TabledGpt2 { hidden, blocks }, choices.clone());
        let found = largest(1..=300, |blocks| {
            let of = Tabled { asked: asked(blocks), table: table(TabledGpt2 { hidden, blocks }) };
            Some((of.asked.clone(), of))
        });
        let of = TabledGpt2 { hidden, blocks: found.unwrap().unwrap() };
        let ChunkQuestion { model, capacity, host_memory, .. } = asked(of.blocks);
        let steps = of.edge() * of.blocks + of.kept() + of.parameters();
        let on_host = host_memory.0 / if host_copy == HostParameters::Cast { 12 } else { 14 };
        let most = machine.devices() * (on_host + (capacity.0 - steps) / 14);
        let parameters = model.parameter_count();
        assert!(parameters <= most, "{machine:?}, {host_copy}: {parameters} of {most}");
        let billions = parameters as f64 / 1e9;
        assert!(billions >= 0.96 * published, "{machine:?}, {host_copy}: {billions} for {published}");
    }
}

/// ZeRO-Offload's table has 30B on four devices of 32 GiB with 1.5 TiB of host, in shards, and 6B with 240 GiB, where each has all
/// parameters; 30B whole have no room on any of them.
#[test]
fn a_static_partition_holds_what_was_published() {
    let small = machine(4, 1, 32, 240 * GIB);
    let large = machine(4, 1, 32, 3 * TIB / 2);
    for (machine, hidden, blocks, has_room) in [
        (small, 3072, 53, true),
        (Machine { replicas: 1, shards: 4, ..large }, 8192, 37, true),
        (large, 8192, 37, false),
    ] {
        let of = TabledGpt2 { hidden, blocks };
        let (asked, table) = (machine.question(of, choices()), table(of));
        let rule = Baseline::Static(ChunkOrder::Layer);
        let found = rule.plan(&asked, &passes(&asked, &table), RecomputePolicy::Layer);
        assert_eq!(found.is_ok(), has_room, "{machine:?}: {:?}", found.err());
        assert!(found.is_ok() || matches!(found, Err(NoChunks::NoRoom(_))));
    }
}
