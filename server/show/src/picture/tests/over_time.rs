//! Copies below the lanes of stages, and what devices hold meanwhile.

use loadmaster_proto::wire::v1::{
    ComparePlansResponse, CopySpan, MemoryBlock, MemoryBreakdown, MemoryCurve, MemoryPoint, Timeline,
    WaitSpan,
};

use super::testing::{MIB, plan, timeline, way};
use super::{only, parsed, text};
use crate::picture::sheet::{Sheet, Which};
use crate::picture::{html, svg};
use crate::text::terminal_abilities::Look;

/// One micro-batch on two stages; the first has a block at the host for a while, and waits for it.
fn copied() -> Timeline {
    let copy = |back: bool, start_seconds: f64, end_seconds: f64| CopySpan {
        stage: 0,
        fetch: back,
        block: MemoryBlock::Activations.into(),
        layer: 2,
        micro_batch: Some(0),
        bytes: 64 * MIB,
        start_seconds,
        end_seconds,
        ..CopySpan::default()
    };
    let point = |start_seconds: f64, activations: i64, host: i64, peer_pools: i64| MemoryPoint {
        start_seconds,
        breakdown: Some(MemoryBreakdown {
            weights_bytes: 256 * MIB,
            activations_bytes: activations * MIB,
            ..MemoryBreakdown::default()
        }),
        host_bytes: host * MIB,
        peer_pool_bytes: peer_pools * MIB,
    };
    let curve = |stage: i32, peak: i64, points: Vec<MemoryPoint>| MemoryCurve {
        stage,
        capacity_bytes: 1024 * MIB,
        peak_bytes: peak * MIB,
        points,
        point_step_count: 1,
        ..MemoryCurve::default()
    };
    // Forward 0–1, 1–2; backward 2–4, 4–6; the first stage needs its block at 4 and has it at 5.
    let mut timeline = timeline(2, 1);
    timeline.stage_timelines[0].passes[1].end_seconds = 7.0;
    timeline.stage_timelines[0].waits =
        vec![WaitSpan { fetch: true, start_seconds: 4.0, end_seconds: 5.0, ..WaitSpan::default() }];
    timeline.stage_timelines[0].waited_seconds = 1.0;
    (
        timeline.stage_timelines[0].passes[2].start_seconds,
        timeline.stage_timelines[0].passes[2].end_seconds,
    ) = (7.0, 8.0);
    timeline.iteration_seconds = 8.0;
    timeline.copy_timelines =
        vec![way((Some(0), None), copy(false, 1.0, 2.5)), way((None, Some(0)), copy(true, 3.0, 5.0))];
    timeline.memory_curves = vec![
        curve(
            0,
            768,
            vec![point(0.0, 512, 0, 0), point(2.5, 128, 64, 0), point(5.0, 512, 0, 0), point(7.0, 0, 0, 0)],
        ),
        curve(1, 384, vec![point(0.0, 0, 0, 0), point(1.0, 128, 0, 32), point(6.0, 0, 0, 0)]),
    ];
    timeline.memory_curves[1].peer_pool_bytes = 32 * MIB;
    timeline
}

/// Copies lie below the stage whose blocks they carry, each direction for itself; a wait is cut out of its pass.
#[test]
fn copies_have_lanes_below_their_stage() {
    let drawn = text(&plan(), Some(&copied()), only(|which| which.schedule = true), 78, Look::UNICODE);
    assert!(
        drawn.contains(
            "\n\
             stage 0     │0░░░░··············×××××0▓▓▓▓▓▓▓▓█████│ busy 50.0 %, waits 12.5 %\n  \
             to host   │····»»»»»»»»··························│ used 18.8 %\n  \
             from host │··············««««««««««··············│ used 25.0 %\n\
             stage 1     │·····0░░░░0▓▓▓▓▓▓▓▓·········█████·····│ busy 50.0 %\n"
        ),
        "{drawn}"
    );
}

/// What is held rises and falls below the capacity, letter by letter, with what is elsewhere in rows below.
#[test]
fn what_is_held_is_a_curve_below_the_capacity() {
    let drawn = text(&plan(), Some(&copied()), only(|which| which.schedule = true), 84, Look::PLAIN);
    let picture = &drawn[drawn.find("Memory over time").unwrap()..];
    assert_eq!(
        &picture[..picture.find("stage 1").unwrap()],
        "Memory over time\n\
         stage 0: at most 768.00 MiB of 1.00 GiB, at 0 s; at the host 64.00 MiB\n   \
         1.00 GiB |--------------------------------------------|\n            \
         |                                            |\n            \
         |AAAAAAAAAAAAAA             AAAAAAAAAAAA     |\n            \
         |AAAAAAAAAAAAAA             AAAAAAAAAAAA     |\n            \
         |AAAAAAAAAAAAAA             AAAAAAAAAAAA     |\n            \
         |AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA     |\n            \
         |WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW|\n        \
         0 B |WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW|\n    \
         in host |             888888888888888                |\n"
    );
    assert!(picture.contains("\n     hosted |     8888888888888888888888888888           |\n"), "{picture}");
    assert!(picture.is_ascii(), "{picture}");
    // Moments lie below each other.
    let ticks: Vec<&str> = drawn.lines().filter(|line| line.trim_start().starts_with('\'')).collect();
    assert_eq!(ticks[0], ticks[1], "{drawn}");
}

/// A file says of every copy what it carries, and of every part how much of it there is at most.
#[test]
fn files_tell_of_copies_and_of_parts() {
    let timelines = [copied(), Timeline { plan: "plans/b".to_owned(), ..timeline(2, 1) }];
    let plans = vec![plan(), loadmaster_proto::wire::v1::Plan { name: "plans/b".to_owned(), ..plan() }];
    let one = Sheet::of_plan(&plan(), Some(&timelines[0]), Which::ALL, Look::FILE);
    let answer = ComparePlansResponse { plans, timelines: timelines.into(), warnings: Vec::new() };
    let two = Sheet::of_comparison(&answer, Which::ALL, Look::FILE);
    // Pages have each picture for screens and for phones.
    let files =
        [(svg::render(&one), 1), (html::render(&one), 2), (svg::render(&two), 1), (html::render(&two), 2)];
    for (file, copies) in files {
        let document = parsed(&file);
        let told: Vec<&str> = document.descendants().filter_map(|node| node.text()).collect();
        for wanted in [
            "copy out of 64.00 MiB of activations, layer 2 of stage 0, micro-batch 0: 1.50 s, from 1.00 s to 2.50 s \
             (predicted)",
            "waiting for a copy back from the host: 1.00 s, from 4.00 s to 5.00 s (predicted)",
            "stage 0 to host: 1 copies, 64.00 MiB, in 1.50 s; waited for 1.00 s (predicted)",
            "in host: at most 64.00 MiB (predicted)",
        ] {
            assert!(told.contains(&wanted), "{wanted}: {told:#?}");
        }
        let areas = document.descendants().filter(|node| node.tag_name().name() == "polygon").count();
        assert_eq!(areas, 6 * copies, "weights and activations of both stages, and a pool of each");
    }
}
