//! Which stages play the same.

/// Equal layers that follow each other: for each layer the first and the last of those around it.
#[derive(Debug)]
pub(super) struct Runs(Vec<(usize, usize)>);

impl Runs {
    /// From the contents of all layers in order.
    pub(super) fn of(contents: &[String]) -> Self {
        let mut runs = Vec::with_capacity(contents.len());
        for run in contents.chunk_by(|one, other| one == other) {
            let first = runs.len();
            runs.extend(std::iter::repeat_n((first, first + run.len() - 1), run.len()));
        }
        Self(runs)
    }

    /// The first stage that plays the same as this one: within equal layers it does not matter where a stage
    /// begins, but at the model's ends. So as many stages are played as have different layers.
    pub(super) fn stand_in(&self, first: usize, last: usize) -> (usize, usize) {
        match self.0.get(first) {
            Some(&(begin, end)) if first > 0 && last <= end && last + 1 < self.0.len() => {
                let shift = first - begin.max(1);
                (first - shift, last - shift)
            }
            _ => (first, last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stages of equal layers share one; those with another layer or an end of the model stand for themselves.
    #[test]
    fn equal_layers_stand_in_for_each_other_but_at_the_ends() {
        let runs = Runs::of(&["a", "b", "b", "b", "c", "c", "c"].map(str::to_owned));
        assert_eq!([(1, 2), (2, 3)].map(|(first, last)| runs.stand_in(first, last)), [(1, 2); 2]);
        assert_eq!((runs.stand_in(3, 3), runs.stand_in(5, 5)), ((1, 1), (4, 4)));
        for itself in [(0, 0), (0, 2), (2, 4), (4, 6), (5, 6), (9, 9)] {
            assert_eq!(runs.stand_in(itself.0, itself.1), itself);
        }
        let alike = Runs::of(&["b", "b", "b", "b"].map(str::to_owned));
        assert_eq!(
            (alike.stand_in(2, 2), alike.stand_in(0, 1), alike.stand_in(3, 3)),
            ((1, 1), (0, 1), (3, 3))
        );
    }
}
