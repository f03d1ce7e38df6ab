//! Calls by the names of methods: requests and answers are JSON, mapped by the API's descriptors.

use loadmaster_proto::wire::DESCRIPTORS;
use loadmaster_tests::raw_call;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use prost_types::FileDescriptorSet;
use serde_json::{Value, json};
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_types::StatusExt;

/// The answer to a request; of a call that fails the error's code, reason, message and fields.
pub(crate) async fn ask(channel: &Channel, method: &str, request: &Value) -> Value {
    let full =
        if method.starts_with("google.") { method.to_owned() } else { format!("loadmaster.v1.{method}") };
    let pool = messages();
    let (service, name) = full.rsplit_once('.').unwrap();
    let service = pool.get_service_by_name(service).unwrap_or_else(|| panic!("no service {service}"));
    let of_name = |method: &prost_reflect::MethodDescriptor| method.name() == name;
    let method = service.methods().find(of_name).unwrap_or_else(|| panic!("no method {full}"));
    let message =
        DynamicMessage::deserialize(method.input(), request).unwrap_or_else(|e| panic!("{full}: {e}"));
    let path = format!("/{}/{name}", service.full_name());
    match raw_call(channel, &path, Request::new(message.encode_to_vec())).await {
        Ok(bytes) => {
            let answer = DynamicMessage::decode(method.output(), bytes.as_slice()).unwrap();
            serde_json::to_value(answer).unwrap()
        }
        Err(status) => error(&status),
    }
}

/// The API's messages, and those that its errors carry.
fn messages() -> DescriptorPool {
    let mut pool = DescriptorPool::decode(DESCRIPTORS).unwrap();
    let details = FileDescriptorSet::decode(tonic_types::pb::FILE_DESCRIPTOR_SET).unwrap().file;
    let new = details.into_iter().filter(|file| file.name().ends_with("error_details.proto"));
    pool.add_file_descriptor_protos(new).unwrap();
    pool
}

fn error(status: &Status) -> Value {
    let details = status.get_error_details();
    let fields = details.bad_request().map(|bad| {
        let fields = bad.field_violations.iter().map(|field| json!([field.field, field.description]));
        fields.collect::<Vec<Value>>()
    });
    json!({
        "error": format!("{:?}", status.code()),
        "reason": details.error_info().map(|info| info.reason.clone()),
        "message": status.message(),
        "fields": fields,
    })
}
