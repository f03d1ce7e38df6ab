//! What several services say and read: times, runs, operations, and the keys of calls that may be retried. What one of them says
//! alone is beside it.

use jiff::Timestamp;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::layer::fingerprint;
use loadmaster_proto::wire::longrunning::{Operation, operation};
use loadmaster_proto::wire::{ToWire, v1};
use prost::{Message, Name};
use uuid::Uuid;

use crate::store::records::{
    FailureRecord, MeasurementRecord, OperationRecord, OperationState, OperationTarget, RequestKey,
    RunCounts, RunRecord, RunWork, SearchPhase, SearchRecord,
};

pub(super) fn time(timestamp: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: timestamp.as_second(), nanos: timestamp.subsec_nanosecond() }
}

/// A count for the wire.
pub(super) fn count(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

pub(super) fn run_counts(counts: RunCounts) -> v1::RunCounts {
    v1::RunCounts {
        total_count: count(counts.total()),
        queued_count: count(counts.queued),
        running_count: count(counts.running),
        succeeded_count: count(counts.succeeded),
        out_of_memory_count: count(counts.out_of_memory),
        failed_count: count(counts.failed),
        cancelled_count: count(counts.cancelled),
    }
}

/// A run without its measurements, as lists show it.
pub(super) fn run_row(record: &RunRecord) -> v1::Run {
    v1::Run {
        name: record.name.to_string(),
        state: record.state.to_wire(),
        operation: record.operation.to_string(),
        profile: record.profile.as_ref().map(ToString::to_string).unwrap_or_default(),
        plan: record.plan.as_ref().map(ToString::to_string).unwrap_or_default(),
        spec: Some(run_spec(&record.work)),
        device_count: count(record.device_count),
        host_memory_bytes: record.host_memory.to_wire(),
        worker: record.worker.as_ref().map(ToString::to_string).unwrap_or_default(),
        attempt_count: count(record.attempts),
        failures: record.failures.iter().map(failure).collect(),
        create_time: Some(time(record.create_time)),
        start_time: record.start_time.map(time),
        end_time: record.end_time.map(time),
        progress: record.progress,
        measurements: Vec::new(),
        original_run: record.shrunk_from.as_ref().map(ToString::to_string).unwrap_or_default(),
        ..v1::Run::default()
    }
}

/// What a run does; a model by its name alone.
fn run_spec(work: &RunWork) -> v1::RunSpec {
    let trained = match work {
        RunWork::Links(links) => {
            let links = v1::run_spec::Work::LinkWork(links.into());
            return v1::RunSpec { work: Some(links), ..v1::RunSpec::default() };
        }
        RunWork::Stages(trained) => trained,
    };
    v1::RunSpec {
        model: Some(v1::Model { name: trained.model.to_string(), ..v1::Model::default() }),
        iteration_count: count(trained.iterations),
        custom_profiler: trained.command.as_ref().map(ToString::to_string).unwrap_or_default(),
        ..(&trained.strategy).into()
    }
}

fn failure(record: &FailureRecord) -> v1::RunFailure {
    v1::RunFailure {
        worker: record.worker.as_ref().map(ToString::to_string).unwrap_or_default(),
        lease_token: record.lease_token,
        failure_time: Some(time(record.time)),
        ..(&record.failure).into()
    }
}

pub(super) fn measurement(record: &MeasurementRecord) -> v1::Measurement {
    v1::Measurement {
        name: record.name(),
        run: record.run.to_string(),
        profile: record.profile.as_ref().map(ToString::to_string).unwrap_or_default(),
        measure_time: Some(time(record.time)),
        ..(&record.measurement).into()
    }
}

/// The same in lists: tapes are for predictors, and a page of them would be longer than a message may be. So may steps be.
pub(super) fn measurement_row(record: &MeasurementRecord) -> v1::Measurement {
    let whole = measurement(record);
    let without_steps = |chunks| v1::ChunkTraffic {
        non_chunk_step_bytes: Vec::new(),
        chunk_step_bytes: Vec::new(),
        ..chunks
    };
    v1::Measurement { allocation_trace: None, chunk_traffic: whole.chunk_traffic.map(without_steps), ..whole }
}

/// What an operation waits for.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Human-readable; empty where it waits for nothing.
    pub(super) message: String,
    /// No connected worker could take the run that it waits for.
    pub(super) has_no_worker: bool,
}

/// An operation as it travels.
pub(super) fn operation_message(
    record: &OperationRecord,
    waiting: Waiting,
    trials: Option<v1::Trials>,
    result: Option<operation::Result>,
) -> Operation {
    let done = record.state != OperationState::Running;
    let target = match &record.target {
        OperationTarget::Profile(name) => name.to_string(),
        OperationTarget::Plan(name) => name.to_string(),
        OperationTarget::Links => "links".to_owned(),
        OperationTarget::Purge(purge) => {
            let metadata = Some(pack(&super::history::metadata(record, purge)));
            return Operation { name: record.name.to_string(), metadata, done, result };
        }
        OperationTarget::Search(search) => {
            return Operation {
                name: record.name.to_string(),
                metadata: Some(pack(&search_metadata(record, search))),
                done: record.state != OperationState::Running,
                result,
            };
        }
    };
    let metadata = v1::RunMetadata {
        target,
        run_counts: Some(run_counts(record.runs)),
        progress: record.progress,
        message: waiting.message,
        worker_missing: waiting.has_no_worker,
        create_time: Some(time(record.create_time)),
        end_time: record.end_time.map(time),
        remaining_seconds: record.remaining_seconds,
        trials,
    };
    Operation { name: record.name.to_string(), metadata: Some(pack(&metadata)), done, result }
}

fn search_metadata(record: &OperationRecord, search: &SearchRecord) -> v1::StartRecommendationMetadata {
    use v1::start_recommendation_metadata::Phase;
    let phase = match search.phase {
        SearchPhase::Preparing => Phase::Preparing,
        SearchPhase::Searching => Phase::Searching,
        SearchPhase::Storing => Phase::Storing,
    };
    v1::StartRecommendationMetadata {
        phase: phase.into(),
        state_count: i64::try_from(search.states).unwrap_or(i64::MAX),
        value: search.value,
        bound: search.bound,
        elapsed: Some(search.seconds.to_wire()),
        time_limit: Some(search.limit_seconds.to_wire()),
        create_time: Some(time(record.create_time)),
        end_time: record.end_time.map(time),
    }
}

/// A message with its type.
pub(super) fn pack<M: Message + Name>(message: &M) -> prost_types::Any {
    prost_types::Any { type_url: M::type_url(), value: message.encode_to_vec() }
}

/// The key of a call that may be retried; none without a `request_id`. `request` is the call without
/// its id.
///
/// # Errors
/// When the id is not a UUID.
pub(super) fn request_key(request_id: &str, request: &impl Message) -> Result<Option<RequestKey>, Invalid> {
    request_key_of(request_id, || fingerprint(&request.encode_to_vec()))
}

/// The same for a request whose bytes differ between equal requests.
///
/// # Errors
/// As there.
pub(super) fn request_key_of(
    request_id: &str,
    fingerprint: impl FnOnce() -> String,
) -> Result<Option<RequestKey>, Invalid> {
    if request_id.is_empty() {
        return Ok(None);
    }
    let id = Uuid::parse_str(request_id).map_err(|_| {
        Invalid::field("request_id", format!("{request_id:?} is not a UUID. Use a new UUID."))
    })?;
    Ok(Some(RequestKey { id, fingerprint: fingerprint() }))
}
