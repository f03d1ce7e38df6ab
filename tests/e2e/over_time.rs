//! A plan's iteration moment by moment: what its stages copy, who waits, and what devices hold.

use loadmaster_proto::wire::v1::{ComparePlansRequest, CopyTimeline, GetPlanRequest};
use loadmaster_proto::wire::v1::{
    MemoryBreakdown, Plan, PlanStage, Schedule, SimulatePlanRequest, SimulatedSchedule, Timeline,
};
use loadmaster_tests::{
    CommandLine, Planner, SMALL_GPT2, Worker, WorkerOptions, call, cli, json, profile, profiled,
};
use serde_json::Value;
use tonic::transport::Channel;

use crate::lists::scene::Scene;
use crate::memory_actions::scene;

/// The plan of stages on devices that a caller names, with more options.
fn plan_of(planner: &Planner, devices: &str, more: &[&str]) -> String {
    let ask = ["plan", "recommend", "--profile", "gpt", "--pipeline-layout", "4-3", "--devices", devices];
    let plan: Value = json(planner, &[&ask[..], more].concat());
    plan["name"].as_str().unwrap().to_owned()
}

const SLOW: [&str; 2] = ["--copy-rates", "host=200MB/s,peer=300MB/s"];

pub(crate) async fn simulated(
    channel: &Channel,
    name: &str,
    max_passes: i32,
    schedule: SimulatedSchedule,
) -> Timeline {
    let request = SimulatePlanRequest {
        name: name.to_owned(),
        schedule: schedule.into(),
        max_pass_count: max_passes,
        include_memory: true,
        ..SimulatePlanRequest::default()
    };
    call(channel, request).await.unwrap()
}

pub(crate) async fn plan(channel: &Channel, name: &str) -> Plan {
    call(channel, GetPlanRequest { name: name.to_owned(), ..Default::default() }).await.unwrap()
}

pub(crate) fn total(held: &MemoryBreakdown) -> i64 {
    held.weights_bytes
        + held.gradients_bytes
        + held.optimizer_bytes
        + held.activations_bytes
        + held.p2p_bytes
        + held.communication_bytes
        + held.transient_bytes
        + held.overhead_bytes
}

pub(crate) fn is_same(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(other.abs()).max(1e-3)
}

/// Spans follow one another from the start of the iteration to its end.
pub(crate) fn follow(spans: impl Iterator<Item = (f64, f64)>, end: f64) {
    let mut before = 0.0;
    for (start, until) in spans {
        assert!(
            before <= start + 1e-12 && start <= until && until <= end + 1e-12,
            "{start} to {until} after {before}"
        );
        before = until;
    }
}

/// What a stage is said to copy to and from a place, bytes both ways, and for how long it waits.
fn said(stage: &PlanStage, peer: Option<i32>) -> (i64, f64) {
    let copies = stage.offload_traffic.iter().flat_map(|of| &of.copy_traffic).filter(|of| of.peer == peer);
    copies.fold((0, 0.0), |sum, of| (sum.0 + of.sent_bytes + of.received_bytes, sum.1 + of.waited_seconds))
}

/// Everything that a timeline says is what the plan says: seconds, peaks, pools, bytes and waits per link.
fn check(plan: &Plan, timeline: &Timeline) {
    assert!(
        !timeline
            .warnings
            .iter()
            .any(|warning| warning.message.contains("not drawn") || warning.message.contains("not shown"))
    );
    let end = timeline.iteration_seconds;
    assert!(is_same(end, plan.iteration.as_ref().unwrap().iteration_seconds), "{end}");
    assert_eq!(timeline.stage_timelines.len(), plan.stages.len());
    let places = || [None].into_iter().chain((0..).zip(&plan.stages).map(|(peer, _)| Some(peer)));
    for ((index, stage), lane) in (0..).zip(&plan.stages).zip(&timeline.stage_timelines) {
        let passes = || lane.passes.iter();
        follow(passes().map(|pass| (pass.start_seconds, pass.end_seconds)), end);
        follow(lane.waits.iter().map(|wait| (wait.start_seconds, wait.end_seconds)), end);
        let forward = passes().filter(|pass| pass.kind == 1).count();
        // What never flushes is cut off where the iteration begins and ends.
        let is_cut = plan.training.as_ref().unwrap().schedule == i32::from(Schedule::Pipedream);
        assert!(forward == 4 || is_cut && forward == 5, "{lane:?}");
        for peer in places() {
            let waits = lane.waits.iter().filter(|wait| wait.peer == peer);
            let waited: f64 = waits.map(|wait| wait.end_seconds - wait.start_seconds).sum();
            let (bytes, seconds) = said(stage, peer);
            assert!(
                is_same(waited, seconds),
                "stage {index} waits {waited} s for {peer:?}, the plan says {seconds}"
            );
            let is_between = |way: &&CopyTimeline| {
                (way.sender_stage, way.receiver_stage) == (Some(index), peer)
                    || (way.sender_stage, way.receiver_stage) == (peer, Some(index))
            };
            let ways = timeline.copy_timelines.iter().filter(is_between);
            let copied: i64 = ways.map(|way| way.bytes).sum();
            // A link between two stages carries what either of them has with the other.
            let others =
                peer.and_then(|peer| plan.stages.get(peer as usize)).map_or(0, |of| said(of, Some(index)).0);
            assert_eq!(copied, bytes + others, "stage {index}, {peer:?}");
        }
        let waited: f64 = lane.waits.iter().map(|wait| wait.end_seconds - wait.start_seconds).sum();
        assert!(is_same(waited, lane.waited_seconds), "{lane:?}");
    }
    for way in &timeline.copy_timelines {
        follow(way.copies.iter().map(|copy| (copy.start_seconds, copy.end_seconds)), end);
        assert!(way.copy_count > 0 && way.busy_seconds > 0.0, "{way:?}");
    }
    assert_eq!(timeline.memory_curves.len(), plan.stages.len());
    for (stage, curve) in plan.stages.iter().zip(&timeline.memory_curves) {
        let peak = stage.predicted_peak.as_ref().unwrap().bytes;
        assert_eq!((curve.peak_bytes, curve.capacity_bytes), (peak, stage.capacity_bytes));
        let held: Vec<&MemoryBreakdown> =
            curve.points.iter().filter_map(|point| point.breakdown.as_ref()).collect();
        assert_eq!(held.iter().map(|held| total(held)).max(), Some(peak));
        let fullest = held.into_iter().find(|held| total(held) == peak);
        assert_eq!(fullest, stage.breakdown.as_ref());
        assert!(curve.points.windows(2).all(|pair| pair[0].start_seconds <= pair[1].start_seconds));
        assert!(curve.points.iter().all(|point| (0.0..=end).contains(&point.start_seconds)));
        let (host, peer_pools) =
            stage.offload_traffic.as_ref().map_or((0, 0), |of| (of.host_peak_bytes, of.peer_pool_peak_bytes));
        let most =
            |of: fn(&loadmaster_proto::wire::v1::MemoryPoint) -> i64| curve.points.iter().map(of).max();
        assert_eq!(most(|point| point.host_bytes), Some(host));
        assert_eq!(
            (most(|point| point.peer_pool_bytes), curve.peer_pool_bytes),
            (Some(peer_pools), peer_pools)
        );
    }
}

/// A plan's stages as chunks of an interleaved schedule do the same actions: two devices with two stages each, what copies
/// and waits take, and what each device holds then. What cannot be is told with its reason.
#[tokio::test(flavor = "multi_thread")]
async fn stages_with_actions_are_simulated_as_interleaved_chunks() {
    let (planner, _worker) = scene("1GiB");
    let channel = planner.channel().await;
    let named = |more: &[&str]| {
        let ask = [
            "plan",
            "recommend",
            "--profile",
            "gpt",
            "--pipeline-layout",
            "2-2-2-1",
            "--devices",
            "4x512MiB",
        ];
        let plan: Value = json(&planner, &[&ask[..], more, &SLOW].concat());
        plan["name"].as_str().unwrap().to_owned()
    };
    let interleaved = SimulatedSchedule::Interleaved;
    let bytes = |timeline: &Timeline, device: usize| -> f64 {
        let said = format!(
            "with an interleaved schedule, device {device} of 2 has the stages {device}, {} as",
            device + 2
        );
        let told = timeline.warnings.iter().find(|warning| warning.message.starts_with(&said)).unwrap();
        let (_, held) = told.message.split_once("The device needs at most ").unwrap();
        assert!(held.contains(" MiB of its own memory"), "{told:?}");
        held.split(' ').next().unwrap().parse().unwrap()
    };
    // One layer again, and the same with all that leaves besides.
    let little = named(&["--stage-optimization", "3/6=recompute"]);
    let much = [
        "--stage-optimization",
        "0/0..1=activations:host:1,1",
        "--stage-optimization",
        "2/4..5=optimizer:host:0,2",
    ];
    let more = ["--stage-optimization", "1/2..3=activations:0:1,1", "--stage-optimization", "3/6=recompute"];
    let much = named(&[&much[..], &more].concat());
    let little = simulated(&channel, &little, 0, interleaved).await;
    let much = simulated(&channel, &much, 0, interleaved).await;
    for timeline in [&little, &much] {
        assert_eq!(timeline.stage_timelines.len(), 2);
        for lane in &timeline.stage_timelines {
            follow(
                lane.passes.iter().map(|pass| (pass.start_seconds, pass.end_seconds)),
                timeline.iteration_seconds,
            );
            // Four micro-batches of either chunk, and the updates.
            assert_eq!(lane.passes.len(), 2 * 2 * 4 + 1, "{lane:?}");
        }
    }
    assert!(
        much.iteration_seconds >= little.iteration_seconds && little.copy_timelines.is_empty(),
        "{much:?}"
    );
    assert!(much.copy_timelines.iter().any(|way| way.receiver_stage.is_none()), "{much:?}");
    assert!(
        much.copy_timelines.iter().any(|way| (way.sender_stage, way.receiver_stage) == (Some(1), Some(0))),
        "{much:?}"
    );
    // The second device has its blocks on the first one, which sets as much aside.
    assert!(bytes(&much, 1) < bytes(&little, 1), "{:?} {:?}", much.warnings, little.warnings);

    for (action, why) in
        [("0/0@0=recompute", "slots"), ("0/0=activations:2:1,1", "which is on the same device")]
    {
        let name = named(&["--stage-optimization", action]);
        let timeline = simulated(&channel, &name, 0, interleaved).await;
        let told: Vec<&str> = timeline.warnings.iter().map(|of| of.message.as_str()).collect();
        let told = told.join("\n");
        assert!(told.contains("are not shown") && told.contains(why), "{told}");
    }
}

/// The same under PipeDream, of an iteration in the long run: untouched, with versions of the weights and all else that leaves to
/// the host and to another stage.
#[tokio::test(flavor = "multi_thread")]
async fn timelines_under_pipedream_add_up_to_what_plans_say() {
    let options = "--id gpt --micro-batch-size 4 --micro-batches 4 --schedule pipedream --untied-head";
    let (planner, _worker) = profiled(&WorkerOptions::default().with("--host-memory 1GiB"), options);
    let channel = planner.channel().await;
    let untouched = plan_of(&planner, "2x512MiB", &[]);
    let given =
        ["--stage-optimization", "0/0..2=versions:host:1,1", "--stage-optimization", "0/1=activations:1:1,1"];
    let more = ["--stage-optimization", "0/3=optimizer:host:1,1", "--stage-optimization", "1/5=recompute"];
    let given = plan_of(&planner, "2x512MiB", &[&given[..], &more, &SLOW].concat());
    for name in [&untouched, &given] {
        let plan = plan(&channel, name).await;
        let timeline = simulated(&channel, name, 0, SimulatedSchedule::Unspecified).await;
        check(&plan, &timeline);
        assert_eq!(timeline.copy_timelines.is_empty(), name == &untouched);
        // Whoever names the plan's own schedule has the same.
        assert_eq!(simulated(&channel, name, 0, SimulatedSchedule::Pipedream).await, timeline);
    }
    let picture = cli(&planner, &["plan", "show", &given, "--picture=schedule"]);
    assert!(picture.code == 0 && !picture.stdout.contains("not shown"), "{}", picture.stdout);
}

/// Actions that are given, and chosen, with slow copies; and none: timelines add up to what plans say.
#[tokio::test(flavor = "multi_thread")]
async fn timelines_add_up_to_what_plans_say() {
    let (planner, _worker) = scene("1GiB");
    let channel = planner.channel().await;
    let untouched = plan_of(&planner, "2x512MiB", &[]);
    let first = "--stage-optimization 0/0..1=activations:host:1,1 --stage-optimization 0/2=activations:1:1,1";
    let more = "--stage-optimization 0/1..2=optimizer:host:1,1 --stage-optimization 1/4=recompute --stage-optimization 1/5=activations:0:0,1";
    let given = [first.words(), more.words()].concat();
    let given = plan_of(&planner, "2x512MiB", &[&given[..], &SLOW].concat());
    let before = plan(&channel, &untouched).await;
    let peaks = before.stages.iter().filter_map(|stage| stage.predicted_peak.as_ref()).map(|peak| peak.bytes);
    let tight = format!("2x{}B", peaks.max().unwrap() * 7 / 10);
    let chosen = ["--optimizations", "recompute,cpu-offload,peer-swap", "--host-memory", "512MiB"];
    let chosen = plan_of(&planner, &tight, &[&chosen[..], &SLOW].concat());
    let mut waited = 0.0;
    for name in [&untouched, &given, &chosen] {
        let plan = plan(&channel, name).await;
        let timeline = simulated(&channel, name, 0, SimulatedSchedule::Unspecified).await;
        check(&plan, &timeline);
        assert!(!timeline.truncated);
        waited += timeline.stage_timelines.iter().map(|lane| lane.waited_seconds).sum::<f64>();
        // However few are asked for, the most is among them.
        let few = simulated(&channel, name, 12, SimulatedSchedule::Unspecified).await;
        assert!(few.truncated);
        for (curve, whole) in few.memory_curves.iter().zip(&timeline.memory_curves) {
            assert!(curve.points.len() <= 6 && curve.point_step_count > 1, "{curve:?}");
            let most = |points: &[loadmaster_proto::wire::v1::MemoryPoint]| {
                points.iter().filter_map(|point| point.breakdown.as_ref()).map(total).max()
            };
            assert_eq!(most(&curve.points), most(&whole.points));
        }
        assert!(few.copy_timelines.iter().map(|way| way.copies.len()).sum::<usize>() <= 12, "{few:?}");
    }
    assert!(waited > 0.0, "slow copies are waited for");

    // Another order is not what the bytes are of, and who does not ask is answered as before.
    let other = simulated(&channel, &given, 0, SimulatedSchedule::Gpipe).await;
    assert!(other.memory_curves.is_empty() && other.copy_timelines.is_empty(), "{other:?}");
    assert!(
        other.warnings.iter().any(|warning| warning.message.contains("own schedule")),
        "{:?}",
        other.warnings
    );
    let request = SimulatePlanRequest { name: untouched.clone(), ..SimulatePlanRequest::default() };
    let plain = call(&channel, request).await.unwrap();
    let with = simulated(&channel, &untouched, 0, SimulatedSchedule::Unspecified).await;
    assert_eq!(plain, Timeline { memory_curves: Vec::new(), ..with });
    let names = vec![untouched, given];
    let compared = call(&channel, ComparePlansRequest { names, include_memory: true }).await.unwrap();
    assert!(compared.timelines.iter().all(|timeline| timeline.memory_curves.len() == 2));
    assert!(
        compared.timelines[0].copy_timelines.is_empty() && !compared.timelines[1].copy_timelines.is_empty()
    );
}

/// Copies have lanes below their stages, waits are seen, and what is held is a curve below the capacity: in the terminal,
/// as SVG and side by side.
#[test]
fn copies_and_memory_over_time_are_drawn() {
    let (planner, _worker) = scene("1GiB");
    let untouched = plan_of(&planner, "2x512MiB", &[]);
    let actions = [
        "--stage-optimization",
        "0/0..2=activations:host:0,0",
        "--stage-optimization",
        "1/4..5=activations:0:0,0",
    ];
    let plan = plan_of(&planner, "2x512MiB", &[&actions[..], &SLOW].concat());
    let drawn = cli(&planner, &["plan", "show", &plan, "--picture=schedule"]);
    assert_eq!(drawn.code, 0, "{}", drawn.stderr);
    let picture = &drawn.stdout[drawn.stdout.find("Schedule · ").unwrap()..];
    for part in [
        "  to host ",
        "  from host ",
        "  to stage 0 ",
        "»",
        "«",
        "×",
        "Memory over time",
        "in host",
        "hosted",
    ] {
        assert!(picture.contains(part), "{part}: {picture}");
    }
    assert!(picture.lines().all(|line| line.chars().count() <= 120), "{picture}");
    let folder = tempfile::tempdir().unwrap();
    for (file, verb) in [("one.svg", vec!["show", &plan]), ("two.html", vec!["compare", &untouched, &plan])] {
        let path = folder.path().join(file);
        let output = cli(&planner, &[&["plan"], &verb[..], &["--output", path.to_str().unwrap()]].concat());
        assert_eq!(output.code, 0, "{}", output.stderr);
        let text = std::fs::read_to_string(&path).unwrap();
        for part in [
            "copy out of ",
            "copy back of ",
            "of activations, layer ",
            "waiting for a copy",
            "polygon",
            "Memory over time",
        ] {
            assert!(text.contains(part), "{part} in {file}");
        }
    }
}

/// A plan that another predictor made is returned as it was, with a warning that its copies and memory are not shown.
#[tokio::test(flavor = "multi_thread")]
async fn plans_of_another_predictor_say_what_they_lack() {
    let Scene { planner, store, .. } = &Scene::new().await;
    let _worker = Worker::start(planner, &WorkerOptions::default());
    profile(planner, SMALL_GPT2, "--id gpt --micro-batch-size 4 --micro-batches 4");
    let name = plan_of(planner, "2x512MiB", &[]);
    let channel = planner.channel().await;
    let other =
        "UPDATE plans SET content = jsonb_set(content, '{predictor}', '\"component/2\"') WHERE id = $1";
    sqlx::query(other).bind(name.trim_start_matches("plans/")).execute(store.pool()).await.unwrap();
    let timeline = simulated(&channel, &name, 0, SimulatedSchedule::Unspecified).await;
    assert!(timeline.copy_timelines.is_empty() && timeline.memory_curves.is_empty(), "{timeline:?}");
    let told: Vec<&str> = timeline.warnings.iter().map(|of| of.message.as_str()).collect();
    let told = told.join("\n");
    assert!(told.contains("are not shown") && told.contains("component/2"), "{told}");
    let request = SimulatePlanRequest { name: name.clone(), ..SimulatePlanRequest::default() };
    let before = call(&channel, request).await.unwrap();
    assert_eq!(
        (before.stage_timelines, before.iteration_seconds),
        (timeline.stage_timelines, timeline.iteration_seconds)
    );
}
