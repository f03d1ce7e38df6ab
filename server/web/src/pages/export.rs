//! A plan as each framework's files, on the devices and in the manifest that the address asks for.

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use loadmaster_proto::wire::v1;
use loadmaster_show::Show;
use serde::Deserialize;
use tonic::{Code, Status};

use super::plan::{get, tabs};
use super::{LOOK, Page, Section, SheetPage, html};
use crate::AppState;
use crate::http_error::HttpError;
use crate::link::Piece;

/// Frameworks and versions that can be chosen: the most of a page, of which there are some dozens.
const FRAMEWORKS: i32 = 1_000;

/// Placements that can be chosen, the newest.
const PLACEMENTS: i32 = 50;

/// The frameworks that a plan may be exported for.
pub(crate) async fn exporters(
    State(desk): State<AppState>,
    Path(id): Path<String>,
) -> Result<Response, HttpError> {
    get(&desk, &id).await?;
    let listed =
        desk.planner.call(v1::ListFrameworksRequest { page_size: FRAMEWORKS, ..Default::default() }).await?;
    let mut section = Section::text("frameworks", "For which framework?", &listed.table(LOOK));
    let mut words: Vec<String> = listed.frameworks.iter().map(|of| of.id.clone()).collect();
    words.dedup();
    for word in words {
        section = section.with_link(word.clone(), format!("/plans/{id}/export/{word}"));
    }
    let page = Page::still(format!("plans/{id}: export"));
    Ok(html(&SheetPage { page, tabs: tabs(&id), sections: vec![section] }))
}

/// What the form has of a choice: its name in addresses, the field of the request that it fills, and its label.
const SELECTS: [(&str, &str, &str); 4] = [
    ("version", "framework_version", "Version"),
    ("variant", "variant", "Variant"),
    ("placement", "placement", "Devices"),
    ("manifest", "manifest", "Started by"),
];

/// What the form has of a text: its name in addresses, which is that of the field in `manifest_options`, and its label.
const ENTRIES: [(&str, &str); 7] = [
    ("image", "Image"),
    ("namespace", "Namespace"),
    ("name", "Name"),
    ("queue", "Queue of Kueue"),
    ("required_topology", "Within one"),
    ("preferred_topology", "If possible within one"),
    ("stage_topology", "Each stage within one"),
];

/// What an address asks of an export; empty for what is usual.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ExportQuery {
    version: String,
    /// By its word.
    variant: String,
    /// `placements/{placement}`.
    placement: String,
    /// What starts the processes, by its word.
    manifest: String,
    image: String,
    namespace: String,
    name: String,
    queue: String,
    required_topology: String,
    preferred_topology: String,
    stage_topology: String,
}

#[derive(Template)]
#[template(path = "export.html")]
struct ExportPage {
    page: Page,
    tabs: Vec<Piece>,
    selects: Vec<Select>,
    /// What manifests of Kubernetes are told, if the framework has any.
    entries: Vec<Entry>,
    /// What is wrong with the question, if something is.
    fault: Option<String>,
    sections: Vec<Section>,
}

/// One of several values.
#[derive(Debug, PartialEq, Eq)]
struct Select {
    name: &'static str,
    label: &'static str,
    /// Values with their texts.
    values: Vec<(String, String)>,
    chosen: String,
}

/// A text.
struct Entry {
    name: &'static str,
    label: &'static str,
    value: String,
}

/// `GET /plans/{id}/export/{framework}`.
pub(crate) async fn show(
    State(desk): State<AppState>,
    Path((id, word)): Path<(String, String)>,
    Query(asked): Query<ExportQuery>,
) -> Result<Response, HttpError> {
    let plan = format!("plans/{id}");
    let placements =
        v1::ListPlacementsRequest { plan: plan.clone(), page_size: PLACEMENTS, ..Default::default() };
    let exporters = v1::ListFrameworksRequest { page_size: FRAMEWORKS, ..Default::default() };
    let (exporters, placements) =
        tokio::try_join!(desk.planner.call(exporters), desk.planner.call(placements))?;
    let of_framework: Vec<_> = exporters.frameworks.iter().filter(|of| of.id == word).collect();
    let exported = desk.planner.call(request(plan, &word, &asked)).await.map_err(Refusal::of);
    let (sections, fault) = match exported {
        Ok(export) => (files(export), None),
        // That a framework cannot express a plan is an answer, too.
        Err(Refusal::Inexpressible(why)) => {
            (vec![Section::text("refused", "It cannot be exported", &why)], None)
        }
        Err(Refusal::Wrong(fault)) if fault.is_readers() => (Vec::new(), Some(in_labels(fault.message()))),
        Err(Refusal::Wrong(fault)) => return Err(fault),
    };
    let status = if fault.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let mut response = html(&ExportPage {
        page: Page::still(format!("plans/{id}: {word}")),
        tabs: tabs(&id),
        selects: selects(&of_framework, &placements.placements, &asked),
        entries: entries(&of_framework, asked),
        fault,
        sections,
    });
    *response.status_mut() = status;
    Ok(response)
}

/// Why there is no export.
enum Refusal {
    /// The framework cannot say it; why, for people.
    Inexpressible(String),
    Wrong(HttpError),
}

impl Refusal {
    fn of(status: Status) -> Self {
        match status.code() {
            Code::FailedPrecondition => Self::Inexpressible(status.message().to_owned()),
            _ => Self::Wrong(status.into()),
        }
    }
}

fn request(name: String, framework: &str, asked: &ExportQuery) -> v1::ExportPlanRequest {
    let ExportQuery { version, variant, placement, manifest, image, namespace, name: job_name, .. } =
        asked.clone();
    let options = v1::ManifestOptions {
        image,
        namespace,
        name: job_name,
        queue: asked.queue.clone(),
        required_topology: asked.required_topology.clone(),
        preferred_topology: asked.preferred_topology.clone(),
        stage_topology: asked.stage_topology.clone(),
    };
    let is_told = options != v1::ManifestOptions::default();
    v1::ExportPlanRequest {
        name,
        framework: framework.to_owned(),
        framework_version: version,
        variant,
        manifest,
        placement,
        manifest_options: is_told.then_some(options),
    }
}

/// Bytes of a file that a page shows: a plan of a thousand ranks has hundreds of thousands.
const SHOWN: usize = 48 << 10;

/// The beginning of a file, and how much more there is of it.
fn beginning(mut contents: String) -> String {
    let shown = contents.floor_char_boundary(SHOWN);
    let more = contents.len() - shown;
    if more > 0 {
        contents.truncate(shown);
        contents.push_str(&format!("\n… and {more} bytes more, which `loadmaster plan export` writes\n"));
    }
    contents
}

/// What was exported: told, and every file.
fn files(export: v1::ExportPlanResponse) -> Vec<Section> {
    let told = v1::ExportPlanResponse { files: Vec::new(), ..export.clone() };
    let file = |file: v1::ExportedFile| Section {
        title: file.name,
        text: vec![Piece { text: beginning(file.contents), href: None }],
        ..Section::default()
    };
    let mut sections = vec![Section::text("export", "", &told.table(LOOK))];
    sections.extend(export.files.into_iter().map(file));
    sections
}

fn selects(exporters: &[&v1::Framework], placements: &[v1::Placement], asked: &ExportQuery) -> Vec<Select> {
    let plain = |words: Vec<String>| words.into_iter().map(|word| (word.clone(), word)).collect::<Vec<_>>();
    let mut versions: Vec<String> = exporters.iter().map(|of| of.first_version.clone()).collect();
    versions.dedup();
    let variants = words(exporters.iter().flat_map(|of| &of.variants));
    let manifests = words(exporters.iter().flat_map(|of| &of.manifests));
    let bound = |of: &v1::Placement| (of.name.clone(), format!("{} on {}", of.name, of.nodes.join(" ")));
    let all = [
        ("the plan\u{2019}s, or the newest", plain(versions), &asked.version),
        ("the usual one", plain(variants), &asked.variant),
        ("those planned with", placements.iter().map(bound).collect(), &asked.placement),
        ("the framework\u{2019}s own command", plain(manifests), &asked.manifest),
    ];
    let select = |name, label, (usual, values, chosen): (&str, Vec<(String, String)>, &String)| {
        let mut choices = vec![(String::new(), usual.to_owned())];
        choices.extend(values);
        // What an address asks for stays in its form, though it may be no choice.
        if !choices.iter().any(|(value, _)| value == chosen) {
            choices.push((chosen.clone(), chosen.clone()));
        }
        Select { name, label, values: choices, chosen: chosen.clone() }
    };
    let selects = SELECTS.into_iter().zip(all).map(|((name, _, label), of)| select(name, label, of));
    selects.filter(|of| of.values.len() > 1).collect()
}

/// Each word once.
fn words<'a>(ids: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut words = Vec::new();
    for id in ids {
        if !words.contains(id) {
            words.push(id.clone());
        }
    }
    words
}

fn entries(exporters: &[&v1::Framework], asked: ExportQuery) -> Vec<Entry> {
    if !exporters.iter().any(|of| of.manifests.iter().any(|manifest| manifest == "job")) {
        return Vec::new();
    }
    let values = [
        asked.image,
        asked.namespace,
        asked.name,
        asked.queue,
        asked.required_topology,
        asked.preferred_topology,
        asked.stage_topology,
    ];
    ENTRIES.into_iter().zip(values).map(|((name, label), value)| Entry { name, label, value }).collect()
}

/// What is wrong with a question, in the words of the form: a planner names the fields of its request.
fn in_labels(message: &str) -> String {
    // A name with an underscore cannot be taken for a word, wherever it stands.
    let named = |told: String, (field, label): (&str, &str)| {
        let told = told.replace(&format!("manifest_options.{field}: "), &format!("{label}: "));
        if field.contains('_') { told.replace(field, &format!("\u{201c}{label}\u{201d}")) } else { told }
    };
    let told = ENTRIES.into_iter().fold(message.to_owned(), named);
    let chosen = SELECTS.into_iter().find_map(|(_, field, label)| {
        let why = told.strip_prefix(field)?.strip_prefix(": ")?;
        Some(format!("{label}: {why}"))
    });
    chosen.unwrap_or(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page is short however long a file is, and says what it leaves out.
    #[test]
    fn long_files_are_begun() {
        assert_eq!(beginning("short".to_owned()), "short");
        let long = beginning("é".repeat(SHOWN));
        assert!(long.starts_with("éé") && long.len() < SHOWN + 100, "{}", long.len());
        assert!(
            long.ends_with(&format!("\n… and {SHOWN} bytes more, which `loadmaster plan export` writes\n"))
        );
    }

    /// A planner knows the fields of its request; whoever looks at the form knows its labels.
    #[test]
    fn mistakes_are_told_by_the_labels_of_the_form() {
        for (told, shown) in [
            ("manifest_options.image: is required. Name the image", "Image: is required. Name the image"),
            ("manifest_options.namespace: is \"A\"", "Namespace: is \"A\""),
            ("manifest_options.name: is \"A\"", "Name: is \"A\""),
            (
                "manifest_options.preferred_topology: is set together with required_topology, but Kueue accepts only one of the two",
                "If possible within one: is set together with \u{201c}Within one\u{201d}, but Kueue accepts only one of the two",
            ),
            ("framework_version: is 0.1", "Version: is 0.1"),
            ("placement: is placements/a", "Devices: is placements/a"),
            ("something else", "something else"),
        ] {
            assert_eq!(in_labels(told), shown);
        }
    }

    #[test]
    fn what_was_asked_stays_chosen() {
        let exporter = v1::Framework {
            first_version: "0.19".to_owned(),
            manifests: vec!["torchrun".to_owned(), "job".to_owned()],
            ..v1::Framework::default()
        };
        let asked = ExportQuery {
            placement: "placements/gone".to_owned(),
            manifest: "job".to_owned(),
            ..ExportQuery::default()
        };
        let selects = selects(&[&exporter, &exporter], &[], &asked);
        let told: Vec<_> = selects.iter().map(|of| (of.name, of.chosen.as_str(), of.values.len())).collect();
        assert_eq!(told, [("version", "", 2), ("placement", "placements/gone", 2), ("manifest", "job", 3)]);
        assert_eq!(entries(&[&exporter], asked).len(), 7);
        assert!(entries(&[&v1::Framework::default()], ExportQuery::default()).is_empty());
    }
}
