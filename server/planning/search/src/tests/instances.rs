//! Small random questions, and every plan that answers one: what the solvers are tested against.
//!
//! The enumeration knows nothing of any solver. It follows every path through the places, cuts the chain in
//! every way and tries every choice, and only then asks what the plan costs.

pub(crate) use loadmaster_oracle::Shape;
use loadmaster_oracle::mixed;
use loadmaster_proto::training::{RecomputePolicy, Schedule};
pub(crate) use loadmaster_samples::cases;
use proptest::prelude::*;

use crate::tests::fleets::{self, link};
use crate::time::Parts;

use crate::*;

/// Everything that a [`Question`] borrows.
#[derive(Debug, Clone)]
pub(crate) struct Instance {
    pub(crate) costs: Dice,
    pub(crate) fleet: Fleet,
    pub(crate) places: Places,
    pub(crate) choices: Vec<usize>,
    pub(crate) schedule: Schedule,
    pub(crate) micro_batches: u32,
    pub(crate) stages: RangeInclusive<usize>,
    pub(crate) cuts: Cuts,
    pub(crate) within_capacity: bool,
}

impl Instance {
    pub(crate) fn question(&self) -> Question<'_, Dice> {
        Question {
            costs: &self.costs,
            fleet: &self.fleet,
            places: &self.places,
            choices: &self.choices,
            schedule: self.schedule,
            micro_batches: self.micro_batches,
            stages: self.stages.clone(),
            cuts: &self.cuts,
            within_capacity: self.within_capacity,
        }
    }
}

/// Costs that are thrown, not computed: every stage has its own, the same each time it is asked for.
///
/// A dearer kind or link never costs less, and more micro-batches in flight never take fewer bytes; nothing
/// else is promised. All seconds are whole numbers, so that sums compare exactly.
#[derive(Debug, Clone)]
pub(crate) struct Dice {
    pub(crate) seed: u64,
    pub(crate) layers: usize,
    pub(crate) choices: Vec<Choice>,
    /// Costs are below this, so that a small number makes ties.
    pub(crate) sides: u64,
    /// Whether a stage costs the sum of its layers, instead of anything.
    pub(crate) adds_up: bool,
    /// One stage in so many cannot be run; none can where it is 1.
    pub(crate) one_missing_in: u64,
    /// Seconds of a unit over each link, by index.
    pub(crate) links: Vec<u64>,
}

impl Dice {
    fn throw(&self, words: &[u64]) -> u64 {
        mixed(self.seed, words)
    }

    /// What a stage costs of something on the dearest of its kinds.
    fn cost(&self, of: u64, stage: &StageAt) -> u64 {
        let one = |first: usize, last: usize, kind: usize| {
            let words = [of, first as u64, last as u64, stage.choice as u64, kind as u64];
            self.throw(&words) % self.sides
        };
        let on = |kind: usize| match self.adds_up {
            true => (stage.first..=stage.last).map(|layer| one(layer, layer, kind)).sum(),
            false => one(stage.first, stage.last, kind),
        };
        stage.kinds.kinds().map(on).max().unwrap_or(0)
    }

    fn can_run(&self, stage: &StageAt) -> bool {
        let words = [0, stage.first as u64, stage.last as u64, stage.choice as u64];
        stage.last < self.layers && !self.throw(&words).is_multiple_of(self.one_missing_in)
    }

    fn link(&self, link: LinkId) -> u64 {
        self.links.get(usize::from(link)).copied().unwrap_or(0)
    }
}

impl StageCosts for Dice {
    fn layers(&self) -> usize {
        self.layers
    }

    fn choices(&self) -> &[Choice] {
        &self.choices
    }

    fn seconds(&self, stage: &StageAt) -> Option<Seconds> {
        let choice = *self.choices.get(stage.choice)?;
        let over = |degree: u32, link: LinkId| if degree > 1 { self.link(link) } else { 0 };
        self.can_run(stage).then(|| Seconds {
            forward: (1 + self.cost(1, stage) + over(choice.tensor, stage.tensor_link)) as f64,
            backward: (self.cost(2, stage) + over(choice.tensor, stage.tensor_link)) as f64,
            step: (self.cost(3, stage) + over(choice.data, stage.data_link)) as f64,
        })
    }

    fn peak(&self, stage: &StageAt, in_flight: u32) -> Option<Peak> {
        let bytes = self.cost(4, stage) + u64::from(in_flight) * (self.cost(5, stage) / 3);
        self.can_run(stage).then(|| Peak { bytes, needed: bytes + self.cost(6, stage) / 4 })
    }

    fn cut_seconds(&self, layer: usize, link: LinkId, choice: usize) -> f64 {
        (self.link(link) * (1 + self.throw(&[7, layer as u64, choice as u64]) % 3)) as f64
    }

    fn cut_seconds_over(&self, layer: usize, link: Link, choice: usize) -> f64 {
        // A unit takes 4 s at no speed at all.
        let unit = 4_u64.saturating_sub(link.bytes_per_second as u64);
        (unit * (1 + self.throw(&[7, layer as u64, choice as u64]) % 3)) as f64
    }
}

/// The ways to run a stage that instances know.
fn all_choices() -> Vec<Choice> {
    let none = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (3, 1)];
    let kept = none.map(|(data, tensor)| Choice::SINGLE.resized(data, tensor));
    let again = [(1, 1), (2, 1)];
    let again = again.map(|(data, tensor)| {
        Choice { recompute: RecomputePolicy::Stage, ..Choice::SINGLE }.resized(data, tensor)
    });
    kept.into_iter().chain(again).collect()
}

fn degrees(choice: Choice) -> (u32, u32) {
    (choice.data, choice.tensor)
}

/// One to three nodes of one to four times `unit` devices, `most` times it in all, of one or two kinds, over
/// links of up to three speeds. Seldom there is a device too many.
fn fleets(unit: u32, most: u32) -> impl Strategy<Value = Fleet> {
    let capacity = prop_oneof![Just(u64::MAX), 4_u64..30];
    let kinds = proptest::collection::vec(capacity, 1..=2);
    let node = (1_u32..=4, 0_usize..2, 1_u32..=2, 1_u32..=2, 0_u32..2);
    let nodes = proptest::collection::vec(node, 1..=3);
    let odd = prop_oneof![9 => Just(0_u32), 1 => Just(1)];
    (kinds, nodes, any::<bool>(), odd).prop_map(move |(kinds, nodes, tiered, odd)| {
        let mut left = most;
        let nodes = nodes.into_iter().enumerate().filter_map(|(index, drawn)| {
            let (units, kind, inside, outside, domain) = drawn;
            let units = units.min(left);
            left -= units;
            let devices = units * unit + if index == 0 { odd } else { 0 };
            let speeds = (inside + 1, outside);
            let own = fleets::node(format!("node{index}"), (kind % kinds.len(), devices), speeds);
            (units > 0).then(|| FleetNode { domains: vec![domain, 0], ..own })
        });
        let nodes = nodes.collect();
        let kinds = kinds.iter().enumerate();
        let kinds = kinds.map(|(index, &capacity)| fleets::kind(format!("kind{index}"), capacity)).collect();
        let tiers = if tiered { vec![Some(link(2)), Some(link(1))] } else { Vec::new() };
        Fleet { tiers, ..fleets::fleet(kinds, nodes) }
    })
}

/// Where the chain may be cut: mostly anywhere.
fn cuts(layers: usize, devices: u32) -> impl Strategy<Value = Cuts> {
    let layer = 0..layers;
    let together = proptest::collection::vec((layer.clone(), 1_usize..=2), 0..=1);
    let required = proptest::collection::vec(layer.clone(), 0..=1);
    let pins = proptest::collection::vec((layer, 0..devices as usize), 0..=2);
    let pins = prop_oneof![2 => Just(Vec::new()), 1 => pins];
    (together, required, pins).prop_map(move |(together, required, pins)| {
        let mut cuts = Cuts::anywhere(layers);
        for (first, more) in together {
            cuts.keep_together(first..=first + more);
        }
        required.into_iter().for_each(|layer| cuts.require_after(layer));
        pins.into_iter().for_each(|(layer, device)| cuts.pin(Pin { layer, device }));
        cuts
    })
}

/// Questions about a shape: up to 6 layers and as many stages, on up to 7 devices where stages may differ.
pub(crate) fn instances(shape: Shape) -> impl Strategy<Value = Instance> {
    let spanning = prop_oneof![Just(Spanning::Never), Just(Spanning::WholeNodes), Just(Spanning::Anywhere)];
    let sizes = (1_usize..=6, 0..all_choices().len());
    let fleet = sizes.prop_flat_map(move |(layers, like)| {
        let most = u32::try_from(layers).unwrap();
        let (unit, most) = match shape {
            Shape::UniformGrid | Shape::EqualDevices => (all_choices()[like].devices(), most),
            Shape::SinglePipeline => (1, most),
            Shape::PerStageReplicas | Shape::PerStageMesh => (1, 7),
        };
        (fleets(unit, most), Just(layers), Just(like))
    });
    (fleet, spanning).prop_flat_map(move |((fleet, layers, like), spanning)| {
        let dice = (any::<u64>(), prop_oneof![Just(2_u64), Just(5), Just(40)], any::<bool>());
        let missing = prop_oneof![3 => Just(u64::MAX), 1 => 2_u64..8];
        let stages = prop_oneof![
            2 => Just(1..=layers),
            1 => (1..=layers).prop_map(|count| count..=count),
            1 => (1..=layers, 1..=layers).prop_map(|(a, b)| a.min(b)..=a.max(b)),
        ];
        let schedule = prop_oneof![Just(Schedule::Gpipe), Just(Schedule::OneFOneB)];
        let links = proptest::collection::vec(0_u64..4, 8);
        let cuts = cuts(layers, fleet.devices());
        (dice, missing, links, stages, schedule, 1_u32..=4, cuts, any::<bool>()).prop_map(
            move |(
                dice,
                one_missing_in,
                mut links,
                stages,
                schedule,
                micro_batches,
                cuts,
                within_capacity,
            )| {
                let (seed, sides, adds_up) = dice;
                let all = all_choices();
                let choices: Vec<usize> = (0..all.len())
                    .filter(|&choice| shape.allows(degrees(all[choice]), degrees(all[like])))
                    .collect();
                let mut sizes: Vec<u32> = choices.iter().map(|&choice| all[choice].devices()).collect();
                sizes.sort_unstable();
                sizes.dedup();
                let places = Places::in_order(&fleet, &sizes, spanning);
                // A faster link never takes longer.
                links.sort_unstable();
                let speed = |link: &Link| 4 - (link.bytes_per_second as usize).min(4);
                let links = places.links().iter().map(|link| links[speed(link)]).collect();
                let costs = Dice { seed, layers, choices: all, sides, adds_up, one_missing_in, links };
                Instance {
                    costs,
                    fleet: fleet.clone(),
                    places,
                    choices,
                    schedule,
                    micro_batches,
                    stages,
                    cuts,
                    within_capacity,
                }
            },
        )
    })
}

/// A stage of an enumerated plan, with what it costs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WeighedStage {
    pub(crate) placed: PlacedStage,
    pub(crate) devices: u32,
    pub(crate) peak: Peak,
    /// Bytes that its devices allow.
    pub(crate) capacity: u64,
    /// None where its costs say that it cannot be run.
    pub(crate) seconds: Option<Seconds>,
    /// Seconds of its input over the link from the stage before; 0 for the first stage.
    pub(crate) entry: f64,
}

/// Every plan that the question allows. Plans whose seconds are unknown are among them.
pub(crate) fn enumerate<C: StageCosts>(question: &Question<'_, C>) -> Vec<Vec<WeighedStage>> {
    let mut all = Vec::new();
    extend(question, &mut Vec::new(), 0, 0, &mut all);
    all
}

/// A plan's seconds by the definition of the closed form.
pub(crate) fn closed_form(plan: &[WeighedStage], micro_batches: u32) -> Option<f64> {
    let mut parts = Parts::default();
    for stage in plan {
        let seconds = stage.seconds?;
        parts.passes += seconds.passes();
        parts.inputs += stage.entry;
        parts.largest = parts.largest.max(seconds.passes());
        parts.step = parts.step.max(seconds.step);
    }
    Some(parts.time(micro_batches).0)
}

fn extend<C: StageCosts>(
    question: &Question<'_, C>,
    begun: &mut Vec<PlacedStage>,
    from: PlaceId,
    first: usize,
    all: &mut Vec<Vec<WeighedStage>>,
) {
    let layers = question.costs.layers();
    if first == layers {
        if from == question.places.last() && question.stages.contains(&begun.len()) {
            all.extend(weigh(question, begun));
        }
        return;
    }
    for (index, step) in question.places.steps(from).iter().enumerate() {
        for last in first..layers {
            for &choice in question.choices {
                let placed = PlacedStage { first, last, choice, from, step: index };
                if question.costs.choices()[choice].devices() == step.devices && is_allowed(question, &placed)
                {
                    begun.push(placed);
                    extend(question, begun, step.to, last + 1, all);
                    begun.pop();
                }
            }
        }
    }
}

/// Like devices of a node are interchangeable, so a pin asks for a device of its node that no other pin of the stage
/// asks for; and layers that are pinned to one device are in one stage.
fn is_allowed<C: StageCosts>(question: &Question<'_, C>, stage: &PlacedStage) -> bool {
    let taken: Vec<u32> = question.places.devices(stage.from, stage.step).iter().cloned().flatten().collect();
    let is_in = |pin: &Pin| (stage.first..=stage.last).contains(&pin.layer);
    let node_of = |device: usize| question.fleet.begins().partition_point(|&begin| begin as usize <= device);
    let pins = question.cuts.pins();
    let has_enough = |pin: &Pin| {
        let node = node_of(pin.device);
        let beside = pins.iter().filter(|other| is_in(other) && node_of(other.device) == node);
        let asked: std::collections::BTreeSet<usize> = beside.map(|other| other.device).collect();
        let there = taken.iter().filter(|&&device| node_of(device as usize) == node).count();
        pins.iter().all(|other| other.device != pin.device || is_in(other)) && asked.len() <= there
    };
    question.cuts.may_be_stage(stage.first, stage.last)
        && pins.iter().filter(|pin| is_in(pin)).all(has_enough)
}

fn weigh<C: StageCosts>(question: &Question<'_, C>, stages: &[PlacedStage]) -> Option<Vec<WeighedStage>> {
    let count = stages.len();
    let weighed = stages.iter().enumerate().map(|(index, &placed)| {
        let step = question.places.steps(placed.from)[placed.step];
        let at = question.stage_at(&step, placed.first, placed.last, placed.choice);
        let peak = question.costs.peak(&at, question.in_flight(count - 1 - index))?;
        let capacity = question.fleet.capacity(step.kinds).0;
        let entry = match placed.first {
            0 => 0.0,
            first => question.costs.cut_seconds(first - 1, step.entry, placed.choice),
        };
        let fits = !question.within_capacity || peak.needed <= capacity;
        let seconds = question.costs.seconds(&at);
        fits.then_some(WeighedStage { placed, devices: step.devices, peak, capacity, seconds, entry })
    });
    weighed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The enumeration is complete: with everything allowed, 5 layers on 3 lone devices make C(4, 2) plans per
    /// choice of each stage.
    #[test]
    fn all_plans_of_a_small_question_are_counted() {
        let node = fleets::node("one".to_owned(), (0, 3), (1, 1));
        let fleet = fleets::fleet(vec![fleets::kind("kind".to_owned(), u64::MAX)], vec![node]);
        let places = Places::in_order(&fleet, &[1], Spanning::Never);
        let costs = Dice {
            seed: 1,
            layers: 5,
            choices: all_choices(),
            sides: 9,
            adds_up: false,
            one_missing_in: u64::MAX,
            links: vec![1],
        };
        let instance = Instance {
            costs,
            fleet,
            places,
            choices: vec![0, 7],
            schedule: Schedule::OneFOneB,
            micro_batches: 4,
            stages: 1..=5,
            cuts: Cuts::anywhere(5),
            within_capacity: true,
        };
        assert_eq!(enumerate(&instance.question()).len(), 6 * 2 * 2 * 2);
    }

    proptest! {
        #![proptest_config(cases(100))]

        /// Every enumerated plan covers the layers and devices in order.
        #[test]
        fn enumerated_plans_are_plans(instance in (0..5_usize).prop_flat_map(|k| instances(Shape::ALL[k]))) {
            for plan in enumerate(&instance.question()) {
                let layers: Vec<usize> =
                    plan.iter().flat_map(|stage| stage.placed.first..=stage.placed.last).collect();
                prop_assert_eq!(layers, (0..instance.costs.layers).collect::<Vec<_>>());
                let devices: u32 = plan.iter().map(|stage| stage.devices).sum();
                prop_assert_eq!(devices, instance.fleet.devices());
            }
        }
    }
}
