//! Questions drawn by lot: each about a topic, with other options now and then.

use clap::ValueEnum;
use loadmaster_oracle::{CommunicationOverlap, Objective, Recompute, Shape, Sharding, Spanning, Unit};
use loadmaster_tests::Sampler;
use serde::{Deserialize, Serialize};

use crate::certificates::asked::{Rules, plan_rules};
use crate::certificates::question::{Framework, Mode, Question, SCHEDULES};
use crate::certificates::scene::{Fleet, Scene};
use crate::certificates::truth::{Terms, truth};

/// What a question is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Topic {
    /// Lowest peaks.
    Peaks,
    /// Shortest iteration.
    Times,
    /// Limits on the iteration's seconds.
    TimeLimits,
    /// Layers that have to be on a device.
    Pins,
    /// Devices that may stay idle.
    Idle,
    /// Fewest devices.
    Devices,
    /// Cheapest devices.
    Cost,
    /// Largest micro-batch.
    Batch,
    /// The front between memory and time.
    Fronts,
    /// Searches of papers.
    Modes,
    /// Programs that run the plan.
    Frameworks,
    /// Layers merged before the search.
    Merger,
    /// The same question with different deadlines.
    Deadlines,
    /// The largest of several models.
    Models,
    /// Stored plans, pass by pass.
    Timelines,
}

impl Topic {
    /// Most weight on what was wrong before.
    pub(crate) fn draw(lots: &mut Sampler) -> Self {
        use Topic::*;
        lots.one(&[
            Peaks, Peaks, Times, Times, Times, TimeLimits, TimeLimits, TimeLimits, Pins, Pins, Idle, Idle,
            Devices, Devices, Cost, Batch, Fronts, Fronts, Modes, Modes, Frameworks, Frameworks, Merger,
            Deadlines, Models, Timelines,
        ])
    }
}

/// A question about a topic; none where the scene does not allow one.
pub(crate) fn question(lots: &mut Sampler, scene: &Scene, topic: Topic, terms: Terms) -> Option<Question> {
    use Topic::*;
    let memory_or_time = [Objective::MinPeakMemory, Objective::MinIterationTime];
    let objective = match topic {
        Peaks => Objective::MinPeakMemory,
        Times | Frameworks if lots.percent(75) => Objective::MinIterationTime,
        Fronts => Objective::Pareto,
        Devices => Objective::MinDevices,
        Cost => Objective::MinCost,
        Batch => Objective::MaxBatch,
        Models => Objective::MaxModel,
        TimeLimits => lots.one(&[
            Objective::MinPeakMemory,
            Objective::MinIterationTime,
            Objective::MinDevices,
            Objective::MinCost,
            Objective::MaxBatch,
            Objective::Pareto,
        ]),
        Pins | Idle | Deadlines if lots.percent(30) => {
            lots.one(&[Objective::MinDevices, Objective::MaxBatch, Objective::Pareto])
        }
        Times => Objective::MinIterationTime,
        _ => lots.one(&memory_or_time),
    };
    let mut question = Question::plain(objective);
    shape_and_ways(lots, scene, &mut question);
    batches(lots, scene, &mut question);
    cuts(lots, scene, &mut question);
    question.spanning = if lots.percent(40) { Some(lots.one(Spanning::ALL)) } else { None };
    if topic == Frameworks || lots.percent(15) {
        question.transfers = Some(lots.one(CommunicationOverlap::ALL));
    }
    question.margin = lots.one(&[0.0, 0.0, 0.1]);
    if lots.percent(15) {
        question.unit = Some(lots.one(Unit::ALL));
    }
    question.is_brief = lots.percent(85);
    question.alternatives = lots.one(&[0, -1, 2]);
    question.may_idle = topic == Idle || lots.percent(8);
    if topic == Pins || lots.percent(5) {
        pins(lots, scene, &mut question);
    }
    excluded(lots, scene, &mut question);
    match topic {
        Modes => modes(lots, &mut question),
        Frameworks => framework(lots, scene, &mut question),
        Merger => question.merge_to = Some(lots.whole(1, scene.layers() as u32 - 1)),
        _ => {}
    }
    if objective == Objective::MinCost {
        let names = scene.kinds.iter().map(|kind| kind.name.clone());
        let named = match &scene.fleet {
            Fleet::Cluster(cluster) => !cluster.prices.iter().all(Option::is_some) || lots.percent(30),
            Fleet::Groups(_) => true,
        };
        if named {
            question.prices = names.map(|name| (name, f64::from(lots.whole(1, 20)) * 0.25)).collect();
        }
    }
    if topic == TimeLimits || (question.mode == Mode::Exact && lots.percent(6)) {
        question.max_seconds = Some(time_limit(lots, scene, &question, terms)?);
    }
    if question.mode == Mode::Exact && lots.percent(10) {
        question.max_peak = peak_limit(lots, scene, &question, terms);
    }
    // What nobody promises in so many words is not asked.
    let asked = plan_rules(scene, &question);
    if asked.shape == Shape::SinglePipeline || question.mode != Mode::Exact {
        question.shardings.clear();
    }
    if !question.excluded.is_empty() && asked.spanning == Spanning::WholeNodes {
        question.excluded.clear();
    }
    Some(question)
}

fn shape_and_ways(lots: &mut Sampler, scene: &Scene, question: &mut Question) {
    question.shape = lots.one(&[
        None,
        Some(Shape::SinglePipeline),
        Some(Shape::UniformGrid),
        Some(Shape::UniformGrid),
        Some(Shape::EqualDevices),
        Some(Shape::PerStageReplicas),
        Some(Shape::PerStageReplicas),
        Some(Shape::PerStageMesh),
        Some(Shape::PerStageMesh),
        Some(Shape::PerStageMesh),
        Some(Shape::PerStageMesh),
    ]);
    // Only degrees that the rows have: what lies beyond them is another test's business.
    let mut tensors: Vec<u32> = scene.kinds[0].layers[0].rows.iter().map(|row| row.tensor).collect();
    tensors.sort_unstable();
    tensors.dedup();
    question.tensor_degrees = if lots.percent(30) { lots.some(&tensors) } else { tensors };
    if lots.percent(15) {
        question.data_degrees = lots.some(&[1, 2, 3, 4]);
    }
    if lots.percent(40) {
        question.schedule = Some(lots.one(SCHEDULES));
    } else if lots.percent(30) {
        question.schedules = lots.some(SCHEDULES);
    }
    if question.data_degrees != [1] && lots.percent(30) {
        question.shardings = lots.some(Sharding::ALL);
    }
    if lots.percent(30) {
        question.recompute = Some(lots.one(Recompute::ALL));
    } else if lots.percent(30) {
        question.policies = lots.some(Recompute::ALL);
        question.policy_per_stage = scene.layers() < 6 && lots.percent(60);
        if scene.layers() > 4 {
            question.policies.truncate(2);
        }
    }
}

fn batches(lots: &mut Sampler, scene: &Scene, question: &mut Question) {
    let training = &scene.training;
    let samples = training.micro_batch_size * training.micro_batches;
    let divisors: Vec<u32> = (1..=samples).filter(|size| samples.is_multiple_of(*size)).collect();
    match lots.below(5) {
        0 => question.sizes = lots.some(&divisors),
        1 => question.global_batch = Some(samples),
        2 => question.micro_batch_size = Some(lots.one(&divisors)),
        3 => question.micro_batches = Some(lots.whole(1, training.micro_batches)),
        _ => {}
    }
    if question.micro_batch_size.is_some() && lots.percent(50) {
        question.global_batch = Some(samples);
    }
    // Whether the number of devices may depend on other micro-batches is not what is asked here.
    if question.objective.chooses_devices() && question.sizes.is_empty() {
        question.micro_batch_size = question.micro_batch_size.or(Some(training.micro_batch_size));
        question.micro_batches = Some(training.micro_batches);
        question.global_batch = None;
    }
    // Without a global batch sizes up to 4,096 would be tried, far beyond the rows.
    if question.objective == Objective::MaxBatch && question.sizes.is_empty() && lots.percent(90) {
        (question.global_batch, question.micro_batches, question.micro_batch_size) =
            (Some(samples), None, None);
    }
}

fn cuts(lots: &mut Sampler, scene: &Scene, question: &mut Question) {
    let layers = scene.layers();
    if lots.percent(12) {
        let first = lots.below(layers);
        question.keep_together.push((first, first + lots.below(layers - first)));
    }
    if lots.percent(12) {
        let after = lots.below(layers - 1);
        if !question.keep_together.iter().any(|&(first, last)| (first..last).contains(&after)) {
            question.cut_after.push(after);
        }
    }
    if lots.percent(8) {
        question.min_stages = Some(lots.whole(1, layers.min(3) as u32));
    }
    if lots.percent(10) {
        question.max_stages = Some(lots.whole(question.min_stages.unwrap_or(1), layers as u32));
    }
}

/// The devices of a scene, as a request names them.
fn devices(scene: &Scene) -> Vec<String> {
    match &scene.fleet {
        Fleet::Groups(groups) => {
            let count: u32 = groups.iter().map(|group| group.count).sum();
            (0..count).map(|index| index.to_string()).collect()
        }
        Fleet::Cluster(cluster) => {
            let of = |node: &crate::certificates::scene::Node| {
                (0..node.devices).map(|index| format!("{}/{index}", node.name)).collect::<Vec<_>>()
            };
            cluster.nodes.iter().flat_map(of).collect()
        }
    }
}

fn pins(lots: &mut Sampler, scene: &Scene, question: &mut Question) {
    let devices = devices(scene);
    for _ in 0..lots.one(&[1, 1, 2, 3]) {
        // The last of like devices, more often than the others.
        let device = if lots.percent(30) {
            devices[devices.len() - 1].clone()
        } else {
            devices[lots.below(devices.len())].clone()
        };
        question.pins.push((lots.below(scene.layers()), device));
    }
}

fn excluded(lots: &mut Sampler, scene: &Scene, question: &mut Question) {
    let Fleet::Cluster(cluster) = &scene.fleet else { return };
    if !lots.percent(10) || cluster.nodes.len() < 2 || !question.pins.is_empty() {
        return;
    }
    let node = &cluster.nodes[lots.below(cluster.nodes.len())];
    let name = if lots.percent(50) {
        node.name.clone()
    } else {
        format!("{}/{}", node.name, lots.below(node.devices as usize))
    };
    question.excluded.push(name);
}

fn modes(lots: &mut Sampler, question: &mut Question) {
    match question.objective {
        Objective::MinIterationTime => {
            question.mode = lots.one(&[Mode::Amp, Mode::AmpAnnealing]);
            question.shape = Some(lots.one(&[Shape::UniformGrid, Shape::UniformGrid, Shape::SinglePipeline]));
        }
        _ => {
            question.mode =
                lots.one(&[Mode::Capture, Mode::Capture, Mode::McapBruteForce, Mode::McapBayesian]);
            if question.mode != Mode::Capture {
                question.shape = Some(Shape::SinglePipeline);
            }
        }
    }
    question.seed = i64::from(lots.whole(0, 5));
}

fn framework(lots: &mut Sampler, scene: &Scene, question: &mut Question) {
    let mut framework = lots.one(Framework::ALL);
    let policies = Rules::of(framework, &scene.training).policies;
    question.policies.retain(|policy| policies.contains(policy));
    let policy = question.recompute.unwrap_or(scene.training.recompute);
    if question.policies.is_empty() && !policies.contains(&policy) {
        framework = Framework::Other;
    }
    let rules = Rules::of(framework, &scene.training);
    question.framework = Some(framework);
    if question.shape.is_some_and(|shape| !rules.shape.includes(shape)) || lots.percent(50) {
        question.shape = None;
    }
    question.policy_per_stage &= rules.policy_per_stage;
    if !rules.shards {
        question.shardings.clear();
    }
    if question.schedule.is_some_and(|schedule| !rules.schedules.contains(&schedule)) {
        question.schedule = None;
    }
    question.schedules.retain(|schedule| rules.schedules.contains(schedule));
}

/// A limit near the fastest plan's seconds, or well above it; none where nothing fits.
fn time_limit(lots: &mut Sampler, scene: &Scene, question: &Question, terms: Terms) -> Option<f64> {
    let fastest = Question { objective: Objective::MinIterationTime, ..fixed(scene, question) };
    let fastest = truth(scene, &fastest, terms).ok()?.best?;
    let factor = if lots.percent(70) { lots.between(0.9, 1.1) } else { lots.between(1.0, 3.0) };
    Some(fastest * factor)
}

fn peak_limit(lots: &mut Sampler, scene: &Scene, question: &Question, terms: Terms) -> Option<u64> {
    let lowest = Question {
        objective: Objective::MinPeakMemory,
        unit: None,
        max_seconds: None,
        ..fixed(scene, question)
    };
    let lowest = truth(scene, &lowest, terms).ok()?.best?;
    Some((lowest * lots.between(0.95, 1.6)) as u64 + 1)
}

/// The same question with the batches written out, so that they do not depend on the objective, and without what the
/// other objective's mode refuses.
fn fixed(scene: &Scene, question: &Question) -> Question {
    let asked = plan_rules(scene, question);
    let first = asked.batches[0];
    let samples = first.size * first.count;
    let is_one_iteration = asked.batches.iter().all(|batch| batch.size * batch.count == samples);
    let mut fixed = Question { mode: Mode::Exact, may_idle: asked.may_idle, ..question.clone() };
    if is_one_iteration {
        fixed.global_batch = Some(samples);
        fixed.sizes = asked.batches.iter().map(|batch| batch.size).collect();
        (fixed.micro_batch_size, fixed.micro_batches) = (None, None);
    }
    fixed
}
