//! What a file of a cluster does not say, and clusters without a file.

use clap::Args;
use loadmaster_proto::cluster::import::hostlist;
use loadmaster_proto::cluster::priors;
use loadmaster_proto::wire::v1;

use crate::failure::Failure;
use crate::input::parse;

/// What a file does not say.
#[derive(Debug, Args)]
#[command(next_help_heading = "What the file does not say")]
pub(super) struct ImportArgs {
    /// Kind of the devices, as profiles name it: "NVIDIA H100 80GB HBM3".
    #[arg(long, value_name = "KIND")]
    device_kind: Option<String>,

    /// Bytes of each device, for example 80GiB.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    memory: Option<i64>,

    /// Bytes that training may use on each [default: all].
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    usable_memory: Option<i64>,

    /// Price of a device and hour, in any currency.
    #[arg(long, value_name = "PRICE")]
    hourly_price: Option<f64>,

    /// Devices of each node.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=128))]
    devices_per_node: Option<i32>,

    /// nccl-xml, nvidia-smi: the nodes that are like the one in the file, for example `gpu[001-016]` [default:
    /// node0].
    #[arg(long, value_name = "HOSTLIST")]
    nodes: Option<String>,

    /// Between two devices of a node, for example 371GB/s [default: assumed from the kind].
    #[arg(long, value_name = "BANDWIDTH", value_parser = parse::bandwidth)]
    link: Option<f64>,

    /// Each node's network, for example 400Gb/s [default: 12GB/s, assumed].
    #[arg(long, value_name = "BANDWIDTH", value_parser = parse::bandwidth)]
    network: Option<f64>,

    /// slurm-yaml: which of several topologies [default: its default one].
    #[arg(long, value_name = "NAME")]
    topology: Option<String>,
}

impl ImportArgs {
    pub(super) fn options(self) -> v1::ClusterImportOptions {
        v1::ClusterImportOptions {
            device_kind: self.device_kind.unwrap_or_default(),
            memory_bytes: self.memory.unwrap_or_default(),
            usable_memory_bytes: self.usable_memory.unwrap_or_default(),
            hourly_price: self.hourly_price,
            devices_per_node: self.devices_per_node.unwrap_or_default(),
            node_list: self.nodes.unwrap_or_default(),
            link_bytes_per_second: self.link.unwrap_or_default(),
            network_bytes_per_second: self.network.unwrap_or_default(),
            topology: self.topology.unwrap_or_default(),
        }
    }
}

/// A cluster of equal nodes.
#[derive(Debug, Args)]
pub(super) struct CreateArgs {
    /// Names of the nodes, for example `gpu[001-016]`.
    #[arg(long, value_name = "HOSTLIST")]
    nodes: String,

    /// Devices of each node.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=128))]
    devices_per_node: i32,

    /// Kind of the devices, as profiles name it: "NVIDIA H100 80GB HBM3".
    #[arg(long, value_name = "KIND")]
    device_kind: String,

    /// Bytes of each device, for example 80GiB.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    memory: i64,

    /// Bytes that training may use on each [default: all].
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    usable_memory: Option<i64>,

    /// Price of a device and hour, in any currency.
    #[arg(long, value_name = "PRICE")]
    hourly_price: Option<f64>,

    /// Between two devices of a node, for example 371GB/s [default: assumed from the kind].
    #[arg(long, value_name = "BANDWIDTH", value_parser = parse::bandwidth)]
    link: Option<f64>,

    /// Its latency, for example 3us [default: that of such links].
    #[arg(long, value_name = "LATENCY", value_parser = parse::latency, requires = "link")]
    link_latency: Option<f64>,

    /// Each node's network, for example 400Gb/s [default: 12GB/s, assumed].
    #[arg(long, value_name = "BANDWIDTH", value_parser = parse::bandwidth)]
    network: Option<f64>,

    /// Its latency, for example 5us [default: that of such networks].
    #[arg(long, value_name = "LATENCY", value_parser = parse::latency, requires = "network")]
    network_latency: Option<f64>,
}

impl CreateArgs {
    /// The options of an update without a file.
    ///
    /// # Errors
    /// Names the options that are missing.
    pub(super) fn of(
        options: ImportArgs,
        link_latency: Option<f64>,
        network_latency: Option<f64>,
    ) -> Result<Self, Failure> {
        let ImportArgs {
            device_kind,
            memory,
            usable_memory,
            hourly_price,
            devices_per_node,
            nodes,
            link,
            network,
            topology: _,
        } = options;
        let missing: Vec<&str> = [
            ("--nodes", nodes.is_none()),
            ("--devices-per-node", devices_per_node.is_none()),
            ("--device-kind", device_kind.is_none()),
            ("--memory", memory.is_none()),
        ]
        .into_iter()
        .filter_map(|(option, is_missing)| is_missing.then_some(option))
        .collect();
        let (Some(nodes), Some(devices_per_node), Some(device_kind), Some(memory)) =
            (nodes, devices_per_node, device_kind, memory)
        else {
            let why = format!("{} are missing: name them, or a file with --file", missing.join(", "));
            return Err(Failure::Usage(why));
        };
        Ok(Self {
            nodes,
            devices_per_node,
            device_kind,
            memory,
            usable_memory,
            hourly_price,
            link,
            link_latency,
            network,
            network_latency,
        })
    }

    pub(super) fn cluster(self) -> Result<v1::Cluster, Failure> {
        let names = hostlist::expand(&self.nodes).map_err(|why| Failure::Usage(format!("--nodes: {why}")))?;
        let (class, _, usual) = priors::of_kind(&self.device_kind, self.devices_per_node.unsigned_abs());
        let speed = |given: Option<f64>, latency: Option<f64>, usual: v1::LinkSpeed| match given {
            None => usual,
            Some(bytes_per_second) => v1::LinkSpeed {
                bytes_per_second,
                latency_seconds: latency.unwrap_or(usual.latency_seconds),
                origin: v1::SpeedOrigin::Given.into(),
            },
        };
        let link = speed(self.link, self.link_latency, usual.into());
        let network = speed(self.network, self.network_latency, priors::network().into());
        let kind = v1::DeviceKind {
            name: self.device_kind.clone(),
            memory_bytes: self.memory,
            usable_memory_bytes: self.usable_memory.unwrap_or_default(),
            hourly_price: self.hourly_price,
        };
        let device = |index| v1::ClusterDevice {
            index,
            kind: self.device_kind.clone(),
            ..v1::ClusterDevice::default()
        };
        let nodes = names.into_iter().map(|name| v1::ClusterNode {
            name,
            devices: (0..self.devices_per_node).map(device).collect(),
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
    use clap::Parser;
    use loadmaster_proto::cluster::{Cluster, LinkOrigin};

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        create: CreateArgs,
    }

    /// What is not said is assumed, and says so.
    #[test]
    fn equal_nodes_are_a_cluster() {
        let kind = "NVIDIA H100 80GB HBM3";
        let line =
            ["x", "--nodes", "h[1-4]", "--devices-per-node", "8", "--device-kind", kind, "--memory", "80GiB"];
        let more = ["--network", "400Gb/s", "--network-latency", "5us"];
        let create = Line::parse_from(line.into_iter().chain(more)).create;
        let cluster = Cluster::try_from(create.cluster().unwrap()).unwrap();
        assert_eq!((cluster.nodes().len(), cluster.device_count()), (4, 32));
        let node = &cluster.nodes()[3];
        assert_eq!((node.name.as_str(), node.link.unwrap().origin), ("h4", LinkOrigin::Assumed));
        let network = node.network.unwrap();
        assert_eq!((network.bytes_per_second, network.origin), (50e9, LinkOrigin::Given));
        let wrong = Line::parse_from([
            "x",
            "--nodes",
            "h[1-",
            "--devices-per-node",
            "8",
            "--device-kind",
            kind,
            "--memory",
            "1",
        ]);
        assert!(matches!(wrong.create.cluster(), Err(Failure::Usage(why)) if why.contains("--nodes")));
    }
}
