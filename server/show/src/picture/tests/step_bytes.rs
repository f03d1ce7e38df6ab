//! What the device of a plan in chunks holds, step by step.

use loadmaster_proto::wire::v1::{ChunkTraffic, ChunkedStage, Plan, PlanStage};
use proptest::collection::vec;
use proptest::prelude::*;

use super::testing::{MIB, in_chunks, trained_in_chunks};
use super::{files, only, parsed, text};
use crate::picture::figure::step_bytes::StepBytes;
use crate::text::terminal_abilities::Look;

/// Chunks lie on what is there besides, below the capacity, and what was measured is marked.
#[test]
fn what_each_step_holds_is_stacked_below_the_capacity() {
    let drawn = text(&trained_in_chunks(), None, only(|which| which.chunks = true), 60, Look::UNICODE);
    let picture = &drawn[drawn.find("Memory, step by step").unwrap()..];
    assert_eq!(
        picture,
        "Memory, step by step\n\
         at most 768.00 MiB of 1.00 GiB, in step 4 (predicted);\n  \
         measured 736.00 MiB, in step 4\n\
         1.00 GiB │─────────────────────────────────────────────────│\n         \
         │                                                 │\n         \
         │                        ◆◆◆◆◆◆                   │\n         \
         │                        RRRRRR                   │\n         \
         │                  ◆◆◆◆◆◆NNNNNN◆◆◆◆◆◆             │\n         \
         │            ◆◆◆◆◆◆NNNNNNNNNNNNRRRRRR             │\n         \
         │      ◆◆◆◆◆◆NNNNNNNNNNNNNNNNNNNNNNNN◆◆◆◆◆◆       │\n     \
         0 B │◆◆◆◆◆◆NNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNN◆◆◆◆◆◆◆│\n          \
         '           '            '           '           '\n          \
         0           2            4           6           8\n\
         N besides chunks (predicted)   R chunks (predicted)\n\
         ── allowed to training   ◆ measured, both\n\
         allocated bytes of tensors: the maximum of each step\n\
         in CPU memory: 2.00 GiB (predicted), 2.00 GiB (measured) in\n  \
         every step\n\
         predicted by component/1 from profiles/gpt2; measured in\n  \
         runs/01\n"
    );
}

/// Steps lie below each other.
#[test]
fn steps_lie_below_the_chunks() {
    let drawn = text(&in_chunks(), None, only(|which| which.chunks = true), 84, Look::PLAIN);
    let ticks: Vec<&str> = drawn.lines().filter(|line| line.trim_start().starts_with('\'')).collect();
    assert_eq!(ticks.len(), 2, "{drawn}");
    assert_eq!(ticks[0], ticks[1], "{drawn}");
    assert!(!drawn.contains("measured"), "{drawn}");
}

/// A file says how much there is of both at most, whose numbers they are, and of which accounting.
#[test]
fn files_name_units_accountings_and_origins() {
    for file in files(&trained_in_chunks(), None) {
        let document = parsed(&file);
        let told: Vec<&str> = document.descendants().filter_map(|node| node.text()).collect();
        for wanted in [
            "N, besides chunks: at most 512.00 MiB (predicted)",
            "R, chunks: at most 256.00 MiB (predicted)",
            "allocated bytes of tensors: the maximum of each step",
            "predicted by component/1 from profiles/gpt2; measured in runs/01",
            "in CPU memory: 2.00 GiB (predicted), 2.00 GiB (measured) in every step",
            "measured, both",
        ] {
            assert!(told.contains(&wanted), "{wanted}: {told:#?}");
        }
        let lines = document.descendants().filter(|node| node.attribute("class") == Some("measured"));
        assert!(lines.clone().any(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "polyline"))));
    }
}

/// Steps of another number are not laid over those that were predicted; without a prediction they are what is drawn.
#[test]
fn what_was_measured_of_other_steps_is_not_drawn_over_them() {
    let mut plan = trained_in_chunks();
    plan.stages[0].measured_chunk_traffic.as_mut().unwrap().non_chunk_step_bytes.pop();
    let of = StepBytes::of(&plan).unwrap();
    assert!(of.measured.is_empty());
    assert!(
        of.notes
            .iter()
            .any(|note| note
                == "the measured bytes are not drawn: they are of 7 steps, the predicted bytes of 8"),
        "{of:?}"
    );
    plan.stages[0].chunk_traffic = None;
    let of = StepBytes::of(&plan).unwrap();
    assert_eq!((of.source, of.held.len()), ("measured", 7));
    plan.stages[0].measured_chunk_traffic = None;
    assert_eq!(StepBytes::of(&plan), None);
}

/// A capacity far above everything would flatten it.
#[test]
fn a_capacity_far_above_is_told_and_not_drawn() {
    let mut plan = in_chunks();
    plan.stages[0].capacity_bytes = 1 << 40;
    let of = StepBytes::of(&plan).unwrap();
    assert_eq!((of.capacity_bytes, of.scale_bytes), (None, 768 * MIB));
    assert!(of.label.contains("768.00 MiB of 1.00 TiB, in step 4 (predicted)"), "{}", of.label);
}

fn amounts() -> impl Strategy<Value = Vec<i64>> {
    vec(prop_oneof![8 => 0..1_i64 << 36, 1 => any::<i64>()], 0..60)
}

proptest! {
    /// What a column stacks adds up to the most that any of its steps holds of both, and every step is below one.
    #[test]
    fn stacked_bytes_add_up(other in amounts(), payload in amounts(), most in 1..80_usize, capacity: i64) {
        let run = ChunkTraffic { non_chunk_step_bytes: other.clone(), chunk_step_bytes: payload.clone(), ..ChunkTraffic::default() };
        let stage = PlanStage {
            chunked_training: Some(ChunkedStage::default()),
            capacity_bytes: capacity,
            measured_chunk_traffic: Some(run.clone()),
            chunk_traffic: Some(run),
            ..PlanStage::default()
        };
        let steps = other.len().min(payload.len());
        let Some(of) = StepBytes::of(&Plan { stages: vec![stage], ..Plan::default() }) else {
            prop_assert_eq!(steps, 0);
            return Ok(());
        };
        let totals: Vec<i64> =
            (0..steps).map(|step| other[step].max(0).saturating_add(payload[step].max(0))).collect();
        let columns = of.columns(most);
        prop_assert_eq!(columns.len(), most.min(steps));
        for (column, held) in columns.iter().enumerate() {
            let own = &totals[column * steps / columns.len()..(column + 1) * steps / columns.len()];
            prop_assert_eq!(Some(held.other.saturating_add(held.chunks)), own.iter().copied().max());
            prop_assert!(held.total() <= of.scale_bytes);
        }
        let measured: Vec<i64> = columns.iter().map(|held| held.total()).collect();
        prop_assert_eq!(of.measured_columns(most), measured);
    }
}
