//! Rules of methods: standard methods, pages, signatures and long-running operations.

use prost_reflect::{Kind, MessageDescriptor, MethodDescriptor, Value};

use super::schema::{Schema, is_message, string, value_message};
use super::types::lower_snake;
use super::{Element, Finding};

const OPERATION: &str = "google.longrunning.Operation";

pub(super) fn check(schema: &Schema, findings: &mut Vec<Finding>) {
    for method in schema.methods() {
        let (file, name) = (method.parent_file().name().to_owned(), method.full_name().to_owned());
        let at = &mut Element { findings, file, name };
        check_standard(schema, &method, at);
        check_pages(&method, at);
        check_operation(schema, &method, at);
    }
}

/// AIP-131 to AIP-135, and AIP-4232 of these methods.
fn check_standard(schema: &Schema, method: &MethodDescriptor, at: &mut Element<'_>) {
    let (request, response) = (method.input(), method.output());
    let Some((verb, noun, aip)) = standard(method.name()) else { return };
    let has_string =
        |name: &str| request.get_field_by_name(name).is_some_and(|one| one.kind() == Kind::String);
    let (name, returned) = (method.name(), response.name());
    at.require(request.name() == format!("{name}Request"), aip, format!("its request is {}", request.name()));
    let is_its = |plural: &str| aip == 132 && noun.to_lowercase() == plural.to_lowercase();
    let resource = schema.resources.iter().find(|one| one.message.name() == noun || is_its(&one.plural));
    at.require(resource.is_some() || verb != "Get", 123, format!("{noun} has no google.api.resource"));
    let is_child = |pattern: &String| pattern.split('/').count() > 2;
    let has_parent = resource.is_some_and(|one| one.patterns.iter().all(is_child));
    let needs_parent = has_parent && ["List", "Create"].contains(&verb);
    at.require(has_string("parent") || !needs_parent, aip, "its request has no `parent`");
    let needs_name = ["Get", "Delete"].contains(&verb);
    at.require(has_string("name") || !needs_name, aip, "its request has no string `name`");
    let also = match verb {
        "Get" | "List" => "",
        "Delete" if returned == "Empty" => returned,
        _ => "Operation",
    };
    let is_list = verb == "List" && returned == format!("{name}Response");
    let is_noun = verb != "List" && returned == noun;
    at.require(is_list || is_noun || returned == also, aip, format!("it returns {returned}"));
    for field in request.fields().filter(|one| needs_name && one.name() != "name") {
        let is_required = schema.behaviors(&field).contains("REQUIRED");
        at.require(!is_required, aip, format!("its request requires `{}`", field.name()));
    }
    if ["Create", "Update"].contains(&verb) {
        let field = lower_snake(noun);
        let is_given = request.get_field_by_name(&field).and_then(|one| value_message(&one));
        let is_given = is_given.is_some_and(|one| one.name() == noun);
        at.require(is_given, aip, format!("its request has no `{field}` of {noun}"));
    }
    let mask = request.get_field_by_name("update_mask");
    let has_mask = mask.is_some_and(|mask| is_message(&mask, "google.protobuf.FieldMask"));
    at.require(has_mask || verb != "Update", aip, "its request has no FieldMask `update_mask`");
    check_signature(schema, method, verb, at);
}

fn check_signature(schema: &Schema, method: &MethodDescriptor, verb: &str, at: &mut Element<'_>) {
    let option = schema.option(&method.options(), "google.api.method_signature");
    let signatures: Vec<&str> =
        option.iter().filter_map(Value::as_list).flatten().filter_map(Value::as_str).collect();
    at.require(!signatures.is_empty(), 4232, "has no method_signature");
    let is_name = signatures.first().is_none_or(|first| *first == "name");
    at.require(
        is_name || !["Get", "Delete"].contains(&verb),
        4232,
        "its first method_signature is not \"name\"",
    );
    for name in signatures.iter().flat_map(|signature| signature.split(',')).filter(|name| !name.is_empty()) {
        let first = name.trim().split('.').next().unwrap_or_default();
        let exists = method.input().get_field_by_name(first).is_some();
        at.require(
            exists,
            4232,
            format!("its method_signature has `{name}`, which is no field of the request"),
        );
    }
}

/// AIP-158.
fn check_pages(method: &MethodDescriptor, at: &mut Element<'_>) {
    let (request, response) = (method.input(), method.output());
    let kind =
        |message: &MessageDescriptor, name: &str| message.get_field_by_name(name).map(|field| field.kind());
    let names = [
        (&request, "page_size", Kind::Int32),
        (&request, "page_token", Kind::String),
        (&response, "next_page_token", Kind::String),
    ];
    let present = names.iter().filter(|(message, name, _)| kind(message, name).is_some()).count();
    let is_list = method.name().starts_with("List");
    for (message, name, expected) in names.iter().filter(|_| present > 0 || is_list) {
        let has_field = kind(message, name).as_ref() == Some(expected);
        at.require(has_field, 158, format!("{} has no {expected:?} `{name}`", message.name()));
    }
    let is_repeated = response.get_field(1).is_some_and(|field| field.is_list());
    let is_paged = present > 0 || is_list;
    at.require(is_repeated || !is_paged, 158, format!("field 1 of {} is not repeated", response.name()));
}

/// AIP-151.
fn check_operation(schema: &Schema, method: &MethodDescriptor, at: &mut Element<'_>) {
    if method.output().full_name() != OPERATION {
        return;
    }
    let option = schema.option(&method.options(), "google.longrunning.operation_info");
    for name in ["response_type", "metadata_type"] {
        let info = option.as_ref().and_then(Value::as_message);
        let value = info.map(|info| string(info, name)).unwrap_or_default();
        let full = format!("{}.{value}", method.parent_file().package_name());
        let exists = |name: &str| method.parent_pool().get_message_by_name(name).is_some();
        // The well-known Empty need not be imported.
        let is_type = exists(&value) || exists(&full) || value == "google.protobuf.Empty";
        at.require(is_type, 151, format!("the {name} {value:?} of its operation_info is no message"));
    }
}

/// Splits the name of a standard method: verb, resource, and number of the rule.
fn standard(name: &str) -> Option<(&str, &str, u32)> {
    let verbs = [("Get", 131), ("List", 132), ("Create", 133), ("Update", 134), ("Delete", 135)];
    verbs.iter().find_map(|(verb, aip)| {
        let noun = name.strip_prefix(verb)?;
        noun.starts_with(char::is_uppercase).then_some((*verb, noun, *aip))
    })
}
