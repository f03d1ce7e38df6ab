//! A plan with everything that it is weighed by.
//!
//! A search prices an edge between stages on one node before it is known which of the node's devices each has. Where links
//! between these are unlike, edges are priced anew once that is known.

use std::cmp::Ordering;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::comparison::Outline;
use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::stage::{Partitioning, StageConfig};

use loadmaster_search::cost::Batch;
use loadmaster_search::fleet::Subset;
use loadmaster_search::memory::{Peaks, Run};
use loadmaster_search::{
    Choice, KindSet, Link, Peak, PlacedStage, Places, Question, Seconds, StageCosts, Step, Unit, UnlikeNodes,
};
use loadmaster_simulate::{
    Edge, Order, Overlap, Pipeline, Simulated, at_least, interleaved_seconds, iteration, iteration_seconds,
    summarize,
};

/// A stage of a [`Candidate`].
#[derive(Debug, Clone, PartialEq)]
pub struct CandidateStage {
    /// Index of the first layer.
    pub first: usize,
    /// Index of the last layer, inclusive.
    pub last: usize,
    /// How its devices share its work.
    pub choice: Choice,
    /// Its devices, by their place in the whole fleet, in the order of its ranks.
    pub devices: Vec<u32>,
    pub kinds: KindSet,
    /// Bytes that the smallest of them allows.
    pub capacity: Bytes,
    /// The most micro-batches between forward and backward at once.
    pub in_flight: u32,
    /// What the highest peak of its devices needs.
    pub peak: Peak,
    /// What the slowest takes, collectives included; none where no times are known.
    pub seconds: Option<Seconds>,
}

impl CandidateStage {
    /// Layers and degrees.
    pub fn config(&self) -> StageConfig {
        self.choice.stage(self.first, self.last)
    }

    /// Bytes that it lacks on its devices; none where it fits.
    pub fn lacks(&self) -> Option<Bytes> {
        self.peak.needed.checked_sub(self.capacity.0).filter(|&bytes| bytes > 0).map(Bytes)
    }
}

/// A plan with everything that it is weighed by.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// How the samples come in.
    pub batch: Batch,
    /// Order of the passes.
    pub schedule: Schedule,
    /// Whether transfers overlap computing.
    pub overlap: Overlap,
    /// The stages in order.
    pub stages: Vec<CandidateStage>,
    /// How many of them each device has: stage k is on the devices of stage k modulo the number of places along the pipeline.
    pub virtual_stages: u32,
    /// Seconds of one micro-batch between each stage and the next one, both ways.
    pub edges: Vec<f64>,
    /// Seconds of an iteration by AMP's closed form (equation 5), or by that of PipeDream; none without times.
    pub closed_form: Option<f64>,
    /// Seconds of an iteration as simulated; none without times, or with too many passes to simulate.
    pub simulated: Option<f64>,
    /// Price of its devices for an hour; none without prices.
    pub hourly_price: Option<f64>,
}

impl Candidate {
    /// The plan that stages placed on a subset of a fleet are; none where its costs do not know one of them.
    pub(crate) fn of<C: StageCosts>(
        question: &Question<'_, C>,
        placed: &[PlacedStage],
        batch: Batch,
        overlap: Overlap,
        subset: &Subset,
    ) -> Option<Self> {
        let devices = question.places.resolve(placed);
        let count = placed.len();
        let mut stages = Vec::with_capacity(count);
        let mut edges = Vec::with_capacity(count.saturating_sub(1));
        for (index, (stage, devices)) in placed.iter().zip(devices).enumerate() {
            let step: &Step = question.places.steps(stage.from).get(stage.step)?;
            let at = question.stage_at(step, stage.first, stage.last, stage.choice);
            let in_flight = question.in_flight(count - 1 - index);
            if let Some(before) = stage.first.checked_sub(1) {
                let sender = index.checked_sub(1).and_then(|index| placed.get(index));
                let sender = sender.map_or(stage.choice, |sender| sender.choice);
                edges.push(question.edge_seconds(before, step.entry, sender, stage.choice));
            }
            stages.push(CandidateStage {
                first: stage.first,
                last: stage.last,
                choice: *question.costs.choices().get(stage.choice)?,
                devices: devices
                    .iter()
                    .filter_map(|&device| subset.origin.get(device as usize).copied())
                    .collect(),
                kinds: step.kinds,
                capacity: question.fleet.capacity(step.kinds),
                in_flight,
                peak: question.costs.peak(&at, in_flight)?,
                seconds: question.costs.seconds(&at),
            });
        }
        let mut candidate = Self {
            batch,
            schedule: question.schedule,
            overlap,
            stages,
            virtual_stages: 1,
            edges,
            closed_form: None,
            simulated: None,
            hourly_price: subset.hourly_price(),
        };
        candidate.keep_pins(question, subset);
        candidate.forget_seconds();
        candidate.price_edges(question.costs, &subset.unlike());
        Some(candidate)
    }

    /// Takes the closed form of its stages and edges, which are not simulated.
    pub(super) fn forget_seconds(&mut self) {
        self.simulated = None;
        self.closed_form = match self.schedule {
            _ if self.virtual_stages > 1 => self.timed().map(|(stages, edges)| {
                interleaved_seconds(&stages, &edges, self.batch.micro_batches, self.virtual_stages)
            }),
            // AMP's formula has a flush; in the long run there is a closed form of its own.
            Schedule::PipeDream => self.simulated_with(|pipeline| iteration_seconds(pipeline).ok()),
            Schedule::Gpipe | Schedule::OneFOneB => self
                .timed()
                .map(|(stages, edges)| iteration(&stages, &edges, self.batch.micro_batches, self.overlap)),
        };
    }

    /// Gives stages the very devices that their layers are pinned to: like devices of a node are interchangeable.
    fn keep_pins<C: StageCosts>(&mut self, question: &Question<'_, C>, subset: &Subset) {
        for pin in question.cuts.pins() {
            let Some(&wanted) = subset.origin.get(pin.device) else { continue };
            let is_its = |stage: &CandidateStage| (stage.first..=stage.last).contains(&pin.layer);
            let Some(own) = self.stages.iter().position(is_its) else { continue };
            if self.stages[own].devices.contains(&wanted) {
                continue;
            }
            let node = |device: u32| {
                let at = subset.origin.binary_search(&device).ok()?;
                let begins = question.fleet.begins();
                Some(begins.partition_point(|&begin| begin as usize <= at))
            };
            // One of its devices that none of its own layers is pinned to.
            let is_kept = |device: u32| {
                question.cuts.pins().iter().any(|other| {
                    subset.origin.get(other.device) == Some(&device)
                        && (self.stages[own].first..=self.stages[own].last).contains(&other.layer)
                })
            };
            let spare = self.stages[own]
                .devices
                .iter()
                .position(|&device| node(device) == node(wanted) && !is_kept(device));
            let Some(spare) = spare else { continue };
            let given = std::mem::replace(&mut self.stages[own].devices[spare], wanted);
            let others = self.stages.iter_mut().enumerate().filter(|(index, _)| *index != own);
            for device in others.flat_map(|(_, stage)| &mut stage.devices) {
                if *device == wanted {
                    *device = given;
                }
            }
        }
    }

    /// The plan of given stages on all devices of a subset in their order; none where no run of places is it, or
    /// its costs do not know one of the stages. Each stage is given by its layers and its choice's index.
    pub(crate) fn given<C: StageCosts>(
        question: &Question<'_, C>,
        stages: &[(usize, usize, usize)],
        batch: Batch,
        overlap: Overlap,
        subset: &Subset,
    ) -> Option<Self> {
        let placed = path(question.places, question.costs.choices(), stages)?;
        Self::of(question, &placed, batch, overlap, subset)
    }

    /// The same where devices have so many of its interleaved stages, not simulated: edges are over the links of the
    /// very devices, and
    /// `whole` are these, once.
    pub(crate) fn in_turn<C: StageCosts>(self, each: u32, costs: &C, whole: &Subset) -> Self {
        let mut own = Self { virtual_stages: each, hourly_price: whole.hourly_price(), ..self };
        own.forget_seconds();
        own.price_edges(costs, &whole.unlike());
        own
    }

    /// Seconds of the stages, and of the edges between them; none where a time is not known.
    pub(crate) fn timed(&self) -> Option<(Vec<Seconds>, Vec<Edge>)> {
        let stages: Option<Vec<Seconds>> = self.stages.iter().map(|stage| stage.seconds).collect();
        Some((stages?, self.edge_halves()))
    }

    /// What is sent between each stage and the next one takes each way.
    pub(crate) fn edge_halves(&self) -> Vec<Edge> {
        self.edges.iter().map(|&both| Edge::halves(both)).collect()
    }

    fn simulated_with<T>(&self, run: impl FnOnce(&Pipeline<'_>) -> Option<T>) -> Option<T> {
        let (stages, edges) = self.timed()?;
        run(&Pipeline {
            stages: &stages,
            edges: &edges,
            micro_batches: self.batch.micro_batches,
            order: self.order(),
            overlap: self.overlap,
        })
    }

    /// Who passes what when.
    fn order(&self) -> Order {
        match self.virtual_stages {
            0 | 1 => Order::from(self.schedule),
            each => {
                let devices = self.stages.len() / each as usize;
                Order::Interleaved { devices: u32::try_from(devices).unwrap_or(u32::MAX) }
            }
        }
    }

    /// Simulates an iteration, unless that was done before.
    pub fn simulate(&mut self) {
        if self.simulated.is_none() {
            self.simulated = self.simulated_with(|pipeline| iteration_seconds(pipeline).ok());
        }
    }

    /// Passes that a simulation looks at.
    pub(crate) fn passes(&self) -> u64 {
        (self.stages.len() as u64).saturating_mul(2 * u64::from(self.batch.micro_batches))
    }

    /// What an iteration takes at least; none without times.
    pub(crate) fn at_least(&self) -> Option<f64> {
        self.simulated_with(|pipeline| Some(at_least(pipeline)))
    }

    /// One iteration as a whole; none without times, or with too many passes.
    pub fn timeline(&self) -> Option<Simulated> {
        self.simulated_with(|pipeline| summarize(pipeline).ok())
    }

    /// Seconds of an iteration: simulated where it was, else by the closed form.
    pub fn seconds(&self) -> Option<f64> {
        self.simulated.or(self.closed_form)
    }

    /// Peaks of all devices in order.
    pub fn peaks(&self, unit: Unit) -> Peaks {
        Peaks::of(self.stages.iter().map(|stage| Run {
            peak: unit.of(stage.peak.bytes, stage.capacity),
            devices: stage.choice.devices(),
        }))
    }

    /// Bytes of the device with the highest peak.
    pub fn peak_bytes(&self) -> u64 {
        self.stages.iter().map(|stage| stage.peak.bytes).max().unwrap_or(0)
    }

    /// Devices that it takes.
    pub fn devices(&self) -> u32 {
        let stages = self.stages.len() / self.virtual_stages.max(1) as usize;
        self.stages.iter().take(stages).map(|stage| stage.choice.devices()).sum()
    }

    /// Whether every stage fits into its devices, with its margin.
    pub fn fits(&self) -> bool {
        self.stages.iter().all(|stage| stage.lacks().is_none())
    }

    /// Its stages, without devices.
    ///
    /// # Errors
    /// The stages do not follow each other.
    pub fn partitioning(&self) -> Result<Partitioning, Invalid> {
        Partitioning::new(self.stages.iter().map(CandidateStage::config).collect())
    }

    /// What is compared of it.
    ///
    /// # Errors
    /// The stages do not follow each other.
    pub fn outline(&self) -> Result<Outline, Invalid> {
        Ok(Outline {
            partitioning: self.partitioning()?,
            micro_batch_size: self.batch.micro_batch_size,
            peak: self.peak_bytes(),
            seconds: self.seconds(),
        })
    }

    /// Less memory first; of equals the faster one.
    pub fn by_peaks(&self, other: &Self, unit: Unit) -> Ordering {
        let time = |candidate: &Self| candidate.seconds().unwrap_or(f64::INFINITY);
        let peaks = self.peaks(unit).cmp(&other.peaks(unit));
        peaks.then_with(|| time(self).total_cmp(&time(other))).then_with(|| self.fixed(other))
    }

    /// The faster first; of equals the one with less memory.
    pub fn by_seconds(&self, other: &Self, unit: Unit) -> Ordering {
        let time = |candidate: &Self| candidate.seconds().unwrap_or(f64::INFINITY);
        let seconds = time(self).total_cmp(&time(other));
        seconds.then_with(|| self.peaks(unit).cmp(&other.peaks(unit))).then_with(|| self.fixed(other))
    }

    /// An order of plans that are worth the same: fewer stages, then the larger micro-batch, then by their cuts.
    fn fixed(&self, other: &Self) -> Ordering {
        let cuts = |candidate: &Self| candidate.stages.iter().map(|stage| stage.last).collect::<Vec<_>>();
        let stages = self.stages.len().cmp(&other.stages.len());
        let sizes = other.batch.micro_batch_size.cmp(&self.batch.micro_batch_size);
        stages.then(sizes).then_with(|| cuts(self).cmp(&cuts(other)))
    }

    /// Whether it is the same plan, whatever it is worth.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.batch, self.schedule, self.stages.len()) == (other.batch, other.schedule, other.stages.len())
            && self.stages.iter().zip(&other.stages).all(|(a, b)| {
                (a.first, a.last, a.choice, &a.devices) == (b.first, b.last, b.choice, &b.devices)
            })
    }

    /// Human-readable: `8-8d2-7t4, micro-batch 8 × 4, 1f1b`, with the recompute policy where there is one.
    pub fn describe(&self) -> String {
        let stages = self.partitioning().map_or_else(|_| String::new(), |stages| stages.to_string());
        let schedule = self.schedule.as_str();
        let mut policies: Vec<&str> =
            self.stages.iter().map(|stage| stage.choice.recompute.as_str()).collect();
        policies.dedup();
        let recompute = match policies.as_slice() {
            ["none"] => String::new(),
            [one] => format!(", recompute {one}"),
            _ => ", recompute per stage".to_owned(),
        };
        format!("{stages}, micro-batch {}, {schedule}{recompute}", self.batch)
    }
}

/// The run of places that takes all devices in order for these stages.
fn path(places: &Places, choices: &[Choice], stages: &[(usize, usize, usize)]) -> Option<Vec<PlacedStage>> {
    let mut from = 0;
    let mut placed = Vec::with_capacity(stages.len());
    for &(first, last, choice) in stages {
        let devices = choices.get(choice)?.devices();
        let steps = places.steps(from);
        let step = steps.iter().position(|step| step.devices == devices)?;
        placed.push(PlacedStage { first, last, choice, from, step });
        from = steps.get(step)?.to;
    }
    (from == places.last()).then_some(placed)
}

impl Candidate {
    /// Prices every edge between stages on one node whose links are unlike: over the slowest of the pairs that send each other
    /// something. Where one of both has devices elsewhere too, the slowest link of the node stands for them.
    pub(crate) fn price_edges<C: StageCosts>(&mut self, costs: &C, nodes: &UnlikeNodes<'_>) {
        if nodes.is_empty() {
            return;
        }
        self.set_edges(|own, edge| {
            let (before, after) = (&own.stages.get(edge)?.devices, &own.stages.get(edge + 1)?.devices);
            if let Some(link) = nodes.entry(before, after) {
                return own.edge_over(costs, edge, link);
            }
            let node = nodes.node(&[*before.last()?, *after.first()?])?;
            let seconds = own.edge_over(costs, edge, node.links.slowest())?;
            Some(seconds.max(*own.edges.get(edge)?))
        });
    }

    /// Returns the plan with all edges over the best links of their nodes: no mapping of stages to the devices of these nodes
    /// takes less. Others may have none of the devices that it names.
    #[must_use]
    pub(crate) fn at_best_edges<C: StageCosts>(&self, costs: &C, nodes: &UnlikeNodes<'_>) -> Self {
        let mut best = self.clone();
        let is_other = !nodes.is_empty()
            && best.set_edges(|own, edge| {
                let stages = own.stages.get(edge..=edge + 1)?;
                let devices: Vec<u32> = stages.iter().flat_map(|stage| &stage.devices).copied().collect();
                own.edge_over(costs, edge, nodes.node(&devices)?.links.fastest())
            });
        if is_other && self.simulated.is_some() {
            best.simulate();
        }
        best
    }

    fn set_edges(&mut self, seconds: impl Fn(&Self, usize) -> Option<f64>) -> bool {
        let priced = |edge: usize| seconds(self, edge).or_else(|| self.edges.get(edge).copied());
        let edges: Vec<f64> = (0..self.edges.len()).filter_map(priced).collect();
        let is_other = edges != self.edges;
        if is_other {
            self.edges = edges;
            self.forget_seconds();
        }
        is_other
    }

    /// Seconds of one micro-batch, both ways, where an edge goes over a link: the side that has more to send or to receive
    /// counts. None where the costs do not know how these stages share their work.
    pub(super) fn edge_over<C: StageCosts>(&self, costs: &C, edge: usize, link: Link) -> Option<f64> {
        let [sender, receiver] = [edge, edge + 1].map(|stage| {
            let choice = self.stages.get(stage)?.choice;
            costs.choices().iter().position(|known| *known == choice)
        });
        let layer = self.stages.get(edge)?.last;
        let seconds = |choice: usize| costs.cut_seconds_over(layer, link, choice);
        Some(seconds(sender?).max(seconds(receiver?)))
    }
}
