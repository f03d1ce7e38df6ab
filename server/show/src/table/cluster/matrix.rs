//! The links between the devices of a node, as a matrix.

use loadmaster_proto::cluster::quantity;
use loadmaster_proto::wire::v1::{ClusterNode, LinkOrigin, LinkSpeed};

use super::speed::class;
use crate::table::grid::Grid;
use crate::table::grid::Side::{Left, Right};
use crate::text::plural;
use crate::text::terminal_abilities::Look;

/// Most devices that are drawn: a line holds no more.
const MOST: usize = 16;

/// One row and one column per device. A letter tells where a number is from.
pub(super) fn draw(node: &ClusterNode, look: Look) -> String {
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
    let own = node.links.iter().find(|link| (link.a, link.b) == (a.min(b), a.max(b)));
    let (class, link) = match own {
        Some(own) => (class(own.link_class, own.count), own.speed.as_ref()),
        None => (class(node.link_class, 1), node.link.as_ref()),
    };
    link.map_or_else(|| look.none().to_owned(), |link| format!("{class} {}", short(link)).trim().to_owned())
}

/// `371a`: gigabytes per second, and where from.
fn short(link: &LinkSpeed) -> String {
    let letter = match LinkOrigin::try_from(link.origin) {
        Ok(LinkOrigin::Measured) => "m",
        Ok(LinkOrigin::Given) => "g",
        Ok(LinkOrigin::Assumed) => "a",
        Ok(LinkOrigin::Unspecified) | Err(_) => "?",
    };
    format!("{}{letter}", quantity::digits(link.bytes_per_second / 1e9))
}
