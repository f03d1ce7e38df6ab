//! Predicted against measured bytes, both on logarithmic axes.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::accuracy::row::{Answer, Row};

const SIZE: f64 = 760.0;
const LEFT: f64 = 80.0;
const BOTTOM: f64 = 60.0;
const TOP: f64 = 50.0;
/// One per predictor, in the order of their names; tell apart by people who see no red and green.
const COLOURS: [&str; 4] = ["#d55e00", "#0072b2", "#009e73", "#cc79a7"];

/// A picture of all rows that have a prediction.
pub(super) fn scatter(rows: &[Row]) -> String {
    let points: Vec<(&'static str, f64, f64)> = rows
        .iter()
        .filter_map(|row| match row.answer {
            Answer::Bytes { bytes, .. } => Some((row.predictor, log(row.measured), log(bytes))),
            Answer::Refused(_) => None,
        })
        .collect();
    let both = points.iter().flat_map(|&(_, measured, predicted)| [measured, predicted]);
    let (low, high) = both.fold((f64::MAX, f64::MIN), |(low, high), at| (low.min(at), high.max(at)));
    let (low, high) = if low > high { (3.0, 9.0) } else { (low.floor(), high.ceil().max(low.floor() + 1.0)) };
    let along = |at: f64| LEFT + (at - low) / (high - low) * (SIZE - LEFT - 20.0);
    let up = |at: f64| SIZE - BOTTOM - (at - low) / (high - low) * (SIZE - BOTTOM - TOP);

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {SIZE} {SIZE}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"{SIZE}\" height=\"{SIZE}\" fill=\"white\"/>\n"
    );
    for power in low as i32..=high as i32 {
        let at = f64::from(power);
        let _ = writeln!(
            svg,
            "<path d=\"M{0:.1} {1:.1}V{2:.1}M{3:.1} {4:.1}H{5:.1}\" stroke=\"#ddd\"/>\n\
             <text x=\"{0:.1}\" y=\"{6:.1}\" text-anchor=\"middle\">{7}</text>\n\
             <text x=\"{8:.1}\" y=\"{9:.1}\" text-anchor=\"end\">{7}</text>",
            along(at),
            up(low),
            up(high),
            along(low),
            up(at),
            along(high),
            up(low) + 20.0,
            unit(power),
            along(low) - 8.0,
            up(at) + 4.0
        );
    }
    let _ = writeln!(
        svg,
        "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"#888\" stroke-dasharray=\"5 4\"/>",
        along(low),
        up(low),
        along(high),
        up(high)
    );
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (predictor, _, _) in &points {
        *counts.entry(predictor).or_default() += 1;
    }
    let colours: BTreeMap<&str, &str> = counts.keys().copied().zip(COLOURS.into_iter().cycle()).collect();
    for (predictor, measured, predicted) in &points {
        let colour = colours.get(predictor).unwrap_or(&COLOURS[0]);
        let _ = writeln!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.5\" fill=\"{colour}\" fill-opacity=\"0.5\"/>",
            along(*measured),
            up(*predicted)
        );
    }
    for (index, (predictor, count)) in counts.iter().enumerate() {
        let x = LEFT + 170.0 * index as f64;
        let colour = colours.get(predictor).unwrap_or(&COLOURS[0]);
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"25\" r=\"5\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"29\">{predictor} ({count})</text>",
            x + 10.0
        );
    }
    let middle = SIZE / 2.0;
    let _ = writeln!(
        svg,
        "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">measured peak</text>\n\
         <text transform=\"translate(18 {middle}) rotate(-90)\" text-anchor=\"middle\">predicted peak</text>\n</svg>",
        SIZE - 12.0
    );
    svg
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
    use crate::accuracy::row::{Group, example};

    /// One point per prediction, all within the picture, also where there is one or none.
    #[test]
    fn every_prediction_is_a_point_within_the_picture() {
        let row = |measured, bytes| example(Group::Stages, "component/1", measured, bytes, None);
        for rows in [vec![], vec![row(1_000, 1_000)], vec![row(1, 0), row(5_000_000, 900_000_000_000)]] {
            let svg = scatter(&rows);
            assert_eq!(svg.matches("r=\"2.5\"").count(), rows.len());
            for part in svg.split("cx=\"").skip(1) {
                let x: f64 = part.split('"').next().unwrap().parse().unwrap();
                assert!((0.0..=SIZE).contains(&x), "{x}");
            }
        }
        assert_eq!((unit(0), unit(7), unit(9)), ("1 B".to_owned(), "10 MB".to_owned(), "1 GB".to_owned()));
    }
}
