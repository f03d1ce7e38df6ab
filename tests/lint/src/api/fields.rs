//! Rules of fields: their behaviour, references to resources, names and types.

use std::sync::LazyLock;

use prost_reflect::{FieldDescriptor, Kind};
use regex_lite::Regex;

use super::Findings;
use super::schema::{Schema, is_message};
use crate::sentences::regex;

/// Words of api-linter's rule `core::0140::prepositions`.
const PREPOSITIONS: &str = "after at before between but by except for from in including into of over since to toward under upon with within without";

/// Keywords of Rust and Java.
const KEYWORDS: &str = "abstract as assert async await become boolean box break byte case catch char class const continue crate default do \
    double dyn else enum extends extern false final finally float fn for gen goto if impl implements import in instanceof int interface let \
    long loop macro match mod move mut native new null override package priv private protected pub public ref return self short static \
    strictfp struct super switch synchronized this throw throws trait transient true try type typeof unsafe unsized use virtual void volatile \
    where while yield";

/// Plural words of quantities that are no numbers of things, and words in s that are no plurals.
const UNITS: &str = "bytes seconds minutes hours days milliseconds millis ms microseconds micros nanoseconds nanos ns flops watts \
    status address progress axis basis bias class pass loss access process";

/// Resource names in a comment: `plans/{plan}`.
static PATTERN: LazyLock<Regex> = LazyLock::new(|| regex(r"\b[a-z][A-Za-z]*/\{[a-z_]+\}"));
static SNAKE: LazyLock<Regex> = LazyLock::new(|| regex(r"^[a-z][a-z0-9]*(_[a-z][a-z0-9]*)*$"));

pub(super) fn check(schema: &Schema, findings: &mut Findings) {
    for message in schema.messages() {
        for field in message.fields() {
            check_field(schema, &field, &mut |holds, aip, text: String| {
                findings.require(holds, aip, field.parent_file().name(), field.full_name(), text);
            });
        }
    }
}

type Require<'a> = dyn FnMut(bool, u32, String) + 'a;

fn check_field(schema: &Schema, field: &FieldDescriptor, require: &mut Require<'_>) {
    check_behavior(schema, field, require);
    check_reference(schema, field, require);
    check_name(field, require);
    check_time(schema, field, require);
    if field.name() == "request_id" {
        let has_format = if schema.has_extension("google.api.field_info") {
            schema.option(&field.options(), "google.api.field_info").is_some()
        } else {
            schema.comment(field).contains("UUID4")
        };
        require(has_format, 155, "has no format UUID4".to_owned());
    }
}

/// AIP-203. A member of a oneof is never required by itself.
fn check_behavior(schema: &Schema, field: &FieldDescriptor, require: &mut Require<'_>) {
    let behaviors = schema.behaviors(field);
    let has_one = ["REQUIRED", "OPTIONAL", "OUTPUT_ONLY", "IMMUTABLE", "IDENTIFIER"]
        .iter()
        .any(|one| behaviors.contains(*one));
    let is_member = field.containing_oneof().is_some_and(|oneof| !oneof.is_synthetic());
    let is_input = schema.inputs.contains(field.parent_message().full_name());
    require(has_one || is_member || !is_input, 203, "has no field_behavior".to_owned());
}

/// AIP-4231, and AIP-123 of messages with a name of their own.
fn check_reference(schema: &Schema, field: &FieldDescriptor, require: &mut Require<'_>) {
    if field.kind() != Kind::String
        || field.is_map()
        || ["filter", "order_by", "page_token"].contains(&field.name())
    {
        return;
    }
    let message = field.parent_message();
    let names = PATTERN.is_match(schema.comment(field));
    if let Some(kind) = schema.reference(field) {
        let is_known = kind == "*" || kind.contains('/') && !kind.starts_with("loadmaster.");
        let is_resource = schema.resources.iter().any(|resource| resource.kind == kind);
        require(is_known || is_resource, 4231, format!("refers to {kind:?}, which is no resource"));
    } else if schema.resources.iter().any(|resource| resource.message == *message) && field.name() == "name" {
        // The resource's own name.
    } else if schema.requests.contains(message.full_name()) && ["name", "parent"].contains(&field.name())
        || names && field.name() != "name"
    {
        require(false, 4231, "names a resource and has no resource_reference".to_owned());
    } else {
        require(
            !names,
            123,
            "names a resource: its message has no google.api.resource, and it has no resource_reference"
                .to_owned(),
        );
    }
}

/// AIP-140 and AIP-141.
fn check_name(field: &FieldDescriptor, require: &mut Require<'_>) {
    let name = field.name();
    let last = name.rsplit('_').next().unwrap_or_default();
    require(SNAKE.is_match(name), 140, "is not lower_snake_case".to_owned());
    for word in name.split('_').filter(|_| !["order_by", "group_by"].contains(&name)) {
        require(!is_in(PREPOSITIONS, word), 140, format!("has the preposition {word:?}"));
    }
    require(!is_in(KEYWORDS, name), 140, "is a keyword of Rust or Java".to_owned());
    let is_plural =
        last.ends_with('s') && !last.ends_with("ss") || ["data", "children", "people"].contains(&last);
    if field.is_list() || field.is_map() {
        require(is_plural, 141, "is repeated, and its name is no plural".to_owned());
    } else if is_integer(field) {
        let is_number =
            is_plural && !is_in(UNITS, last) || name.starts_with("num_") || name.starts_with("number_of_");
        require(!is_number, 141, "is a number of things, and its name does not end in _count".to_owned());
    }
}

/// AIP-142.
fn check_time(schema: &Schema, field: &FieldDescriptor, require: &mut Require<'_>) {
    let name = field.name();
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    if is_message(field, "google.protobuf.Timestamp") {
        require(
            ends(&["_time", "_times"]),
            142,
            "is a Timestamp, and its name does not end in _time".to_owned(),
        );
    } else {
        let is_time = ends(&["_time", "_at", "_date", "_timestamp"]) || name == "time";
        require(
            !is_time || is_message(field, "google.protobuf.Duration"),
            142,
            "is a time, and no Timestamp".to_owned(),
        );
    }
    let is_limit = ["max", "min", "deadline", "timeout", "limit"]
        .iter()
        .any(|word| name.split('_').any(|one| one == *word));
    let is_request = schema.requests.contains(field.parent_message().full_name());
    let is_seconds = ends(&["_seconds", "_minutes", "_hours", "_days", "_millis", "_ms"])
        && !matches!(field.kind(), Kind::Message(_));
    let is_input = schema.inputs.contains(field.parent_message().full_name());
    require(
        !is_seconds || !(is_request || is_limit && is_input),
        142,
        "limits a time, and is no Duration".to_owned(),
    );
}

fn is_integer(field: &FieldDescriptor) -> bool {
    !matches!(
        field.kind(),
        Kind::Message(_)
            | Kind::Enum(_)
            | Kind::String
            | Kind::Bytes
            | Kind::Bool
            | Kind::Double
            | Kind::Float
    )
}

fn is_in(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|one| one == word)
}
