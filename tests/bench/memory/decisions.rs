//! Table III: what is done to six tensors.

use std::time::Duration;

use loadmaster_planning::actions::rule::{Choice, Costs};

use crate::memory::nodes::{HOST, NVLINK};
use crate::memory::report::{Cell, Claim};

/// Milliseconds that a tensor is idle, and those of host, peers, and computing again; and what the paper does. It gives
/// those of t2's and t3's recomputation and copies and t5's ratio; the others are what its words allow.
const TENSORS: [(&str, [f64; 4], Choice); 6] = [
    ("BERT t1: the longest interval covers both swaps", [300.0, 120.0, 16.0, 5.0], Choice::Host),
    ("BERT t2: again +3 ms, peers 3 ms and hidden", [20.0, 23.0, 3.0, 3.0], Choice::Peers),
    ("BERT t3: again and peers both add 4 ms", [1.0, 38.0, 5.0, 4.0], Choice::Recompute),
    ("GPT t4: a long interval", [500.0, 200.0, 26.0, 10.0], Choice::Host),
    ("GPT t5: peers 7.6 times as fast as the host", [10.0, 76.0, 10.0, 6.0], Choice::Peers),
    ("GPT t6: again adds least", [2.0, 76.0, 10.0, 3.0], Choice::Recompute),
];

pub(crate) fn cells() -> Vec<Cell> {
    let of = |&(tensor, [interval, host, peers, again], published): &(&str, [f64; 4], Choice)| {
        let costs = Costs {
            interval_seconds: interval,
            host_seconds: Some(host),
            peer_seconds: Some(peers),
            again_seconds: Some(again),
        };
        let ours = costs.least();
        let added = |choice| costs.added(choice).unwrap_or(f64::NAN);
        let adds = [Choice::Host, Choice::Peers, Choice::Recompute].map(added);
        let [host, peers, again] = adds;
        let ours_words = ours.map_or_else(String::new, |choice| format!("{choice:?}"));
        Cell {
            what: tensor.to_owned(),
            ours: format!("{ours_words}: host adds {host} ms, peers {peers}, again {again}"),
            published: format!("{published:?}"),
            claim: Claim::Goal(ours == Some(published)),
            took: Duration::ZERO,
            within: None,
        }
    };
    let mut cells: Vec<Cell> = TENSORS.iter().map(of).collect();
    let ratio = 4.0 * NVLINK / HOST;
    cells.push(Cell {
        what: "GPT t5: peers over host, 4 NVLinks against PCIe 3".to_owned(),
        ours: format!("{ratio:.2}"),
        published: "7.6".to_owned(),
        claim: Claim::Goal((ratio - 7.6).abs() < 0.1),
        took: Duration::ZERO,
        within: None,
    });
    cells
}
