//! Pins what the daemon promises the planner, without processes, sockets or waiting.

use loadmaster_proto::measure::failure::FailureKind;
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::wire::v1;
use v1::run_failure::Kind;

use super::reports::MAX_REPORTS;
use super::*;
use loadmaster_samples::cpu_slot;

use crate::testing::{named, spec};

const TERMS: Terms = Terms { heartbeat: Duration::from_secs(5), lease: Duration::from_secs(15) };

/// A state with a clock that the test moves.
struct Bench {
    state: State,
    now: Instant,
}

impl Bench {
    /// Two CPU slots, connected.
    fn connected() -> Self {
        Self::offering(Bytes(0))
    }

    /// The same with so much of the host's memory.
    fn offering(host_memory: Bytes) -> Self {
        let state = State::new(vec![cpu_slot(0), cpu_slot(1)], host_memory, Duration::from_secs(60));
        let mut bench = Self { state, now: Instant::now() };
        bench.on(Event::Welcomed(TERMS));
        bench
    }

    fn on(&mut self, event: Event) -> Vec<Action> {
        self.state.on(event, self.now)
    }

    fn planner(&mut self, message: FromPlanner) -> Vec<Action> {
        self.on(Event::Planner(Box::new(message)))
    }

    fn after(&mut self, seconds: u64) -> Vec<Action> {
        self.now += Duration::from_secs(seconds);
        self.on(Event::Tick)
    }

    fn lease(&mut self, run: &str, token: i64, devices: &[&str]) -> Vec<Action> {
        self.planner(FromPlanner::Lease(lease(run, token, devices)))
    }

    /// Leases a device for a run that takes so many bytes of the host.
    fn lease_with(&mut self, run: &str, token: i64, device: &str, host_pool: u64) -> Vec<Action> {
        let pool = StageActions { host_pool: Bytes(host_pool), ..StageActions::default() };
        let mut spec = spec(1);
        spec.strategy.stages[0].actions = pool;
        let lease = worker_v1::Lease { spec: Some((&spec).into()), ..lease(run, token, &[device]) };
        self.planner(FromPlanner::Lease(lease))
    }

    fn kill(&mut self, run: &str, token: i64) -> Vec<Action> {
        let kill =
            worker_v1::Kill { run: format!("runs/{run}"), lease_token: token, reason: "cancelled".into() };
        self.planner(FromPlanner::Kill(kill))
    }

    fn acknowledge(&mut self, run: &str, token: i64, applied: bool) -> Vec<Action> {
        let run = format!("runs/{run}");
        let acknowledged = worker_v1::Acknowledged { run, lease_token: token, applied };
        self.planner(FromPlanner::Acknowledged(acknowledged))
    }

    fn ended(&mut self, run: &str, token: i64, outcome: Outcome) -> Vec<Action> {
        self.on(Event::Ended { claim: named(run, token), outcome })
    }

    fn held(&self) -> Vec<String> {
        self.state.held_runs().into_iter().map(|held| held.run).collect()
    }
}

fn lease(run: &str, token: i64, devices: &[&str]) -> worker_v1::Lease {
    worker_v1::Lease {
        run: format!("runs/{run}"),
        lease_token: token,
        device_ids: devices.iter().map(|&id| id.into()).collect(),
        spec: Some((&spec(devices.len())).into()),
        deadline_seconds: 600.0,
    }
}

fn starts(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Start(_)))
}

fn kills(actions: &[Action]) -> Vec<Claim> {
    actions
        .iter()
        .filter_map(|action| if let Action::Kill(claim) = action { Some(claim.clone()) } else { None })
        .collect()
}

fn exits(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Exit))
}

fn results(actions: &[Action]) -> Vec<i64> {
    let token = |action: &Action| match action {
        Action::Send(ToPlanner::Result(result)) => Some(result.lease_token),
        _ => None,
    };
    actions.iter().filter_map(token).collect()
}

fn failures(actions: &[Action]) -> Vec<(i64, Kind)> {
    let failure = |action: &Action| match action {
        Action::Send(ToPlanner::Failed(failed)) => {
            Some((failed.lease_token, failed.failure.as_ref().unwrap().kind()))
        }
        _ => None,
    };
    actions.iter().filter_map(failure).collect()
}

fn heartbeats(actions: &[Action]) -> Vec<Vec<String>> {
    let runs = |action: &Action| match action {
        Action::Send(ToPlanner::Heartbeat(heartbeat)) => {
            Some(heartbeat.held_runs.iter().map(|held| held.run.clone()).collect())
        }
        _ => None,
    };
    actions.iter().filter_map(runs).collect()
}

fn goodbyes(actions: &[Action]) -> usize {
    actions.iter().filter(|action| matches!(action, Action::Send(ToPlanner::Goodbye(_)))).count()
}

fn measured() -> Outcome {
    Outcome::Measured(Vec::new())
}

#[test]
fn a_lease_starts_once_and_is_named_in_every_heartbeat() {
    let mut bench = Bench::connected();
    assert!(starts(&bench.lease("a", 1, &["cpu0"])));
    assert!(bench.lease("a", 1, &["cpu0"]).is_empty(), "the same lease again is ignored");
    bench.on(Event::Progress { claim: named("a", 1), fraction: 0.5, phase: Phase::Backward });
    assert_eq!(heartbeats(&bench.after(5)), [["runs/a"]]);
    assert_eq!(heartbeats(&bench.after(4)), [[""; 0]; 0], "not before it is due");
    assert_eq!(bench.state.wake(), Some(bench.now + Duration::from_secs(1)));
    let held = &bench.state.held_runs()[0];
    assert_eq!(
        (held.progress, held.phase.as_str(), &held.device_ids[..]),
        (0.5, "backward", &["cpu0".into()][..])
    );
}

/// Pins the refusals: what another worker could do is handed back, what no one could do is a failed
/// attempt, and neither disturbs the run that has the device.
#[test]
fn leases_that_cannot_be_worked_on_are_answered() {
    let mut bench = Bench::connected();
    bench.lease("a", 1, &["cpu0"]);
    assert_eq!(failures(&bench.lease("b", 2, &["cpu0"])), [(2, Kind::HandedBack)]);
    assert_eq!(failures(&bench.lease("c", 3, &["gpu7"])), [(3, Kind::HandedBack)]);
    let mut bad = lease("d", 4, &["cpu1"]);
    bad.spec = None;
    assert_eq!(failures(&bench.planner(FromPlanner::Lease(bad))), [(4, Kind::NotStarted)]);
    let mut bad = lease("e", 5, &["cpu1"]);
    bad.device_ids.clear();
    assert_eq!(failures(&bench.planner(FromPlanner::Lease(bad))), [(5, Kind::NotStarted)]);
    for deadline in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let mut bad = lease("f", 6, &["cpu1"]);
        bad.deadline_seconds = deadline;
        assert_eq!(failures(&bench.planner(FromPlanner::Lease(bad))), [(6, Kind::NotStarted)]);
        bench.acknowledge("f", 6, true);
    }
    assert!(bench.lease("Not/A/Name", 7, &["cpu1"]).is_empty());
    assert!(starts(&bench.lease("g", 8, &["cpu1"])), "the free device is still free");
}

/// Pins that runs never have more of the host's memory together than the worker offers, and that what a run had is
/// given away when its processes are gone, no earlier.
#[test]
fn memory_of_the_host_is_counted_with_the_devices() {
    let mut bench = Bench::offering(Bytes(100));
    assert!(starts(&bench.lease_with("a", 1, "cpu0", 60)));
    let refused = bench.lease_with("b", 2, "cpu1", 41);
    assert_eq!(failures(&refused), [(2, Kind::HandedBack)]);
    let told = refused.iter().any(|action| match action {
        Action::Send(ToPlanner::Failed(failed)) => failed.failure.as_ref().unwrap().message.contains(
            "needs 41 B of CPU (host) memory, but of the 100 B that this worker offers only 40 B are free",
        ),
        _ => false,
    });
    assert!(told, "{refused:?}");
    bench.acknowledge("b", 2, true);
    assert_eq!(kills(&bench.kill("a", 1)), [named("a", 1)]);
    assert_eq!(
        failures(&bench.lease_with("b", 3, "cpu1", 41)),
        [(3, Kind::HandedBack)],
        "it is not dead yet"
    );
    bench.acknowledge("b", 3, true);
    assert!(starts(&bench.lease_with("c", 4, "cpu1", 40)), "what is free can be had");
    bench.ended("a", 1, Outcome::Stopped);
    assert!(starts(&bench.lease_with("b", 5, "cpu0", 60)));
    bench.ended("b", 5, measured());
    assert_eq!(bench.held(), ["runs/c", "runs/b"], "the result of one is on its way");
    assert!(starts(&bench.lease_with("d", 6, "cpu0", 60)), "and its memory is free");
}

#[test]
fn a_worker_that_offers_no_memory_of_its_host_takes_no_run_that_needs_some() {
    let mut bench = Bench::connected();
    assert_eq!(failures(&bench.lease_with("a", 1, "cpu0", 1)), [(1, Kind::HandedBack)]);
    assert!(starts(&bench.lease_with("b", 2, "cpu0", 0)));
}

/// Pins that a device is not given away before the last process of its run is gone.
#[test]
fn a_killed_run_keeps_its_devices_until_its_processes_are_gone() {
    let mut bench = Bench::connected();
    bench.lease("a", 1, &["cpu0"]);
    assert_eq!(kills(&bench.kill("a", 1)), [named("a", 1)]);
    assert!(kills(&bench.kill("a", 1)).is_empty(), "killed exactly once");
    assert_eq!(failures(&bench.lease("b", 2, &["cpu0"])), [(2, Kind::HandedBack)]);
    bench.acknowledge("b", 2, true);
    assert_eq!(bench.held(), ["runs/a"]);
    // It had finished in the last moment: no one waits for the result.
    let actions = bench.ended("a", 1, measured());
    assert!(results(&actions).is_empty());
    assert_eq!(heartbeats(&actions), [[""; 0]], "the planner learns at once that the devices are free");
    assert!(starts(&bench.lease("c", 3, &["cpu0"])));
}

#[test]
fn a_kill_of_a_run_that_is_not_held_is_answered_with_what_is() {
    let mut bench = Bench::connected();
    bench.lease("a", 2, &["cpu0"]);
    let actions = bench.kill("a", 1);
    assert!(kills(&actions).is_empty(), "another claim of the run is not meant");
    assert_eq!(heartbeats(&actions), [["runs/a"]]);
}

/// Pins that a newer claim of a run that is still held ends the older one.
#[test]
fn a_newer_claim_of_the_same_run_ends_the_older_one() {
    let mut bench = Bench::connected();
    bench.lease("a", 1, &["cpu0"]);
    let actions = bench.lease("a", 2, &["cpu0"]);
    assert_eq!(kills(&actions), [named("a", 1)]);
    assert_eq!(failures(&actions), [(2, Kind::HandedBack)]);
    assert!(results(&bench.ended("a", 1, measured())).is_empty());
}

/// Pins at-least-once delivery: a report lives until it is acknowledged, over any number of
/// connections, and an acknowledgement of another claim does not end it.
#[test]
fn a_result_is_sent_until_it_is_acknowledged() {
    let mut bench = Bench::connected();
    bench.lease("a", 3, &["cpu0"]);
    bench.on(Event::Lost);
    assert!(bench.ended("a", 3, measured()).is_empty(), "nobody to send it to");
    assert_eq!(bench.held(), ["runs/a"], "its lease must outlive the way to the planner");
    assert!(bench.state.held_runs()[0].device_ids.is_empty(), "but its device is free");
    assert_eq!(results(&bench.on(Event::Welcomed(TERMS))), [3]);
    assert!(results(&bench.after(9)).is_empty());
    assert_eq!(results(&bench.after(1)), [3], "sent again on the same connection");
    assert_eq!(results(&bench.lease("a", 3, &["cpu0"])), [3], "a lease that was worked on already");
    bench.acknowledge("a", 2, false);
    assert_eq!(bench.held(), ["runs/a"]);
    bench.acknowledge("a", 3, false);
    assert!(bench.held().is_empty(), "refused is acknowledged too");
    bench.acknowledge("a", 3, true);
    assert!(results(&bench.after(60)).is_empty());
}

#[test]
fn failures_are_sent_until_acknowledged_too() {
    let mut bench = Bench::connected();
    bench.lease("a", 1, &["cpu0"]);
    let failure = RunFailure { kind: FailureKind::Hung, message: "quiet".into(), stage_index: Some(0) };
    assert_eq!(failures(&bench.ended("a", 1, Outcome::Failed(failure))), [(1, Kind::Hung)]);
    bench.on(Event::Lost);
    assert_eq!(failures(&bench.on(Event::Welcomed(TERMS))), [(1, Kind::Hung)]);
}

/// Pins that runs survive a short disconnect and are named again, and that none outlives its lease.
#[test]
fn runs_go_on_without_a_planner_for_as_long_as_their_lease() {
    let mut bench = Bench::connected();
    bench.lease("a", 1, &["cpu0"]);
    bench.after(5);
    bench.on(Event::Lost);
    assert!(kills(&bench.after(14)).is_empty());
    assert_eq!(bench.held(), ["runs/a"]);
    bench.on(Event::Welcomed(TERMS));
    bench.on(Event::Lost);
    assert_eq!(bench.state.wake(), Some(bench.now + TERMS.lease), "the hello renewed it");
    assert_eq!(kills(&bench.after(15)), [named("a", 1)]);
    bench.ended("a", 1, Outcome::Stopped);
    assert!(failures(&bench.on(Event::Welcomed(TERMS))).is_empty(), "somebody else has it by now");
    assert!(bench.held().is_empty());
}

#[test]
fn a_cordoned_worker_takes_no_more_runs_and_stays() {
    let mut bench = Bench::connected();
    bench.lease("a", 1, &["cpu0"]);
    bench.planner(FromPlanner::Cordon(worker_v1::Cordon {}));
    assert_eq!(failures(&bench.lease("b", 2, &["cpu1"])), [(2, Kind::HandedBack)]);
    bench.acknowledge("b", 2, true);
    assert_eq!(results(&bench.ended("a", 1, measured())), [1]);
    assert!(!exits(&bench.acknowledge("a", 1, true)));
    bench.on(Event::Lost);
    bench.on(Event::Welcomed(TERMS));
    assert_eq!(
        failures(&bench.lease("c", 3, &["cpu1"])),
        [(3, Kind::HandedBack)],
        "a reconnect changes nothing"
    );
}

#[test]
fn a_stop_waits_for_runs_and_their_acknowledgement() {
    let mut bench = Bench::connected();
    bench.lease("a", 1, &["cpu0"]);
    let actions = bench.on(Event::Stop);
    assert!(goodbyes(&actions) == 1 && !exits(&actions) && kills(&actions).is_empty());
    assert_eq!(failures(&bench.lease("b", 2, &["cpu1"])), [(2, Kind::HandedBack)]);
    bench.acknowledge("b", 2, true);
    bench.on(Event::Lost);
    assert_eq!(goodbyes(&bench.on(Event::Welcomed(TERMS))), 1, "said again on a new connection");
    assert!(!exits(&bench.ended("a", 1, measured())));
    assert!(exits(&bench.acknowledge("a", 1, true)));
}

#[test]
fn an_idle_worker_stops_at_once() {
    let mut bench = Bench::connected();
    let actions = bench.on(Event::Stop);
    assert!(goodbyes(&actions) == 1 && exits(&actions));
}

#[test]
fn the_drain_timeout_kills_and_hands_back() {
    let mut bench = Bench::connected();
    bench.lease("a", 1, &["cpu0"]);
    bench.on(Event::Stop);
    assert_eq!(kills(&bench.after(60)), [named("a", 1)]);
    let actions = bench.ended("a", 1, Outcome::Stopped);
    assert_eq!(failures(&actions), [(1, Kind::HandedBack)]);
    assert!(!exits(&actions));
    assert!(exits(&bench.after(3)), "but not for ever");
}

#[test]
fn a_second_signal_stops_at_once_and_a_result_in_the_last_moment_is_kept() {
    let mut bench = Bench::connected();
    bench.lease("a", 1, &["cpu0"]);
    bench.lease("b", 2, &["cpu1"]);
    bench.on(Event::Stop);
    assert_eq!(kills(&bench.on(Event::Stop)).len(), 2);
    assert!(bench.on(Event::Stop).is_empty());
    assert_eq!(results(&bench.ended("a", 1, measured())), [1]);
    assert_eq!(failures(&bench.ended("b", 2, Outcome::Stopped)), [(2, Kind::HandedBack)]);
    bench.acknowledge("a", 1, true);
    assert!(exits(&bench.acknowledge("b", 2, true)));
}

#[test]
fn a_hard_stop_without_a_planner_does_not_wait_for_one() {
    let mut bench = Bench::connected();
    bench.lease("a", 1, &["cpu0"]);
    bench.on(Event::Lost);
    bench.on(Event::Stop);
    bench.on(Event::Stop);
    assert!(exits(&bench.ended("a", 1, Outcome::Stopped)));
}

#[test]
fn a_refused_worker_kills_what_it_holds_and_leaves() {
    let mut bench = Bench::connected();
    bench.lease("a", 1, &["cpu0"]);
    assert_eq!(kills(&bench.on(Event::Refused)), [named("a", 1)]);
    assert!(exits(&bench.ended("a", 1, Outcome::Stopped)));
}

/// Pins that a planner that never acknowledges cannot fill the worker's memory with refusals.
#[test]
fn unacknowledged_refusals_are_limited() {
    let mut bench = Bench::connected();
    for token in 0..2 * MAX_REPORTS as i64 {
        assert_eq!(failures(&bench.lease("a", token, &["gpu9"])), [(token, Kind::HandedBack)]);
    }
    assert_eq!(bench.held().len(), MAX_REPORTS);
}

#[test]
fn terms_are_sane() {
    assert_eq!(Terms::checked(5.0, 15.0), Some(TERMS));
    for (heartbeat, lease) in [(0.0, 1.0), (f64::NAN, 1.0), (2.0, 2.0), (5.0, 1e9)] {
        assert_eq!(Terms::checked(heartbeat, lease), None);
    }
}

/// Who holds a run must be back before its lease ends; who holds nothing has time, and so has who is too late.
#[test]
fn a_worker_hurries_back_while_its_leases_live() {
    let mut bench = Bench::connected();
    assert_eq!(bench.state.longest_wait(bench.now), None);
    bench.lease("one", 1, &["cpu0"]);
    assert_eq!(bench.state.longest_wait(bench.now), Some(TERMS.lease / 4));
    bench.on(Event::Lost);
    bench.after(14);
    assert_eq!(bench.state.longest_wait(bench.now), Some(TERMS.lease / 4));
    bench.after(2);
    assert_eq!(bench.state.longest_wait(bench.now), None);
}

#[test]
fn an_uncordoned_worker_takes_runs_again() {
    let mut bench = Bench::connected();
    bench.planner(FromPlanner::Cordon(worker_v1::Cordon {}));
    bench.lease("one", 1, &["cpu0"]);
    assert!(bench.held() == ["runs/one"] && bench.state.held.is_empty(), "it is handed back");
    bench.planner(FromPlanner::Uncordon(worker_v1::Uncordon {}));
    bench.lease("two", 2, &["cpu0"]);
    assert_eq!(bench.state.held.len(), 1);
}
