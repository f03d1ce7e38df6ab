//! Shapes on a plane: what a picture is before it is written down. Lengths are in pixels.

use crate::picture::tint::Tint;

/// Shapes and the plane that they are on.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Scene {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) shapes: Vec<Shape>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shape {
    /// A filled rectangle with what is told of it when the pointer rests on it.
    Box {
        x: f64,
        y: f64,
        width: f64,
        height: f64,
        style: Style,
        title: String,
    },
    /// Filled rectangles of which nothing is told: many of them are few bytes.
    Bars {
        bars: Vec<Rectangle>,
        style: Style,
    },
    Line {
        x1: f64,
        y1: f64,
        x2: f64,
        y2: f64,
        style: Style,
    },
    /// A line through points.
    Path {
        points: Vec<(f64, f64)>,
        style: Style,
    },
    /// What points surround, with what is told of it when the pointer rests on it.
    Area {
        points: Vec<(f64, f64)>,
        style: Style,
        title: String,
    },
    /// A disc with what is told of it when the pointer rests on it.
    Disc {
        x: f64,
        y: f64,
        radius: f64,
        style: Style,
        title: String,
    },
    /// One line of text; `y` is its base line.
    Text {
        x: f64,
        y: f64,
        side: Anchor,
        style: Style,
        text: String,
    },
}

/// A rectangle, from its upper left corner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rectangle {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// How a shape looks: a class of the style sheet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// In a colour of the pictures.
    Tint(Tint),
    /// The frame of a node, or the space of a bar.
    Frame,
    /// Text as it is.
    Plain,
    /// Text on a coloured shape.
    OnColour,
    /// Small text on a coloured shape.
    OnColourSmall,
    /// The heading of a picture.
    Heading,
}

/// Which end of a text is at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Style {
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Tint(tint) => tint.class(),
            Self::Frame => "frame",
            Self::Plain => "plain",
            Self::OnColour => "on",
            Self::OnColourSmall => "on small",
            Self::Heading => "heading",
        }
    }
}

impl Scene {
    /// An empty plane of a width.
    pub(super) fn new(width: f64) -> Self {
        Self { width, height: 0.0, shapes: Vec::new() }
    }

    pub(super) fn rect(
        &mut self,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        style: Style,
        title: &str,
    ) {
        let title = title.to_owned();
        self.shapes.push(Shape::Box { x, y, width: width.max(0.0), height, style, title });
    }

    pub(super) fn bars(&mut self, bars: Vec<Rectangle>, style: Style) {
        self.shapes.push(Shape::Bars { bars, style });
    }

    pub(super) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), style: Style) {
        self.shapes.push(Shape::Line { x1, y1, x2, y2, style });
    }

    pub(super) fn text(&mut self, (x, y): (f64, f64), side: Anchor, style: Style, text: &str) {
        self.shapes.push(Shape::Text { x, y, side, style, text: text.to_owned() });
    }

    /// Adds another scene below what is there.
    pub(super) fn below(&mut self, other: Self) {
        let height = self.height;
        self.beside(other, 0.0, height);
    }

    /// Adds another scene at a place, and makes room for it.
    pub(super) fn beside(&mut self, other: Self, dx: f64, dy: f64) {
        self.width = self.width.max(dx + other.width);
        self.height = self.height.max(dy + other.height);
        let moved = other.shapes.into_iter().map(|shape| match shape {
            Shape::Box { x, y, width, height, style, title } => {
                Shape::Box { x: x + dx, y: y + dy, width, height, style, title }
            }
            Shape::Bars { bars, style } => {
                let moved = |bar: Rectangle| Rectangle { x: bar.x + dx, y: bar.y + dy, ..bar };
                Shape::Bars { bars: bars.into_iter().map(moved).collect(), style }
            }
            Shape::Line { x1, y1, x2, y2, style } => {
                Shape::Line { x1: x1 + dx, y1: y1 + dy, x2: x2 + dx, y2: y2 + dy, style }
            }
            Shape::Path { points, style } => {
                Shape::Path { points: points.into_iter().map(|(x, y)| (x + dx, y + dy)).collect(), style }
            }
            Shape::Area { points, style, title } => {
                let points = points.into_iter().map(|(x, y)| (x + dx, y + dy)).collect();
                Shape::Area { points, style, title }
            }
            Shape::Disc { x, y, radius, style, title } => {
                Shape::Disc { x: x + dx, y: y + dy, radius, style, title }
            }
            Shape::Text { x, y, side, style, text } => {
                Shape::Text { x: x + dx, y: y + dy, side, style, text }
            }
        });
        self.shapes.extend(moved);
    }
}
