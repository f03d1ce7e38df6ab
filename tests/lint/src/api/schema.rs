//! The API's own files, messages and methods, with their options and comments.

use std::collections::{BTreeSet, HashMap};

use anyhow::Result;
use prost_reflect::{
    DescriptorPool, DynamicMessage, EnumDescriptor, FieldDescriptor, FileDescriptor, Kind, MessageDescriptor,
    MethodDescriptor, Value,
};

#[derive(Debug)]
pub(super) struct Schema {
    pool: DescriptorPool,
    comments: HashMap<(String, Vec<i32>), String>,
    pub(super) resources: Vec<Resource>,
    /// Messages that methods take.
    pub(super) requests: BTreeSet<String>,
    /// Messages that a client fills in: requests, resources, and messages in those that are not output only.
    pub(super) inputs: BTreeSet<String>,
}

#[derive(Debug, Clone)]
pub(super) struct Resource {
    pub(super) message: MessageDescriptor,
    pub(super) kind: String,
    pub(super) patterns: Vec<String>,
    pub(super) singular: String,
    pub(super) plural: String,
}

impl Schema {
    pub(super) fn decode(descriptors: &[u8]) -> Result<Self> {
        let pool = DescriptorPool::decode(descriptors)?;
        let mut comments = HashMap::new();
        for file in pool.files() {
            let locations =
                file.file_descriptor_proto().source_code_info.iter().flat_map(|info| &info.location);
            comments.extend(locations.map(|place| {
                ((file.name().to_owned(), place.path.clone()), place.leading_comments().to_owned())
            }));
        }
        let mut schema = Self {
            pool,
            comments,
            resources: Vec::new(),
            requests: BTreeSet::new(),
            inputs: BTreeSet::new(),
        };
        schema.resources = schema.messages().iter().filter_map(|message| schema.resource(message)).collect();
        schema.requests =
            schema.methods().iter().map(|method| method.input().full_name().to_owned()).collect();
        let resources = schema.resources.iter().map(|resource| resource.message.clone());
        let mut open: Vec<_> =
            schema.methods().iter().map(MethodDescriptor::input).chain(resources).collect();
        while let Some(message) = open.pop() {
            if is_own(&message.parent_file()) && schema.inputs.insert(message.full_name().to_owned()) {
                let given = message.fields().filter(|field| !schema.behaviors(field).contains("OUTPUT_ONLY"));
                open.extend(given.filter_map(|field| value_message(&field)));
            }
        }
        Ok(schema)
    }

    pub(super) fn files(&self) -> Vec<FileDescriptor> {
        self.pool.files().filter(is_own).collect()
    }

    pub(super) fn messages(&self) -> Vec<MessageDescriptor> {
        self.pool
            .all_messages()
            .filter(|message| is_own(&message.parent_file()) && !message.is_map_entry())
            .collect()
    }

    pub(super) fn enums(&self) -> Vec<EnumDescriptor> {
        self.pool.all_enums().filter(|one| is_own(&one.parent_file())).collect()
    }

    pub(super) fn methods(&self) -> Vec<MethodDescriptor> {
        let services = self.pool.services().filter(|service| is_own(&service.parent_file()));
        services.flat_map(|service| service.methods().collect::<Vec<_>>()).collect()
    }

    /// Comment before the element at `path` of a file.
    pub(super) fn comment(&self, file: &FileDescriptor, path: &[i32]) -> &str {
        let key = (file.name().to_owned(), path.to_vec());
        self.comments.get(&key).map_or("", String::as_str)
    }

    /// Value of the extension `name` in `options`, or nothing where it is unset or not imported.
    pub(super) fn option(&self, options: &DynamicMessage, name: &str) -> Option<Value> {
        let extension = self.pool.get_extension_by_name(name)?;
        options.has_extension(&extension).then(|| options.get_extension(&extension).into_owned())
    }

    pub(super) fn behaviors(&self, field: &FieldDescriptor) -> BTreeSet<String> {
        let names = self.pool.get_enum_by_name("google.api.FieldBehavior");
        let value = self.option(&field.options(), "google.api.field_behavior");
        let numbers = value.iter().filter_map(Value::as_list).flatten().filter_map(Value::as_enum_number);
        numbers.filter_map(|number| Some(names.as_ref()?.get_value(number)?.name().to_owned())).collect()
    }

    fn resource(&self, message: &MessageDescriptor) -> Option<Resource> {
        let option = self.option(&message.options(), "google.api.resource")?;
        let option = option.as_message()?;
        let patterns = option.get_field_by_name("pattern")?;
        Some(Resource {
            message: message.clone(),
            kind: string(option, "type"),
            patterns: patterns.as_list()?.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            singular: string(option, "singular"),
            plural: string(option, "plural"),
        })
    }

    /// Type of the resource that `field` refers to by name: `type`, or else `child_type`.
    pub(super) fn reference(&self, field: &FieldDescriptor) -> Option<String> {
        let option = self.option(&field.options(), "google.api.resource_reference")?;
        let option = option.as_message()?;
        Some(string(option, "type"))
            .filter(|kind| !kind.is_empty())
            .or_else(|| Some(string(option, "child_type")))
    }
}

/// String field of a message of options.
pub(super) fn string(message: &DynamicMessage, field: &str) -> String {
    message.get_field_by_name(field).and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Message of a field's values: of a map, that of its values.
pub(super) fn value_message(field: &FieldDescriptor) -> Option<MessageDescriptor> {
    let Kind::Message(message) = field.kind() else { return None };
    if !field.is_map() {
        return Some(message);
    }
    match message.map_entry_value_field().kind() {
        Kind::Message(value) => Some(value),
        _ => None,
    }
}

pub(super) fn is_message(field: &FieldDescriptor, name: &str) -> bool {
    matches!(field.kind(), Kind::Message(message) if message.full_name() == name)
}

pub(super) fn is_own(file: &FileDescriptor) -> bool {
    file.package_name().starts_with("loadmaster.")
}
