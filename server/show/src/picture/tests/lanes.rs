//! The iteration of a plan in chunks: passes and exchanges, both directions of the link, and the host's steps.

use loadmaster_proto::wire::v1::pass_span::Kind;
use loadmaster_proto::wire::v1::{
    CopySpan, MemoryBlock, MemoryBreakdown, MemoryCurve, MemoryPoint, MicroBatchOrder, PassSpan, Plan,
    SimulatedSchedule, StageTimeline, Timeline, UpdateSpan, WaitSpan,
};

use super::testing::{MIB, in_chunks, way};
use super::{files, only, parsed, text};
use crate::text::terminal_abilities::Look;

fn planned() -> Plan {
    let mut plan = in_chunks();
    let chunks = plan.stages.iter_mut().filter_map(|stage| stage.chunked_training.as_mut());
    chunks.for_each(|chunks| chunks.set_micro_batch_order(MicroBatchOrder::Layer));
    plan
}

/// Eight seconds of a rank: it waits for chunk 0, which its host still updates, and gives its gradients to others.
fn iteration() -> Timeline {
    let about = |kind: Kind, chunk: Option<i32>, start: f64, end: f64| PassSpan {
        kind: kind.into(),
        chunk,
        layer: if chunk.is_none() { Some(2) } else { None },
        start_seconds: start,
        end_seconds: end,
        ..PassSpan::default()
    };
    let copy = |back: bool, block: MemoryBlock, start: f64, end: f64| CopySpan {
        fetch: back,
        block: block.into(),
        layer: 2,
        micro_batch: Some(0),
        bytes: 64 * MIB,
        start_seconds: start,
        end_seconds: end,
        chunk: Some(0),
        partial_gradients: !back,
        ..CopySpan::default()
    };
    let lane = StageTimeline {
        passes: vec![
            about(Kind::AllGather, Some(0), 1.0, 2.0),
            about(Kind::Forward, None, 2.0, 3.0),
            about(Kind::Recomputation, None, 3.0, 4.0),
            about(Kind::Backward, None, 4.0, 6.0),
            about(Kind::ReduceScatter, Some(0), 6.0, 7.0),
            about(Kind::OptimizerStep, Some(3), 7.0, 8.0),
        ],
        waits: vec![WaitSpan {
            fetch: true,
            start_seconds: 0.0,
            end_seconds: 1.0,
            chunk: Some(0),
            ..WaitSpan::default()
        }],
        busy_seconds: 7.0,
        waited_seconds: 1.0,
        updates: vec![UpdateSpan {
            chunk: 0,
            parameter_count: 1_500_000,
            start_seconds: 0.0,
            end_seconds: 0.5,
        }],
        update_seconds: 2.0,
        in_flight_micro_batch_count: 1,
        ..StageTimeline::default()
    };
    let held = |start_seconds: f64, weights: i64| MemoryPoint {
        start_seconds,
        breakdown: Some(MemoryBreakdown { weights_bytes: weights * MIB, ..MemoryBreakdown::default() }),
        ..MemoryPoint::default()
    };
    Timeline {
        plan: "plans/7f3c".to_owned(),
        schedule: SimulatedSchedule::OneFOneB.into(),
        stage_timelines: vec![lane],
        iteration_seconds: 8.0,
        bubble_ratio: 0.375,
        copy_timelines: vec![
            way((Some(0), None), copy(false, MemoryBlock::Gradients, 7.0, 8.0)),
            way((None, Some(0)), copy(true, MemoryBlock::Weights, 0.5, 1.0)),
        ],
        memory_curves: vec![MemoryCurve {
            capacity_bytes: 1024 * MIB,
            peak_bytes: 768 * MIB,
            points: vec![held(0.0, 256), held(4.0, 768)],
            point_step_count: 1,
            ..MemoryCurve::default()
        }],
        ..Timeline::default()
    }
}

/// What the host updates has a lane of its own below those of the link, and each thing on a lane its sign.
#[test]
fn hosts_have_a_lane_of_their_steps() {
    let only_schedule = only(|which| which.schedule = true);
    let drawn = text(&planned(), Some(&iteration()), only_schedule, 80, Look::UNICODE);
    assert!(
        drawn.contains(
            "\n\
             stage 0     │×××××╬╬╬╬╬0░░░░▒▒▒▒▒0▓▓▓▓▓▓▓▓▓╬╬╬╬╬█████│ busy 87.5 %, waits 12.5 %\n  \
             to host   │···································»»»»»│ used 12.5 %\n  \
             from host │··«««···································│ used 6.2 %\n  \
             host step │███·····································│ used 25.0 %\n"
        ),
        "{drawn}"
    );
    for told in ["chunks in layer order: 8.00 s per iteration", "▒▒ recompute", "╬╬ exchange between ranks"]
    {
        assert!(drawn.contains(told), "{told}:\n{drawn}");
    }
    assert!(drawn.contains("Memory over time"), "{drawn}");
    let plain = text(&planned(), Some(&iteration()), only_schedule, 80, Look::PLAIN);
    assert!(plain.is_ascii() && plain.contains("|xxxxx%%%%%0----+++++0=========%%%%%#####|"), "{plain}");
}

/// A file says of every span which chunk it is about, and why.
#[test]
fn files_tell_chunks_and_why() {
    for file in files(&planned(), Some(&iteration())) {
        let document = parsed(&file);
        let told: Vec<&str> = document.descendants().filter_map(|node| node.text()).collect();
        for wanted in [
            "waiting for a copy of chunk 0 from the host: 1.00 s, from 0 s to 1.00 s (predicted)",
            "all-gather of chunk 0: 1.00 s, from 1.00 s to 2.00 s (predicted)",
            "forward pass of micro-batch 0 through layer 2: 1.00 s, from 2.00 s to 3.00 s (predicted)",
            "repeated forward pass of micro-batch 0 through layer 2: 1.00 s, from 3.00 s to 4.00 s (predicted)",
            "reduce-scatter of the gradients of chunk 0: 1.00 s, from 6.00 s to 7.00 s (predicted)",
            "optimizer step of chunk 3 on the device: 1.00 s, from 7.00 s to 8.00 s (predicted)",
            "copy out of 64.00 MiB of chunk 0, unfinished gradients, after layer 2, micro-batch 0: 1.00 s, from 7.00 s to \
             8.00 s (predicted)",
            "copy back of 64.00 MiB of chunk 0, weights, for layer 2, micro-batch 0: 500.0 ms, from 500.0 ms to 1.00 s \
             (predicted)",
            "optimizer step of chunk 0 on the CPU, 1,500,000 parameters: 500.0 ms, from 0 s to 500.0 ms (predicted)",
        ] {
            assert!(told.contains(&wanted), "{wanted}: {told:#?}");
        }
    }
}
