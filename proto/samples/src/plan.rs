//! A plan, and what of it tests seldom look at.

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::name::{ModelName, ProfileName};
use loadmaster_proto::plan::findings::Findings;
use loadmaster_proto::plan::prediction::Origin;
use loadmaster_proto::plan::request::Goal;
use loadmaster_proto::plan::{Plan, PlanStage};
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{RecomputePolicy, Schedule};

/// A stage that takes half of devices of a GiB, of which no more is predicted than that.
pub fn plan_stage(config: StageConfig) -> PlanStage {
    PlanStage {
        config,
        capacity: 1 << 30,
        predicted_peak: 1 << 29,
        breakdown: None,
        interval: None,
        seconds: None,
        seconds_margin: None,
        origin: Origin::Profiled,
        in_flight: 2,
        recompute: RecomputePolicy::None,
        devices: Vec::new(),
        actions: StageActions::default(),
        offload: None,
        saved: None,
        chunks: None,
        chunk_run: None,
    }
}

/// A plan of these stages on CPU slots.
pub fn plan(stages: Vec<PlanStage>) -> Plan {
    Plan {
        profile: ProfileName::from_id("measured").unwrap(),
        virtual_stages: 1,
        other_profiles: Vec::new(),
        model: ModelName::from_id("m").unwrap(),
        training: crate::training(Schedule::Gpipe, 4, 2),
        device_kind: "cpu".to_owned(),
        stages,
        predictor: "component/2".to_owned(),
        ledger: Accounting::Allocated,
        solver: "leximax/2".to_owned(),
        warnings: Vec::new(),
        asked: Goal::default(),
        found: Findings::default(),
    }
}
