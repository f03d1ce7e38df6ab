//! The first number of which something is true.

use std::ops::RangeInclusive;

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
