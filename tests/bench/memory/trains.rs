//! Fig. 7 and 8: who trains what.

use loadmaster_planning::actions::PlanError;

use crate::memory::ask::{Case, LinkUse, Ways};
use crate::memory::models::{BERT, GPT, PaperModel};
use crate::memory::nodes::Server;
use crate::memory::report::{Cell, Claim};

/// The name of the section.
pub(crate) const NAME: &str = "Fig. 7 and 8, who trains what";

/// What the paper says of the models of a row: `y` trains, `n` does not, in capitals where it contradicts its own bytes or is
/// too close to call.
type Published = (Ways, &'static str);

const BERT_DGX1: [Published; 5] = [
    (Ways::Untouched, "ynnnn"),
    (Ways::Recompute, "yyyNn"),
    (Ways::Host, "yyyyY"),
    (Ways::Peers, "yynnn"),
    (Ways::All, "yyyyy"),
];
const GPT_DGX1: [Published; 3] = [(Ways::Untouched, "ynnn"), (Ways::Recompute, "yynn"), (Ways::All, "yyyy")];
const GPT_DGX2: [Published; 3] =
    [(Ways::Untouched, "ynnnn"), (Ways::Recompute, "yyynn"), (Ways::All, "yyyyy")];

/// All 52 cells.
pub(crate) fn cells(micro_batches: u32) -> Vec<Cell> {
    let mut cells = Vec::new();
    let tables: [(&[PaperModel], Server, &[Published]); 3] =
        [(&BERT, Server::Dgx1, &BERT_DGX1), (&GPT, Server::Dgx1, &GPT_DGX1), (&GPT, Server::Dgx2, &GPT_DGX2)];
    for (models, server, rows) in tables {
        for &(ways, published) in rows {
            for (model, published) in models.iter().zip(published.chars()) {
                cells.push(cell(*model, server, ways, published, micro_batches));
            }
        }
    }
    cells
}

fn cell(model: PaperModel, server: Server, ways: Ways, published: char, micro_batches: u32) -> Cell {
    let links = LinkUse { stripes: true, mappings: 0 };
    let (plan, took) = Case::of(model, server, micro_batches).plan(ways, links);
    let (trains, ours) = match plan {
        Ok(plan) => {
            let most = plan.peaks.iter().max().copied().unwrap_or(0) as f64 / 1e9;
            let slower = plan.seconds / plan.untouched_seconds - 1.0;
            let host = plan.host_bytes as f64 / 1e9;
            (
                true,
                format!(
                    "trains: {most:.1} GB at most, {host:.0} GB on the host, {:+.1} % time",
                    100.0 * slower
                ),
            )
        }
        Err(PlanError::NoRoom { stage, missing }) => {
            (false, format!("no: stage {stage} lacks {:.1} GB", missing as f64 / 1e9))
        }
        Err(error) => (false, format!("{error}")),
    };
    let is_same = trains == published.eq_ignore_ascii_case(&'y');
    Cell {
        what: format!("{} on {}, {}", model.name, server.name(), ways.name()),
        ours,
        published: if published.eq_ignore_ascii_case(&'y') { "trains" } else { "no" }.to_owned(),
        claim: if published.is_ascii_uppercase() { Claim::Shown(is_same) } else { Claim::Goal(is_same) },
        took,
        within: None,
    }
}
