//! Actions that are given: what becomes of them, and what is wrong with them.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::training::actions::{Hosted, StageActions, StagedAction};
use loadmaster_proto::training::stage::Partitioning;

use crate::QuestionError;
use crate::tests::fixture::Fixture;

/// Two stages on two devices with so much memory.
fn fixture(capacity: u64) -> Fixture {
    Fixture::new(Objective::MinIterationTime, 2, capacity).with(|fixture| {
        fixture.request.partitioning = Some(Partitioning::from_sizes(&[3, 2]).unwrap());
        fixture.request.allowed = None;
    })
}

/// These, as they are typed.
fn actions(typed: &[&str]) -> Vec<StageActions> {
    StageActions::by_stage(typed.iter().map(|text| text.parse::<StagedAction>().unwrap()).collect())
}

fn with(fixture: &Fixture, actions: Vec<StageActions>) -> Fixture {
    fixture.with(|fixture| fixture.request.stage_actions = actions)
}

fn refusal(fixture: &Fixture) -> String {
    fixture.answer().unwrap_err().to_string()
}

/// A profile from before recordings said what autograd saves answers for what computes again as any other, and is told to be made
/// anew where something is to leave.
#[test]
fn older_profiles_know_what_is_computed_again() {
    let (now, earlier) = (fixture(1 << 30), fixture(1 << 30).recorded_earlier());
    let again = actions(&["0/0..1=recompute"]);
    let peaks = [&now, &earlier].map(|fixture| with(fixture, again.clone()).plan().peak());
    assert_eq!(peaks[0], peaks[1]);
    assert!(peaks[0] < now.plan().peak());
    let saved = [&now, &earlier].map(|fixture| with(fixture, again.clone()).plan().stages[0].saved.is_some());
    assert_eq!(saved, [true, false], "nobody knows what else could leave");
    let away = with(&earlier, actions(&["0/0..1=activations:host"]));
    assert!(refusal(&away).contains("once more"), "{}", refusal(&away));
    assert!(matches!(away.answer(), Err(QuestionError::Prediction(_))), "what the profile lacks");
}

/// Whoever has no room for what another stage sends is named with it.
#[test]
fn a_peer_without_room_is_told_of_what_it_lends() {
    let sent = actions(&["0/0..1=activations:1@100%"]);
    let needs = with(&fixture(1 << 30), sent.clone()).plan().stages[1].predicted_peak;
    let full = with(&fixture(needs - 1), sent);
    let told = refusal(&full);
    assert!(told.contains("of which stage 1 sets") && told.contains("for what stage 0 sends"), "{told}");
    let alone = with(&fixture(1), actions(&["0/0..1=recompute"]));
    assert!(!refusal(&alone).contains("aside"), "{}", refusal(&alone));
}

/// Pools that are given too small, or for nobody, are named by their path.
#[test]
fn pools_that_are_too_small_are_named() {
    let mut host = actions(&["0/0..1=activations:host"]);
    host[0].host_pool = Bytes(1);
    let told = refusal(&with(&fixture(1 << 30), host));
    assert!(told.contains("stage_actions[0].host_pool_bytes"), "{told}");
    let mut peer = actions(&["0/0..1=activations:1@100%"]);
    peer.resize_with(2, StageActions::default);
    peer[1].hosted = vec![Hosted { stage: 0, bytes: Bytes(1) }];
    let told = refusal(&with(&fixture(1 << 30), peer));
    assert!(told.contains("stage_actions[1].hosted"), "{told}");
}
