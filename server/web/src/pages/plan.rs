//! One plan: pictures, certificate and facts; as JSON. And several side by side.

use std::ops::RangeInclusive;

use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use loadmaster_proto::wire::v1;
use loadmaster_show::Show;
use loadmaster_show::picture::sheet::{self, Sheet, Which};
use loadmaster_show::picture::{html as pictures, simulation};

use super::{LOOK, Page, Section, SheetPage, html};
use crate::AppState;
use crate::http_error::HttpError;
use crate::link::Piece;

/// Plans that a planner compares.
const COMPARED: RangeInclusive<usize> = 2..=8;

/// The pages of a plan.
pub(super) fn tabs(id: &str) -> Vec<Piece> {
    [("plan", ""), ("export", "/export"), ("history", "/history"), ("JSON", "/json")]
        .map(|(text, page)| Piece { text: text.to_owned(), href: Some(format!("/plans/{id}{page}")) })
        .to_vec()
}

/// The plan, or the error of an unknown name.
pub(super) async fn get(desk: &AppState, id: &str) -> Result<v1::Plan, HttpError> {
    let request = v1::GetPlanRequest { name: format!("plans/{id}"), ..Default::default() };
    Ok(desk.planner.call(request).await?)
}

pub(crate) async fn show(
    State(desk): State<AppState>,
    Path(id): Path<String>,
) -> Result<Response, HttpError> {
    let plan = get(&desk, &id).await?;
    let mut note = String::new();
    let timeline = if plan.iteration.is_none() {
        None
    } else {
        match desk.planner.call(simulation(&plan)).await {
            Ok(timeline) => Some(timeline),
            // The other pictures are worth more than none.
            Err(status) => {
                note = format!("the schedule cannot be drawn: {}\n", status.message());
                None
            }
        }
    };
    let sheet = Sheet::of_plan(&plan, timeline.as_ref(), Which::ALL, LOOK);
    let drawn = Section::drawing("pictures", "", pictures::fragment(&sheet));
    let told = Section::text("told", "In words", &format!("{}{note}", plan.table(LOOK)));
    let page = Page::live(sheet::title(&plan, LOOK), "plans");
    Ok(html(&SheetPage { page, tabs: tabs(&id), sections: vec![drawn, told] }))
}

pub(crate) async fn json(
    State(desk): State<AppState>,
    Path(id): Path<String>,
) -> Result<Response, HttpError> {
    let plan = get(&desk, &id).await?;
    let text = loadmaster_show::json::json(&plan)
        .map_err(|error| HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// Several plans side by side: `/compare?plan=a&plan=b`.
pub(crate) async fn compare(
    State(desk): State<AppState>,
    Query(asked): Query<Vec<(String, String)>>,
) -> Result<Response, HttpError> {
    let request = v1::ComparePlansRequest { names: ticked(&asked)?, include_memory: true };
    let answer = desk.planner.call(request).await?;
    let sheet = Sheet::of_comparison(&answer, Which::ALL, LOOK);
    let drawn = Section::drawing("pictures", "", pictures::fragment(&sheet));
    Ok(html(&SheetPage { page: Page::live("Comparison", "plans"), tabs: Vec::new(), sections: vec![drawn] }))
}

/// The names of the plans that an address names, as many as can be compared.
fn ticked(asked: &[(String, String)]) -> Result<Vec<String>, HttpError> {
    let full = |id: &str| if id.contains('/') { id.to_owned() } else { format!("plans/{id}") };
    let named = asked.iter().filter(|(key, id)| key == "plan" && !id.is_empty());
    let names: Vec<String> = named.map(|(_, id)| full(id)).collect();
    if COMPARED.contains(&names.len()) {
        return Ok(names);
    }
    let why = format!(
        "select {} to {} plans in the list of plans to compare them (selected: {})",
        COMPARED.start(),
        COMPARED.end(),
        names.len()
    );
    Err(HttpError::new(StatusCode::BAD_REQUEST, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Too few or too many selected plans are an error in the words of the page.
    #[test]
    fn a_comparison_is_of_two_to_eight_plans() {
        let asked = |count: usize| -> Vec<(String, String)> {
            (0..count).map(|index| ("plan".to_owned(), format!("a{index}"))).collect()
        };
        assert_eq!(ticked(&asked(2)).unwrap(), ["plans/a0", "plans/a1"]);
        assert_eq!(ticked(&[asked(2), vec![("plan".to_owned(), String::new())]].concat()).unwrap().len(), 2);
        assert_eq!(ticked(&asked(8)).unwrap().len(), 8);
        for count in [0, 1, 9] {
            let fault = ticked(&asked(count)).unwrap_err();
            assert!(fault.is_readers());
            let told =
                format!("select 2 to 8 plans in the list of plans to compare them (selected: {count})");
            assert!(fault.message().starts_with(&told), "{}", fault.message());
        }
    }
}
