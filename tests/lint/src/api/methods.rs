//! Rules of methods: standard methods, pages, signatures and long-running operations.

use prost_reflect::{Kind, MessageDescriptor, MethodDescriptor, Value};

use super::Findings;
use super::schema::{Schema, is_message, string};
use super::types::lower_snake;

const OPERATION: &str = "google.longrunning.Operation";

pub(super) fn check(schema: &Schema, findings: &mut Findings) {
    for method in schema.methods() {
        let file = method.parent_file();
        let mut require =
            |holds, aip, text: String| findings.require(holds, aip, file.name(), method.full_name(), text);
        check_standard(schema, &method, &mut require);
        check_pages(&method, &mut require);
        check_operation(schema, &method, &mut require);
    }
}

type Require<'a> = dyn FnMut(bool, u32, String) + 'a;

/// AIP-131 to AIP-135, and AIP-4232 of these methods.
fn check_standard(schema: &Schema, method: &MethodDescriptor, require: &mut Require<'_>) {
    let (request, response) = (method.input(), method.output());
    let Some((verb, noun, aip)) = standard(method.name()) else { return };
    let has = |name: &str, kind: &Kind| {
        request.get_field_by_name(name).is_some_and(|field| field.kind() == *kind && !field.is_list())
    };
    let mut check = |holds, text: String| require(holds, aip, text);
    check(
        request.name() == format!("{}Request", method.name()),
        format!("its request is {}", request.name()),
    );
    let is_noun = response.name() == noun;
    let is_operation = response.full_name() == OPERATION;
    let resources = schema.resources_by_name();
    let resource = resources
        .values()
        .find(|resource| resource.message.name() == noun || aip == 132 && capital(&resource.plural) == noun);
    let has_parent = resource
        .is_some_and(|resource| resource.patterns.iter().all(|pattern| pattern.split('/').count() > 2));
    if has_parent && ["List", "Create"].contains(&verb) {
        check(has("parent", &Kind::String), "its request has no `parent`".to_owned());
    }
    match verb {
        "Get" | "Delete" => {
            check(has("name", &Kind::String), "its request has no `name`".to_owned());
            let is_deleted =
                verb == "Delete" && (response.full_name() == "google.protobuf.Empty" || is_operation);
            check(is_noun || is_deleted, format!("it returns {}", response.name()));
            for field in request.fields().filter(|field| field.name() != "name") {
                check(
                    !schema.behaviors(&field).contains("REQUIRED"),
                    format!("its request requires `{}`", field.name()),
                );
            }
        }
        "List" => {
            check(
                response.name() == format!("{}Response", method.name()),
                format!("it returns {}", response.name()),
            );
        }
        _ => {
            let field = lower_snake(noun);
            let is_given = request
                .get_field_by_name(&field)
                .is_some_and(|field| matches!(field.kind(), Kind::Message(one) if one.name() == noun));
            check(is_given, format!("its request has no `{field}` of {noun}"));
            check(is_noun || is_operation, format!("it returns {}", response.name()));
            let has_mask = request
                .get_field_by_name("update_mask")
                .is_some_and(|mask| is_message(&mask, "google.protobuf.FieldMask"));
            check(verb == "Create" || has_mask, "its request has no FieldMask `update_mask`".to_owned());
        }
    }
    check_signature(schema, method, verb, require);
}

fn check_signature(schema: &Schema, method: &MethodDescriptor, verb: &str, require: &mut Require<'_>) {
    let option = schema.option(&method.options(), "google.api.method_signature");
    let signatures: Vec<&str> =
        option.iter().filter_map(Value::as_list).flatten().filter_map(Value::as_str).collect();
    require(!signatures.is_empty(), 4232, "has no method_signature".to_owned());
    if ["Get", "Delete"].contains(&verb) && !signatures.is_empty() {
        require(
            signatures[0] == "name",
            4232,
            format!("its first method_signature is {:?}, not \"name\"", signatures[0]),
        );
    }
    for name in signatures.iter().flat_map(|signature| signature.split(',')).filter(|name| !name.is_empty()) {
        let first = name.trim().split('.').next().unwrap_or_default();
        let exists = method.input().get_field_by_name(first).is_some();
        require(exists, 4232, format!("its method_signature has `{name}`, which is no field of the request"));
    }
}

/// AIP-158.
fn check_pages(method: &MethodDescriptor, require: &mut Require<'_>) {
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
        require(
            kind(message, name).as_ref() == Some(expected),
            158,
            format!("{} has no {expected:?} `{name}`", message.name()),
        );
    }
    let first = response.get_field(1);
    require(
        (present == 0 && !is_list) || first.is_some_and(|field| field.is_list()),
        158,
        format!("field 1 of {} is not repeated", response.name()),
    );
}

/// AIP-151.
fn check_operation(schema: &Schema, method: &MethodDescriptor, require: &mut Require<'_>) {
    if method.output().full_name() != OPERATION {
        return;
    }
    let option = schema.option(&method.options(), "google.longrunning.operation_info");
    for name in ["response_type", "metadata_type"] {
        let value =
            option.as_ref().and_then(Value::as_message).map(|info| string(info, name)).unwrap_or_default();
        let pool = method.parent_pool();
        let package = method.parent_file().package_name().to_owned();
        let exists = [value.clone(), format!("{package}.{value}")]
            .iter()
            .any(|one| pool.get_message_by_name(one).is_some());
        // The well-known Empty need not be imported.
        require(
            exists || value == "google.protobuf.Empty",
            151,
            format!("the {name} {value:?} of its operation_info is no message"),
        );
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

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}
