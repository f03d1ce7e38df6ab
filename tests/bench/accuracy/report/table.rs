//! Tables for people, on standard output.

use std::collections::BTreeMap;

use crate::accuracy::goals::{Goal, percent};
use crate::accuracy::row::{Group, Row};
use crate::accuracy::stats::Distribution;

/// What a profile cost.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cost {
    pub(crate) study: String,
    pub(crate) campaign: &'static str,
    pub(crate) runs: usize,
    pub(crate) device_seconds: f64,
    /// Without the starts of processes.
    pub(crate) training_seconds: f64,
    /// Computed from measured layers, not run.
    pub(crate) estimated: bool,
}

/// The distribution of errors per model, parallelism, group and predictor.
pub(crate) fn print_distributions(rows: &[Row]) {
    let mut kinds: BTreeMap<(Group, &str, &str, &str), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let kind = (row.group, row.model.as_str(), row.parallelism.as_str(), row.predictor);
        kinds.entry(kind).or_default().push(row);
    }
    let mut lines = vec![
        [
            "held out",
            "model",
            "parallelism",
            "predictor",
            "n",
            "p50",
            "p90",
            "p99",
            "max",
            "bias",
            "covered",
            "margin",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for ((group, model, parallelism, predictor), rows) in kinds {
        let errors: Vec<f64> = rows.iter().filter_map(|row| row.error()).collect();
        let refused = rows.len() - errors.len();
        let mut line =
            vec![group.name().to_owned(), model.to_owned(), parallelism.to_owned(), predictor.to_owned()];
        let Some(found) = Distribution::of(&errors) else {
            let why = rows.iter().find_map(|row| match &row.answer {
                crate::accuracy::row::Answer::Refused(why) => Some(why.as_str()),
                crate::accuracy::row::Answer::Bytes { .. } => None,
            });
            line.push(format!("{refused} refused: {}", why.unwrap_or_default()));
            lines.push(line);
            continue;
        };
        let count =
            if refused == 0 { found.count.to_string() } else { format!("{}+{refused} refused", found.count) };
        line.push(count);
        line.extend([found.p50, found.p90, found.p99, found.max].map(percent));
        line.push(format!("{:+.2} %", 100.0 * found.bias));
        let covered: Vec<bool> = rows.iter().filter_map(|row| row.is_covered()).collect();
        let hits = covered.iter().filter(|&&covered| covered).count();
        line.push(if covered.is_empty() {
            "-".to_owned()
        } else {
            percent(hits as f64 / covered.len() as f64)
        });
        let margin = rows.iter().filter_map(|row| row.margin()).reduce(f64::max);
        line.push(margin.map_or_else(|| "-".to_owned(), percent));
        lines.push(line);
    }
    print(&lines);
}

/// What profiles cost against the paper's campaign.
pub(crate) fn print_costs(costs: &[Cost]) {
    let mut lines = vec![
        ["study", "campaign", "runs", "device-seconds", "of that training", ""].map(str::to_owned).to_vec(),
    ];
    for cost in costs {
        lines.push(vec![
            cost.study.clone(),
            cost.campaign.to_owned(),
            cost.runs.to_string(),
            format!("{:.1}", cost.device_seconds),
            format!("{:.1}", cost.training_seconds),
            if cost.estimated { "estimated from the layers' runs" } else { "measured" }.to_owned(),
        ]);
    }
    print(&lines);
}

/// The goals, each met, missed or not measured.
pub(crate) fn print_goals(goals: &[Goal]) {
    let mut lines = vec![["goal", "mark to beat", "wanted", "", "reached"].map(str::to_owned).to_vec()];
    for goal in goals {
        let met = match goal.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "-",
        };
        let cells = [goal.what, goal.mark, goal.wanted, met, &goal.reached];
        lines.push(cells.map(str::to_owned).to_vec());
    }
    print(&lines);
}

/// Left-aligned columns, two spaces apart.
pub(crate) fn print(lines: &[Vec<String>]) {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    // The last cell of a line may be as long as it likes.
    let width = |column: usize| {
        let cells = lines.iter().filter(|line| column + 1 < line.len()).filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for line in lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    println!();
}
