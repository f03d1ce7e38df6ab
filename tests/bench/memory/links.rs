//! Fig. 9: what mapping and striping gain, where blocks go to peers alone, and where everything may be done.

use crate::memory::ask::{Case, LinkUse, Ways};
use crate::memory::models::PaperModel;
use crate::memory::nodes::Server;
use crate::memory::report::{Cell, Claim};

/// What the paper gains by mapping, and by striping on top; it does not say for which model.
const PUBLISHED: [(Server, &str, &str); 2] =
    [(Server::Dgx1, "+17.4 %", "+33.3 %"), (Server::Dgx2, "0", "+11.0 %")];

/// The cells of every server; so many mappings are simulated at most.
pub(crate) fn cells(micro_batches: u32, mappings: usize) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (server, mapping, striping) in PUBLISHED {
        let mut is_gain = false;
        for (name, ways) in [("BERT-0.64B", Ways::Peers), ("BERT-1.67B", Ways::All), ("GPT-10.3B", Ways::All)]
        {
            let case = Case::of(PaperModel::named(name), server, micro_batches);
            let uses = [(false, 0), (false, mappings), (true, mappings)];
            let plans = uses.map(|(stripes, mappings)| case.plan(ways, LinkUse { stripes, mappings }));
            let took = plans.iter().map(|plan| plan.1).sum();
            let what = format!("{name} on {}, {}", server.name(), ways.name());
            let [Ok(default), Ok(mapped), Ok(striped)] = plans.map(|plan| plan.0) else {
                let ours = "needs stripes to fit".to_owned();
                cells.push(Cell {
                    what,
                    ours,
                    published: String::new(),
                    claim: Claim::Shown(true),
                    took,
                    within: None,
                });
                continue;
            };
            let gain = |of: f64, to: f64| 100.0 * (of / to - 1.0);
            let by_mapping = gain(default.seconds, mapped.seconds);
            is_gain |= by_mapping > 0.0;
            let is_as_claimed = match server {
                Server::Dgx1 => by_mapping >= 0.0,
                Server::Dgx2 => by_mapping == 0.0,
            };
            let by_striping = gain(mapped.seconds, striped.seconds);
            cells.push(Cell {
                what,
                ours: format!(
                    "mapping {by_mapping:+.1} %, striping {by_striping:+.1} %, {:?}",
                    striped.mapping
                ),
                published: format!("mapping {mapping}, striping {striping}"),
                claim: Claim::Goal(is_as_claimed && by_striping >= 0.0),
                took,
                within: None,
            });
        }
        if server == Server::Dgx1 {
            cells.push(Cell {
                what: "Mapping gains on the cube mesh".to_owned(),
                ours: if is_gain { "yes" } else { "no" }.to_owned(),
                published: "yes".to_owned(),
                claim: Claim::Goal(is_gain),
                took: std::time::Duration::ZERO,
                within: None,
            });
        }
    }
    cells
}
