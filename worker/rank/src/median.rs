//! What is typical of a few numbers.

/// The middle one, or the mean of the two in the middle; nothing of nothing.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut ascending = values.to_vec();
    ascending.sort_by(f64::total_cmp);
    let (upper, lower) = (ascending.len() / 2, ascending.len().saturating_sub(1) / 2);
    match (ascending.get(lower), ascending.get(upper)) {
        (Some(lower), Some(upper)) => (lower + upper) / 2.0,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one_or_between_the_two_in_the_middle() {
        assert_eq!(median(&[5.0, 1.0, 3.0]), 3.0);
        assert_eq!(median(&[2.0, 1.0]), 1.5);
        assert_eq!(median(&[4.0]), 4.0);
        assert_eq!(median(&[]), 0.0);
    }
}
