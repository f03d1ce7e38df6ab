//! When each pass starts.

use loadmaster_proto::training::schedule::Pass;

use super::order::Turn;
use super::{Lane, Overlap, Pipeline, SimulateError, TimedPass};

/// What a walk does besides finding the end.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EngineOptions {
    /// Notes every pass.
    pub(super) keep_passes: bool,
    /// Steps after each backward pass instead of once at the end.
    pub(super) updates_always: bool,
}

/// What one walk over all passes finds.
#[derive(Debug)]
pub(super) struct EngineRun {
    /// When the last step ends.
    pub(super) iteration: f64,
    /// When the last pass ends.
    pub(super) passes: f64,
    /// One per device; without passes unless they were asked for.
    pub(super) lanes: Vec<Lane>,
}

/// A device while its passes are walked over.
#[derive(Debug, Clone, Copy, Default)]
struct DeviceProgress {
    /// How many of its turns are over.
    next: usize,
    /// When it can begin the next one.
    free: f64,
    busy: f64,
    /// When its links, forward and backward, have sent what they were given.
    sent: [f64; 2],
}

/// Walks over the turns of all devices: a device goes on until the input of its next pass is not there yet,
/// and once more when its neighbour has sent it. Every pass is looked at once, plus once per wait.
pub(super) fn run(
    pipeline: &Pipeline<'_>,
    turns: &[Vec<Turn>],
    walk: EngineOptions,
) -> Result<EngineRun, SimulateError> {
    let mut engine = Engine::new(pipeline, turns, walk);
    let mut awake: Vec<usize> = (0..turns.len()).rev().collect();
    while let Some(device) = awake.pop() {
        while let Some((turn, there)) = engine.ready(device) {
            let Some(work) = engine.start(device, turn, there) else { continue };
            awake.extend(engine.finish(device, &work).filter(|&receiver| receiver != device));
        }
    }
    engine.ended()
}

/// A pass on its device.
#[derive(Debug, Clone, Copy)]
struct DevicePass {
    turn: Turn,
    start: f64,
    end: f64,
    /// The stage that its output goes to.
    to: Option<usize>,
    /// Seconds of the edge to it.
    sends: Option<f64>,
}

/// A walk in progress.
struct Engine<'a> {
    pipeline: &'a Pipeline<'a>,
    turns: &'a [Vec<Turn>],
    walk: EngineOptions,
    /// Whether transfers leave devices free to compute.
    overlaps: bool,
    arrivals: Arrivals,
    devices: Vec<DeviceProgress>,
    lanes: Vec<Lane>,
}

impl<'a> Engine<'a> {
    fn new(pipeline: &'a Pipeline<'a>, turns: &'a [Vec<Turn>], walk: EngineOptions) -> Self {
        let micro_batches = turns.iter().flatten().map(|turn| index(turn.pass) + 1).max().unwrap_or(0);
        let lane = |turns: &Vec<Turn>| Lane {
            passes: Vec::with_capacity(if walk.keep_passes { turns.len() } else { 0 }),
            step: None,
            busy: 0.0,
        };
        Self {
            pipeline,
            turns,
            walk,
            overlaps: pipeline.overlap == Overlap::Computing,
            arrivals: Arrivals::new(pipeline.stages.len(), micro_batches),
            devices: vec![DeviceProgress::default(); turns.len()],
            lanes: turns.iter().map(lane).collect(),
        }
    }

    /// A device's next turn and when its input is there; none where that is not known yet, or all are over.
    fn ready(&self, device: usize) -> Option<(Turn, f64)> {
        let own = self.devices.get(device)?;
        let &turn = self.turns.get(device)?.get(own.next)?;
        Some((turn, self.arrivals.of(turn)?))
    }

    /// Begins a turn; none of a stage that the pipeline does not have.
    fn start(&mut self, device: usize, turn: Turn, there: f64) -> Option<DevicePass> {
        let own = self.devices.get_mut(device)?;
        own.next += 1;
        let stage = turn.stage as usize;
        let seconds = self.pipeline.stages.get(stage)?;
        let below = stage.checked_sub(1);
        let [in_front, behind] = [below, Some(stage)].map(|edge| self.pipeline.edges.get(edge?));
        let (takes, receives, to, sends) = match turn.pass {
            Pass::Forward(_) => {
                let [receives, sends] = [in_front, behind].map(|edge| edge.map(|edge| edge.forward));
                (seconds.forward, receives, Some(stage + 1), sends)
            }
            Pass::Backward(_) => {
                let [receives, sends] = [behind, in_front].map(|edge| edge.map(|edge| edge.backward));
                (seconds.backward, receives, below, sends)
            }
        };
        let receiving = if self.overlaps { 0.0 } else { receives.unwrap_or(0.0) };
        let start = own.free.max(there) + receiving;
        let end = start + takes;
        own.free = end;
        own.busy += takes;
        Some(DevicePass { turn, start, end, to, sends })
    }

    /// Ends a turn and hands on what came out of it; the device that it is handed to.
    fn finish(&mut self, device: usize, work: &DevicePass) -> Option<usize> {
        let &DevicePass { turn, start, end, to, sends } = work;
        let (own, stage) = (self.devices.get_mut(device)?, turn.stage as usize);
        let mut receiver = None;
        match (to, sends) {
            (Some(to), Some(sends)) => {
                let sent = &mut own.sent[usize::from(matches!(turn.pass, Pass::Backward(_)))];
                // A receiving device spends the seconds of the transfer itself if it cannot compute meanwhile.
                *sent = if self.overlaps { end.max(*sent) + sends } else { end };
                self.arrivals.set(to, turn.pass, *sent);
                if !self.overlaps {
                    own.free = end + sends;
                }
                receiver = Some(to % self.turns.len().max(1));
            }
            // The last stage turns round.
            (Some(_), None) => self.arrivals.set(stage, Pass::Backward(index(turn.pass) as u32), end),
            (None, _) => {}
        }
        let mut over = end;
        if self.walk.updates_always && matches!(turn.pass, Pass::Backward(_)) {
            let step = self.pipeline.stages.get(stage)?.step;
            own.free += step;
            own.busy += step;
            over += step;
        }
        if self.walk.keep_passes {
            let pass = TimedPass { stage: turn.stage, pass: turn.pass, start, end: over };
            self.lanes.get_mut(device)?.passes.push(pass);
        }
        receiver
    }

    /// What came of it; an error where devices wait for each other.
    fn ended(mut self) -> Result<EngineRun, SimulateError> {
        let is_done = |(own, turns): (&DeviceProgress, &Vec<Turn>)| own.next == turns.len();
        if !self.devices.iter().zip(self.turns).all(is_done) {
            return Err(SimulateError::Deadlock);
        }
        let (mut iteration, mut passes) = (0.0_f64, 0.0_f64);
        for (device, (own, lane)) in self.devices.iter().zip(&mut self.lanes).enumerate() {
            let stages = self.pipeline.stages.iter().skip(device).step_by(self.turns.len().max(1));
            let step: f64 = if self.walk.updates_always { 0.0 } else { stages.map(|stage| stage.step).sum() };
            lane.busy = own.busy;
            lane.step = (!self.walk.updates_always).then_some((own.free, own.free + step));
            iteration = iteration.max(own.free + step);
            passes = passes.max(own.free);
        }
        Ok(EngineRun { iteration, passes, lanes: self.lanes })
    }
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
