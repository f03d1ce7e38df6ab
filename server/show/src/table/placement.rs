//! Plans on the nodes that schedulers gave.

use loadmaster_proto::wire::v1::{PlacedDevice, PlacedStage, Placement};

use super::grid::Side::{Left, Right};
use super::grid::{Facts, Grid};
use super::{id, or_none};
use crate::show;
use crate::text::terminal_abilities::Look;
use crate::text::{bytes, percent, plain, plural, seconds, severity, time};

show!(Placement as one);
show!(ListPlacementsResponse of placements as list);

/// Most devices of a stage, and nodes, that are named.
const SHOWN: usize = 8;

fn one(placement: &Placement, look: Look) -> String {
    let mut facts = Facts::default();
    facts.add("placement", plain(&placement.name));
    facts.add("plan", plain(&placement.plan));
    facts.add("cluster", or_none(&placement.cluster, look));
    facts.add("iteration", iteration(placement, look));
    facts.add("order", how_good(placement));
    facts.add("links", or_none(&placement.link_speed_origin, look));
    facts.add("host order", first(placement.nodes.iter().map(|node| plain(node))));
    if !placement.idle_devices.is_empty() {
        facts.add("idle", first(placement.idle_devices.iter().map(|device| plain(device))));
    }
    for warning in &placement.warnings {
        facts.add(severity(warning), plain(&warning.message));
    }
    let mut grid = Grid::new(&[("stage", Right), ("kind", Left), ("allows", Right), ("devices", Left)], look);
    for (index, stage) in placement.stages.iter().enumerate() {
        let ranges = &stage.device_ranges;
        grid.row([
            index.to_string(),
            or_none(ranges.first().map_or("", |range| &range.kind), look),
            ranges.iter().map(|range| range.capacity_bytes).min().map_or_else(String::new, bytes),
            first(devices(stage)),
        ]);
    }
    facts.render() + "\n" + &grid.render()
}

/// `gpu001/0`, in the order of ranks.
fn devices(stage: &PlacedStage) -> impl Iterator<Item = String> {
    let name = |device: PlacedDevice| plain(&format!("{}/{}", device.node, device.index));
    stage.device_ranges.iter().flat_map(|range| range.placed()).map(name)
}

/// The first few, and how many more there are.
fn first(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    let more = names.len().saturating_sub(SHOWN);
    let shown = names.get(..SHOWN).unwrap_or(&names).join(" ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

fn iteration(placement: &Placement, look: Look) -> String {
    let of = |value: Option<f64>| value.map_or_else(|| look.none().to_owned(), seconds);
    format!(
        "{} here, {} as planned",
        of(placement.iteration_seconds),
        of(placement.planned_iteration_seconds)
    )
}

fn how_good(placement: &Placement) -> String {
    match (placement.optimal, placement.optimality_gap) {
        (true, _) => "proven: no other order of these nodes is faster".to_owned(),
        (false, Some(gap)) => {
            format!("the fastest found: no other order is faster by more than {}", percent(gap))
        }
        (false, None) => "not compared: no seconds are known".to_owned(),
    }
}

fn list(placements: &[Placement], look: Look) -> String {
    if placements.is_empty() {
        return "no placements\n".to_owned();
    }
    grid(placements, look).render()
}

/// A row for each.
pub fn grid(placements: &[Placement], look: Look) -> Grid {
    let mut grid = Grid::new(
        &[("placement", Left), ("plan", Left), ("iteration", Right), ("nodes", Left), ("bound", Left)],
        look,
    );
    for placement in placements {
        grid.row([
            id(&placement.name),
            id(&placement.plan),
            placement.iteration_seconds.map_or_else(|| look.none().to_owned(), seconds),
            format!(
                "{}: {}",
                plural(placement.nodes.len(), "node"),
                first(placement.nodes.iter().map(|of| plain(of)))
            ),
            time(placement.create_time.as_ref(), look),
        ]);
    }
    grid
}
