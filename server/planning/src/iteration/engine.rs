//! When each pass starts.

use loadmaster_proto::training::schedule::Pass;

use super::Overlap;
use super::order::Turn;
use super::pipeline::{Lane, Pipeline, SimulateError, TimedPass};

/// What a walk does besides finding the end.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Walk {
    /// Notes every pass.
    pub(super) keep_passes: bool,
    /// Steps after each backward pass instead of once at the end.
    pub(super) updates_always: bool,
}

/// What one walk over all passes finds.
#[derive(Debug)]
pub(super) struct Walked {
    /// When the last step ends.
    pub(super) iteration: f64,
    /// When the last pass ends.
    pub(super) passes: f64,
    /// One per device; without passes unless they were asked for.
    pub(super) lanes: Vec<Lane>,
}

/// A device while its passes are walked over.
#[derive(Debug, Clone, Copy, Default)]
struct Device {
    /// How many of its turns are over.
    next: usize,
    /// When it can begin the next one.
    free: f64,
    busy: f64,
    /// When its links, forward and backward, have sent what they were given.
    sent: [f64; 2],
}

/// Walks over the turns of all devices: a device goes on until the input of its next pass is not there yet,
/// and again when its neighbour has sent it. Every pass is looked at once, plus once per wait.
pub(super) fn run(pipeline: &Pipeline<'_>, turns: &[Vec<Turn>], walk: Walk) -> Result<Walked, SimulateError> {
    let (stages, devices) = (pipeline.stages.len(), turns.len());
    let micro_batches = turns.iter().flatten().map(|turn| index(turn.pass) + 1).max().unwrap_or(0);
    let mut arrivals = Arrivals::new(stages, micro_batches);
    let mut state = vec![Device::default(); devices];
    let mut lanes: Vec<Lane> = turns
        .iter()
        .map(|turns| Lane {
            passes: Vec::with_capacity(if walk.keep_passes { turns.len() } else { 0 }),
            step: None,
            busy: 0.0,
        })
        .collect();
    let overlaps = pipeline.overlap == Overlap::Computing;
    let mut awake: Vec<usize> = (0..devices).rev().collect();
    while let Some(device) = awake.pop() {
        let (Some(own), Some(turns)) = (state.get_mut(device), turns.get(device)) else { continue };
        while let Some(&turn) = turns.get(own.next) {
            let Some(there) = arrivals.of(turn) else { break };
            own.next += 1;
            let stage = turn.stage as usize;
            let Some(seconds) = pipeline.stages.get(stage) else { continue };
            let below = stage.checked_sub(1);
            let [in_front, behind] = [below, Some(stage)].map(|edge| pipeline.edges.get(edge?));
            let (takes, receives, to, sends, direction) = match turn.pass {
                Pass::Forward(_) => {
                    let [receives, sends] = [in_front, behind].map(|edge| edge.map(|edge| edge.forward));
                    (seconds.forward, receives, Some(stage + 1), sends, 0)
                }
                Pass::Backward(_) => {
                    let [receives, sends] = [behind, in_front].map(|edge| edge.map(|edge| edge.backward));
                    (seconds.backward, receives, below, sends, 1)
                }
            };
            let receiving = if overlaps { 0.0 } else { receives.unwrap_or(0.0) };
            let start = own.free.max(there) + receiving;
            let end = start + takes;
            own.free = end;
            own.busy += takes;
            match (to, sends) {
                (Some(to), Some(sends)) => {
                    // Whoever receives pays for the way itself if it cannot compute meanwhile.
                    let arrival = if overlaps { end.max(own.sent[direction]) + sends } else { end };
                    own.sent[direction] = arrival;
                    if !overlaps {
                        own.free = end + sends;
                    }
                    arrivals.set(to, turn.pass, arrival);
                    let receiver = to % devices.max(1);
                    if receiver != device {
                        awake.push(receiver);
                    }
                }
                // The last stage turns round.
                (Some(_), None) => {
                    arrivals.set(stage, Pass::Backward(index(turn.pass) as u32), end);
                }
                (None, _) => {}
            }
            let mut over = end;
            if walk.updates_always && matches!(turn.pass, Pass::Backward(_)) {
                own.free += seconds.step;
                own.busy += seconds.step;
                over += seconds.step;
            }
            if walk.keep_passes
                && let Some(lane) = lanes.get_mut(device)
            {
                lane.passes.push(TimedPass { stage: turn.stage, pass: turn.pass, start, end: over });
            }
        }
    }
    let is_done = |(own, turns): (&Device, &Vec<Turn>)| own.next == turns.len();
    if !state.iter().zip(turns).all(is_done) {
        return Err(SimulateError::Deadlock);
    }
    let (mut iteration, mut passes) = (0.0_f64, 0.0_f64);
    for (device, (own, lane)) in state.iter().zip(&mut lanes).enumerate() {
        let steps = pipeline.stages.iter().skip(device).step_by(devices.max(1)).map(|stage| stage.step);
        let step: f64 = if walk.updates_always { 0.0 } else { steps.sum() };
        lane.busy = own.busy;
        lane.step = (!walk.updates_always).then_some((own.free, own.free + step));
        iteration = iteration.max(own.free + step);
        passes = passes.max(own.free);
    }
    Ok(Walked { iteration, passes, lanes })
}

/// When the inputs of passes are there.
#[derive(Debug)]
struct Arrivals {
    micro_batches: usize,
    /// By stage and micro-batch; not a number while it is not known.
    forward: Vec<f64>,
    backward: Vec<f64>,
}

impl Arrivals {
    fn new(stages: usize, micro_batches: usize) -> Self {
        let mut forward = vec![f64::NAN; stages * micro_batches];
        // The model's input is always there.
        forward.iter_mut().take(micro_batches).for_each(|at| *at = 0.0);
        Self { micro_batches, forward, backward: vec![f64::NAN; stages * micro_batches] }
    }

    fn of(&self, turn: Turn) -> Option<f64> {
        let at = turn.stage as usize * self.micro_batches + index(turn.pass);
        let times = match turn.pass {
            Pass::Forward(_) => &self.forward,
            Pass::Backward(_) => &self.backward,
        };
        times.get(at).copied().filter(|time| !time.is_nan())
    }

    fn set(&mut self, stage: usize, pass: Pass, time: f64) {
        let at = stage * self.micro_batches + index(pass);
        let times = match pass {
            Pass::Forward(_) => &mut self.forward,
            Pass::Backward(_) => &mut self.backward,
        };
        if let Some(place) = times.get_mut(at) {
            *place = time;
        }
    }
}

fn index(pass: Pass) -> usize {
    match pass {
        Pass::Forward(index) | Pass::Backward(index) => index as usize,
    }
}
