//! How many stages may come after each place, as far as it matters.

use super::super::{PlaceId, Places, Question, StageCosts};

/// No way leads there, or has so many stages.
const NONE: u32 = u32::MAX;

/// How the stages to come are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counting {
    /// As few as any way to the end has: a stage never holds more than it would.
    Fewest,
    /// As many as any way to the end has: a stage never holds less than it would.
    Most,
    Exact,
}

/// The numbers of stages that may come after each place.
#[derive(Debug)]
pub(crate) struct Counts {
    /// By place, by number of stages to come: the fewest that it stands for, or [`NONE`]. Empty where no way leads
    /// from the first place, or none to the end has few enough.
    numbers: Vec<Vec<u32>>,
    lengths: Lengths,
    /// This number stands for all larger ones as well.
    told_apart: usize,
    layers: usize,
}

impl Counts {
    /// Of the ways that keep to the question's numbers of stages. Numbers from `enough` on are one, unless the question
    /// bounds them. None where there would be more than `most` of them.
    pub(crate) fn of<C: StageCosts>(question: &Question<'_, C>, enough: usize, most: usize) -> Option<Self> {
        let (places, layers) = (question.places, question.costs.layers());
        let lengths = Lengths::of(places);
        let most_stages = (*question.stages.end()).min(layers);
        let told_apart = match most_stages < lengths.longest().min(layers) {
            // No way has so many.
            true => most_stages + 1,
            false => enough.max(*question.stages.start()).min(layers),
        };
        let mut numbers = vec![Vec::new(); places.count()];
        if let Some(end) = numbers.last_mut() {
            *end = vec![0];
        }
        let mut known = 0;
        for place in (0..places.last() as usize).rev().filter(|&place| lengths.before[place] != NONE) {
            let mut own = Vec::new();
            for step in places.steps(place as PlaceId) {
                for (after, &fewest) in numbers[step.to as usize].iter().enumerate() {
                    let number = (after + 1).min(told_apart);
                    if fewest == NONE || number > most_stages {
                        continue;
                    }
                    if own.len() <= number {
                        own.resize(number + 1, NONE);
                    }
                    own[number] = own[number].min(fewest + 1);
                }
            }
            known += own.iter().filter(|&&fewest| fewest != NONE).count();
            if known > most {
                return None;
            }
            numbers[place] = own;
        }
        Some(Self { numbers, lengths, told_apart, layers })
    }

    /// Most stages of a way, however many the question allows.
    pub(crate) fn longest(&self) -> usize {
        self.lengths.longest()
    }

    /// Nodes of the graph that counts exactly.
    pub(crate) fn exact_nodes(&self) -> usize {
        self.on_the_way().map(|place| self.known(place).count()).sum()
    }

    /// Nodes of a graph of places alone.
    pub(crate) fn plain_nodes(&self) -> usize {
        self.on_the_way().count()
    }

    /// The places that a way from the first to the last comes to.
    pub(crate) fn on_the_way(&self) -> impl Iterator<Item = usize> {
        let Lengths { before, after } = &self.lengths;
        (0..before.len()).filter(|&place| before[place] != NONE && after[place].0 != NONE)
    }

    /// The numbers that make nodes of a place, ascending, each with the fewest stages to come that it stands for. A
    /// place alone has the number 0.
    pub(super) fn numbers(&self, counting: Counting, place: usize) -> Vec<(usize, u32)> {
        match counting {
            Counting::Exact => self.known(place).collect(),
            Counting::Fewest | Counting::Most => vec![(0, self.lengths.after[place].0)],
        }
    }

    /// Where one of so many stages to come may lead at a place: the number there, and the stages that come after it. Of
    /// the number that stands for larger ones, one less may be left, or as many.
    pub(super) fn after(
        &self,
        counting: Counting,
        number: usize,
        to: PlaceId,
    ) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (fewest, most) = self.lengths.after[to as usize];
        let next = match counting {
            Counting::Exact => {
                let left = [number.checked_sub(1), (number == self.told_apart).then_some(number)];
                left.map(|left| Some((left?, left?)))
            }
            Counting::Fewest => [Some((0, fewest as usize)), None],
            Counting::Most => [Some((0, (most as usize).min(self.layers.saturating_sub(1)))), None],
        };
        next.into_iter().flatten()
    }

    fn known(&self, place: usize) -> impl Iterator<Item = (usize, u32)> {
        self.numbers[place].iter().copied().enumerate().filter(|&(_, fewest)| fewest != NONE)
    }
}

/// How many stages ways have, whatever a question says: `u32::MAX` where there is no way.
#[derive(Debug)]
pub(crate) struct Lengths {
    /// By place: the fewest on a way there from the first.
    pub(crate) before: Vec<u32>,
    /// By place: the fewest and the most on a way from there to the last.
    pub(crate) after: Vec<(u32, u32)>,
}

impl Lengths {
    pub(crate) fn of(places: &Places) -> Self {
        let mut before = vec![NONE; places.count()];
        if let Some(first) = before.first_mut() {
            *first = 0;
        }
        for place in 0..places.count() {
            let Some(next) = before[place].checked_add(1) else { continue };
            for step in places.steps(place as PlaceId) {
                let to = &mut before[step.to as usize];
                *to = next.min(*to);
            }
        }
        let mut after = vec![(NONE, 0); places.count()];
        if let Some(last) = after.last_mut() {
            *last = (0, 0);
        }
        for place in (0..places.count()).rev() {
            for step in places.steps(place as PlaceId) {
                let (fewest, most) = after[step.to as usize];
                if fewest != NONE {
                    after[place].0 = after[place].0.min(fewest + 1);
                    after[place].1 = after[place].1.max(most + 1);
                }
            }
        }
        Self { before, after }
    }

    /// The most on a way from the first place to the last; 0 where there is none.
    fn longest(&self) -> usize {
        self.after.first().map_or(0, |&(_, most)| most as usize)
    }
}
