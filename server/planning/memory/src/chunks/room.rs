//! Which choices there is room for, and what lacks for the others. Nothing is simulated for that.

use std::ops::RangeInclusive;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::activations::{ActivationPlace, place_of};
use loadmaster_proto::chunks::embedding::EmbeddingPlace;
use loadmaster_proto::chunks::host::HostParameters;
use loadmaster_proto::chunks::layout::{Chunk, Layout, List, Lists};
use loadmaster_proto::chunks::sequence::Sequence;
use loadmaster_proto::plan::chunked::ChunkPolicy;

use super::baseline::Baseline;
use super::layout_evaluation::LayoutEvaluation;
use super::pass_costs::{PassCosts, StepSequences};
use super::question::{ChunkQuestion, Passes};
use super::refusal::{ChunkChoice, NoChunks, NoRoom};

/// A layout that is tried.
#[derive(Debug, Clone)]
pub(super) struct TriedLayout {
    pub(super) lists: Lists,
    /// Whether the embedding table is apart.
    pub(super) embedding: EmbeddingPlace,
    pub(super) places: Layout,
}

/// Every layout that is tried with the embedding in one of these places.
///
/// # Errors
/// No size can be, of any layout.
pub(super) fn layouts(
    question: &ChunkQuestion,
    embeddings: &[EmbeddingPlace],
) -> Result<Vec<TriedLayout>, NoChunks> {
    let lists = Lists::new(question.training.precision, &question.training.optimizer)?;
    let sequence = question.sequence();
    let mut refused = None;
    let mut all = Vec::new();
    for &embedding in embeddings {
        match LayoutEvaluation::lay_out(question, &sequence, lists, embedding).and_then(Iterator::collect) {
            Ok::<Vec<_>, _>(places) => {
                all.extend(places.into_iter().map(|places| TriedLayout { lists, embedding, places }));
            }
            Err(why) => refused = Some(why),
        }
    }
    match refused {
        Some(why) if all.is_empty() => Err(why.into()),
        _ => Ok(all),
    }
}

/// Whether there is room for any choice.
///
/// # Errors
/// The question makes no sense, what steps cost is not known, or this was over before any was found.
pub fn fits(
    question: &ChunkQuestion,
    passes: &impl Passes,
    is_over: &dyn Fn() -> bool,
) -> Result<bool, NoChunks> {
    question.check()?;
    if question.choices.policy == ChunkPolicy::Patrickstar {
        return match Baseline::PATRICKSTAR.fastest(question, passes) {
            Ok(_) => Ok(true),
            Err(NoChunks::NoRoom(_)) => Ok(false),
            Err(why) => Err(why),
        };
    }
    let (sequence, mut courses) = (question.sequence(), StepSequences::default());
    let lists = Lists::new(question.training.precision, &question.training.optimizer)?;
    let rooms = (question.capacity.0, question.host_memory.0);
    let may_hold = has_room_for_state(lists, sequence.elements() / u64::from(question.ranks.max(1)), rooms);
    let (mut refused, mut is_any) = (None, false);
    for place in question.places() {
        // What has no room for its state alone has none wherever activations are.
        if is_any && !may_hold {
            break;
        }
        if is_over() {
            return Err(NoChunks::Stopped);
        }
        match fits_with(question, passes, (place, &sequence, lists), &mut courses, is_over) {
            Ok(true) => return Ok(true),
            Ok(false) => is_any = true,
            Err(NoChunks::Stopped) => return Err(NoChunks::Stopped),
            Err(why) => refused = Some(why),
        }
    }
    match refused {
        Some(why) if !is_any => Err(why),
        _ => Ok(false),
    }
}

/// The same with activations in this place.
fn fits_with(
    question: &ChunkQuestion,
    passes: &impl Passes,
    (place, sequence, lists): (ActivationPlace, &Sequence, Lists),
    courses: &mut StepSequences,
    is_over: &dyn Fn() -> bool,
) -> Result<bool, NoChunks> {
    let mut grounds = PassCosts::all(question, passes, &[place], courses)?;
    let capacity = question.capacity.0;
    grounds.retain(|ground| ground.most_needed() <= capacity);
    let (mut refused, mut is_any) = (None, false);
    for embedding in question.embeddings() {
        let places = match LayoutEvaluation::lay_out(question, sequence, lists, embedding) {
            Ok(places) => places,
            Err(why) => {
                refused = Some(why);
                continue;
            }
        };
        is_any = true;
        // Smaller chunks are more likely to; none is laid out before it is asked for.
        for places in places.rev() {
            if is_over() {
                return Err(NoChunks::Stopped);
            }
            let tried = TriedLayout { lists, embedding, places: places? };
            if tried.fits(question, &grounds)? {
                return Ok(true);
            }
        }
    }
    match refused {
        Some(why) if !is_any => Err(why.into()),
        _ => Ok(false),
    }
}

impl TriedLayout {
    /// The grounds that it is for.
    pub(super) fn of<'a>(&self, grounds: &'a [PassCosts]) -> impl Iterator<Item = &'a PassCosts> + use<'a> {
        let embedding = self.embedding;
        grounds.iter().filter(move |ground| ground.course.embedding == embedding)
    }

    /// Whether there is room for any choice of this layout.
    fn fits(&self, question: &ChunkQuestion, grounds: &[PassCosts]) -> Result<bool, NoChunks> {
        let Self { lists, places, .. } = self;
        let able = self.of(grounds).filter(|ground| may_fit(question, ground, *lists, places));
        let laid = LayoutEvaluation::all(question, able, *lists, places)?;
        Ok(laid.iter().any(LayoutEvaluation::has_room))
    }
}

/// Whether host and device may hold the state, as far as its bytes alone tell: what is on the device is there in every step,
/// with its parameters.
fn may_fit(question: &ChunkQuestion, ground: &PassCosts, lists: Lists, places: &Layout) -> bool {
    let is_shared = question.ranks > 1;
    let of = |chunk: &Chunk| if is_shared { chunk.extent } else { chunk.capacity };
    // Each has its part.
    let elements =
        places.chunks().iter().map(of).fold(0_u64, u64::saturating_add) / u64::from(question.ranks.max(1));
    let device = question.capacity.0.saturating_sub(ground.most_needed());
    let host = question.host_memory.0.saturating_sub(ground.costs.pool.0);
    has_room_for_state(lists, elements, (device, host))
}

/// Whether so many bytes of the device and of the host hold the state of so many elements.
fn has_room_for_state(lists: Lists, elements: u64, (device, host): (u64, u64)) -> bool {
    let state = lists.parameter_bytes() - lists.scalar_bytes(List::Parameters);
    elements.saturating_sub(device / lists.parameter_bytes()).saturating_mul(state) <= host
}

impl LayoutEvaluation<'_> {
    /// Whether there is room for any choice.
    fn has_room(&self) -> bool {
        // The host never needs more where one more of them is on the device.
        let suffices = |count: usize| {
            self.question.choices.host_copies.iter().any(|&copy| self.host_lack(copy, count) == 0)
        };
        self.most_that_fit().is_some_and(suffices)
    }

    /// The most chunks that may have their state on the device, as far as that has room.
    pub(super) fn most_that_fit(&self) -> Option<usize> {
        match self.fixed_on_device() {
            Some(count) => self.device_lack(count).is_none().then_some(count),
            None => self.most_on_device(),
        }
    }

    /// How many chunks must have their state on the device; none where that is open.
    fn fixed_on_device(&self) -> Option<usize> {
        self.question.choices.on_device.map(|count| count.min(self.placed.most_choosable()))
    }

    /// Bytes of the host that lack.
    fn host_lack(&self, host_copy: HostParameters, on_device: usize) -> u64 {
        let bytes = self.host_bytes(host_copy, on_device).unwrap_or(u64::MAX);
        bytes.saturating_sub(self.question.host_memory.0)
    }

    /// The fewest chunks on the device with which the host suffices.
    pub(super) fn fewest_for_host(&self, host_copy: HostParameters) -> Option<usize> {
        let suffices = |count: usize| self.host_lack(host_copy, count) == 0;
        if let Some(count) = self.fixed_on_device() {
            return suffices(count).then_some(count);
        }
        // The host never needs more where one more of them is on the device.
        first_where(self.fewest_by_state()..=self.placed.most_choosable(), suffices)
    }

    /// The fewest chunks on the device without which the host has room for the state of the others, let alone all else.
    fn fewest_by_state(&self) -> usize {
        let all = self.placed.state_bytes().fold(0, u64::saturating_add);
        let host = self.question.host_memory.0.saturating_sub(self.ground.costs.pool.0);
        let left = self.placed.state_bytes().scan(all, |left, bytes| {
            let before = *left;
            *left = left.saturating_sub(bytes);
            Some(before)
        });
        left.take_while(|&left| left > host).count()
    }

    /// What lacks with so many chunks on the device; nothing where it fits.
    pub(super) fn lack_with(&self, host_copy: HostParameters, on_device: usize) -> Option<NoRoom> {
        let host = self.host_lack(host_copy, on_device);
        self.told(host_copy, on_device, (self.device_lack(on_device), host))
    }

    /// A choice that lacks so much of the device, in a step, and of the host; none that lacks nothing.
    pub(super) fn told(
        &self,
        host_copy: HostParameters,
        on_device: usize,
        (device, host): (Option<(usize, u64)>, u64),
    ) -> Option<NoRoom> {
        let device = device.map(|(step, bytes)| (step, Bytes(bytes)));
        let host = (host > 0).then_some(Bytes(host));
        let choice = ChunkChoice {
            order: self.ground.course.order,
            recompute: self.ground.course.recompute,
            embedding: self.ground.course.embedding,
            activations: place_of(&self.ground.actions),
            layout: self.placed.layout,
            chunk_elements: self.placed.places.chunk_elements(),
            host_copy,
            on_device,
        };
        let devices = self.question.ranks.saturating_mul(self.question.shards);
        (device.is_some() || host.is_some()).then(|| NoRoom {
            choice,
            devices,
            device,
            host,
            remedies: Vec::new(),
        })
    }

    /// What lacks where it lacks least: with as many chunks on the device as that has room for, as few as the host needs, or
    /// none.
    pub(super) fn lack(&self, host_copy: HostParameters) -> Option<NoRoom> {
        let counts = match self.fixed_on_device() {
            Some(count) => vec![count],
            None => {
                let most = self.most_on_device();
                most.into_iter().chain(self.fewest_for_host(host_copy)).chain([0]).collect()
            }
        };
        let mut least: Option<NoRoom> = None;
        for count in counts {
            let lack = self.lack_with(host_copy, count)?;
            if least.as_ref().is_none_or(|least| lack.missing() < least.missing()) {
                least = Some(lack);
            }
        }
        least
    }
}

/// The largest of these parameters whose model there is room for; none where there is room for none. Families grow with their
/// parameter, so about as many of them are looked at as the range has bits, and none is simulated. A parameter without a
/// question has no room.
///
/// # Errors
/// A question makes no sense, or what steps cost is not known.
pub fn largest<P: Passes>(
    parameters: std::ops::RangeInclusive<u64>,
    question: impl Fn(u64) -> Option<(ChunkQuestion, P)>,
) -> Result<Option<u64>, NoChunks> {
    let (mut low, mut high) = parameters.into_inner();
    let mut found = None;
    while low <= high {
        let middle = low + (high - low) / 2;
        let has_room =
            question(middle).map(|(question, passes)| fits(&question, &passes, &|| false)).transpose()?;
        if has_room.unwrap_or(false) {
            found = Some(middle);
            let Some(above) = middle.checked_add(1) else { break };
            low = above;
        } else {
            let Some(below) = middle.checked_sub(1) else { break };
            high = below;
        }
    }
    Ok(found)
}

/// The first of these numbers of which something is true that is true of all behind it; none if it is true of none. Looks in steps
/// that double, since it is near the first of them that it is expected.
pub(super) fn first_where(numbers: RangeInclusive<usize>, is: impl Fn(usize) -> bool) -> Option<usize> {
    let (start, end) = numbers.into_inner();
    let (mut not_before, mut found, mut step) = (start, start, 1);
    while !is(found) {
        if found >= end {
            return None;
        }
        not_before = found + 1;
        found = found.saturating_add(step).min(end);
        step *= 2;
    }
    // True of `found`, and of none before `not_before`.
    while not_before < found {
        let middle = not_before + (found - not_before) / 2;
        if is(middle) { found = middle } else { not_before = middle + 1 }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::first_where;

    #[test]
    fn the_first_is_found_wherever_it_is() {
        for start in 0..4_usize {
            for end in start..start + 20 {
                for first in 0..end + 3 {
                    let found = first_where(start..=end, |number| number >= first);
                    assert_eq!(
                        found,
                        (start..=end).find(|&number| number >= first),
                        "{start}..={end}, {first}"
                    );
                }
            }
        }
    }
}
