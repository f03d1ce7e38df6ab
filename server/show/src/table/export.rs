//! Plans as launchers run them.

use loadmaster_proto::wire::v1::{
    DeviceGroup, Envelope, ExportPlanResponse, ExportVerified, Exporter, Launcher, Locality, NodeGroup,
    RankPlace, StageLocality,
};

use super::grid::Side::{Left, Right};
use super::grid::{Facts, Grid};
use super::or_none;
use crate::choice::Choice;
use crate::show::show;
use crate::text::terminal_abilities::Look;
use crate::text::{bytes, plain, plural, word};

show!(@ ExportPlanResponse, self, look, vec![self.plan.clone()], one(self, look));
show!(@ ListExportersResponse, self, look,
    self.exporters.iter().map(|of| target(of.launcher(), &of.launcher_version)).collect(),
    list(&self.exporters, look));

/// Most ranks that a table has.
const SHOWN_RANKS: usize = 64;

fn one(export: &ExportPlanResponse, look: Look) -> String {
    let mut facts = Facts::default();
    facts.add("plan", plain(&export.plan));
    facts.add("launcher", target(export.launcher(), &export.launcher_version));
    facts.add("proved", proved(export.verified()));
    for (name, value) in &export.environment {
        facts.add("environment", plain(&format!("{name}={value}")));
    }
    if !export.command.is_empty() {
        facts.add("on each node", plain(&export.command.join(" ")));
    }
    if let Some(allocation) = &export.allocation {
        for nodes in &allocation.nodes {
            facts.add("ask for", asked(nodes));
        }
        for of in &allocation.localities {
            facts.add("near", near(of));
        }
    }
    for warning in &export.warnings {
        facts.add("note", plain(warning));
    }
    let mut text = facts.render();
    for file in &export.files {
        text += &format!("\n{}:\n", plain(&file.name));
        for line in file.contents.lines() {
            text += &format!("  {}\n", plain(line));
        }
    }
    text + "\n" + &ranks(&export.ranks, look)
}

fn asked(nodes: &NodeGroup) -> String {
    let device = |of: &DeviceGroup| {
        let kind = if of.kind.is_empty() { "device" } else { &of.kind };
        plain(&format!("{} x {kind}", of.count)) + &format!(" with {}", bytes(of.capacity_bytes))
    };
    let devices: Vec<String> = nodes.devices.iter().map(device).collect();
    format!("{}, each with {}", plural(nodes.count, "node"), devices.join(" and "))
}

fn near(of: &StageLocality) -> String {
    let within = match of.within() {
        Locality::Node => "one node",
        Locality::Switch => "nodes of one switch",
        Locality::Unspecified => "places that are not known",
    };
    format!("stage {}: each {} on {within}", of.stage, plural(of.ranks, "rank"))
}

fn ranks(ranks: &[RankPlace], look: Look) -> String {
    let mut grid = Grid::new(
        &[
            ("rank", Right),
            ("stage", Right),
            ("replica", Right),
            ("shard", Right),
            ("node", Left),
            ("device", Right),
        ],
        look,
    );
    for place in ranks.iter().take(SHOWN_RANKS) {
        let device = place.device.as_ref();
        grid.row([
            place.rank.to_string(),
            place.stage.to_string(),
            place.replica.to_string(),
            place.shard.to_string(),
            or_none(device.map_or("", |device| &device.node), look),
            device.map_or_else(|| look.none().to_owned(), |device| device.index.to_string()),
        ]);
    }
    let more = ranks.len().saturating_sub(SHOWN_RANKS);
    let rest =
        if more > 0 { format!("and {more} ranks more: -o json has all of them\n") } else { String::new() };
    grid.render() + &rest
}

fn list(exporters: &[Exporter], look: Look) -> String {
    let mut grid =
        Grid::new(&[("launcher", Left), ("proved", Left), ("variants", Left), ("writes", Left)], look);
    for of in exporters {
        let variants: Vec<String> = of.variants().map(Choice::word).collect();
        grid.row([
            target(of.launcher(), &of.launcher_version),
            how_much(of.verified()),
            or_none(&variants.join(", "), look),
            plain(&of.writes),
        ]);
    }
    grid.render() + "\n" + &envelopes(exporters, look)
}

/// What starts the processes of which launchers.
fn envelopes(exporters: &[Exporter], look: Look) -> String {
    let mut grid = Grid::new(&[("envelope", Left), ("starts", Left)], look);
    for (envelope, _) in Envelope::ALL {
        let without = exporters.iter().filter(|of| !of.envelopes().any(|it| it == *envelope));
        let without: Vec<String> = without.map(|of| target(of.launcher(), &of.launcher_version)).collect();
        let starts =
            if without.is_empty() { "all".to_owned() } else { format!("all but {}", without.join(", ")) };
        grid.row([envelope.word(), starts]);
    }
    grid.render()
}

fn target(launcher: Launcher, version: &str) -> String {
    plain(&format!("{}@{version}", launcher.word()))
}

/// What was proved, with why where that is nothing.
fn proved(verified: ExportVerified) -> String {
    let why = if verified == ExportVerified::None { ": no code of the launcher was asked" } else { "" };
    how_much(verified) + why
}

fn how_much(verified: ExportVerified) -> String {
    match verified {
        ExportVerified::Unspecified => "unknown".to_owned(),
        ExportVerified::None => "nothing".to_owned(),
        known => word(known.as_str_name(), "EXPORT_VERIFIED_"),
    }
}
