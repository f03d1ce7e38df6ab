//! How wrong predictions of one subject were, over time: a disc per pair, predicted too high above the line and too low below it.

use loadmaster_proto::wire::v1::PredictionPair;

use super::scene::{Anchor, Scene, Shape, Style};
use super::{WIDTH, notes, write};
use crate::picture::tint::Tint;
use crate::picture::xml::Xml;
use crate::text::label::{safe, sentence};
use crate::text::terminal_abilities::Look;
use crate::text::{ratio, time};

/// Height of the plot.
const HEIGHT: f64 = 160.0;
/// Errors beyond this are drawn at the edge, and say so where the pointer rests.
const LARGEST: f64 = 1.0;
/// The least error that the plot has room for.
const LEAST: f64 = 0.1;

/// A picture within a page that has the style sheet; nothing where there is nothing to draw.
pub fn inline(pairs: &[&PredictionPair], title: &str) -> String {
    let points: Vec<(f64, f64, &PredictionPair)> = pairs
        .iter()
        .filter_map(|pair| {
            let at = pair.measure_time.as_ref()?.seconds as f64;
            let error = pair.predicted / pair.measured - 1.0;
            error.is_finite().then_some((at, error, *pair))
        })
        .collect();
    let mut xml = Xml::default();
    if !points.is_empty() {
        write::inline(&mut xml, &draw(&points), &sentence(title));
    }
    xml.finish()
}

fn draw(points: &[(f64, f64, &PredictionPair)]) -> Scene {
    let mut scene = Scene::new(WIDTH);
    let most = points.iter().fold(LEAST, |most, (_, error, _)| most.max(error.abs())).min(LARGEST);
    let (first, last) =
        points.iter().fold((f64::MAX, f64::MIN), |(first, last), (at, ..)| (first.min(*at), last.max(*at)));
    let (left, top, room) = (64.0, 8.0, WIDTH - 64.0 - 12.0);
    let x =
        |at: f64| if last > first { left + (at - first) / (last - first) * room } else { left + room / 2.0 };
    let y = |error: f64| top + HEIGHT / 2.0 - error.clamp(-most, most) / most * HEIGHT / 2.0;
    scene.rect((left - 8.0, top - 8.0), (room + 16.0, HEIGHT + 16.0), Style::Frame, "");
    for error in [most, most / 2.0, 0.0, -most / 2.0, -most] {
        scene.line((left, y(error)), (left + room, y(error)), Style::Tint(Tint::Faint));
        scene.text((left - 14.0, y(error) + 4.0), Anchor::End, Style::Tint(Tint::Faint), &ratio(error));
    }
    for (at, error, pair) in points {
        let when = time(pair.measure_time.as_ref(), Look::FILE);
        let title = format!("{}: {} on {when}, {}", safe(&pair.plan), ratio(*error), safe(&pair.source));
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
            predicted,
            measured: 2.0,
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
}
