//! Changes of a request: paths of its fields with new values.

use serde_json::Value;

use crate::wire::{ToWire, v1};

/// A field of a request, with a value that it should have.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldChange {
    /// Path of the field: `problem.micro_batch_count`.
    pub field: &'static str,
    /// The value, in the JSON form of the field.
    pub value: Value,
}

impl FieldChange {
    /// Returns the change of a field. Values of enums have the names of the API.
    pub fn new(field: &'static str, value: impl Into<Value>) -> Self {
        Self { field, value: value.into() }
    }
}

impl From<&FieldChange> for v1::FieldChange {
    fn from(change: &FieldChange) -> Self {
        Self { field: change.field.to_owned(), value: Some(message(&change.value)) }
    }
}

impl ToWire<v1::FieldChange> for FieldChange {
    fn to_wire(&self) -> v1::FieldChange {
        self.into()
    }
}

/// Returns JSON as `google.protobuf.Value`.
fn message(value: &Value) -> prost_types::Value {
    use prost_types::value::Kind;

    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(is) => Kind::BoolValue(*is),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(values) => {
            Kind::ListValue(prost_types::ListValue { values: values.iter().map(message).collect() })
        }
        Value::Object(fields) => Kind::StructValue(prost_types::Struct {
            fields: fields.iter().map(|(name, value)| (name.clone(), message(value))).collect(),
        }),
    };
    prost_types::Value { kind: Some(kind) }
}
