//! Where nothing fits: what comes closest, and what it lacks.

use loadmaster_proto::bytes::Bytes;

use super::Scene;
use super::candidate::Candidate;
use super::market::Market;
use super::part::Part;
use super::solve::Asked;
use super::variant::Variant;
use super::wish::Wish;
use crate::planning::search::memory::{self, Obstacle};
use crate::planning::search::{Choice, Cuts, Stop};

/// Most variants that are looked at for the one that comes closest.
const MOST_EXPLAINED: usize = 64;

/// A stage that does not fit.
#[derive(Debug, Clone, PartialEq)]
pub struct Short {
    /// Index of its first layer.
    pub first: usize,
    /// Index of its last layer, inclusive.
    pub last: usize,
    /// How its devices share its work.
    pub choice: Choice,
    /// Its devices, by their place in the whole fleet.
    pub devices: Vec<u32>,
    /// What each of them must hold, the margin included.
    pub needed: Bytes,
    /// What the smallest of them allows.
    pub capacity: Bytes,
}

impl Short {
    /// Bytes that are missing on each of its devices.
    pub fn missing(&self) -> Bytes {
        Bytes(self.needed.0.saturating_sub(self.capacity.0))
    }
}

/// Why no plan of any variant fits.
#[derive(Debug, Clone, PartialEq)]
pub enum Lack {
    /// The plan that comes closest, and its stage that lacks most.
    Plan {
        /// The plan.
        plan: Candidate,
        /// Index of the stage.
        stage: usize,
        /// What it lacks.
        short: Short,
    },
    /// A layer fits nowhere: the stage with it that lacks least.
    Layer {
        /// Index of the layer.
        layer: usize,
        /// What the stage lacks.
        short: Short,
    },
    /// There is no plan, however much memory the devices had.
    NoPlan {
        /// Why, for people.
        why: String,
    },
}

impl Lack {
    /// What is missing on each device of the stage that lacks most; none where memory is not what lacks.
    pub fn missing(&self) -> Option<Bytes> {
        match self {
            Self::Plan { short, .. } | Self::Layer { short, .. } => Some(short.missing()),
            Self::NoPlan { .. } => None,
        }
    }

    /// The stage that does not fit.
    pub fn short(&self) -> Option<&Short> {
        match self {
            Self::Plan { short, .. } | Self::Layer { short, .. } => Some(short),
            Self::NoPlan { .. } => None,
        }
    }

    /// For people: which stage of which plan lacks how many bytes on which devices.
    pub fn describe(&self, scene: &Scene<'_>) -> String {
        let needs = |short: &Short| {
            format!(
                "layers {} to {} on {} need {} of {}, {} too much",
                short.first,
                short.last,
                scene.device_range(&short.devices),
                short.needed,
                short.capacity,
                short.missing()
            )
        };
        match self {
            Self::NoPlan { why } => why.clone(),
            Self::Layer { layer, short } => {
                let name = scene.names.get(*layer).map_or("", String::as_str);
                format!("layer {layer} ({name}) fits on no device: {}", needs(short))
            }
            Self::Plan { plan, stage, short } => {
                format!("closest is {}: stage {stage} does not fit, {}", plan.describe(), needs(short))
            }
        }
    }
}

/// What lacks in the one of a wish's variants that comes closest; none where one fits, or when stopped. The cuts
/// are those of the part.
pub(super) fn lack<M: Market>(
    market: &M,
    wish: &Wish,
    variants: &[Variant],
    part: &Part,
    cuts: &Cuts,
    stop: &Stop,
) -> Option<Lack> {
    let mut closest: Option<Lack> = None;
    for variant in variants.iter().take(MOST_EXPLAINED) {
        let asked = Asked::new(market, wish, variant, part, cuts);
        for question in asked.questions(true) {
            let Some(one) = memory::explain(&question, stop) else { continue };
            let one = match one {
                memory::Lack::Plan { best, shortage } => {
                    Candidate::of(&question, &best.stages, variant.batch, wish.overlap, part).and_then(
                        |plan| {
                            let stage = best.stages.iter().position(|stage| *stage == shortage.stage)?;
                            let short = short(&plan, stage)?;
                            Some(Lack::Plan { plan, stage, short })
                        },
                    )
                }
                memory::Lack::Layer { layer, shortage } => {
                    let devices = question.places.resolve(&[shortage.stage]).into_iter().flatten();
                    let choice = variant.choices.get(shortage.stage.choice).copied();
                    Some(Lack::Layer {
                        layer,
                        short: Short {
                            first: shortage.stage.first,
                            last: shortage.stage.last,
                            choice: choice.unwrap_or(Choice::SINGLE),
                            devices: devices
                                .filter_map(|device| part.origin.get(device as usize).copied())
                                .collect(),
                            needed: shortage.needed,
                            capacity: shortage.capacity,
                        },
                    })
                }
                memory::Lack::NoPlan(obstacle) => {
                    let why = match obstacle {
                        Obstacle::Costs => unknown(market, variant),
                        _ => None,
                    };
                    Some(Lack::NoPlan {
                        why: why.unwrap_or_else(|| in_words(obstacle, wish, part, market.layers())),
                    })
                }
            };
            closest = closer(closest, one);
        }
    }
    closest.or_else(|| no_variant(wish, variants, part, market.layers()))
}

fn short(plan: &Candidate, stage: usize) -> Option<Short> {
    let stage = plan.stages.get(stage)?;
    Some(Short {
        first: stage.first,
        last: stage.last,
        choice: stage.choice,
        devices: stage.devices.clone(),
        needed: Bytes(stage.peak.needed),
        capacity: stage.capacity,
    })
}

/// The one that lacks fewer bytes; one that lacks bytes before one that has no plan at all.
fn closer(one: Option<Lack>, other: Option<Lack>) -> Option<Lack> {
    let missing = |lack: &Lack| lack.missing().map_or(u64::MAX, |bytes| bytes.0);
    one.into_iter().chain(other).min_by_key(missing)
}

/// What keeps the layers from being run in any of a variant's ways.
fn unknown<M: Market>(market: &M, variant: &Variant) -> Option<String> {
    (0..market.layers()).find_map(|layer| {
        let why: Vec<Option<String>> = variant
            .choices
            .iter()
            .map(|&choice| market.obstacle(variant.schedule, variant.batch, choice, layer, layer))
            .collect();
        // Only what no choice can do keeps a layer out.
        why.iter().all(Option::is_some).then(|| why.into_iter().flatten().next()).flatten()
    })
}

fn in_words(obstacle: Obstacle, wish: &Wish, part: &Part, layers: usize) -> String {
    let devices = part.devices();
    match obstacle {
        Obstacle::Devices => no_cover(wish, devices, layers),
        Obstacle::Cuts => format!(
            "no plan of the shape {} cuts the {layers} layers only where it is allowed and takes all {devices} \
             devices",
            wish.shape
        ),
        Obstacle::Pins => "no plan has the pinned layers on their devices".to_owned(),
        Obstacle::Costs => "every plan has a stage that cannot be predicted".to_owned(),
    }
}

fn no_cover(wish: &Wish, devices: u32, layers: usize) -> String {
    format!(
        "no plan of the shape {} with at most {layers} stages takes all {devices} devices: each stage has a layer \
         at least, its data degree divides the micro-batch, and {}; let devices stay idle \
         (`--allow-idle-devices`), or allow other degrees, shapes or node spanning",
        wish.shape,
        match wish.spanning() {
            crate::planning::search::Spanning::Never => "it stays on one node",
            crate::planning::search::Spanning::WholeNodes => "it takes whole nodes",
            crate::planning::search::Spanning::Anywhere => "its degrees are those that are allowed",
        }
    )
}

/// Where not even a variant exists.
fn no_variant(wish: &Wish, variants: &[Variant], part: &Part, layers: usize) -> Option<Lack> {
    if wish.rules.is_some_and(|rules| rules.even_nodes) && !part.is_even() {
        let launcher = wish.rules.map_or_else(String::new, |rules| rules.launcher.to_string());
        return Some(Lack::NoPlan {
            why: format!(
                "{launcher} starts equally many processes on every node, and the nodes have different numbers of \
                 devices: exclude some, or let devices stay idle (`--allow-idle-devices`)"
            ),
        });
    }
    variants.is_empty().then(|| Lack::NoPlan { why: no_cover(wish, part.devices(), layers) })
}
