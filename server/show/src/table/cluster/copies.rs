//! How memory optimizations copy on a node: its devices' links to the host, what they share, and copies between two devices; and
//! how fast its host updates parameters.

use loadmaster_proto::cluster::quantity;
use loadmaster_proto::training::step_kind::StepKind;
use loadmaster_proto::wire::v1::{self, ClusterNode, CopyLink, HostUpdate, NodeCopies};

use super::links::{origin, speed};
use crate::table::grid::Grid;
use crate::table::grid::Side::{Left, Right};
use crate::text::terminal_abilities::Look;
use crate::text::{bytes, word};

/// Most lines of a node that are listed.
const MOST: usize = 36;

/// One line per link, those that many devices have in common once; empty where nothing is said.
pub(super) fn draw_copies(node: &ClusterNode, look: Look) -> String {
    let Some(copies) = &node.copy_links else { return String::new() };
    let NodeCopies { host_memory_bytes, host_link, host_links, uplinks, peers } = copies;
    let mut grid =
        Grid::new(&[("copies", Left), ("out", Left), ("back", Left), ("both ways at once", Left)], look);
    let mut lines: Vec<[String; 4]> = Vec::new();
    for of in host_links {
        lines.push(line(format!("device {} {} host", of.device, look.to()), of.link.as_ref(), look));
    }
    if let Some(link) = host_link {
        let who = if host_links.is_empty() { "each device" } else { "each other device" };
        lines.push(line(format!("{who} {} host", look.to()), Some(link), look));
    }
    for uplink in uplinks {
        let devices: Vec<String> = uplink.device_indices.iter().map(ToString::to_string).collect();
        let rate = quantity::show_bytes_per_second(uplink.bytes_per_second);
        let both = format!("{rate}, {}", origin(uplink.origin));
        let who = format!("devices {} together {} host", devices.join(", "), look.to());
        lines.push([who, both, "the same".to_owned(), "full duplex".to_owned()]);
    }
    for of in peers {
        lines.push(line(format!("device {} {} device {}", of.a, look.to(), of.b), of.link.as_ref(), look));
    }
    let left_out = lines.len().saturating_sub(MOST);
    for cells in lines.into_iter().take(MOST) {
        grid.row(cells);
    }
    let rest = if left_out > 0 { format!("and {left_out} more: -o json has them\n") } else { String::new() };
    let memory = host_memory_bytes.map(|memory| format!("host memory for blocks: {}\n", bytes(memory)));
    format!("{}{rest}{}", grid.render(), memory.unwrap_or_default())
}

fn line(who: String, link: Option<&CopyLink>, look: Look) -> [String; 4] {
    let none = || look.none().to_owned();
    let Some(link) = link else { return [who, none(), none(), none()] };
    let out = link.out.as_ref().map_or_else(none, |of| speed(of, look));
    let back = match (&link.out, &link.back) {
        (Some(out), Some(back)) if out == back => "the same".to_owned(),
        (_, back) => back.as_ref().map_or_else(none, |of| speed(of, look)),
    };
    let full = || "full duplex".to_owned();
    let both = link.both_bytes_per_second.map_or_else(full, quantity::show_bytes_per_second);
    [who, out, back, both]
}

pub(super) fn draw_updates(updates: &[HostUpdate], look: Look) -> String {
    let columns = [
        ("step", Left),
        ("for one device alone", Right),
        ("for all devices at once", Right),
        ("origin", Left),
    ];
    let mut grid = Grid::new(&columns, look);
    for update in updates {
        let together = update.together_per_second.map(quantity::show_parameters_per_second);
        grid.row([
            step(update.step),
            quantity::show_parameters_per_second(update.parameters_per_second),
            together.unwrap_or_else(|| "each as alone".to_owned()),
            origin(update.origin),
        ]);
    }
    grid.render()
}

/// As documents have it: `adam-bf16`.
fn step(step: i32) -> String {
    let Ok(known) = v1::StepKind::try_from(step) else { return "unknown".to_owned() };
    let own = StepKind::ALL.into_iter().find(|&own| v1::StepKind::from(own) == known);
    own.map_or_else(|| word(known.as_str_name(), "STEP_KIND_"), |own| own.as_str().to_owned())
}
