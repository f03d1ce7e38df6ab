//! The best choices of slots that are all alike: of two, of four and so on, each from two of half as many.

use super::slot::Level;
use super::slots::{SlotPlan, Within};

/// What some slots keep together, their seconds, and which choices of either half that is.
type Choice = (u64, f64, usize, usize);

/// Choices of as many slots that no other one beats, fewest bytes first.
struct Front {
    slots: usize,
    choices: Vec<Choice>,
    /// The fronts of both halves; none of a slot alone, whose first number is its choice.
    halves: Option<(usize, usize)>,
}

/// The best choices of so many slots with this weight that keep at most so many bytes and take fewer than `below` seconds.
pub(super) fn solved(
    (level, weight): (&Level, f64),
    count: usize,
    bytes: u64,
    below: f64,
) -> Option<SlotPlan> {
    let one =
        level.points.iter().map(|&(kept, seconds, choice)| (kept, seconds * weight, choice, 0)).collect();
    let mut fronts = vec![Front { slots: 1, choices: one, halves: None }];
    let both = |fronts: &mut Vec<Front>, one: usize, other: usize| {
        let slots = fronts[one].slots + fronts[other].slots;
        let rest = Within { slots: vec![(level, weight); count - slots], bytes };
        let rest = rest.mixture(0);
        let mut choices: Vec<Choice> = Vec::new();
        for (index, of) in fronts[one].choices.iter().enumerate() {
            for (number, with) in fronts[other].choices.iter().enumerate() {
                let (kept, seconds) = (of.0.saturating_add(with.0), of.1 + with.1);
                let Some(room) = bytes.checked_sub(kept) else { break };
                if seconds < below && seconds + rest.seconds_within(room) < below {
                    choices.push((kept, seconds, index, number));
                }
            }
        }
        choices.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut least = f64::INFINITY;
        choices.retain(|of| {
            let is_better = of.1 < least;
            least = least.min(of.1);
            is_better
        });
        fronts.push(Front { slots, choices, halves: Some((one, other)) });
        fronts.len() - 1
    };
    let (mut all, mut power, mut left) = (None, 0, count);
    while left > 0 {
        if left % 2 == 1 {
            all = Some(all.map_or(power, |all| both(&mut fronts, all, power)));
        }
        left /= 2;
        if left > 0 {
            power = both(&mut fronts, power, power);
        }
    }
    let all = all?;
    let last = fronts[all].choices.len().checked_sub(1)?;
    let (kept, seconds, ..) = fronts[all].choices[last];
    let mut choices = Vec::with_capacity(count);
    trace(&fronts, (all, last), &mut choices);
    (kept <= bytes && seconds < below).then_some(SlotPlan { choices, seconds })
}

/// The choice of each slot of a front's.
fn trace(fronts: &[Front], (front, number): (usize, usize), choices: &mut Vec<usize>) {
    let Some(&(_, _, one, other)) = fronts[front].choices.get(number) else { return };
    match fronts[front].halves {
        Some((left, right)) => {
            trace(fronts, (left, one), choices);
            trace(fronts, (right, other), choices);
        }
        None => choices.push(one),
    }
}
