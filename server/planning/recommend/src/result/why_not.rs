//! Where nothing fits: what comes closest, and what it lacks.

use loadmaster_proto::amounts::plural;
use loadmaster_proto::bytes::Bytes;

use super::error::UNPROVEN;
use crate::problem::Variant;
use crate::search::{Candidate, Inquiry, Job, PricedVariant};
use loadmaster_search::cost::Market;
use loadmaster_search::memory::{self, Obstacle};
use loadmaster_search::{Choice, Spanning, Stop};

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
pub enum WhyNot {
    /// The plan that comes closest, and its stage that lacks most: no plan that was looked at lacks less.
    Plan {
        /// Index of a layer that fits nowhere, in whatever stage; none where each fits somewhere.
        layer: Option<usize>,
        plan: Box<Candidate>,
        /// Index of the stage.
        stage: usize,
        /// What it lacks.
        short: Short,
        /// Whether all plans were looked at, or a search proved that none fits.
        is_proven: bool,
    },
    /// There is no plan, however much memory the devices had.
    NoPlan {
        /// Why, human-readable.
        why: String,
    },
    /// Nothing that was tried of the allowed memory optimizations makes a stage fit.
    Actions {
        /// Why, human-readable.
        why: String,
        /// What the stage lacks with them.
        missing: Bytes,
        /// Whether it is proven that nothing allowed does.
        is_proven: bool,
    },
}

impl WhyNot {
    /// What is missing on each device of the stage that lacks most; none where memory is not what lacks.
    pub fn missing(&self) -> Option<Bytes> {
        match self {
            Self::Plan { short, .. } => Some(short.missing()),
            Self::Actions { missing, .. } => Some(*missing),
            Self::NoPlan { .. } => None,
        }
    }

    /// Whether it is proven that no plan fits.
    pub fn is_proven(&self) -> bool {
        match self {
            Self::Plan { is_proven, .. } | Self::Actions { is_proven, .. } => *is_proven,
            Self::NoPlan { why } => why != UNPROVEN,
        }
    }

    /// The stage that does not fit.
    pub fn short(&self) -> Option<&Short> {
        match self {
            Self::Plan { short, .. } => Some(short),
            Self::NoPlan { .. } | Self::Actions { .. } => None,
        }
    }

    /// Human-readable: which stage of which plan lacks how many bytes on which devices.
    pub fn describe(&self, job: &Job<'_>) -> String {
        let needs = |short: &Short| {
            format!(
                "layers {} to {} on {} need {} of {}, {} too much",
                short.first,
                short.last,
                job.device_range(&short.devices),
                short.needed,
                short.capacity,
                short.missing()
            )
        };
        match self {
            Self::NoPlan { why } | Self::Actions { why, .. } => why.clone(),
            Self::Plan { layer, plan, stage, short, is_proven } => {
                let nowhere = layer.map_or_else(String::new, |layer| {
                    let name = job.names.get(layer).map_or("", String::as_str);
                    format!("layer {layer} ({name}) fits on no device; ")
                });
                let of = if *is_proven { "" } else { " among the searched plans" };
                format!(
                    "{nowhere}the plan that is closest to fitting{of} is {}: stage {stage} does not fit, {}",
                    plan.describe(),
                    needs(short)
                )
            }
        }
    }
}

/// What lacks in the one of criteria's variants that comes closest; none where one fits, or when stopped. It is proven where no order
/// of the nodes is left out.
pub(super) fn why_not<M: Market>(
    inquiry: Inquiry<'_, M>,
    variants: &[Variant],
    stop: &Stop,
) -> Option<WhyNot> {
    if !inquiry.may_start() {
        return no_variant(inquiry, variants);
    }
    let mut closest: Option<WhyNot> = None;
    // A layer is said to fit nowhere if that is so in all variants.
    let mut nowhere: Option<Option<usize>> = None;
    let mut are_all_asked = true;
    for variant in variants {
        if stop.is_over() {
            return None;
        }
        let asked = PricedVariant::new(inquiry, variant);
        stop.take(asked.work());
        are_all_asked &= asked.has_all_orders();
        for question in asked.questions(true) {
            let Some(one) = memory::explain(&question, stop) else { continue };
            let one = match one {
                memory::Shortfall::Plan { layer, best, shortage } => {
                    asked.candidate(&question, &best.stages).and_then(|plan| {
                        let stage = best.stages.iter().position(|stage| *stage == shortage.stage)?;
                        let short = short(&plan, stage)?;
                        nowhere = Some(nowhere.map_or(layer, |other| other.filter(|_| other == layer)));
                        Some(WhyNot::Plan { layer, plan: Box::new(plan), stage, short, is_proven: false })
                    })
                }
                memory::Shortfall::NoPlan(obstacle) => {
                    let why = match obstacle {
                        Obstacle::Costs => unknown(inquiry.market, variant),
                        _ => None,
                    };
                    Some(WhyNot::NoPlan { why: why.unwrap_or_else(|| in_words(inquiry, obstacle)) })
                }
            };
            closest = closer(closest, one);
        }
    }
    if let Some(WhyNot::Plan { layer, is_proven, .. }) = &mut closest {
        (*layer, *is_proven) = (nowhere.flatten(), are_all_asked);
    }
    if matches!(closest, Some(WhyNot::NoPlan { .. })) && !are_all_asked {
        closest = Some(WhyNot::NoPlan { why: UNPROVEN.to_owned() });
    }
    closest.or_else(|| no_variant(inquiry, variants))
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
pub(super) fn closer(one: Option<WhyNot>, other: Option<WhyNot>) -> Option<WhyNot> {
    let missing = |of: &WhyNot| of.missing().map_or(u64::MAX, |bytes| bytes.0);
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

fn in_words<M: Market>(inquiry: Inquiry<'_, M>, obstacle: Obstacle) -> String {
    let (layers, devices, criteria) = (inquiry.market.layers(), inquiry.subset.devices(), inquiry.criteria);
    match obstacle {
        Obstacle::Devices => no_cover(inquiry),
        Obstacle::Cuts => format!(
            "no plan with the layout {} splits {} only at the allowed boundaries and uses {}",
            criteria.shape,
            plural(layers, "layer"),
            all_of(devices)
        ),
        Obstacle::Pins => {
            "no plan has each pinned layer on its device. Change or remove `constraints.layer_pins`"
                .to_owned()
        }
        Obstacle::Costs => {
            "every plan has a stage whose memory or time cannot be predicted from the profile".to_owned()
        }
    }
}

fn no_cover<M: Market>(inquiry: Inquiry<'_, M>) -> String {
    let (layers, devices, criteria) = (inquiry.market.layers(), inquiry.subset.devices(), inquiry.criteria);
    format!(
        "no plan with the layout {} and at most {} can use {}. Each stage needs at least one layer, its data-parallel \
         size must divide the micro-batch, and {}. Set `constraints.allow_idle_devices`, or allow other parallel \
         sizes, layouts or node spanning",
        criteria.shape,
        plural(layers, "stage"),
        all_of(devices),
        match criteria.spanning_on(inquiry.fleet()) {
            Spanning::Never => "a stage must be on one node",
            Spanning::WholeNodes => "a stage must use whole nodes",
            Spanning::Anywhere => "its parallel sizes must be allowed",
        }
    )
}

fn all_of(devices: u32) -> String {
    if devices == 1 { "the device".to_owned() } else { format!("all {}", plural(devices, "device")) }
}

/// Where not even a variant exists.
fn no_variant<M: Market>(inquiry: Inquiry<'_, M>, variants: &[Variant]) -> Option<WhyNot> {
    if !inquiry.may_start() {
        let framework = inquiry.criteria.rules.map_or_else(String::new, |rules| rules.framework.to_string());
        return Some(WhyNot::NoPlan {
            why: format!(
                "{framework} starts equally many processes on every node, but the nodes have different numbers of devices. \
                 Exclude some devices, or set `constraints.allow_idle_devices`"
            ),
        });
    }
    variants.is_empty().then(|| WhyNot::NoPlan { why: no_cover(inquiry) })
}
