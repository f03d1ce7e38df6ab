//! Every plan that rules allow, one after another.

use crate::fleet::{Device, Fleet};
use crate::simulator::{Edge, Pipeline, Seconds, in_flight};
use crate::words::{CommunicationOverlap, Recompute, Schedule, Shape, Sharding, Spanning, Unit};

/// Samples of one pass, and passes of an iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    pub size: u32,
    pub count: u32,
}

/// What plans may be.
#[derive(Debug, Clone)]
pub struct PlanRules {
    pub layers: usize,
    pub shape: Shape,
    pub spanning: Spanning,
    pub batches: Vec<Batch>,
    pub schedules: Vec<Schedule>,
    pub policies: Vec<Recompute>,
    pub policy_per_stage: bool,
    /// The same for all stages with replicas; none where the list is empty.
    pub shardings: Vec<Sharding>,
    /// Any where the list is empty.
    pub data_degrees: Vec<u32>,
    pub tensor_degrees: Vec<u32>,
    /// The fewest and the most.
    pub stages: (usize, usize),
    /// First and last layer.
    pub keep_together: Vec<(usize, usize)>,
    pub cut_after: Vec<usize>,
    pub may_idle: bool,
    /// Equally many devices on every node that is used.
    pub is_even: bool,
}

/// A stage's layers and how its devices share them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage {
    pub first: usize,
    pub last: usize,
    pub data: u32,
    pub tensor: u32,
    pub policy: Recompute,
    pub sharding: Sharding,
}

impl Stage {
    pub fn devices(&self) -> usize {
        self.data as usize * self.tensor as usize
    }
}

/// Bytes of a device: predicted ones, and those that its capacity must hold for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    pub predicted: u64,
    pub needed: u64,
}

/// What stages cost. Nothing else of a plan is its caller's.
pub trait Prices {
    /// Prices of stages of so many replicas and shards.
    type Way;

    fn way(&self, batch: Batch, data: u32, tensor: u32) -> Self::Way;

    /// Seconds of the slowest device of a stage; none where it cannot be run. So many rings of other stages pass through its nodes at
    /// once.
    fn seconds(&self, way: &Self::Way, stage: &Stage, devices: &[Device], beside: usize) -> Option<Seconds>;

    /// Bytes of the fullest device of a stage; none where it cannot be run.
    fn peak(&self, way: &Self::Way, stage: &Stage, devices: &[Device], in_flight: u32) -> Option<Bytes>;

    /// Seconds of the transfer between two stages, each with its devices.
    fn edge(&self, before: (&Self::Way, &Stage, &[Device]), after: (&Self::Way, &Stage, &[Device])) -> f64;
}

/// A way to share a stage.
#[derive(Debug)]
struct Way<W> {
    data: u32,
    tensor: u32,
    prices: W,
}

/// A stage on its devices.
#[derive(Debug, Clone, Copy)]
pub struct Placed {
    pub stage: Stage,
    /// Its devices, as positions of the route.
    pub from: usize,
    pub to: usize,
    pub seconds: Seconds,
    /// Bytes that the smallest of its devices allows.
    pub capacity: u64,
    way: usize,
}

/// A share of a capacity, in parts of 2⁵⁰, of which the last one counts as a whole.
fn share(bytes: u64, capacity: u64) -> f64 {
    const PARTS: u128 = 1 << 50;
    (u128::from(bytes) * PARTS).div_ceil(u128::from(capacity.max(1))) as f64 / PARTS as f64
}

/// A plan with all its prices.
#[derive(Debug)]
pub struct Plan<'a, P: Prices> {
    prices: &'a P,
    pub batch: Batch,
    pub schedule: Schedule,
    pub devices: &'a [Device],
    pub stages: &'a [Placed],
    pub edges: &'a [Edge],
    ways: &'a [Way<P::Way>],
}

/// What the memory of a plan comes to.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// Highest predicted bytes of a device.
    pub highest: u64,
    /// Highest share of a device's capacity.
    pub share: f64,
    /// Bytes missing on the device that lacks most.
    pub lack: u64,
}

impl<P: Prices> Plan<'_, P> {
    pub fn in_flight(&self, stage: usize) -> u32 {
        in_flight(self.schedule, self.stages.len() - stage, self.batch.count)
    }

    /// Bytes of the fullest device of a stage.
    pub fn peak(&self, stage: usize) -> Bytes {
        let Placed { stage: own, from, to, way, .. } = &self.stages[stage];
        let (way, devices) = (&self.ways[*way].prices, &self.devices[*from..*to]);
        self.prices.peak(way, own, devices, self.in_flight(stage)).expect("it was priced")
    }

    pub fn memory(&self) -> Memory {
        let mut memory = Memory { highest: 0, share: 0.0, lack: 0 };
        for (index, placed) in self.stages.iter().enumerate() {
            let Bytes { predicted, needed } = self.peak(index);
            memory.highest = memory.highest.max(predicted);
            memory.share = memory.share.max(share(predicted, placed.capacity));
            memory.lack = memory.lack.max(needed.saturating_sub(placed.capacity));
        }
        memory
    }

    /// Peaks of all devices, the highest first.
    pub fn peaks(&self, unit: Unit) -> Vec<f64> {
        let of_stage = |(index, placed): (usize, &Placed)| {
            let peak = self.peak(index).predicted;
            let peak = if unit == Unit::Share { share(peak, placed.capacity) } else { peak as f64 };
            std::iter::repeat_n(peak, placed.to - placed.from)
        };
        let mut peaks: Vec<f64> = self.stages.iter().enumerate().flat_map(of_stage).collect();
        peaks.sort_unstable_by(|a, b| b.total_cmp(a));
        peaks
    }

    pub fn seconds(&self, transfers: CommunicationOverlap) -> f64 {
        let stages: Vec<Seconds> = self.stages.iter().map(|placed| placed.seconds).collect();
        let micro_batches = self.batch.count;
        Pipeline { stages: &stages, edges: self.edges, micro_batches, transfers }.iteration(self.schedule)
    }

    /// Seconds below which no schedule is: the busiest stage computes alone.
    pub fn at_least(&self) -> f64 {
        let busy = |placed: &Placed| {
            let Seconds { forward, backward, step } = placed.seconds;
            f64::from(self.batch.count) * (forward + backward) + step
        };
        self.stages.iter().map(busy).fold(0.0, f64::max)
    }

    /// For people: `0-1 d2t1 None None on [0, 0] | 2-4 d1t2 None None on [1, 1]; micro-batch 2 × 4, Gpipe`.
    pub fn describe(&self) -> String {
        let stage = |placed: &Placed| {
            let Stage { first, last, data, tensor, policy, sharding } = placed.stage;
            let nodes: Vec<usize> =
                self.devices[placed.from..placed.to].iter().map(|device| device.node).collect();
            format!("{first}-{last} d{data}t{tensor} {policy:?} {sharding:?} on {nodes:?}")
        };
        let stages: Vec<String> = self.stages.iter().map(stage).collect();
        let Batch { size, count } = self.batch;
        format!("{}; micro-batch {size} × {count}, {:?}", stages.join(" | "), self.schedule)
    }
}

/// Too many plans to look at all.
#[derive(Debug)]
pub struct TooMany;

/// Everything that plans are enumerated over.
#[derive(Debug)]
pub struct Space<'a, P> {
    pub prices: &'a P,
    pub fleet: &'a Fleet,
    pub rules: &'a PlanRules,
}

impl<P: Prices> Space<'_, P> {
    /// Calls for every plan, whether it fits or not. Returns how many there are.
    pub fn each(&self, limit: u64, visit: &mut dyn FnMut(&Plan<'_, P>)) -> Result<u64, TooMany> {
        let rules = self.rules;
        let routes = self.fleet.routes(rules.may_idle, rules.is_even);
        let policies: Vec<Vec<Recompute>> = match rules.policy_per_stage {
            true => vec![rules.policies.clone()],
            false => rules.policies.iter().map(|&policy| vec![policy]).collect(),
        };
        let shardings = if rules.shardings.is_empty() { &[Sharding::None][..] } else { &rules.shardings };
        let mut left = limit;
        for &batch in &rules.batches {
            let ways = self.ways(batch);
            for &schedule in &rules.schedules {
                for (policies, sharding) in policies
                    .iter()
                    .flat_map(|policies| shardings.iter().map(move |&sharding| (policies, sharding)))
                {
                    for route in &routes {
                        let (stages, edges) = (Vec::new(), Vec::new());
                        let space = self;
                        let mut walk = Walk {
                            space,
                            ways: &ways,
                            batch,
                            schedule,
                            policies,
                            sharding,
                            route,
                            stages,
                            edges,
                            left,
                        };
                        walk.go(0, 0, visit)?;
                        left = walk.left;
                    }
                }
            }
        }
        Ok(limit - left)
    }

    /// The ways to share a stage that shape, degrees and devices allow, as data and tensor degrees.
    pub fn degrees(&self, batch: Batch) -> Vec<(u32, u32)> {
        let (rules, total) = (self.rules, self.fleet.devices());
        let is_listed = |list: &[u32], degree: u32| list.is_empty() || list.contains(&degree);
        let is_possible = |&(data, tensor): &(u32, u32)| {
            let devices = data as usize * tensor as usize;
            devices <= total
                && rules.shape.allows((data, tensor), (data, tensor))
                && batch.size.is_multiple_of(data)
                && is_listed(&rules.data_degrees, data)
                && is_listed(&rules.tensor_degrees, tensor)
        };
        let tensor = |data: u32| (0..=6).map(move |power| (data, 1_u32 << power));
        (1..=batch.size.min(total as u32)).flat_map(tensor).filter(is_possible).collect()
    }

    fn ways(&self, batch: Batch) -> Vec<Way<P::Way>> {
        let way = |(data, tensor)| Way { data, tensor, prices: self.prices.way(batch, data, tensor) };
        self.degrees(batch).into_iter().map(way).collect()
    }

    pub fn may_be_stage(&self, first: usize, last: usize) -> bool {
        let rules = self.rules;
        let may_cut = |after: usize| {
            after == rules.layers - 1
                || !rules.keep_together.iter().any(|&(from, to)| (from..to).contains(&after))
        };
        may_cut(last) && !rules.cut_after.iter().any(|after| (first..last).contains(after))
    }

    /// A stage on devices that follow each other; none where it cannot be priced.
    fn placed(
        &self,
        (way, prices): (usize, &P::Way),
        stage: Stage,
        route: &[Device],
        from: usize,
        beside: usize,
    ) -> Option<Placed> {
        let to = from + stage.devices();
        let devices = route.get(from..to)?;
        let seconds = self.prices.seconds(prices, &stage, devices, beside)?;
        self.prices.peak(prices, &stage, devices, 1)?;
        let capacity = devices.iter().map(|&device| self.fleet.class(device).capacity).min()?;
        Some(Placed { stage, from, to, seconds, capacity, way })
    }

    fn edge(&self, ways: &[Way<P::Way>], route: &[Device], before: &Placed, after: &Placed) -> Edge {
        let own = |placed: &Placed| placed.from..placed.to;
        Edge::each_way(self.prices.edge(
            (&ways[before.way].prices, &before.stage, &route[own(before)]),
            (&ways[after.way].prices, &after.stage, &route[own(after)]),
        ))
    }

    /// A plan that is given, priced; none where a stage of it cannot be. Of each stage it is said how many rings of others are beside
    /// its own.
    pub fn plan<T>(
        &self,
        (batch, schedule): (Batch, Schedule),
        route: &[Device],
        stages: &[Stage],
        beside: impl Fn(usize) -> usize,
        then: impl FnOnce(&Plan<'_, P>) -> T,
    ) -> Option<T> {
        let way = |&Stage { data, tensor, .. }: &Stage| Way {
            data,
            tensor,
            prices: self.prices.way(batch, data, tensor),
        };
        let ways: Vec<Way<P::Way>> = stages.iter().map(way).collect();
        let mut placed: Vec<Placed> = Vec::new();
        for (index, &stage) in stages.iter().enumerate() {
            let from = placed.last().map_or(0, |last| last.to);
            placed.push(self.placed((index, &ways[index].prices), stage, route, from, beside(index))?);
        }
        let edges: Vec<Edge> =
            placed.windows(2).map(|pair| self.edge(&ways, route, &pair[0], &pair[1])).collect();
        let (devices, stages, edges, ways) = (route, &placed[..], &edges[..], &ways[..]);
        Some(then(&Plan { prices: self.prices, batch, schedule, devices, stages, edges, ways }))
    }
}

/// Stages one after another along a route.
struct Walk<'a, P: Prices> {
    space: &'a Space<'a, P>,
    ways: &'a [Way<P::Way>],
    batch: Batch,
    schedule: Schedule,
    policies: &'a [Recompute],
    sharding: Sharding,
    route: &'a [Device],
    stages: Vec<Placed>,
    edges: Vec<Edge>,
    left: u64,
}

impl<P: Prices> Walk<'_, P> {
    fn go(
        &mut self,
        layer: usize,
        device: usize,
        visit: &mut dyn FnMut(&Plan<'_, P>),
    ) -> Result<(), TooMany> {
        let Space { fleet, rules, .. } = *self.space;
        let devices = self.route.len();
        if layer == rules.layers && device == devices {
            return self.end(visit);
        }
        if layer == rules.layers || device == devices || self.stages.len() == rules.stages.1 {
            return Ok(());
        }
        for last in (layer..rules.layers).filter(|&last| self.space.may_be_stage(layer, last)) {
            for (index, Way { data, tensor, prices }) in self.ways.iter().enumerate() {
                let (data, tensor) = (*data, *tensor);
                let size = data as usize * tensor as usize;
                let Some(taken) = self.route.get(device..device + size) else { continue };
                let is_alike = self.stages.first().is_none_or(|first| {
                    rules.shape.allows((data, tensor), (first.stage.data, first.stage.tensor))
                });
                if !is_alike || !fleet.may_take(rules.spanning, taken) {
                    continue;
                }
                for &policy in self.policies {
                    let sharding = if data > 1 { self.sharding } else { Sharding::None };
                    let stage = Stage { first: layer, last, data, tensor, policy, sharding };
                    let placed = self.space.placed((index, prices), stage, self.route, device, 0);
                    let Some(placed) = placed else { continue };
                    let before = self.stages.last();
                    let edge = before.map(|before| self.space.edge(self.ways, self.route, before, &placed));
                    self.edges.extend(edge);
                    self.stages.push(placed);
                    self.go(last + 1, device + size, visit)?;
                    self.stages.pop();
                    if edge.is_some() {
                        self.edges.pop();
                    }
                }
            }
        }
        Ok(())
    }

    fn end(&mut self, visit: &mut dyn FnMut(&Plan<'_, P>)) -> Result<(), TooMany> {
        let Space { prices, fleet, rules } = *self.space;
        if self.stages.len() < rules.stages.0 {
            return Ok(());
        }
        let stage_of =
            |layer: usize| self.stages.iter().position(|placed| layer <= placed.stage.last).unwrap_or(0);
        let taken: Vec<&[Device]> =
            self.stages.iter().map(|placed| &self.route[placed.from..placed.to]).collect();
        if !fleet.keeps_pins(stage_of, &taken) {
            return Ok(());
        }
        self.left = self.left.checked_sub(1).ok_or(TooMany)?;
        visit(&Plan {
            prices,
            batch: self.batch,
            schedule: self.schedule,
            devices: self.route,
            stages: &self.stages,
            edges: &self.edges,
            ways: self.ways,
        });
        Ok(())
    }
}
