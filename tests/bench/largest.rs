//! The largest model that something can be done with, found by asking about few of them.

use anyhow::Result;

/// The largest size, and why the next one is none.
pub(crate) struct Largest<T> {
    /// 0 where not even the smallest is possible.
    pub(crate) size: u32,
    /// What was found for it.
    pub(crate) answer: Option<T>,
    /// Why one more is not possible.
    pub(crate) beyond: String,
}

/// The sizes that are looked at, and where to begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) fewest: u32,
    pub(crate) most: u32,
    pub(crate) first: u32,
    /// The first step up.
    pub(crate) step: u32,
}

/// The largest size with an answer: steps up, each twice as long as the last one, then halves.
pub(crate) fn largest<T>(
    Sizes { fewest, most, first, mut step }: Sizes,
    mut ask: impl FnMut(u32) -> Result<Result<T, String>>,
) -> Result<Largest<T>> {
    let mut found = Largest { size: 0, answer: None, beyond: "no larger one was tried".to_owned() };
    let mut too_many = most + 1;
    let mut asked = first.clamp(fewest, most);
    loop {
        match ask(asked)? {
            Ok(answer) => (found.size, found.answer) = (asked, Some(answer)),
            Err(why) => (too_many, found.beyond) = (asked, why),
        }
        asked = match (found.size, too_many) {
            (0, too_many) if too_many == fewest => return Ok(found),
            (0, _) => (asked / 2).max(fewest),
            (fit, too_many) if too_many - fit == 1 => return Ok(found),
            (fit, too_many) if too_many > most => {
                let next = (fit + step).min(most);
                step *= 2;
                next
            }
            (fit, too_many) => fit.midpoint(too_many),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the limit is, and wherever the search begins, it is found.
    #[test]
    fn the_largest_size_is_found() {
        for limit in 0..=9 {
            for (first, step) in [(1, 1), (4, 2), (9, 1)] {
                let sizes = Sizes { fewest: 2, most: 8, first, step };
                let ask =
                    |size| Ok(if size <= limit { Ok(size) } else { Err(format!("{size} is too many")) });
                let found = largest(sizes, ask).unwrap();
                let size = if limit < 2 { 0 } else { limit.min(8) };
                assert_eq!((found.size, found.answer), (size, Some(size).filter(|&size| size > 0)));
                let next = if size == 0 { 2 } else { size + 1 };
                assert_eq!(found.beyond == format!("{next} is too many"), size < 8);
            }
        }
    }
}
