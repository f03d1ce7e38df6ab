//! What the protocol says of fields is what the tables have.

use std::collections::BTreeSet;
use std::path::Path;

use loadmaster_filter::Field;

use super::{
    CLUSTERS, EXPORTERS, LINK_MEASUREMENTS, MEASUREMENTS, MODELS, OPERATIONS, PAIRS, PLACEMENTS, PLANS,
    PROFILES, REPORTS, RUNS, WORKERS,
};

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// Every field is named, and what is named alone between commas, or has an underscore, is a field.
fn check(list: &str, fields: &[Field], said: &str) {
    let fields: BTreeSet<&str> = fields.iter().map(|field| field.name).collect();
    // What stands in parentheses and in quotes explains.
    let mut plain = String::new();
    let (mut depth, mut is_quoted) = (0, false);
    for letter in said.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            '`' => is_quoted = !is_quoted,
            other if depth == 0 && !is_quoted => plain.push(other),
            _ => {}
        }
    }
    let words = |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
    let parts: Vec<Vec<String>> = plain.replace(" and ", ",").split([',', ';', '.']).map(words).collect();
    for field in &fields {
        assert!(parts.iter().flatten().any(|word| word == field), "{list}: {field} is not documented");
    }
    for part in &parts {
        for word in part.iter().filter(|word| part.len() == 1 || word.contains('_')) {
            assert!(fields.contains(word.as_str()), "{list}: {word} is documented and is no field");
        }
    }
}

#[test]
fn requests_document_the_fields_of_their_lists() {
    for (file, request, fields) in [
        ("placement", "ListPlacements", PLACEMENTS),
        ("cluster", "ListClusters", CLUSTERS),
        ("cluster", "ListLinkMeasurements", LINK_MEASUREMENTS),
        ("export", "ListFrameworks", EXPORTERS),
        ("model", "ListModels", MODELS),
        ("plan", "ListReports", REPORTS),
        ("plan", "ListPlans", PLANS),
        ("plan", "ListPredictionPairs", PAIRS),
        ("profile", "ListMeasurements", MEASUREMENTS),
        ("profile", "ListProfiles", PROFILES),
        ("profile", "ListRuns", RUNS),
        ("worker", "ListWorkers", WORKERS),
    ] {
        let text = read(&format!("proto/loadmaster/v1/{file}.proto"));
        let (_, message) = text.split_once(&format!("\nmessage {request}Request {{")).expect(request);
        let (comment, _) = message.split_once("string filter =").expect(request);
        let (_, said) = comment.split_once("Fields:").expect(request);
        check(request, fields, &said.replace("//", ""));
    }
}

/// Their request is the standard's, which says nothing of ours.
#[test]
fn fields_of_operations_are_documented_elsewhere() {
    for (path, before) in [
        ("deploy/guide/tasks/browse-history.md", "Fields of operations:"),
        ("server/cli/src/verbs/help.rs", "Fields of filters:"),
    ] {
        let text = read(path);
        let (_, rest) = text.split_once(before).expect(path);
        let (said, _) = rest.split_once('.').expect(path);
        check(path, OPERATIONS, said);
    }
}
