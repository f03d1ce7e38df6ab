//! Kept answers: a header with method and request, then the answer with each field of it on a line.

use std::fmt::Write;
use std::path::PathBuf;

use serde_json::{Value, to_string};

use crate::differences::differences;

/// A file of kept answers, and those of today.
pub(crate) struct Kept {
    file: PathBuf,
    before: Vec<(String, String)>,
    now: Vec<(String, String)>,
    left_out: Vec<&'static str>,
}

impl Kept {
    /// Reads the kept ones; fields of these names are left out of answers.
    pub(crate) fn read(file: &str, left_out: &[&'static str]) -> Self {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("kept/data").join(file);
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let sections = text.split("== ").skip(1);
        let section = |section: &str| {
            let (header, answer) = section.split_once('\n').unwrap();
            (header.to_owned(), answer.to_owned())
        };
        Self { file, before: sections.map(section).collect(), now: Vec::new(), left_out: left_out.to_vec() }
    }

    /// The methods and requests of the kept answers.
    pub(crate) fn requests(&self) -> Vec<(String, Value)> {
        let request = |(header, _): &(String, String)| {
            let (method, request) = header.split_once(' ').unwrap();
            (method.to_owned(), serde_json::from_str(request).unwrap())
        };
        self.before.iter().map(request).collect()
    }

    /// An answer of today.
    pub(crate) fn add(&mut self, method: &str, request: &Value, answer: &Value) {
        let mut answer = answer.clone();
        leave_out(&mut answer, &self.left_out);
        self.now.push((format!("{method} {request}"), lines(&answer)));
    }

    /// Fails with what changed; or writes the file anew.
    pub(crate) fn compare(self) {
        if std::env::var_os("KEPT").is_some_and(|value| value == "write") {
            let text =
                self.now.iter().map(|(header, answer)| format!("== {header}\n{answer}")).collect::<String>();
            return std::fs::write(&self.file, text).unwrap();
        }
        let headers = |answers: &[(String, String)]| {
            answers.iter().map(|(header, _)| header.clone()).collect::<Vec<_>>()
        };
        assert_eq!(headers(&self.before), headers(&self.now), "the requests of {}", self.file.display());
        let mut changed = String::new();
        for ((header, before), (_, now)) in self.before.iter().zip(&self.now) {
            if before != now {
                writeln!(changed, "{header}\n{}", differences(before, now)).unwrap();
            }
        }
        assert!(changed.is_empty(), "answers changed:\n{changed}");
    }
}

fn leave_out(value: &mut Value, names: &[&str]) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !names.contains(&name.as_str()));
            fields.values_mut().for_each(|value| leave_out(value, names));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| leave_out(item, names)),
        _ => {}
    }
}

/// JSON with each field of the answer, and each part of its lists, on a line of its own.
fn lines(answer: &Value) -> String {
    let Value::Object(fields) = answer else { return format!("{answer}\n") };
    let mut text = "{".to_owned();
    for (index, (name, value)) in fields.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        write!(text, "{comma}\n{name:?}: ").unwrap();
        match value {
            Value::Array(items) if items.first().is_some_and(Value::is_object) => {
                let items: Vec<String> = items.iter().map(|item| to_string(item).unwrap()).collect();
                write!(text, "[\n{}]", items.join(",\n")).unwrap();
            }
            other => text.push_str(&to_string(other).unwrap()),
        }
    }
    text + "}\n"
}
