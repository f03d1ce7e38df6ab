//! How right predictions were, over time, by kind of device, predictor and quantity; and what was learnt from it.

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::{MemoryPlace, PredictionPair, Quantity};
use loadmaster_show::picture::svg::errors;
use loadmaster_show::{Show, table};
use serde::Deserialize;
use tonic::Status;

use super::{LOOK, Page, Section, html};
use crate::http_error::HttpError;
use crate::rows::Rows;
use crate::{AppState, Planner};

/// Most pairs that are drawn, the newest: a page has at most 150 KB, and a point with what it says takes 200 bytes.
const DRAWN: i32 = 400;
/// Errors of a page of the API: the most that it has.
const PAGE: i32 = 1_000;

/// What an address asks.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PredictionsQuery {
    filter: String,
}

#[derive(Template)]
#[template(path = "errors.html")]
struct ErrorsPage {
    page: Page,
    filter: String,
    fault: Option<String>,
    sections: Vec<Section>,
}

pub(crate) async fn show(State(desk): State<AppState>, Query(asked): Query<PredictionsQuery>) -> Response {
    let answered = answers(&desk.planner, &asked.filter).await;
    let (sections, fault) = match answered.map_err(HttpError::from) {
        Ok((errors, pairs)) => (sections(&errors, &pairs, &asked.filter), None),
        Err(fault) if fault.is_readers() => (Vec::new(), Some(fault.message().to_owned())),
        Err(fault) => return fault.into_response(),
    };
    let status = if fault.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let page = Page::live("Prediction error", "runs reports plans");
    let mut response = html(&ErrorsPage { page, filter: asked.filter, fault, sections });
    *response.status_mut() = status;
    response
}

/// The errors, and the newest pairs; of bytes copied as predicted the table says that they are exact.
async fn answers(
    planner: &Planner,
    filter: &str,
) -> Result<(v1::ListPredictionErrorsResponse, v1::ListPredictionPairsResponse), Status> {
    let of_errors = v1::ListPredictionErrorsRequest {
        filter: filter.to_owned(),
        page_size: PAGE,
        ..v1::ListPredictionErrorsRequest::default()
    };
    let errors = planner.call(of_errors).await?;
    let inexact = "NOT (quantity = copied-bytes AND difference = 0)";
    let filter =
        if filter.trim().is_empty() { inexact.to_owned() } else { format!("({filter}) AND {inexact}") };
    let request = v1::ListPredictionPairsRequest { page_size: DRAWN, filter, ..Default::default() };
    Ok((errors, planner.call(request).await?))
}

fn sections(
    answer: &v1::ListPredictionErrorsResponse,
    drawn: &v1::ListPredictionPairsResponse,
    filter: &str,
) -> Vec<Section> {
    let rows = Rows::of(&table::prediction_errors::grid(&answer.prediction_errors, LOOK), &[]);
    let none = if filter.is_empty() {
        "No plan was both predicted and measured. Use loadmaster plan trial to train a plan, or loadmaster plan report to \
         store measurements of your own training."
    } else {
        "There is nothing that fits."
    };
    let mut sections = vec![Section::rows("errors", "By kind of device, predictor and quantity", rows, none)];
    if answer.prediction_errors.is_empty() {
        let untold = table::prediction_errors::left_out(answer.contended_trial_count);
        sections.extend((!untold.is_empty()).then(|| Section::text("learnt", "What was learnt", &untold)));
        return sections;
    }
    sections.push(Section::text("learnt", "What was learnt", &learnt(answer)));
    let mut subjects: BTreeMap<(&str, &str, i32, i32, i32), Vec<&PredictionPair>> = BTreeMap::new();
    if !drawn.next_page_token.is_empty() {
        let told = format!(
            "Only the newest {} pairs are drawn. Use a filter to draw others.\n",
            drawn.prediction_pairs.len()
        );
        sections.push(Section::text("drawn", "", &told));
    }
    for pair in &drawn.prediction_pairs {
        let (kind, predictor) = (pair.device_kind.as_str(), pair.predictor.as_str());
        let subject = (kind, predictor, pair.quantity, pair.accounting, pair.link);
        subjects.entry(subject).or_default().push(pair);
    }
    sections.extend(subjects.into_iter().enumerate().map(
        |(place, ((kind, predictor, quantity, accounting, link), pairs))| {
            let title = format!("{kind}: {predictor}, {}", named(quantity, accounting, link));
            let drawing = errors::inline(&pairs, &title);
            Section::drawing(format!("subject{place}"), title, drawing)
        },
    ));
    sections
}

/// The notes below the command line's table.
fn learnt(answer: &v1::ListPredictionErrorsResponse) -> String {
    let table = answer.table(LOOK);
    let notes = table.lines().skip_while(|line| !line.starts_with("error:"));
    notes.map(|line| format!("{line}\n")).collect()
}

/// As the table has it.
fn named(quantity: i32, accounting: i32, link: i32) -> String {
    let quantity = Quantity::try_from(quantity).unwrap_or_default();
    table::prediction_errors::named(quantity, accounting, MemoryPlace::try_from(link).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many trainings were measured, a page stays as small as pages are.
    #[test]
    fn a_page_of_many_pairs_is_small() {
        let pair = |number: usize| PredictionPair {
            source: format!("runs/01a217d4-b7c3-7198-8e39-{number:012}"),
            plan: format!("plans/{number:040}"),
            device_kind: ["cpu", "NVIDIA H100 80GB HBM3"][number % 2].to_owned(),
            predictor: "component".to_owned(),
            quantity: Quantity::IterationSeconds.into(),
            predicted_value: 1.0 + number as f64 / 7.0,
            measured_value: 1.1 + number as f64 / 7.0,
            measure_time: Some(prost_types::Timestamp { seconds: 1_764_000_000 + number as i64, nanos: 0 }),
            ..PredictionPair::default()
        };
        let errors = vec![v1::PredictionErrors { device_kind: "cpu".to_owned(), ..Default::default() }];
        let answer = v1::ListPredictionErrorsResponse { prediction_errors: errors, ..Default::default() };
        let drawn = v1::ListPredictionPairsResponse {
            prediction_pairs: (0..DRAWN as usize).map(pair).collect(),
            next_page_token: "more".to_owned(),
        };
        let (page, filter) = (Page::live("Prediction error", "runs"), String::new());
        let page = ErrorsPage { page, filter, fault: None, sections: sections(&answer, &drawn, "") }
            .render()
            .unwrap();
        assert_eq!(page.matches("<circle").count(), DRAWN as usize, "{page}");
        assert!(page.contains("Only the newest 400 pairs are drawn"), "{page}");
        assert!(!page.contains("measured in"), "they are drawn, not listed: {page}");
        assert!(page.len() <= 150_000, "{}", page.len());
    }
}
