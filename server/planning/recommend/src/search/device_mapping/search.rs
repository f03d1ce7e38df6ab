//! The search for the best devices, and the seconds of an iteration where edges take other seconds.

use std::rc::Rc;

use super::{KnownOrders, Row};
use crate::search::Candidate;
use loadmaster_search::fleet::mapping::{DeviceOrder, Orders, exchanged};
use loadmaster_search::{Link, Seconds, StageCosts, UnlikeNodes};
use loadmaster_simulate::{
    Edge, KnownTurns, MAX_PASSES, Order, Overlap, Pipeline, at_least, ends, iteration,
};

/// Fewer pipelines than this are no search: devices are exchanged by the closed form instead.
const LEAST_SIMULATED: usize = 64;

/// Most orders of several nodes together that are looked at.
const MOST_TOGETHER: usize = 4_096;

/// By what part of themselves seconds that are the same may differ by rounding.
const SAME: f64 = 1e-12;

/// The best devices so far.
pub(super) struct BestMapping {
    /// By stage.
    pub(super) devices: Vec<Vec<u32>>,
    pub(super) edges: Vec<f64>,
    pub(super) seconds: f64,
}

/// A search for the best devices.
pub(super) struct MappingSearch<'a, C> {
    candidate: &'a Candidate,
    costs: &'a C,
    rows: Vec<Row<'a>>,
    /// By row; none where its devices are exchanged.
    orders: Vec<Option<Rc<Orders>>>,
    clock: Clock,
    best: BestMapping,
}

impl<'a, C: StageCosts> MappingSearch<'a, C> {
    pub(super) fn of(
        candidate: &'a Candidate,
        costs: &'a C,
        rows: Vec<Row<'a>>,
        known: &KnownOrders,
    ) -> Option<Self> {
        let mut clock = Clock::new(candidate)?;
        let best = BestMapping {
            devices: candidate.stages.iter().map(|stage| stage.devices.clone()).collect(),
            edges: candidate.edges.clone(),
            seconds: clock.seconds(&candidate.edges)?,
        };
        let orders = rows.iter().map(|row| known.orders(row.node.links, &row.wanted)).collect();
        Some(Self { candidate, costs, rows, orders, clock, best })
    }

    /// Looks for better devices; whether it is proven that there are no better ones than those that are left.
    pub(super) fn run(&mut self) -> bool {
        let floor = self.floor() * (1.0 + SAME);
        let all: Vec<usize> = (0..self.rows.len()).collect();
        if self.best.seconds <= floor || self.look_at(&all) {
            return true;
        }
        loop {
            let before = self.best.seconds;
            for row in 0..self.rows.len() {
                match self.orders.get(row) {
                    Some(Some(_)) => drop(self.look_at(&[row])),
                    _ => self.exchange(row),
                }
            }
            if self.best.seconds <= floor {
                return true;
            }
            if self.best.seconds >= before || self.clock.left() == 0 {
                return false;
            }
        }
    }

    /// What was found.
    pub(super) fn found(self) -> (BestMapping, Clock) {
        (self.best, self.clock)
    }

    /// Seconds over the best links everywhere.
    fn floor(&mut self) -> f64 {
        let mut edges = self.best.edges.clone();
        for row in &self.rows {
            let fastest = row.node.links.fastest();
            for stage in (0..row.stages.len()).filter(|&stage| row.is_within(stage)) {
                let edge = row.stages.start + stage;
                if let Some(seconds) = self.candidate.edge_over(self.costs, edge, fastest) {
                    edges[edge] = seconds;
                }
            }
        }
        // Where it is not known, nothing bounds it.
        self.clock.seconds(&edges).unwrap_or(0.0)
    }

    /// Takes the best of all orders of these rows together, the others as they are; whether that is proven.
    fn look_at(&mut self, rows: &[usize]) -> bool {
        let lists: Option<Vec<Rc<Orders>>> = rows.iter().map(|&row| self.orders[row].clone()).collect();
        let Some(lists) = lists else { return false };
        let count = lists.iter().map(|of| of.all.len()).fold(1, usize::saturating_mul);
        if count > MOST_TOGETHER {
            return false;
        }
        let chosen = |mut number: usize| {
            let of = |orders: &Rc<Orders>| {
                let own = number % orders.all.len().max(1);
                number /= orders.all.len().max(1);
                own
            };
            lists.iter().map(of).collect::<Vec<usize>>()
        };
        // A link's price is asked for once.
        let priced: Vec<Vec<Vec<f64>>> =
            rows.iter().zip(&lists).map(|(&row, list)| self.priced(row, list)).collect();
        let mut edges = self.best.edges.clone();
        let write = |edges: &mut Vec<f64>, number: usize, all: &[Row<'_>]| {
            for ((&row, own), priced) in rows.iter().zip(chosen(number)).zip(&priced) {
                let begin = all[row].stages.start;
                for (edge, seconds) in (begin..).zip(&priced[own]) {
                    edges[edge] = *seconds;
                }
            }
        };
        let mut promised: Vec<(f64, usize)> = Vec::with_capacity(count);
        for number in 0..count {
            write(&mut edges, number, &self.rows);
            promised.push((self.clock.at_least(&edges), number));
        }
        promised.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut best = None;
        for (bound, number) in promised {
            if bound >= self.best.seconds {
                break;
            }
            if self.clock.left() == 0 {
                self.take(rows, &lists, best.map(&chosen));
                return false;
            }
            write(&mut edges, number, &self.rows);
            let seconds = self.clock.seconds(&edges);
            if let Some(seconds) = seconds.filter(|&seconds| seconds < self.best.seconds) {
                self.best.seconds = seconds;
                self.best.edges.clone_from(&edges);
                best = Some(number);
            }
        }
        self.take(rows, &lists, best.map(&chosen));
        lists.iter().all(|of| of.is_complete)
    }

    /// By order, seconds of its edges.
    fn priced(&self, row: usize, orders: &Orders) -> Vec<Vec<f64>> {
        let begin = self.rows[row].stages.start;
        let price = |(edge, link): (usize, Option<Link>)| {
            let own = self.candidate.edges.get(edge).copied().unwrap_or_default();
            link.and_then(|link| self.candidate.edge_over(self.costs, edge, link)).unwrap_or(own)
        };
        let of = |order: &DeviceOrder| (begin..).zip(order.links.iter().copied()).map(price).collect();
        orders.all.iter().map(of).collect()
    }

    /// Puts the stages of rows on the devices of these orders.
    fn take(&mut self, rows: &[usize], lists: &[Rc<Orders>], chosen: Option<Vec<usize>>) {
        for ((&row, orders), own) in rows.iter().zip(lists).zip(chosen.into_iter().flatten()) {
            let row = &self.rows[row];
            let of_fleet = |places: &Vec<u32>| places.iter().map(|place| row.node.begin + place).collect();
            let placed: Vec<Vec<u32>> = orders.all[own].devices.iter().map(of_fleet).collect();
            row.put(&mut self.best.devices, &placed);
        }
    }

    /// Lets stages of a row change devices by twos, and with idle ones, as long as that helps.
    fn exchange(&mut self, row: usize) {
        let row = &self.rows[row];
        let Row { stages, node, wanted } = row;
        let (stages, node) = (stages.clone(), *node);
        let pinned: Vec<u32> = wanted.iter().flat_map(|stage| stage.pinned.iter().copied()).collect();
        let own = row.on_node(&self.best.devices);
        let sizes: Vec<usize> = own.iter().map(Vec::len).collect();
        let used: Vec<u32> = own.concat();
        let places = node.begin..node.begin.saturating_add(node.links.devices());
        let idle = places.filter(|device| !used.contains(device));
        let devices: Vec<u32> = used.iter().copied().chain(idle).collect();
        let nodes = UnlikeNodes::from(node);
        let is_kept = |mapping: &[usize]| {
            let is_own = |(position, &device): (usize, &usize)| {
                position == device || !pinned.iter().any(|&of| used.get(position) == Some(&(node.begin + of)))
            };
            mapping.iter().enumerate().all(is_own)
        };
        let placed = |mapping: &[usize]| {
            let mut left = mapping.iter().filter_map(|&device| devices.get(device).copied());
            sizes.iter().map(|&size| left.by_ref().take(size).collect::<Vec<u32>>()).collect::<Vec<_>>()
        };
        let most = self.clock.left();
        let is_quick = most < LEAST_SIMULATED;
        let (candidate, costs, clock) = (self.candidate, self.costs, &mut self.clock);
        let before = &self.best.edges;
        let edges_of = |placed: &[Vec<u32>]| {
            let mut edges = before.clone();
            for (stage, pair) in placed.windows(2).enumerate().filter(|(stage, _)| row.is_within(*stage)) {
                let edge = stages.start + stage;
                let link = nodes.entry(&pair[0], &pair[1]);
                if let Some(seconds) = link.and_then(|link| candidate.edge_over(costs, edge, link)) {
                    edges[edge] = seconds;
                }
            }
            edges
        };
        let most = if is_quick { LEAST_SIMULATED.saturating_mul(devices.len()) } else { most };
        let found = exchanged(devices.len(), used.len(), most, |mapping| {
            if !is_kept(mapping) {
                return None;
            }
            let edges = edges_of(&placed(mapping));
            if is_quick { Some(clock.closed_form(&edges)) } else { clock.seconds(&edges) }
        });
        let Some(found) = found else { return };
        let placed = placed(&found.mapping);
        let edges = edges_of(&placed);
        let seconds = if is_quick { clock.seconds(&edges) } else { Some(found.value) };
        if let Some(seconds) = seconds.filter(|&seconds| seconds < self.best.seconds) {
            self.best.seconds = seconds;
            self.best.edges = edges;
            row.put(&mut self.best.devices, &placed);
        }
    }
}

/// Passes that are simulated at most to find the devices of one plan.
const MOST_PASSES: u64 = 400_000;

/// A clock returns the seconds of an iteration where edges take other seconds.
pub(super) struct Clock {
    stages: Vec<Seconds>,
    micro_batches: u32,
    order: Order,
    overlap: Overlap,
    turns: KnownTurns,
    /// It simulates, unless there are too many passes.
    pub(super) is_simulated: bool,
    /// Passes that were simulated.
    pub(super) passes: u64,
}

impl Clock {
    /// Returns the clock of a plan; none without times.
    fn new(candidate: &Candidate) -> Option<Self> {
        let (stages, _) = candidate.timed()?;
        Some(Self {
            stages,
            micro_batches: candidate.batch.micro_batches,
            order: Order::from(candidate.schedule),
            overlap: candidate.overlap,
            turns: KnownTurns::default(),
            is_simulated: candidate.passes() <= MAX_PASSES,
            passes: 0,
        })
    }

    fn with<T>(&mut self, edges: &[f64], run: impl FnOnce(&Pipeline<'_>, &mut KnownTurns) -> T) -> T {
        let edges: Vec<Edge> = edges.iter().map(|&both| Edge::halves(both)).collect();
        let Self { stages, micro_batches, order, overlap, turns, .. } = self;
        let pipeline = Pipeline {
            stages,
            edges: &edges,
            micro_batches: *micro_batches,
            order: *order,
            overlap: *overlap,
        };
        run(&pipeline, turns)
    }

    fn seconds(&mut self, edges: &[f64]) -> Option<f64> {
        if !self.is_simulated {
            return Some(self.closed_form(edges));
        }
        self.passes = self.passes.saturating_add(self.passes_each());
        self.with(edges, |pipeline, turns| ends(pipeline, turns).ok().map(|ends| ends.iteration))
    }

    fn at_least(&mut self, edges: &[f64]) -> f64 {
        let (is_simulated, formula) = (self.is_simulated, self.closed_form(edges));
        self.with(edges, |pipeline, _| if is_simulated { at_least(pipeline) } else { formula })
    }

    fn closed_form(&mut self, edges: &[f64]) -> f64 {
        self.with(edges, |own, _| iteration(own.stages, own.edges, own.micro_batches, own.overlap))
    }

    fn passes_each(&self) -> u64 {
        (self.stages.len() as u64).saturating_mul(2 * u64::from(self.micro_batches)).max(1)
    }

    /// How many pipelines may yet be simulated.
    fn left(&self) -> usize {
        let left = MOST_PASSES.saturating_sub(self.passes) / self.passes_each();
        usize::try_from(left).unwrap_or(usize::MAX)
    }
}
