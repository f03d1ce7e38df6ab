//! Scenes as SVG.

use super::scene::{Anchor, Rectangle, Scene, Shape};
use crate::picture::tint::Tint;
use crate::picture::xml::{Xml, number};

/// Colours of paper and ink, light and dark; the fills are the same on both.
pub(crate) fn rules() -> String {
    const BASE: &str = "\
        text{font:12px system-ui,-apple-system,Segoe UI,Roboto,DejaVu Sans,sans-serif;fill:#1c2128}\
        .paper{fill:#ffffff}\
        .frame{fill:#f3f5f8;stroke:#c3cad4}\
        .on{fill:#10151c;font-weight:600}\
        .small{font-size:10px;font-weight:400}\
        .heading{font-size:16px;font-weight:600}\
        .strong{font-weight:600}\
        text.faint{fill:#5a6472}\
        line.faint{stroke:#dde2e9}\
        rect.margin{fill:#8a929d;fill-opacity:.35}\
        line.capacity{stroke:#1c2128;stroke-width:2}\
        line.measured{stroke:#c9252d;stroke-width:3}\
        circle.point{fill:#4a7fd0}\
        circle.chosen{fill:#c9252d}\
        polyline{fill:none;stroke:#4a7fd0;stroke-width:1.5;stroke-opacity:.6}\
        polyline.measured{stroke:#c9252d;stroke-width:2;stroke-opacity:1}\
        rect:hover,circle:hover,polygon:hover{fill-opacity:.75}\
        @media (prefers-color-scheme:dark){\
        text{fill:#e3e8ef}.paper{fill:#12161c}.frame{fill:#1b212a;stroke:#3a4452}\
        .on{fill:#10151c}text.faint{fill:#97a1af}line.faint{stroke:#2b333f}\
        line.capacity{stroke:#e3e8ef}line.measured,polyline.measured{stroke:#ff6b6b}circle.chosen{fill:#ff6b6b}}";
    format!("{}{BASE}", Tint::rules())
}

/// Space around a picture that is a file of its own.
const MARGIN: f64 = 20.0;

/// A file of its own: with its paper and its style sheet.
pub(super) fn standalone(scene: Scene, title: &str) -> String {
    let mut page = Scene::default();
    page.beside(scene, MARGIN, MARGIN);
    page.width += MARGIN;
    page.height += MARGIN;
    let mut xml = Xml::default();
    xml.own("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    drawing(&mut xml, &page, title, None);
    xml.line();
    xml.finish()
}

/// A picture within a page, which has the style sheet, with its classes there.
pub(super) fn inline(xml: &mut Xml, scene: &Scene, title: &str, class: &str) {
    drawing(xml, scene, title, Some(class));
}

/// A picture in a page has classes, and one that is a file has none.
fn drawing(xml: &mut Xml, scene: &Scene, title: &str, class: Option<&str>) {
    let standalone = class.is_none();
    let (width, height) = (number(scene.width.ceil()), number(scene.height.ceil()));
    let view = format!("0 0 {width} {height}");
    let mut attributes = vec![
        ("xmlns", "http://www.w3.org/2000/svg"),
        ("viewBox", view.as_str()),
        ("role", "img"),
        ("width", width.as_str()),
        ("height", height.as_str()),
    ];
    // As wide as it was drawn, and narrower where the page is.
    attributes.extend(class.map(|class| ("class", class)));
    xml.element("svg", &attributes, |xml| {
        xml.leaf("title", &[], title);
        if standalone {
            xml.style(&rules());
            xml.empty("rect", &[("class", "paper"), ("width", &width), ("height", &height)]);
        }
        for one in &scene.shapes {
            xml.line();
            shape(xml, one);
        }
        xml.line();
    });
}

fn shape(xml: &mut Xml, shape: &Shape) {
    match shape {
        Shape::Box { x, y, width, height, style, title } => {
            let [x, y, width, height] = [x, y, width, height].map(|value| number(*value));
            let attributes = [
                ("class", style.class()),
                ("x", &x),
                ("y", &y),
                ("width", &width),
                ("height", &height),
                ("rx", "2"),
            ];
            titled(xml, "rect", &attributes, title);
        }
        Shape::Bars { bars, style } => {
            let drawn: String = bars.iter().map(outline).collect();
            xml.empty("path", &[("class", style.class()), ("d", &drawn)]);
        }
        Shape::Line { x1, y1, x2, y2, style } => {
            let [x1, y1, x2, y2] = [x1, y1, x2, y2].map(|value| number(*value));
            xml.empty(
                "line",
                &[("class", style.class()), ("x1", &x1), ("y1", &y1), ("x2", &x2), ("y2", &y2)],
            );
        }
        Shape::Path { points, style } => {
            xml.empty("polyline", &[("class", style.class()), ("points", &listed(points))]);
        }
        Shape::Area { points, style, title } => {
            titled(xml, "polygon", &[("class", style.class()), ("points", &listed(points))], title);
        }
        Shape::Disc { x, y, radius, style, title } => {
            let [x, y, radius] = [x, y, radius].map(|value| number(*value));
            titled(xml, "circle", &[("class", style.class()), ("cx", &x), ("cy", &y), ("r", &radius)], title);
        }
        Shape::Text { x, y, side, style, text } => {
            let [x, y] = [x, y].map(|value| number(*value));
            let anchor = match side {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            xml.leaf(
                "text",
                &[("class", style.class()), ("x", &x), ("y", &y), ("text-anchor", anchor)],
                text,
            );
        }
    }
}

/// The way around a bar.
fn outline(&Rectangle { x, y, width, height }: &Rectangle) -> String {
    let [x, y, width, height] = [x, y, width, height].map(number);
    format!("M{x} {y}h{width}v{height}h-{width}z")
}

fn listed(points: &[(f64, f64)]) -> String {
    let points: Vec<String> = points.iter().map(|&(x, y)| format!("{},{}", number(x), number(y))).collect();
    points.join(" ")
}

/// A shape that tells of itself when the pointer rests on it.
fn titled(xml: &mut Xml, name: &str, attributes: &[(&str, &str)], title: &str) {
    if title.is_empty() {
        xml.empty(name, attributes);
    } else {
        xml.element(name, attributes, |xml| xml.leaf("title", &[], title));
    }
}
