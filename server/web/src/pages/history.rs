//! What became of a plan: where it was bound, tried and observed.

use axum::extract::{Path, State};
use axum::response::Response;
use loadmaster_proto::wire::v1;
use loadmaster_show::{Show, table};

use super::plan::tabs;
use super::{LOOK, Page, Section, SheetPage, html};
use crate::AppState;
use crate::http_error::HttpError;
use crate::rows::Rows;

/// Rows of each part.
const ROWS: i32 = 50;

pub(crate) async fn show(
    State(desk): State<AppState>,
    Path(id): Path<String>,
) -> Result<Response, HttpError> {
    let name = format!("plans/{id}");
    // Whoever asks for a plan that there is not is told so.
    desk.planner.call(v1::GetPlanRequest { name: name.clone(), ..Default::default() }).await?;
    let runs = v1::ListRunsRequest {
        page_size: ROWS,
        filter: format!("plan = \"{id}\""),
        ..v1::ListRunsRequest::default()
    };
    let reports = v1::ListReportsRequest { parent: name.clone(), page_size: ROWS, ..Default::default() };
    let placements = v1::ListPlacementsRequest { plan: name.clone(), page_size: ROWS, ..Default::default() };
    let planner = &desk.planner;
    let (runs, reports, placements) =
        tokio::try_join!(planner.call(runs), planner.call(reports), planner.call(placements))?;
    let sections = vec![
        Section::rows(
            "trials",
            "Trials",
            Rows::of(&table::run::grid(&runs.runs, LOOK), &runs.names()),
            "No trial has trained this plan. Use loadmaster plan trial.",
        ),
        Section::rows(
            "reports",
            "Reports",
            Rows::of(&table::report::grid(&reports.reports, LOOK), &[]),
            "No training of this plan was reported. Report measurements with loadmaster plan report, or with \
             loadmaster.torch.observe in a Python training script.",
        ),
        Section::rows(
            "placements",
            "Placements",
            Rows::of(&table::placement::grid(&placements.placements, LOOK), &placements.names()),
            "This plan has no placement, which maps its ranks to devices of nodes. Create one with loadmaster plan \
             place, or loadmaster slurm place.",
        ),
    ];
    let page = Page::live(name, "plans runs reports placements");
    Ok(html(&SheetPage { page, tabs: tabs(&id), sections }))
}
