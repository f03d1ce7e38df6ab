//! Clusters: nodes, devices, links and tiers.

mod copies;
mod domains;
pub mod links;

use loadmaster_proto::wire::v1::{Cluster, ClusterNode, ClusterSource};

use super::grid::Side::{Left, Right};
use super::grid::{Facts, Grid};
use super::{id, or_none};
use crate::show;
use crate::text::terminal_abilities::Look;
use crate::text::{bytes, count, plain, severity, time, word};
use links::{class, speed};

show!(Cluster as one);
show!(ListClustersResponse of clusters as list);

/// Most groups of equal nodes whose links are drawn one by one.
const MOST_MATRICES: usize = 4;

fn one(cluster: &Cluster, look: Look) -> String {
    let mut facts = Facts::default();
    facts.add("cluster", or_none(&cluster.name, look));
    facts.add("from", source(cluster));
    facts.add("nodes", count(cluster.node_count.into()));
    facts.add("devices", count(cluster.device_count.into()));
    facts.add("etag", &cluster.etag);
    facts.add("created", time(cluster.create_time.as_ref(), look));
    if cluster.update_time != cluster.create_time {
        facts.add("updated", time(cluster.update_time.as_ref(), look));
    }
    for warning in &cluster.warnings {
        facts.add(severity(warning), plain(&warning.message));
    }
    let mut text = facts.render() + "\n" + &kinds(cluster, look) + "\n" + &nodes(cluster, look);
    let groups = groups(&cluster.nodes);
    let drawn = groups.iter().filter(|group| !group[0].device_links.is_empty());
    for group in drawn.take(MOST_MATRICES) {
        text += &format!("\nlinks between the devices of {}\n", names(group));
        text += &links::draw_matrix(group[0], look);
    }
    for group in groups.iter().filter(|group| group[0].copy_links.is_some()).take(MOST_MATRICES) {
        text += &format!("\ncopies of memory optimizations on {}\n", names(group));
        text += &copies::draw_copies(group[0], look);
    }
    for group in groups.iter().filter(|group| !group[0].cpu_optimizer_speeds.is_empty()).take(MOST_MATRICES) {
        text += &format!("\nspeed of CPU optimizer steps on {}\n", names(group));
        text += &copies::draw_updates(&group[0].cpu_optimizer_speeds, look);
    }
    text + &domains::draw(cluster, look)
}

fn list(clusters: &[Cluster], look: Look) -> String {
    if clusters.is_empty() {
        return "no clusters\n".to_owned();
    }
    let columns = [
        ("cluster", Left),
        ("from", Left),
        ("nodes", Right),
        ("devices", Right),
        ("kinds (usable of memory, device)", Left),
        ("created", Left),
    ];
    let mut grid = Grid::new(&columns, look);
    for cluster in clusters {
        let kinds = cluster.kinds.iter().map(|kind| {
            let (usable, memory) = (bytes(kind.usable_memory_bytes), bytes(kind.memory_bytes));
            format!("{} {usable} of {memory}", plain(&kind.name))
        });
        grid.row([
            id(&cluster.name),
            source(cluster),
            count(cluster.node_count.into()),
            count(cluster.device_count.into()),
            kinds.collect::<Vec<_>>().join(", "),
            time(cluster.create_time.as_ref(), look),
        ]);
    }
    grid.render()
}

fn source(cluster: &Cluster) -> String {
    ClusterSource::try_from(cluster.source)
        .map_or_else(|_| "unknown".to_owned(), |of| word(of.as_str_name(), "CLUSTER_SOURCE_"))
}

fn kinds(cluster: &Cluster, look: Look) -> String {
    let columns = [
        ("kind", Left),
        ("devices", Right),
        ("memory (device)", Right),
        ("usable (allowed to training)", Right),
        ("price per device and hour", Right),
    ];
    let mut grid = Grid::new(&columns, look);
    for kind in &cluster.kinds {
        let devices = cluster.nodes.iter().flat_map(|node| &node.devices);
        let number = devices.filter(|device| device.kind == kind.name).count();
        grid.row([
            plain(&kind.name),
            count(i64::try_from(number).unwrap_or(i64::MAX)),
            bytes(kind.memory_bytes),
            bytes(kind.usable_memory_bytes),
            kind.hourly_price.map_or_else(|| look.none().to_owned(), |price| format!("{price}")),
        ]);
    }
    grid.render()
}

fn nodes(cluster: &Cluster, look: Look) -> String {
    let columns = [
        ("nodes", Left),
        ("number", Right),
        ("devices of each", Left),
        ("between its devices", Left),
        ("network", Left),
    ];
    let unsaid = || match cluster.tiers.is_empty() {
        true => look.none().to_owned(),
        false => "as tiers say".to_owned(),
    };
    let mut grid = Grid::new(&columns, look);
    for group in groups(&cluster.nodes) {
        let node = group[0];
        grid.row([
            names(&group),
            count(i64::try_from(group.len()).unwrap_or(i64::MAX)),
            devices(node, look),
            inside(node, look),
            network(node, look).unwrap_or_else(unsaid),
        ]);
    }
    grid.render()
}

/// Nodes that follow each other and differ in nothing but names and ids.
fn groups(nodes: &[ClusterNode]) -> Vec<Vec<&ClusterNode>> {
    let mut groups: Vec<Vec<&ClusterNode>> = Vec::new();
    for node in nodes {
        match groups.last_mut() {
            Some(group) if is_alike(group[0], node) => group.push(node),
            _ => groups.push(vec![node]),
        }
    }
    groups
}

fn is_alike(one: &ClusterNode, other: &ClusterNode) -> bool {
    let devices = |node: &ClusterNode| {
        node.devices.iter().map(|of| (of.index, of.kind.clone(), of.usable_memory_bytes)).collect::<Vec<_>>()
    };
    devices(one) == devices(other)
        && (one.link, one.link_class, &one.device_links, one.network, one.network_link_count)
            == (other.link, other.link_class, &other.device_links, other.network, other.network_link_count)
        && (&one.copy_links, &one.cpu_optimizer_speeds) == (&other.copy_links, &other.cpu_optimizer_speeds)
}

fn names(group: &[&ClusterNode]) -> String {
    match group {
        [] => String::new(),
        [only] => plain(&only.name),
        [first, .., last] => format!("{} .. {}", plain(&first.name), plain(&last.name)),
    }
}

/// `8 x NVIDIA H100`, by kind and by what training may use.
fn devices(node: &ClusterNode, look: Look) -> String {
    let mut kinds: Vec<(&str, Option<i64>, usize)> = Vec::new();
    for device in &node.devices {
        let key = (device.kind.as_str(), device.usable_memory_bytes);
        match kinds.iter_mut().find(|kind| (kind.0, kind.1) == key) {
            Some(kind) => kind.2 += 1,
            None => kinds.push((key.0, key.1, 1)),
        }
    }
    let kind = |(kind, usable, number): (&str, Option<i64>, usize)| {
        let usable = usable.map(|usable| format!(" ({} usable)", bytes(usable))).unwrap_or_default();
        format!("{number} {} {}{usable}", look.times(), plain(kind))
    };
    kinds.into_iter().map(kind).collect::<Vec<_>>().join(", ")
}

/// `100 GB/s, 5 us, given (4 links)`; none where tiers say it.
fn network(node: &ClusterNode, look: Look) -> Option<String> {
    let speed = speed(node.network.as_ref()?, look);
    Some(match node.network_link_count {
        Some(links) if links > 1 => format!("{speed} ({links} links)"),
        _ => speed,
    })
}

fn inside(node: &ClusterNode, look: Look) -> String {
    match (&node.link, node.device_links.is_empty()) {
        _ if node.devices.len() < 2 => look.none().to_owned(),
        (Some(link), true) => {
            format!("{} {}", class(node.link_class, 1), speed(link, look)).trim().to_owned()
        }
        _ => "see below".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::cluster::import::{ClusterFormat, ImportOptions, import};

    use super::*;

    const EXAMPLE: &str = include_str!("../../../../../deploy/clusters/two-kinds.yaml");

    /// Pins how a cluster is drawn: every bandwidth with unit and origin.
    #[test]
    fn a_cluster_is_drawn_with_units_and_origins() {
        let cluster = import(ClusterFormat::Loadmaster, EXAMPLE, &ImportOptions::default()).unwrap();
        let message =
            Cluster { name: "clusters/two".to_owned(), etag: "\"e\"".to_owned(), ..(&cluster).into() };
        assert_eq!(
            one(&message, Look::PLAIN),
            "\
cluster  clusters/two
from     written
nodes    12
devices  80
etag     \"e\"
created  -

kind                   devices  memory (device)  usable (allowed to training)  price per device and hour
NVIDIA H100 80GB HBM3       64        80.00 GiB                     76.00 GiB                        2.5
NVIDIA A100-SXM4-40GB       16        40.00 GiB                     38.00 GiB                        1.1

nodes       number  devices of each                                                          between its devices             network
h01 .. h08       8  8 x NVIDIA H100 80GB HBM3                                                NVLink 371 GB/s, 2 us, assumed  50 GB/s, 5 us, given
a01 .. a03       3  4 x NVIDIA A100-SXM4-40GB                                                NVLink 240 GB/s, 2 us, assumed  12.5 GB/s, 8 us, given
a04              1  3 x NVIDIA A100-SXM4-40GB, 1 x NVIDIA A100-SXM4-40GB (30.00 GiB usable)  see below                       12.5 GB/s, 8 us, given

links between the devices of a04
device          0          1          2          3
0               X  NV12 228m    SYS 16g    SYS 16g
1       NV12 228m          X    SYS 16g    SYS 16g
2         SYS 16g    SYS 16g          X  NV12 231m
3         SYS 16g    SYS 16g  NV12 231m          X
GB/s, one way; m measured, g given, a assumed

copies of memory optimizations on a04
copies                        out                       back                      both ways at once
device 3 - host               12 GB/s, 5 us, given      the same                  12 GB/s
each other device - host      25 GB/s, 5 us, measured   24 GB/s, 5 us, measured   full duplex
devices 0, 1 together - host  25 GB/s, measured         the same                  full duplex
devices 2, 3 together - host  25 GB/s, given            the same                  full duplex
device 0 - device 1           210 GB/s, 5 us, measured  205 GB/s, 5 us, measured  400 GB/s
host memory for blocks: 512.00 GiB

speed of CPU optimizer steps on a04
step       for one device alone  for all devices at once  origin
adam-bf16  700.0 M parameters/s    1200.0 M parameters/s  measured

tier, nearest first  domains  between its nodes
rack                       2  50 GB/s, 5 us, given
spine                      1  12.5 GB/s, 12 us, given

spine hall
  rack rack-1: h01 .. h08 (8 nodes)
  rack rack-2: a01 .. a04 (4 nodes)
"
        );
    }
}
