//! What is made of two answers, and of what a search says.

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::chunked::{AskedChunks, FixedChunks};
use loadmaster_proto::plan::objective::{Framework, Objective};
use loadmaster_proto::profile::document::ProfileDocument;
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::chunk_order::ChunkOrder;

use super::better;
use super::options::by_request;
use super::with_plain::best_of_several;
use crate::plan::NamedPlan;
use crate::result::{LackingStep, QuestionError, RecommendError, certified};
use crate::tests::fixture::{Fixture, LAYERS};
use loadmaster_memory::chunks::{ChunkChoice, NoRoom};
use loadmaster_predict::layer_table::TablePredictor;
use loadmaster_predict::{Prediction, PredictionError, Predictor, StageSetting};

fn texts(plan: &Plan) -> Vec<&str> {
    plan.warnings.iter().map(|of| of.message.as_str()).collect()
}

/// A plan of one stage that takes so many seconds, holds so many bytes and has micro-batches of this size.
fn plan(seconds: f64, peak: u64, size: u32) -> Plan {
    serde_json::from_value(serde_json::json!({
        "profile": "profiles/p", "model": "models/m", "device_kind": "cpu",
        "training": {
            "precision": "fp32",
            "optimizer": {"kind": "sgd", "learning_rate": 0.1, "momentum": 0.0, "weight_decay": 0.0},
            "schedule": "gpipe", "micro_batch_size": size, "micro_batches": 2, "recompute": "none", "seed": 0,
        },
        "stages": [{
            "config": {"first_layer": 0, "last_layer": 3, "data_degree": 1, "tensor_degree": 1},
            "capacity": 4096, "predicted_peak": peak, "origin": "profiled", "in_flight": 2,
        }],
        "predictor": "component/4", "ledger": "allocated", "solver": "s/1", "warnings": [],
        "found": {"iteration": {
            "seconds": seconds, "closed_form": seconds, "bubble": 0.0, "step": 0.0, "origin": "profiled", "links": "",
            "overlap": "computing", "overlap_reason": "",
        }},
    }))
    .unwrap()
}

fn no_room() -> QuestionError {
    let choice = ChunkChoice {
        order: ChunkOrder::Layer,
        recompute: RecomputePolicy::None,
        layout: Default::default(),
        chunk_elements: 16,
        host_copy: Default::default(),
        embedding: Default::default(),
        activations: Default::default(),
        on_device: 0,
    };
    let lack = NoRoom { choice, devices: 1, device: Some((3, Bytes(77))), host: None, remedies: Vec::new() };
    let step = LackingStep {
        told: "forward pass".to_owned(),
        layer: "block.0".to_owned(),
        device: "node/0".to_owned(),
        ledger: Accounting::Allocated,
    };
    RecommendError::NoRoomInChunks {
        lack: Box::new(lack),
        step: Some(Box::new(step)),
        most: Some(Bytes(5)),
        host: None,
    }
    .into()
}

fn late(is_proof: bool) -> QuestionError {
    RecommendError::Limits { reason: "too long".to_owned(), is_proof, remedies: Vec::new() }.into()
}

fn no_plan() -> QuestionError {
    RecommendError::Framework("cannot".to_owned()).into()
}

type Answer = Result<(Plan, Vec<NamedPlan>), QuestionError>;

fn alone(plan: Plan) -> Answer {
    Ok((plan, Vec::new()))
}

/// The better one by what was asked for, with what the other comes to.
#[test]
fn the_better_plan_names_the_other_one() {
    // Slower with a lower peak, and with larger micro-batches.
    let (plain, chunked) = (|| plan(1.0, 3000, 4), || plan(2.0, 1000, 8));
    for (objective, in_chunks, other) in [
        (Objective::MinIterationTime, false, "in chunks it would be 2 seconds"),
        (Objective::MinPeakMemory, true, "without chunks it would be 3000 bytes"),
        (Objective::MaxBatch, true, "without chunks it would be 4 samples"),
    ] {
        let (found, _) = better(objective, alone(plain()), Ok(chunked())).unwrap();
        assert_eq!(found.peak(), if in_chunks { 1000 } else { 3000 }, "{objective}");
        assert_eq!(texts(&found), [other], "{objective}");
    }
    // Of equals the one that needs no host.
    let (equal, _) = better(Objective::MinIterationTime, alone(plain()), Ok(plain())).unwrap();
    assert!(equal.warnings[0].message.starts_with("in chunks it would be"));
}

/// A plan's bound is one of all that was allowed: of plans with chunks and of plans without. Where it is not known
/// one of these there is none; and of one model the fastest plan is the best.
#[test]
fn what_is_proven_is_so_of_both_kinds() {
    let objective = Objective::MinIterationTime;
    let of = |plain: Answer, chunked: Result<Plan, QuestionError>| {
        let (plan, _) = better(objective, plain, chunked).unwrap();
        let certificate = plan.found.certificate.clone().unwrap();
        (plan.iteration_seconds().unwrap(), certificate.bound, certificate.proven)
    };
    let plain = |bound| alone(proven(1.0, bound).unwrap());
    assert_eq!(of(plain(Some(1.0)), proven(1.5, Some(1.2))), (1.0, Some(1.0), true));
    assert_eq!(of(plain(Some(1.0)), proven(1.5, Some(0.9))), (1.0, Some(0.9), false));
    assert_eq!(of(plain(Some(1.0)), proven(1.5, None)), (1.0, None, false));
    assert_eq!(of(plain(Some(0.2)), proven(0.5, Some(0.5))), (0.5, Some(0.2), false));
    assert_eq!(of(plain(Some(1.0)), Err(no_room())), (1.0, None, false));
    let wrong = Invalid::field("problem.framework", "does not support chunked training");
    assert_eq!(of(plain(Some(1.0)), Err(wrong.into())), (1.0, Some(1.0), true));
    assert_eq!(of(Err(no_plan()), proven(0.5, Some(0.5))), (0.5, None, false));
    let (fastest, _) = better(Objective::MaxModel, plain(None), proven(0.5, None)).unwrap();
    assert_eq!(fastest.iteration_seconds(), Some(0.5));
    assert_eq!(texts(&fastest), ["without chunks it would be 1 seconds"]);
    // Nearer than what does not fit is what takes too long.
    let late = |is_proof| Err(late(is_proof));
    let error = better(objective, Err(no_plan()), late(true)).unwrap_err();
    assert!(error.to_string().contains("too long; without chunks: cannot"), "{error}");
    assert!(matches!(error, QuestionError::Recommend(RecommendError::Limits { is_proof: false, .. })));
}

/// Where one of them has no room, the other one is the answer and says why; where neither has, both reasons are reported.
#[test]
fn a_plan_that_has_room_says_why_the_other_has_not() {
    let seconds = Objective::MinIterationTime;
    let (found, _) = better(seconds, alone(plan(1.0, 1, 1)), Err(no_room())).unwrap();
    assert!(
        found.warnings[0].message.contains("there is no plan with chunked training")
            && found.warnings[0].message.contains("77 B")
    );
    let (found, _) = better(seconds, Err(no_plan()), Ok(plan(1.0, 1, 1))).unwrap();
    assert_eq!(texts(&found), ["there is no plan without chunks: cannot"]);
    let neither = better(seconds, Err(no_plan()), Err(no_room())).unwrap_err();
    assert!(matches!(neither, QuestionError::Recommend(RecommendError::Neither { .. })));
    let told = neither.to_string();
    assert!(told.contains("cannot") && told.contains("77 B") && told.contains("node/0"), "{told}");
    assert!(told.ends_with("the limit of each device is 5 B (`constraints.max_peak_bytes`)"), "{told}");
    // A field that is wrong is wrong for both.
    let wrong = Invalid::field("problem.safety_margin", "is wrong");
    assert!(matches!(
        better(seconds, Err(wrong.into()), Ok(plan(1.0, 1, 1))),
        Err(QuestionError::Invalid(_))
    ));
}

/// Where a search rejects a value, the error names the request's field that the value came from.
#[test]
fn refusals_of_a_search_name_fields_of_the_request() {
    for (own, asked) in [
        ("sizes", "memory.chunk_options.chunk_elements"),
        ("cpu_optimizer_timing", "memory.chunk_options.host_parameters"),
        ("recomputes", "problem.recompute"),
        ("schedule", "schedule"),
    ] {
        let told = by_request(&Invalid::field(own, "is wrong"));
        assert_eq!((told.violations()[0].field.as_str(), told.violations().len()), (asked, 1));
        assert_eq!(told.violations()[0].description, "is wrong");
    }
}

/// A plan of so many seconds of which no devices are known to do better than the bound.
fn proven(seconds: f64, bound: Option<f64>) -> Result<Plan, QuestionError> {
    let mut plan = plan(seconds, 1, 1);
    plan.found.certificate = Some(certified(seconds, bound, Objective::MinIterationTime.unit()));
    Ok(plan)
}

/// Of several numbers of devices the fastest, the fewest of equal ones; its bound is the least of all, and there is none where one
/// of them has none or was not looked at.
#[test]
fn the_best_number_of_devices_is_bounded_by_all_of_them() {
    let best = |answers: Vec<Result<Plan, QuestionError>>| {
        let (index, plan) = best_of_several(Objective::MinIterationTime, answers.into_iter()).unwrap();
        let certificate = plan.found.certificate.unwrap();
        (index, certificate.bound, certificate.stopped)
    };
    let three = || vec![proven(3.0, Some(3.0)), proven(2.0, Some(1.5)), proven(2.0, Some(1.0))];
    let with = |last| three().into_iter().chain([last]).collect();
    assert_eq!(best(three()), (1, Some(1.0), false));
    assert_eq!(best(with(proven(9.0, None))), (1, None, false));
    assert_eq!(best(with(Err(no_room()))), (1, Some(1.0), false));
    // What takes too long and may do better is known by no bound.
    assert_eq!(best(with(Err(late(false)))), (1, None, false));
    assert_eq!(best(with(Err(late(true)))), (1, Some(1.0), false));
    let stopped = Err(RecommendError::Stopped.into());
    assert_eq!(best(with(stopped)), (1, None, true));
    // What some splits of the devices cannot do of what was named leaves these out, unless none is left.
    let wrong = || Err(Invalid::field("memory.chunk_options.embedding_places", "is wrong").into());
    assert_eq!(best(with(wrong())), (1, Some(1.0), false));
    let left = |answers: Vec<Result<Plan, QuestionError>>| {
        best_of_several(Objective::MinIterationTime, answers.into_iter()).unwrap_err()
    };
    assert!(matches!(left(vec![wrong(), wrong()]), QuestionError::Invalid(_)));
    assert!(matches!(left(vec![wrong(), Err(no_room())]), QuestionError::Recommend(_)));
    // What is known of intervals is known of the best plan's.
    let mut visited = three();
    visited[1].as_mut().unwrap().found.certificate.as_mut().unwrap().fetches_fewest = true;
    let (_, found) = best_of_several(Objective::MinIterationTime, visited.into_iter()).unwrap();
    assert!(found.found.certificate.unwrap().fetches_fewest);
    let none = best_of_several(Objective::MinIterationTime, vec![Err(no_room())].into_iter());
    assert!(matches!(none, Err(QuestionError::Recommend(RecommendError::NoRoomInChunks { .. }))));
}

/// All is left to choose, with a GiB of the host.
fn in_chunks(host_update: Option<f64>) -> AskedChunks {
    AskedChunks {
        or_plain: false,
        fixed: FixedChunks::default(),
        recomputes: Vec::new(),
        host_memory: Bytes(1 << 30),
        host_update,
    }
}

/// Of a profile whose predictor knows no chunks, of a command for example, that is reported first, whatever else is
/// said of the host.
#[test]
fn a_profile_that_knows_no_chunks_says_so() {
    struct Whole;
    impl Predictor for Whole {
        fn name(&self) -> &'static str {
            "whole/1"
        }

        fn layers(&self) -> usize {
            5
        }

        fn stage(&self, _: &StageSetting) -> Result<Prediction, PredictionError> {
            Err(PredictionError::NotProfiled("never asked".to_owned()))
        }

        fn sources(&self, _: &StageSetting) -> Vec<String> {
            Vec::new()
        }
    }
    let fixture = Fixture::new(Objective::MinIterationTime, 1, 1 << 30).predicted_by(Box::new(Whole));
    for host_update in [None, Some(1e6)] {
        let asked = fixture.with(|fixture| {
            fixture.request.allowed = None;
            fixture.request.chunks = Some(in_chunks(host_update));
        });
        let told = asked.answer().unwrap_err().to_string();
        assert!(told.contains("cannot predict chunked training"), "{told}");
    }
}

/// Of a framework that keeps nothing off the device, whichever it is, no plan in chunks is made: its field is named, and those that do.
#[test]
fn frameworks_without_chunks_are_refused_by_name() {
    let fixture = Fixture::new(Objective::MinIterationTime, 1, 1 << 30);
    for framework in Framework::ALL {
        let asked = fixture.with(|fixture| {
            fixture.request.allowed = None;
            fixture.request.goal.framework = Some(framework);
            fixture.request.chunks = Some(in_chunks(None));
        });
        let refused = match asked.answer() {
            Err(QuestionError::Invalid(invalid)) => Some(invalid.violations()[0].clone()),
            _ => None,
        };
        let has_chunks = [Framework::ColossalAi, Framework::Deepspeed, Framework::Other].contains(&framework);
        let named = refused.filter(|of| of.field == "problem.framework");
        assert_eq!(named.is_none(), has_chunks, "{framework}: {named:?}");
        let says = format!("{framework} does not support chunked training");
        let remedy = "Use colossal-ai or deepspeed, or remove `memory.mode`";
        assert!(named.is_none_or(|of| of.description.starts_with(&says) && of.description.ends_with(remedy)));
    }
}

/// A layer table of another tool is planned by, too; that its bytes are none that were recorded is said with the plan.
#[test]
fn a_plan_by_a_table_says_that_it_is_not_to_the_byte() {
    let row = serde_json::json!({"micro_batch_size": 4, "tensor_degree": 1, "parameter_bytes": 4224, "activation_bytes": 2048,
                                 "output_bytes": 1024, "input_bytes": 1024});
    let times = serde_json::json!({"micro_batch_size": 4, "tensor_degree": 1, "forward_seconds": 1.0, "backward_seconds": 2.0});
    let document = serde_json::json!({
        "format": "loadmaster.profile/1",
        "provenance": {"source": "a test", "tool": "hand", "device_kind": "cpu", "ledger": "allocated"},
        "model": {"opaque": {"name": "chain", "layers": vec![serde_json::json!({"name": "linear"}); LAYERS]}},
        "layer_table": {"layers": [{"first_layer": 0, "last_layer": LAYERS - 1, "bytes": [row], "times": [times]}]},
    });
    let table = TablePredictor::new(&ProfileDocument::parse(&document.to_string()).unwrap()).unwrap();
    let fixture = Fixture::new(Objective::MinIterationTime, 1, 1 << 20).predicted_by(Box::new(table));
    let asked = fixture.with(|fixture| {
        fixture.request.allowed = None;
        fixture.request.chunks = Some(in_chunks(Some(1e6)));
    });
    let ((_, plan), _) = asked.answer().unwrap();
    assert_eq!(plan.predictor, "table/2");
    assert!(
        plan.warnings
            .iter()
            .any(|warning| warning.message.contains("less exact than bytes from allocation traces")),
        "{:?}",
        plan.warnings
    );
}
