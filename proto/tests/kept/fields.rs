//! Every field of every message, value of every enum and method of every service of the API.

use loadmaster_proto::wire::DESCRIPTORS;
use prost_reflect::{DescriptorPool, EnumDescriptor, FieldDescriptor, MessageDescriptor, ServiceDescriptor};

const PACKAGE: &str = "loadmaster.v1";

/// One line for each, in order of the files.
pub(crate) fn fields() -> Vec<String> {
    let pool = DescriptorPool::decode(DESCRIPTORS).unwrap();
    let services = pool.services().filter(|service| service.package_name() == PACKAGE).flat_map(methods);
    let enums = pool.all_enums().filter(|of| of.package_name() == PACKAGE).flat_map(values);
    let messages = pool.all_messages().filter(|of| of.package_name() == PACKAGE && !of.is_map_entry());
    let mut lines: Vec<String> = services.chain(enums).chain(messages.flat_map(parts)).collect();
    lines.sort();
    lines
}

fn methods(service: ServiceDescriptor) -> Vec<String> {
    let line = |method: prost_reflect::MethodDescriptor| {
        let stream = |is: bool| if is { "stream " } else { "" };
        format!(
            "{}({}{}) -> {}{}",
            method.full_name(),
            stream(method.is_client_streaming()),
            method.input().full_name(),
            stream(method.is_server_streaming()),
            method.output().full_name()
        )
    };
    service.methods().map(line).collect()
}

fn values(of: EnumDescriptor) -> Vec<String> {
    of.values().map(|value| format!("{} = {} of {}", value.name(), value.number(), of.full_name())).collect()
}

fn parts(message: MessageDescriptor) -> Vec<String> {
    let fields = message.fields().map(|field| line(&field));
    let reserved = message.reserved_ranges();
    let reserved = reserved
        .map(|range| format!("{} reserves {} to {}", message.full_name(), range.start, range.end - 1));
    fields.chain(reserved).collect()
}

fn line(field: &FieldDescriptor) -> String {
    let how = if field.is_map() || field.is_list() { "repeated " } else { "" };
    // Whether an unset field is distinguished from one of the value 0.
    let presence = if field.supports_presence() && !field.is_list() { "optional " } else { "" };
    let one_of = field.containing_oneof().filter(|of| !of.is_synthetic());
    let one_of = one_of.map(|of| format!(" in {}", of.name())).unwrap_or_default();
    format!("{} = {} {how}{presence}{:?}{one_of}", field.full_name(), field.number(), field.kind())
}
