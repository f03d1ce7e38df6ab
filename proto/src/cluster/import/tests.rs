//! What each kind of file becomes, and that hostile ones are refused.

mod links;

use proptest::prelude::*;

use super::super::{LinkClass, LinkOrigin};
use super::*;
use crate::name::HOSTILE_HOSTS;
use crate::training::step_kind::StepKind;
use crate::wire::v1;

const TOPOGRAPH: &str = include_str!("fixtures/topograph.json");
const TOPOGRAPH_ATTRIBUTES: &str = include_str!("fixtures/topograph-attributes.json");
const NCCL_H100: &str = include_str!("fixtures/nccl-h100.xml");
const NCCL_A100: &str = include_str!("fixtures/nccl-a100-pairs.xml");
const SLURM_TREE: &str = include_str!("fixtures/topology.conf");
const SLURM_BLOCKS: &str = include_str!("fixtures/blocks.conf");
const SLURM_YAML: &str = include_str!("fixtures/topology.yaml");
const NVIDIA_SMI: &str = include_str!("fixtures/nvidia-smi.txt");
const EXAMPLE: &str = include_str!("../../../../deploy/clusters/two-kinds.yaml");

fn options(kind: &str, devices: u32) -> ImportOptions {
    ImportOptions {
        device_kind: Some(kind.to_owned()),
        memory: Some(Bytes(80 << 30)),
        devices_per_node: Some(devices),
        ..ImportOptions::default()
    }
}

fn read(text: &str, options: &ImportOptions) -> Cluster {
    import(ClusterFormat::detect(text).unwrap(), text, options).unwrap()
}

/// The only violation: field and description.
fn refused(format: ClusterFormat, text: &str, options: &ImportOptions) -> (String, String) {
    let invalid = import(format, text, options).unwrap_err();
    let [violation] = invalid.violations() else { panic!("{invalid}") };
    (violation.field.clone(), violation.description.clone())
}

fn domain<'a>(cluster: &'a Cluster, node: &str, tier: usize) -> Option<&'a str> {
    let node = cluster.nodes().iter().position(|of| of.name == node).unwrap();
    cluster.domain_of(node, tier).map(|domain| cluster.domains()[domain].name.as_str())
}

#[test]
fn the_example_is_a_cluster_of_two_kinds() {
    let cluster = read(EXAMPLE, &ImportOptions::default());
    assert_eq!((cluster.nodes().len(), cluster.device_count()), (12, 80));
    assert_eq!(cluster.kinds()[0].usable, Bytes(76 << 30));
    assert_eq!(cluster.usable(&cluster.nodes()[11].devices[3]), Bytes(30 << 30));
    let node = |name: &str| cluster.nodes().iter().find(|of| of.name == name).unwrap();
    assert_eq!(node("h03").network.unwrap().bytes_per_second, 50e9);
    assert_eq!(node("h03").link.unwrap().origin, LinkOrigin::Assumed);
    assert_eq!(node("a01").link.unwrap().bytes_per_second, 12.0 * 20e9);
    let measured = node("a04").link_between(1, 0).unwrap();
    assert_eq!((measured.bytes_per_second, measured.origin), (228e9, LinkOrigin::Measured));
    assert_eq!(node("a04").link_between(0, 2).unwrap().bytes_per_second, 16e9);
    assert_eq!((domain(&cluster, "a02", 0), domain(&cluster, "a02", 1)), (Some("rack-2"), Some("hall")));
}

#[test]
fn topograph_names_layers_and_nvlink_domains() {
    let cluster = read(TOPOGRAPH, &options("NVIDIA GB200", 4));
    let levels: Vec<&str> = cluster.tiers().iter().map(|tier| tier.level.as_str()).collect();
    assert_eq!(levels, ["nvlink", "layer-0", "layer-1", "layer-2"]);
    assert_eq!(domain(&cluster, "gb200-3", 0), Some("nvlink/nvl-2"));
    assert_eq!(domain(&cluster, "gb200-3", 1), Some("layer-0/leaf-c"));
    assert_eq!(domain(&cluster, "gb200-3", 3), Some("layer-2/core"));
    // Nodes of one NVLink domain are linked by NVLink, so no network card is in their way.
    assert!(cluster.nodes().iter().all(|node| node.network.is_none()));
    assert_eq!(cluster.tiers()[0].link.unwrap().bytes_per_second, 18.0 * 40.1e9);
    assert_eq!(cluster.nodes()[0].labels["nvidia.com/gpu.product"], "NVIDIA-GB200");

    let older = read(TOPOGRAPH_ATTRIBUTES, &options("NVIDIA H100 80GB HBM3", 8));
    assert_eq!((older.tiers().len(), older.device_count()), (2, 24));
    assert!(older.nodes().iter().all(|node| node.network.unwrap().origin == LinkOrigin::Assumed));
    let crossed = TOPOGRAPH_ATTRIBUTES.replacen("\"s1\"", "\"s9\"", 1);
    let (field, why) = refused(ClusterFormat::Topograph, &crossed, &options("x", 8));
    assert!(
        field == "document.instances[1].network_layers[0]" && why.contains("layer-1/s9"),
        "{field}: {why}"
    );
}

#[test]
fn nccl_counts_the_links_through_switches_and_flags_a_gpu_without_any() {
    let cluster = read(NCCL_H100, &options("NVIDIA H100 80GB HBM3", 3));
    let [node] = cluster.nodes() else { panic!("one node") };
    let link = |a, b| *node.links.iter().find(|link| (link.a, link.b) == (a, b)).unwrap();
    assert_eq!((link(0, 1).class, link(0, 1).count), (Some(LinkClass::NvLink), 18));
    assert!((link(0, 1).link.bytes_per_second - 370.8e9).abs() < 1e6);
    assert_eq!((link(0, 2).class, link(0, 2).count), (Some(LinkClass::System), 1));
    assert_eq!(link(0, 2).link.origin, LinkOrigin::Assumed);
    let [warning] = cluster.warnings() else { panic!("{:?}", cluster.warnings()) };
    assert!(warning.message.contains("GPU 2 (0000:9a:00.0) has no NVLink"), "{warning}");
    assert_eq!(node.devices[1].pci_bus_id, "0000:29:00.0");
    // Two cards of 400 Gbit/s.
    assert!((node.network.unwrap().bytes_per_second - 96e9).abs() < 1e3);
}

#[test]
fn nccl_tells_bridges_processors_and_sockets_apart() {
    let options = ImportOptions { nodes: Some("a[0-3]".to_owned()), ..options("NVIDIA A100 80GB PCIe", 4) };
    let cluster = read(NCCL_A100, &options);
    assert_eq!(cluster.nodes().len(), 4);
    let node = &cluster.nodes()[3];
    let link = |a, b| *node.links.iter().find(|link| (link.a, link.b) == (a, b)).unwrap();
    assert_eq!((link(0, 1).class, link(0, 1).link.bytes_per_second), (Some(LinkClass::NvLink), 240e9));
    // Sixteen and eight lanes of the fourth generation: the narrower counts.
    assert_eq!((link(2, 3).class, link(2, 3).link.bytes_per_second), (Some(LinkClass::PcieBridge), 12e9));
    assert_eq!(link(0, 2).class, Some(LinkClass::System));
    let apart = NCCL_A100.replace("<nvlink target=\"0002:00:00.0\" count=\"12\" tclass=\"0x030200\"/>", "");
    let apart = apart.replace("<nvlink target=\"0001:00:00.0\" count=\"12\" tclass=\"0x030200\"/>", "");
    let node = &read(&apart, &options).nodes()[0].clone();
    assert_eq!(node.links[0].class, Some(LinkClass::HostBridge));
    let unequal =
        NCCL_A100.replace("target=\"0001:00:00.0\" count=\"12\"", "target=\"0001:00:00.0\" count=\"6\"");
    let (field, why) = refused(ClusterFormat::NcclXml, &unequal, &options);
    assert!(
        field.ends_with("links[1].bandwidth") && why.contains("the opposite direction"),
        "{field}: {why}"
    );
}

/// Host links come from widths and speeds of PCIe, flagged as assumed; those below one switch share its link.
#[test]
fn nccl_says_how_gpus_reach_the_host_and_which_share_a_switch() {
    let options = ImportOptions { nodes: Some("a[0-3]".to_owned()), ..options("NVIDIA A100 80GB PCIe", 4) };
    let node = &read(NCCL_A100, &options).nodes()[3].clone();
    let rate = |device| {
        node.host_link_of(device).map(|link| (link.out.bytes_per_second, link.back.bytes_per_second))
    };
    // Virtual machines hide width and speed: the third generation, as NCCL has it. Eight lanes of the fourth are as many.
    let (third, fourth) = (Some((12e9, 12e9)), Some((24e9, 24e9)));
    assert_eq!([0, 1, 2, 3].map(rate), [third, third, fourth, third]);
    assert!(node.devices.iter().all(|device| {
        let link = node.host_link_of(device.index).unwrap();
        link.origin() == LinkOrigin::Assumed && link.both_bytes_per_second.is_none()
    }));
    let copies = node.copies.as_ref().unwrap();
    let [uplink] = copies.uplinks.as_slice() else { panic!("{copies:?}") };
    assert_eq!(
        (&uplink.devices[..], uplink.bytes_per_second, uplink.origin),
        (&[2, 3][..], 24e9, LinkOrigin::Assumed)
    );
    assert_eq!(copies.host_memory, None, "no topology says how much memory there is");

    // A narrow bridge makes the GPU below it slow; alone below one it shares nothing.
    let narrow = NCCL_H100.replacen(
        "link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"",
        "link_speed=\"8.0 GT/s PCIe\" link_width=\"8\"",
        1,
    );
    let cluster = read(&narrow, &self::options("NVIDIA H100 80GB HBM3", 3));
    let node = &cluster.nodes()[0];
    let rates = [0, 1, 2].map(|device| node.host_link_of(device).unwrap().out.bytes_per_second);
    assert_eq!(rates, [6e9, 48e9, 48e9]);
    assert!(node.copies.as_ref().unwrap().uplinks.is_empty());
    // Files that say nothing of PCIe leave it open.
    let smi = read(NVIDIA_SMI, &self::options("NVIDIA H100 80GB HBM3", 4));
    assert!(smi.nodes().iter().all(|node| node.copies.is_none()));
}

/// Copies as people write them; half duplex is both directions sharing the faster one's rate.
#[test]
fn a_document_says_how_copies_go() {
    let text = |host: &str| {
        format!(
            "format: loadmaster.cluster/1\nkinds: [{{name: gpu, memory: 80GiB}}]\nnodes:\n  - {{name: n, kind: gpu, devices: 3, {host}}}\n"
        )
    };
    let all = "host: {memory: 512GiB, link: {bandwidth: 24GB/s, back: 20GB/s, latency: 4us, origin: measured}, links: \
               [{device: 2, bandwidth: 12GB/s, duplex: half}], uplinks: [{devices: [1, 0], bandwidth: 25GB/s}], updates: \
               [{step: adam-fp32, rate: 7e8, together: 1.2G/s, origin: measured}, {step: sgd-bf16, rate: 2G/s}]}, peers: \
               [{a: 1, b: 0, bandwidth: 90GB/s, back: 80GB/s, both: 100GB/s}]";
    let cluster = read(&text(all), &ImportOptions::default());
    let node = &cluster.nodes()[0];
    let copies = node.copies.as_ref().unwrap();
    assert_eq!(copies.host_memory, Some(Bytes(512 << 30)));
    let first = node.host_link_of(0).unwrap();
    assert_eq!((first.out.bytes_per_second, first.back.bytes_per_second), (24e9, 20e9));
    assert_eq!((first.back.latency_seconds, first.origin()), (4e-6, LinkOrigin::Measured));
    let last = node.host_link_of(2).unwrap();
    assert_eq!((last.both_bytes_per_second, last.origin()), (Some(12e9), LinkOrigin::Given));
    assert_eq!((&copies.uplinks[0].devices[..], copies.uplinks[0].bytes_per_second), (&[0, 1][..], 25e9));
    // Written from 1 to 0: the other way round it is the way back.
    let [there, back] = [node.copies_between(0, 1).unwrap(), node.copies_between(1, 0).unwrap()];
    assert_eq!((there.out.bytes_per_second, back.out.bytes_per_second), (80e9, 90e9));
    assert_eq!(there.both_bytes_per_second, Some(100e9));
    // A pair without copies of its own has those of its link.
    assert_eq!(node.copies_between(0, 2).unwrap().out, node.link_between(0, 2).unwrap());
    let adam = node.host_update(StepKind::AdamFp32).unwrap();
    assert_eq!((adam.parameters_per_second, adam.together_per_second), (7e8, Some(1.2e9)));
    let sgd = node.host_update(StepKind::SgdBf16).unwrap();
    assert_eq!((sgd.of_each(3), sgd.origin), (2e9, LinkOrigin::Given));
    // No one set it of momentum: 32 bytes 700 million times a second are 20 bytes 1.12 billion times.
    let momentum = node.host_update(StepKind::MomentumBf16).unwrap();
    assert_eq!((momentum.parameters_per_second, momentum.origin), (1.12e9, LinkOrigin::Measured));
    assert_eq!(serde_json::from_str::<Cluster>(&serde_json::to_string(&cluster).unwrap()).unwrap(), cluster);

    for (host, field, why) in [
        ("host: {link: {bandwidth: 0}}", "document.nodes[0].copies.host_link.out.bandwidth", "Use 1 to"),
        (
            "host: {link: {bandwidth: 1GB/s, back: slow}}",
            "document.nodes[0].host.link.back",
            "is not a bandwidth",
        ),
        (
            "host: {link: {bandwidth: 1GB/s, both: 2GB/s, duplex: half}}",
            "document.nodes[0].host.link.duplex",
            "Remove one",
        ),
        (
            "host: {links: [{device: 3, bandwidth: 1GB/s}]}",
            "document.nodes[0].copies.host_links[0].device",
            "not a device of this node",
        ),
        (
            "host: {uplinks: [{devices: [1], bandwidth: 1GB/s}]}",
            "document.nodes[0].copies.uplinks[0].devices",
            "List at least two devices",
        ),
        (
            "host: {uplinks: [{devices: [1, 1], bandwidth: 1GB/s}]}",
            "document.nodes[0].copies.uplinks[0].devices[1]",
            "twice",
        ),
        (
            "host: {uplinks: [{devices: [0, 1], bandwidth: -1}]}",
            "document.nodes[0].copies.uplinks[0].bandwidth",
            "Use 1 to",
        ),
        (
            "host: {updates: [{step: adagrad, rate: 1G/s}]}",
            "document.nodes[0].host.updates[0].step",
            "adam-bf16",
        ),
        (
            "host: {updates: [{step: adam-bf16, rate: 1GB/s}]}",
            "document.nodes[0].host.updates[0].rate",
            "parameters per second",
        ),
        (
            "host: {updates: [{step: adam-bf16, rate: 0}]}",
            "document.nodes[0].updates[0].parameters_per_second",
            "Use 1 to",
        ),
        (
            "host: {updates: [{step: adam-bf16, rate: 1M}, {step: adam-bf16, rate: 2M}]}",
            "document.nodes[0].updates[1].step",
            "listed twice",
        ),
        (
            "peers: [{a: 0, b: 0, bandwidth: 1GB/s}]",
            "document.nodes[0].copies.peers[0].b",
            "two different devices",
        ),
        (
            "peers: [{a: 0, b: 9, bandwidth: 1GB/s}]",
            "document.nodes[0].copies.peers[0].b",
            "not a device of this node",
        ),
        (
            "peers: [{a: 0, b: 1, bandwidth: 1}, {a: 1, b: 0, bandwidth: 1}]",
            "document.nodes[0].copies.peers[1]",
            "listed twice",
        ),
    ] {
        let found = refused(ClusterFormat::Loadmaster, &text(host), &ImportOptions::default());
        assert!(found.0 == field && found.1.contains(why), "{host}: {found:?}");
    }
    // A node of which nothing is said is written as before there was anything to say.
    let silent = read(&text("labels: {}"), &ImportOptions::default());
    assert!(!serde_json::to_string(&silent).unwrap().contains("copies"));
}

#[test]
fn slurms_trees_may_be_uneven() {
    let cluster = read(SLURM_TREE, &options("NVIDIA H100 80GB HBM3", 8));
    assert_eq!((cluster.nodes().len(), cluster.device_count(), cluster.tiers().len()), (9, 72, 3));
    assert_eq!((domain(&cluster, "gpu003", 0), domain(&cluster, "gpu003", 1)), (Some("s0"), Some("s3")));
    // Its switch is right below the core: on the level between it is with no one.
    let of_gpu8 = [0, 1, 2].map(|tier| domain(&cluster, "gpu008", tier));
    assert_eq!(of_gpu8, [Some("s2"), None, Some("core")]);
    assert_eq!(domain(&cluster, "gpu009", 0), Some("s1"));

    let cycle = "SwitchName=a Switches=b\nSwitchName=b Switches=a\nSwitchName=c Nodes=n1\n";
    let (field, why) = refused(ClusterFormat::SlurmConf, cycle, &options("x", 8));
    assert!(field == "document.line 1" && why.contains("cycle"), "{field}: {why}");
    let unknown = "SwitchName=a Switches=b\n";
    let (field, why) = refused(ClusterFormat::SlurmConf, unknown, &options("x", 8));
    assert!(field == "document.line 1" && why.contains("not a switch of the file"), "{field}: {why}");
    let twice = "SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n2\n";
    let (field, why) = refused(ClusterFormat::SlurmConf, twice, &options("x", 8));
    assert!(field == "document.domains[1].nodes[0]" && why.contains("two domains"), "{field}: {why}");
}

#[test]
fn slurms_blocks_join_into_larger_ones() {
    let cluster = read(SLURM_BLOCKS, &options("x", 8));
    let levels: Vec<&str> = cluster.tiers().iter().map(|tier| tier.level.as_str()).collect();
    assert_eq!(levels, ["block", "block-x2", "block-x4"]);
    let of = |node| [0, 1, 2].map(|tier| domain(&cluster, node, tier).unwrap());
    assert_eq!(of("n03"), ["b1", "block-x2-0", "block-x4-0"]);
    assert_eq!(of("n12"), ["b3", "block-x2-1", "block-x4-0"]);
    let wrong = SLURM_BLOCKS.replace("4,8,16", "4,12");
    assert_eq!(refused(ClusterFormat::SlurmConf, &wrong, &options("x", 8)).0, "document.block_sizes");
}

#[test]
fn slurms_yaml_has_several_topologies_of_which_one_is_the_default() {
    let cluster = read(SLURM_YAML, &options("x", 8));
    assert_eq!((domain(&cluster, "node03", 0), domain(&cluster, "node03", 1)), (Some("leaf2"), Some("root")));
    let named = |name: &str| ImportOptions { topology: Some(name.to_owned()), ..options("x", 8) };
    let blocks = read(SLURM_YAML, &named("blocks"));
    assert_eq!(domain(&blocks, "node03", 0), Some("b2"));
    let (field, why) = refused(ClusterFormat::SlurmYaml, SLURM_YAML, &named("flat"));
    assert!(field == "document.[0]" && why.contains("flat"), "{field}: {why}");
    let (field, why) = refused(ClusterFormat::SlurmYaml, SLURM_YAML, &named("ring"));
    assert!(field == "options.topology" && why.contains("\"blocks\""), "{field}: {why}");
}

#[test]
fn the_matrix_of_nvidia_smi_is_read_through_its_underlining() {
    let cluster = read(NVIDIA_SMI, &options("NVIDIA A100-SXM4-80GB", 4));
    let node = &cluster.nodes()[0];
    assert_eq!((node.devices.len(), node.links.len()), (4, 6));
    let between = |a, b| node.links.iter().find(|link| (link.a, link.b) == (a, b)).unwrap();
    assert_eq!((between(0, 1).class, between(0, 1).link.bytes_per_second), (Some(LinkClass::NvLink), 240e9));
    assert_eq!(between(1, 2).class, Some(LinkClass::System));
    let bent = NVIDIA_SMI.replacen("NV12", "NV6", 1);
    let (field, why) = refused(ClusterFormat::NvidiaSmi, &bent, &options("NVIDIA A100-SXM4-80GB", 4));
    assert!(field.contains("bandwidth") && why.contains("the opposite direction"), "{field}: {why}");
    let (field, _) = refused(ClusterFormat::NvidiaSmi, NVIDIA_SMI, &options("x", 8));
    assert_eq!(field, "options.devices_per_node");
}

#[test]
fn what_is_missing_is_named_with_an_example() {
    for (text, missing) in [
        (NVIDIA_SMI, ["device_kind", "memory_bytes"].as_slice()),
        (NCCL_H100, ["device_kind", "memory_bytes"].as_slice()),
        (SLURM_TREE, ["device_kind", "memory_bytes", "devices_per_node"].as_slice()),
        (SLURM_YAML, ["device_kind", "memory_bytes", "devices_per_node"].as_slice()),
        (TOPOGRAPH, ["device_kind", "memory_bytes", "devices_per_node"].as_slice()),
    ] {
        let mut given = ImportOptions::default();
        for name in missing {
            let (field, why) = refused(ClusterFormat::detect(text).unwrap(), text, &given);
            assert!(field == format!("options.{name}") && why.contains("is required"), "{field}: {why}");
            match *name {
                "device_kind" => given.device_kind = Some("x".to_owned()),
                "memory_bytes" => given.memory = Some(Bytes(1 << 30)),
                _ => given.devices_per_node = Some(8),
            }
        }
        assert!(import(ClusterFormat::detect(text).unwrap(), text, &given).is_ok());
    }
}

#[test]
fn a_document_names_the_path_of_what_is_wrong() {
    let cases = [
        ("usable_memory: 76GiB", "usable_memory: much", "document.kinds[0].usable_memory"),
        ("latency: 2us, origin: assumed", "latency: soon", "document.nodes[0].link.latency"),
        ("bandwidth: 371GB/s", "bandwidth: -371GB/s", "document.nodes[0].link.bandwidth"),
        ("class: NV18", "class: NVX", "document.nodes[0].link.class"),
        ("name: h[01-08]", "name: h[01-", "document.nodes[0].name"),
        ("devices: 8", "devices: 0", "document.nodes[0].devices"),
        ("devices: 8", "devices: [{index: 0, colour: red}]", "document.nodes[0].devices"),
        ("devices: 8", "device: 8", "document.nodes[0].device"),
        ("loadmaster.cluster/1", "loadmaster.cluster/2", "document.format"),
        ("nodes: \"a[01-04]\"", "nodes: \"a[01-05]\"", "document.domains[2].nodes[4]"),
        ("parent: hall, nodes: \"h", "parent: rack-2, nodes: \"h", "document.domains[1].parent"),
    ];
    for (from, to, expected) in cases {
        assert!(EXAMPLE.contains(from), "{from}");
        let (field, why) =
            refused(ClusterFormat::Loadmaster, &EXAMPLE.replacen(from, to, 1), &ImportOptions::default());
        assert!(field.starts_with(expected), "{to}: {field}: {why}, expected {expected}");
    }
}

#[test]
fn hostile_files_are_refused() {
    let options = options("x", 8);
    let deep = format!("<system>{}{}</system>", "<pci>".repeat(50_000), "</pci>".repeat(50_000));
    let bomb = "<!DOCTYPE s [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;\">]><system>&b;</system>";
    let many = format!("<system>{}</system>", "<gpu dev=\"0\" sm=\"90\"/>".repeat(200_000));
    let count = NCCL_A100.replace("count=\"12\"", "count=\"4000000000\"");
    for text in [&deep, bomb, &many, &count, "<a>", "<html/>", "<system/>"] {
        let shown: String = text.chars().take(60).collect();
        assert!(import(ClusterFormat::NcclXml, text, &options).is_err(), "{shown}");
    }
    let nested = format!("{{\"instances\": {}{}}}", "[".repeat(50_000), "]".repeat(50_000));
    assert!(import(ClusterFormat::Topograph, &nested, &options).is_err());
    let nested = format!("topology: {}{}", "[".repeat(50_000), "]".repeat(50_000));
    assert!(import(ClusterFormat::SlurmYaml, &nested, &options).is_err());
    let unfolds = "a: &a [x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b]\n\
                   d: &d [*c, *c, *c, *c, *c, *c, *c]\ne: &e [*d, *d, *d, *d, *d, *d]\nf: &f [*e, *e, *e, *e, *e, *e, *e]\n\
                   g: &g [*f, *f, *f, *f, *f, *f, *f]\nh: [*g, *g, *g, *g, *g, *g, *g]\n";
    assert!(import(ClusterFormat::SlurmYaml, unfolds, &options).is_err());
    assert!(import(ClusterFormat::SlurmConf, "SwitchName=s Nodes=n[0-999999999]", &options).is_err());
    let switches: String = (0..20).map(|n| format!("SwitchName=s{n} Switches=s{}\n", n + 1)).collect();
    let tall = switches + "SwitchName=s20 Nodes=n1\n";
    assert!(refused(ClusterFormat::SlurmConf, &tall, &options).1.contains("more than 16 levels of switches"));
    let wide = format!("\t{}\n", (0..200).map(|n| format!("GPU{n}\t")).collect::<String>());
    assert!(import(ClusterFormat::NvidiaSmi, &wide, &options).is_err());
    assert!(import(ClusterFormat::Loadmaster, &"x".repeat(MAX_DOCUMENT_BYTES + 1), &options).is_err());
    assert_eq!(refused(ClusterFormat::NcclXml, "  ", &options).0, "document");
}

/// Short lists of very many names are refused by what all of them unfold to, before a node is made of each.
#[test]
fn lists_share_one_limit() {
    let options = options("x", 8);
    let often = |line: &dyn Fn(usize) -> String| (0..20).map(line).collect::<String>();
    let conf = often(&|n| format!("SwitchName=s{n} Nodes=n[0-19999]\n"));
    assert_eq!(refused(ClusterFormat::SlurmConf, &conf, &options).0, "document.line 17");
    let yaml = often(&|n| format!("      - {{switch: s{n}, nodes: \"n[0-19999]\"}}\n"));
    let yaml = format!("- topology: t\n  tree:\n    switches:\n{yaml}");
    let (field, why) = refused(ClusterFormat::SlurmYaml, &yaml, &options);
    assert!(field.ends_with("tree.switches[16].nodes"), "{field}: {why}");
    let nodes = often(&|_| "  - {name: \"n[0-19999]\", kind: x, devices: 8}\n".to_owned());
    let written = format!("format: loadmaster.cluster/1\nkinds: []\nnodes:\n{nodes}");
    assert_eq!(refused(ClusterFormat::Loadmaster, &written, &options).0, "document.nodes[1].name");
    let uplink = "{devices: [0, 1, 2, 3, 4, 5, 6, 7], bandwidth: 1}";
    let many = format!(
        "  - {{name: \"n[0-19999]\", kind: x, devices: 8, host: {{uplinks: [{uplink}, {uplink}]}}}}\n"
    );
    let written = format!("format: loadmaster.cluster/1\nkinds: []\nnodes:\n{many}");
    assert_eq!(refused(ClusterFormat::Loadmaster, &written, &options).0, "document.nodes[0].host");
    let all = ImportOptions { nodes: Some("n[0-19999]".to_owned()), devices_per_node: None, ..options };
    let gpus = often(&|n| format!("<pci busid=\"{n}\"><gpu dev=\"{n}\" sm=\"90\"/></pci>"));
    let system = format!("<system><cpu>{gpus}</cpu></system>");
    assert_eq!(refused(ClusterFormat::NcclXml, &system, &all).0, "document.nodes.links");
    assert!(refused(ClusterFormat::SlurmConf, "Nodes=a\n", &all).1.contains("SwitchName"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is cut out of a file, it is refused or there is a device left.
    #[test]
    fn a_torn_file_is_read_or_refused(which in 0_usize..9, from in 0.0..1.0_f64, length in 0_usize..200) {
        let text = [
            TOPOGRAPH, TOPOGRAPH_ATTRIBUTES, NCCL_H100, NCCL_A100, SLURM_TREE, SLURM_BLOCKS, SLURM_YAML, NVIDIA_SMI,
            EXAMPLE,
        ][which];
        let format = ClusterFormat::detect(text).unwrap();
        let from = text.floor_char_boundary((text.len() as f64 * from) as usize);
        let to = text.floor_char_boundary((from + length).min(text.len()));
        let torn = format!("{}{}", &text[..from], &text[to.max(from)..]);
        if let Ok(cluster) = import(format, &torn, &options("NVIDIA H100 80GB HBM3", 8)) {
            prop_assert!(cluster.device_count() > 0);
        }
    }
}

/// Exports write names of nodes into hostfiles and scripts, so no way into the planner admits one that is no host.
#[test]
fn no_file_and_no_message_names_a_node_that_is_no_host() {
    let json = |name: &str| serde_json::to_string(name).unwrap();
    type Writes = fn(&str) -> String;
    let of_files: [(ClusterFormat, Writes); 4] = [
        (ClusterFormat::Loadmaster, |name| {
            format!(
                "format: loadmaster.cluster/1\nkinds: [{{name: x, memory: 80GiB}}]\nnodes: [{{name: {name}, kind: x, devices: 1}}]"
            )
        }),
        (ClusterFormat::Topograph, |name| {
            format!(r#"{{"instances": [{{"id": {name}, "network_layers": ["s"]}}]}}"#)
        }),
        (ClusterFormat::SlurmYaml, |name| {
            format!("- {{topology: t, tree: {{switches: [{{switch: s, nodes: {name}}}]}}}}")
        }),
        (ClusterFormat::SlurmConf, |name| format!("SwitchName=s Nodes={}", name.trim_matches('"'))),
    ];
    for (format, text) in of_files {
        let read = |name: &str| {
            let options = if format == ClusterFormat::Loadmaster {
                ImportOptions::default()
            } else {
                options("NVIDIA H100 80GB HBM3", 8)
            };
            import(format, &text(&json(name)), &options)
        };
        assert_eq!(read("gpu-01.rack_2").unwrap().nodes()[0].name, "gpu-01.rack_2", "{format}");
        for name in HOSTILE_HOSTS {
            assert!(read(name).is_err(), "{format} {name:?}");
        }
    }
    for (format, text, kind, devices) in [
        (ClusterFormat::NcclXml, NCCL_H100, "NVIDIA H100 80GB HBM3", 3),
        (ClusterFormat::NvidiaSmi, NVIDIA_SMI, "NVIDIA H100 80GB HBM3", 4),
    ] {
        let options = |name: &str| ImportOptions {
            nodes: Some(name.to_owned()),
            devices_per_node: None,
            ..options(kind, devices)
        };
        assert_eq!(import(format, text, &options("fd00::1")).unwrap().nodes()[0].name, "fd00::1");
        for name in HOSTILE_HOSTS {
            let (field, _) = refused(format, text, &options(name));
            assert_eq!(field, "options.nodes", "{format} {name:?}");
        }
    }
    let described = read(EXAMPLE, &ImportOptions::default());
    for name in HOSTILE_HOSTS {
        let mut wire = v1::Cluster::from(&described);
        wire.domains.clear();
        wire.tiers.clear();
        for (node, network) in wire.nodes.iter_mut().zip(std::iter::repeat(described.nodes()[0].network)) {
            node.network = network.as_ref().map(Into::into);
        }
        assert!(Cluster::try_from(wire.clone()).is_ok());
        wire.nodes[3].name = name.to_owned();
        let invalid = Cluster::try_from(wire).unwrap_err();
        assert_eq!(invalid.violations()[0].field, "nodes[3].name", "{name:?}");
    }
}
