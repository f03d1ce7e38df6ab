//! Lists: filtered, ordered and divided into pages by the planner.

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use loadmaster_proto::wire::call::UnaryRequest;
use loadmaster_proto::wire::longrunning::{ListOperationsRequest, ListOperationsResponse};
use loadmaster_proto::wire::v1;
use loadmaster_show::{Show, table};
use serde::Deserialize;

use super::{LOOK, Page, html};
use crate::AppState;
use crate::http_error::HttpError;
use crate::rows::Rows;

/// Rows of a page.
const ROWS: i32 = 50;

/// What an address asks of a list.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ListQuery {
    filter: String,
    order_by: String,
    page: String,
}

#[derive(Template)]
#[template(path = "list.html")]
struct ListPage {
    page: Page,
    asked: ListQuery,
    /// An example of a filter.
    example: &'static str,
    /// Whether the list has other orders than its own.
    has_order: bool,
    /// Rows can be chosen, to be compared.
    is_comparable: bool,
    rows: Rows,
    /// Why there are no rows, if there is something wrong with the question.
    fault: Option<String>,
    /// The token of the next page.
    next: String,
}

#[derive(Default)]
struct Kind {
    title: &'static str,
    topics: &'static str,
    example: &'static str,
    has_order: bool,
    is_comparable: bool,
}

/// The page of a list, with what is wrong with the question in it.
async fn list<R: UnaryRequest>(
    desk: &AppState,
    kind: Kind,
    asked: ListQuery,
    request: R,
    rows: impl FnOnce(R::Answer) -> (Rows, String),
) -> Response {
    let listed = desk.planner.call(request).await.map(rows);
    let (rows, next, fault) = match listed.map_err(HttpError::from) {
        Ok((rows, next)) => (rows, next, None),
        Err(fault) if fault.is_readers() => {
            (Rows::default(), String::new(), Some(fault.message().to_owned()))
        }
        Err(fault) => return fault.into_response(),
    };
    let Kind { title, topics, example, has_order, is_comparable } = kind;
    let status = if fault.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let page = Page::live(title, topics);
    let mut response = html(&ListPage { page, asked, example, has_order, is_comparable, rows, fault, next });
    *response.status_mut() = status;
    response
}

pub(crate) async fn plans(State(desk): State<AppState>, Query(asked): Query<ListQuery>) -> Response {
    let kind = Kind {
        title: "Plans",
        topics: "plans runs reports",
        example: "framework = megatron AND predicted_seconds < 1.5s",
        has_order: true,
        is_comparable: true,
    };
    let ListQuery { filter, order_by, page } = asked.clone();
    let request =
        v1::ListPlansRequest { page_size: ROWS, page_token: page, filter, order_by, ..Default::default() };
    list(&desk, kind, asked, request, |listed: v1::ListPlansResponse| {
        (Rows::of(&table::plan::list::grid(&listed.plans, LOOK), &listed.names()), listed.next_page_token)
    })
    .await
}

pub(crate) async fn placements(State(desk): State<AppState>, Query(asked): Query<ListQuery>) -> Response {
    let kind = Kind {
        title: "Placements",
        topics: "placements",
        example: "nodes:gpu017 AND iteration_seconds > 1.5s",
        has_order: true,
        ..Kind::default()
    };
    let ListQuery { filter, order_by, page } = asked.clone();
    let request = v1::ListPlacementsRequest {
        page_size: ROWS,
        page_token: page,
        filter,
        order_by,
        ..v1::ListPlacementsRequest::default()
    };
    list(&desk, kind, asked, request, |listed: v1::ListPlacementsResponse| {
        let plans: Vec<String> = listed.placements.iter().map(|placement| placement.plan.clone()).collect();
        let rows = Rows::of(&table::placement::grid(&listed.placements, LOOK), &listed.names());
        (rows.leading("plan", &plans), listed.next_page_token)
    })
    .await
}

pub(crate) async fn profiles(State(desk): State<AppState>, Query(asked): Query<ListQuery>) -> Response {
    let kind = Kind {
        title: "Profiles",
        topics: "profiles runs",
        example: "state = complete AND model:vgg",
        has_order: true,
        ..Kind::default()
    };
    let ListQuery { filter, order_by, page } = asked.clone();
    let request =
        v1::ListProfilesRequest { page_size: ROWS, page_token: page, filter, order_by, ..Default::default() };
    list(&desk, kind, asked, request, |listed: v1::ListProfilesResponse| {
        (Rows::of(&table::profile::grid(&listed.profiles, LOOK), &listed.names()), listed.next_page_token)
    })
    .await
}

pub(crate) async fn runs(State(desk): State<AppState>, Query(asked): Query<ListQuery>) -> Response {
    let kind = Kind {
        title: "Runs",
        topics: "runs",
        example: "state = failed AND attempts > 2",
        has_order: true,
        ..Kind::default()
    };
    let ListQuery { filter, order_by, page } = asked.clone();
    let request = v1::ListRunsRequest {
        page_size: ROWS,
        page_token: page,
        filter,
        order_by,
        ..v1::ListRunsRequest::default()
    };
    list(&desk, kind, asked, request, |listed: v1::ListRunsResponse| {
        (Rows::of(&table::run::grid(&listed.runs, LOOK), &listed.names()), listed.next_page_token)
    })
    .await
}

pub(crate) async fn operations(State(desk): State<AppState>, Query(asked): Query<ListQuery>) -> Response {
    let kind =
        Kind { title: "Operations", topics: "operations runs", example: "done = false", ..Kind::default() };
    let ListQuery { filter, page, .. } = asked.clone();
    let request = ListOperationsRequest {
        name: "operations".to_owned(),
        page_size: ROWS,
        page_token: page,
        filter,
        ..ListOperationsRequest::default()
    };
    list(&desk, kind, asked, request, |listed: ListOperationsResponse| {
        (Rows::of(&table::operation::grid(&listed.operations, LOOK), &listed.names()), listed.next_page_token)
    })
    .await
}

pub(crate) async fn workers(State(desk): State<AppState>, Query(asked): Query<ListQuery>) -> Response {
    let kind = Kind {
        title: "Workers",
        topics: "workers",
        example: "device_kind:H200 AND state = alive",
        has_order: true,
        ..Kind::default()
    };
    let ListQuery { filter, order_by, page } = asked.clone();
    let request =
        v1::ListWorkersRequest { page_size: ROWS, page_token: page, filter, order_by, ..Default::default() };
    list(&desk, kind, asked, request, |listed: v1::ListWorkersResponse| {
        (Rows::of(&table::worker::grid(&listed.workers, LOOK), &listed.names()), listed.next_page_token)
    })
    .await
}
