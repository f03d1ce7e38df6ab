//! The longest way through all passes of an iteration, and how often it goes through each backward pass.
//!
//! An iteration without copies is a longest path over passes and transfers, so that its seconds grow with what is added to
//! backward passes, and by no less than the path says: `T(x) ≥ T(y) + Σ visits · (x − y)`. The same holds of the work of all
//! devices over the cores that they share, through which all passes go.

use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::overlap::Overlap;
use loadmaster_proto::training::schedule::Pass;

use loadmaster_search::Seconds;
use loadmaster_simulate::Edge;

/// A pipeline whose backward passes become longer, slot by slot.
#[derive(Debug)]
pub(super) struct Chain {
    /// Untouched.
    pub(super) stages: Vec<Seconds>,
    pub(super) edges: Vec<Edge>,
    pub(super) overlap: Overlap,
    pub(super) micro_batches: u32,
    /// By stage, its micro-batches in flight: micro-batch i is in slot `i mod in_flight`.
    pub(super) in_flight: Vec<u32>,
    pub(super) passes: Vec<Vec<Pass>>,
    /// How many devices compute at once; all of them where no one says.
    pub(super) at_once: f64,
}

/// A longest way.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Longest {
    pub(super) seconds: f64,
    /// By stage and slot: how many of its backward passes are on it; a part of each where all are.
    pub(super) visits: Vec<Vec<f64>>,
}

/// Which pass came before one that it waited for; none of the first.
type Before = Option<(usize, usize)>;

/// What is known of a stage on the way.
#[derive(Debug, Clone, Default)]
struct Device {
    next: usize,
    free: f64,
    befores: Vec<Before>,
    /// When its links, forward and backward, have sent what they were given, and the pass that the last of it came from.
    sent: [(f64, usize); 2],
}

/// When something arrives, and the pass that it waited for.
type Arrival = Option<(f64, Before)>;

impl Chain {
    pub(super) fn new(
        schedule: Schedule,
        stages: Vec<Seconds>,
        edges: Vec<Edge>,
        overlap: Overlap,
        micro_batches: u32,
    ) -> Self {
        let count = u32::try_from(stages.len()).unwrap_or(u32::MAX);
        let in_flight =
            (0..count).map(|stage| schedule.in_flight(count, stage, micro_batches).max(1)).collect();
        let passes = (0..count).map(|stage| schedule.passes(count, stage, micro_batches)).collect();
        Self { stages, edges, overlap, micro_batches, in_flight, passes, at_once: f64::INFINITY }
    }

    /// The longest way where the backward passes of each stage and slot take so many seconds more.
    pub(super) fn longest(&self, added: &[Vec<f64>]) -> Longest {
        let count = self.stages.len();
        let mut devices: Vec<Device> = vec![Device::default(); count];
        // What each stage takes: of each micro-batch, forward and backward.
        let none: Vec<[Arrival; 2]> = vec![[None; 2]; self.micro_batches as usize];
        let mut arrivals = vec![none; count];
        if let Some(first) = arrivals.first_mut() {
            first.iter_mut().for_each(|of| of[0] = Some((0.0, None)));
        }
        let mut awake: Vec<usize> = (0..count).rev().collect();
        while let Some(stage) = awake.pop() {
            while let Some(&pass) = self.passes[stage].get(devices[stage].next) {
                let (way, micro_batch) = way_of(pass);
                let Some((there, before)) = arrivals[stage][micro_batch][way] else { break };
                let (number, end) = self.pass(&mut devices[stage], stage, (there, before), added);
                // The last stage turns round.
                let last = stage + 1 == count;
                let to = match way {
                    0 if last => Some((stage, 1)),
                    0 => Some((stage + 1, 0)),
                    _ => stage.checked_sub(1).map(|to| (to, 1)),
                };
                let Some((to, as_way)) = to else { continue };
                let arrival = if to == stage {
                    (end, Some((stage, number)))
                } else {
                    self.sent(&mut devices[stage], stage, way, (number, end))
                };
                arrivals[to][micro_batch][as_way] = Some(arrival);
                if to != stage {
                    awake.push(to);
                }
            }
        }
        let longest = self.longest_of(&devices);
        if self.at_once.is_finite() { self.or_work(longest, added) } else { longest }
    }

    /// The work of all devices over those that compute at once, where that is longer.
    fn or_work(&self, longest: Longest, added: &[Vec<f64>]) -> Longest {
        let each = 1.0 / self.at_once;
        let of_slot =
            |slot: usize, slots: u32| self.micro_batches.saturating_sub(slot as u32).div_ceil(slots.max(1));
        let visits = self.in_flight.iter().map(|&slots| {
            (0..slots).map(|slot| f64::from(of_slot(slot as usize, slots)) * each).collect::<Vec<f64>>()
        });
        let visits: Vec<Vec<f64>> = visits.collect();
        let untouched = self.stages.iter().map(|of| f64::from(self.micro_batches) * of.passes() + of.step);
        let again = visits.iter().flatten().zip(added.iter().flatten()).map(|(visits, added)| visits * added);
        let seconds = untouched.sum::<f64>() * each + again.sum::<f64>();
        if seconds > longest.seconds { Longest { seconds, visits } } else { longest }
    }

    /// A pass of a stage: its number, and its end.
    fn pass(
        &self,
        device: &mut Device,
        stage: usize,
        (there, before): (f64, Before),
        added: &[Vec<f64>],
    ) -> (usize, f64) {
        let number = device.next;
        let (way, micro_batch) = way_of(self.passes[stage][number]);
        let takes = match way {
            0 => self.stages[stage].forward,
            _ => {
                let slot = micro_batch % self.in_flight[stage] as usize;
                self.stages[stage].backward + added[stage].get(slot).copied().unwrap_or(0.0)
            }
        };
        let own = number.checked_sub(1).map(|before| (stage, before));
        let (start, before) = if there > device.free || own.is_none() {
            (there.max(device.free), before)
        } else {
            (device.free, own)
        };
        let receives = if self.overlap == Overlap::Nothing { self.crossing(stage, way, true) } else { 0.0 };
        let end = start + receives + takes;
        device.free =
            end + if self.overlap == Overlap::Nothing { self.crossing(stage, way, false) } else { 0.0 };
        device.befores.push(before);
        device.next += 1;
        (number, end)
    }

    /// When what a pass hands over arrives.
    fn sent(
        &self,
        device: &mut Device,
        stage: usize,
        way: usize,
        (number, end): (usize, f64),
    ) -> (f64, Before) {
        if self.overlap == Overlap::Nothing {
            return (end, Some((stage, number)));
        }
        let sent = &mut device.sent[way];
        let crossing = self.crossing(stage, way, false);
        *sent = if end >= sent.0 { (end + crossing, number) } else { (sent.0 + crossing, sent.1) };
        (sent.0, Some((stage, sent.1)))
    }

    /// Seconds of what a pass takes, or hands over.
    fn crossing(&self, stage: usize, way: usize, takes: bool) -> f64 {
        let edge = if (way == 0) == takes { stage.checked_sub(1) } else { Some(stage) };
        let of = edge.and_then(|edge| self.edges.get(edge)).copied().unwrap_or_default();
        if way == 0 { of.forward } else { of.backward }
    }

    /// From the end of the last step back to the start.
    fn longest_of(&self, devices: &[Device]) -> Longest {
        let mut visits: Vec<Vec<f64>> = self.in_flight.iter().map(|&of| vec![0.0; of as usize]).collect();
        let ends = devices.iter().zip(&self.stages).map(|(device, stage)| device.free + stage.step);
        let last = ends.enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
        let Some((stage, seconds)) = last else { return Longest { seconds: 0.0, visits } };
        let mut at = devices[stage].next.checked_sub(1).map(|last| (stage, last));
        while let Some((stage, number)) = at {
            if let Pass::Backward(micro_batch) = self.passes[stage][number] {
                visits[stage][(micro_batch % self.in_flight[stage]) as usize] += 1.0;
            }
            at = devices[stage].befores[number];
        }
        Longest { seconds, visits }
    }
}

/// 0 forward, 1 backward; and the micro-batch.
fn way_of(pass: Pass) -> (usize, usize) {
    match pass {
        Pass::Forward(micro_batch) => (0, micro_batch as usize),
        Pass::Backward(micro_batch) => (1, micro_batch as usize),
    }
}
