//! What was stored or sent before still reads, and is written as before.
//!
//! `kept/records.txt` has values of every type that is stored or travels, with up to five lines each:
//!
//! | line | is |
//! |---|---|
//! | `json` | the JSON that is written, to the byte: content ids are made of it |
//! | `says` | what else follows from the value: its id, its notation, the model that a source builds |
//! | `wire` | the message that it becomes, by the names of fields |
//! | `sent` | the bytes of that message, in hexadecimal |
//!
//! `kept/words.txt` has the words of every enum, `kept/fields.txt` every field, value and method of the API with
//! its number and type. Each file is compared line by line.
//!
//! `KEPT=write cargo test -p loadmaster-proto --test kept` writes them anew. A new line is a new promise. A line that
//! changes or goes is a broken one: databases, documents and programs of earlier releases have it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod fields;
mod types;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;

use loadmaster_proto::profile::document::ProfileDocument;
use loadmaster_samples::differences;
use prost_reflect::{DescriptorPool, DynamicMessage};
use types::{KINDS, Kind, Wire};

fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/kept").join(file)
}

fn kept(file: &str) -> String {
    std::fs::read_to_string(path(file)).unwrap()
}

/// Whether the files are written anew instead of compared.
fn is_written() -> bool {
    std::env::var_os("KEPT").is_some_and(|value| value == "write")
}

/// Compares a table line by line, or writes it.
fn compare(file: &str, now: &[String]) {
    let text = now.join("\n") + "\n";
    if is_written() {
        return std::fs::write(path(file), text).unwrap();
    }
    let before = kept(file);
    let (old, new): (BTreeSet<_>, BTreeSet<_>) = (before.lines().collect(), text.lines().collect());
    let gone: Vec<_> = old.difference(&new).collect();
    let fresh: Vec<_> = new.difference(&old).collect();
    assert!(gone.is_empty(), "{file} promises what is no longer so: {gone:#?}\nnow: {fresh:#?}");
    assert!(fresh.is_empty(), "not in {file} yet; `KEPT=write` keeps it: {fresh:#?}");
    assert_eq!(before, text, "the order of {file}");
}

#[test]
fn the_words_of_every_enum_are_as_before() {
    compare("words.txt", &types::words());
}

#[test]
fn fields_and_methods_of_the_api_keep_their_numbers_and_types() {
    compare("fields.txt", &fields::fields());
}

/// A document that another planner exported is read, and exported once more as the same text.
#[test]
fn documents_are_written_as_before() {
    for file in ["own.json", "foreign.json"] {
        let text = kept(file);
        let again = ProfileDocument::parse(&text).unwrap().to_text().unwrap();
        if is_written() {
            std::fs::write(path(file), &again).unwrap();
        } else {
            assert!(again == text, "{file}\n{}", differences(&text, &again));
        }
    }
}

/// A kept value: its type and title, then its lines by their first words.
struct Record<'a> {
    kind: &'static Kind,
    title: &'a str,
    lines: Vec<(&'a str, &'a str)>,
}

impl<'a> Record<'a> {
    fn all(text: &'a str) -> Vec<Self> {
        let sections = text.split("\n== ").map(|section| section.trim_start_matches("== "));
        sections.map(Self::of).collect()
    }

    fn of(section: &'a str) -> Self {
        let mut lines = section.lines();
        let head = lines.next().unwrap();
        let (name, title) = head.split_once(": ").unwrap();
        let kind = KINDS.iter().find(|kind| kind.name == name).unwrap_or_else(|| panic!("no kind {name}"));
        let lines = lines.filter_map(|line| line.split_once(' ')).collect();
        Self { kind, title, lines }
    }

    fn line(&self, name: &str) -> Option<&'a str> {
        self.lines.iter().find(|(line, _)| *line == name).map(|(_, text)| *text)
    }

    /// Its lines as today's program has them.
    fn now(&self, pool: &DescriptorPool) -> Vec<(&'a str, String)> {
        let json = (self.kind.written)(self.line("json").unwrap());
        let json =
            json.unwrap_or_else(|error| panic!("{}: {} cannot be read: {error}", self.kind.name, self.title));
        let mut lines = Vec::new();
        let wire = (self.kind.wire)(&json);
        let says = (self.kind.says)(&json);
        lines.push(("json", json));
        lines.extend(says.map(|says| ("says", says)));
        if let Some(wire) = wire {
            lines.push(("wire", readable(pool, &wire)));
            lines.push(("sent", hexadecimal(&wire.bytes)));
        }
        lines
    }
}

fn readable(pool: &DescriptorPool, wire: &Wire) -> String {
    let descriptor = pool.get_message_by_name(&wire.message).unwrap();
    let message = DynamicMessage::decode(descriptor, wire.bytes.as_slice()).unwrap();
    serde_json::to_string(&message).unwrap()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits = hexadecimal.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[test]
fn values_are_stored_and_sent_as_before() {
    let text = kept("records.txt");
    let pool = DescriptorPool::decode(loadmaster_proto::wire::DESCRIPTORS).unwrap();
    let records = Record::all(&text);
    if is_written() {
        let mut file = String::new();
        for record in &records {
            writeln!(file, "== {}: {}", record.kind.name, record.title).unwrap();
            record.now(&pool).iter().for_each(|(name, line)| writeln!(file, "{name} {line}").unwrap());
        }
        return std::fs::write(path("records.txt"), file).unwrap();
    }
    let mut broken = String::new();
    for record in &records {
        let (kind, now) = (record.kind, record.now(&pool));
        let names: Vec<_> = now.iter().map(|(name, _)| *name).collect();
        let before: Vec<_> = record.lines.iter().map(|(name, _)| *name).collect();
        if names != before {
            writeln!(broken, "{}: {}: had {before:?}, has {names:?}", kind.name, record.title).unwrap();
        }
        for (name, line) in now {
            let before = record.line(name).unwrap_or_default();
            if before != line {
                let what = differences(before, &line);
                writeln!(broken, "{}: {} {name}\n{what}", kind.name, record.title).unwrap();
            }
        }
    }
    assert!(broken.is_empty(), "changed:\n{broken}");
}

/// What an earlier release sent is taken for the same value.
#[test]
fn messages_of_before_mean_what_they_meant() {
    let text = kept("records.txt");
    for record in Record::all(&text) {
        let Some(sent) = record.line("sent") else { continue };
        let Some(read) = (record.kind.of_wire)(&bytes(sent)) else { continue };
        let json = record.line("json").unwrap();
        let what = differences(json, &read);
        // A cluster of before may be doubted by what is known of devices today.
        let is_same = match record.kind.name {
            "Cluster" => undoubted(&read) == undoubted(json),
            _ => read == json,
        };
        assert!(is_same, "{}: {}\n{what}", record.kind.name, record.title);
    }
}

/// A cluster without its warnings.
fn undoubted(json: &str) -> serde_json::Value {
    let mut cluster: serde_json::Value = serde_json::from_str(json).unwrap();
    cluster.as_object_mut().unwrap().remove("warnings");
    cluster
}

#[test]
fn every_type_has_a_sample() {
    let text = kept("records.txt");
    let sampled: BTreeSet<&str> = Record::all(&text).iter().map(|record| record.kind.name).collect();
    let lacking: Vec<&str> =
        KINDS.iter().map(|kind| kind.name).filter(|name| !sampled.contains(name)).collect();
    assert!(lacking.is_empty(), "{lacking:?}");
}
