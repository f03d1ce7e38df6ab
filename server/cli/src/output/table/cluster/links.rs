//! What was measured of the links between a worker's devices.

use loadmaster_proto::cluster::quantity;
use loadmaster_proto::wire::v1::{LinkMeasurement, LinkTransport, WorkerLinks};

use crate::output::show::show;
use crate::output::table::grid::Grid;
use crate::output::table::grid::Side::{Left, Right};
use crate::output::table::id;
use crate::text::terminal_abilities::Look;
use crate::text::{plain, plural, time, word};

show!(MeasureLinksResponse of measurements as list);
show!(ListLinkMeasurementsResponse of measurements as list);

/// Most pairs of one worker that are listed.
const MOST_PAIRS: usize = 36;

fn list(measurements: &[WorkerLinks], look: Look) -> String {
    if measurements.is_empty() {
        return "no links were measured; `loadmaster cluster measure` does\n".to_owned();
    }
    let mut texts = Vec::new();
    for of in measurements {
        let Some(measurement) = &of.measurement else { continue };
        texts.push(format!(
            "{}, {}, {}\n{}",
            plain(&of.worker),
            time(of.create_time.as_ref(), look),
            transport(measurement),
            one(measurement, &id(&of.name), look)
        ));
    }
    texts.join("\n")
}

fn transport(measurement: &LinkMeasurement) -> String {
    match LinkTransport::try_from(measurement.transport) {
        Ok(LinkTransport::Host) => "over host sockets".to_owned(),
        Ok(LinkTransport::Nccl) => "with NCCL".to_owned(),
        Ok(other) => word(other.as_str_name(), "LINK_TRANSPORT_"),
        Err(_) => "over something unknown".to_owned(),
    }
}

fn one(measurement: &LinkMeasurement, run: &str, look: Look) -> String {
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
        let (first, last) = (group.devices.first().copied(), group.devices.last().copied());
        grid.row([
            format!(
                "{}, {} .. {}",
                plural(group.devices.len(), "device"),
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
        if left_out > 0 { format!("and {left_out} more pairs: -o json has them\n") } else { String::new() };
    let environment = measurement.environment.clone().unwrap_or_default();
    let disturbed = match (environment.contended, environment.oversubscribed) {
        (true, _) => "warning: others used the devices or their cores meanwhile: the links may be faster\n",
        (false, true) => {
            "warning: the devices had fewer cores than threads: groups of all of them may be faster\n"
        }
        (false, false) => "",
    };
    format!("{}{rest}{disturbed}run {run}\n", grid.render())
}
