//! The pages: an address each, what it asks the planner, and the template that shows it.

mod export;
mod history;
mod lists;
mod overview;
mod plan;
mod predictions;
mod records;

use askama::Template;
use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use loadmaster_show::text::terminal_abilities::Look;

use crate::link::{self, Piece};
use crate::rows::Rows;
use crate::{AppState, events};

/// How texts look in pages.
const LOOK: Look = Look::FILE;

/// What all pages have.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) title: String,
    /// What the page shows that may change, so that its script listens.
    pub(crate) topics: &'static str,
    pub(crate) version: &'static str,
}

impl Page {
    /// A page whose parts change with these topics.
    pub(crate) fn live(title: impl Into<String>, topics: &'static str) -> Self {
        Self { title: title.into(), topics, version: env!("CARGO_PKG_VERSION") }
    }

    /// A page that stays as it is.
    pub(crate) fn still(title: impl Into<String>) -> Self {
        Self::live(title, "")
    }
}

/// A part of a page, which its script may replace alone.
#[derive(Debug, Default)]
pub(crate) struct Section {
    /// Its place in the page; empty where it never changes.
    pub(crate) id: String,
    pub(crate) title: String,
    /// Facts or words, with names as links.
    pub(crate) text: Vec<Piece>,
    pub(crate) rows: Rows,
    /// What is said in place of rows where there are none.
    pub(crate) empty: &'static str,
    /// Pictures that this program drew: markup, in which everything from elsewhere is escaped.
    pub(crate) drawing: String,
    /// Where to go on.
    pub(crate) links: Vec<Piece>,
}

impl Section {
    pub(crate) fn text(id: &str, title: impl Into<String>, text: &str) -> Self {
        Self { id: id.to_owned(), title: title.into(), text: link::pieces(text), ..Self::default() }
    }

    pub(crate) fn rows(id: &str, title: impl Into<String>, rows: Rows, empty: &'static str) -> Self {
        Self { id: id.to_owned(), title: title.into(), rows, empty, ..Self::default() }
    }

    /// Pictures that this program drew.
    pub(crate) fn drawing(id: impl Into<String>, title: impl Into<String>, drawing: String) -> Self {
        Self { id: id.into(), title: title.into(), drawing, ..Self::default() }
    }

    fn with_link(mut self, text: impl Into<String>, href: impl Into<String>) -> Self {
        self.links.push(Piece { text: text.into(), href: Some(href.into()) });
        self
    }
}

/// A page of sections.
#[derive(Template)]
#[template(path = "sheet.html")]
struct SheetPage {
    page: Page,
    /// Other pages about the same.
    tabs: Vec<Piece>,
    sections: Vec<Section>,
}

/// A page as an answer.
pub(crate) fn html(template: &impl Template) -> Response {
    match template.render() {
        Ok(text) => {
            let kind = HeaderValue::from_static("text/html; charset=utf-8");
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => {
            tracing::error!(%error, "a page cannot be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// All addresses.
pub(crate) fn router(desk: AppState) -> Router {
    Router::new()
        .route("/", get(overview::show))
        .route("/plans", get(lists::plans))
        .route("/placements", get(lists::placements))
        .route("/profiles", get(lists::profiles))
        .route("/runs", get(lists::runs))
        .route("/operations", get(lists::operations))
        .route("/workers", get(lists::workers))
        .route("/compare", get(plan::compare))
        .route("/errors", get(predictions::show))
        .route("/plans/{id}", get(plan::show))
        .route("/plans/{id}/json", get(plan::json))
        .route("/plans/{id}/export", get(export::exporters))
        .route("/plans/{id}/export/{framework}", get(export::show))
        .route("/plans/{id}/history", get(history::show))
        .route("/profiles/{id}", get(records::profile))
        .route("/runs/{id}", get(records::run))
        .route("/operations/{id}", get(records::operation))
        .route("/workers/{id}", get(records::worker))
        .route("/models/{id}", get(records::model))
        .route("/clusters/{id}", get(records::cluster))
        .route("/placements/{id}", get(records::placement))
        .route(events::PATH, get(events::listen))
        .route("/style.css", get(super::style))
        .route("/live.js", get(super::script))
        .route("/icon.svg", get(super::icon))
        .fallback(nothing)
        .with_state(desk)
}

async fn nothing() -> crate::http_error::HttpError {
    crate::http_error::HttpError::new(StatusCode::NOT_FOUND, "there is no such page: see the links above")
}
