//! Stages that recompute as few of their layers as they must to fit: Piper's space.
//!
//! A layer is either kept or recomputed, each at its own price, so which ones is a knapsack: the least seconds
//! that save enough bytes. Solved by branch and bound over layers in the order of seconds per byte, where the
//! relaxation takes a fraction of the next layer.
//!
//! Stages that do not fit otherwise are found here, too ([`Squeezer`]). Which layers they recompute is a knapsack for each stage
//! and each number of micro-batches that it holds. So it is first bounded, and solved only for stages on a path that would be the
//! best if the bounds were true.

use std::cell::RefCell;
use std::fmt;

use super::super::{Choice, Link, LinkId, Peak, Seconds, Squeezed, StageAt, StageCosts};
use super::Limits;
use crate::Question;

/// What it means to recompute a layer in the backward pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Saving {
    /// Seconds that the passes of one micro-batch take longer.
    pub seconds: f64,
    /// Bytes that its stage's peak is lower by.
    pub bytes: u64,
}

/// What recomputing single layers costs and saves.
pub trait Savings {
    /// For a layer of a stage like this, which holds so many micro-batches; none where it saves nothing.
    fn saving(&self, layer: usize, stage: &StageAt, in_flight: u32) -> Option<Saving>;
}

/// Branches of one knapsack, at most: beyond it the best found so far is taken, and said to be no more.
const MOST_BRANCHES: u32 = 1 << 14;

/// Costs under which a stage that does not fit computes some of its layers once more. Savings must add up.
#[derive(Debug, Clone)]
pub struct PerLayer<C, S> {
    costs: C,
    savings: S,
}

impl<C: StageCosts, S: Savings> PerLayer<C, S> {
    /// These costs, of stages that keep everything, with these savings.
    pub fn new(costs: C, savings: S) -> Self {
        Self { costs, savings }
    }

    /// The layers that a stage recomputes to need this many bytes less; none where that cannot be.
    pub fn layers_again(&self, stage: &StageAt, in_flight: u32, less: u64) -> Option<Vec<usize>> {
        let mut knapsack = Knapsack::of(&self.savings, stage, in_flight);
        knapsack.solve(less)?;
        let mut layers: Vec<usize> = knapsack.best.iter().map(|&item| knapsack.items[item].0).collect();
        layers.sort_unstable();
        Some(layers)
    }
}

impl<C: StageCosts, S: Savings> StageCosts for PerLayer<C, S> {
    fn layers(&self) -> usize {
        self.costs.layers()
    }

    fn choices(&self) -> &[Choice] {
        self.costs.choices()
    }

    fn seconds(&self, stage: &StageAt) -> Option<Seconds> {
        self.costs.seconds(stage)
    }

    fn peak(&self, stage: &StageAt, in_flight: u32) -> Option<Peak> {
        self.costs.peak(stage, in_flight)
    }

    fn cut_seconds(&self, layer: usize, link: LinkId, choice: usize) -> f64 {
        self.costs.cut_seconds(layer, link, choice)
    }

    fn cut_seconds_over(&self, layer: usize, link: Link, choice: usize) -> f64 {
        self.costs.cut_seconds_over(layer, link, choice)
    }

    fn squeezes(&self) -> bool {
        true
    }

    fn squeezed(&self, stage: &StageAt, in_flight: u32, less: u64, exactly: bool) -> Option<Squeezed> {
        let mut knapsack = Knapsack::of(&self.savings, stage, in_flight);
        if exactly { knapsack.solve(less) } else { knapsack.bounds(less) }
    }
}

/// Layers to choose from, the cheapest per byte first.
struct Knapsack {
    items: Vec<(usize, Saving)>,
    /// Bytes of each item and all behind it.
    left: Vec<u64>,
    chosen: Vec<usize>,
    best: Vec<usize>,
    at_most: f64,
    branches: u32,
}

impl Knapsack {
    fn of(savings: &impl Savings, stage: &StageAt, in_flight: u32) -> Self {
        let layers = stage.first..=stage.last;
        let saving = |layer| Some((layer, savings.saving(layer, stage, in_flight)?));
        let mut items: Vec<(usize, Saving)> =
            layers.filter_map(saving).filter(|(_, saving)| saving.bytes > 0).collect();
        let rate = |saving: &Saving| saving.seconds / saving.bytes as f64;
        // Equal layers stand together.
        items.sort_by(|(_, one), (_, other)| {
            rate(one).total_cmp(&rate(other)).then(other.bytes.cmp(&one.bytes))
        });
        let mut left = vec![0; items.len() + 1];
        for (index, (_, saving)) in items.iter().enumerate().rev() {
            left[index] = left[index + 1] + saving.bytes;
        }
        Self { items, left, chosen: Vec::new(), best: Vec::new(), at_most: f64::INFINITY, branches: 0 }
    }

    /// The relaxation's seconds, and those of the layers that it takes rounded up.
    fn bounds(&mut self, less: u64) -> Option<Squeezed> {
        let at_least = self.relaxed(0, less)?;
        self.round_up(0, less, 0.0);
        Some(Squeezed { at_least, at_most: self.at_most })
    }

    /// The least seconds.
    fn solve(&mut self, less: u64) -> Option<Squeezed> {
        let Squeezed { at_least, .. } = self.bounds(less)?;
        self.branch(0, less, 0.0);
        let is_solved = self.branches < MOST_BRANCHES;
        Some(Squeezed { at_least: if is_solved { self.at_most } else { at_least }, at_most: self.at_most })
    }

    /// The least seconds with items from `from` on, of which one may be taken in part; none where all are too few.
    fn relaxed(&self, from: usize, mut less: u64) -> Option<f64> {
        if self.left[from] < less {
            return None;
        }
        let mut seconds = 0.0;
        for (_, saving) in &self.items[from..] {
            if less <= saving.bytes {
                return Some(seconds + saving.seconds * (less as f64 / saving.bytes as f64));
            }
            less -= saving.bytes;
            seconds += saving.seconds;
        }
        Some(seconds)
    }

    /// Takes items in order until they are enough.
    fn round_up(&mut self, from: usize, mut less: u64, mut seconds: f64) {
        let begun = self.chosen.len();
        for (item, (_, saving)) in self.items.iter().enumerate().skip(from) {
            if less == 0 {
                break;
            }
            less = less.saturating_sub(saving.bytes);
            seconds += saving.seconds;
            self.chosen.push(item);
        }
        if less == 0 && seconds < self.at_most {
            self.at_most = seconds;
            self.best.clone_from(&self.chosen);
        }
        self.chosen.truncate(begun);
    }

    fn branch(&mut self, item: usize, less: u64, seconds: f64) {
        self.branches += 1;
        if self.branches >= MOST_BRANCHES {
            return;
        }
        let Some(rest) = self.relaxed(item, less) else { return };
        if seconds + rest >= self.at_most {
            return;
        }
        self.round_up(item, less, seconds);
        if less == 0 || item == self.items.len() {
            return;
        }
        let (_, saving) = self.items[item];
        self.chosen.push(item);
        self.branch(item + 1, less.saturating_sub(saving.bytes), seconds + saving.seconds);
        self.chosen.pop();
        // Without this item, those that are like it need not be tried instead of it.
        let unlike = self.items[item..].iter().position(|(_, other)| *other != saving);
        if let Some(next) = unlike {
            self.branch(item + next, less, seconds);
        }
    }
}

/// Seconds that a stage takes longer, with how they are known.
#[derive(Debug, Clone, Copy)]
struct Known {
    squeezed: Option<Squeezed>,
    is_exact: bool,
}

/// What is known of the stages of a table that hold equally many micro-batches and begin with the same layer, by
/// last layer.
type KnownRow = Option<Box<[Option<Known>]>>;

/// What a stage that holds so many micro-batches takes longer, exactly or bounded.
type Ask<'a> = dyn Fn(&StageAt, u32, bool) -> Option<Squeezed> + 'a;

/// Asks the costs what stages take that do not fit, and remembers it.
pub(super) struct Squeezer<'a> {
    ask: Box<Ask<'a>>,
    layers: usize,
    /// Micro-batches that a stage may hold, and none.
    widths: usize,
    /// By table, micro-batches held and first layer.
    known: RefCell<Vec<KnownRow>>,
}

impl fmt::Debug for Squeezer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Squeezer").field("rows", &self.known.borrow().len()).finish_non_exhaustive()
    }
}

impl<'a> Squeezer<'a> {
    /// None where the costs know nothing of it, or nothing is limited.
    pub(super) fn of<C: StageCosts>(
        question: &'a Question<'_, C>,
        most_held: u32,
        limits: &Limits,
    ) -> Option<Self> {
        let is_limited = limits.are_of_bytes(question);
        let limits = *limits;
        let ask = move |stage: &StageAt, in_flight, exactly| {
            let peak = question.costs.peak(stage, in_flight)?;
            let less = limits.excess(question, stage, peak);
            question.costs.squeezed(stage, in_flight, less, exactly)
        };
        (is_limited && question.costs.squeezes()).then(|| Self {
            ask: Box::new(ask),
            layers: question.costs.layers(),
            widths: most_held as usize + 1,
            known: RefCell::new(Vec::new()),
        })
    }

    /// Seconds that a stage of a table takes longer, as far as that is known; none where it does not fit at all.
    pub(super) fn get(&self, table: usize, stage: &StageAt, in_flight: u32) -> Option<Squeezed> {
        let mut known = self.known.borrow_mut();
        let known = self.cell(&mut known, table, stage, in_flight);
        let ask = || Known { squeezed: (self.ask)(stage, in_flight, false), is_exact: false };
        known.get_or_insert_with(ask).squeezed
    }

    /// Solves it; whether its seconds are others than those that [`Self::get`] said.
    pub(super) fn refine(&self, table: usize, stage: &StageAt, in_flight: u32) -> bool {
        let before = self.get(table, stage, in_flight);
        let mut known = self.known.borrow_mut();
        let known = self.cell(&mut known, table, stage, in_flight);
        if known.is_some_and(|known| known.is_exact) {
            return false;
        }
        let squeezed = (self.ask)(stage, in_flight, true);
        *known = Some(Known { squeezed, is_exact: true });
        squeezed.map(|squeezed| squeezed.at_least) != before.map(|before| before.at_least)
    }

    fn cell<'k>(
        &self,
        known: &'k mut Vec<KnownRow>,
        table: usize,
        stage: &StageAt,
        in_flight: u32,
    ) -> &'k mut Option<Known> {
        let row = (table * self.widths + in_flight as usize) * self.layers + stage.first;
        if known.len() <= row {
            known.resize(row + 1, None);
        }
        let row = known[row].get_or_insert_with(|| vec![None; self.layers].into_boxed_slice());
        &mut row[stage.last]
    }
}
