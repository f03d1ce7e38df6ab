//! The fastest way to train in chunks that there is room for.
//!
//! Choices that differ in intervals alone are a *group*, which has a bound of its seconds
//! ([`LayoutEvaluation::bound`]). Groups are looked at twice until none is left whose bound is below the best that
//! was simulated.
//!
//! First by one rule for intervals each, in the order of their bounds, then by the other rules, in
//! the order of what the first came to. What groups have in common in their bounds says little of what their
//! intervals come to, so the first look finds what is fast long before the bounds prove it. And once many were
//! simulated, only what came near the best is looked at closer, which the answer's bound says.
//!
//! Bounds of what computes nothing once more are low, however long its copies take in the end. So that it does not
//! take all that may be simulated, both looks are first at a few groups of each ground. Where all parameters have
//! room they are also tried as ZeRO-Offload has them, there from the first step to the last, and renewed before the
//! next iteration in more and less haste.
//!
//! Residency intervals of a rule that an iteration begins with begin in the one before ([`Early`]). Of each group
//! that is looked at closer the rule that comes to least is also tried without that, and with less and more haste.
//! And where chunks are of unlike sizes, with the ways of oversized chunks that fetch fewest bytes ([`IrregularChunks`]):
//! one simulation more.

use std::cmp::Ordering;

use loadmaster_proto::chunks::residency::intervals::ResidencyInterval;
use loadmaster_proto::chunks::residency::paging_intervals::Paging;
use loadmaster_proto::chunks::stage::{ChunkedStage, Chunks};
use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::chunked::ChunkPolicy;

use super::baseline::Baseline;
use super::best_first::{BestFirst, ChoiceGroup};
use super::irregular_chunks::{self, IrregularChunks};
use super::lanes::TakesMore;
use super::layout_evaluation::LayoutEvaluation;
use super::pass_costs::{PassCosts, StepSequences};
use super::plan::{Certificate, ChunkPlan};
use super::prefetch::{Early, Haste};
use super::question::{ChunkChoices, ChunkQuestion, Passes};
use super::refusal::NoChunks;
use super::remedies::no_room;
use super::room::{TriedLayout, layouts};

/// Bounds are sums in another order than simulated seconds.
pub(super) const ROUNDING: f64 = 1e-9;

/// Groups of each ground that are looked at before all others, and of those the ones that are looked at closer.
const TRIED: usize = 64;
const TRIED_CLOSER: usize = 16;

/// What is tried besides the usual haste, where that is not none: nothing comes before its iteration.
const OTHER_HASTE: [Option<Haste>; 5] = [None, haste(4, 0), haste(4, 3), haste(2, 1), haste(1, 1)];
/// The same of chunks whose parameters are there all the time.
const RENEWED: [Option<Haste>; 8] =
    [None, haste(4, 1), haste(4, 2), haste(4, 6), haste(2, 1), haste(2, 3), haste(1, 1), haste(1, 2)];

/// What comes to so many times the best is not looked at in other haste.
const MUCH_SLOWER: f64 = 1.2;

/// Once so many choices were simulated, groups whose first intervals came to so many times the best are not looked
/// at closer. Their bounds alone say nothing where passes, copies and updates take about as long, so that all of
/// them would be, for seconds.
pub(super) const MANY_SIMULATED: usize = 256;
const SLOWER: f64 = 1.02;

const fn haste(quarters: usize, completions: usize) -> Option<Haste> {
    Some(Haste { quarters, completions })
}

/// The plan whose simulated iteration is shortest, of all choices that there is room for.
///
/// # Errors
/// There is room for none, what steps cost is not known, or the question makes no sense.
pub fn choose(question: &ChunkQuestion, passes: &impl Passes) -> Result<ChunkPlan, NoChunks> {
    choose_until(question, passes, &|| false)
}

/// The same, with the best so far once this is over: what that leaves out counts in the answer's bound.
///
/// # Errors
/// As [`choose`].
pub fn choose_until(
    question: &ChunkQuestion,
    passes: &impl Passes,
    is_over: &dyn Fn() -> bool,
) -> Result<ChunkPlan, NoChunks> {
    question.check()?;
    if question.choices.policy == ChunkPolicy::Patrickstar {
        return Baseline::PATRICKSTAR.fastest(question, passes);
    }
    let mut search =
        ChoiceSearch { question, best: None, simulated: 0, besides: 0, left: f64::INFINITY, is_over };
    let (mut choices, mut any_intervals_seconds) = (0, f64::INFINITY);
    let mut pass_seconds = f64::INFINITY;
    let (places, mut courses) = (question.places(), StepSequences::default());
    for &place in &places {
        // Where activations are changes nothing of passes: where these alone take as long as the best, no one asks
        // what it costs.
        if search.is_done_with(pass_seconds) {
            any_intervals_seconds = any_intervals_seconds.min(pass_seconds);
            continue;
        }
        let grounds = match PassCosts::all(question, passes, &[place], &mut courses) {
            Ok(grounds) => grounds,
            // What is known of the other place is an answer.
            Err(_) if places.len() > 1 => continue,
            Err(why) => return Err(why),
        };
        for embedding in question.embeddings() {
            let of: Vec<&PassCosts> =
                grounds.iter().filter(|ground| ground.course.embedding == embedding).collect();
            // What a table is elsewhere for is copies: where passes alone take as long, nothing is gained.
            let least = of.iter().map(|ground| ground.pass_seconds()).fold(f64::INFINITY, f64::min);
            pass_seconds = pass_seconds.min(least);
            if search.is_done_with(least) {
                any_intervals_seconds = any_intervals_seconds.min(least);
                continue;
            }
            // Named sizes may not go with a table apart; where none goes with anything, `no_room` says so.
            let Ok(layouts) = layouts(question, &[embedding]) else { continue };
            let Ok(laid) = all_laid(question, &layouts, &of) else { continue };
            let groups = ChoiceGroup::all(&laid);
            choices += groups.len() * pagings(question).count().max(1);
            let least = search.look_at(BestFirst::of(groups));
            any_intervals_seconds =
                least.map_or(any_intervals_seconds, |least| any_intervals_seconds.min(least));
        }
    }
    let Some(mut best) = search.best else {
        return Err(match no_room(question, passes, is_over)? {
            Some(lack) => NoChunks::NoRoom(Box::new(lack)),
            None => NoChunks::Invalid(Invalid::field(
                "most_simulated",
                "0 simulations are too few. Use at least 1",
            )),
        });
    };
    best.certificate = Some(Certificate {
        choices: choices + search.besides,
        simulated: search.simulated,
        bound_seconds: search.left.min(best.lanes.iteration_seconds),
        any_intervals_seconds,
        fetches_fewest: irregular_chunks::fetches_fewest(question, &best),
    });
    Ok(best)
}

/// Every one of these grounds with every one of these layouts, whose embedding is where theirs is.
pub(super) fn all_laid<'a>(
    question: &'a ChunkQuestion,
    layouts: &'a [TriedLayout],
    grounds: &[&'a PassCosts],
) -> Result<Vec<LayoutEvaluation<'a>>, Invalid> {
    let mut all = Vec::new();
    for TriedLayout { lists, places, .. } in layouts {
        all.extend(LayoutEvaluation::all(question, grounds.iter().copied(), *lists, places)?);
    }
    Ok(all)
}

/// How intervals are planned, those that fetch and leave earliest first; none where all parameters are to be there
/// all the time.
pub(super) fn pagings(question: &ChunkQuestion) -> impl Iterator<Item = Paging> {
    let ChunkChoices { ahead, behind, .. } = &question.choices;
    let all = ahead
        .clone()
        .rev()
        .flat_map(|ahead| behind.clone().rev().map(move |behind| Paging { ahead, behind }));
    all.filter(|_| question.choices.is_paged())
}

struct ChoiceSearch<'a> {
    question: &'a ChunkQuestion,
    best: Option<ChunkPlan>,
    simulated: usize,
    /// Those of them that are no rule's, or are a rule's with other haste.
    besides: usize,
    /// The least bound of what no one looked at, though it might be faster.
    left: f64,
    is_over: &'a dyn Fn() -> bool,
}

impl ChoiceSearch<'_> {
    /// Looks at groups twice: at a few of each ground, and then at all. Returns the least of their bounds.
    fn look_at(&mut self, groups: BestFirst<'_>) -> Option<f64> {
        let first: Vec<ChoiceGroup<'_>> =
            groups.groups().iter().filter(|group| group.is_first).copied().collect();
        let (mut least, mut looks, mut later) = (None, Vec::new(), Vec::new());
        let mut tried: Vec<(&PassCosts, usize)> = Vec::new();
        for (group, bound) in groups {
            least.get_or_insert(bound);
            // Bounds of all others are no lower.
            if self.is_done_with(bound) {
                break;
            }
            let ground = group.laid.ground;
            let known = tried.iter().position(|(of, _)| std::ptr::eq(*of, ground));
            let known = known.unwrap_or_else(|| {
                tried.push((ground, 0));
                tried.len() - 1
            });
            if tried[known].1 >= TRIED {
                later.push((group, bound));
            } else if let Some(look) = self.look_into(group, bound) {
                tried[known].1 += 1;
                looks.push(look);
            }
        }
        // Where nothing else may be each group was looked at so.
        if self.question.choices.is_paged() {
            self.look_at_all_there(&first);
        }
        looks.sort_by(|one, other| one.least.total_cmp(&other.least));
        let rest = looks.split_off(TRIED_CLOSER.min(looks.len()));
        looks.into_iter().for_each(|look| self.look_closer(look));
        let mut looks = rest;
        for (group, bound) in later {
            if self.is_done_with(bound) {
                break;
            }
            looks.extend(self.look_into(group, bound));
        }
        looks.sort_by(|one, other| one.least.total_cmp(&other.least));
        looks.into_iter().for_each(|look| self.look_closer(look));
        least
    }

    /// Looks at what has room for all parameters, all the time: of each ground, layout and copy of the host the first group.
    fn look_at_all_there(&mut self, first: &[ChoiceGroup<'_>]) {
        for group in first {
            if self.is_over() {
                return;
            }
            if self.is_beaten(group.bound()) {
                continue;
            }
            let ChoiceGroup { laid, host_copy, on_device, .. } = *group;
            let Ok(chunks) = laid.chunks(host_copy, on_device) else { continue };
            let stage = laid.stage(host_copy, on_device);
            self.look_renewed((laid, &stage, &chunks));
        }
    }

    /// Looks at parameters that are there all the time, if there is room for them, and that are renewed in more and less haste.
    fn look_renewed(&mut self, (laid, stage, chunks): (&LayoutEvaluation<'_>, &ChunkedStage, &Chunks)) {
        let Some(intervals) = laid.all_there(stage, chunks) else { return };
        let early = Early::new(chunks, stage.update);
        let with = |haste: Haste| early.renewed(&intervals, haste);
        let all = RENEWED.iter().map(|of| of.map_or_else(|| intervals.clone(), with));
        self.look_besides(all, (laid, stage, chunks));
    }

    /// Looks at intervals that are no rule's, which differ in haste: at all of them where one of the first two is
    /// not much slower than the best of all.
    fn look_besides(
        &mut self,
        all: impl Iterator<Item = Vec<ResidencyInterval>>,
        (laid, stage, chunks): (&LayoutEvaluation<'_>, &ChunkedStage, &Chunks),
    ) {
        let (mut least, mut looked, mut before) = (f64::INFINITY, 0, None);
        for intervals in all {
            // With few chunks another haste changes nothing.
            if before.as_ref() == Some(&intervals) {
                continue;
            }
            if self.is_over() || looked >= 2 && self.is_slower(least, MUCH_SLOWER) {
                return;
            }
            (self.besides, looked) = (self.besides + 1, looked + 1);
            least =
                least.min(self.simulate(intervals.clone(), (laid, stage, chunks)).unwrap_or(f64::INFINITY));
            before = Some(intervals);
        }
    }

    /// Whether there is an answer, and no time for a better one.
    fn is_over(&self) -> bool {
        let most = self.question.choices.most_simulated;
        self.simulated >= most || self.best.is_some() && (self.is_over)()
    }

    /// Whether nothing with this bound is faster by more than what is asked for. Notes what may be faster by less.
    fn is_beaten(&mut self, bound: f64) -> bool {
        let Some(best) = self.best.as_ref().map(|best| best.lanes.iteration_seconds) else { return false };
        let is_beaten = best * (1.0 - self.question.choices.tolerance.max(ROUNDING)) <= bound;
        if is_beaten && best * (1.0 - ROUNDING) > bound {
            self.left = self.left.min(bound);
        }
        is_beaten
    }

    /// Whether a group with this bound is not to be looked at: it is beaten, or there is no time.
    fn is_done_with(&mut self, bound: f64) -> bool {
        if self.is_beaten(bound) {
            return true;
        }
        let is_over = self.is_over();
        if is_over {
            self.left = self.left.min(bound);
        }
        is_over
    }

    /// Looks at a group with this bound by the first rule for intervals: none where nothing is left to look at, or
    /// by no rule but that all parameters are there.
    fn look_into<'b>(&mut self, group: ChoiceGroup<'b>, bound: f64) -> Option<Look<'b>> {
        let ChoiceGroup { laid, host_copy, on_device, .. } = group;
        let bound = bound.max(laid.bound_of_room(on_device));
        if self.is_done_with(bound) {
            return None;
        }
        let chunks = laid.chunks(host_copy, on_device).ok()?;
        let stage = laid.stage(host_copy, on_device);
        let room = laid.room();
        let Some(first) = pagings(self.question).next() else {
            let before = self.besides;
            self.look_renewed((laid, &stage, &chunks));
            // The first of them is what is chosen.
            self.besides = self.besides.saturating_sub(1).max(before);
            return None;
        };
        let intervals = stage.paged(first, &chunks, &room).ok()?;
        let early = Early::new(&chunks, stage.update).over_end(&intervals, &room, Haste::USUAL);
        let comes_early = early != intervals;
        let seconds = self.simulate(early, (laid, &stage, &chunks))?;
        let (mut least, mut late) = (seconds, None);
        if comes_early && !self.is_over() && !self.is_slower(seconds, MUCH_SLOWER) {
            // Where the host is late, what comes before its iteration is in the way of what leaves.
            self.besides += 1;
            least = least.min(self.simulate(intervals.clone(), (laid, &stage, &chunks))?);
            late = Some(intervals);
        }
        Some(Look { group, bound, seconds, least, late })
    }

    /// Whether this is more than so many times the best.
    fn is_slower(&self, seconds: f64, times: f64) -> bool {
        self.best.as_ref().is_some_and(|best| seconds > best.lanes.iteration_seconds * times)
    }

    /// Looks at a group by the other rules.
    fn look_closer(&mut self, Look { group, bound, seconds, least, late }: Look<'_>) {
        let ChoiceGroup { laid, host_copy, on_device, is_first } = group;
        if self.is_done_with(bound) {
            return;
        }
        if self.simulated >= MANY_SIMULATED && self.is_slower(least, SLOWER) {
            self.left = self.left.min(bound);
            return;
        }
        let Ok(chunks) = laid.chunks(host_copy, on_device) else { return };
        let stage = laid.stage(host_copy, on_device);
        let (room, early) = (laid.room(), Early::new(&chunks, stage.update));
        let mut before = Vec::new();
        let mut least: Option<(f64, Paging, Vec<ResidencyInterval>)> = None;
        for paging in pagings(self.question) {
            let Ok(intervals) = stage.paged(paging, &chunks, &room) else { continue };
            // Where there is no room for more, fetching earlier changes nothing.
            if before.contains(&intervals) {
                continue;
            }
            // The first have been simulated.
            let mut found = Some(seconds);
            if !before.is_empty() {
                if self.is_done_with(bound) {
                    return;
                }
                let intervals = early.over_end(&intervals, &room, Haste::USUAL);
                found = self.simulate(intervals, (laid, &stage, &chunks));
            }
            if let Some(found) = found.filter(|found| least.as_ref().is_none_or(|least| *found < least.0)) {
                least = Some((found, paging, intervals.clone()));
            }
            before.push(intervals);
        }
        if let Some((found, paging, mut intervals)) = least.filter(|_| !self.is_done_with(bound)) {
            if let Some(fewer) = IrregularChunks::of(&stage, &chunks, &room).fewer(paging, &intervals) {
                self.besides += 1;
                let tried = early.over_end(&fewer, &room, Haste::USUAL);
                if self.simulate(tried, (laid, &stage, &chunks)).is_some_and(|seconds| seconds < found) {
                    intervals = fewer;
                }
                if self.is_done_with(bound) {
                    return;
                }
            }
            let with = |haste: Haste| early.over_end(&intervals, &room, haste);
            let tried = with(Haste::USUAL);
            let others = OTHER_HASTE.iter().map(|of| of.map_or_else(|| intervals.clone(), with));
            let others = others.filter(|of| *of != tried && late.as_ref() != Some(of));
            self.look_besides(others, (laid, &stage, &chunks));
        }
        // Of the first this was looked at before.
        if !is_first && !self.is_done_with(bound) {
            self.look_renewed((laid, &stage, &chunks));
        }
    }

    /// Returns what an iteration with these intervals takes, or less where that is more than the best takes.
    fn simulate(
        &mut self,
        intervals: Vec<ResidencyInterval>,
        (laid, stage, chunks): (&LayoutEvaluation<'_>, &ChunkedStage, &Chunks),
    ) -> Option<f64> {
        self.simulated += 1;
        let best = self.best.as_ref().map_or(f64::INFINITY, |best| best.lanes.iteration_seconds);
        let most = best * (1.0 + ROUNDING);
        let plan =
            ChunkPlan::within(most, stage, chunks, intervals, (laid.ground, self.question.rates)).ok()?;
        let plan = match plan {
            Ok(plan) => plan,
            Err(TakesMore { at_least }) => return Some(at_least),
        };
        let seconds = plan.lanes.iteration_seconds;
        if self.best.as_ref().is_none_or(|best| compare(&plan, best) == Ordering::Less) {
            self.best = Some(plan);
        }
        Some(seconds)
    }
}

/// A group that was looked at by the first rule for intervals.
#[derive(Debug)]
struct Look<'a> {
    group: ChoiceGroup<'a>,
    /// No intervals take fewer seconds.
    bound: f64,
    /// What the first intervals came to, at least.
    seconds: f64,
    /// The same of those that do not come before their iteration, if they were looked at and came to less.
    least: f64,
    /// Those.
    late: Option<Vec<ResidencyInterval>>,
}

/// Fewer seconds first, then fewer bytes of the host, then of the device.
fn compare(one: &ChunkPlan, other: &ChunkPlan) -> Ordering {
    let bytes = |plan: &ChunkPlan| (plan.host(), plan.peak());
    let seconds = one.lanes.iteration_seconds.total_cmp(&other.lanes.iteration_seconds);
    seconds.then_with(|| bytes(one).cmp(&bytes(other)))
}
