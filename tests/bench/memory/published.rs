//! Tables II to IV and figures 7 to 9 of MPress.

use loadmaster_memory::actions::paper::PaperPlan;
use loadmaster_memory::actions::rule::{Choice, Costs};
use loadmaster_memory::actions::{PeakMemory, PlanError, StageWork};
use loadmaster_proto::training::actions::StageActions;

use crate::memory::Scope;
use crate::memory::paper::{BERT, Case, GPT, HOST, NVLINK, PaperModel, STAGES, Server, System, Ways};
use crate::report::{Claim, Figure};

/// How far from a published figure is near enough.
const NEAR: f64 = 0.03;

/// GB of the largest stage, and of all together where they are published.
const LARGEST: [(&str, Option<f64>, Option<f64>); 5] = [
    ("BERT-0.35B", Some(24.77), Some(108.8)),
    ("BERT-6.2B", None, Some(1280.0)),
    ("GPT-10.3B", Some(56.4), None),
    ("GPT-25.5B", Some(140.1), None),
    ("GPT-5.3B", None, None),
];

/// GB of every stage of a model, untouched.
fn stages(model: &PaperModel) -> Vec<f64> {
    // Enough to fill every stage.
    let micro_batches = STAGES as u32;
    let stages = model.stages(Server::Dgx1.flops(model.system));
    let none = StageActions::default();
    let of = |(index, stage)| {
        let place = (index as u32, STAGES as u32);
        PeakMemory::of(stage, &StageWork::of(stage, place, model.order(), micro_batches, &none), &none).device
            as f64
            / 1e9
    };
    stages.iter().enumerate().map(of).collect()
}

/// Table II: the largest stage of models, and of all stages together.
pub(crate) fn largest(_: &Scope) -> Vec<Figure> {
    let of = |model: &PaperModel| {
        let stages = stages(model);
        let largest = stages.iter().copied().fold(0.0, f64::max);
        let total: f64 = stages.iter().sum();
        let known = LARGEST.iter().find(|row| row.0 == model.name);
        let (published_largest, published_total) = known.map_or((None, None), |row| (row.1, row.2));
        let error = |ours: f64, published: f64| ours / published - 1.0;
        let words = |what: &str, ours: f64, published: Option<f64>| {
            published
                .map(|published| format!("{what} {published} GB ({:+.1} %)", 100.0 * error(ours, published)))
        };
        let published =
            [words("largest", largest, published_largest), words("total", total, published_total)];
        let is_near = published_largest.is_none_or(|published| error(largest, published).abs() <= NEAR);
        Figure::new(
            format!("{}, {:.2} B parameters", model.name, model.parameters() / 1e9),
            format!("largest {largest:.1} GB, smallest {:.1}, total {total:.1}", stages[STAGES - 1]),
            published.into_iter().flatten().collect::<Vec<_>>().join(", "),
            if published_largest.is_some() { Claim::Goal(is_near) } else { Claim::Shown(true) },
        )
    };
    BERT.iter().chain(&GPT).map(of).collect()
}

/// What the paper says of BERT-6.2B, put side by side.
pub(crate) fn contradiction(_: &Scope) -> Vec<Figure> {
    let node = Server::Dgx1.node();
    let devices = node.capacity.iter().sum::<u64>() as f64 / 1e9;
    let total: f64 = stages(&PaperModel::named("BERT-6.2B")).iter().sum();
    let host = node.host_bytes as f64 / 1e9;
    let text = 5.0 * 256.0;
    let shown =
        |what: &str, ours: String, published: &str| Figure::new(what, ours, published, Claim::Shown(true));
    let fits = total - devices <= host;
    vec![
        shown("All stages together", format!("{total:.0} GB"), &format!("{text:.0} GB, 5 x 256")),
        shown(
            "Host swap alone must put on the host, at least",
            format!("{:.0} GB", total - devices),
            &format!("{:.0} GB", text - 32.0 * STAGES as f64),
        ),
        shown("The host has", format!("{host:.0} GB"), "768 GB"),
        Figure::new(
            "So host swap alone",
            if fits { "fits" } else { "does not fit" },
            "trains (Fig. 7)",
            Claim::Shown(fits),
        ),
    ]
}

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

/// Table III: what is done to six tensors.
pub(crate) fn decisions(_: &Scope) -> Vec<Figure> {
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
        Figure::new(
            tensor.to_owned(),
            format!("{ours_words}: host adds {host} ms, peers {peers}, again {again}"),
            format!("{published:?}"),
            Claim::Goal(ours == Some(published)),
        )
    };
    let mut figures: Vec<Figure> = TENSORS.iter().map(of).collect();
    let ratio = 4.0 * NVLINK / HOST;
    figures.push(Figure::new(
        "GPT t5: peers over host, 4 NVLinks against PCIe 3",
        format!("{ratio:.2}"),
        "7.6",
        Claim::Goal((ratio - 7.6).abs() < 0.1),
    ));
    figures
}

/// Shares of host, recomputation and peers of the four plans that the paper shows, in its words.
const SHARES: [(&str, &str); 4] = [
    ("BERT-1.67B", "host 0, again 76.6, D2D 23.4 %"),
    ("BERT-6.2B", "host, again and D2D"),
    ("GPT-10.3B", "host, again and D2D"),
    ("GPT-20.4B", "host 42.2, again 51.2, D2D 6.6 %; 573.5 GB"),
];

/// Table IV, by what bytes are saved; without the largest model where it should be quick.
pub(crate) fn shares(&Scope { is_quick, micro_batches, mappings, .. }: &Scope) -> Vec<Figure> {
    let of = |&(name, published): &(&str, &str)| {
        let case = Case::of(PaperModel::named(name), Server::Dgx1, micro_batches);
        let (plan, took) = case.plan(Ways::All, (true, mappings));
        let (ours, is_whole) = match plan {
            Ok(plan) => (words(&plan), (plan.saved.parts().iter().sum::<f64>() - 1.0).abs() < 1e-9),
            Err(error) => (error.to_string(), false),
        };
        Figure::new(
            format!("{name} on {}", Server::Dgx1.name()),
            ours,
            published.to_owned(),
            Claim::Goal(is_whole),
        )
        .took(took)
    };
    SHARES.iter().filter(|row| !is_quick || row.0 != "BERT-6.2B").map(of).collect()
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
pub(crate) fn ratios(&Scope { micro_batches, .. }: &Scope) -> Vec<Figure> {
    let of = |&(name, faster, slower, published): &(&str, Ways, Ways, &str)| {
        let case = Case::of(PaperModel::named(name), Server::Dgx1, micro_batches);
        let [(one, took), (other, also)] = [faster, slower].map(|ways| case.plan(ways, (true, 0)));
        let ours = match (one, other) {
            (Ok(one), Ok(other)) => format!("{:.3}", other.seconds / one.seconds),
            _ => "no plan".to_owned(),
        };
        let slack = if case.model.system == System::PipeDream { "fp32" } else { "fp16" };
        Figure::new(
            format!("{name}, {slack}: {} over {}", faster.name(), slower.name()),
            ours,
            published.to_owned(),
            Claim::Shown(true),
        )
        .took(took + also)
    };
    RATIOS.iter().map(of).collect()
}

/// The name of the section.
pub(crate) const WHO_TRAINS: &str = "Fig. 7 and 8, who trains what";

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

/// Fig. 7 and 8: who trains what, all 52 figures.
pub(crate) fn who_trains(&Scope { micro_batches, .. }: &Scope) -> Vec<Figure> {
    let mut figures = Vec::new();
    let tables: [(&[PaperModel], Server, &[Published]); 3] =
        [(&BERT, Server::Dgx1, &BERT_DGX1), (&GPT, Server::Dgx1, &GPT_DGX1), (&GPT, Server::Dgx2, &GPT_DGX2)];
    for (models, server, rows) in tables {
        for &(ways, published) in rows {
            for (model, published) in models.iter().zip(published.chars()) {
                figures.push(figure(*model, server, ways, published, micro_batches));
            }
        }
    }
    figures
}

fn figure(model: PaperModel, server: Server, ways: Ways, published: char, micro_batches: u32) -> Figure {
    let (plan, took) = Case::of(model, server, micro_batches).plan(ways, (true, 0));
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
    Figure::new(
        format!("{} on {}, {}", model.name, server.name(), ways.name()),
        ours,
        if published.eq_ignore_ascii_case(&'y') { "trains" } else { "no" }.to_owned(),
        if published.is_ascii_uppercase() { Claim::Shown(is_same) } else { Claim::Goal(is_same) },
    )
    .took(took)
}

/// What the paper gains by mapping, and by striping on top; it does not say for which model.
const GAINS: [(Server, &str, &str); 2] =
    [(Server::Dgx1, "+17.4 %", "+33.3 %"), (Server::Dgx2, "0", "+11.0 %")];

/// Fig. 9: what mapping and striping gain, where blocks go to peers alone, and where everything may be done; so many mappings are simulated at most.
pub(crate) fn links(&Scope { micro_batches, mappings, .. }: &Scope) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (server, mapping, striping) in GAINS {
        let mut is_gain = false;
        for (name, ways) in [("BERT-0.64B", Ways::Peers), ("BERT-1.67B", Ways::All), ("GPT-10.3B", Ways::All)]
        {
            let case = Case::of(PaperModel::named(name), server, micro_batches);
            let uses = [(false, 0), (false, mappings), (true, mappings)];
            let plans = uses.map(|links| case.plan(ways, links));
            let took = plans.iter().map(|plan| plan.1).sum();
            let what = format!("{name} on {}, {}", server.name(), ways.name());
            let [Ok(default), Ok(mapped), Ok(striped)] = plans.map(|plan| plan.0) else {
                let ours = "needs stripes to fit".to_owned();
                figures.push(Figure::new(what, ours, "", Claim::Shown(true)).took(took));
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
            figures.push(
                Figure::new(
                    what,
                    format!(
                        "mapping {by_mapping:+.1} %, striping {by_striping:+.1} %, {:?}",
                        striped.mapping
                    ),
                    format!("mapping {mapping}, striping {striping}"),
                    Claim::Goal(is_as_claimed && by_striping >= 0.0),
                )
                .took(took),
            );
        }
        if server == Server::Dgx1 {
            figures.push(Figure::new(
                "Mapping gains on the cube mesh",
                if is_gain { "yes" } else { "no" }.to_owned(),
                "yes",
                Claim::Goal(is_gain),
            ));
        }
    }
    figures
}
