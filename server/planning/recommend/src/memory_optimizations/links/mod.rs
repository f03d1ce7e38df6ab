//! What copies go over, as far as anybody said: the request, the description of the cluster, or no one.
//!
//! | rate | is |
//! |---|---|
//! | of the request | `--copy-rates`: every link of the kind, full duplex, nothing shared |
//! | of the cluster | that of the very devices: measured, given or assumed, each way; both ways at once; shared uplinks |
//! | a plan | what its copies were taken to be, on nodes of which no one says anything: where it is bound to them |
//! | a guess | by the kind of device, where no one set it |
//!
//! A simulation has one device for each stage. Where a stage has several they copy at the same time: the slowest stands
//! for all, and a way that they share has a part for each of them.
//! Ways also share what their devices share: a switch above them, or one PCIe link.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::cluster::{CopyLink, Link, LinkClass, LinkOrigin, Node, quantity};
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::rates::CopyRate;

use crate::context::Context;
use crate::search::Candidate;
use loadmaster_simulate::copies::{CORE_COPIES, Links, Rate, Shared, SlotCores, Way};

/// What copies to the host are taken to reach where nothing is said: PCIe 4 ×16 of a GPU, and what one core of a server
/// copies.
const HOST: Guess = Guess { gpu: 25e9, cpu: CORE_COPIES };
/// The same of copies to peers: NVLink of a GPU, and what one core of a server copies.
const PEER: Guess = Guess { gpu: 100e9, cpu: CORE_COPIES };

#[derive(Debug, Clone, Copy)]
struct Guess {
    gpu: f64,
    cpu: f64,
}

/// Where a rate comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Request,
    Cluster(LinkOrigin),
    Plan,
    Guess,
}

/// How fast the copies of a plan were taken to be: of several the slowest. None where it has no such copies.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct CopiesAsPlanned {
    host: Option<Link>,
    peer: Option<Link>,
}

/// How fast a device of the first stage and its host copy while both directions are at work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct HostRates {
    /// To the device, bytes per second.
    pub(crate) up: f64,
    /// To the host, bytes per second.
    pub(crate) down: f64,
    /// Seconds of a copy besides its bytes'.
    pub(crate) copy_seconds: f64,
}

impl CopiesAsPlanned {
    /// Of copies to the host alone.
    pub(crate) fn to_host(bytes_per_second: f64, latency_seconds: f64) -> Self {
        let link = Link { bytes_per_second, latency_seconds, origin: LinkOrigin::Assumed };
        Self { host: Some(link), peer: None }
    }

    /// Those of a plan's memory optimizations.
    pub(crate) fn of(plan: &Plan) -> Self {
        let ways = || plan.found.copy_rates.iter().flat_map(|rates| &rates.ways);
        let link = |of: &CopyRate| Link {
            bytes_per_second: of.bytes_per_second,
            latency_seconds: of.latency_seconds,
            origin: LinkOrigin::Assumed,
        };
        let is_peer = |of: &&CopyRate| of.from.is_some() && of.to.is_some();
        Self {
            host: ways().filter(|of| !is_peer(of)).map(link).reduce(Link::slower),
            peer: ways().filter(is_peer).map(link).reduce(Link::slower),
        }
    }
}

/// How fast copies go one way and back, and who says so.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sourced {
    link: CopyLink,
    source: Source,
}

/// A device of a stage: its node, as far as it is described, and its index there.
pub(crate) type StageDevice<'a> = (Option<&'a Node>, u32);

/// Links between the devices of stages, and from these to their hosts.
#[derive(Debug)]
pub(crate) struct CopyLinks {
    /// By stage.
    host: Vec<Sourced>,
    /// By stage and stage: out is from the first to the second. None of a stage with itself.
    peers: Vec<Vec<Option<Sourced>>>,
    /// Of peers where there are none.
    nobody: Sourced,
    /// Ways that share something, and where that comes from.
    shared: Vec<(Shared, LinkOrigin)>,
    /// Cores that stages share, each of which is named as often as it has slots there.
    cores: Vec<(SlotCores, Vec<u32>)>,
}

impl CopyLinks {
    /// Those between the devices of a candidate's stages.
    pub(crate) fn between(context: &Context<'_>, candidate: &Candidate, pace: CopyPace) -> Self {
        let links = Self::of(&places(context, candidate), &context.chain.device_kind, pace);
        Self { cores: context.shared_cores(candidate), ..links }
    }

    /// The same of a plan that is bound to nodes: what no one says of them is as the plan had it.
    pub(crate) fn between_as_planned(
        context: &Context<'_>,
        candidate: &Candidate,
        planned: CopiesAsPlanned,
    ) -> Self {
        let links = Self::as_planned(&places(context, candidate), &context.chain.device_kind, planned);
        Self { cores: context.shared_cores(candidate), ..links }
    }

    /// Those of stages on devices of this kind.
    pub(crate) fn of(stages: &[Vec<StageDevice<'_>>], kind: &str, pace: CopyPace) -> Self {
        let guess = |of: Guess| if kind == CPU_KIND { of.cpu } else { of.gpu };
        let free = |bytes_per_second, source| Sourced {
            link: CopyLink::full_duplex(Link {
                bytes_per_second,
                latency_seconds: 0.0,
                origin: LinkOrigin::Assumed,
            }),
            source,
        };
        let said = |pace: Option<f64>, of: Guess, described: Option<CopyLink>| match (pace, described) {
            (Some(pace), _) => free(pace, Source::Request),
            (None, Some(link)) => Sourced { link, source: Source::Cluster(link.origin()) },
            (None, None) => free(guess(of), Source::Guess),
        };
        let host = stages.iter().map(|own| said(pace.host, HOST, slowest(own.iter().map(to_host)))).collect();
        let between = |own: usize, other: usize| {
            let (own, other) = (stages.get(own)?, stages.get(other)?);
            // As ranks do it: each has its blocks on one device of the other stage.
            let pairs = own
                .iter()
                .enumerate()
                .filter_map(|(index, &device)| Some((device, *other.get(index.checked_rem(other.len())?)?)));
            slowest(pairs.map(|((node, from), (there, to))| {
                let node = node.filter(|node| there.is_some_and(|there| there.name == node.name))?;
                node.copies_between(from, to)
            }))
        };
        let count = stages.len();
        let row = |own: usize| {
            let cell = |other: usize| (own != other).then(|| said(pace.peer, PEER, between(own, other)));
            (0..count).map(cell).collect()
        };
        let nobody = said(pace.peer, PEER, None);
        let mut links = Self {
            host,
            peers: (0..count).map(row).collect(),
            nobody,
            shared: Vec::new(),
            cores: Vec::new(),
        };
        links.shared = links.half_duplex();
        if pace.host.is_none() {
            links.shared.extend(uplinks(stages, kind != CPU_KIND && pace.peer.is_none()));
        }
        links
    }

    /// Those of stages on nodes that a plan is bound to: what no one says of them is as the plan had it.
    pub(crate) fn as_planned(stages: &[Vec<StageDevice<'_>>], kind: &str, planned: CopiesAsPlanned) -> Self {
        let mut links = Self::of(stages, kind, CopyPace::default());
        let fill = |of: &mut Sourced, planned: Option<Link>| {
            if let (Source::Guess, Some(link)) = (of.source, planned) {
                *of = Sourced { link: CopyLink::full_duplex(link), source: Source::Plan };
            }
        };
        links.host.iter_mut().for_each(|of| fill(of, planned.host));
        links.peers.iter_mut().flatten().flatten().for_each(|of| fill(of, planned.peer));
        fill(&mut links.nobody, planned.peer);
        links
    }

    /// How fast a device of the first stage copies to its host and back, with its part of what ranks share; none where no cluster
    /// says so.
    pub(crate) fn described_host_rates(&self) -> Option<HostRates> {
        let of = self.host.first()?;
        matches!(of.source, Source::Cluster(_)).then(|| self.host_rates())
    }

    /// The same, from whichever source.
    pub(crate) fn host_rates(&self) -> HostRates {
        let link = self.host.first().unwrap_or(&self.nobody).link;
        // Both directions at once slow each other down: as if each always had its part.
        let both = link.out.bytes_per_second + link.back.bytes_per_second;
        let part = link.both_bytes_per_second.map_or(1.0, |together| (together / both).min(1.0));
        // Uplinks that ranks share have a part for each of them.
        let least = |way: Way, rate: f64| {
            let of_way = self.shared.iter().filter(|(of, _)| of.ways == [way]);
            of_way.map(|(of, _)| of.bytes_per_second).fold(rate, f64::min)
        };
        HostRates {
            up: least(Way::FromHost(0), link.back.bytes_per_second * part),
            down: least(Way::ToHost(0), link.out.bytes_per_second * part),
            copy_seconds: link.out.latency_seconds.max(link.back.latency_seconds),
        }
    }

    /// Links of which both directions together are slower than each alone.
    fn half_duplex(&self) -> Vec<(Shared, LinkOrigin)> {
        let both = |of: &Sourced, ways: [Way; 2]| {
            let Source::Cluster(origin) = of.source else { return None };
            let bytes_per_second = of.link.both_bytes_per_second?;
            Some((Shared { ways: ways.to_vec(), bytes_per_second }, origin))
        };
        let host = (0..).zip(&self.host).filter_map(|(stage, of)| {
            let ways = [Way::ToHost(stage), Way::FromHost(stage)];
            both(of, ways)
        });
        let rows = (0_u32..).zip(&self.peers);
        let peers = rows.flat_map(|(from, row)| {
            let pairs = (0_u32..).zip(row).filter(move |(to, _)| from < *to);
            pairs.filter_map(move |(to, of)| {
                both(of.as_ref()?, [Way::Between { from, to }, Way::Between { from: to, to: from }])
            })
        });
        host.chain(peers).collect()
    }

    /// From each stage's device to the host, and back.
    pub(super) fn to_host(&self) -> Vec<CopyLink> {
        self.host.iter().map(|of| of.link).collect()
    }

    /// How fast a stage's device and the host copy, and who says so, human-readable.
    pub(crate) fn host_way(&self, stage: usize) -> String {
        let of = self.host.get(stage).unwrap_or(&self.nobody);
        let told = rates(std::iter::once((true, of)), &self.nobody);
        format!("copies to and from CPU memory at {told}")
    }

    /// From each stage's device to each other's.
    pub(super) fn pairs(&self) -> Vec<Vec<Option<Link>>> {
        let row = |row: &Vec<Option<Sourced>>| row.iter().map(|of| of.map(|of| of.link.out)).collect();
        self.peers.iter().map(row).collect()
    }

    /// Whether it matters which of two stages a third one sends to.
    pub(super) fn has_unlike_pairs(&self) -> bool {
        let mut links = self.peers.iter().flatten().flatten().map(|of| of.link.out);
        let first = links.next();
        links.any(|link| Some(link) != first)
    }

    /// What ways share, whether it slows them down or not.
    pub(crate) fn shared(&self) -> Vec<Shared> {
        self.shared.iter().map(|(shared, _)| shared.clone()).collect()
    }

    /// As a simulation wants them: what these ways share is left out where it slows none of them down.
    pub(crate) fn links(&self, used: &BTreeSet<Way>) -> Links {
        let rate = |link: Link| Rate::new(link.bytes_per_second, link.latency_seconds);
        let mut links = Links::default();
        for (stage, of) in (0..).zip(&self.host) {
            links = links.host(stage, rate(of.link.out), rate(of.link.back));
        }
        for (from, row) in (0..).zip(&self.peers) {
            for (to, of) in (0..).zip(row) {
                if let Some(of) = of {
                    links = links.peer(from, to, rate(of.link.out));
                }
            }
        }
        let binds = placement(&self.shared, &links.ways, used);
        links.shared = binds.into_iter().map(|(shared, _)| shared.clone()).collect();
        for (cores, stages) in &self.cores {
            cores.share_among(stages.clone(), used.iter().copied(), &mut links);
        }
        links
    }

    /// How fast these ways are and who says so, human-readable. Where none is used, all of them.
    pub(crate) fn told(&self, used: &BTreeSet<Way>) -> String {
        let host = (0..).zip(&self.host).map(|(stage, of)| (used.contains(&Way::ToHost(stage)), of));
        let rows = (0_u32..).zip(&self.peers);
        let peers = rows.flat_map(|(from, row)| {
            let cells = (0_u32..).zip(row).filter_map(|(to, of)| Some((to, of.as_ref()?)));
            cells.map(move |(to, of)| (used.contains(&Way::Between { from, to }), of))
        });
        let (host, peers) = (rates(host, &self.nobody), rates(peers, &self.nobody));
        let links = self.links(used);
        let limits: Vec<String> = placement(&self.shared, &links.ways, used)
            .into_iter()
            .map(|(shared, origin)| {
                let rate = quantity::show_bytes_per_second(shared.bytes_per_second);
                format!("{} share {rate} ({})", named(&shared.ways), said_by(Source::Cluster(*origin)))
            })
            .collect();
        let limits = if limits.is_empty() { String::new() } else { format!("; {}", limits.join("; ")) };
        format!("copies to CPU memory at {host}, to peers at {peers}{limits}")
    }
}

/// The devices of stages, with their nodes as far as these are described.
fn places<'a>(context: &Context<'a>, candidate: &Candidate) -> Vec<Vec<StageDevice<'a>>> {
    let place = |&device: &u32| {
        let known = context.fleet.device(device);
        let node = known.and_then(|known| context.fleet.described(&known.node));
        (node, known.map_or(device, |known| known.index))
    };
    candidate.stages.iter().map(|stage| stage.devices.iter().map(place).collect()).collect()
}

/// How fast copies are, human-readable who may say otherwise in their request.
pub(crate) fn or_other_rates(told: &str) -> String {
    format!("{told}; set other rates with `memory.copy_bandwidth`")
}

/// What is shared by used ways that are faster together.
fn placement<'a>(
    shared: &'a [(Shared, LinkOrigin)],
    ways: &BTreeMap<Way, Rate>,
    used: &BTreeSet<Way>,
) -> Vec<&'a (Shared, LinkOrigin)> {
    let together = |of: &Shared| -> f64 {
        let used = of.ways.iter().filter(|way| used.contains(way));
        used.filter_map(|way| ways.get(way)).map(|rate| rate.bytes_per_second).sum()
    };
    shared.iter().filter(|(of, _)| together(of) > of.bytes_per_second).collect()
}

fn to_host(&(node, device): &StageDevice<'_>) -> Option<CopyLink> {
    node?.host_link_of(device)
}

/// The slowest of several links in every respect; none unless all are known.
fn slowest(links: impl Iterator<Item = Option<CopyLink>>) -> Option<CopyLink> {
    let all: Option<Vec<CopyLink>> = links.collect();
    all?.into_iter().reduce(|one, other| CopyLink {
        out: one.out.slower(other.out),
        back: one.back.slower(other.back),
        both_bytes_per_second: match (one.both_bytes_per_second, other.both_bytes_per_second) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        },
    })
}

/// `12.00 to 24.00 GB/s (of the cluster, measured)`: of those that are used, or else of all.
fn rates<'a>(all: impl Iterator<Item = (bool, &'a Sourced)>, nobody: &'a Sourced) -> String {
    let all: Vec<(bool, &Sourced)> = all.collect();
    let is_used = all.iter().any(|of| of.0);
    let mut told: Vec<&Sourced> = all.into_iter().filter(|of| of.0 == is_used).map(|of| of.1).collect();
    if told.is_empty() {
        told.push(nobody);
    }
    let rates = told.iter().flat_map(|of| [of.link.out, of.link.back]).map(|of| of.bytes_per_second / 1e9);
    let (least, most) =
        rates.fold((f64::INFINITY, 0.0_f64), |(least, most), rate| (least.min(rate), most.max(rate)));
    let mut sources: Vec<Source> = told.iter().map(|of| of.source).collect();
    sources.sort_unstable();
    sources.dedup();
    let sources: Vec<&str> = sources.into_iter().map(said_by).collect();
    let range = if least < most { format!("{least:.2} to {most:.2}") } else { format!("{most:.2}") };
    format!("{range} GB/s ({})", sources.join(", "))
}

fn said_by(source: Source) -> &'static str {
    match source {
        Source::Request => "given",
        Source::Cluster(LinkOrigin::Measured) => "of the cluster, measured",
        Source::Cluster(LinkOrigin::Given) => "of the cluster, given",
        Source::Cluster(LinkOrigin::Assumed) => "of the cluster, assumed",
        Source::Plan => "as planned",
        Source::Guess => "guessed",
    }
}

/// `stage 0 to the host, stage 1 to the host`.
fn named(ways: &[Way]) -> String {
    let one = |way: &Way| match way {
        Way::ToHost(stage) => format!("stage {stage} to the host"),
        Way::FromHost(stage) => format!("the host to stage {stage}"),
        Way::Between { from, to } => format!("stage {from} to stage {to}"),
    };
    ways.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Whether a pair's copies go over PCIe, and with them over the links of both devices to the host.
fn is_pcie(node: &Node, a: u32, b: u32) -> bool {
    let (a, b) = (a.min(b), a.max(b));
    let own = node.links.iter().find(|link| (link.a, link.b) == (a, b));
    match own.map_or(node.link_class, |own| own.class) {
        None | Some(LinkClass::NvLink | LinkClass::ChipToChip | LinkClass::Xgmi) => false,
        Some(
            LinkClass::PcieBridge
            | LinkClass::PcieBridges
            | LinkClass::HostBridge
            | LinkClass::NumaNode
            | LinkClass::System,
        ) => true,
    }
}

/// What goes up over one thing and what comes down, with how many of its devices the busiest stage has there.
#[derive(Debug, Default)]
struct LinkGroup {
    up: Vec<Way>,
    down: Vec<Way>,
    most: usize,
}

impl LinkGroup {
    /// Both directions, each no faster than this, with a part for each device of a stage.
    fn shared(self, bytes_per_second: f64, origin: LinkOrigin) -> impl Iterator<Item = (Shared, LinkOrigin)> {
        let bytes_per_second = (bytes_per_second / self.most.max(1) as f64).max(1.0);
        let shared = move |ways| (Shared { ways, bytes_per_second }, origin);
        [self.up, self.down].into_iter().filter(|ways| !ways.is_empty()).map(shared)
    }
}

/// Shared uplinks of the nodes that stages are on. With peers whose copies go over PCIe they, too, take of uplinks, and of
/// the links of both their devices.
fn uplinks(stages: &[Vec<StageDevice<'_>>], with_peers: bool) -> Vec<(Shared, LinkOrigin)> {
    let nodes = stages.iter().flatten().filter_map(|&(node, _)| node);
    let nodes: BTreeMap<&str, &Node> = nodes.map(|node| (node.name.as_str(), node)).collect();
    let mut shared = Vec::new();
    for node in nodes.into_values() {
        let Some(copies) = &node.copies else { continue };
        for uplink in &copies.uplinks {
            let group = group(node, &uplink.devices, stages, with_peers);
            shared.extend(group.shared(uplink.bytes_per_second, uplink.origin));
        }
        if !with_peers {
            continue;
        }
        for device in &node.devices {
            let Some(link) = node.host_link_of(device.index) else { continue };
            let LinkGroup { up, down, most } = group(node, &[device.index], stages, true);
            // Alone with the host nothing is shared.
            let crowded = |ways: Vec<Way>| if ways.len() > 1 { ways } else { Vec::new() };
            let [up, down] = [up, down].map(crowded);
            let out = LinkGroup { up, down: Vec::new(), most };
            let back = LinkGroup { up: Vec::new(), down, most };
            shared.extend(out.shared(link.out.bytes_per_second, link.out.origin));
            shared.extend(back.shared(link.back.bytes_per_second, link.back.origin));
        }
    }
    shared
}

/// The ways that leave and enter a group of devices of a node.
fn group(node: &Node, devices: &[u32], stages: &[Vec<StageDevice<'_>>], with_peers: bool) -> LinkGroup {
    let here = |device: &&StageDevice<'_>| device.0.is_some_and(|own| own.name == node.name);
    let inside = |device: &&StageDevice<'_>| here(device) && devices.contains(&device.1);
    let mut group = LinkGroup::default();
    for (stage, own) in (0..).zip(stages) {
        let count = own.iter().filter(inside).count();
        if count == 0 {
            continue;
        }
        group.most = group.most.max(count);
        group.up.push(Way::ToHost(stage));
        group.down.push(Way::FromHost(stage));
        for (other, theirs) in (0..).zip(stages).filter(|(other, _)| with_peers && *other != stage) {
            let crosses = own.iter().filter(inside).any(|&(_, from)| {
                let outside = theirs.iter().filter(|device| here(device) && !devices.contains(&device.1));
                outside.into_iter().any(|&(_, to)| is_pcie(node, from, to))
            });
            if crosses {
                group.up.push(Way::Between { from: stage, to: other });
                group.down.push(Way::Between { from: other, to: stage });
            }
        }
    }
    group
}
