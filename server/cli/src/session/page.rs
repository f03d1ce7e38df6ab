//! Lists: follows pages until there are enough rows.

use loadmaster_proto::wire::call::UnaryRequest;
use loadmaster_proto::wire::longrunning::{ListOperationsRequest, ListOperationsResponse, Operation};
use loadmaster_proto::wire::v1;

use super::context::Context;
use crate::failure::Failure;

/// The planner's cap on one page.
const LARGEST_PAGE: usize = 1000;

/// How many rows a list prints.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Limit {
    /// Print at most this many rows; 0 prints all.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
}

impl Limit {
    /// Prints all rows.
    pub(crate) const NONE: Self = Self { limit: 0 };
}

/// A request for one page of a list.
pub(crate) trait PageRequest: UnaryRequest<Answer: Page> {
    /// The same for so many rows behind the page that ended with this token.
    fn page(&self, page_size: i32, page_token: String) -> Self;
}

/// An answer that holds one page of a list.
pub(crate) trait Page {
    type Row;
    fn rows(&mut self) -> &mut Vec<Self::Row>;
    /// The token of the page that follows; empty on the last one.
    fn next(&mut self) -> &mut String;
}

macro_rules! page {
    ($($request:ty => $answer:ty: $rows:ident of $row:ty;)*) => {$(
        impl PageRequest for $request {
            fn page(&self, page_size: i32, page_token: String) -> Self {
                Self { page_size, page_token, ..self.clone() }
            }
        }

        impl Page for $answer {
            type Row = $row;
            fn rows(&mut self) -> &mut Vec<$row> {
                &mut self.$rows
            }
            fn next(&mut self) -> &mut String {
                &mut self.next_page_token
            }
        }
    )*};
}

page! {
    v1::ListModelsRequest => v1::ListModelsResponse: models of v1::Model;
    v1::ListClustersRequest => v1::ListClustersResponse: clusters of v1::Cluster;
    v1::ListLinkMeasurementsRequest => v1::ListLinkMeasurementsResponse: link_measurements of v1::LinkMeasurement;
    v1::ListProfilesRequest => v1::ListProfilesResponse: profiles of v1::Profile;
    v1::ListMeasurementsRequest => v1::ListMeasurementsResponse: measurements of v1::Measurement;
    v1::ListRunsRequest => v1::ListRunsResponse: runs of v1::Run;
    v1::ListPlansRequest => v1::ListPlansResponse: plans of v1::Plan;
    v1::ListFrameworksRequest => v1::ListFrameworksResponse: frameworks of v1::Framework;
    v1::ListPredictionErrorsRequest => v1::ListPredictionErrorsResponse: prediction_errors of v1::PredictionErrors;
    v1::ListPredictionPairsRequest => v1::ListPredictionPairsResponse: prediction_pairs of v1::PredictionPair;
    v1::ListPlacementsRequest => v1::ListPlacementsResponse: placements of v1::Placement;
    v1::ListReportsRequest => v1::ListReportsResponse: reports of v1::Report;
    v1::ListWorkersRequest => v1::ListWorkersResponse: workers of v1::Worker;
    ListOperationsRequest => ListOperationsResponse: operations of Operation;
}

/// All rows up to the limit as one answer. Its token is empty unless rows were left out.
pub(crate) async fn all<R: PageRequest>(
    context: &Context,
    limit: Limit,
    request: &R,
) -> Result<R::Answer, Failure> {
    let (answer, is_cut) = fetch_all(context, limit, request).await?;
    if is_cut {
        context.remark(&format!("only the first {} rows are shown. Use --limit 0 for all.", limit.limit));
    }
    Ok(answer)
}

/// The same, and whether rows were left out.
pub(super) async fn fetch_all<R: PageRequest>(
    context: &Context,
    Limit { limit }: Limit,
    request: &R,
) -> Result<(R::Answer, bool), Failure> {
    let fetch = |size, token| context.client.call(request.page(size, token));
    let wanted = if limit == 0 { usize::MAX } else { limit };
    let size = |have: usize| i32::try_from((wanted - have).min(LARGEST_PAGE)).unwrap_or(i32::MAX);
    let mut answer = fetch(size(0), String::new()).await?;
    while answer.rows().len() < wanted && !answer.next().is_empty() {
        let token = answer.next().clone();
        let mut page = fetch(size(answer.rows().len()), token.clone()).await?;
        answer.rows().append(page.rows());
        *answer.next() = std::mem::take(page.next());
        if *answer.next() == token {
            return Err(anyhow::anyhow!("the planner returned the same page token twice").into());
        }
    }
    // A planner may send more than it was asked for.
    let cut = answer.rows().len() > wanted;
    answer.rows().truncate(wanted);
    let is_cut = cut || !answer.next().is_empty();
    Ok((answer, is_cut))
}
