//! What became of old history.

use loadmaster_proto::wire::v1::{KeptRow, PruneHistoryResponse, PrunedCollection};

use super::grid::Grid;
use super::grid::Side::{Left, Right};
use crate::Show;
use crate::text::terminal_abilities::Look;
use crate::text::{count, plain};

/// Rows of a collection that are told with what keeps them.
const MOST_ROWS: usize = 20;

impl Show for PruneHistoryResponse {
    const TYPE: &'static str = "loadmaster.v1.PruneHistoryResponse";

    fn names(&self) -> Vec<String> {
        self.collections.iter().flat_map(|of| of.taken.iter().cloned()).collect()
    }

    fn table(&self, look: Look) -> String {
        let mut grid = Grid::new(&[("of", Left), ("deleted", Right), ("kept", Right)], look);
        for of in &self.collections {
            grid.row([plain(&of.collection), count(of.taken_count), count(of.kept_count)]);
        }
        let kept: Vec<String> = self.collections.iter().filter_map(|of| reasons(of, look)).collect();
        format!("{}{}", grid.render(), kept.concat())
    }
}

/// Old rows that stay, each with what refers to it.
fn reasons(of: &PrunedCollection, look: Look) -> Option<String> {
    if of.kept.is_empty() {
        return None;
    }
    let mut grid = Grid::new(&[("kept", Left), ("since it is needed by", Left)], look);
    for row in of.kept.iter().take(MOST_ROWS) {
        grid.row([plain(&row.name), needed_by(row)]);
    }
    let shown = i64::try_from(of.kept.len().min(MOST_ROWS)).unwrap_or(i64::MAX);
    let more = match of.kept_count.saturating_sub(shown) {
        ..=0 => String::new(),
        more => format!("and {} more {}\n", count(more), plain(&of.collection)),
    };
    Some(format!("\n{}{more}", grid.render()))
}

fn needed_by(row: &KeptRow) -> String {
    let names = plain(&row.by.join(", "));
    match row.by_count.saturating_sub(i64::try_from(row.by.len()).unwrap_or(i64::MAX)) {
        ..=0 => names,
        more => format!("{names} and {} more", count(more)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_says_why() {
        let kept = KeptRow {
            name: "plans/b".to_owned(),
            by: vec!["plans/c/observations/1".to_owned(), "runs/2".to_owned()],
            by_count: 5,
        };
        let of = PrunedCollection {
            collection: "plans".to_owned(),
            taken_count: 1_200,
            kept_count: 2,
            taken: vec!["plans/a".to_owned()],
            kept: vec![kept],
        };
        let answer = PruneHistoryResponse { collections: vec![of], ..PruneHistoryResponse::default() };
        assert_eq!(answer.names(), ["plans/a"]);
        assert_eq!(
            answer.table(Look::PLAIN),
            "of     deleted  kept\n\
             plans    1,200     2\n\n\
             kept     since it is needed by\n\
             plans/b  plans/c/observations/1, runs/2 and 3 more\n\
             and 1 more plans\n"
        );
    }
}
