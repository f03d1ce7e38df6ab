//! One plan: pictures, certificate and facts; as JSON. And several side by side.

use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use loadmaster_proto::wire::v1;
use loadmaster_show::picture::html as pictures;
use loadmaster_show::picture::iteration::simulation;
use loadmaster_show::picture::sheet::{Sheet, Which};
use loadmaster_show::show::Show;

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

/// The plan; whoever asks for one that there is not is told so.
pub(super) async fn get(desk: &Desk, id: &str) -> Result<v1::Plan, Fault> {
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

/// Several plans side by side: `/compare?plan=a&plan=b`.
pub(crate) async fn compare(
    State(desk): State<Desk>,
    Query(asked): Query<Vec<(String, String)>>,
) -> Result<Response, Fault> {
    let full = |id: &str| if id.contains('/') { id.to_owned() } else { format!("plans/{id}") };
    let names = asked.iter().filter(|(key, id)| key == "plan" && !id.is_empty()).map(|(_, id)| full(id));
    let request = v1::ComparePlansRequest { names: names.collect(), with_memory: true };
    let answer = answer(desk.planner.plans().compare_plans(request)).await?;
    let sheet = Sheet::of_comparison(&answer, Which::ALL, LOOK);
    let drawn = Section::drawing("pictures", "", pictures::fragment(&sheet));
    Ok(html(&SheetPage { page: Page::live("Comparison", "plans"), tabs: Vec::new(), sections: vec![drawn] }))
}
