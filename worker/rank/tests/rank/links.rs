//! Measuring links between real rank processes.

use std::path::Path;
use std::process::Command;

use loadmaster_proto::measure::failure::Phase;
use loadmaster_proto::measure::links::copies::{CopySpeeds, CopyWay};
use loadmaster_proto::measure::links::updates::host_updates;
use loadmaster_proto::measure::links::{Collectives, LinkMeasurement, LinkWork, RankLinks};
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::measure::rank::{
    EXIT_BAD_SPEC, EXIT_LOST_NEIGHBOUR, EXIT_OUT_OF_MEMORY, LinkSpec, RankEvent,
};
use loadmaster_proto::training::step_kind::StepKind;

use crate::processes::{Ended, cpu, with_input};

const RANK: &str = env!("CARGO_BIN_EXE_loadmaster-rank");

fn specs(work: &LinkWork, folder: &Path) -> Vec<LinkSpec> {
    let spec = |index| LinkSpec {
        work: work.clone(),
        index,
        device_id: format!("cpu{index}"),
        folder: folder.to_owned(),
        collectives: Collectives::Host,
        device: cpu(64 << 20),
        threads: 1,
        neighbour_timeout_seconds: 60.0,
        pace: CopyPace::default(),
    };
    (0..work.devices).map(spec).collect()
}

fn run(specs: &[LinkSpec]) -> Vec<Ended> {
    let children: Vec<_> = specs
        .iter()
        .map(|spec| with_input(Command::new(RANK).arg("links"), &serde_json::to_string(spec).unwrap()))
        .collect();
    children.into_iter().map(Ended::of).collect()
}

fn measured(ended: Ended) -> RankLinks {
    assert_eq!(ended.code, Some(0), "{}", ended.errors);
    let last = ended.events.into_iter().next_back().unwrap();
    let RankEvent::LinksMeasured { links } = last else { panic!("{last:?}") };
    *links
}

fn work(devices: u32) -> LinkWork {
    LinkWork { devices, payload_bytes: vec![4 << 10, 256 << 10, 2 << 20], repeats: 3 }
}

/// Every pair once, measured by its earlier member; groups of 2 and 3, measured by the first rank; all of them
/// with possible numbers, and more bytes take longer.
#[test]
fn every_pair_and_group_is_measured_once() {
    let folder = tempfile::tempdir().unwrap();
    let work = work(3);
    let parts: Vec<RankLinks> = run(&specs(&work, folder.path())).into_iter().map(measured).collect();
    assert_eq!(parts.iter().map(|part| part.pairs.len()).collect::<Vec<_>>(), [2, 1, 0]);
    assert_eq!(parts.iter().map(|part| part.groups.len()).collect::<Vec<_>>(), [2, 0, 0]);
    let whole = LinkMeasurement::of_ranks(parts).unwrap();
    assert_eq!(whole.device_ids, ["cpu0", "cpu1", "cpu2"]);
    assert_eq!(whole.transport, Collectives::Host);
    let groups: Vec<&[u32]> = whole.groups.iter().map(|group| group.devices.as_slice()).collect();
    assert_eq!(groups, [&[0, 1][..], &[0, 1, 2]]);
    let points = whole.pairs.iter().map(|pair| &pair.points);
    for points in points.chain(whole.groups.iter().map(|group| &group.points)) {
        let payloads: Vec<u64> = points.iter().map(|point| point.payload_bytes).collect();
        assert_eq!(payloads, work.payload_bytes);
        // Which takes longer is the machine's business: a busy one makes any of them wait.
        assert!(points.iter().all(|point| point.seconds > 0.0), "{points:?}");
    }
}

/// Each device copies to the host, each pair into the memory of the later one, all at once; a pace holds for each lane, so
/// that both ways at once are as fast as each alone.
#[test]
fn copies_of_slots_are_measured_at_their_pace() {
    let folder = tempfile::tempdir().unwrap();
    let mut specs = specs(&work(3), folder.path());
    let pace = CopyPace { host: Some(20e6), peer: Some(40e6) };
    specs.iter_mut().for_each(|spec| spec.pace = pace);
    let parts: Vec<RankLinks> = run(&specs).into_iter().map(measured).collect();
    let pairs = |part: &RankLinks| part.copies.as_ref().map(|copies| copies.pairs.len());
    assert_eq!(parts.iter().map(pairs).collect::<Vec<_>>(), [Some(2), Some(1), Some(0)]);
    let whole = LinkMeasurement::of_ranks(parts).unwrap().copies.unwrap();
    let devices: Vec<u32> = whole.devices.iter().map(|of| of.device).collect();
    let pairs: Vec<_> = whole.pairs.iter().map(|pair| (pair.first, pair.second)).collect();
    assert_eq!((devices, pairs), (vec![0, 1, 2], vec![(0, 1), (0, 2), (1, 2)]));
    whole.check_payloads(2 << 20).unwrap();
    // No copy is faster than its pace, however fast the machine is; a busy one may make it slower.
    let no_faster = |way: &CopyWay, at_once: f64, pace: f64| {
        for point in &way.points {
            let rate = at_once * point.payload_bytes as f64 / point.seconds;
            assert!(rate <= 1.001 * at_once * pace, "{rate} at {pace}: {point:?}");
        }
    };
    let speeds = |of: &CopySpeeds, pace: f64| {
        no_faster(&of.out, 1.0, pace);
        no_faster(&of.back, 1.0, pace);
        no_faster(of.both.as_ref().unwrap(), 2.0, pace);
    };
    for of in &whole.devices {
        speeds(&of.host, 20e6);
        [&of.all_out, &of.all_back].into_iter().for_each(|way| no_faster(way, 1.0, 20e6));
        no_faster(of.all_next.as_ref().unwrap(), 1.0, 40e6);
    }
    whole.pairs.iter().for_each(|pair| speeds(&pair.copies, 40e6));
}

/// A device alone copies to its host and has its parameters updated there: there is no one to exchange with.
#[test]
fn a_device_alone_has_a_link_to_its_host() {
    let folder = tempfile::tempdir().unwrap();
    let work = work(1);
    let mut specs = specs(&work, folder.path());
    specs[0].pace = CopyPace { host: Some(20e6), peer: None };
    let parts: Vec<RankLinks> = run(&specs).into_iter().map(measured).collect();
    let whole = LinkMeasurement::of_ranks(parts).unwrap();
    assert!(whole.pairs.is_empty() && whole.groups.is_empty(), "{whole:?}");
    let copies = whole.copies.unwrap();
    let [device] = copies.devices.as_slice() else { panic!("{copies:?}") };
    assert!(copies.pairs.is_empty() && device.all_next.is_none(), "{copies:?}");
    let host = device.host.link();
    assert!(host.out.bytes_per_second > 0.0 && host.back.bytes_per_second > 0.0, "{host:?}");
    assert_eq!(host_updates(&whole.updates).len(), StepKind::ALL.len());
}

/// Each rank times each kind of step alone and beside the others, over lists as large as the largest payload; a cluster has all of
/// them, in parameters per second.
#[test]
fn updates_on_the_host_are_measured_for_every_rank() {
    let folder = tempfile::tempdir().unwrap();
    let work = work(2);
    let mut specs = specs(&work, folder.path());
    specs.iter_mut().for_each(|spec| spec.threads = 2);
    let parts: Vec<RankLinks> = run(&specs).into_iter().map(measured).collect();
    let updates = LinkMeasurement::of_ranks(parts).unwrap().updates;
    assert_eq!(updates.iter().map(|of| of.device).collect::<Vec<_>>(), [0, 1]);
    for of in &updates {
        assert_eq!(of.steps.iter().map(|timed| timed.step).collect::<Vec<_>>(), StepKind::ALL);
        assert!(of.steps.iter().all(|timed| timed.parameters == (2 << 20) / 4), "{of:?}");
        // How long it takes is the machine's business; that each was timed is not.
        assert!(of.steps.iter().all(|timed| timed.alone_seconds > 0.0 && timed.together_seconds > 0.0));
    }
    let described = host_updates(&updates);
    assert_eq!(described.len(), StepKind::ALL.len());
    assert!(described.iter().all(|of| of.together_per_second.is_some()));
}

/// A payload that does not fit its device is a result with its bytes, as in training, and the other ranks say
/// that they only lost the one that is too small.
#[test]
fn a_device_that_is_too_small_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut specs = specs(&work(3), folder.path());
    specs[1].device = cpu(1 << 20);
    let ended = run(&specs);
    let codes: Vec<Option<i32>> = ended.iter().map(|ended| ended.code).collect();
    let lost = Some(EXIT_LOST_NEIGHBOUR);
    assert_eq!(codes, [lost, Some(EXIT_OUT_OF_MEMORY), lost]);
    let out_of_memory = ended[1].events.iter().find_map(|event| match event {
        RankEvent::OutOfMemory { out_of_memory } => Some(out_of_memory),
        _ => None,
    });
    let out_of_memory = out_of_memory.unwrap();
    assert_eq!((out_of_memory.phase, out_of_memory.asked.0), (Phase::Exchange, 2 << 20));
}

/// What cannot be measured is refused before anything is opened, by the field's name.
#[test]
fn senseless_specifications_are_refused_by_field() {
    let folder = tempfile::tempdir().unwrap();
    let good = specs(&work(2), folder.path()).remove(0);
    let cases = [
        (LinkSpec { index: 2, ..good.clone() }, "index"),
        (LinkSpec { threads: 0, ..good.clone() }, "threads"),
        (LinkSpec { pace: CopyPace { host: Some(-1.0), peer: None }, ..good.clone() }, "pace.host"),
        (LinkSpec { work: LinkWork { repeats: 0, ..work(2) }, ..good.clone() }, "work.repeats"),
        (LinkSpec { folder: "/long".repeat(40).into(), ..good }, "folder"),
    ];
    for (spec, field) in cases {
        let ended = run(std::slice::from_ref(&spec)).remove(0);
        assert_eq!(ended.code, Some(EXIT_BAD_SPEC));
        assert!(ended.message().contains(field), "{field}: {}", ended.message());
    }
}
