//! What a file of a cluster does not say.

use super::{ClusterFormat, ImportOptions};
use crate::error::Invalid;
use crate::message;
use crate::wire::{field, v1};

message! {
    ImportOptions <= v1::ClusterImportOptions {
        device_kind,
        memory = memory_bytes,
        usable_memory = usable_memory_bytes,
        hourly_price,
        devices_per_node,
        nodes,
        link_bytes_per_second,
        network_bytes_per_second,
        topology,
    }
}

impl ClusterFormat {
    /// The format of a file; what the text looks like where the message does not say.
    ///
    /// # Errors
    /// When neither says; the violation's path is `name`.
    pub fn of_document(name: &str, wire: i32, text: &str) -> Result<Self, Invalid> {
        match field::<Option<Self>, _>(name, wire)?.or_else(|| Self::detect(text)) {
            Some(format) => Ok(format),
            None => Err(Invalid::field(
                name,
                "is required: the text looks like none of loadmaster, topograph, nccl-xml, slurm-yaml, slurm-conf and \
                 nvidia-smi",
            )),
        }
    }
}
