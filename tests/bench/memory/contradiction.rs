//! What the paper says of BERT-6.2B, put side by side.

use std::time::Duration;

use crate::memory::largest;
use crate::memory::models::{PaperModel, STAGES};
use crate::memory::nodes::Server;
use crate::memory::report::{Cell, Claim};

pub(crate) fn cells() -> Vec<Cell> {
    let node = Server::Dgx1.node();
    let devices = node.capacity.iter().sum::<u64>() as f64 / 1e9;
    let total: f64 = largest::stages(&PaperModel::named("BERT-6.2B")).iter().sum();
    let host = node.host_bytes as f64 / 1e9;
    let text = 5.0 * 256.0;
    let cell = |what: &str, ours: String, published: String, claim: Claim| Cell {
        what: what.to_owned(),
        ours,
        published,
        claim,
        took: Duration::ZERO,
        within: None,
    };
    vec![
        cell(
            "All stages together",
            format!("{total:.0} GB"),
            format!("{text:.0} GB, 5 x 256"),
            Claim::Shown(true),
        ),
        cell(
            "Host swap alone must put on the host, at least",
            format!("{:.0} GB", total - devices),
            format!("{:.0} GB", text - 32.0 * STAGES as f64),
            Claim::Shown(true),
        ),
        cell("The host has", format!("{host:.0} GB"), "768 GB".to_owned(), Claim::Shown(true)),
        cell(
            "So host swap alone",
            if total - devices > host { "does not fit" } else { "fits" }.to_owned(),
            "trains (Fig. 7)".to_owned(),
            Claim::Shown(total - devices <= host),
        ),
    ]
}
