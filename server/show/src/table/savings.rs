//! By what stages hold less: bytes, and their share of what a stage saves.

use loadmaster_proto::wire::v1::SavedBytes;

use super::grid::Grid;
use super::grid::Side::{Left, Right};
use crate::text::bytes;
use crate::text::terminal_abilities::Look;

/// Stages in order, and all of them together where several save anything; nothing where none is told to.
pub(super) fn of_stages<'a>(stages: impl Iterator<Item = Option<&'a SavedBytes>>, look: Look) -> String {
    let stages: Vec<(usize, &SavedBytes)> =
        stages.enumerate().filter_map(|(index, saved)| Some((index, saved?))).collect();
    if stages.is_empty() {
        return String::new();
    }
    let columns =
        [("stage", Left), ("saved by recompute", Right), ("in CPU memory", Right), ("on peers", Right)];
    let mut grid = Grid::new(&columns, look);
    let row = |name: String, of: [i64; 3]| {
        let all = of.iter().fold(0_i64, |sum, &own| sum.saturating_add(own));
        let cell = |own: i64| match own {
            1.. => format!("{}  {:.1} %", bytes(own), 100.0 * own as f64 / all as f64),
            _ => look.none().to_owned(),
        };
        [name, cell(of[0]), cell(of[1]), cell(of[2])]
    };
    let parts = |of: &SavedBytes| [of.recompute_bytes, of.host_bytes, of.peer_bytes];
    for (index, saved) in &stages {
        grid.row(row(index.to_string(), parts(saved)));
    }
    if stages.len() > 1 {
        let all = stages.iter().fold([0_i64; 3], |sum, (_, saved)| {
            let own = parts(saved);
            std::array::from_fn(|part| sum[part].saturating_add(own[part]))
        });
        grid.row(row("all".to_owned(), all));
    }
    grid.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every stage's parts add up to all that it saves, and stages to all of them.
    #[test]
    fn parts_are_of_what_a_stage_saves() {
        let of =
            |recompute_bytes, host_bytes, peer_bytes| SavedBytes { recompute_bytes, host_bytes, peer_bytes };
        let (first, last) = (of(1 << 20, 3 << 20, 0), of(0, 0, 4 << 20));
        let text = of_stages([Some(&first), None, Some(&last)].into_iter(), Look::PLAIN);
        let rows: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        assert_eq!(rows[1].join(" "), "0 1.00 MiB 25.0 % 3.00 MiB 75.0 % -");
        assert_eq!(rows[2].join(" "), "2 - - 4.00 MiB 100.0 %");
        assert_eq!(rows[3].join(" "), "all 1.00 MiB 12.5 % 3.00 MiB 37.5 % 4.00 MiB 50.0 %");
        assert_eq!(of_stages([None, None].into_iter(), Look::PLAIN), "");
    }
}
