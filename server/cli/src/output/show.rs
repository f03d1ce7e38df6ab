//! What makes a message printable, and its JSON and YAML forms.
//!
//! Both forms come from the descriptors that travel with the generated code, so they follow the
//! protocol without a second description of it. `google.protobuf.Any` is shown with what is inside.

use std::sync::OnceLock;

use anyhow::Context as _;
use loadmaster_proto::wire::longrunning::{ListOperationsResponse, Operation, operation};
use loadmaster_proto::wire::{DESCRIPTORS, v1};
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};

use crate::text::terminal_abilities::Look;

/// A message that the program prints.
pub(crate) trait Show: Message + Sized {
    /// The message's full name in the protocol.
    const TYPE: &'static str;

    /// The names of the resources in it, in order.
    fn names(&self) -> Vec<String>;

    /// For people.
    fn table(&self, look: Look) -> String;

    /// The bytes to translate: the message without what this program cannot translate.
    fn translatable(&self) -> Vec<u8> {
        self.encode_to_vec()
    }
}

/// The proto3 JSON form, indented.
pub(crate) fn json<M: Show>(message: &M) -> anyhow::Result<String> {
    let mut serializer = serde_json::Serializer::pretty(Vec::new());
    dynamic(message)?.serialize_with_options(&mut serializer, &options())?;
    Ok(String::from_utf8(serializer.into_inner())?)
}

/// The same document as YAML.
pub(crate) fn yaml<M: Show>(message: &M) -> anyhow::Result<String> {
    let mut text = Vec::new();
    let mut serializer = serde_yaml_ng::Serializer::new(&mut text);
    dynamic(message)?.serialize_with_options(&mut serializer, &options())?;
    Ok(String::from_utf8(text)?)
}

/// Fields at their default are written too: a script that reads `.plans[]` of an empty list, or
/// `.done` of an unfinished operation, must find them.
fn options() -> SerializeOptions {
    SerializeOptions::new().skip_default_fields(false)
}

fn dynamic<M: Show>(message: &M) -> anyhow::Result<DynamicMessage> {
    let descriptor = pool()?
        .get_message_by_name(M::TYPE)
        .with_context(|| format!("the protocol has no message {}", M::TYPE))?;
    Ok(DynamicMessage::decode(descriptor, message.translatable().as_slice())?)
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

impl Show for Operation {
    const TYPE: &'static str = "google.longrunning.Operation";

    fn names(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    fn table(&self, look: Look) -> String {
        crate::output::table::operation::one(self, look)
    }

    fn translatable(&self) -> Vec<u8> {
        without_unknown(self).encode_to_vec()
    }
}

impl Show for ListOperationsResponse {
    const TYPE: &'static str = "google.longrunning.ListOperationsResponse";

    fn names(&self) -> Vec<String> {
        self.operations.iter().map(|operation| operation.name.clone()).collect()
    }

    fn table(&self, look: Look) -> String {
        crate::output::table::operation::list(&self.operations, look)
    }

    fn translatable(&self) -> Vec<u8> {
        Self { operations: self.operations.iter().map(without_unknown).collect(), ..self.clone() }
            .encode_to_vec()
    }
}

/// A newer planner may send payloads of types that this program has not heard of. They have no JSON
/// form here; the rest of the operation has.
fn without_unknown(operation: &Operation) -> Operation {
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

macro_rules! show {
    ($($message:ident, $table:ident;)*) => {$(
        impl Show for v1::$message {
            const TYPE: &'static str = concat!("loadmaster.v1.", stringify!($message));

            fn names(&self) -> Vec<String> {
                vec![self.name.clone()]
            }

            fn table(&self, look: Look) -> String {
                super::table::$table::one(self, look)
            }
        }
    )*};
}

impl Show for v1::PredictMemoryResponse {
    const TYPE: &'static str = "loadmaster.v1.PredictMemoryResponse";

    /// A prediction is no resource; what can be looked up is what it was made from.
    fn names(&self) -> Vec<String> {
        self.measurements.clone()
    }

    fn table(&self, look: Look) -> String {
        crate::output::table::prediction::one(self, look)
    }
}

impl Show for v1::ListPredictionErrorsResponse {
    const TYPE: &'static str = "loadmaster.v1.ListPredictionErrorsResponse";

    /// Statistics are no resource; what can be named is what would correct them.
    fn names(&self) -> Vec<String> {
        let corrections = self.errors.iter().filter_map(|of| of.correction.as_ref());
        corrections.map(|correction| correction.version.clone()).collect()
    }

    fn table(&self, look: Look) -> String {
        crate::output::table::prediction_errors::list(&self.errors, look)
    }
}

impl Show for v1::ComparePlansResponse {
    const TYPE: &'static str = "loadmaster.v1.ComparePlansResponse";

    fn names(&self) -> Vec<String> {
        self.plans.iter().map(|plan| plan.name.clone()).collect()
    }

    fn table(&self, look: Look) -> String {
        super::picture::of_comparison(self, look)
    }
}

impl Show for v1::MeasureLinksResponse {
    const TYPE: &'static str = "loadmaster.v1.MeasureLinksResponse";

    fn names(&self) -> Vec<String> {
        self.measurements.iter().map(|of| of.name.clone()).collect()
    }

    fn table(&self, look: Look) -> String {
        crate::output::table::cluster::links::list(&self.measurements, look)
    }
}

impl Show for v1::ListLinkMeasurementsResponse {
    const TYPE: &'static str = "loadmaster.v1.ListLinkMeasurementsResponse";

    fn names(&self) -> Vec<String> {
        self.measurements.iter().map(|of| of.name.clone()).collect()
    }

    fn table(&self, look: Look) -> String {
        crate::output::table::cluster::links::list(&self.measurements, look)
    }
}

macro_rules! show_list {
    ($($message:ident, $rows:ident, $($table:ident)::+;)*) => {$(
        impl Show for v1::$message {
            const TYPE: &'static str = concat!("loadmaster.v1.", stringify!($message));

            fn names(&self) -> Vec<String> {
                self.$rows.iter().map(|row| row.name.clone()).collect()
            }

            fn table(&self, look: Look) -> String {
                super::table::$($table)::+::list(&self.$rows, look)
            }
        }
    )*};
}

show! {
    Model, model;
    Cluster, cluster;
    Profile, profile;
    Plan, plan;
    Observation, observation;
    Run, run;
    Worker, worker;
}

show_list! {
    ListModelsResponse, models, model;
    ListClustersResponse, clusters, cluster;
    ListProfilesResponse, profiles, profile;
    ListMeasurementsResponse, measurements, measurement;
    ListPlansResponse, plans, plan::list;
    ListObservationsResponse, observations, observation;
    ListRunsResponse, runs, run;
    ListWorkersResponse, workers, worker;
}

#[cfg(test)]
mod tests {
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
        check::<v1::Observation>();
        check::<v1::ListObservationsResponse>();
        check::<v1::ListPredictionErrorsResponse>();
        check::<v1::ListWorkersResponse>();
        check::<ListOperationsResponse>();
    }
}
