//! Table IV: by what bytes are saved; and how much longer an iteration takes by each way alone.

use loadmaster_planning::actions::paper::PaperPlan;

use crate::memory::ask::{Case, LinkUse, Ways};
use crate::memory::models::{PaperModel, System};
use crate::memory::nodes::Server;
use crate::memory::report::{Cell, Claim};

/// Shares of host, recomputation and peers of the four plans that the paper shows, in its words.
const PUBLISHED: [(&str, &str); 4] = [
    ("BERT-1.67B", "host 0, again 76.6, D2D 23.4 %"),
    ("BERT-6.2B", "host, again and D2D"),
    ("GPT-10.3B", "host, again and D2D"),
    ("GPT-20.4B", "host 42.2, again 51.2, D2D 6.6 %; 573.5 GB"),
];

/// The cells; without the largest model where it should be quick.
pub(crate) fn shares(micro_batches: u32, mappings: usize, quick: bool) -> Vec<Cell> {
    let of = |&(name, published): &(&str, &str)| {
        let case = Case::of(PaperModel::named(name), Server::Dgx1, micro_batches);
        let (plan, took) = case.plan(Ways::All, LinkUse { stripes: true, mappings });
        let (ours, is_whole) = match plan {
            Ok(plan) => (words(&plan), (plan.saved.parts().iter().sum::<f64>() - 1.0).abs() < 1e-9),
            Err(error) => (error.to_string(), false),
        };
        Cell {
            what: format!("{name} on {}", Server::Dgx1.name()),
            ours,
            published: published.to_owned(),
            claim: Claim::Goal(is_whole),
            took,
            within: None,
        }
    };
    PUBLISHED.iter().filter(|row| !quick || row.0 != "BERT-6.2B").map(of).collect()
}

fn words(plan: &PaperPlan) -> String {
    let [host, again, peers] = plan.saved.parts().map(|part| 100.0 * part);
    let gigabytes = plan.saved.all().0 as f64 / 1e9;
    format!("host {host:.1}, again {again:.1}, D2D {peers:.1} %; {gigabytes:.1} GB")
}

/// What the paper says of the same model: which is how much faster than which.
const RATIOS: [(&str, Ways, Ways, &str); 6] = [
    ("BERT-0.64B", Ways::Recompute, Ways::Host, "2.434"),
    ("BERT-1.67B", Ways::Recompute, Ways::Host, "2.254"),
    ("BERT-1.67B", Ways::All, Ways::Recompute, "1.195 to 1.242"),
    ("BERT-4B", Ways::All, Ways::Host, "1.8"),
    ("BERT-0.64B", Ways::All, Ways::Peers, "1"),
    ("GPT-10.3B", Ways::All, Ways::Recompute, "1.192 to 1.238"),
];

/// Seconds of one way over another's. The paper's swap can hardly overlap, a planned one does: these are no goals.
pub(crate) fn ratios(micro_batches: u32) -> Vec<Cell> {
    let of = |&(name, faster, slower, published): &(&str, Ways, Ways, &str)| {
        let case = Case::of(PaperModel::named(name), Server::Dgx1, micro_batches);
        let links = LinkUse { stripes: true, mappings: 0 };
        let [(one, took), (other, also)] = [faster, slower].map(|ways| case.plan(ways, links));
        let ours = match (one, other) {
            (Ok(one), Ok(other)) => format!("{:.3}", other.seconds / one.seconds),
            _ => "no plan".to_owned(),
        };
        let slack = if case.model.system == System::PipeDream { "fp32" } else { "fp16" };
        Cell {
            what: format!("{name}, {slack}: {} over {}", faster.name(), slower.name()),
            ours,
            published: published.to_owned(),
            claim: Claim::Shown(true),
            took: took + also,
            within: None,
        }
    };
    RATIOS.iter().map(of).collect()
}
