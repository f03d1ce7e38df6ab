//! What the state hears, and what it asks for.

use std::time::Duration;

use loadmaster_proto::measure::failure::Phase;
use loadmaster_proto::wire::worker_v1;
use worker_v1::planner_message::Message as FromPlanner;
use worker_v1::worker_message::Message as ToPlanner;

use crate::run::{Claim, Job, Outcome};

/// The planner's durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Between heartbeats.
    pub(crate) heartbeat: Duration,
    /// How long a lease lasts without one.
    pub(crate) lease: Duration,
}

impl Terms {
    /// Durations that a worker can keep: a lease is longer than a heartbeat, neither is absurd.
    pub(crate) fn checked(heartbeat_seconds: f64, lease_seconds: f64) -> Option<Self> {
        let sane = (0.01..=3_600.0).contains(&heartbeat_seconds)
            && (0.01..=86_400.0).contains(&lease_seconds)
            && heartbeat_seconds < lease_seconds;
        sane.then(|| Self {
            heartbeat: Duration::from_secs_f64(heartbeat_seconds),
            lease: Duration::from_secs_f64(lease_seconds),
        })
    }
}

/// What happened.
#[derive(Debug)]
pub(crate) enum Event {
    /// The planner took the hello.
    Welcomed(Terms),
    /// The connection ended.
    Lost,
    /// The planner will never take this worker.
    Refused,
    /// The planner said something.
    Planner(Box<FromPlanner>),
    /// A run made progress.
    Progress {
        /// Which.
        claim: Claim,
        /// Share of its work done.
        fraction: f64,
        /// What it does.
        phase: Phase,
    },
    /// All processes of a run are gone.
    Ended {
        /// Which.
        claim: Claim,
        /// With what.
        outcome: Outcome,
    },
    /// Someone asked the daemon to stop.
    Stop,
    /// Time passed.
    Tick,
}

/// What to do about it.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there are few at a time, and nearly all of them are messages")]
pub(crate) enum Action {
    /// Send to the planner.
    Send(ToPlanner),
    /// Start a run's ranks.
    Start(Box<Job>),
    /// Kill a run's ranks; [`Event::Ended`] follows.
    Kill(Claim),
    /// Leave: nothing is held any more.
    Exit,
}
