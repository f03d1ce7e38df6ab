//! Every rule finds its violation: a small API without findings is changed in one place at a time.

use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver};

use super::check;

const SHELF: &str = r#"syntax = "proto3";
package loadmaster.v1;
import "google/api/client.proto";
import "google/api/field_behavior.proto";
import "google/api/resource.proto";
import "google/longrunning/operations.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/timestamp.proto";
option go_package = "loadmaster.dev/v1;loadmaster";
option java_package = "dev.loadmaster.v1";
option java_multiple_files = true;
option java_outer_classname = "ShelfProto";
service ShelfService {
  rpc GetShelf(GetShelfRequest) returns (Shelf) { option (google.api.method_signature) = "name"; }
  rpc ListShelves(ListShelvesRequest) returns (ListShelvesResponse) { option (google.api.method_signature) = "parent"; }
  rpc CreateShelf(CreateShelfRequest) returns (Shelf) { option (google.api.method_signature) = "parent,shelf"; }
  rpc UpdateShelf(UpdateShelfRequest) returns (Shelf) { option (google.api.method_signature) = "shelf,update_mask"; }
  rpc DeleteShelf(DeleteShelfRequest) returns (google.protobuf.Empty) { option (google.api.method_signature) = "name"; }
  rpc SortShelf(SortShelfRequest) returns (google.longrunning.Operation) {
    option (google.longrunning.operation_info) = { response_type: "Shelf" metadata_type: "SortMetadata" };
  }
}
message Shelf {
  option (google.api.resource) = { type: "loadmaster.dev/Shelf" pattern: "rooms/{room}/shelves/{shelf}" singular: "shelf" plural: "shelves" };
  // `rooms/{room}/shelves/{shelf}`.
  string name = 1 [(google.api.field_behavior) = IDENTIFIER];
  int32 book_count = 2 [(google.api.field_behavior) = OUTPUT_ONLY];
  google.protobuf.Timestamp create_time = 3 [(google.api.field_behavior) = OUTPUT_ONLY];
  repeated Board boards = 4 [(google.api.field_behavior) = OPTIONAL];
  enum Wood { UNSPECIFIED = 0; OAK = 1; }
  Report report = 5 [(google.api.field_behavior) = OUTPUT_ONLY];
}
message Report {
  // Of `rooms/{room}/shelves/{shelf}`.
  string shelf = 1 [(google.api.resource_reference).type = "loadmaster.dev/Shelf"];
}
message Board { int64 size_bytes = 1 [(google.api.field_behavior) = REQUIRED]; }
enum ShelfState { SHELF_STATE_UNSPECIFIED = 0; SHELF_STATE_FULL = 1; }
message GetShelfRequest {
  string name = 1 [(google.api.field_behavior) = REQUIRED, (google.api.resource_reference).type = "loadmaster.dev/Shelf"];
}
message ListShelvesRequest {
  string parent = 1 [(google.api.field_behavior) = REQUIRED, (google.api.resource_reference).child_type = "loadmaster.dev/Shelf"];
  int32 page_size = 2 [(google.api.field_behavior) = OPTIONAL];
  string page_token = 3 [(google.api.field_behavior) = OPTIONAL];
  string order_by = 4 [(google.api.field_behavior) = OPTIONAL];
}
message ListShelvesResponse { repeated Shelf shelves = 1; string next_page_token = 2; }
message CreateShelfRequest {
  string parent = 1 [(google.api.field_behavior) = REQUIRED, (google.api.resource_reference).child_type = "loadmaster.dev/Shelf"];
  Shelf shelf = 2 [(google.api.field_behavior) = REQUIRED];
  // A UUID4.
  string request_id = 3 [(google.api.field_behavior) = OPTIONAL];
}
message UpdateShelfRequest {
  Shelf shelf = 1 [(google.api.field_behavior) = REQUIRED];
  google.protobuf.FieldMask update_mask = 2 [(google.api.field_behavior) = OPTIONAL];
}
message DeleteShelfRequest {
  string name = 1 [(google.api.field_behavior) = REQUIRED, (google.api.resource_reference).type = "loadmaster.dev/Shelf"];
}
message SortShelfRequest { google.protobuf.Duration deadline = 1 [(google.api.field_behavior) = OPTIONAL]; }
message SortMetadata {}
"#;

/// Each change, and the rule and element of the finding that it causes.
const CHANGES: &[(&str, &str, &str)] = &[
    (r#"type: "loadmaster.dev/Shelf" "#, r#"type: "loadmaster.dev/Board" "#, "AIP-123 Shelf"),
    (r#"singular: "shelf" "#, "", "AIP-123 Shelf"),
    (r#" plural: "shelves""#, "", "AIP-123 Shelf"),
    (r#"pattern: "rooms/{room}/shelves/{shelf}""#, "", "AIP-123 Shelf"),
    (r#"{room}/shelves/{shelf}" s"#, r#"{room}/boards/{shelf}" s"#, "AIP-123 Shelf"),
    (
        "string name = 1 [(google.api.field_behavior) = IDENTIFIER]",
        "string id = 1 [(google.api.field_behavior) = IDENTIFIER]",
        "AIP-123 Shelf",
    ),
    (
        "string shelf = 1 [(google.api.resource_reference).type = \"loadmaster.dev/Shelf\"]",
        "string name = 1",
        "AIP-123 Report.name",
    ),
    ("UNSPECIFIED = 0; OAK", "ANY = 0; OAK", "AIP-126 Shelf.Wood"),
    ("SHELF_STATE_UNSPECIFIED", "STATE_UNSPECIFIED", "AIP-126 ShelfState"),
    (
        "GetShelf(GetShelfRequest) returns (Shelf)",
        "GetShelf(GetShelfRequest) returns (Board)",
        "AIP-131 ShelfService.GetShelf",
    ),
    ("GetShelf(GetShelfRequest)", "GetShelf(DeleteShelfRequest)", "AIP-131 ShelfService.GetShelf"),
    (
        "message GetShelfRequest {\n  string name = 1",
        "message GetShelfRequest {\n  bytes name = 1",
        "AIP-131 ShelfService.GetShelf",
    ),
    (
        "message GetShelfRequest {",
        "message GetShelfRequest { string view = 2 [(google.api.field_behavior) = REQUIRED];",
        "AIP-131 ShelfService.GetShelf",
    ),
    (
        "message ListShelvesRequest {\n  string parent",
        "message ListShelvesRequest {\n  string room",
        "AIP-132 ShelfService.ListShelves",
    ),
    ("returns (ListShelvesResponse)", "returns (Shelf)", "AIP-132 ShelfService.ListShelves"),
    ("Shelf shelf = 2", "Board shelf = 2", "AIP-133 ShelfService.CreateShelf"),
    (
        "CreateShelf(CreateShelfRequest) returns (Shelf)",
        "CreateShelf(CreateShelfRequest) returns (Board)",
        "AIP-133 ShelfService.CreateShelf",
    ),
    ("google.protobuf.FieldMask update_mask", "string update_mask", "AIP-134 ShelfService.UpdateShelf"),
    ("returns (google.protobuf.Empty)", "returns (Board)", "AIP-135 ShelfService.DeleteShelf"),
    ("string order_by", "string ordered_by", "AIP-140 ListShelvesRequest.ordered_by"),
    ("string order_by", "string orderBy", "AIP-140 ListShelvesRequest.orderBy"),
    ("string order_by", "string package", "AIP-140 ListShelvesRequest.package"),
    ("book_count", "books", "AIP-141 Shelf.books"),
    ("book_count", "num_books", "AIP-141 Shelf.num_books"),
    ("Board boards", "Board board", "AIP-141 Shelf.board"),
    ("create_time", "created", "AIP-142 Shelf.created"),
    ("string order_by", "string start_time", "AIP-142 ListShelvesRequest.start_time"),
    (
        "google.protobuf.Duration deadline",
        "double deadline_seconds",
        "AIP-142 SortShelfRequest.deadline_seconds",
    ),
    ("int64 size_bytes", "int64 max_age_seconds", "AIP-142 Board.max_age_seconds"),
    ("metadata_type: \"SortMetadata\"", "", "AIP-151 ShelfService.SortShelf"),
    ("response_type: \"Shelf\"", "response_type: \"Shelve\"", "AIP-151 ShelfService.SortShelf"),
    ("// A UUID4.", "// Any text.", "AIP-155 CreateShelfRequest.request_id"),
    ("int32 page_size", "int64 page_size", "AIP-158 ShelfService.ListShelves"),
    ("string next_page_token = 2;", "", "AIP-158 ShelfService.ListShelves"),
    (
        "repeated Shelf shelves = 1; string next_page_token = 2;",
        "repeated Shelf shelves = 2; string next_page_token = 1;",
        "AIP-158 ShelfService.ListShelves",
    ),
    ("option go_package = \"loadmaster.dev/v1;loadmaster\";", "", "AIP-191 shelf.proto"),
    ("option java_package = \"dev.loadmaster.v1\";", "", "AIP-191 shelf.proto"),
    ("option java_multiple_files = true;", "", "AIP-191 shelf.proto"),
    ("\"ShelfProto\"", "\"Shelf\"", "AIP-191 shelf.proto"),
    (
        "string order_by = 4 [(google.api.field_behavior) = OPTIONAL]",
        "string order_by = 4",
        "AIP-203 ListShelvesRequest.order_by",
    ),
    ("size_bytes = 1 [(google.api.field_behavior) = REQUIRED]", "size_bytes = 1", "AIP-203 Board.size_bytes"),
    (
        "book_count = 2 [(google.api.field_behavior) = OUTPUT_ONLY]",
        "book_count = 2",
        "AIP-203 Shelf.book_count",
    ),
    (
        ", (google.api.resource_reference).child_type = \"loadmaster.dev/Shelf\"",
        "",
        "AIP-4231 ListShelvesRequest.parent",
    ),
    (" [(google.api.resource_reference).type = \"loadmaster.dev/Shelf\"]", "", "AIP-4231 Report.shelf"),
    (
        "child_type = \"loadmaster.dev/Shelf\"",
        "child_type = \"loadmaster.dev/Room\"",
        "AIP-4231 ListShelvesRequest.parent",
    ),
    ("{ option (google.api.method_signature) = \"parent\"; }", ";", "AIP-4232 ShelfService.ListShelves"),
    (
        "(google.api.method_signature) = \"name\"",
        "(google.api.method_signature) = \"shelf\"",
        "AIP-4232 ShelfService.GetShelf",
    ),
    ("\"parent,shelf\"", "\"parent,board\"", "AIP-4232 ShelfService.CreateShelf"),
];

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

/// Rules and elements of the findings in `source`.
fn findings(source: String) -> Vec<String> {
    let mut resolver = ChainFileResolver::new();
    resolver.add(Source(source));
    resolver.add(IncludeFileResolver::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto").into()));
    resolver.add(GoogleFileResolver::new());
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler.include_source_info(true).include_imports(true).open_file("shelf.proto").unwrap();
    let found = check(&compiler.descriptor_pool().encode_to_vec()).unwrap();
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
    for (from, to, expected) in CHANGES {
        assert!(SHELF.contains(from), "{from}");
        let found = findings(SHELF.replacen(from, to, 1));
        assert!(found.iter().any(|one| one == expected), "{from:?} to {to:?}: {found:?} lack {expected}");
    }
}

#[test]
fn members_of_a_oneof_and_foreign_packages_have_no_findings() {
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
