//! Any message at all can be drawn: without a panic, within the width, within the plane, well-formed.

use loadmaster_proto::warning::WarningCode;
use loadmaster_proto::wire::v1::chunked_stage::Residency;
use loadmaster_proto::wire::v1::{
    ChunkTraffic, ChunkedStage, ComparePlansResponse, CopySpan, CopyTimeline, DeviceGroup, DeviceRange,
    FrontPoint, MemoryBreakdown, MemoryCurve, MemoryFigure, MemoryInterval, MemoryPoint, PassSpan,
    PipelineLayout, PlacedDevice, Plan, PlanStage, ResidencyInterval, ResidencyPlan, StageConfig,
    StageTimeline, Timeline, UpdateSpan, WaitSpan,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::picture::sheet::{Sheet, Which};
use crate::picture::{html, svg, terminal};
use crate::text::label::cells;
use crate::text::terminal_abilities::Look;

/// Small numbers, and those at the ends.
fn integer() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 0..100_i64, 2 => 0..1_i64 << 40, 1 => any::<i64>(), 1 => Just(i64::MAX), 1 => Just(i64::MIN)]
}

fn small() -> impl Strategy<Value = i32> {
    prop_oneof![8 => 0..9_i32, 1 => any::<i32>(), 1 => Just(i32::MAX)]
}

fn real() -> impl Strategy<Value = f64> {
    prop_oneof![4 => 0.0..50.0, 1 => any::<f64>(), 1 => Just(f64::NAN), 1 => Just(f64::INFINITY), 1 => Just(0.0)]
}

fn figure() -> impl Strategy<Value = MemoryFigure> {
    (integer(), 0..4_i32, ".{0,12}").prop_map(|(bytes, accounting, origin)| MemoryFigure {
        bytes,
        accounting,
        origin: 2,
        producer: origin,
    })
}

fn config() -> impl Strategy<Value = StageConfig> {
    (small(), small(), small(), small()).prop_map(|(first_layer, last_layer, data_degree, tensor_degree)| {
        StageConfig {
            first_layer,
            last_layer,
            data_parallel_size: data_degree,
            tensor_parallel_size: tensor_degree,
            ..Default::default()
        }
    })
}

fn breakdown() -> impl Strategy<Value = MemoryBreakdown> {
    (integer(), integer(), integer(), integer(), 0..4_i32).prop_map(|(w, a, t, v, accounting)| {
        MemoryBreakdown {
            weights_bytes: w,
            activations_bytes: a,
            transient_bytes: t,
            overhead_bytes: v,
            accounting,
            ..MemoryBreakdown::default()
        }
    })
}

fn device() -> impl Strategy<Value = PlacedDevice> {
    (".{0,8}", small(), ".{0,30}", integer()).prop_map(|(node, index, kind, capacity_bytes)| PlacedDevice {
        node,
        index,
        kind,
        capacity_bytes,
        ..PlacedDevice::default()
    })
}

fn stage() -> impl Strategy<Value = PlanStage> {
    let names = (".{0,40}", ".{0,40}");
    let memory = (option::of(figure()), option::of(figure()), option::of(breakdown()), option::of(integer()));
    let chunks = (option::of(chunks()), option::of(chunk_run()), option::of(chunk_run()));
    (option::of(config()), names, integer(), memory, vec(device(), 0..20), chunks).prop_map(
        |(
            config,
            (first, last),
            capacity_bytes,
            (predicted, measured, breakdown, high),
            devices,
            of_chunks,
        )| {
            let (chunks, chunk_run, measured_chunk_run) = of_chunks;
            PlanStage {
                chunked_training: chunks,
                chunk_traffic: chunk_run,
                measured_chunk_traffic: measured_chunk_run,
                config,
                first_layer_name: first,
                last_layer_name: last,
                capacity_bytes,
                predicted_peak: predicted,
                measured_peak: measured,
                breakdown,
                interval: high.map(|high_bytes| MemoryInterval { high_bytes, ..MemoryInterval::default() }),
                device_ranges: DeviceRange::of(devices),
                ..PlanStage::default()
            }
        },
    )
}

fn chunks() -> impl Strategy<Value = ChunkedStage> {
    let visit = (small(), any::<bool>(), vec(small(), 4)).prop_map(|(chunk, gradients, mut boundaries)| {
        boundaries.sort_unstable();
        let [fetched, needed, leaves, freed] = [0, 1, 2, 3].map(|at| boundaries[at]);
        ResidencyInterval {
            chunk,
            gradients_only: gradients,
            prefetch_step: fetched,
            first_use_step: needed,
            evict_step: leaves,
            free_step: freed,
        }
    });
    (vec(visit, 0..40), vec(small(), 0..4), integer()).prop_map(|(visits, on_device, chunk_elements)| {
        let residency = Some(Residency::PlannedResidency(ResidencyPlan { intervals: visits }));
        ChunkedStage { residency, resident_chunks: on_device, chunk_elements, ..ChunkedStage::default() }
    })
}

fn chunk_run() -> impl Strategy<Value = ChunkTraffic> {
    (vec(integer(), 0..40), vec(integer(), 0..40), integer()).prop_map(
        |(other_bytes, payload_bytes, host_bytes)| ChunkTraffic {
            non_chunk_step_bytes: other_bytes,
            chunk_step_bytes: payload_bytes,
            host_bytes,
            ..ChunkTraffic::default()
        },
    )
}

fn plan() -> impl Strategy<Value = Plan> {
    let point = (option::of(figure()), real(), vec(config(), 0..4), ".{0,8}").prop_map(
        |(predicted_peak, iteration_seconds, stages, plan)| FrontPoint {
            predicted_peak,
            iteration_seconds,
            pipeline_layout: Some(PipelineLayout { stages }),
            plan,
            ..FrontPoint::default()
        },
    );
    let group = (small(), integer(), ".{0,8}").prop_map(|(count, capacity_bytes, kind)| DeviceGroup {
        count,
        capacity_bytes,
        kind,
    });
    (".{0,60}", vec(stage(), 0..24), vec(point, 0..6), vec(group, 0..3), vec(".{0,90}", 0..3)).prop_map(
        |(name, stages, front, devices, warnings)| Plan {
            name,
            stages,
            front,
            devices,
            warnings: warnings
                .into_iter()
                .map(|why: String| WarningCode::Extrapolated.says(why).into())
                .collect(),
            ..Plan::default()
        },
    )
}

fn timeline() -> impl Strategy<Value = Timeline> {
    let pass = (0..8_i32, small(), small(), option::of((small(), small())), real(), real()).prop_map(
        |(kind, micro_batch, chunk, of, start_seconds, end_seconds)| PassSpan {
            kind,
            micro_batch,
            virtual_stage: chunk,
            layer: of.map(|(layer, _)| layer),
            chunk: of.map(|(_, chunk)| chunk),
            start_seconds,
            end_seconds,
        },
    );
    let wait = (option::of(small()), any::<bool>(), option::of(small()), real(), real()).prop_map(
        |(peer, back, parameter_chunk, start_seconds, end_seconds)| WaitSpan {
            peer,
            fetch: back,
            chunk: parameter_chunk,
            start_seconds,
            end_seconds,
        },
    );
    let update = (small(), integer(), real(), real()).prop_map(
        |(parameter_chunk, parameter_count, start_seconds, end_seconds)| UpdateSpan {
            chunk: parameter_chunk,
            parameter_count,
            start_seconds,
            end_seconds,
        },
    );
    let lane = (small(), vec(pass, 0..12), vec(wait, 0..6), vec(update, 0..4), real(), small()).prop_map(
        |(stage, passes, waits, updates, busy_seconds, in_flight)| StageTimeline {
            stage,
            passes,
            waits,
            busy_seconds,
            in_flight_micro_batch_count: in_flight,
            weight_version_count: in_flight,
            waited_seconds: busy_seconds,
            updates,
            update_seconds: busy_seconds,
        },
    );
    (vec(lane, 0..40), vec(copies(), 0..40), vec(curve(), 0..12), real(), real(), 0..6_i32).prop_map(
        |(lanes, copies, memory, iteration_seconds, bubble_ratio, schedule)| Timeline {
            stage_timelines: lanes,
            copy_timelines: copies,
            memory_curves: memory,
            iteration_seconds,
            bubble_ratio,
            schedule,
            ..Timeline::default()
        },
    )
}

fn copies() -> impl Strategy<Value = CopyTimeline> {
    let of_chunk = (option::of(small()), any::<bool>());
    let copy = (small(), any::<bool>(), 0..9_i32, option::of(small()), of_chunk, integer(), real(), real())
        .prop_map(|(stage, back, block, micro_batch, of_chunk, bytes, start_seconds, end_seconds)| {
            CopySpan {
                stage,
                fetch: back,
                block,
                layer: stage,
                micro_batch,
                bytes,
                start_seconds,
                end_seconds,
                chunk: of_chunk.0,
                partial_gradients: of_chunk.1,
            }
        });
    (option::of(small()), option::of(small()), vec(copy, 0..8), integer(), real()).prop_map(
        |(sender_stage, receiver_stage, copies, bytes, busy_seconds)| CopyTimeline {
            sender_stage,
            receiver_stage,
            copies,
            copy_count: bytes,
            bytes,
            busy_seconds,
            waited_seconds: busy_seconds,
        },
    )
}

fn curve() -> impl Strategy<Value = MemoryCurve> {
    let point = (real(), option::of(breakdown()), integer(), integer()).prop_map(
        |(start_seconds, held, host_bytes, peer_pool_bytes)| MemoryPoint {
            start_seconds,
            breakdown: held,
            host_bytes,
            peer_pool_bytes,
        },
    );
    (small(), integer(), integer(), vec(point, 0..20), small()).prop_map(
        |(stage, capacity_bytes, peak_bytes, points, steps_per_point)| MemoryCurve {
            stage,
            capacity_bytes,
            peak_bytes,
            points,
            point_step_count: steps_per_point,
            host_pool_bytes: capacity_bytes,
            peer_pool_bytes: peak_bytes,
        },
    )
}

/// Rectangles and discs stay on their plane, which stays small.
fn assert_within(node: roxmltree::Node<'_, '_>) {
    let of = |name: &str| node.attribute(name).map_or(0.0, |value| value.parse::<f64>().unwrap());
    if node.has_tag_name(("http://www.w3.org/2000/svg", "svg")) {
        let (width, height) = (of("width"), of("height"));
        assert!(width <= 8.0 * 1400.0 && height < 20_000.0, "{width} x {height}");
        for child in node.children().filter(|child| ["rect", "circle"].contains(&child.tag_name().name())) {
            let at = |name: &str| child.attribute(name).map_or(0.0, |value| value.parse::<f64>().unwrap());
            let (right, bottom) = (at("x") + at("width") + at("cx"), at("y") + at("height") + at("cy"));
            assert!(at("x") >= -0.01 && at("y") >= -0.01 && at("width") >= 0.0, "{child:?}");
            assert!(right <= width + 1.0 && bottom <= height + 1.0, "{child:?} on {width} x {height}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn whatever_arrives_is_drawn_within_its_space(
        plans in vec(plan(), 1..4),
        timelines in vec(timeline(), 1..4),
        width in 40..200_usize,
        unicode: bool,
    ) {
        let look = Look { unicode, color: false, width: None };
        let answer = ComparePlansResponse { plans: plans.clone(), timelines: timelines.clone(), warnings: Vec::new() };
        let sheets = |look| [
            Sheet::of_plan(&plans[0], timelines.first(), Which::ALL, look),
            Sheet::of_comparison(&answer, Which::ALL, look),
        ];
        for sheet in sheets(look) {
            let drawn = terminal::render(&sheet, width, look);
            for line in drawn.lines() {
                prop_assert!(cells(line) <= width, "{} cells of {width}: {line:?}", cells(line));
            }
        }
        for sheet in sheets(Look::FILE) {
            for file in [svg::render(&sheet), html::render(&sheet)] {
                let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
                let document = roxmltree::Document::parse_with_options(&file, options);
                prop_assert!(document.is_ok(), "{document:?}");
                document.unwrap().descendants().for_each(assert_within);
                prop_assert!(file.len() < 8_000_000, "{} bytes", file.len());
            }
        }
    }

    /// Colours change nothing but colours.
    #[test]
    fn coloured_lines_have_the_same_width(plan in plan(), timeline in timeline()) {
        let look = Look { unicode: true, color: true, width: None };
        let drawn = terminal::render(&Sheet::of_plan(&plan, Some(&timeline), Which::ALL, look), 80, look);
        for line in drawn.lines() {
            let mut bare = String::new();
            for (index, part) in line.split('\u{1b}').enumerate() {
                bare.push_str(if index == 0 { part } else { part.split_once('m').map_or("", |(_, rest)| rest) });
            }
            prop_assert!(cells(&bare) <= 80, "{bare:?}");
        }
    }
}
