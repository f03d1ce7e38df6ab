//! Text in a picture: how much room it takes, and sentences in lines. Whoever looks at an SVG brings the
//! fonts, so widths are estimates on the safe side.

use super::scene::{Anchor, Scene, Style};
use crate::picture::tint::Tint;
use crate::text::label::{cells, fit};
use crate::text::terminal_abilities::Look;

const LINE: f64 = 17.0;
/// Width of a character of 12 pixels; most are narrower.
const CHARACTER: f64 = 7.0;
/// Lines of one sentence.
const MOST_LINES: usize = 6;

/// About how wide a text of 12 pixels is.
pub(super) fn width_of(text: &str) -> f64 {
    width_of_cells(cells(text))
}

/// About how wide a text of 12 pixels and so many cells is.
pub(super) fn width_of_cells(cells: usize) -> f64 {
    cells as f64 * CHARACTER
}

/// A text of 12 pixels, cut to a width.
pub(super) fn within(text: &str, width: f64) -> String {
    fit(text, (width / CHARACTER).max(0.0) as usize, Look::FILE)
}

/// Sentences below each other, each in as many lines as it needs.
pub(super) fn lines(sentences: &[String], prefix: &str, width: f64) -> Scene {
    let mut scene = Scene::new(width);
    let most = (width / CHARACTER) as usize;
    for sentence in sentences {
        let mut line = prefix.to_owned();
        let mut written = 0;
        for word in sentence.split(' ') {
            if !line.is_empty() && cells(&line) + 1 + cells(word) > most && written + 1 < MOST_LINES {
                put(&mut scene, &std::mem::take(&mut line), most);
                written += 1;
            }
            if !line.is_empty() && !line.ends_with(' ') {
                line.push(' ');
            }
            line.push_str(word);
        }
        put(&mut scene, &line, most);
    }
    scene
}

fn put(scene: &mut Scene, line: &str, most: usize) {
    scene.height += LINE;
    let y = scene.height - 4.0;
    scene.text((0.0, y), Anchor::Start, Style::Tint(Tint::Faint), &fit(line, most, Look::FILE));
}

/// Coloured squares with what they mean, in as many rows as they need.
pub(super) fn legend(entries: &[(Tint, &str)], width: f64) -> Scene {
    const SQUARE: f64 = 12.0;
    let mut scene = Scene::new(width);
    scene.height = 20.0;
    let mut x = 0.0;
    for &(tint, text) in entries {
        let wide = SQUARE + 6.0 + width_of(text) + 14.0;
        if x > 0.0 && x + wide > width {
            x = 0.0;
            scene.height += 20.0;
        }
        let y = scene.height - 14.0;
        match tint {
            Tint::Capacity | Tint::Measured => {
                let middle = x + SQUARE / 2.0;
                scene.line((middle, y - 2.0), (middle, y + SQUARE + 2.0), Style::Tint(tint));
            }
            _ => scene.rect((x, y), (SQUARE, SQUARE), Style::Tint(tint), ""),
        }
        scene.text((x + SQUARE + 6.0, y + 10.0), Anchor::Start, Style::Plain, text);
        x += wide;
    }
    scene
}
