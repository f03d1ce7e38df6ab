//! Bindings.

use jiff::Timestamp;
use loadmaster_proto::name::BindingName;
use loadmaster_proto::plan::binding::Binding;

/// A stored binding.
#[derive(Debug, Clone, PartialEq)]
pub struct BindingRecord {
    pub name: BindingName,
    pub content: Binding,
    pub create_time: Timestamp,
}

/// A binding in short.
#[derive(Debug, Clone, PartialEq)]
pub struct BindingRow {
    /// Without its stages and idle devices.
    pub record: BindingRecord,
    /// The nodes that have ranks, in the order of these.
    pub nodes: Vec<String>,
}
