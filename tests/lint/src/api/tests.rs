//! Every rule finds its violation: a small API without findings is changed in one place at a time.

use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver};

use super::check;
use super::pages::pages;

/// An API without findings.
const SHELF: &str = include_str!("../../samples/shelf.proto");
/// Changes of it, and the rule and element of the finding that each causes.
const CHANGES: &str = include_str!("../../samples/changes.txt");

struct Source(String);

impl FileResolver for Source {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        if name == "shelf.proto" {
            File::from_source(name, &self.0)
        } else {
            Err(protox::Error::file_not_found(name))
        }
    }
}

/// The encoded descriptors of `source`.
fn descriptors(source: String) -> Vec<u8> {
    let mut resolver = ChainFileResolver::new();
    resolver.add(Source(source));
    resolver.add(IncludeFileResolver::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto").into()));
    resolver.add(GoogleFileResolver::new());
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler.include_source_info(true).include_imports(true).open_file("shelf.proto").unwrap();
    compiler.descriptor_pool().encode_to_vec()
}

/// Rules and elements of the findings in `source`.
fn findings(source: String) -> Vec<String> {
    let found = check(&descriptors(source)).unwrap();
    found
        .iter()
        .map(|one| format!("{} {}", one.rule(), one.element.trim_start_matches("loadmaster.v1.")))
        .collect()
}

#[test]
fn an_api_that_keeps_the_rules_has_no_findings() {
    assert_eq!(findings(SHELF.to_owned()), [""; 0]);
}

#[test]
fn every_rule_finds_its_violation() {
    for line in CHANGES.lines().filter(|line| !line.starts_with('#')) {
        let parts: Vec<String> = line.split('|').map(|part| part.trim().replace("\\n", "\n")).collect();
        let [expected, from, to] = &parts[..] else { panic!("{line:?} has not three parts") };
        assert!(SHELF.contains(from), "{from}");
        let found = findings(SHELF.replacen(from, to, 1));
        assert!(found.contains(expected), "{line}: {found:?}");
    }
}

#[test]
fn members_of_a_oneof_need_no_behavior() {
    let oneof = SHELF.replacen(
        "string order_by = 4 [(google.api.field_behavior) = OPTIONAL];",
        "oneof a { string b = 4; int32 c = 5; }",
        1,
    );
    assert_eq!(findings(oneof), [""; 0]);
    let optional = SHELF.replacen(
        "string order_by = 4 [(google.api.field_behavior) = OPTIONAL];",
        "optional string b = 4;",
        1,
    );
    assert_eq!(findings(optional), ["AIP-203 ListShelvesRequest.b"]);
}

#[test]
fn pages_have_every_element_with_its_comment_and_links_between_types() {
    let [index, page] = &pages(&descriptors(SHELF.to_owned())).unwrap()[..] else { panic!("not two pages") };
    assert!(
        index.text.contains("| [shelf.proto](shelf.md) | [ShelfService](shelf.md#shelfservice) |"),
        "{}",
        index.text
    );
    for line in [
        "* Request: [ListShelvesRequest](shelf.md#listshelvesrequest)",
        "* Response: `google.longrunning.Operation`",
        "* Progress: `SortMetadata`",
        "| `name` | string | 1 | identifier | `rooms/{room}/shelves/{shelf}`. |",
        "| `boards` | repeated [Board](shelf.md#board) | 4 | optional |  |",
        "### Shelf.Wood",
        "| `SHELF_STATE_FULL` | 1 |  |",
    ] {
        assert!(page.text.lines().any(|one| one == line), "{line}: {}", page.text);
    }
}
