//! Nodes and devices of clusters on the command line, and files of clusters.

use std::path::Path;

use clap::Args;
use loadmaster_proto::cluster::import::{MAX_DOCUMENT_BYTES, hostlist};
use loadmaster_proto::cluster::priors;
use loadmaster_proto::wire::v1;

use crate::failure::Failure;
use crate::input::parse::choice;
use crate::input::{parse, read_file};

/// Nodes and devices: all of a cluster, or facts that its file does not contain.
#[derive(Debug, Args)]
#[command(next_help_heading = "Nodes and devices")]
pub(super) struct NodeArgs {
    /// Names of the nodes, for example `gpu[001-016]`. A file in nccl-xml or nvidia-smi describes one node: all nodes
    /// are like it [default with a file: node0].
    #[arg(long, value_name = "HOSTLIST")]
    nodes: Option<String>,

    /// Number of devices of each node.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=128))]
    devices_per_node: Option<i32>,

    /// Kind of the devices, as profiles name it: "NVIDIA H100 80GB HBM3".
    #[arg(long, value_name = "KIND")]
    device_kind: Option<String>,

    /// Memory of each device, for example 80GiB.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    device_memory: Option<i64>,

    /// Memory of each device that training may use, for example 76GiB [default: all].
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    usable_memory: Option<i64>,

    /// Price of a device per hour, in any currency.
    #[arg(long, value_name = "PRICE")]
    hourly_price: Option<f64>,

    /// Bandwidth between two devices of a node, for example 371GB/s [default: assumed from the kind].
    #[arg(long, value_name = "BANDWIDTH", value_parser = parse::bandwidth)]
    link_bandwidth: Option<f64>,

    /// Bandwidth of each node's network, for example 400Gb/s [default: 12GB/s, assumed].
    #[arg(long, value_name = "BANDWIDTH", value_parser = parse::bandwidth)]
    network_bandwidth: Option<f64>,
}

/// Latencies of a cluster without a file.
#[derive(Debug, Args)]
#[command(next_help_heading = "Nodes and devices")]
pub(super) struct LatencyArgs {
    /// Latency of a link between two devices, for example 3us [default: that of such links].
    #[arg(long, value_name = "LATENCY", value_parser = parse::latency, requires = "link_bandwidth")]
    link_latency: Option<f64>,

    /// Latency of each node's network, for example 5us [default: that of such networks].
    #[arg(long, value_name = "LATENCY", value_parser = parse::latency, requires = "network_bandwidth")]
    network_latency: Option<f64>,
}

/// How a file is read.
#[derive(Debug, Args)]
pub(super) struct FormatArgs {
    /// Format of the file [default: recognized from its content].
    #[arg(long, value_parser = choice::<v1::ClusterFormat>(), requires = "file")]
    format: Option<v1::ClusterFormat>,

    /// slurm-yaml: name of the topology to import, where the file has several [default: its default topology].
    #[arg(long, value_name = "NAME", requires = "file")]
    topology_name: Option<String>,
}

impl FormatArgs {
    /// The content of a cluster's file, with facts that it does not contain.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn read(self, path: &Path, nodes: NodeArgs) -> Result<v1::ClusterFile, Failure> {
        let options = v1::ClusterImportOptions {
            device_kind: nodes.device_kind.unwrap_or_default(),
            memory_bytes: nodes.device_memory.unwrap_or_default(),
            usable_memory_bytes: nodes.usable_memory.unwrap_or_default(),
            hourly_price: nodes.hourly_price,
            devices_per_node: nodes.devices_per_node.unwrap_or_default(),
            node_list: nodes.nodes.unwrap_or_default(),
            link_bytes_per_second: nodes.link_bandwidth.unwrap_or_default(),
            network_bytes_per_second: nodes.network_bandwidth.unwrap_or_default(),
            topology: self.topology_name.unwrap_or_default(),
        };
        let document = read_file("cluster file", path, MAX_DOCUMENT_BYTES)?;
        let format = self.format.unwrap_or_default().into();
        Ok(v1::ClusterFile { document, format, options: Some(options) })
    }
}

/// Marks the options without which there is no cluster of equal nodes.
pub(super) fn required_without_file(arg: clap::Arg) -> clap::Arg {
    let is_required =
        ["nodes", "devices_per_node", "device_kind", "device_memory"].contains(&arg.get_id().as_str());
    arg.required(is_required)
}

impl NodeArgs {
    /// A cluster of equal nodes.
    ///
    /// # Errors
    /// Names the options that are missing, or a list of nodes that is not valid.
    pub(super) fn cluster(self, latency: &LatencyArgs) -> Result<v1::Cluster, Failure> {
        let (Some(nodes), Some(devices_per_node), Some(device_kind), Some(device_memory)) =
            (self.nodes, self.devices_per_node, self.device_kind, self.device_memory)
        else {
            return Failure::usage(
                "a cluster of equal nodes needs --nodes, --devices-per-node, --device-kind and --device-memory. \
                 Set all four options, or name a cluster file with --file.",
            );
        };
        let names =
            hostlist::expand(&nodes).map_err(|why| Failure::Usage(format!("--nodes {nodes}: {why}")))?;
        let (class, _, usual) = priors::of_kind(&device_kind, devices_per_node.unsigned_abs());
        let speed = |given: Option<f64>, latency: Option<f64>, usual: v1::LinkSpeed| match given {
            None => usual,
            Some(bytes_per_second) => v1::LinkSpeed {
                bytes_per_second,
                latency_seconds: latency.unwrap_or(usual.latency_seconds),
                origin: v1::SpeedOrigin::Given.into(),
            },
        };
        let link = speed(self.link_bandwidth, latency.link_latency, usual.into());
        let network = speed(self.network_bandwidth, latency.network_latency, priors::network().into());
        let kind = v1::DeviceKind {
            name: device_kind.clone(),
            memory_bytes: device_memory,
            usable_memory_bytes: self.usable_memory.unwrap_or_default(),
            hourly_price: self.hourly_price,
        };
        let device =
            |index| v1::ClusterDevice { index, kind: device_kind.clone(), ..v1::ClusterDevice::default() };
        let nodes = names.into_iter().map(|name| v1::ClusterNode {
            name,
            devices: (0..devices_per_node).map(device).collect(),
            link: Some(link),
            link_class: v1::LinkClass::from(class).into(),
            network: Some(network),
            ..v1::ClusterNode::default()
        });
        Ok(v1::Cluster { kinds: vec![kind], nodes: nodes.collect(), ..v1::Cluster::default() })
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::cluster::{Cluster, LinkOrigin};

    use super::*;
    use crate::verbs::cluster::CreateCluster;
    use crate::verbs::tests::parsed;

    fn cluster(nodes: &str, more: &str) -> Result<v1::Cluster, Failure> {
        let line =
            format!("--nodes {nodes} --devices-per-node 8 --device-kind H100 --device-memory 80GiB {more}");
        let CreateCluster { nodes, latency, .. } = parsed(&line).unwrap();
        nodes.cluster(&latency)
    }

    /// Speeds that no option gives are assumed, and marked as assumed.
    #[test]
    fn equal_nodes_are_a_cluster() {
        let cluster =
            |nodes| cluster(nodes, "--network-bandwidth 400Gb/s --network-latency 5us --usable-memory 76GiB");
        let equal = Cluster::try_from(cluster("h[1-4]").unwrap()).unwrap();
        assert_eq!((equal.nodes().len(), equal.device_count()), (4, 32));
        let node = &equal.nodes()[3];
        assert_eq!((node.name.as_str(), node.link.unwrap().origin), ("h4", LinkOrigin::Assumed));
        let network = node.network.unwrap();
        assert_eq!((network.bytes_per_second, network.origin), (50e9, LinkOrigin::Given));
        assert!(matches!(cluster("h[1-"), Err(Failure::Usage(why)) if why.contains("--nodes h[1-")));
    }
}
