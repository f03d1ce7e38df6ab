//! Stages that do not fit unless they compute some of their layers again.
//!
//! Which layers is a knapsack for each stage and each number of micro-batches that it holds. So it is first
//! bounded, and solved only for stages on a path that would be the best if the bounds were true.

use std::cell::RefCell;
use std::fmt;

use super::super::{Question, Squeezed, StageAt, StageCosts};
use super::Limits;

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
