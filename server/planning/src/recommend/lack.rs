//! Where nothing fits: what comes closest, and what it lacks.

use loadmaster_proto::bytes::Bytes;

use super::Scene;
use super::candidate::Candidate;
use super::market::Market;
use super::part::Part;
use super::solve::Asked;
use super::variant::Variant;
use super::wish::Wish;
use crate::search::memory::{self, Obstacle};
use crate::search::{Choice, Cuts, Stop};

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
    /// The plan that comes closest, and its stage that lacks most: no plan lacks less.
    Plan {
        /// Index of a layer that fits nowhere, in whatever stage; none where each fits somewhere.
        layer: Option<usize>,
        /// The plan.
        plan: Box<Candidate>,
        /// Index of the stage.
        stage: usize,
        /// What it lacks.
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
            Self::Plan { short, .. } => Some(short.missing()),
            Self::NoPlan { .. } => None,
        }
    }

    /// The stage that does not fit.
    pub fn short(&self) -> Option<&Short> {
        match self {
            Self::Plan { short, .. } => Some(short),
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
            Self::Plan { layer, plan, stage, short } => {
                let nowhere = layer.map_or_else(String::new, |layer| {
                    let name = scene.names.get(layer).map_or("", String::as_str);
                    format!("layer {layer} ({name}) fits on no device; ")
                });
                format!(
                    "{nowhere}closest is {}: stage {stage} does not fit, {}",
                    plan.describe(),
                    needs(short)
                )
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
    if !may_start_on(wish, part) {
        return no_variant(wish, variants, part, market.layers());
    }
    let mut closest: Option<Lack> = None;
    // A layer is said to fit nowhere if that is so in all variants.
    let mut nowhere: Option<Option<usize>> = None;
    for variant in variants {
        if stop.is_over() {
            return None;
        }
        let asked = Asked::new(market, wish, variant, part, cuts);
        stop.take(asked.work());
        for question in asked.questions(true) {
            let Some(one) = memory::explain(&question, stop) else { continue };
            let one = match one {
                memory::Shortfall::Plan { layer, best, shortage } => {
                    let plan = Candidate::of(&question, &best.stages, variant.batch, wish.overlap, part);
                    plan.and_then(|plan| {
                        let stage = best.stages.iter().position(|stage| *stage == shortage.stage)?;
                        let short = short(&plan, stage)?;
                        nowhere = Some(nowhere.map_or(layer, |other| other.filter(|_| other == layer)));
                        Some(Lack::Plan { layer, plan: Box::new(plan), stage, short })
                    })
                }
                memory::Shortfall::NoPlan(obstacle) => {
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
    if let Some(Lack::Plan { layer, .. }) = &mut closest {
        *layer = nowhere.flatten();
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
pub(super) fn closer(one: Option<Lack>, other: Option<Lack>) -> Option<Lack> {
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
        Obstacle::Devices => no_cover(wish, part, layers),
        Obstacle::Cuts => format!(
            "no plan of the shape {} cuts the {layers} layers only where it is allowed and takes all {devices} \
             devices",
            wish.shape
        ),
        Obstacle::Pins => "no plan has the pinned layers on their devices".to_owned(),
        Obstacle::Costs => "every plan has a stage that cannot be predicted".to_owned(),
    }
}

fn no_cover(wish: &Wish, part: &Part, layers: usize) -> String {
    let devices = part.devices();
    format!(
        "no plan of the shape {} with at most {layers} stages takes all {devices} devices: each stage has a layer \
         at least, its data degree divides the micro-batch, and {}; let devices stay idle \
         (`--allow-idle-devices`), or allow other degrees, shapes or node spanning",
        wish.shape,
        match wish.spanning_on(&part.fleet) {
            crate::search::Spanning::Never => "it stays on one node",
            crate::search::Spanning::WholeNodes => "it takes whole nodes",
            crate::search::Spanning::Anywhere => "its degrees are those that are allowed",
        }
    )
}

/// Whether the launcher can start its processes on a part.
pub(super) fn may_start_on(wish: &Wish, part: &Part) -> bool {
    part.is_even() || !wish.rules.is_some_and(|rules| rules.even_nodes)
}

/// Where not even a variant exists.
fn no_variant(wish: &Wish, variants: &[Variant], part: &Part, layers: usize) -> Option<Lack> {
    if !may_start_on(wish, part) {
        let launcher = wish.rules.map_or_else(String::new, |rules| rules.launcher.to_string());
        return Some(Lack::NoPlan {
            why: format!(
                "{launcher} starts equally many processes on every node, and the nodes have different numbers of \
                 devices: exclude some, or let devices stay idle (`--allow-idle-devices`)"
            ),
        });
    }
    variants.is_empty().then(|| Lack::NoPlan { why: no_cover(wish, part, layers) })
}
