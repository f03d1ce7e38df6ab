//! This crate's own models.

use super::golden::ADAM;
use crate::chunks::MEBI;
use crate::chunks::groups::Groups;
use crate::chunks::layout::{List, Lists};
use crate::chunks::packing::{ChunkLayout, Packing};
use crate::chunks::sequence::Sequence;
use crate::chunks::sizes::{ChunkSizes, LARGEST};
use crate::model::Model;
use crate::model::layer::LayerKind;
use crate::model::zoo::{AmoebaNet, Bert, Gpt2, Llama, TransGan, Vgg, Zoo};
use crate::training::stage::StageConfig;
use crate::training::{Optimizer, Precision};

fn bert(hidden_size: i64, blocks: i64) -> Model {
    let heads = hidden_size / 128;
    let bert = Bert { blocks, hidden_size, heads, sequence_length: 1024, positions: 1024, ..Bert::default() };
    Zoo::Bert(bert).build().unwrap()
}

fn families() -> Vec<Model> {
    let amoeba = AmoebaNet { cells: 6, filters: 64, ..AmoebaNet::default() };
    let zoo = [
        Zoo::Vgg11(Vgg::default()),
        Zoo::Gpt2(Gpt2::default()),
        Zoo::Gpt2(Gpt2 { untied_head: true, ..Gpt2::default() }),
        Zoo::Bert(Bert::default()),
        Zoo::Llama(Llama { blocks: 4, ..Llama::default() }),
        Zoo::AmoebaNetD(amoeba),
        Zoo::TransGan(TransGan::default()),
    ];
    zoo.into_iter().map(|zoo| zoo.build().unwrap()).collect()
}

/// BERT with one map for queries, keys and values: fewer parameter groups, other breakpoints.
#[test]
fn a_fused_map_has_breakpoints_of_its_own() {
    for (hidden, blocks, size, mean, chunks, candidates) in [
        (4096, 50, "192.0508", "99.46", 51, 98),
        (4096, 78, "192.0508", "99.65", 79, 98),
        (4096, 90, "192.0508", "99.70", 91, 98),
        (8192, 25, "256.0469", "98.97", 77, 13),
        (8192, 50, "256.0469", "99.48", 152, 13),
        (8192, 75, "256.0469", "99.65", 227, 13),
        (9216, 66, "324.0527", "99.55", 200, 9),
    ] {
        let model = bert(hidden, blocks);
        let sequence = Sequence::of_model(&model);
        let lists = Lists::new(Precision::Bf16, &ADAM).unwrap();
        let packing = Packing::new(&sequence, ChunkLayout::Patrickstar, lists).unwrap();
        let groups = Groups::new(ChunkLayout::Patrickstar, 1, None).unwrap();
        let tried = packing.choose(ChunkSizes::Breakpoints, LARGEST, &groups, 1).unwrap();
        let best = &tried.footprints[tried.best];
        let told = format!(
            "{:.4}M {:.2} % {} of {}",
            best.chunk_elements as f64 / MEBI as f64,
            100.0 * best.utilisation(),
            best.chunks,
            tried.tried
        );
        assert_eq!(told, format!("{size}M {mean} % {chunks} of {candidates}"), "{hidden} {blocks}");
    }
}

/// Fourteen bytes with Adam in bf16, sixteen in fp32; the formula of the rank's own state, but that a gradient takes the
/// parameter's space and the fp32 copy is always there.
#[test]
fn bytes_per_parameter_follow_from_precision_and_update_rule() {
    let sgd = |momentum| Optimizer::Sgd { learning_rate: 0.1, momentum, weight_decay: 0.0 };
    let adamw =
        Optimizer::AdamW { learning_rate: 1e-3, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1 };
    for (precision, optimizer, lists, bytes) in [
        (Precision::Bf16, ADAM, 4, 14),
        (Precision::Bf16, adamw, 4, 14),
        (Precision::Fp32, ADAM, 4, 16),
        (Precision::Bf16, sgd(0.9), 3, 10),
        (Precision::Fp32, sgd(0.9), 3, 12),
        (Precision::Bf16, sgd(0.0), 2, 6),
        (Precision::Fp32, sgd(0.0), 2, 8),
    ] {
        let found = Lists::new(precision, &optimizer).unwrap();
        assert_eq!((found.all().len(), found.parameter_bytes()), (lists, bytes), "{precision} {optimizer:?}");
        assert_eq!(found.all()[..2], [List::Parameters, List::Fp32Copy]);
    }
    let refused = Lists::new(Precision::Bf16Fp32Gradients, &ADAM).unwrap_err();
    assert_eq!(refused.violations()[0].field, "precision");
    assert!(refused.to_string().contains("Use bf16"), "{refused}");
}

/// The tensors of each parameter group of a layer, written out: names alone do not tell (`token` and `position` are
/// two modules,
/// `weight` and `bias` one).
#[test]
fn atoms_are_the_modules_of_layers() {
    let atoms = |model: &Model, index: usize| {
        let stage = StageConfig::single(index, index);
        let names: Vec<&str> = model.rank_parameters(&stage, 0).iter().map(|of| of.whole.name).collect();
        let sequence = Sequence::of_stage(model, &stage, 0);
        let mut rest = names.as_slice();
        let mut found = Vec::new();
        for atom in sequence.atoms() {
            let (own, after) = rest.split_at(atom.len());
            found.push(own.join(" + "));
            rest = after;
        }
        assert!(rest.is_empty());
        found
    };
    let bert = bert(256, 2);
    assert_eq!(atoms(&bert, 0), ["token", "position", "token_type", "norm.weight + norm.bias"]);
    assert_eq!(
        atoms(&bert, 1),
        [
            "attention.qkv.weight + attention.qkv.bias",
            "attention.out.weight + attention.out.bias",
            "norm1.weight + norm1.bias",
            "mlp.in.weight + mlp.in.bias",
            "mlp.out.weight + mlp.out.bias",
            "norm2.weight + norm2.bias",
        ]
    );
    let gpt2 = Zoo::Gpt2(Gpt2 { blocks: 1, ..Gpt2::default() }).build().unwrap();
    assert_eq!(atoms(&gpt2, 2), ["weight + bias"]);
    assert_eq!(atoms(&gpt2, 3), ["weight"], "the last stage's copy of the tied weight");
    assert_eq!(
        Sequence::of_model(&gpt2).elements(),
        gpt2.parameter_count(),
        "which the whole model has once"
    );
    let llama = Zoo::Llama(Llama { blocks: 1, ..Llama::default() }).build().unwrap();
    assert_eq!(
        atoms(&llama, 1),
        [
            "norm1.weight",
            "attention.query.weight",
            "attention.key.weight",
            "attention.value.weight",
            "attention.out.weight",
            "norm2.weight",
            "mlp.gate.weight",
            "mlp.in.weight",
            "mlp.out.weight",
        ]
    );
    let transgan = Zoo::TransGan(TransGan::default()).build().unwrap();
    assert_eq!(atoms(&transgan, 0), ["weight + bias", "position"]);
    let amoeba =
        Zoo::AmoebaNetD(AmoebaNet { cells: 3, filters: 16, ..AmoebaNet::default() }).build().unwrap();
    let is_reduced = |kind: &LayerKind| matches!(kind, LayerKind::AmoebaCell(cell) if cell.after_reduction);
    let reduced = amoeba.layers().iter().position(|layer| is_reduced(&layer.kind)).unwrap();
    assert_eq!(
        atoms(&amoeba, reduced)[..5],
        [
            "input1.weight",
            "input1.norm.weight + input1.norm.bias",
            "input2.even.weight",
            "input2.odd.weight",
            "input2.norm.weight + input2.norm.bias",
        ]
    );
}

/// Planner and rank count the same parameters, in the same order, for every stage and shard.
#[test]
fn a_stage_is_laid_out_in_the_order_of_its_parameters() {
    for model in families() {
        let last = model.layers().len() - 1;
        for (first, last, degree) in [(0, last, 1), (0, 1, 1), (1, last, 1), (last, last, 1), (0, last, 2)] {
            let stage = StageConfig { tensor_degree: degree, ..StageConfig::single(first, last) };
            for index in 0..degree {
                let held: Vec<u64> =
                    model.rank_parameters(&stage, index).iter().map(|of| of.elements()).collect();
                let sequence = Sequence::of_stage(&model, &stage, index);
                assert_eq!(sequence.tensors(), held, "{} {stage:?}", model.family());
                assert_eq!(sequence.atoms().flatten().copied().collect::<Vec<u64>>(), held);
            }
        }
    }
}

/// The default question has an answer for every family, at every stage of the search.
#[test]
fn every_family_fits_into_chunks() {
    for model in families() {
        for (layout, sizes) in [
            (ChunkLayout::Aligned, ChunkSizes::Breakpoints),
            (ChunkLayout::Patrickstar, ChunkSizes::Breakpoints),
            (ChunkLayout::Aligned, ChunkSizes::GridA),
        ] {
            let sequence = Sequence::of_model(&model);
            let lists = Lists::new(Precision::Bf16, &ADAM).unwrap();
            let packing = Packing::new(&sequence, layout, lists).unwrap();
            let groups = Groups::new(layout, 4, None).unwrap();
            let tried = packing.choose(sizes, LARGEST, &groups, 5).unwrap();
            let best = &tried.footprints[tried.best];
            assert!(best.utilisation() <= 1.0 && best.fullest <= 1.0, "{}: {best:?}", model.family());
        }
    }
}
