//! Lists: filtered, ordered and divided into pages by the planner.

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use loadmaster_proto::wire::longrunning::ListOperationsRequest;
use loadmaster_proto::wire::v1;
use loadmaster_show::{Show, table};
use serde::Deserialize;
use tonic::Status;

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

struct Kind {
    title: &'static str,
    topics: &'static str,
    example: &'static str,
    has_order: bool,
    is_comparable: bool,
}

/// The page of a list, with what is wrong with the question in it.
fn page(kind: Kind, asked: ListQuery, listed: Result<(Rows, String), Status>) -> Response {
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
    let request = v1::ListPlansRequest {
        page_size: ROWS,
        page_token: asked.page.clone(),
        filter: asked.filter.clone(),
        order_by: asked.order_by.clone(),
    };
    let listed = desk.planner.call(request).await;
    let listed = listed
        .map(|of| (Rows::of(&table::plan::list::grid(&of.plans, LOOK), &of.names()), of.next_page_token));
    let kind = Kind {
        title: "Plans",
        topics: "plans runs observations",
        example: "launcher = megatron AND predicted_seconds < 1.5s",
        has_order: true,
        is_comparable: true,
    };
    page(kind, asked, listed)
}

pub(crate) async fn bindings(State(desk): State<AppState>, Query(asked): Query<ListQuery>) -> Response {
    let request = v1::ListBindingsRequest {
        page_size: ROWS,
        page_token: asked.page.clone(),
        filter: asked.filter.clone(),
        order_by: asked.order_by.clone(),
        ..v1::ListBindingsRequest::default()
    };
    let listed = desk.planner.call(request).await;
    let listed = listed.map(|of| {
        let plans: Vec<String> = of.bindings.iter().map(|binding| binding.plan.clone()).collect();
        let rows = Rows::of(&table::binding::grid(&of.bindings, LOOK), &of.names());
        (rows.leading("plan", &plans), of.next_page_token)
    });
    let kind = Kind {
        title: "Bindings",
        topics: "bindings",
        example: "nodes:gpu017 AND iteration_seconds > 1.5s",
        has_order: true,
        is_comparable: false,
    };
    page(kind, asked, listed)
}

pub(crate) async fn profiles(State(desk): State<AppState>, Query(asked): Query<ListQuery>) -> Response {
    let request = v1::ListProfilesRequest {
        page_size: ROWS,
        page_token: asked.page.clone(),
        filter: asked.filter.clone(),
        order_by: asked.order_by.clone(),
    };
    let listed = desk.planner.call(request).await;
    let listed = listed
        .map(|of| (Rows::of(&table::profile::grid(&of.profiles, LOOK), &of.names()), of.next_page_token));
    let kind = Kind {
        title: "Profiles",
        topics: "profiles runs",
        example: "state = complete AND model:vgg",
        has_order: true,
        is_comparable: false,
    };
    page(kind, asked, listed)
}

pub(crate) async fn runs(State(desk): State<AppState>, Query(asked): Query<ListQuery>) -> Response {
    let request = v1::ListRunsRequest {
        page_size: ROWS,
        page_token: asked.page.clone(),
        filter: asked.filter.clone(),
        order_by: asked.order_by.clone(),
        ..v1::ListRunsRequest::default()
    };
    let listed = desk.planner.call(request).await;
    let listed =
        listed.map(|of| (Rows::of(&table::run::grid(&of.runs, LOOK), &of.names()), of.next_page_token));
    let kind = Kind {
        title: "Runs",
        topics: "runs",
        example: "state = parked AND attempts > 2",
        has_order: true,
        is_comparable: false,
    };
    page(kind, asked, listed)
}

pub(crate) async fn operations(State(desk): State<AppState>, Query(asked): Query<ListQuery>) -> Response {
    let request = ListOperationsRequest {
        name: "operations".to_owned(),
        page_size: ROWS,
        page_token: asked.page.clone(),
        filter: asked.filter.clone(),
        ..ListOperationsRequest::default()
    };
    let listed = desk.planner.call(request).await;
    let listed = listed
        .map(|of| (Rows::of(&table::operation::grid(&of.operations, LOOK), &of.names()), of.next_page_token));
    let kind = Kind {
        title: "Operations",
        topics: "operations runs",
        example: "done = false",
        has_order: false,
        is_comparable: false,
    };
    page(kind, asked, listed)
}

pub(crate) async fn workers(State(desk): State<AppState>, Query(asked): Query<ListQuery>) -> Response {
    let request = v1::ListWorkersRequest {
        page_size: ROWS,
        page_token: asked.page.clone(),
        filter: asked.filter.clone(),
        order_by: asked.order_by.clone(),
    };
    let listed = desk.planner.call(request).await;
    let listed =
        listed.map(|of| (Rows::of(&table::worker::grid(&of.workers, LOOK), &of.names()), of.next_page_token));
    let kind = Kind {
        title: "Workers",
        topics: "workers",
        example: "device_kind:H200 AND state = alive",
        has_order: true,
        is_comparable: false,
    };
    page(kind, asked, listed)
}
