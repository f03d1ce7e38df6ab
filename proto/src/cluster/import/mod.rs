//! Clusters from the files that schedulers and NVIDIA's tools write. Pure: text in, cluster out.
//!
//! | format | says | does not say |
//! |---|---|---|
//! | [`ClusterFormat::Loadmaster`] | everything: written by hand | – |
//! | [`ClusterFormat::Topograph`] | nodes, switches, NVLink domains | devices, bandwidths |
//! | [`ClusterFormat::NcclXml`] | the devices and links of a node, its network cards; of all nodes of an NVLink domain | names, memory |
//! | [`ClusterFormat::SlurmYaml`], [`ClusterFormat::SlurmConf`] | nodes, switches, blocks, rings or toruses | devices, bandwidths |
//! | [`ClusterFormat::NvidiaSmi`] | the devices and links of one node | names, memory, network |
//!
//! What a file does not say comes from [`ImportOptions`]. Bandwidths that neither says are assumed from the
//! class of the link and marked so.

mod blocks;
mod document;
mod fill;
pub mod hostlist;
mod nccl;
mod nvidia_smi;
mod nvlink;
mod slurm_conf;
mod slurm_yaml;
#[cfg(test)]
mod tests;
mod topograph;
mod tree;

use serde::{Deserialize, Serialize};

use super::{Cluster, doubts};
use crate::bytes::Bytes;
use crate::error::Invalid;
use crate::wire::reading::{self, Wanted, always};
use crate::wire::{field, v1};
use crate::{choice, message};

pub(super) use blocks::LEVEL as BLOCKS;
pub use document::FORMAT;

/// Longest file that is read, bytes.
pub const MAX_DOCUMENT_BYTES: usize = 8 << 20;

/// What a file describes a cluster in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClusterFormat {
    /// Loadmaster's own, YAML or JSON: `format: loadmaster.cluster/1`.
    Loadmaster,
    /// Answer of NVIDIA Topograph's engine `graph`: JSON.
    Topograph,
    /// Topology of NCCL, as `NCCL_TOPO_DUMP_FILE` names it: XML.
    NcclXml,
    /// Slurm's `topology.yaml`.
    SlurmYaml,
    /// Slurm's `topology.conf`, or what `scontrol show topology` prints.
    SlurmConf,
    /// Text of `nvidia-smi topo -m`.
    NvidiaSmi,
}

choice! {
    ClusterFormat = v1::ClusterFormat {
        Loadmaster, Topograph, NcclXml, SlurmYaml, SlurmConf, NvidiaSmi,
    }
}

/// What a file does not say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImportOptions {
    /// Kind of all devices, as profiles name it.
    pub device_kind: Option<String>,
    /// Bytes of each device.
    pub memory: Option<Bytes>,
    /// Bytes that training may use on each; all unless set.
    pub usable_memory: Option<Bytes>,
    /// Price of a device and hour.
    pub hourly_price: Option<f64>,
    /// Devices of each node.
    pub devices_per_node: Option<u32>,
    /// Names of the nodes that are like the one in the file, as a hostlist: `gpu[001-016]`.
    pub nodes: Option<String>,
    /// Bytes per second between two devices of a node, where the file does not say.
    pub link_bytes_per_second: Option<f64>,
    /// Bytes per second of each node's network, where the file does not say.
    pub network_bytes_per_second: Option<f64>,
    /// Which of several topologies; the default one unless set.
    pub topology: Option<String>,
}

/// The cluster that a file describes.
///
/// # Errors
/// Names the place in the file below `document`, or the field of the options that is missing or wrong below
/// `options`.
pub fn import(format: ClusterFormat, text: &str, options: &ImportOptions) -> Result<Cluster, Invalid> {
    import_while(format, text, options, &always)
}

/// [`import`] as long as the cluster is wanted.
///
/// # Errors
/// As there, or that it is not wanted any more.
pub fn import_while(
    format: ClusterFormat,
    text: &str,
    options: &ImportOptions,
    wanted: Wanted<'_>,
) -> Result<Cluster, Invalid> {
    reading::check(wanted).map_err(|invalid| invalid.under("document"))?;
    if text.len() > MAX_DOCUMENT_BYTES {
        return Err(invalid!("document", "has {} bytes. Use at most {MAX_DOCUMENT_BYTES}", text.len()));
    }
    if text.trim().is_empty() {
        return Err(Invalid::field("document", "is empty"));
    }
    fill::check(options)?;
    let parts = match format {
        ClusterFormat::Loadmaster => document::parts(text, wanted),
        ClusterFormat::Topograph => topograph::parts(text, options, wanted),
        ClusterFormat::NcclXml => nccl::parts(text, options, wanted),
        ClusterFormat::SlurmYaml => slurm_yaml::parts(text, options, wanted),
        ClusterFormat::SlurmConf => slurm_conf::parts(text, options, wanted),
        ClusterFormat::NvidiaSmi => nvidia_smi::parts(text, options, wanted),
    };
    let parts = parts.map(|parts| doubts::doubted(nvlink::across_nodes(parts, options)));
    parts.and_then(|parts| Cluster::new_while(parts, wanted)).map_err(|invalid| {
        let is_option = invalid.violations().iter().all(|violation| violation.field.starts_with("options"));
        if is_option { invalid } else { invalid.under("document") }
    })
}

impl ClusterFormat {
    /// What a text looks like; none where it looks like nothing that is known.
    pub fn detect(text: &str) -> Option<Self> {
        let start = text.trim_start();
        let has = |words: &[&str]| words.iter().all(|word| text.contains(word));
        let lower = || text.lines().map(|line| line.trim_start().to_ascii_lowercase());
        if start.starts_with('<') {
            return Some(Self::NcclXml);
        }
        if has(&["loadmaster.cluster/"]) {
            return Some(Self::Loadmaster);
        }
        if has(&["\"instances\""]) {
            return Some(Self::Topograph);
        }
        if has(&["GPU0", "X"]) {
            return Some(Self::NvidiaSmi);
        }
        let names = ["switchname", "blockname", "aggregatedblock", "ringname", "torusname"];
        let is_named = |line: String| {
            let key = line.split_once('=').map(|(key, _)| key.trim_end().to_owned());
            key.is_some_and(|key| names.contains(&key.as_str()))
        };
        if lower().any(is_named) {
            return Some(Self::SlurmConf);
        }
        let is_yaml = lower().any(|line| line.trim_start_matches("- ").starts_with("topology:"));
        is_yaml.then_some(Self::SlurmYaml)
    }
}

message! {
    ImportOptions <= v1::ClusterImportOptions {
        device_kind,
        memory = memory_bytes,
        usable_memory = usable_memory_bytes,
        hourly_price,
        devices_per_node,
        nodes = node_list,
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
                "is required: the format of the text is not recognized. Use loadmaster, topograph, nccl-xml, \
                 slurm-yaml, slurm-conf or nvidia-smi",
            )),
        }
    }
}
