//! Tilings of a grid of devices by stages (AMP, 6.3).

use super::Random;

/// Dead ends after which a random tiling is given up.
const MOST_DEAD_ENDS: usize = 4_096;

/// Most tiles of a tiling.
const MOST_TILES: usize = 1_024;

/// A grid of devices: a column holds neighbours of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl Grid {
    /// The device in a cell: columns follow each other.
    fn device(self, row: usize, column: usize) -> u32 {
        (column * self.rows + row) as u32
    }

    /// A random tiling by rectangles of height × width cells, upright or lying: the devices of each, ascending,
    /// in the order of their first cells, row by row. None where none was found, or they would be too many.
    pub(super) fn tiling(self, height: usize, width: usize, random: &mut Random) -> Option<Vec<Vec<u32>>> {
        let cells = self.rows * self.columns;
        let tile = height * width;
        if tile == 0 || !cells.is_multiple_of(tile) || cells / tile > MOST_TILES {
            return None;
        }
        let mut filling = Filling {
            grid: self,
            shapes: [(height, width), (width, height)],
            taken: vec![false; cells],
            tiles: Vec::new(),
            dead_ends: 0,
        };
        filling.fill(0, random).then(|| {
            filling.tiles.sort_by_key(|&(first, _)| first);
            filling.tiles.into_iter().map(|(_, devices)| devices).collect()
        })
    }
}

struct Filling {
    grid: Grid,
    shapes: [(usize, usize); 2],
    /// By row, then column.
    taken: Vec<bool>,
    /// First cell and devices of each tile.
    tiles: Vec<(usize, Vec<u32>)>,
    dead_ends: usize,
}

impl Filling {
    /// Fills the grid from a cell on; whether that was possible.
    fn fill(&mut self, from: usize, random: &mut Random) -> bool {
        let Some(cell) = (from..self.taken.len()).find(|&cell| !self.taken[cell]) else { return true };
        let turned = random.below(2);
        for which in [turned, 1 - turned] {
            let (height, width) = self.shapes[which];
            if which == 1 && height == width || !self.is_free(cell, height, width) {
                continue;
            }
            self.mark(cell, height, width, true);
            if self.fill(cell + 1, random) {
                return true;
            }
            self.mark(cell, height, width, false);
            if self.dead_ends > MOST_DEAD_ENDS {
                return false;
            }
        }
        self.dead_ends += 1;
        false
    }

    fn cells(
        &self,
        cell: usize,
        height: usize,
        width: usize,
    ) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (row, column) = (cell / self.grid.columns, cell % self.grid.columns);
        (column..column + width).flat_map(move |column| (row..row + height).map(move |row| (row, column)))
    }

    fn is_free(&self, cell: usize, height: usize, width: usize) -> bool {
        let Grid { rows, columns } = self.grid;
        cell / columns + height <= rows
            && cell % columns + width <= columns
            && self.cells(cell, height, width).all(|(row, column)| !self.taken[row * columns + column])
    }

    fn mark(&mut self, cell: usize, height: usize, width: usize, taken: bool) {
        let columns = self.grid.columns;
        let mut devices = Vec::new();
        for (row, column) in self.cells(cell, height, width) {
            self.taken[row * columns + column] = taken;
            devices.push(self.grid.device(row, column));
        }
        if taken {
            self.tiles.push((cell, devices));
        } else {
            self.tiles.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A tiling covers every device once, with tiles of the right size.
        #[test]
        fn tilings_cover_the_grid(
            rows in 1_usize..6, columns in 1_usize..6, height in 1_usize..4, width in 1_usize..4, seed in any::<u64>(),
        ) {
            let grid = Grid { rows, columns };
            if let Some(tiles) = grid.tiling(height, width, &mut Random::new(seed)) {
                prop_assert!(tiles.iter().all(|tile| tile.len() == height * width && tile.is_sorted()));
                let mut devices: Vec<u32> = tiles.into_iter().flatten().collect();
                devices.sort_unstable();
                prop_assert_eq!(devices, (0..(rows * columns) as u32).collect::<Vec<u32>>());
            } else {
                // Upright alone would do.
                prop_assert!(!rows.is_multiple_of(height) || !columns.is_multiple_of(width));
            }
        }
    }
}
