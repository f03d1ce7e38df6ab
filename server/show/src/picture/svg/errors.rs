//! How wrong predictions of one subject were, over time: a disc per pair, predicted too high above the line and too low below it.

use loadmaster_proto::wire::v1::{PredictionPair, Quantity};

use super::scene::{Anchor, Scene, Shape, Style};
use super::{WIDTH, notes, write};
use crate::picture::tint::Tint;
use crate::picture::xml::Xml;
use crate::table::prediction_errors::{error_of, signed};
use crate::text::label::{safe, sentence};
use crate::text::terminal_abilities::Look;
use crate::text::time;

/// Height of the plot.
const HEIGHT: f64 = 160.0;
/// Ratios beyond this are drawn at the edge, and say so where the pointer rests.
const LARGEST: f64 = 1.0;
/// The least error that the plot has room for: a ratio, seconds or bytes.
const LEAST: [f64; 3] = [0.1, 1e-3, 1.0];

/// A picture within a page that has the style sheet; nothing where there is nothing to draw. All pairs are of one quantity.
pub fn inline(pairs: &[&PredictionPair], title: &str) -> String {
    let points: Vec<(f64, f64, &PredictionPair)> = pairs
        .iter()
        .filter_map(|pair| {
            let at = pair.measure_time.as_ref()?.seconds as f64;
            Some((at, error_of(pair)?, *pair))
        })
        .collect();
    let mut xml = Xml::default();
    if !points.is_empty() {
        write::inline(&mut xml, &draw(&points), &sentence(title), "drawn");
    }
    xml.finish()
}

fn draw(points: &[(f64, f64, &PredictionPair)]) -> Scene {
    let mut scene = Scene::new(WIDTH);
    let quantity = points.first().map_or(Quantity::Unspecified, |(.., pair)| pair.quantity());
    let [of_ratios, of_seconds, of_bytes] = LEAST;
    let (least, largest) = match quantity {
        Quantity::WaitedSeconds => (of_seconds, f64::MAX),
        Quantity::CopiedBytes => (of_bytes, f64::MAX),
        Quantity::PeakBytes | Quantity::IterationSeconds | Quantity::Unspecified => (of_ratios, LARGEST),
    };
    let most = points.iter().fold(least, |most, (_, error, _)| most.max(error.abs())).min(largest);
    let (first, last) =
        points.iter().fold((f64::MAX, f64::MIN), |(first, last), (at, ..)| (first.min(*at), last.max(*at)));
    let (left, top, room) = (64.0, 8.0, WIDTH - 64.0 - 12.0);
    let x =
        |at: f64| if last > first { left + (at - first) / (last - first) * room } else { left + room / 2.0 };
    let y = |error: f64| top + HEIGHT / 2.0 - error.clamp(-most, most) / most * HEIGHT / 2.0;
    scene.rect((left - 8.0, top - 8.0), (room + 16.0, HEIGHT + 16.0), Style::Frame, "");
    for error in [most, most / 2.0, 0.0, -most / 2.0, -most] {
        scene.line((left, y(error)), (left + room, y(error)), Style::Tint(Tint::Faint));
        scene.text(
            (left - 14.0, y(error) + 4.0),
            Anchor::End,
            Style::Tint(Tint::Faint),
            &signed(quantity, error),
        );
    }
    for (at, error, pair) in points {
        let when = time(pair.measure_time.as_ref(), Look::FILE);
        let title =
            format!("{}: {} on {when}, {}", safe(&pair.plan), signed(quantity, *error), safe(&pair.source));
        let style = Style::Tint(Tint::Point);
        scene.shapes.push(Shape::Disc { x: x(*at), y: y(*error), radius: 4.0, style, title });
    }
    let bottom = top + HEIGHT + 24.0;
    let ends =
        [points.iter().min_by(|a, b| a.0.total_cmp(&b.0)), points.iter().max_by(|a, b| a.0.total_cmp(&b.0))];
    for (end, side, at) in [(ends[0], Anchor::Start, left), (ends[1], Anchor::End, left + room)] {
        let text = end.map_or_else(String::new, |(_, _, pair)| time(pair.measure_time.as_ref(), Look::FILE));
        scene.text((at, bottom), side, Style::Tint(Tint::Faint), &notes::within(&text, room / 2.0));
    }
    scene.height = bottom + 8.0;
    scene
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(seconds: i64, predicted: f64) -> PredictionPair {
        PredictionPair {
            plan: "plans/<script>".to_owned(),
            predicted_value: predicted,
            measured_value: 2.0,
            measure_time: Some(prost_types::Timestamp { seconds, nanos: 0 }),
            ..PredictionPair::default()
        }
    }

    /// Whatever was measured, the picture is well-formed, within its plane, and shows every pair that has an error.
    #[test]
    fn every_pair_is_a_disc_within_the_plot() {
        let all = [pair(0, 2.2), pair(100, 1e300), pair(50, 0.0), pair(7, f64::NAN)];
        let drawn = inline(&all.iter().collect::<Vec<_>>(), "seconds");
        let document = roxmltree::Document::parse(&drawn).unwrap();
        let discs: Vec<_> = document
            .descendants()
            .filter(|of| of.has_tag_name(("http://www.w3.org/2000/svg", "circle")))
            .collect();
        assert_eq!(discs.len(), 3);
        for disc in discs {
            let at = |name: &str| disc.attribute(name).unwrap().parse::<f64>().unwrap();
            assert!(
                (0.0..=WIDTH).contains(&at("cx")) && (0.0..=HEIGHT + 40.0).contains(&at("cy")),
                "{drawn}"
            );
        }
        assert!(!drawn.contains("<script") && drawn.contains("+10.0 %"), "{drawn}");
        assert_eq!(inline(&[], "none"), "");
        assert!(inline(&[&all[0]], "one").contains("circle"));
    }
    /// What may be 0 has no ratio: its differences are drawn, with their unit.
    #[test]
    fn waits_of_nothing_are_drawn_as_differences() {
        let waited = |predicted, measured| PredictionPair {
            quantity: Quantity::WaitedSeconds.into(),
            measured_value: measured,
            ..pair(10, predicted)
        };
        let all = [waited(0.0, 0.0), waited(0.0, 0.25), waited(3.0, 0.0), waited(f64::INFINITY, 0.0)];
        let drawn = inline(&all.iter().collect::<Vec<_>>(), "waits");
        assert_eq!(drawn.matches("<circle").count(), 3, "{drawn}");
        for shown in ["+3.00 s", "-250.0 ms", "+0 s"] {
            assert!(drawn.contains(shown), "{shown}: {drawn}");
        }
        assert!(!drawn.contains('%'), "{drawn}");
    }
}
