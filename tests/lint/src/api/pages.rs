//! Reference pages of the API: one Markdown page per `.proto` file, from descriptors and comments.

use std::fmt::Write as _;

use anyhow::Result;
use prost_reflect::{
    EnumDescriptor, FieldDescriptor, FileDescriptor, Kind, MessageDescriptor, MethodDescriptor,
};

use super::schema::{Schema, is_own, string};
use crate::links::anchor;

/// A page of the reference.
#[derive(Debug)]
pub(crate) struct Page {
    /// File name, without a folder.
    pub(crate) file: String,
    pub(crate) title: String,
    pub(crate) text: String,
}

/// Returns the pages of all `loadmaster.*` files in an encoded descriptor set, those with services first.
pub(crate) fn pages(descriptors: &[u8]) -> Result<Vec<Page>> {
    let schema = Schema::decode(descriptors)?;
    let mut files = schema.files();
    files.sort_by_key(|file| (file.services().next().is_none(), file.name().to_owned()));
    let mut index = "# API\n\nThe pages contain the comments of the `.proto` files.\n\n| file | services | content |\n|---|---|---|\n".to_owned();
    for file in &files {
        let services: Vec<_> = file.services().map(|one| link(file, one.full_name())).collect();
        let about = cell(schema.comment(file, &[12]));
        index += &format!("| [{}]({}) | {} | {about} |\n", file.name(), file_name(file), services.join(", "));
    }
    let index = Page { file: "README.md".to_owned(), title: "API".to_owned(), text: index };
    Ok(std::iter::once(index).chain(files.iter().map(|file| schema.page(file))).collect())
}

/// `loadmaster/v1/plan.proto` is on the page `plan.md`, and `loadmaster/worker/v1/session.proto` on `worker-session.md`.
fn file_name(file: &FileDescriptor) -> String {
    let parts =
        file.name().trim_end_matches(".proto").split('/').filter(|part| !["loadmaster", "v1"].contains(part));
    format!("{}.md", parts.collect::<Vec<_>>().join("-"))
}

impl Schema {
    fn page(&self, file: &FileDescriptor) -> Page {
        let mut text = format!("# {}\n\n{}", file.name(), block(self.comment(file, &[12])));
        let _ = writeln!(text, "Package `{}`.", file.package_name());
        for service in file.services() {
            let _ = write!(text, "\n## {}\n\n{}", service.name(), block(self.comment(file, service.path())));
            service.methods().for_each(|method| text += &self.method(file, &method));
        }
        let messages: Vec<_> =
            self.messages().into_iter().filter(|message| message.parent_file() == *file).collect();
        if !messages.is_empty() {
            text += "\n## Messages\n";
            messages.iter().for_each(|message| text += &self.message(file, message));
        }
        let enums: Vec<_> = self.enums().into_iter().filter(|one| one.parent_file() == *file).collect();
        if !enums.is_empty() {
            text += "\n## Enums\n";
            enums.iter().for_each(|one| text += &self.values(file, one));
        }
        Page { file: file_name(file), title: file.name().to_owned(), text }
    }

    fn method(&self, file: &FileDescriptor, method: &MethodDescriptor) -> String {
        let side = |is_stream: bool, message: &MessageDescriptor| {
            let stream = if is_stream { "stream of " } else { "" };
            format!("{stream}{}", link(&message.parent_file(), message.full_name()))
        };
        let mut text = format!("\n### {}\n\n{}", method.name(), block(self.comment(file, method.path())));
        let _ = writeln!(text, "* Request: {}", side(method.is_client_streaming(), &method.input()));
        let _ = writeln!(text, "* Response: {}", side(method.is_server_streaming(), &method.output()));
        let operation = self.option(&method.options(), "google.longrunning.operation_info");
        if let Some(operation) = operation.as_ref().and_then(|value| value.as_message()) {
            for (title, field) in [("Result", "response_type"), ("Progress", "metadata_type")] {
                let _ = writeln!(text, "* {title}: `{}`", string(operation, field));
            }
        }
        text
    }

    fn message(&self, file: &FileDescriptor, message: &MessageDescriptor) -> String {
        let mut text = format!("\n### {}\n\n", within(message.full_name(), message.package_name()));
        text += &block(self.comment(file, message.path()));
        if message.fields().next().is_none() {
            return text + "No fields.\n";
        }
        text += "| field | type | number | behavior | description |\n|---|---|---:|---|---|\n";
        let mut fields: Vec<_> = message.fields().collect();
        // In the order of the file: a group stands together whatever its numbers are.
        fields.sort_by_key(|field| field.path().to_vec());
        for field in fields {
            let mut behavior: Vec<_> =
                self.behaviors(&field).iter().map(|one| one.to_lowercase().replace('_', " ")).collect();
            behavior.extend(
                field
                    .containing_oneof()
                    .filter(|oneof| !oneof.is_synthetic())
                    .map(|oneof| format!("one of `{}`", oneof.name())),
            );
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} | {} |",
                field.name(),
                kind(&field),
                field.number(),
                behavior.join(", "),
                cell(self.comment(file, field.path()))
            );
        }
        text
    }

    fn values(&self, file: &FileDescriptor, one: &EnumDescriptor) -> String {
        let name = within(one.full_name(), one.package_name());
        let mut text = format!("\n### {name}\n\n{}", block(self.comment(file, one.path())));
        text += "| value | number | description |\n|---|---:|---|\n";
        for value in one.values() {
            let about = cell(self.comment(file, value.path()));
            let _ = writeln!(text, "| `{}` | {} | {about} |", value.name(), value.number());
        }
        text
    }
}

/// Name within a package.
fn within<'a>(full: &'a str, package: &str) -> &'a str {
    full.strip_prefix(package).unwrap_or(full).trim_start_matches('.')
}

fn kind(field: &FieldDescriptor) -> String {
    if let Kind::Message(entry) = field.kind()
        && field.is_map()
    {
        let [key, value] = [entry.map_entry_key_field(), entry.map_entry_value_field()];
        return format!("map of {} to {}", named(&key), named(&value));
    }
    let repeated = if field.is_list() { "repeated " } else { "" };
    format!("{repeated}{}", named(field))
}

fn named(field: &FieldDescriptor) -> String {
    match field.kind() {
        Kind::Message(message) => link(&message.parent_file(), message.full_name()),
        Kind::Enum(one) => link(&one.parent_file(), one.full_name()),
        scalar => format!("{scalar:?}").to_lowercase(),
    }
}

/// Links to a type of this API; types of Google's packages have their full name.
fn link(file: &FileDescriptor, full: &str) -> String {
    let name = within(full, file.package_name());
    if is_own(file) { format!("[{name}]({}#{})", file_name(file), anchor(name)) } else { format!("`{full}`") }
}

/// A comment as paragraphs, with an empty line behind it.
fn block(comment: &str) -> String {
    let text = escaped(comment.trim());
    let lines: Vec<_> = text.lines().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    if text.is_empty() { text } else { lines.join("\n") + "\n\n" }
}

/// A comment as the cell of a table.
fn cell(comment: &str) -> String {
    let paragraphs = comment.split("\n\n").map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    escaped(&paragraphs.collect::<Vec<_>>().join("<br>")).replace("\\<br>", "<br>").replace('|', "\\|")
}

/// Signs of HTML and of links, outside of code, without their meaning.
fn escaped(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let escape = |(at, part): (usize, &str)| {
        if at % 2 == 0 { part.replace('<', "\\<").replace('[', "\\[") } else { part.to_owned() }
    };
    parts.map(escape).collect::<Vec<_>>().join("`")
}
