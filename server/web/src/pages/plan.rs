//! One plan: pictures, certificate and facts; as each launcher's files; as JSON. And several side by side.

use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use loadmaster_proto::wire::v1;
use loadmaster_show::choice::Choice;
use loadmaster_show::picture::html as pictures;
use loadmaster_show::picture::iteration::simulation;
use loadmaster_show::picture::sheet::{Sheet, Which};
use loadmaster_show::show::Show;
use serde::Deserialize;
use tonic::Code;

use super::{LOOK, Page, Section, SheetPage, html};
use crate::Desk;
use crate::fault::Fault;
use crate::link::Piece;
use crate::planner::answer;

/// The pages of a plan.
pub(super) fn tabs(id: &str) -> Vec<Piece> {
    [("plan", ""), ("export", "/export"), ("history", "/history"), ("JSON", "/json")]
        .map(|(text, page)| Piece { text: text.to_owned(), href: Some(format!("/plans/{id}{page}")) })
        .to_vec()
}

async fn get(desk: &Desk, id: &str) -> Result<v1::Plan, Fault> {
    let request = v1::GetPlanRequest { name: format!("plans/{id}") };
    Ok(answer(desk.planner.plans().get_plan(request)).await?)
}

pub(crate) async fn show(State(desk): State<Desk>, Path(id): Path<String>) -> Result<Response, Fault> {
    let plan = get(&desk, &id).await?;
    let mut note = String::new();
    let timeline = if plan.iteration.is_none() {
        None
    } else {
        match answer(desk.planner.plans().simulate_plan(simulation(&plan))).await {
            Ok(timeline) => Some(timeline),
            // The other pictures are worth more than none.
            Err(status) => {
                note = format!("no schedule is drawn: {}\n", status.message());
                None
            }
        }
    };
    let sheet = Sheet::of_plan(&plan, timeline.as_ref(), Which::ALL, LOOK);
    let drawn = Section::drawing("pictures", "", pictures::fragment(&sheet));
    let told = Section::text("told", "In words", &format!("{}{note}", plan.table(LOOK)));
    let page = Page::live(plan.name.clone(), "plans");
    Ok(html(&SheetPage { page, tabs: tabs(&id), sections: vec![drawn, told] }))
}

pub(crate) async fn json(State(desk): State<Desk>, Path(id): Path<String>) -> Result<Response, Fault> {
    let plan = get(&desk, &id).await?;
    let text = loadmaster_show::json::json(&plan)
        .map_err(|error| Fault::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// The launchers that a plan may be exported for.
pub(crate) async fn exporters(State(desk): State<Desk>, Path(id): Path<String>) -> Result<Response, Fault> {
    get(&desk, &id).await?;
    let listed = answer(desk.planner.plans().list_exporters(v1::ListExportersRequest {})).await?;
    let mut section = Section::text("launchers", "For which launcher?", &listed.table(LOOK));
    let mut words: Vec<String> = listed.exporters.iter().map(|of| of.launcher().word()).collect();
    words.dedup();
    for word in words {
        section = section.with_link(word.clone(), format!("/plans/{id}/export/{word}"));
    }
    let page = Page::still(format!("plans/{id}: export"));
    Ok(html(&SheetPage { page, tabs: tabs(&id), sections: vec![section] }))
}

/// What an address asks of an export.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AskedExport {
    /// `bindings/{binding}`.
    binding: String,
    /// What starts the processes, by its word.
    envelope: String,
}

pub(crate) async fn export(
    State(desk): State<Desk>,
    Path((id, launcher)): Path<(String, String)>,
    Query(asked): Query<AskedExport>,
) -> Result<Response, Fault> {
    let request = v1::ExportPlanRequest {
        name: format!("plans/{id}"),
        launcher: named::<v1::Launcher>("launcher", &launcher)?.into(),
        binding: asked.binding,
        envelope: named::<v1::Envelope>("envelope", &asked.envelope)?.into(),
        ..v1::ExportPlanRequest::default()
    };
    let page = Page::still(format!("plans/{id}: {launcher}"));
    let export = match answer(desk.planner.plans().export_plan(request)).await {
        Ok(export) => export,
        // That a launcher cannot express a plan is an answer, too.
        Err(status) if status.code() == Code::FailedPrecondition => {
            let section = Section::text("refused", "It cannot be exported", status.message());
            return Ok(html(&SheetPage { page, tabs: tabs(&id), sections: vec![section] }));
        }
        Err(status) => return Err(status.into()),
    };
    let told = v1::ExportPlanResponse { files: Vec::new(), ..export.clone() };
    let mut sections = vec![Section::text("export", "", &told.table(LOOK))];
    sections.extend(export.files.iter().map(|file| Section {
        title: file.name.clone(),
        text: vec![Piece { text: file.contents.clone(), href: None }],
        ..Section::default()
    }));
    Ok(html(&SheetPage { page, tabs: tabs(&id), sections }))
}

/// The value of a word; the default of none.
fn named<T: Choice>(what: &str, word: &str) -> Result<T, Fault> {
    if word.is_empty() {
        return Ok(T::default());
    }
    let found = T::ALL.iter().find(|(value, _)| value.word() == word).map(|&(value, _)| value);
    found.ok_or_else(|| {
        let words: Vec<String> = T::ALL.iter().map(|(value, _)| value.word()).collect();
        Fault::new(StatusCode::BAD_REQUEST, format!("{what}: {word:?} is none of {}", words.join(", ")))
    })
}

/// Several plans side by side: `/compare?plan=a&plan=b`.
pub(crate) async fn compare(
    State(desk): State<Desk>,
    Query(asked): Query<Vec<(String, String)>>,
) -> Result<Response, Fault> {
    let full = |id: &str| if id.contains('/') { id.to_owned() } else { format!("plans/{id}") };
    let names = asked.iter().filter(|(key, id)| key == "plan" && !id.is_empty()).map(|(_, id)| full(id));
    let request = v1::ComparePlansRequest { names: names.collect(), with_memory: false };
    let answer = answer(desk.planner.plans().compare_plans(request)).await?;
    let sheet = Sheet::of_comparison(&answer, Which::ALL, LOOK);
    let drawn = Section::drawing("pictures", "", pictures::fragment(&sheet));
    Ok(html(&SheetPage { page: Page::live("Comparison", "plans"), tabs: Vec::new(), sections: vec![drawn] }))
}
