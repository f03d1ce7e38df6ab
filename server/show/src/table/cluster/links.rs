//! The links between a node's devices as a matrix, and what was measured of a worker's.

use loadmaster_proto::cluster::quantity;
use loadmaster_proto::measure::links::updates::{DeviceUpdates, host_updates};
use loadmaster_proto::wire::v1::{
    ClusterNode, CopySpeeds, CopyWay, LinkClass, LinkMeasurement, LinkSpeed, LinkTransport, MeasuredLinks,
    SpeedOrigin,
};

use crate::show;
use crate::table::grid::Grid;
use crate::table::grid::Side::{Left, Right};
use crate::table::id;
use crate::text::terminal_abilities::Look;
use crate::text::{plain, plural, time, word};

show!(MeasureLinksResponse of link_measurements as list);
show!(ListLinkMeasurementsResponse of link_measurements as list);

/// Most pairs of one worker that are listed, and most lines of its copies.
const MOST_PAIRS: usize = 36;

fn list(measurements: &[LinkMeasurement], look: Look) -> String {
    if measurements.is_empty() {
        return "no links were measured; `loadmaster cluster measure` does\n".to_owned();
    }
    let mut texts = Vec::new();
    for of in measurements {
        let Some(measurement) = &of.links else { continue };
        texts.push(format!(
            "{}, {}, {}\n{}",
            plain(&of.worker),
            time(of.create_time.as_ref(), look),
            transport(measurement),
            one(measurement, &id(&of.run), look)
        ));
    }
    texts.join("\n")
}

fn transport(measurement: &MeasuredLinks) -> String {
    match LinkTransport::try_from(measurement.transport) {
        Ok(LinkTransport::Host) => "over host sockets".to_owned(),
        Ok(LinkTransport::Nccl) => "with NCCL".to_owned(),
        Ok(other) => word(other.as_str_name(), "LINK_TRANSPORT_"),
        Err(_) => "over something unknown".to_owned(),
    }
}

fn one(measurement: &MeasuredLinks, run: &str, look: Look) -> String {
    let columns =
        [("devices", Left), ("what", Left), ("bandwidth (measured)", Right), ("latency (measured)", Right)];
    let mut grid = Grid::new(&columns, look);
    let device = |index: i32| {
        let name = usize::try_from(index).ok().and_then(|index| measurement.device_ids.get(index));
        name.map_or_else(|| "?".to_owned(), |name| plain(name))
    };
    let bandwidth = |value: f64| quantity::show_bytes_per_second(value);
    let latency = |value: f64| quantity::show_seconds(value, look.unicode);
    for pair in measurement.pairs.iter().take(MOST_PAIRS) {
        grid.row([
            format!("{} {} {}", device(pair.first), look.to(), device(pair.second)),
            "one way".to_owned(),
            bandwidth(pair.bytes_per_second),
            latency(pair.latency_seconds),
        ]);
    }
    for group in &measurement.groups {
        let (first, last) = (group.device_indices.first().copied(), group.device_indices.last().copied());
        grid.row([
            format!(
                "{}, {} .. {}",
                plural(group.device_indices.len(), "device"),
                device(first.unwrap_or(-1)),
                device(last.unwrap_or(-1))
            ),
            "all-reduce, as a ring".to_owned(),
            bandwidth(group.bytes_per_second),
            latency(group.latency_seconds),
        ]);
    }
    let left_out = measurement.pairs.len().saturating_sub(MOST_PAIRS);
    let rest =
        if left_out > 0 { format!("and {left_out} more pairs: -o json lists all\n") } else { String::new() };
    let environment = measurement.environment.clone().unwrap_or_default();
    let disturbed = match (environment.contended, environment.oversubscribed) {
        (true, _) => {
            "warning: other programs used the devices or their CPU cores during the measurement: the links \
             may be faster than shown\n"
        }
        (false, true) => {
            "warning: the measuring ranks had more threads than CPU cores: links in groups of all devices may be \
             faster than shown\n"
        }
        (false, false) => "",
    };
    let (copied, updated) = (copies(measurement, device, look), updates(measurement, look));
    format!("{}{rest}{copied}{updated}{disturbed}run {run}\n", grid.render())
}

/// Updates on the host as clusters describe them, a line for each kind of step; empty where none were measured.
fn updates(measurement: &MeasuredLinks, look: Look) -> String {
    let updates = measurement.device_updates.iter().cloned().map(DeviceUpdates::try_from);
    let known: Vec<DeviceUpdates> = updates.collect::<Result<_, _>>().unwrap_or_default();
    if known.is_empty() {
        return String::new();
    }
    let described = host_updates(&known).iter().map(Into::into).collect::<Vec<_>>();
    format!("\n{}", super::copies::draw_updates(&described, look))
}

/// Copies as memory actions make them, a line for each place of a device; empty where none were measured.
fn copies(measurement: &MeasuredLinks, device: impl Fn(i32) -> String, look: Look) -> String {
    let Some(copies) = &measurement.copy_measurement else { return String::new() };
    let columns = [
        ("copies", Left),
        ("out (measured)", Right),
        ("back (measured)", Right),
        ("both ways at once", Right),
        ("all devices out", Right),
        ("all devices back", Right),
    ];
    let mut grid = Grid::new(&columns, look);
    let rate = |way: Option<&CopyWay>| {
        way.map_or_else(
            || look.none().to_owned(),
            |way| quantity::show_bytes_per_second(way.bytes_per_second),
        )
    };
    let alone = |of: Option<&CopySpeeds>| {
        let ways = of.map(|of| [of.out.as_ref(), of.back.as_ref(), of.both.as_ref()]).unwrap_or_default();
        ways.map(rate)
    };
    let none = || look.none().to_owned();
    let mut lines: Vec<[String; 6]> = Vec::new();
    for of in &copies.devices {
        let [out, back, both] = alone(of.host.as_ref());
        let who = format!("{} {} host", device(of.device), look.to());
        lines.push([who, out, back, both, rate(of.all_out.as_ref()), rate(of.all_back.as_ref())]);
    }
    for of in &copies.pairs {
        let [out, back, both] = alone(of.speeds.as_ref());
        let who = format!("{} {} {}", device(of.first), look.to(), device(of.second));
        lines.push([who, out, back, both, none(), none()]);
    }
    for of in copies.devices.iter().filter(|of| of.all_next.is_some()) {
        let who = format!("{} {} the next device", device(of.device), look.to());
        lines.push([who, none(), none(), none(), rate(of.all_next.as_ref()), none()]);
    }
    let left_out = lines.len().saturating_sub(MOST_PAIRS);
    lines.into_iter().take(MOST_PAIRS).for_each(|cells| grid.row(cells));
    let rest =
        if left_out > 0 { format!("and {left_out} more copies: -o json lists all\n") } else { String::new() };
    format!("\n{}{rest}", grid.render())
}

/// `NV18`, `SYS`, or nothing.
pub(super) fn class(class: i32, count: i32) -> String {
    use loadmaster_proto::cluster::LinkClass as Domain;
    let known = match LinkClass::try_from(class) {
        Ok(LinkClass::Unspecified) | Err(_) => return String::new(),
        Ok(LinkClass::Nvlink) if count > 1 => return format!("NV{count}"),
        Ok(LinkClass::Nvlink) => return "NVLink".to_owned(),
        Ok(LinkClass::C2c) => Domain::ChipToChip,
        Ok(LinkClass::Xgmi) => Domain::Xgmi,
        Ok(LinkClass::Pix) => Domain::PcieBridge,
        Ok(LinkClass::Pxb) => Domain::PcieBridges,
        Ok(LinkClass::Phb) => Domain::HostBridge,
        Ok(LinkClass::Node) => Domain::NumaNode,
        Ok(LinkClass::Sys) => Domain::System,
    };
    known.as_str().to_owned()
}

/// `371 GB/s, 2 us, assumed`.
pub(super) fn speed(link: &LinkSpeed, look: Look) -> String {
    format!(
        "{}, {}, {}",
        quantity::show_bytes_per_second(link.bytes_per_second),
        quantity::show_seconds(link.latency_seconds, look.unicode),
        origin(link.origin)
    )
}

pub(super) fn origin(origin: i32) -> String {
    match SpeedOrigin::try_from(origin) {
        Ok(SpeedOrigin::Unspecified) | Err(_) => "unknown origin".to_owned(),
        Ok(known) => word(known.as_str_name(), "SPEED_ORIGIN_"),
    }
}

/// Most devices that are drawn: a line holds no more.
const MOST: usize = 16;

/// One row and one column per device. A letter tells where a number is from.
pub(super) fn draw_matrix(node: &ClusterNode, look: Look) -> String {
    let devices: Vec<i32> = node.devices.iter().map(|device| device.index).take(MOST).collect();
    let titles: Vec<String> = devices.iter().map(ToString::to_string).collect();
    let mut columns = vec![("device", Left)];
    columns.extend(titles.iter().map(|title| (title.as_str(), Right)));
    let mut grid = Grid::new(&columns, look);
    for &a in &devices {
        let mut cells = vec![a.to_string()];
        cells.extend(devices.iter().map(|&b| if a == b { "X".to_owned() } else { cell(node, a, b, look) }));
        grid.rows(cells);
    }
    let left_out = node.devices.len().saturating_sub(MOST);
    let rest =
        if left_out > 0 { format!("; left out: {}", plural(left_out, "device")) } else { String::new() };
    format!("{}GB/s, one way; m measured, g given, a assumed{rest}\n", grid.render())
}

fn cell(node: &ClusterNode, a: i32, b: i32, look: Look) -> String {
    let own = node.device_links.iter().find(|link| (link.a, link.b) == (a.min(b), a.max(b)));
    let (class, link) = match own {
        Some(own) => (class(own.link_class, own.count), own.speed.as_ref()),
        None => (class(node.link_class, 1), node.link.as_ref()),
    };
    link.map_or_else(|| look.none().to_owned(), |link| format!("{class} {}", short(link)).trim().to_owned())
}

/// `371a`: gigabytes per second, and where from.
fn short(link: &LinkSpeed) -> String {
    let letter = match SpeedOrigin::try_from(link.origin) {
        Ok(SpeedOrigin::Measured) => "m",
        Ok(SpeedOrigin::Given) => "g",
        Ok(SpeedOrigin::Assumed) => "a",
        Ok(SpeedOrigin::Unspecified) | Err(_) => "?",
    };
    format!("{}{letter}", quantity::digits(link.bytes_per_second / 1e9))
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::v1::{self, CopyMeasurement, DeviceCopies, PairCopies};

    use super::*;

    /// Pins how copies are listed: each place of a device, alone, both ways and with all others; what could not be measured
    /// is left open.
    #[test]
    fn copies_are_listed_below_the_links() {
        let way = |gigabytes: f64| Some(CopyWay { bytes_per_second: gigabytes * 1e9, ..CopyWay::default() });
        let speeds = |both| Some(CopySpeeds { out: way(4.0), back: way(3.5), both });
        let device = |device, all_next| DeviceCopies {
            device,
            host: speeds(way(5.0)),
            all_out: way(2.0),
            all_back: way(1.9),
            all_next,
        };
        let measurement = MeasuredLinks {
            device_ids: ["cpu0", "cpu1"].map(str::to_owned).to_vec(),
            copy_measurement: Some(CopyMeasurement {
                devices: vec![device(0, way(1.5)), device(1, None)],
                pairs: vec![PairCopies { first: 0, second: 1, speeds: speeds(None) }],
            }),
            ..MeasuredLinks::default()
        };
        let text = one(&measurement, "r", Look::PLAIN);
        let listed: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            listed,
            [
                "copies                  out (measured)  back (measured)  both ways at once  all devices out  all devices back",
                "cpu0 - host                     4 GB/s         3.5 GB/s             5 GB/s           2 GB/s          1.9 GB/s",
                "cpu1 - host                     4 GB/s         3.5 GB/s             5 GB/s           2 GB/s          1.9 GB/s",
                "cpu0 - cpu1                     4 GB/s         3.5 GB/s                  -                -                 -",
                "cpu0 - the next device               -                -                  -         1.5 GB/s                 -",
                "run r",
            ]
        );
        let nothing = one(&MeasuredLinks::default(), "r", Look::PLAIN);
        assert!(!nothing.contains("copies") && !nothing.contains("step"), "{nothing}");
    }

    /// Pins how updates are listed: each kind of step for the slowest device alone, and for all at once.
    #[test]
    fn updates_are_listed_below_the_copies() {
        let timed = |step: v1::StepKind, alone_seconds| v1::TimedUpdate {
            step: step.into(),
            parameter_count: 1_000_000,
            alone_seconds,
            together_seconds: 0.010,
        };
        let device = |device, alone| v1::DeviceUpdates {
            device,
            timed_updates: vec![
                timed(v1::StepKind::SgdFp32, alone),
                timed(v1::StepKind::AdamBf16, 2.0 * alone),
            ],
        };
        let updates = vec![device(0, 0.0020), device(1, 0.0025)];
        let text =
            one(&MeasuredLinks { device_updates: updates, ..MeasuredLinks::default() }, "r", Look::PLAIN);
        let listed: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            listed,
            [
                "step       for one device alone  for all devices at once  origin",
                "sgd-fp32   400.0 M parameters/s     200.0 M parameters/s  measured",
                "adam-bf16  200.0 M parameters/s     200.0 M parameters/s  measured",
                "run r",
            ]
        );
    }
}
