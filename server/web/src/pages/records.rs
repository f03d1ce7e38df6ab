//! One thing each: what the command line shows of it, and what belongs to it.

use axum::extract::{Path, State};
use axum::response::Response;
use loadmaster_proto::wire::longrunning::GetOperationRequest;
use loadmaster_proto::wire::v1;
use loadmaster_show::{Show, table};

use super::{LOOK, Page, Section, SheetPage, html};
use crate::AppState;
use crate::http_error::HttpError;
use crate::rows::Rows;

/// Measurements of a page, each a row of two wide tables: a page has at most 150 KB.
const MEASUREMENTS: i32 = 100;
/// Other rows of a page.
const ROWS: i32 = 50;

/// A page of what a message says.
fn of(title: String, topics: &'static str, message: &impl Show, more: Vec<Section>) -> Response {
    let mut sections = vec![Section::text("facts", "", &message.table(LOOK))];
    sections.extend(more);
    html(&SheetPage { page: Page::live(title, topics), tabs: Vec::new(), sections })
}

pub(crate) async fn profile(
    State(desk): State<AppState>,
    Path(id): Path<String>,
) -> Result<Response, HttpError> {
    let name = format!("profiles/{id}");
    let get = v1::GetProfileRequest { name: name.clone(), ..Default::default() };
    let profile = desk.planner.call(get).await?;
    let measured = v1::ListMeasurementsRequest {
        parent: name.clone(),
        page_size: MEASUREMENTS,
        ..v1::ListMeasurementsRequest::default()
    };
    let measured = desk.planner.call(measured).await?;
    let runs: Vec<String> = measured.measurements.iter().map(|of| of.run.clone()).collect();
    let plans = v1::ListPlansRequest {
        page_size: ROWS,
        filter: format!("profile = \"{id}\""),
        ..v1::ListPlansRequest::default()
    };
    let plans = desk.planner.call(plans).await?;
    let first = if measured.next_page_token.is_empty() { "" } else { " (the first ones)" };
    let rows = Rows::of(&table::measurement::grid(&measured.measurements, LOOK), &runs);
    let with = Rows::of(&table::environment::grid(&measured.measurements, LOOK), &runs);
    let none = without_measurements(&profile);
    let more = vec![
        Section::rows("measurements", format!("Measurements{first}"), rows, none),
        Section::rows("environment", "What they were made with", with, none),
        Section::rows(
            "plans",
            "Plans made of it",
            Rows::of(&table::plan::list::grid(&plans.plans, LOOK), &plans.names()),
            "None yet: loadmaster plan recommend makes one.",
        )
        .with_link("its runs", format!("/runs?filter=profile+%3D+{id}")),
    ];
    Ok(of(name, "profiles runs plans", &profile, more))
}

/// Why none of a profile's measurements are listed.
fn without_measurements(profile: &v1::Profile) -> &'static str {
    match profile.profiling_mode() {
        v1::ProfilingMode::Imported => "This profile was imported. Its measurements are not listed here.",
        _ => "Nothing was measured yet.",
    }
}

pub(crate) async fn run(State(desk): State<AppState>, Path(id): Path<String>) -> Result<Response, HttpError> {
    let name = format!("runs/{id}");
    let run = desk.planner.call(v1::GetRunRequest { name: name.clone(), ..Default::default() }).await?;
    Ok(of(name, "runs", &run, Vec::new()))
}

pub(crate) async fn operation(
    State(desk): State<AppState>,
    Path(id): Path<String>,
) -> Result<Response, HttpError> {
    let name = format!("operations/{id}");
    let get = GetOperationRequest { name: name.clone() };
    let operation = desk.planner.call(get).await?;
    let runs = v1::ListRunsRequest { page_size: ROWS, operation: name.clone(), ..Default::default() };
    let runs = desk.planner.call(runs).await?;
    let rows = Rows::of(&table::run::grid(&runs.runs, LOOK), &runs.names());
    let runs = Section::rows("runs", "Its newest runs", rows, "It has none.")
        .with_link("all of them", format!("/runs?filter=operation+%3D+{id}"));
    Ok(of(name, "operations runs", &operation, vec![runs]))
}

pub(crate) async fn worker(
    State(desk): State<AppState>,
    Path(id): Path<String>,
) -> Result<Response, HttpError> {
    let name = format!("workers/{id}");
    let get = v1::GetWorkerRequest { name: name.clone(), ..Default::default() };
    let worker = desk.planner.call(get).await?;
    let runs = v1::ListRunsRequest {
        page_size: ROWS,
        filter: format!("worker = \"{id}\""),
        ..v1::ListRunsRequest::default()
    };
    let runs = desk.planner.call(runs).await?;
    let rows = Rows::of(&table::run::grid(&runs.runs, LOOK), &runs.names());
    let runs = Section::rows("runs", "Its newest runs", rows, "It had none.");
    Ok(of(name, "workers runs", &worker, vec![runs]))
}

pub(crate) async fn model(
    State(desk): State<AppState>,
    Path(id): Path<String>,
) -> Result<Response, HttpError> {
    let name = format!("models/{id}");
    let model = desk.planner.call(v1::GetModelRequest { name: name.clone(), ..Default::default() }).await?;
    Ok(of(name, "", &model, Vec::new()))
}

pub(crate) async fn cluster(
    State(desk): State<AppState>,
    Path(id): Path<String>,
) -> Result<Response, HttpError> {
    let name = format!("clusters/{id}");
    let get = v1::GetClusterRequest { name: name.clone(), ..Default::default() };
    let cluster = desk.planner.call(get).await?;
    Ok(of(name, "", &cluster, Vec::new()))
}

pub(crate) async fn placement(
    State(desk): State<AppState>,
    Path(id): Path<String>,
) -> Result<Response, HttpError> {
    let name = format!("placements/{id}");
    let get = v1::GetPlacementRequest { name: name.clone(), ..Default::default() };
    let placement = desk.planner.call(get).await?;
    Ok(of(name, "", &placement, Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was measured elsewhere was measured, though no run here did it.
    #[test]
    fn an_imported_profile_was_measured_elsewhere() {
        let of = |profiling_mode: v1::ProfilingMode| {
            without_measurements(&v1::Profile {
                profiling_mode: profiling_mode.into(),
                ..v1::Profile::default()
            })
        };
        assert!(of(v1::ProfilingMode::Imported).contains("imported"));
        assert_eq!(of(v1::ProfilingMode::PerLayer), "Nothing was measured yet.");
    }
}
