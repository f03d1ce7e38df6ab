//! A recorded layer says which of its blocks autograd saved, and these are all that it keeps.

use std::collections::BTreeSet;

use loadmaster_proto::measure::rank::RankSpec;
use loadmaster_proto::measure::trace::{LayerContent, Passage, Slot, block_of};
use loadmaster_proto::training::{Precision, TrainingSpec};

use crate::models::families;
use crate::processes::{positions, run, small_gpt, small_vgg, solo, training};

/// Blocks that are live between the forward and the backward pass.
fn kept(passage: &Passage) -> BTreeSet<usize> {
    let mut live = BTreeSet::new();
    for slot in [Slot::Input, Slot::Forward, Slot::Output] {
        for &event in passage.slot(slot) {
            let (block, allocated) = block_of(event);
            if allocated {
                live.insert(block);
            } else {
                live.remove(&block);
            }
        }
    }
    live
}

fn bytes<'a>(passage: &Passage, blocks: impl IntoIterator<Item = &'a usize>) -> u64 {
    blocks.into_iter().map(|&block| passage.blocks[block]).sum()
}

/// At least 99 % of what a layer of any family keeps of a micro-batch is what autograd saved, each block once; a pass
/// that leaves no graph saves nothing. What is printed is the share of each layer.
#[test]
fn autograd_saved_what_a_layer_keeps() {
    let mut seen = BTreeSet::new();
    for model in families().into_iter().chain([small_gpt(true), small_gpt(false), small_vgg()]) {
        for precision in [Precision::Fp32, Precision::Bf16] {
            let count = model.layers().len();
            let alone = positions(&vec![1; count]);
            let (mut all_kept, mut all_saved) = (0, 0);
            for (layer, position) in alone.into_iter().enumerate() {
                let content = LayerContent::of(&model, layer).unwrap().fingerprint();
                if !seen.insert((content, precision.as_str())) {
                    continue;
                }
                let training = TrainingSpec { precision, micro_batches: 1, ..training() };
                let spec = RankSpec { iterations: 1, ..solo(&model, training, position) };
                let trace = run(&spec).measurement().trace.unwrap();
                assert!(trace.has_saved && trace.without_graph.saved.is_empty());
                let untrained = trace.untrained_input.iter().flat_map(|pair| pair.iter());
                for passage in [&trace.first, &trace.later].into_iter().chain(untrained) {
                    let kept = kept(passage);
                    let saved: BTreeSet<usize> = passage.saved.iter().map(|&block| block as usize).collect();
                    assert_eq!(saved.len(), passage.saved.len(), "each once");
                    assert!(saved.is_subset(&kept), "saved is what lives on");
                    let (kept, saved) = (bytes(passage, &kept), bytes(passage, &saved));
                    let name = &model.layers()[layer].name;
                    assert!(
                        saved as f64 >= 0.99 * kept as f64,
                        "{} {name} {precision:?}: {saved} of {kept}",
                        model.family()
                    );
                    (all_kept, all_saved) = (all_kept + kept, all_saved + saved);
                }
            }
            println!("{} {precision:?}: {all_saved} of {all_kept} bytes are saved", model.family());
        }
    }
}
