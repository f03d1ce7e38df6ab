//! Rules of fields: their behaviour, references to resources, names and types.

use std::sync::LazyLock;

use prost_reflect::{FieldDescriptor, Kind};
use regex_lite::Regex;

use super::schema::{Schema, is_message};
use super::{Element, Finding};
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

pub(super) fn check(schema: &Schema, findings: &mut Vec<Finding>) {
    for message in schema.messages() {
        for field in message.fields() {
            let (file, name) = (field.parent_file().name().to_owned(), field.full_name().to_owned());
            check_field(schema, &field, &mut Element { findings, file, name });
        }
    }
}

fn check_field(schema: &Schema, field: &FieldDescriptor, at: &mut Element<'_>) {
    check_behavior(schema, field, at);
    check_reference(schema, field, at);
    check_name(field, at);
    check_time(schema, field, at);
    let has_format = schema.option(&field.options(), "google.api.field_info").is_some();
    let has_comment = schema.comment(&field.parent_file(), field.path()).contains("UUID4");
    at.require(field.name() != "request_id" || has_format || has_comment, 155, "has no format UUID4");
}

/// AIP-203. A member of a oneof is never required by itself.
fn check_behavior(schema: &Schema, field: &FieldDescriptor, at: &mut Element<'_>) {
    let behaviors = schema.behaviors(field);
    let enough = ["REQUIRED", "OPTIONAL", "OUTPUT_ONLY", "IMMUTABLE", "IDENTIFIER"];
    let has_one = enough.iter().any(|one| behaviors.contains(*one));
    let is_member = field.containing_oneof().is_some_and(|oneof| !oneof.is_synthetic());
    let is_input = schema.inputs.contains(field.parent_message().full_name());
    at.require(has_one || is_member || !is_input, 203, "has no field_behavior");
}

/// AIP-4231, and AIP-123 of messages with a name of their own.
fn check_reference(schema: &Schema, field: &FieldDescriptor, at: &mut Element<'_>) {
    let is_name =
        field.kind() == Kind::String && !["filter", "order_by", "page_token"].contains(&field.name());
    if !is_name {
        return;
    }
    let message = field.parent_message();
    let is_request = schema.requests.contains(message.full_name());
    let names = PATTERN.is_match(schema.comment(&field.parent_file(), field.path()));
    if let Some(kind) = schema.reference(field) {
        let is_known = kind == "*" || kind.contains('/') && !kind.starts_with("loadmaster.");
        let is_resource = schema.resources.iter().any(|resource| resource.kind == kind);
        at.require(is_known || is_resource, 4231, format!("refers to {kind:?}, which is no resource"));
    } else if is_request && ["name", "parent"].contains(&field.name()) || names && field.name() != "name" {
        at.require(false, 4231, "names a resource and has no resource_reference");
    } else {
        let is_resource = schema.resources.iter().any(|resource| resource.message == *message);
        at.require(
            !names || is_resource,
            123,
            "its message has no google.api.resource, and it has no resource_reference",
        );
    }
}

/// AIP-140 and AIP-141.
fn check_name(field: &FieldDescriptor, at: &mut Element<'_>) {
    let name = field.name();
    let last = name.rsplit('_').next().unwrap_or_default();
    at.require(SNAKE.is_match(name), 140, "is not lower_snake_case");
    for word in name.split('_').filter(|_| !["order_by", "group_by"].contains(&name)) {
        at.require(!is_in(PREPOSITIONS, word), 140, format!("has the preposition {word:?}"));
    }
    at.require(!is_in(KEYWORDS, name), 140, "is a keyword of Rust or Java");
    let is_plural =
        last.ends_with('s') && !last.ends_with("ss") || ["data", "children", "people"].contains(&last);
    if field.is_list() || field.is_map() {
        at.require(is_plural, 141, "is repeated, and its name is no plural");
    } else if is_integer(field) {
        let is_number =
            is_plural && !is_in(UNITS, last) || name.starts_with("num_") || name.starts_with("number_of_");
        at.require(!is_number, 141, "is a number of things, and its name does not end in _count");
    }
}

/// AIP-142.
fn check_time(schema: &Schema, field: &FieldDescriptor, at: &mut Element<'_>) {
    let name = field.name();
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    let is_stamp = is_message(field, "google.protobuf.Timestamp");
    let is_duration = is_message(field, "google.protobuf.Duration");
    let is_named = ends(&["_time", "_times"]);
    let is_time = is_named || ends(&["_at", "_date", "_timestamp"]) || name == "time";
    at.require(is_named || !is_stamp, 142, "is a Timestamp, and its name does not end in _time");
    at.require(is_stamp || is_duration || !is_time, 142, "is a time, and no Timestamp");
    let is_seconds = ends(&["_seconds", "_minutes", "_hours", "_days", "_millis", "_ms"]) && !is_duration;
    let is_limit = name.split('_').any(|word| ["max", "min", "deadline", "timeout", "limit"].contains(&word));
    let message = field.parent_message().full_name();
    let is_given = schema.requests.contains(message) || is_limit && schema.inputs.contains(message);
    at.require(!is_seconds || !is_given, 142, "limits a time, and is no Duration");
}

fn is_integer(field: &FieldDescriptor) -> bool {
    let integers = [Kind::Int32, Kind::Int64, Kind::Uint32, Kind::Uint64, Kind::Sint32, Kind::Sint64];
    integers.contains(&field.kind())
}

fn is_in(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|one| one == word)
}
