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

use super::{LOOK, Page, Section, html};
use crate::AppState;
use crate::http_error::HttpError;
use crate::rows::Rows;

/// Most pairs that are drawn, the newest: a page has at most 150 KB, and a point with what it says takes 200 bytes.
const DRAWN: usize = 400;

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
    let request = v1::ListPredictionErrorsRequest {
        filter: asked.filter.clone(),
        include_pairs: true,
        ..v1::ListPredictionErrorsRequest::default()
    };
    let answered = desk.planner.call(request).await;
    let (sections, fault) = match answered.map_err(HttpError::from) {
        Ok(answer) => (sections(&answer, &asked.filter), None),
        Err(fault) if fault.is_readers() => (Vec::new(), Some(fault.message().to_owned())),
        Err(fault) => return fault.into_response(),
    };
    let status = if fault.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let page = Page::live("Prediction error", "runs reports plans");
    let mut response = html(&ErrorsPage { page, filter: asked.filter, fault, sections });
    *response.status_mut() = status;
    response
}

fn sections(answer: &v1::ListPredictionErrorsResponse, filter: &str) -> Vec<Section> {
    let rows = Rows::of(&table::prediction_errors::grid(&answer.prediction_errors, LOOK), &[]);
    let none = if filter.is_empty() {
        "Nothing was predicted and measured: loadmaster plan trial trains plans, loadmaster plan report takes what your own training \
         needed."
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
    // Of bytes copied the table says that they are exact.
    let is_exact = |of: &PredictionPair| {
        of.quantity() == Quantity::CopiedBytes && of.predicted_value == of.measured_value
    };
    let pairs: Vec<&PredictionPair> = answer.pairs.iter().filter(|pair| !is_exact(pair)).collect();
    if pairs.len() > DRAWN {
        let told = format!("The newest {DRAWN} of {} pairs are drawn: a filter draws others.\n", pairs.len());
        sections.push(Section::text("drawn", "", &told));
    }
    for pair in pairs.into_iter().take(DRAWN) {
        let (kind, predictor) = (pair.device_kind.as_str(), pair.predictor.as_str());
        let subject = (kind, predictor, pair.quantity, pair.accounting, pair.link);
        subjects.entry(subject).or_default().push(pair);
    }
    sections.extend(subjects.into_iter().enumerate().map(
        |(place, ((kind, predictor, quantity, ledger, link), pairs))| {
            let title = format!("{kind}: {predictor}, {}", named(quantity, ledger, link));
            let drawing = errors::inline(&pairs, &title);
            Section::drawing(format!("subject{place}"), title, drawing)
        },
    ));
    sections
}

/// The notes below the command line's table; the pairs are drawn.
fn learnt(answer: &v1::ListPredictionErrorsResponse) -> String {
    let without_pairs = v1::ListPredictionErrorsResponse { pairs: Vec::new(), ..answer.clone() };
    let table = without_pairs.table(LOOK);
    let notes = table.lines().skip_while(|line| !line.starts_with("error:"));
    notes.map(|line| format!("{line}\n")).collect()
}

/// As the table has it.
fn named(quantity: i32, ledger: i32, link: i32) -> String {
    let quantity = Quantity::try_from(quantity).unwrap_or_default();
    table::prediction_errors::named(quantity, ledger, MemoryPlace::try_from(link).unwrap_or_default())
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
        let answer = v1::ListPredictionErrorsResponse {
            prediction_errors: errors,
            pairs: (0..2_000).map(pair).collect(),
            contended_trial_count: 0,
        };
        let (page, filter) = (Page::live("Prediction error", "runs"), String::new());
        let page =
            ErrorsPage { page, filter, fault: None, sections: sections(&answer, "") }.render().unwrap();
        assert_eq!(page.matches("<circle").count(), DRAWN, "{page}");
        assert!(page.contains("The newest 400 of 2000 pairs are drawn"), "{page}");
        assert!(!page.contains("measured in"), "they are drawn, not listed: {page}");
        assert!(page.len() <= 150_000, "{}", page.len());
    }
}
