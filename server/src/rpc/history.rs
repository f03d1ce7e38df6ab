//! `HistoryService`.

use std::time::Duration;

use loadmaster_proto::error::{Invalid, required};
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::history_service_server::HistoryService;
use tonic::{Request, Response, Status};

use super::error::ApiError;
use super::page::Listing;
use crate::retention::Rule;
use crate::store::records::PageRequest;
use crate::store::{Collection, MOST_TAKEN, Pruned, Store};

/// Prunes history.
#[derive(Debug, Clone)]
pub(super) struct History {
    pub(super) store: Store,
}

impl History {
    async fn prune(&self, request: v1::PruneHistoryRequest) -> Result<v1::PruneHistoryResponse, ApiError> {
        let v1::PruneHistoryRequest { older_than, filter, collections, validate_only, page_size, page_token } =
            request;
        let age = required("older_than", older_than)?;
        let rule = Rule::new(whole(&age)?, &filter, &named(&collections)?)?;
        let asked = [age.to_string(), filter, collections.join(" ")];
        let listing = Listing::new("PruneHistory", &asked.each_ref().map(String::as_str));
        let page = listing.request(page_size, &page_token)?;
        if validate_only {
            let became = self.store.prunable(rule.age, &rule.of).await?;
            return Ok(answer(&became, String::new()));
        }
        let size = if page_size == 0 { MOST_TAKEN } else { page.size };
        let (became, next) = self.store.prune(rule.age, &rule.of, &PageRequest { size, ..page }).await?;
        Ok(answer(&became, next.map_or_else(String::new, |after| listing.token(&after))))
    }
}

/// An age in whole seconds or less.
fn whole(age: &prost_types::Duration) -> Result<Duration, Invalid> {
    match (u64::try_from(age.seconds), u32::try_from(age.nanos)) {
        // A thousand years: times before Postgres's are none.
        (Ok(seconds @ 0..=31_556_952_000), Ok(nanos @ 0..1_000_000_000)) => Ok(Duration::new(seconds, nanos)),
        _ => Err(Invalid::field("older_than", "is no age, must be 1 day to 1,000 years")),
    }
}

/// The collections that are named, each once.
fn named(words: &[String]) -> Result<Vec<Collection>, Invalid> {
    let known = |(position, word): (usize, &String)| {
        Collection::ALL.into_iter().find(|of| of.word() == word).ok_or_else(|| {
            let all = Collection::ALL.map(Collection::word).join(", ");
            Invalid::field(format!("collections[{position}]"), format!("is {word:?}, must be one of {all}"))
        })
    };
    words.iter().enumerate().map(known).collect()
}

fn answer(became: &[Pruned], next_page_token: String) -> v1::PruneHistoryResponse {
    let collection = |of: &Pruned| v1::PrunedCollection {
        collection: of.collection.word().to_owned(),
        taken_count: of.taken_count.cast_signed(),
        kept_count: of.kept_count.cast_signed(),
        taken: of.taken.clone(),
        kept: of
            .kept
            .iter()
            .map(|row| v1::KeptRow {
                name: row.name.clone(),
                by: row.by.clone(),
                by_count: row.count.cast_signed(),
            })
            .collect(),
    };
    v1::PruneHistoryResponse { collections: became.iter().map(collection).collect(), next_page_token }
}

#[tonic::async_trait]
impl HistoryService for History {
    async fn prune_history(
        &self,
        request: Request<v1::PruneHistoryRequest>,
    ) -> Result<Response<v1::PruneHistoryResponse>, Status> {
        Ok(Response::new(self.prune(request.into_inner()).await?))
    }
}
