//! The JSON and YAML forms of messages.
//!
//! Both come from the descriptors that travel with the generated code, so they follow the protocol without a second
//! description of it. `google.protobuf.Any` is shown with what is inside.

use std::sync::OnceLock;

use anyhow::Context as _;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::wire::DESCRIPTORS;
use loadmaster_proto::wire::longrunning::{Operation, operation};
use prost::{Message, Name};
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions};
use serde_json::Value;

use super::Show;

/// The proto3 JSON form, indented.
pub fn json<M: Show>(message: &M) -> anyhow::Result<String> {
    let mut serializer = serde_json::Serializer::pretty(Vec::new());
    dynamic(message)?.serialize_with_options(&mut serializer, &options())?;
    Ok(String::from_utf8(serializer.into_inner())?)
}

/// The same document as YAML.
pub fn yaml<M: Show>(message: &M) -> anyhow::Result<String> {
    let mut text = Vec::new();
    let mut serializer = serde_yaml_ng::Serializer::new(&mut text);
    dynamic(message)?.serialize_with_options(&mut serializer, &options())?;
    Ok(String::from_utf8(text)?)
}

/// The same document as a value, to be a part of a larger one.
pub fn value<M: Show>(message: &M) -> anyhow::Result<serde_json::Value> {
    Ok(dynamic(message)?.serialize_with_options(serde_json::value::Serializer, &options())?)
}

/// Reads the proto3 JSON form of the message of this full name, as [`json`] writes it.
///
/// # Errors
/// Says where the text stops to be that message.
pub fn parse<M: Message + Default>(name: &str, text: &str) -> anyhow::Result<M> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let message = DynamicMessage::deserialize(descriptor(name)?, &mut deserializer)?;
    deserializer.end()?;
    Ok(message.transcode_to()?)
}

/// Reads the same form as YAML, which JSON is a part of. Numbers of bytes may have units, as on the command line.
///
/// # Errors
/// The text is no such message; names the field, if one is wrong.
pub fn parse_yaml<M: Message + Default>(name: &str, text: &str) -> anyhow::Result<M> {
    let mut value: serde_yaml_ng::Value = serde_yaml_ng::from_str(text)?;
    count_bytes(&mut value)?;
    let mut track = serde_path_to_error::Track::new();
    let deserializer = serde_path_to_error::Deserializer::new(value, &mut track);
    let message = DynamicMessage::deserialize(descriptor(name)?, deserializer);
    Ok(message.map_err(|error| anyhow::anyhow!("{}: {error}", track.path()))?.transcode_to()?)
}

/// Replaces bytes with units by numbers in fields of bytes.
fn count_bytes(value: &mut serde_yaml_ng::Value) -> anyhow::Result<()> {
    match value {
        serde_yaml_ng::Value::Mapping(fields) => fields.iter_mut().try_for_each(|(name, value)| {
            let name = name.as_str().unwrap_or_default();
            let is_bytes = name.ends_with("_bytes") || name.ends_with("Bytes");
            match value {
                serde_yaml_ng::Value::String(text) if is_bytes && text.parse::<u64>().is_err() => {
                    *value = text.parse::<Bytes>().with_context(|| name.to_owned())?.0.into();
                    Ok(())
                }
                value => count_bytes(value),
            }
        }),
        serde_yaml_ng::Value::Sequence(items) => items.iter_mut().try_for_each(count_bytes),
        _ => Ok(()),
    }
}

/// Returns a message with another value, in its JSON form, of the field at a path. Null clears the field.
///
/// # Errors
/// The path or the value is none of the message.
pub fn with_field<M: Message + Name + Default>(message: &M, path: &str, value: &Value) -> anyhow::Result<M> {
    let descriptor = descriptor(&M::full_name())?;
    let message = DynamicMessage::decode(descriptor.clone(), message.encode_to_vec().as_slice())?;
    let options = SerializeOptions::new().use_proto_field_name(true);
    let mut json = message.serialize_with_options(serde_json::value::Serializer, &options)?;
    *path.split('.').fold(&mut json, |at, field| &mut at[field]) = value.clone();
    Ok(DynamicMessage::deserialize(descriptor, json)?.transcode_to()?)
}

/// Fields at their default are written too: a script that reads `.plans[]` of an empty list, or
/// `.done` of an unfinished operation, must find them.
fn options() -> SerializeOptions {
    SerializeOptions::new().skip_default_fields(false)
}

fn dynamic<M: Show>(message: &M) -> anyhow::Result<DynamicMessage> {
    Ok(DynamicMessage::decode(descriptor(M::TYPE)?, message.translatable().as_slice())?)
}

fn descriptor(name: &str) -> anyhow::Result<MessageDescriptor> {
    pool()?.get_message_by_name(name).with_context(|| format!("the protocol has no message {name}"))
}

/// The protocol's messages and the standard error details.
fn pool() -> anyhow::Result<&'static DescriptorPool> {
    static POOL: OnceLock<DescriptorPool> = OnceLock::new();
    if let Some(pool) = POOL.get() {
        return Ok(pool);
    }
    let mut pool = DescriptorPool::decode(DESCRIPTORS).context("cannot read the protocol's descriptors")?;
    let details = prost_types::FileDescriptorSet::decode(tonic_types::pb::FILE_DESCRIPTOR_SET)?;
    for file in details.file {
        // Its `google.rpc.Status` is the protocol's too, from a file of another name.
        let known = file.message_type.iter().any(|message| {
            pool.get_message_by_name(&format!("{}.{}", file.package(), message.name())).is_some()
        });
        if !known {
            pool.add_file_descriptor_proto(file).context("cannot read the error details' descriptors")?;
        }
    }
    Ok(POOL.get_or_init(|| pool))
}

/// A newer planner may send payloads of types that this program has not heard of. They have no JSON
/// form here; the rest of the operation has.
pub fn without_unknown(operation: &Operation) -> Operation {
    let known = |any: &prost_types::Any| {
        let name = any.type_url.rsplit('/').next().unwrap_or_default();
        pool()
            .ok()
            .and_then(|pool| pool.get_message_by_name(name))
            .is_some_and(|descriptor| DynamicMessage::decode(descriptor, any.value.as_slice()).is_ok())
    };
    let mut operation = operation.clone();
    operation.metadata = operation.metadata.filter(known);
    operation.result = operation.result.and_then(|result| match result {
        operation::Result::Error(mut status) => {
            status.details.retain(known);
            Some(operation::Result::Error(status))
        }
        operation::Result::Response(any) => known(&any).then_some(operation::Result::Response(any)),
    });
    operation
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::longrunning::ListOperationsResponse;
    use loadmaster_proto::wire::v1;
    use prost_types::Any;
    use tonic_types::StatusExt;

    use super::*;

    fn any(name: &str, message: &impl Message) -> Any {
        Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec() }
    }

    #[test]
    fn json_is_the_proto3_mapping() {
        let worker = v1::Worker {
            name: "workers/a".to_owned(),
            state: v1::worker::State::Alive.into(),
            devices: vec![v1::Device { capacity_bytes: 1 << 60, ..v1::Device::default() }],
            heartbeat_time: Some(prost_types::Timestamp { seconds: 0, nanos: 0 }),
            ..v1::Worker::default()
        };
        let value: serde_json::Value = serde_json::from_str(&json(&worker).unwrap()).unwrap();
        assert_eq!(value["devices"][0]["capacityBytes"], "1152921504606846976");
        assert_eq!(value["state"], "ALIVE");
        assert_eq!(value["heartbeatTime"], "1970-01-01T00:00:00Z");
        assert!(value.get("createTime").is_none(), "an unset message is left out");
    }

    #[test]
    fn the_payload_of_an_operation_is_expanded() {
        let operation = Operation {
            name: "operations/1".to_owned(),
            metadata: Some(any(
                "loadmaster.v1.RunMetadata",
                &v1::RunMetadata { target: "plans/p".to_owned(), progress: 0.5, ..Default::default() },
            )),
            ..Operation::default()
        };
        let value: serde_json::Value = serde_json::from_str(&json(&operation).unwrap()).unwrap();
        assert_eq!(value["metadata"]["@type"], "type.googleapis.com/loadmaster.v1.RunMetadata");
        assert_eq!(value["metadata"]["target"], "plans/p");
        assert_eq!(value["done"], false);
        assert!(yaml(&operation).unwrap().contains("target: plans/p"));
    }

    #[test]
    fn error_details_are_expanded_and_unknown_payloads_left_out() {
        let details = tonic_types::ErrorDetails::with_error_info("WORKER_LOST", "loadmaster.dev", []);
        let status = tonic::Status::with_error_details(tonic::Code::Unavailable, "lost", details);
        let mut status = loadmaster_proto::wire::google::rpc::Status::decode(status.details()).unwrap();
        status.details.push(any("loadmaster.v9.FromTheFuture", &()));
        let operation =
            Operation { result: Some(operation::Result::Error(status)), done: true, ..Operation::default() };
        let value: serde_json::Value = serde_json::from_str(&json(&operation).unwrap()).unwrap();
        assert_eq!(value["error"]["details"][0]["reason"], "WORKER_LOST");
        assert_eq!(value["error"]["details"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn an_empty_list_is_still_a_list() {
        let text = json(&v1::ListPlansResponse::default()).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["plans"], serde_json::json!([]));
    }

    #[test]
    fn every_printed_message_is_in_the_protocol() {
        fn check<M: Show + Default>() {
            assert!(json(&M::default()).is_ok(), "{}", M::TYPE);
        }
        check::<v1::Model>();
        check::<v1::ComputeChunkLayoutResponse>();
        check::<v1::Profile>();
        check::<v1::Plan>();
        check::<v1::Run>();
        check::<v1::ListModelsResponse>();
        check::<v1::Cluster>();
        check::<v1::ListClustersResponse>();
        check::<v1::MeasureLinksResponse>();
        check::<v1::ListLinkMeasurementsResponse>();
        check::<v1::ListProfilesResponse>();
        check::<v1::ListMeasurementsResponse>();
        check::<v1::ListRunsResponse>();
        check::<v1::Report>();
        check::<v1::ListReportsResponse>();
        check::<v1::ListPredictionErrorsResponse>();
        check::<v1::ListPredictionPairsResponse>();
        check::<v1::PurgeHistoryResponse>();
        check::<v1::Measurement>();
        check::<v1::ListWorkersResponse>();
        check::<ListOperationsResponse>();
    }

    /// A field is replaced whole, in a message that may not be there yet; null clears it.
    #[test]
    fn a_field_has_another_value() {
        let groups = |count| vec![v1::DeviceGroup { count, capacity_bytes: 1 << 40, ..Default::default() }];
        let problem = v1::Problem { devices: groups(2), micro_batch_size: 4, ..Default::default() };
        let request = v1::RecommendPlanRequest { problem: Some(problem), ..Default::default() };
        let devices = serde_json::json!([{"count": 3, "capacityBytes": 1_u64 << 40}]);
        let changed = with_field(&request, "problem.devices", &devices).unwrap();
        let changed = with_field(&changed, "problem.micro_batch_size", &Value::Null).unwrap();
        let changed = with_field(&changed, "constraints.allow_idle_devices", &true.into()).unwrap();
        let constraints = v1::Constraints { allow_idle_devices: true, ..Default::default() };
        let problem = v1::Problem { devices: groups(3), ..Default::default() };
        let expected = v1::RecommendPlanRequest {
            problem: Some(problem),
            constraints: Some(constraints),
            ..Default::default()
        };
        assert_eq!(changed, expected);
        for (path, value) in [("problem.nothing", Value::Null), ("problem.micro_batch_size", "x".into())] {
            assert!(with_field(&request, path, &value).is_err(), "{path}");
        }
    }
}
