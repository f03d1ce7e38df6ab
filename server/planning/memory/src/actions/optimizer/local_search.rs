//! How much leaves which stage, by simulation.
//!
//! It begins with what the host's links can carry beside the passes, and with what peers have room for, all stages alike.
//! The best of these is changed stage by stage, the busiest first, by ever smaller steps.

use std::collections::HashSet;

use loadmaster_proto::training::actions::Block;

use super::Effort;
use super::incumbent::Incumbent;
use super::stage_policy::{Care, Stage, StagePolicy};
use crate::actions::{PlanError, Question};

/// Shares of the host's links that a first plan uses; with no limit, everything leaves.
const SHARES: [f64; 7] = [0.9, 0.0, 0.7, 0.5, 0.3, 1.1, f64::INFINITY];
/// How many times the seconds of its copy a unit has before it is gone, and from where it is fetched.
const LEADS: [u32; 4] = [2, 1, 3, 5];
/// Most plans that are simulated, and most steps of all of them together.
const MOST_SIMULATED: u32 = 400;
const MOST_STEPS: u64 = 1 << 20;

/// Most first plans that are changed stage by stage: the best of them need not end as the best.
const MOST_CHANGED: usize = 3;

/// What a first plan tries.
#[derive(Debug, Clone, Copy)]
struct Start {
    share: f64,
    lead: u32,
    lasting: Lasting,
    peers: bool,
}

/// What leaves of no micro-batch: the less often it is used, the sooner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lasting {
    Nothing,
    /// Optimizer's state, used once in an iteration.
    State,
    /// Gradients, too, used by each backward pass.
    Gradients,
    /// Weights, too, used by every pass; and the inputs of what is recomputed.
    Weights,
}

/// The best plan that was found. `kinds` are the stages with different weights of their slots, of which the first is tried
/// most. `before` is what stages do in a plan for nearly the same: where that is fast enough with few changes, nothing else is
/// looked at.
pub(super) fn improved<'a>(
    question: &'a Question<'a>,
    kinds: &'a [Vec<Stage<'a>>],
    (enough, at_least): (f64, f64),
    effort: Effort,
    before: &[StagePolicy],
) -> Result<Incumbent<'a>, PlanError> {
    let Some(stages) = kinds.first() else { return Err(PlanError::Stopped) };
    let mut best: Option<Incumbent<'a>> = None;
    if before.len() == stages.len() && !question.stop.is_requested() {
        let before: Vec<StagePolicy> = before.iter().map(|&policy| policy.allowed(question)).collect();
        best = Incumbent::of(question, stages, &before, f64::INFINITY)?;
    }
    if let Some(mut incumbent) = best.take() {
        by_stage(question, &mut incumbent, enough)?;
        finish(question, &mut incumbent, at_least)?;
        if incumbent.seconds <= enough {
            return Ok(incumbent);
        }
        best = Some(incumbent);
    }
    let simulated = best.as_ref().map_or(0, |best| best.simulated);
    let mut search = Search { question, best: Vec::new(), simulated, enough, tried: HashSet::new() };
    let mut start = Start { share: 0.0, lead: LEADS[0], lasting: Lasting::Nothing, peers: false };
    let levels = [Lasting::Nothing, Lasting::State, Lasting::Gradients, Lasting::Weights];
    let starts = [false, true].into_iter().flat_map(|peers| levels.map(|lasting| (lasting, peers)));
    for (share, (lasting, peers)) in [0.0, SHARES[0], f64::INFINITY]
        .into_iter()
        .flat_map(|share| starts.clone().map(move |of| (share, of)))
    {
        let asked = Start { share, lasting, peers, ..start };
        if search.tries(stages, asked)? {
            start = asked;
        }
    }
    // How much leaves and how early depend on each other.
    let times = if effort == Effort::Few { 0 } else { 2 };
    for _ in 0..times {
        for share in SHARES {
            let asked = Start { share, ..start };
            if search.tries(stages, asked)? {
                start = asked;
            }
        }
        for lead in LEADS {
            let asked = Start { lead, ..start };
            if search.tries(stages, asked)? {
                start = asked;
            }
        }
    }
    for stages in kinds.iter().skip(1).take(times) {
        // The same policies have other slots recompute.
        search.tried.clear();
        search.tries(stages, start)?;
    }
    let simulated = search.simulated;
    for mut incumbent in search.best {
        incumbent.simulated = best.as_ref().map_or(simulated, |best| best.simulated);
        let fewest = best.as_ref().map_or(f64::INFINITY, |best| best.seconds);
        if fewest > enough && effort == Effort::All {
            by_stage(question, &mut incumbent, enough)?;
            finish(question, &mut incumbent, at_least)?;
        }
        let all = incumbent.simulated;
        best = best.filter(|best| best.seconds <= incumbent.seconds).or(Some(incumbent));
        best.iter_mut().for_each(|best| best.simulated = all);
    }
    best.ok_or_else(|| match effort {
        _ if question.stop.is_requested() => PlanError::Stopped,
        Effort::Few => no_room(stages, &|stage| stage.untouched.device),
        Effort::All => no_room(stages, &|stage| stage.least_bytes(emptiest(question, stage))),
    })
}

/// Looks for the fewest seconds of recomputing, where anything is.
fn finish(question: &Question<'_>, incumbent: &mut Incumbent<'_>, at_least: f64) -> Result<(), PlanError> {
    for stage in 0..incumbent.stages.len() {
        let is_fastest = incumbent.seconds <= at_least;
        if !is_fastest && incumbent.computes_again(stage) && !question.stop.is_requested() {
            incumbent.tries(stage, incumbent.policy(stage), Care::Fewest)?;
        }
    }
    Ok(())
}

/// What was found so far.
struct Search<'a> {
    question: &'a Question<'a>,
    /// Few, the fastest first.
    best: Vec<Incumbent<'a>>,
    simulated: u32,
    enough: f64,
    /// What all stages began with so far.
    tried: HashSet<Vec<StagePolicy>>,
}

impl<'a> Search<'a> {
    /// Tries what all stages begin with, unless nothing could be better; whether it is the best so far.
    fn tries(&mut self, stages: &'a [Stage<'a>], asked: Start) -> Result<bool, PlanError> {
        let Self { question, best, enough, tried, .. } = self;
        let fewest = best.first().map_or(f64::INFINITY, |best| best.seconds);
        if fewest <= *enough || question.stop.is_requested() || !is_possible(question, asked) {
            return Ok(false);
        }
        let policies: Vec<StagePolicy> = stages.iter().map(|stage| first(question, stage, asked)).collect();
        if !tried.insert(policies.clone()) {
            return Ok(false);
        }
        // One of the best few may end as the best.
        let most = best.get(MOST_CHANGED - 1).map_or(f64::INFINITY, |last| last.seconds);
        self.simulated += 1;
        let Some(incumbent) = Incumbent::of(question, stages, &policies, most)? else { return Ok(false) };
        let is_best = incumbent.seconds < fewest;
        if best.iter().all(|known| known.seconds != incumbent.seconds) {
            let behind = best.partition_point(|known| known.seconds < incumbent.seconds);
            best.insert(behind, incumbent);
            best.truncate(MOST_CHANGED);
        }
        Ok(is_best)
    }
}

/// Which stage lacks most where each holds at least so much; where that fits each stage alone, which lacks most untouched.
fn no_room(stages: &[Stage<'_>], least: &dyn Fn(&Stage<'_>) -> u64) -> PlanError {
    let most = |held: &dyn Fn(&Stage<'_>) -> u64| {
        let all = stages.iter().map(|stage| (stage.index, held(stage).saturating_sub(stage.room)));
        all.max_by_key(|(_, missing)| *missing).filter(|(_, missing)| *missing > 0)
    };
    let (stage, missing) = most(least).or_else(|| most(&|stage| stage.untouched.device)).unwrap_or_default();
    PlanError::NoRoom { stage, missing }
}

/// A stage that has as much on the host as may be there.
fn emptiest(question: &Question<'_>, stage: &Stage<'_>) -> StagePolicy {
    let on_host = |block| question.allowed.host && question.blocks.contains(&block);
    let layers = |block| if on_host(block) { stage.layers() } else { 0 };
    StagePolicy {
        state: layers(Block::Optimizer),
        gradients: layers(Block::Gradients),
        weights: layers(Block::Weights),
        inputs: on_host(Block::Inputs) && question.allowed.recompute,
        host: if on_host(Block::Activations) { stage.units() } else { 0 },
        ..StagePolicy::default()
    }
}

fn is_possible(question: &Question<'_>, start: Start) -> bool {
    let is_of = |block| question.blocks.contains(&block);
    let any_of = |level| match level {
        Lasting::Nothing => true,
        Lasting::State => is_of(Block::Optimizer),
        Lasting::Gradients => is_of(Block::Gradients),
        Lasting::Weights => is_of(Block::Weights) || is_of(Block::Inputs),
    };
    let allowed = question.allowed;
    (start.share == 0.0 || allowed.host && is_of(Block::Activations))
        && (start.lasting == Lasting::Nothing || (allowed.host || allowed.peers) && any_of(start.lasting))
        && (!start.peers || allowed.peers && is_of(Block::Activations))
}

/// Seconds of a copy of a unit to the host.
fn unit_seconds(question: &Question<'_>, stage: &Stage<'_>) -> f64 {
    let link = question.node.host_link(stage.index);
    link.map_or(f64::INFINITY, |link| link.latency_seconds + stage.unit_bytes() / link.bytes_per_second)
}

/// So many times the steps that a copy of a unit to the host takes.
fn lead(question: &Question<'_>, stage: &Stage<'_>, times: u32) -> u32 {
    stage.steps(unit_seconds(question, stage)).saturating_mul(times).max(1)
}

/// What a stage begins with.
fn first(question: &Question<'_>, stage: &Stage<'_>, start: Start) -> StagePolicy {
    let mut missing = stage.untouched.device.saturating_sub(stage.room) as f64;
    let near = !question.allowed.host;
    let steps = stage.state_steps();
    let mut policy = StagePolicy { state_after: steps, state_before: steps, near, ..StagePolicy::default() };
    if missing == 0.0 {
        return policy;
    }
    for (least, block) in [
        (Lasting::State, Block::Optimizer),
        (Lasting::Gradients, Block::Gradients),
        (Lasting::Weights, Block::Weights),
    ] {
        if start.lasting < least || !question.blocks.contains(&block) {
            continue;
        }
        let leaves = match block {
            Block::Optimizer => &mut policy.state,
            Block::Gradients => &mut policy.gradients,
            _ => &mut policy.weights,
        };
        for layer in &stage.blocks.layers {
            if missing <= 0.0 {
                break;
            }
            *leaves += 1;
            missing -= layer.bytes(block) as f64;
        }
    }
    policy.use_steps = 1;
    policy.inputs = start.lasting == Lasting::Weights
        && question.allowed.host
        && question.blocks.contains(&Block::Inputs);
    let (unit, seconds) = (stage.unit_bytes(), unit_seconds(question, stage));
    if unit <= 0.0 {
        return policy;
    }
    // Where everything leaves, what is on its way is the most that is there.
    let steps = lead(question, stage, if start.share.is_finite() { start.lead } else { 1 });
    (policy.after, policy.before) = (steps, steps);
    if start.share > 0.0 && missing > 0.0 {
        // A link may carry as many units of each micro-batch beside its passes.
        let passes = 2.0 * stage.blocks.layers.len() as f64 * stage.step_seconds;
        let carried = start.share * passes / seconds * stage.micro_batches.len() as f64;
        // What is on its way is missing as well.
        let asked = (missing / unit).ceil() + f64::from(2 * steps) * 0.5;
        let asked = if start.share.is_finite() { asked } else { start.share };
        policy.host = (carried.min(asked).max(0.0) as u32).min(stage.units());
        missing -= f64::from(policy.host) * unit;
    }
    if start.peers && missing > 0.0 {
        policy.peers = ((missing / unit).ceil() as u32).min(stage.units() - policy.host);
    }
    policy
}

/// Changes the plan stage by stage as long as that helps.
fn by_stage(question: &Question<'_>, incumbent: &mut Incumbent<'_>, enough: f64) -> Result<(), PlanError> {
    let stages = incumbent.stages;
    let layers: u64 = stages.iter().map(|stage| stage.blocks.layers.len() as u64).sum();
    let steps = (2 * layers * u64::from(question.micro_batches)).max(1);
    let most = u32::try_from(MOST_STEPS / steps).unwrap_or(u32::MAX).clamp(1, MOST_SIMULATED);
    let most = incumbent.simulated.saturating_add(most);
    let mut step = stages.iter().map(Stage::units).max().unwrap_or(0) / 4;
    // What was no better beside what all stages do now.
    let mut tried: HashSet<(usize, StagePolicy)> = HashSet::new();
    while step > 0 {
        let mut has_changed = false;
        let mut busiest_first: Vec<usize> = (0..stages.len()).collect();
        busiest_first.sort_by(|&a, &b| incumbent.loads[b].total_cmp(&incumbent.loads[a]));
        for stage in busiest_first {
            if stages[stage].untouched.device <= stages[stage].room {
                continue;
            }
            for change in changes(question, &stages[stage], incumbent.policy(stage), step) {
                let is_over = question.stop.is_requested() || incumbent.simulated >= most;
                if is_over || incumbent.seconds <= enough {
                    return Ok(());
                }
                if !tried.insert((stage, change)) {
                    continue;
                }
                if incumbent.tries(stage, change, Care::Few)? {
                    has_changed = true;
                    tried.clear();
                    break;
                }
            }
        }
        if !has_changed {
            step /= 2;
        }
    }
    Ok(())
}

/// What else a stage may do.
fn changes(question: &Question<'_>, stage: &Stage<'_>, of: StagePolicy, step: u32) -> Vec<StagePolicy> {
    let units = stage.units();
    let layers = stage.layers();
    let is_of = |block| question.blocks.contains(&block);
    let mut all = Vec::new();
    let mut push = |policy: StagePolicy| {
        if policy != of && policy.host + policy.peers <= units && policy.state <= layers {
            all.push(policy);
        }
    };
    if question.allowed.peers && is_of(Block::Activations) {
        push(StagePolicy { peers: of.peers + step, ..of });
        push(StagePolicy { peers: of.peers + step, host: of.host.saturating_sub(step), ..of });
    }
    if question.allowed.host && is_of(Block::Activations) {
        let (after, before) = (of.after.max(1), of.before.max(1));
        push(StagePolicy { host: of.host + step, after, before, ..of });
        let lead = lead(question, stage, LEADS[0]);
        push(StagePolicy { host: of.host + step, after: after.max(lead), before: before.max(lead), ..of });
        push(StagePolicy { host: of.host.saturating_sub(step), ..of });
        push(StagePolicy { host: of.host + step, peers: of.peers.saturating_sub(step), after, before, ..of });
        if of.host > 0 {
            let by = (of.after.max(of.before) / 2).max(1).min(step);
            push(StagePolicy { after: of.after + by, ..of });
            push(StagePolicy { before: of.before + by, ..of });
            push(StagePolicy { after: of.after.saturating_sub(by), ..of });
            push(StagePolicy { before: of.before.saturating_sub(by), ..of });
        }
    }
    // What leaves of no micro-batch is counted in layers, not in units.
    let by = step.div_ceil(stage.micro_batches.len().max(1) as u32);
    let allowed = question.allowed;
    let has_place = allowed.host || allowed.peers;
    if allowed.host && allowed.peers && of.state + of.gradients + of.weights > 0 {
        push(StagePolicy { near: !of.near, ..of });
    }
    if has_place && is_of(Block::Optimizer) {
        push(StagePolicy { state: (of.state + by).min(layers), ..of });
        push(StagePolicy { state: of.state.saturating_sub(by), ..of });
        if of.state > 0 {
            let later = |steps: u32| steps.max(1).saturating_mul(2).min(stage.state_steps());
            let (state_after, state_before) = (of.state_after, of.state_before);
            push(StagePolicy { state_after: state_after / 2, state_before: state_before / 2, ..of });
            push(StagePolicy { state_after: later(state_after), state_before: later(state_before), ..of });
        }
    }
    push(StagePolicy { peers: of.peers.saturating_sub(step), ..of });
    push(StagePolicy { inputs: false, ..of });
    if of.gradients + of.weights > 0 || of.state == layers {
        if has_place && is_of(Block::Gradients) {
            push(StagePolicy {
                gradients: (of.gradients + by).min(layers),
                use_steps: of.use_steps.max(1),
                ..of
            });
        }
        push(StagePolicy { gradients: of.gradients.saturating_sub(by), ..of });
        push(StagePolicy { weights: of.weights.saturating_sub(by), ..of });
        if of.gradients + of.weights > 0 {
            if has_place && is_of(Block::Weights) {
                push(StagePolicy { weights: (of.weights + by).min(layers), ..of });
            }
            push(StagePolicy { use_steps: of.use_steps + 1, ..of });
            push(StagePolicy { use_steps: of.use_steps.saturating_sub(1), ..of });
        }
    }
    if of.state > 0 {
        // While one layer's state goes, the next one's may come.
        push(StagePolicy { state_before: of.state_before + 1, ..of });
        push(StagePolicy { state_after: of.state_after + 1, ..of });
        push(StagePolicy { state_before: of.state_before.max(1).saturating_mul(2), ..of });
    }
    all
}
