//! Table II: the largest stage of models, and of all stages together.

use std::time::Duration;

use loadmaster_planning::actions::{Held, StageWork};
use loadmaster_proto::training::actions::StageActions;

use crate::memory::models::{BERT, GPT, PaperModel, STAGES};
use crate::memory::nodes::Server;
use crate::memory::report::{Cell, Claim};

/// How far from a published figure is near enough.
const NEAR: f64 = 0.03;

/// GB of the largest stage, and of all together where they are published.
const PUBLISHED: [(&str, Option<f64>, Option<f64>); 5] = [
    ("BERT-0.35B", Some(24.77), Some(108.8)),
    ("BERT-6.2B", None, Some(1280.0)),
    ("GPT-10.3B", Some(56.4), None),
    ("GPT-25.5B", Some(140.1), None),
    ("GPT-5.3B", None, None),
];

/// GB of every stage of a model, untouched.
pub(crate) fn stages(model: &PaperModel) -> Vec<f64> {
    // Enough to fill every stage.
    let micro_batches = STAGES as u32;
    let stages = model.stages(Server::Dgx1.flops(model.system));
    let none = StageActions::default();
    let of = |(index, stage)| {
        let place = (index as u32, STAGES as u32);
        Held::of(stage, &StageWork::of(stage, place, model.order(), micro_batches, &none), &none).device
            as f64
            / 1e9
    };
    stages.iter().enumerate().map(of).collect()
}

pub(crate) fn cells() -> Vec<Cell> {
    let of = |model: &PaperModel| {
        let stages = stages(model);
        let largest = stages.iter().copied().fold(0.0, f64::max);
        let total: f64 = stages.iter().sum();
        let known = PUBLISHED.iter().find(|row| row.0 == model.name);
        let (published_largest, published_total) = known.map_or((None, None), |row| (row.1, row.2));
        let error = |ours: f64, published: f64| ours / published - 1.0;
        let words = |what: &str, ours: f64, published: Option<f64>| {
            published
                .map(|published| format!("{what} {published} GB ({:+.1} %)", 100.0 * error(ours, published)))
        };
        let published =
            [words("largest", largest, published_largest), words("total", total, published_total)];
        let is_near = published_largest.is_none_or(|published| error(largest, published).abs() <= NEAR);
        Cell {
            what: format!("{}, {:.2} B parameters", model.name, model.parameters() / 1e9),
            ours: format!("largest {largest:.1} GB, smallest {:.1}, total {total:.1}", stages[STAGES - 1]),
            published: published.into_iter().flatten().collect::<Vec<_>>().join(", "),
            claim: if published_largest.is_some() { Claim::Goal(is_near) } else { Claim::Shown(true) },
            took: Duration::ZERO,
            within: None,
        }
    };
    BERT.iter().chain(&GPT).map(of).collect()
}
