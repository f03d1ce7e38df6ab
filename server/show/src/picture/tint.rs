//! The colours of pictures: one list for terminals and files, so that both mean the same.

/// What something is coloured for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tint {
    /// A stage, by its index. Neighbours differ; the ninth looks like the first.
    Stage(usize),
    /// A part of memory, by its place in the breakdown.
    Part(usize),
    /// Predicted bytes that nobody can take apart.
    Whole,
    /// From the prediction to the upper end of its interval.
    Margin,
    /// A measured peak.
    Measured,
    /// The end of a capacity.
    Capacity,
    Forward,
    /// A forward pass of a chunk after the first.
    ForwardLater,
    Backward,
    /// A backward pass of a chunk after the first.
    BackwardLater,
    /// Gradient synchronisation and optimizer step.
    Step,
    /// Ranks give each other parts of chunks.
    Exchange,
    /// Waiting for a copy.
    Wait,
    /// A block leaves its device.
    Out,
    /// A block comes back.
    Back,
    /// A chunk on the device.
    Resident,
    /// A chunk that never leaves it.
    Kept,
    /// Gradients in a chunk of their own.
    Gradients,
    /// The plan among the points of a front.
    Chosen,
    /// Another point of a front.
    Point,
    /// A heading.
    Strong,
    /// What may be overlooked.
    Faint,
}

/// Number in the 256 colours of terminals, and sRGB. Light enough for black text on all of them.
type Colour = (u8, &'static str);

const STAGES: [Colour; 8] = [
    (75, "#6ea8fe"),
    (215, "#ffb454"),
    (78, "#63c384"),
    (211, "#f28bb4"),
    (185, "#e3cf57"),
    (141, "#b79af2"),
    (80, "#4fc4cf"),
    (180, "#d3a784"),
];

/// Model state in blues, activations in orange, what passes in green and red.
const PARTS: [Colour; 8] = [
    (68, "#4a7fd0"),
    (110, "#7da9e3"),
    (153, "#b5d0f5"),
    (215, "#f2a03d"),
    (223, "#f7cf8f"),
    (108, "#74b98c"),
    (174, "#dd7a70"),
    (248, "#a3a8b0"),
];

const FORWARD: Colour = (73, "#62b5c4");
const FORWARD_LATER: Colour = (152, "#a6d8e0");
const BACKWARD: Colour = (173, "#e5916c");
const BACKWARD_LATER: Colour = (223, "#f3c3ab");
const STEP: Colour = (140, "#a08ad8");
const EXCHANGE: Colour = (175, "#cf87b5");
const WAIT: Colour = (203, "#e05a5a");
const OUT: Colour = (179, "#d9b44a");
const BACK: Colour = (107, "#8fae5d");
const RESIDENT: Colour = (68, "#4a7fd0");
const KEPT: Colour = (140, "#a08ad8");
const GRADIENTS: Colour = (173, "#e5916c");
const WHOLE: Colour = (110, "#7da9e3");
const GREY: Colour = (248, "#a3a8b0");

impl Tint {
    /// What a device holds besides chunks: most of it are activations.
    pub(super) const OTHER: Self = Self::Part(3);

    /// Parameters of the escape sequence that begins it.
    pub(super) fn sgr(self) -> String {
        let filled = |(number, _): Colour| format!("30;48;5;{number}");
        match self {
            Self::Stage(_) | Self::Part(_) | Self::Whole => filled(self.colour()),
            Self::Forward | Self::ForwardLater | Self::Backward | Self::BackwardLater | Self::Step => {
                filled(self.colour())
            }
            Self::Exchange | Self::Wait | Self::Out | Self::Back => filled(self.colour()),
            Self::Resident | Self::Kept | Self::Gradients => filled(self.colour()),
            Self::Measured | Self::Chosen => "1;31".to_owned(),
            Self::Point => "34".to_owned(),
            Self::Margin | Self::Faint => "2".to_owned(),
            Self::Capacity | Self::Strong => "1".to_owned(),
        }
    }

    /// Class in a style sheet.
    pub(super) fn class(self) -> &'static str {
        const STAGE: [&str; STAGES.len()] = ["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"];
        const PART: [&str; PARTS.len()] = ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"];
        match self {
            Self::Stage(index) => STAGE[index % STAGE.len()],
            Self::Part(index) => PART[index % PART.len()],
            Self::Whole => "whole",
            Self::Margin => "margin",
            Self::Measured => "measured",
            Self::Capacity => "capacity",
            Self::Forward => "forward",
            Self::ForwardLater => "forward-later",
            Self::Backward => "backward",
            Self::BackwardLater => "backward-later",
            Self::Step => "step",
            Self::Exchange => "exchange",
            Self::Wait => "wait",
            Self::Out => "out",
            Self::Back => "back",
            Self::Resident => "resident",
            Self::Kept => "kept",
            Self::Gradients => "gradients",
            Self::Chosen => "chosen",
            Self::Point => "point",
            Self::Strong => "strong",
            Self::Faint => "faint",
        }
    }

    fn colour(self) -> Colour {
        match self {
            Self::Stage(index) => STAGES[index % STAGES.len()],
            Self::Part(index) => PARTS[index % PARTS.len()],
            Self::Whole => WHOLE,
            Self::Forward => FORWARD,
            Self::ForwardLater => FORWARD_LATER,
            Self::Backward => BACKWARD,
            Self::BackwardLater => BACKWARD_LATER,
            Self::Step => STEP,
            Self::Exchange => EXCHANGE,
            Self::Wait => WAIT,
            Self::Out => OUT,
            Self::Back => BACK,
            Self::Resident => RESIDENT,
            Self::Kept => KEPT,
            Self::Gradients => GRADIENTS,
            Self::Margin | Self::Measured | Self::Capacity => GREY,
            Self::Chosen | Self::Point | Self::Strong | Self::Faint => GREY,
        }
    }

    /// The rules of a style sheet that fill shapes with these colours.
    pub(super) fn rules() -> String {
        let passes = [Self::Forward, Self::ForwardLater, Self::Backward, Self::BackwardLater, Self::Step];
        let copies = [Self::Exchange, Self::Wait, Self::Out, Self::Back];
        let chunks = [Self::Resident, Self::Kept, Self::Gradients];
        (0..STAGES.len())
            .map(Self::Stage)
            .chain((0..PARTS.len()).map(Self::Part))
            .chain([Self::Whole])
            .chain(passes)
            .chain(copies)
            .chain(chunks)
            .map(|tint| format!(".{}{{fill:{}}}", tint.class(), tint.colour().1))
            .collect()
    }
}
