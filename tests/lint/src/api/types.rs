//! Rules of files, resources and enums.

use prost_reflect::{EnumDescriptor, FileDescriptor, Value};

use super::schema::{Resource, Schema, string};
use super::{Element, Finding};

pub(super) fn check(schema: &Schema, findings: &mut Vec<Finding>) {
    schema.files().iter().for_each(|file| check_file(file, findings));
    schema.resources.iter().for_each(|resource| check_resource(resource, findings));
    schema.enums().iter().for_each(|one| check_enum(one, findings));
}

/// AIP-191.
fn check_file(file: &FileDescriptor, findings: &mut Vec<Finding>) {
    let options = file.options();
    let (file, name) = (file.name().to_owned(), file.name().to_owned());
    let at = &mut Element { findings, file, name };
    let mut require = |holds, text| at.require(holds, 191, text);
    require(!string(&options, "go_package").is_empty(), "has no go_package");
    require(!string(&options, "java_package").is_empty(), "has no java_package");
    require(
        string(&options, "java_outer_classname").ends_with("Proto"),
        "has no java_outer_classname that ends in Proto",
    );
    let multiple = options.get_field_by_name("java_multiple_files");
    require(multiple.is_some_and(|value| *value == Value::Bool(true)), "java_multiple_files is not true");
}

/// AIP-123.
fn check_resource(resource: &Resource, findings: &mut Vec<Finding>) {
    let Resource { message, kind, patterns, singular, plural } = resource;
    let (file, element) = (message.parent_file().name().to_owned(), message.full_name().to_owned());
    let at = &mut Element { findings, file, name: element };
    let mut require = |holds, text: String| at.require(holds, 123, text);
    let (service, name) = kind.split_once('/').unwrap_or(("", kind));
    require(
        !service.is_empty() && name == message.name(),
        format!("its type {kind:?} is not `service/{}`", message.name()),
    );
    let mut letters = name.chars();
    let lower: String = letters.next().into_iter().flat_map(char::to_lowercase).chain(letters).collect();
    require(*singular == lower, format!("its singular {singular:?} is not {lower:?}"));
    require(!plural.is_empty() && plural != singular, format!("its plural is {plural:?}"));
    require(!patterns.is_empty(), "it has no pattern".to_owned());
    for pattern in patterns {
        let collection = pattern.rsplit('/').nth(1).unwrap_or_default();
        require(
            plural.to_lowercase().ends_with(&collection.to_lowercase()) && !collection.is_empty(),
            format!("the last collection of its pattern {pattern:?} is not its plural {plural:?}"),
        );
    }
    let is_string =
        message.get_field_by_name("name").is_some_and(|field| field.kind() == prost_reflect::Kind::String);
    require(is_string, "it has no string field `name`".to_owned());
}

/// AIP-126. The values of a nested enum may lack its name as their prefix.
fn check_enum(one: &EnumDescriptor, findings: &mut Vec<Finding>) {
    let (file, name) = (one.parent_file().name().to_owned(), one.full_name().to_owned());
    let zero = one.get_value(0).map_or_else(String::new, |value| value.name().to_owned());
    let expected = format!("{}_UNSPECIFIED", upper_snake(one.name()));
    let is_nested = one.parent_message().is_some() && format!("_{zero}").ends_with("_UNSPECIFIED");
    let text = format!("its value 0 is {zero:?}, not {expected}");
    Element { findings, file, name }.require(zero == expected || is_nested, 126, text);
}

/// `ClusterSource` is `CLUSTER_SOURCE`, `IOKind` is `IO_KIND`.
fn upper_snake(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut snake = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let after_lower = at > 0 && !letters[at - 1].is_uppercase();
        let before_lower = at > 0 && letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        if letter.is_uppercase() && (after_lower || before_lower) {
            snake.push('_');
        }
        snake.extend(letter.to_uppercase());
    }
    snake
}

pub(super) fn lower_snake(name: &str) -> String {
    upper_snake(name).to_lowercase()
}
