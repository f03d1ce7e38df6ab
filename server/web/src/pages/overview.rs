//! The first page: who works, what runs, what waits and for what, what went wrong lately, and what is new.

use axum::extract::State;
use axum::response::Response;
use loadmaster_proto::wire::longrunning::{GetOperationRequest, ListOperationsRequest, Operation};
use loadmaster_proto::wire::v1;
use loadmaster_show::table::operation::metadata_of;
use loadmaster_show::text::plural;
use loadmaster_show::{Show, table};
use tonic::Status;

use super::{LOOK, Page, Section, SheetPage, html};
use crate::AppState;
use crate::http_error::HttpError;
use crate::rows::Rows;

/// Rows of each part.
const ROWS: i32 = 10;
/// Operations that are asked what they wait for.
const ASKED: usize = 10;
/// Workers that are counted.
const WORKERS: i32 = 1_000;

pub(crate) async fn show(State(desk): State<AppState>) -> Result<Response, HttpError> {
    let (working, running, queued, failed, plans, profiles) = tokio::try_join!(
        working(&desk),
        running(&desk),
        runs(&desk, QUEUED),
        runs(&desk, FAILED),
        newest_plans(&desk),
        newest_profiles(&desk),
    )?;
    let (running, waiting) = running;
    let sections = vec![working, running, queued, waiting, failed, plans, profiles];
    let page = Page::live("Overview", "operations runs plans profiles workers reports");
    Ok(html(&SheetPage { page, tabs: Vec::new(), sections }))
}

async fn working(desk: &AppState) -> Result<Section, Status> {
    let request = v1::ListWorkersRequest {
        page_size: WORKERS,
        filter: "state = alive OR state = cordoned".to_owned(),
        ..v1::ListWorkersRequest::default()
    };
    let mut listed = desk.planner.call(request).await?;
    let devices: usize = listed.workers.iter().map(|worker| worker.devices.len()).sum();
    let more = if listed.next_page_token.is_empty() { "" } else { ", and more" };
    let title =
        format!("{} with {}{more}", plural(listed.workers.len(), "worker"), plural(devices, "device"));
    listed.workers.truncate(ROWS as usize);
    let rows = Rows::of(&table::worker::grid(&listed.workers, LOOK), &listed.names());
    let empty = "No worker is connected: start loadmaster-worker where the devices are.";
    Ok(Section::rows("workers", title, rows, empty).with_link("all workers", "/workers"))
}

/// What runs, and what of it nobody can do at the moment.
async fn running(desk: &AppState) -> Result<(Section, Section), Status> {
    let request = ListOperationsRequest {
        name: "operations".to_owned(),
        page_size: ROWS,
        filter: "done = false".to_owned(),
        ..ListOperationsRequest::default()
    };
    let listed = desk.planner.call(request).await?;
    let rows = Rows::of(&table::operation::grid(&listed.operations, LOOK), &listed.names());
    let running = Section::rows("operations", "Running operations", rows, "No operation is running.")
        .with_link("all operations", "/operations")
        .with_link("all runs", "/runs");
    let mut waiting = Vec::new();
    for operation in listed.operations.iter().filter(|of| is_idle(of)).take(ASKED) {
        let request = GetOperationRequest { name: operation.name.clone() };
        let operation = match desk.planner.call(request).await {
            Ok(operation) => operation,
            // It ended and was deleted meanwhile.
            Err(status) if status.code() == tonic::Code::NotFound => continue,
            Err(status) => return Err(status),
        };
        let reason = metadata_of(&operation).map(|of| of.message).filter(|reason| !reason.is_empty());
        waiting.extend(reason.map(|reason| format!("{}: {reason}", operation.name)));
    }
    let text = if waiting.is_empty() { "No operation is waiting.".to_owned() } else { waiting.join("\n") };
    Ok((running, Section::text("waiting", "Waiting operations", &text)))
}

fn is_idle(operation: &Operation) -> bool {
    let runs = metadata_of(operation).and_then(|of| of.run_counts);
    runs.is_some_and(|runs| runs.running_count == 0 && runs.queued_count > 0)
}

/// Runs of some states.
struct Runs {
    id: &'static str,
    title: &'static str,
    filter: &'static str,
    order_by: &'static str,
    none: &'static str,
    all: &'static str,
}

/// What is claimed next comes first.
const QUEUED: Runs = Runs {
    id: "queue",
    title: "The queue",
    filter: "state = queued",
    order_by: "create_time",
    none: "No run waits for a worker.",
    all: "/runs?filter=state+%3D+queued",
};

const FAILED: Runs = Runs {
    id: "failed",
    title: "Runs that failed or did not fit",
    filter: "state = failed OR state = out-of-memory",
    order_by: "end_time desc",
    none: "No run failed.",
    all: "/runs?filter=state+%3D+failed+OR+state+%3D+out-of-memory",
};

async fn runs(desk: &AppState, of: Runs) -> Result<Section, Status> {
    let request = v1::ListRunsRequest {
        page_size: ROWS,
        filter: of.filter.to_owned(),
        order_by: of.order_by.to_owned(),
        ..v1::ListRunsRequest::default()
    };
    let listed = desk.planner.call(request).await?;
    let rows = Rows::of(&table::run::grid(&listed.runs, LOOK), &listed.names());
    Ok(Section::rows(of.id, of.title, rows, of.none).with_link("all of these runs", of.all))
}

async fn newest_plans(desk: &AppState) -> Result<Section, Status> {
    let request = v1::ListPlansRequest { page_size: ROWS, ..v1::ListPlansRequest::default() };
    let listed = desk.planner.call(request).await?;
    let rows = Rows::of(&table::plan::list::grid(&listed.plans, LOOK), &listed.names());
    Ok(Section::rows("plans", "Newest plans", rows, "No plan is stored.").with_link("all plans", "/plans"))
}

async fn newest_profiles(desk: &AppState) -> Result<Section, Status> {
    let request = v1::ListProfilesRequest { page_size: ROWS, ..v1::ListProfilesRequest::default() };
    let listed = desk.planner.call(request).await?;
    let rows = Rows::of(&table::profile::grid(&listed.profiles, LOOK), &listed.names());
    Ok(Section::rows("profiles", "Newest profiles", rows, "No profile is stored.")
        .with_link("all profiles", "/profiles"))
}
