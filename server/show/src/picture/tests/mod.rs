//! Pictures as they are drawn: in the terminal, as SVG and as a page.

mod lanes;
mod over_time;
mod random;
mod residency;
mod step_bytes;
mod testing;

use loadmaster_proto::warning::WarningCode;
use loadmaster_proto::wire::v1::{
    Adam, AdamW, ComparePlansResponse, DeviceRange, FigureOrigin, MemoryAccounting, Optimizer, Plan,
    Precision, Timeline, TrainingSpec, optimizer,
};

use super::sheet::{Sheet, Which};
use super::{html, svg, terminal};
use crate::text::label::cells;
use crate::text::terminal_abilities::Look;
use testing::{MIB, config, figure, pareto, plan, stage, timeline, validated};

fn text(plan: &Plan, timeline: Option<&Timeline>, which: Which, width: usize, look: Look) -> String {
    terminal::render(&Sheet::of_plan(plan, timeline, which, look), width, look)
}

fn only(of: fn(&mut Which)) -> Which {
    let mut which = Which::NONE;
    of(&mut which);
    which
}

fn files(plan: &Plan, timeline: Option<&Timeline>) -> [String; 2] {
    let sheet = Sheet::of_plan(plan, timeline, Which::ALL, Look::FILE);
    [svg::render(&sheet), html::render(&sheet)]
}

fn parsed(text: &str) -> roxmltree::Document<'_> {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..roxmltree::ParsingOptions::default() };
    roxmltree::Document::parse_with_options(text, options).unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

#[test]
fn nodes_are_boxes_and_devices_say_what_they_are_for() {
    let devices = only(|which| which.devices = true);
    assert_eq!(
        text(&plan(), None, devices, 80, Look::UNICODE),
        "\n\
         Stages on the devices · 3 stages on 5 devices of 2 nodes\n\
         ┌─ node0 · H200 ─┐ ┌─ node1 · H200 ─┐\n\
         │ 0    1 t0 1 t1 │ │ 2 r0 2 r1      │\n\
         └────────────────┘ └────────────────┘\n\
         labels: stage · r = replica · t = tensor shard · ×n = n devices\n\
         stage   0  0..3 layer0–layer3  one device  node0/0\n\
         stage   1  4..6 layer4–layer6  tensor 2    node0/1–2\n\
         stage   2  7..9 layer7–layer9  data 2      node1/0–1\n"
    );
    let ascii = text(&plan(), None, devices, 40, Look::PLAIN);
    assert!(ascii.is_ascii(), "{ascii}");
    assert!(ascii.contains("| 0    1 t0 1 t1 | | 2 r0 2 r1      |\n"), "{ascii}");
}

/// What a trial contradicts stands above all pictures: of a page, an image, and plans side by side.
#[test]
fn contradictions_come_first() {
    use loadmaster_proto::wire::v1::TrialResult;
    let mut plan = plan();
    let peaks = [512, 768, 300].map(|mib| figure(mib * MIB, FigureOrigin::Measured, "runs/01"));
    let (run, measured_peaks) = ("runs/01".to_owned(), peaks.to_vec());
    plan.trials = vec![TrialResult { run, measured_peaks, ..TrialResult::default() }];
    let told =
        "measured 300.00 MiB on stage 2, 44.00 MiB more than the predicted 256.00 MiB ±10.0 % (runs/01)";
    let [svg, html] = files(&plan, None);
    for file in [&svg, &html] {
        let texts: Vec<String> =
            parsed(file).descendants().filter_map(|node| node.text().map(str::to_owned)).collect();
        let position =
            |wanted: &str| texts.iter().position(|text| text.contains(wanted)).unwrap_or(usize::MAX);
        assert!(position("on stage 2, 44.00 MiB more") < position("Stages on the devices"), "{texts:?}");
    }
    assert!(html.contains(told), "{html}");
    let plans = vec![plan.clone(), plan];
    let answer = ComparePlansResponse { plans, ..ComparePlansResponse::default() };
    let sheet = Sheet::of_comparison(&answer, Which::NONE, Look::UNICODE);
    let drawn = terminal::render(&sheet, 200, Look::UNICODE);
    assert!(drawn.starts_with(&format!("plan 7f3c: {told}")), "{drawn}");
}

/// A plan that names no devices has them in the order of its pipeline.
#[test]
fn devices_without_a_cluster_are_numbered_through() {
    let mut plan = plan();
    plan.stages.iter_mut().for_each(|stage| stage.device_ranges.clear());
    let drawn = text(&plan, None, only(|which| which.devices = true), 80, Look::PLAIN);
    assert!(drawn.contains("+- in pipeline order - H200 -+\n| 0    1 t0 1 t1 2 r0 2 r1   |\n"), "{drawn}");
    assert!(drawn.contains("tensor 2    device 1-2\n"), "{drawn}");
}

#[test]
fn bars_show_the_parts_the_margin_the_capacity_and_what_was_measured() {
    let memory = only(|which| which.memory = true);
    assert_eq!(
        text(&validated(), None, memory, 100, Look::UNICODE),
        "\n\
         Memory of the devices\n           \
         0 B                                     1.00 GiB\n\
         0: node0/0 WWWWWWAAAAAAAAAAAAAA◆AAA~~·····················│ 512.00 MiB, 50.0 %, measured 448.00 MiB\n\
         1: node0/1 WWWWWWWWWAAAAAAAAAAAAAAAAAAAAAAA◆AAA~~~~·······│ 768.00 MiB, 75.0 %, measured 704.00 MiB\n\
         1: node0/2 WWWWWWWWWAAAAAAAAAAAAAAAAAAAAAAA◆AAA~~~~·······│ 768.00 MiB, 75.0 %, measured 704.00 MiB\n\
         2: node1/0 WWWAAAAA◆AAA~··································│ 256.00 MiB, 25.0 %, measured 192.00 MiB\n\
         2: node1/1 WWWAAAAA◆AAA~··································│ 256.00 MiB, 25.0 %, measured 192.00 MiB\n\
         W weights   A activations   ~ margin   · free   │ allowed to training\n\
         ◆ highest measured peak of the stage\n\
         allocated memory; predicted by component/1 from profiles/gpt2; measured in runs/01\n\
         each device allows training 1.00 GiB (given)\n"
    );
}

/// Bytes of two accountings share no scale: the measured peak is told, not drawn.
#[test]
fn what_was_measured_in_another_accounting_is_not_drawn() {
    let mut plan = validated();
    for stage in &mut plan.stages {
        stage.measured_peak.as_mut().unwrap().accounting = MemoryAccounting::Reserved.into();
    }
    let drawn = text(&plan, None, only(|which| which.memory = true), 100, Look::UNICODE);
    assert!(!drawn.contains('◆'), "{drawn}");
    assert!(
        drawn.contains("measured peaks of 3 stages are not drawn: the prediction counts different memory"),
        "{drawn}"
    );
}

#[test]
fn lanes_show_passes_with_their_micro_batches() {
    let schedule = only(|which| which.schedule = true);
    assert_eq!(
        text(&plan(), Some(&timeline(3, 4)), schedule, 80, Look::UNICODE),
        "\n\
         Schedule · gpipe: 19.00 s per iteration, 25.0 % of the devices' time is bubble\n  \
         (predicted)\n\
         stage 0 │0░░1░░2░░3░░···················0▓▓▓▓▓1▓▓▓▓▓2▓▓▓▓▓3▓▓▓▓▓███│ busy 68.4 %\n\
         stage 1 │···0░░1░░2░░3░░·········0▓▓▓▓▓▓1▓▓▓▓▓2▓▓▓▓▓3▓▓▓▓▓······███│ busy 68.4 %\n\
         stage 2 │······0░░1░░2░░3░░0▓▓▓▓▓1▓▓▓▓▓▓2▓▓▓▓▓3▓▓▓▓▓············███│ busy 68.4 %\n         \
         '              '               '              '\n         \
         0 s            5 s             10 s           15 s\n\
         ░░ forward   ▓▓ backward   ██ synchronisation and step   ·· waiting\n\
         0 1 2 micro-batches\n\
         predicted: simulated from the layer times of profiles/gpt2\n"
    );
}

#[test]
fn the_front_is_a_plot_with_the_plan_marked() {
    let drawn = text(&pareto(), None, only(|which| which.front = true), 60, Look::UNICODE);
    assert!(drawn.contains("\n2.0 s ┤  •\n      │\n"), "{drawn}");
    assert!(
        drawn.contains(
            "1.0 s ┤                                                 ◆\n      \
             └────┴──────────────────────┴─────────────────────┴──\n           \
             512 MiB                640 MiB           768 MiB\n"
        ),
        "{drawn}"
    );
    assert!(drawn.contains("this plan: 8, micro-batch 8 · 768.00 MiB · 1.00 s"), "{drawn}");
}

/// A plan with a front has a name of its own: which point it is shows in what it is.
#[test]
fn the_plan_is_found_on_its_front_by_what_it_is() {
    let mut plan = pareto();
    let fastest = plan.front.last_mut().unwrap();
    fastest.plan = "plans/point".to_owned();
    let stages = plan.stages.iter().filter_map(|stage| stage.config).collect();
    fastest.pipeline_layout = Some(loadmaster_proto::wire::v1::PipelineLayout { stages });
    let drawn = text(&plan, None, only(|which| which.front = true), 100, Look::UNICODE);
    assert!(
        drawn.contains("this plan: 4-3t2-3d2, micro-batch 8 · 768.00 MiB · 1.00 s · plans/point\n"),
        "{drawn}"
    );
    plan.front.pop();
    let drawn = text(&plan, None, only(|which| which.front = true), 100, Look::UNICODE);
    assert!(drawn.contains("this plan is not among the points\n"), "{drawn}");
}

/// Plans on one scale, what differs marked, and what makes them incomparable told.
#[test]
fn plans_are_compared_on_common_scales() {
    let mut other = plan();
    other.name = "plans/b".to_owned();
    other.stages.iter_mut().for_each(|stage| stage.capacity_bytes = 2048 * MIB);
    other.stages.iter_mut().for_each(|stage| stage.device_ranges.clear());
    let mut slower = timeline(3, 8);
    slower.plan = other.name.clone();
    let answer = ComparePlansResponse {
        plans: vec![plan(), other],
        timelines: vec![timeline(3, 4), slower],
        warnings: vec![WarningCode::BatchesDiffer.says("the global batches differ").into()],
    };
    let sheet = Sheet::of_comparison(&answer, Which::ALL, Look::UNICODE);
    let drawn = terminal::render(&sheet, 120, Look::UNICODE);
    assert!(drawn.contains("≠  iteration "), "{drawn}");
    assert!(drawn.contains("\n   profile "), "{drawn}");
    assert!(drawn.ends_with("warning: the global batches differ\n"), "{drawn}");
    // Of 2 GiB the first plan's 1 GiB is half of the bar.
    let half = drawn.lines().find(|line| line.starts_with("0: node0/0")).unwrap();
    let (begin, mark) = (half.find('W').unwrap(), half.find('│').unwrap());
    let cells_to_mark = cells(&half[begin..mark]) + 1;
    let full = drawn.lines().find(|line| line.starts_with("0: device 0")).unwrap();
    let begin = full.find('W').unwrap();
    assert_eq!(cells(&full[begin..full.find('│').unwrap()]) + 1, cells_to_mark * 2, "{drawn}");
    // Nothing waits after the end of the shorter iteration.
    assert!(drawn.contains("3▓▓▓▓▓███ "), "{drawn}");
    let files = [svg::render(&sheet), html::render(&sheet)];
    for file in &files {
        assert!(parsed(file).descendants().any(|node| node.text() == Some("plan b")
            || node.text().is_some_and(|text| text.starts_with("plan b "))));
    }
}

/// What another training costs is not the cut's doing: number formats, update rule and samples stand beside the stages.
#[test]
fn a_comparison_shows_how_the_plans_are_trained() {
    let trained = |precision: Precision, kind: optimizer::Kind, samples: i64| Plan {
        training: Some(TrainingSpec {
            precision: precision.into(),
            optimizer: Some(Optimizer { kind: Some(kind), ..Optimizer::default() }),
            global_batch_size: samples,
            ..TrainingSpec::default()
        }),
        ..plan()
    };
    let plans = vec![
        trained(Precision::Fp32, optimizer::Kind::Adam(Adam::default()), 32),
        trained(Precision::Bf16, optimizer::Kind::Adamw(AdamW::default()), 64),
    ];
    let answer = ComparePlansResponse { plans, ..ComparePlansResponse::default() };
    let drawn =
        terminal::render(&Sheet::of_comparison(&answer, Which::NONE, Look::UNICODE), 200, Look::UNICODE);
    let rows: Vec<Vec<&str>> = drawn.lines().map(|line| line.split_whitespace().collect()).collect();
    for row in [
        vec!["≠", "precision", "fp32", "bf16"],
        vec!["≠", "optimizer", "adam", "adamw"],
        vec!["≠", "global", "batch", "32", "samples", "64", "samples"],
        vec!["objective", "stages", "given", "stages", "given"],
    ] {
        assert!(rows.contains(&row), "{row:?}:\n{drawn}");
    }
}

/// What is drawn says what it is: unit, accounting, and where it comes from.
#[test]
fn files_name_units_accountings_and_origins() {
    for file in files(&validated(), Some(&timeline(3, 4))) {
        let document = parsed(&file);
        let all: String =
            document.descendants().filter_map(|node| node.text()).collect::<Vec<_>>().join("\n");
        for told in [
            "512.00 MiB, 50.0 %, measured 448.00 MiB",
            "allocated memory; predicted by component/1 from profiles/gpt2; measured in runs/01",
            "weights: 128.00 MiB (predicted)",
            "forward pass of micro-batch 3: 1.00 s, from 3.00 s to 4.00 s (predicted)",
            "predicted peak bytes, allocated memory",
            "14 s",
        ] {
            assert!(all.contains(told), "{told}:\n{all}");
        }
    }
}

#[test]
fn a_page_needs_nothing_from_anywhere_and_runs_nothing() {
    let [svg, html] = files(&pareto(), Some(&timeline(3, 4)));
    for file in [&svg, &html] {
        let document = parsed(file);
        for node in document.descendants().filter(|node| node.is_element()) {
            assert!(
                !["script", "image", "link", "iframe", "foreignObject"].contains(&node.tag_name().name())
            );
            assert!(node.attributes().all(|of| !["href", "src", "onload", "onclick"].contains(&of.name())));
        }
        assert!(file.contains("prefers-color-scheme:dark"));
        assert!(!file.contains("url(") && !file.contains("@import"));
    }
    assert!(html.contains("default-src &#39;none&#39;"), "{html}");
}

/// Names come from users and workers. None of them becomes markup, and none moves the cursor.
#[test]
fn hostile_names_are_text() {
    let evil = "</text><script>alert(1)</script>\u{1b}[2J\u{202e}&\"'\u{0}\u{ffff}";
    let mut plan = pareto();
    plan.name = format!("plans/{evil}");
    plan.model = evil.to_owned();
    plan.solver = evil.to_owned();
    plan.warnings = vec![WarningCode::Extrapolated.says(evil).into()];
    for stage in &mut plan.stages {
        stage.first_layer_name = evil.to_owned();
        stage.predicted_peak.as_mut().unwrap().producer = evil.to_owned();
        stage
            .device_ranges
            .iter_mut()
            .for_each(|range| (range.node, range.kind) = (evil.to_owned(), evil.to_owned()));
    }
    plan.front[0].plan = evil.to_owned();
    let mut timeline = timeline(3, 4);
    timeline.warnings = vec![WarningCode::Extrapolated.says(evil).into()];
    for file in files(&plan, Some(&timeline)) {
        let document = parsed(&file);
        assert!(document.descendants().all(|node| node.tag_name().name() != "script"));
        assert!(!file.contains('\u{202e}') && !file.contains('\u{1b}'));
    }
    let drawn = text(&plan, Some(&timeline), Which::ALL, 100, Look::UNICODE);
    assert!(!drawn.contains('\u{1b}') && !drawn.contains('\u{202e}'), "{drawn:?}");
}

/// A thousand devices and a hundred thousand passes are a picture of a few pages, and it says what it left out.
#[test]
fn large_plans_make_small_pictures() {
    let mut plan = plan();
    let nodes = |stage: i32| (0..512).map(move |rank| (stage * 64 + rank / 8, rank % 8));
    plan.stages = (0..2)
        .map(|index| {
            let mut stage = stage(config((index * 4, index * 4 + 3), 64, 8), 512);
            let placed = nodes(index).map(|(node, index)| loadmaster_proto::wire::v1::PlacedDevice {
                node: format!("node{node:03}"),
                index,
                capacity_bytes: 1024 * MIB,
                ..Default::default()
            });
            stage.device_ranges = DeviceRange::of(placed);
            assert_eq!(stage.device_ranges.len(), 64);
            stage
        })
        .collect();
    let drawn = text(&plan, None, Which::ALL, 100, Look::UNICODE);
    assert!(drawn.contains("2 stages on 1,024 devices of 128 nodes"), "{drawn}");
    assert!(drawn.contains("64 × node000 – node063"), "{drawn}");
    assert!(drawn.contains("equal devices of a stage are drawn as one bar"), "{drawn}");
    assert!(drawn.lines().count() < 40, "{drawn}");

    let long: Vec<_> =
        (0..200).map(|index| stage(config((index, index), 1, 1), i64::from(index) + 1)).collect();
    plan.stages = long;
    let many = timeline(200, 250);
    let drawn = text(&plan, Some(&many), Which::ALL, 100, Look::UNICODE);
    assert!(drawn.contains("left out in the middle: 168 stages"), "{drawn}");
    assert!(drawn.contains("bars are not drawn; the highest of these: 152.00 MiB"), "{drawn}");
    for file in files(&plan, Some(&many)) {
        parsed(&file);
        assert!(file.len() < 2_000_000, "{} bytes", file.len());
        assert!(file.contains("each segment of the axis shows the work that takes most of the segment"));
    }
}

#[test]
fn an_empty_plan_is_an_empty_picture() {
    let drawn = text(&Plan::default(), Some(&Timeline::default()), Which::ALL, 80, Look::PLAIN);
    assert!(drawn.contains("0 stages on 0 devices"), "{drawn}");
    files(&Plan::default(), None).iter().for_each(|file| drop(parsed(file)));
    assert!(Sheet::of_plan(&plan(), None, Which::NONE, Look::PLAIN).is_empty());
    let all = Sheet::of_plan(&plan(), None, Which::ALL, Look::PLAIN);
    assert_eq!(all.lacks(Which::ALL), ["schedule", "chunks", "front"]);
    assert_eq!(all.lacks(Which { chunks: false, front: false, schedule: false, ..Which::ALL }), [""; 0]);
}
