//! Every plan of a question, one after another.

use crate::certificates::asked::{Asked, Batch};
use crate::certificates::places::{Device, Places};
use crate::certificates::prices::{Seconds, Shares, Sharing, Stage, in_flight, iteration, needed, transfer};
use crate::certificates::question::{Question, Recompute, Schedule, Shape, Transfers};
use crate::certificates::scene::{Link, Scene};

/// A stage on its devices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) stage: Stage,
    /// Its devices, as positions of the route.
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) seconds: Seconds,
    kinds: u32,
    /// Bytes that the smallest of its devices allows.
    pub(crate) capacity: u64,
    way: usize,
}

/// A plan with all its prices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan<'a> {
    pub(crate) scene: &'a Scene,
    pub(crate) batch: Batch,
    pub(crate) schedule: Schedule,
    pub(crate) devices: &'a [Device],
    pub(crate) stages: &'a [Placed],
    pub(crate) edges: &'a [f64],
    ways: &'a [Way],
}

/// A way to share a stage, at one micro-batch size.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) data: u32,
    pub(crate) tensor: u32,
    shares: Shares,
}

/// What the memory of a plan comes to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// Highest predicted bytes of a device.
    pub(crate) highest: u64,
    /// Highest share of a device's capacity.
    pub(crate) share: f64,
    /// Bytes missing on the device that lacks most, the margin included.
    pub(crate) lack: u64,
}

impl Plan<'_> {
    pub(crate) fn in_flight(&self, stage: usize) -> u32 {
        in_flight(self.schedule, self.stages.len() - stage, self.batch.count)
    }

    /// Predicted bytes of the fullest device of a stage.
    pub(crate) fn peak(&self, stage: usize) -> u64 {
        let placed = &self.stages[stage];
        let shares = &self.ways[placed.way].shares;
        shares.peak(self.scene, &placed.stage, placed.kinds, self.in_flight(stage)).expect("it was priced")
    }

    pub(crate) fn memory(&self, margin: f64) -> Memory {
        let mut memory = Memory { highest: 0, share: 0.0, lack: 0 };
        for (index, placed) in self.stages.iter().enumerate() {
            let bytes = self.peak(index);
            memory.highest = memory.highest.max(bytes);
            memory.share = memory.share.max(bytes as f64 / placed.capacity as f64);
            memory.lack = memory.lack.max(needed(bytes, margin).saturating_sub(placed.capacity));
        }
        memory
    }

    /// Peaks of all devices, the highest first.
    pub(crate) fn peaks(&self) -> Vec<u64> {
        let each = self.stages.iter().enumerate();
        let mut peaks: Vec<u64> =
            each.flat_map(|(index, placed)| vec![self.peak(index); placed.to - placed.from]).collect();
        peaks.sort_unstable_by(|a, b| b.cmp(a));
        peaks
    }

    pub(crate) fn seconds(&self, transfers: Transfers) -> f64 {
        let stages: Vec<Seconds> = self.stages.iter().map(|placed| placed.seconds).collect();
        iteration(self.schedule, &stages, self.edges, self.batch.count, transfers)
    }

    /// Seconds below which no schedule is: the busiest stage computes alone.
    pub(crate) fn at_least(&self) -> f64 {
        let busy = |placed: &Placed| {
            let Seconds { forward, backward, step } = placed.seconds;
            f64::from(self.batch.count) * (forward + backward) + step
        };
        self.stages.iter().map(busy).fold(0.0, f64::max)
    }

    pub(crate) fn price(&self, places: &Places) -> Option<f64> {
        self.devices.iter().map(|device| places.prices[device.class]).sum()
    }

    /// For people: `0-1d2 2-4t2, micro-batch 2 × 4, gpipe, nodes [0, 1]`.
    pub(crate) fn describe(&self) -> String {
        let stage = |placed: &Placed| {
            let Stage { first, last, data, tensor, policy } = placed.stage;
            let nodes: Vec<usize> =
                self.devices[placed.from..placed.to].iter().map(|device| device.node).collect();
            format!("{first}-{last} d{data}t{tensor} {policy:?} on {nodes:?}")
        };
        let stages: Vec<String> = self.stages.iter().map(stage).collect();
        format!(
            "{}; micro-batch {} × {}, {:?}",
            stages.join(" | "),
            self.batch.size,
            self.batch.count,
            self.schedule
        )
    }
}

/// Too many plans to look at all.
#[derive(Debug)]
pub(crate) struct TooMany;

/// Everything that plans are enumerated over.
pub(crate) struct Space<'a> {
    pub(crate) scene: &'a Scene,
    pub(crate) question: &'a Question,
    pub(crate) asked: &'a Asked,
    pub(crate) places: &'a Places,
    pub(crate) sharing: Sharing,
    /// Devices stand in the order of ranks that somebody chose, not node by node: links are those of each ring and of
    /// each rank's counterpart.
    pub(crate) by_ranks: bool,
}

impl Space<'_> {
    /// Calls for every plan, whether it fits or not. Returns how many there are.
    pub(crate) fn each(&self, limit: u64, visit: &mut dyn FnMut(&Plan<'_>)) -> Result<u64, TooMany> {
        let routes = self.places.routes(self.asked);
        let mut count = 0;
        for &batch in &self.asked.batches {
            let ways = self.ways(batch);
            for &schedule in &self.asked.schedules {
                let policies: Vec<Vec<Recompute>> = match self.question.policy_per_stage {
                    true => vec![self.asked.policies.clone()],
                    false => self.asked.policies.iter().map(|&policy| vec![policy]).collect(),
                };
                for policies in &policies {
                    for route in &routes {
                        let mut walk = Walk {
                            space: self,
                            ways: &ways,
                            batch,
                            schedule,
                            policies,
                            route,
                            stages: Vec::new(),
                            edges: Vec::new(),
                            left: limit - count,
                        };
                        walk.go(0, 0, visit)?;
                        count = limit - walk.left;
                    }
                }
            }
        }
        Ok(count)
    }

    /// The ways to share a stage that shape, degrees and devices allow.
    pub(crate) fn ways(&self, batch: Batch) -> Vec<Way> {
        let Self { scene, question, asked, places, .. } = self;
        let total: usize = places.nodes.iter().map(crate::certificates::places::Node::devices).sum();
        let is_listed = |list: &[u32], degree: u32| list.is_empty() || list.contains(&degree);
        let mut ways = Vec::new();
        for data in (1..=batch.size.min(total as u32)).filter(|data| batch.size.is_multiple_of(*data)) {
            for tensor in (0..=6).map(|power| 1_u32 << power) {
                let devices = data as usize * tensor as usize;
                let is_of_shape = match asked.shape {
                    Shape::SinglePipeline => devices == 1,
                    Shape::PerStageReplicas => tensor == 1,
                    Shape::UniformGrid | Shape::EqualDevices | Shape::PerStageMesh => true,
                };
                if devices <= total
                    && is_of_shape
                    && is_listed(&question.data_degrees, data)
                    && is_listed(&question.tensor_degrees, tensor)
                {
                    ways.push(Way { data, tensor, shares: Shares::of(scene, batch.size / data, tensor) });
                }
            }
        }
        ways
    }

    pub(crate) fn may_be_stage(&self, first: usize, last: usize) -> bool {
        let question = self.question;
        let end = self.scene.layers() - 1;
        let may_cut = |after: usize| {
            after == end || !question.keep_together.iter().any(|&(from, to)| (from..to).contains(&after))
        };
        may_cut(last) && !question.cut_after.iter().any(|after| (first..last).contains(after))
    }

    /// A stage on devices that follow each other; none where it cannot be priced.
    pub(crate) fn placed(
        &self,
        ways: &[Way],
        stage: Stage,
        way: usize,
        route: &[Device],
        from: usize,
        beside: usize,
    ) -> Option<Placed> {
        let to = from + stage.data as usize * stage.tensor as usize;
        let devices = &route[from..to];
        let classes = || devices.iter().map(|device| &self.places.classes[device.class]);
        let kinds = classes().fold(0, |kinds, class| kinds | 1 << class.kind);
        let link = match self.by_ranks {
            true => self.places.rings(devices, stage.tensor as usize),
            false => self.places.around(devices),
        };
        let rings = match self.sharing.rings_share {
            true => (self.places.rings_at_once(devices, stage.tensor as usize) + beside) as f64,
            false => 1.0,
        };
        let ring = Link { bytes_per_second: link.bytes_per_second / rings, ..link };
        let shares = &ways[way].shares;
        let seconds = shares.seconds(&stage, kinds, Some(ring))?;
        shares.peak(self.scene, &stage, kinds, 1)?;
        let capacity = classes().map(|class| class.capacity).min().unwrap_or(0);
        Some(Placed { stage, from, to, seconds, kinds, capacity, way })
    }

    /// Seconds of a transfer between two stages.
    pub(crate) fn edge(&self, ways: &[Way], route: &[Device], before: &Placed, after: &Placed) -> f64 {
        let (sends, receives) = (&route[before.from..before.to], &route[after.from..after.to]);
        let link = match self.by_ranks || self.places.are_unlike(sends, receives) {
            true => self.places.counterparts(sends, receives),
            false => self.places.entry(route[before.to - 1], route[after.from]),
        };
        let of = |placed: &Placed| transfer(ways[placed.way].shares.output(before.stage.last), link);
        if self.sharing.larger_side { of(before).max(of(after)) } else { of(after) }
    }

    /// A plan that is given, priced; none where a stage of it cannot be.
    pub(crate) fn plan<T>(
        &self,
        batch: Batch,
        schedule: Schedule,
        route: &[Device],
        stages: &[Stage],
        then: impl FnOnce(&Plan<'_>) -> T,
    ) -> Option<T> {
        let way = |stage: &Stage| Way {
            data: stage.data,
            tensor: stage.tensor,
            shares: Shares::of(self.scene, batch.size / stage.data, stage.tensor),
        };
        let ways: Vec<Way> = stages.iter().map(way).collect();
        let mut from = 0;
        let mut placed: Vec<Placed> = Vec::new();
        for (index, &stage) in stages.iter().enumerate() {
            // Annealing mixes stages on nodes, so that the rings of all of them meet there.
            let mut begin = 0;
            let mut others = Vec::new();
            for (other, of) in stages.iter().enumerate() {
                let end = begin + of.data as usize * of.tensor as usize;
                others.extend(
                    route.get(begin..end).filter(|_| other != index).map(|on| (on, of.tensor as usize)),
                );
                begin = end;
            }
            let own = &route.get(from..from + stage.data as usize * stage.tensor as usize)?;
            let spans = own.iter().any(|device| device.node != own[0].node);
            let beside = if self.by_ranks && spans { self.places.rings_beside(own, &others) } else { 0 };
            let own = self.placed(&ways, stage, index, route, from, beside)?;
            from = own.to;
            placed.push(own);
        }
        let edges: Vec<f64> =
            placed.windows(2).map(|pair| self.edge(&ways, route, &pair[0], &pair[1])).collect();
        Some(then(&Plan {
            scene: self.scene,
            batch,
            schedule,
            devices: route,
            stages: &placed,
            edges: &edges,
            ways: &ways,
        }))
    }
}

/// Stages one after another along a route.
struct Walk<'a> {
    space: &'a Space<'a>,
    ways: &'a [Way],
    batch: Batch,
    schedule: Schedule,
    policies: &'a [Recompute],
    route: &'a [Device],
    stages: Vec<Placed>,
    edges: Vec<f64>,
    left: u64,
}

impl Walk<'_> {
    fn go(&mut self, layer: usize, device: usize, visit: &mut dyn FnMut(&Plan<'_>)) -> Result<(), TooMany> {
        let (layers, devices) = (self.space.scene.layers(), self.route.len());
        if layer == layers && device == devices {
            return self.end(visit);
        }
        let (_, most) = self.space.asked.stages;
        if layer == layers || device == devices || self.stages.len() == most {
            return Ok(());
        }
        for last in layer..layers {
            if !self.space.may_be_stage(layer, last) {
                continue;
            }
            for way in 0..self.ways.len() {
                let Way { data, tensor, .. } = self.ways[way];
                let size = data as usize * tensor as usize;
                if device + size > devices {
                    continue;
                }
                if let Some(first) = self.stages.first() {
                    let is_alike = match self.space.asked.shape {
                        Shape::UniformGrid => (data, tensor) == (first.stage.data, first.stage.tensor),
                        Shape::EqualDevices => size == first.to - first.from,
                        _ => true,
                    };
                    if !is_alike {
                        continue;
                    }
                }
                let taken = &self.route[device..device + size];
                if !self.space.places.may_take(self.space.asked.spanning, taken) {
                    continue;
                }
                for &policy in self.policies {
                    let stage = Stage { first: layer, last, data, tensor, policy };
                    let Some(placed) = self.space.placed(self.ways, stage, way, self.route, device, 0) else {
                        continue;
                    };
                    let edge = self
                        .stages
                        .last()
                        .map(|before| self.space.edge(self.ways, self.route, before, &placed));
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

    fn end(&mut self, visit: &mut dyn FnMut(&Plan<'_>)) -> Result<(), TooMany> {
        if self.stages.len() < self.space.asked.stages.0 {
            return Ok(());
        }
        let stage_of =
            |layer: usize| self.stages.iter().position(|placed| layer <= placed.stage.last).unwrap_or(0);
        let taken: Vec<&[Device]> =
            self.stages.iter().map(|placed| &self.route[placed.from..placed.to]).collect();
        if !self.space.places.pins.is_empty() && !self.space.places.keeps_pins(stage_of, &taken) {
            return Ok(());
        }
        self.left = self.left.checked_sub(1).ok_or(TooMany)?;
        visit(&Plan {
            scene: self.space.scene,
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
