//! Bars of bytes in cells of a line: parts, one behind the other on a scale, and marks.

/// A bar that is being drawn, from its left end; a cell holds what draws it.
#[derive(Debug, Clone)]
pub struct Bar<T> {
    cells: Vec<T>,
    /// Cells that have a part.
    filled: usize,
    scale_bytes: i64,
}

impl<T: Copy> Bar<T> {
    /// A bar of `width` cells without parts, all of which are `scale_bytes`.
    pub fn new(width: usize, scale_bytes: i64, blank: T) -> Self {
        Self { cells: vec![blank; width], filled: 0, scale_bytes: scale_bytes.max(1) }
    }

    /// How many cells so many bytes take.
    pub fn cells(&self, bytes: i64) -> usize {
        let exact = bytes.max(0) as f64 / self.scale_bytes as f64 * self.cells.len() as f64;
        (exact.round() as usize).min(self.cells.len())
    }

    /// Draws parts of so many bytes, one behind the other.
    pub fn parts(&mut self, parts: impl IntoIterator<Item = (T, i64)>) {
        let mut end_bytes = 0_i64;
        for (what, bytes) in parts {
            end_bytes = end_bytes.saturating_add(bytes.max(0));
            self.part_to(end_bytes, what);
        }
    }

    /// Draws a part from where the one before it ends. What is not nothing may be less than a cell, but the first of
    /// it is always seen.
    pub fn part_to(&mut self, end_bytes: i64, what: T) {
        let least = usize::from(self.filled == 0 && end_bytes > 0).min(self.cells.len());
        self.fill_to(self.cells(end_bytes).max(least), what);
    }

    /// Draws the cells behind the last part.
    pub fn fill_to(&mut self, end: usize, what: T) {
        let end = end.clamp(self.filled, self.cells.len());
        self.cells[self.filled..end].fill(what);
        self.filled = end;
    }

    /// Draws in the last of so many cells, in the first one at least.
    pub fn mark_in(&mut self, end: usize, mark: T) {
        if let Some(cell) = self.cells.get_mut(end.saturating_sub(1)) {
            *cell = mark;
        }
    }

    /// The cells with a mark between those that lie before `end` and the others.
    pub fn marked_at(mut self, end: usize, mark: T) -> Vec<T> {
        self.cells.insert(end.min(self.cells.len()), mark);
        self.cells
    }

    pub fn into_cells(self) -> Vec<T> {
        self.cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bar: Bar<char>) -> String {
        bar.into_cells().into_iter().collect()
    }

    #[test]
    fn parts_are_as_wide_as_their_shares() {
        let mut bar = Bar::new(8, 16, ' ');
        bar.parts([('a', 4), ('b', 0), ('c', 6)]);
        bar.fill_to(7, '.');
        assert_eq!(text(bar.clone()), "aaccc.. ");
        assert_eq!(bar.clone().marked_at(7, '|').into_iter().collect::<String>(), "aaccc..| ");
        bar.mark_in(7, '|');
        assert_eq!(text(bar), "aaccc.| ");
    }

    /// What is not nothing is seen, though less than a cell.
    #[test]
    fn the_first_of_anything_is_seen() {
        let mut bar = Bar::new(4, 1 << 40, '.');
        bar.parts([('a', 1), ('b', 1)]);
        assert_eq!(text(bar), "a...");
        let mut none = Bar::new(4, 1 << 40, '.');
        none.parts([('a', 0)]);
        assert_eq!(text(none), "....");
    }

    #[test]
    fn strange_numbers_stay_within_the_bar() {
        for scale in [i64::MIN, 0, 1, i64::MAX] {
            for width in [0, 3] {
                let mut bar = Bar::new(width, scale, '.');
                bar.parts([('a', i64::MAX), ('b', i64::MIN), ('c', i64::MAX)]);
                bar.fill_to(usize::MAX, '-');
                bar.mark_in(usize::MAX, '|');
                assert_eq!(text(bar).len(), width);
            }
        }
    }
}
