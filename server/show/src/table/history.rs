//! Results of purges.

use loadmaster_proto::wire::v1::{PurgeHistoryResponse, PurgedCollection, ReferencedResource};

use super::grid::Grid;
use super::grid::Side::{Left, Right};
use crate::Show;
use crate::text::terminal_abilities::Look;
use crate::text::{count, plain};

/// Rows of a collection that are printed with their references.
const MOST_ROWS: usize = 20;

impl Show for PurgeHistoryResponse {
    const TYPE: &'static str = "loadmaster.v1.PurgeHistoryResponse";

    fn names(&self) -> Vec<String> {
        self.collections.iter().flat_map(|of| of.purge_sample.iter().cloned()).collect()
    }

    fn table(&self, look: Look) -> String {
        let deleted = if self.dry_run { "to delete" } else { "deleted" };
        let mut grid = Grid::new(&[("collection", Left), (deleted, Right), ("referenced", Right)], look);
        for of in &self.collections {
            grid.row([plain(&of.collection), count(of.purge_count), count(of.referenced_count)]);
        }
        let kept: Vec<String> = self.collections.iter().filter_map(|of| references(of, look)).collect();
        format!("{}{}", grid.render(), kept.concat())
    }
}

/// Old resources that stay, each with its references.
fn references(of: &PurgedCollection, look: Look) -> Option<String> {
    if of.referenced_sample.is_empty() {
        return None;
    }
    let mut grid = Grid::new(&[("kept", Left), ("referenced by", Left)], look);
    for row in of.referenced_sample.iter().take(MOST_ROWS) {
        grid.row([plain(&row.name), referrers(row)]);
    }
    let shown = i64::try_from(of.referenced_sample.len().min(MOST_ROWS)).unwrap_or(i64::MAX);
    let more = match of.referenced_count.saturating_sub(shown) {
        ..=0 => String::new(),
        more => format!("and {} more {}\n", count(more), plain(&of.collection)),
    };
    Some(format!("\n{}{more}", grid.render()))
}

fn referrers(row: &ReferencedResource) -> String {
    let names = plain(&row.referrers.join(", "));
    let named = i64::try_from(row.referrers.len()).unwrap_or(i64::MAX);
    match row.reference_count.saturating_sub(named) {
        ..=0 => names,
        more => format!("{names} and {} more", count(more)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_resource_has_its_references() {
        let kept = ReferencedResource {
            name: "plans/b".to_owned(),
            referrers: vec!["plans/c/reports/1".to_owned(), "runs/2".to_owned()],
            reference_count: 5,
        };
        let of = PurgedCollection {
            collection: "plans".to_owned(),
            purge_count: 1_200,
            referenced_count: 2,
            purge_sample: vec!["plans/a".to_owned()],
            referenced_sample: vec![kept],
        };
        let answer = PurgeHistoryResponse { collections: vec![of], dry_run: false };
        assert_eq!(answer.names(), ["plans/a"]);
        assert_eq!(
            answer.table(Look::PLAIN),
            "collection  deleted  referenced\n\
             plans         1,200           2\n\n\
             kept     referenced by\n\
             plans/b  plans/c/reports/1, runs/2 and 3 more\n\
             and 1 more plans\n"
        );
        let dry_run = PurgeHistoryResponse { dry_run: true, ..answer };
        assert!(dry_run.table(Look::PLAIN).starts_with("collection  to delete  referenced\n"));
    }
}
