//! What is printed and written: tables for people, all comparisons as CSV, and a picture of them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::accuracy::row::{Group, Row};
use crate::stats::Distribution;
use crate::table::{Table, or_dash, percent};

/// Writes every comparison as CSV and as a picture; returns both paths.
pub(crate) fn write(rows: &[Row], folder: &Path) -> Result<[PathBuf; 2]> {
    let paths = [folder.join("accuracy.csv"), folder.join("accuracy.svg")];
    for (path, text) in paths.iter().zip([csv(rows), scatter(rows)]) {
        fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(paths)
}

/// What a profile cost.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cost {
    pub(crate) study: String,
    pub(crate) profiling_mode: &'static str,
    pub(crate) runs: usize,
    pub(crate) device_seconds: f64,
    /// Without the starts of processes.
    pub(crate) training_seconds: f64,
    /// Computed from measured layers, not run.
    pub(crate) estimated: bool,
}

/// The distribution of errors per model, parallelism, group and predictor.
pub(crate) fn distributions(rows: &[Row]) -> Table {
    let mut kinds: BTreeMap<(Group, &str, &str, &str), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let kind = (row.group, row.model.as_str(), row.parallelism.as_str(), row.predictor);
        kinds.entry(kind).or_default().push(row);
    }
    let kind = ["held out", "model", "parallelism", "predictor", "n"];
    let errors = ["p50", "p90", "p99", "max", "bias", "covered", "margin"];
    let mut table = Table::new(&[&kind[..], &errors].concat());
    for ((group, model, parallelism, predictor), rows) in kinds {
        let errors: Vec<f64> = rows.iter().filter_map(|row| row.error()).collect();
        let refused = rows.len() - errors.len();
        let mut line =
            vec![group.name().to_owned(), model.to_owned(), parallelism.to_owned(), predictor.to_owned()];
        let Some(found) = Distribution::of(&errors) else {
            let why = rows.iter().find_map(|row| row.answer.as_ref().err());
            line.push(format!("{refused} refused: {}", why.map_or("", String::as_str)));
            table.row(line);
            continue;
        };
        let count =
            if refused == 0 { found.count.to_string() } else { format!("{}+{refused} refused", found.count) };
        line.push(count);
        line.extend([found.p50, found.p90, found.p99, found.max].map(percent));
        line.push(format!("{:+.2} %", 100.0 * found.bias));
        let covered: Vec<bool> = rows.iter().filter_map(|row| row.is_covered()).collect();
        let hits = covered.iter().filter(|&&covered| covered).count();
        let share = (!covered.is_empty()).then(|| hits as f64 / covered.len() as f64);
        line.push(or_dash(share, percent));
        let margin = rows.iter().filter_map(|row| row.margin()).reduce(f64::max);
        line.push(or_dash(margin, percent));
        table.row(line);
    }
    table
}

/// What profiles cost against the paper's campaign.
pub(crate) fn costs(costs: &[Cost]) -> Table {
    let mut table =
        Table::new(&["study", "profiling_mode", "runs", "device-seconds", "of that training", ""]);
    for cost in costs {
        table.row([
            cost.study.as_str(),
            cost.profiling_mode,
            &cost.runs.to_string(),
            &format!("{:.1}", cost.device_seconds),
            &format!("{:.1}", cost.training_seconds),
            if cost.estimated { "estimated from the layers' runs" } else { "measured" },
        ]);
    }
    table
}

const HEADER: &str = "study,model,parallelism,group,predictor,stage,micro_batch_size,in_flight,ledger,\
    measured_bytes,predicted_bytes,error,margin,covered,refused\n";

/// The rows with a header.
fn csv(rows: &[Row]) -> String {
    let mut text = HEADER.to_owned();
    for row in rows {
        let (bytes, refused) = match &row.answer {
            Ok(answer) => (answer.bytes.to_string(), ""),
            Err(why) => (String::new(), why.as_str()),
        };
        let error = row.error().map_or_else(String::new, |error| format!("{error:.6}"));
        let margin = row.margin().map_or_else(String::new, |margin| format!("{margin:.4}"));
        let covered = row.is_covered().map_or("", |covered| if covered { "yes" } else { "no" });
        let fields = [
            quoted(&row.study),
            quoted(&row.model),
            quoted(&row.parallelism),
            quoted(row.group.name()),
            quoted(row.predictor),
            quoted(&row.stage),
            row.micro_batch_size.to_string(),
            row.in_flight.to_string(),
            row.ledger.as_str().to_owned(),
            row.measured.to_string(),
            bytes,
            error,
            margin,
            covered.to_owned(),
            quoted(refused),
        ];
        let _ = writeln!(text, "{}", fields.join(","));
    }
    text
}

/// A field as RFC 4180 wants it.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

const SIZE: f64 = 760.0;
const LEFT: f64 = 80.0;
const BOTTOM: f64 = 60.0;
const TOP: f64 = 50.0;
/// One per predictor, in the order of their names; tell apart by people who see no red and green.
const COLOURS: [&str; 4] = ["#d55e00", "#0072b2", "#009e73", "#cc79a7"];

/// A picture of all rows that have a prediction.
fn scatter(rows: &[Row]) -> String {
    let points: Vec<(&'static str, f64, f64)> = rows
        .iter()
        .filter_map(|row| Some((row.predictor, log(row.measured), log(row.answer.as_ref().ok()?.bytes))))
        .collect();
    let both = points.iter().flat_map(|&(_, measured, predicted)| [measured, predicted]);
    let (low, high) = both.fold((f64::MAX, f64::MIN), |(low, high), at| (low.min(at), high.max(at)));
    let (low, high) = if low > high { (3.0, 9.0) } else { (low.floor(), high.ceil().max(low.floor() + 1.0)) };
    let along = |at: f64| LEFT + (at - low) / (high - low) * (SIZE - LEFT - 20.0);
    let up = |at: f64| SIZE - BOTTOM - (at - low) / (high - low) * (SIZE - BOTTOM - TOP);

    let line = |[x, y]: [f64; 2], [to_x, to_y]: [f64; 2], style: &str| {
        format!("<path d=\"M{x:.1} {y:.1}L{to_x:.1} {to_y:.1}\" {style}/>\n")
    };
    let label = |[x, y]: [f64; 2], anchor: &str, text: &str| {
        format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>\n")
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {SIZE} {SIZE}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"{SIZE}\" height=\"{SIZE}\" fill=\"white\"/>\n"
    );
    let grid = "stroke=\"#ddd\"";
    for power in low as i32..=high as i32 {
        let (x, y) = (along(power.into()), up(power.into()));
        svg += &line([x, up(low)], [x, up(high)], grid);
        svg += &line([along(low), y], [along(high), y], grid);
        svg += &label([x, up(low) + 20.0], "middle", &unit(power));
        svg += &label([along(low) - 8.0, y + 4.0], "end", &unit(power));
    }
    let diagonal = "stroke=\"#888\" stroke-dasharray=\"5 4\"";
    svg += &line([along(low), up(low)], [along(high), up(high)], diagonal);
    let mut by_predictor: BTreeMap<&str, Vec<[f64; 2]>> = BTreeMap::new();
    for (predictor, measured, predicted) in points {
        by_predictor.entry(predictor).or_default().push([along(measured), up(predicted)]);
    }
    for (index, (predictor, points)) in by_predictor.iter().enumerate() {
        let circle = |[x, y]: [f64; 2], style: &str| {
            let colour = COLOURS[index % COLOURS.len()];
            format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" {style} fill=\"{colour}\"/>\n")
        };
        svg.extend(points.iter().map(|&at| circle(at, "r=\"2.5\" fill-opacity=\"0.5\"")));
        let x = LEFT + 170.0 * index as f64;
        svg += &circle([x, 25.0], "r=\"5\"");
        svg += &label([x + 10.0, 29.0], "start", &format!("{predictor} ({})", points.len()));
    }
    svg += &label([SIZE / 2.0, SIZE - 12.0], "middle", "measured peak");
    svg += "<g transform=\"translate(18 380) rotate(-90)\">";
    svg += &label([0.0, 0.0], "middle", "predicted peak");
    svg + "</g>\n</svg>\n"
}

fn log(bytes: u64) -> f64 {
    (bytes.max(1) as f64).log10()
}

/// `10 MB` for 7.
fn unit(power: i32) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let unit = units.get((power / 3).max(0) as usize).copied().unwrap_or("PB");
    format!("{}{} {unit}", 1, "0".repeat((power % 3).max(0) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accuracy::row::example;

    /// Every line has as many fields as the header, whatever is in them, and every prediction is a point within the picture.
    #[test]
    fn every_comparison_is_a_line_and_every_prediction_a_point() {
        let row = example(Group::Parallel, "component/1", 100, 90, Some(0.05));
        let refused = Row { answer: Err("no".to_owned()), ..row.clone() };
        let text = csv(&[row.clone(), refused.clone()]);
        assert!(
            text.contains("\"degree 2, 4\",component/1,0..1,2,4,allocated,100,90,-0.100000,0.0500,no,\n")
        );
        assert!(text.ends_with("100,,,,,no\n") && text.lines().count() == 3);
        assert_eq!(quoted("say \"a\""), "\"say \"\"a\"\"\"");
        let large = example(Group::Stages, "component/1", 5_000_000, 900_000_000_000, None);
        for (rows, points) in [(vec![], 0), (vec![row.clone()], 1), (vec![row, refused, large], 2)] {
            let svg = scatter(&rows);
            assert_eq!(svg.matches("r=\"2.5\"").count(), points);
            for part in svg.split("cx=\"").skip(1) {
                let x: f64 = part.split('"').next().unwrap().parse().unwrap();
                assert!((0.0..=SIZE).contains(&x), "{x}");
            }
        }
    }
}
