//! Rules of Google's API Improvement Proposals (aip.dev) that apply here and that buf does not check.

use anyhow::Result;

mod fields;
mod methods;
pub(crate) mod pages;
mod schema;
#[cfg(test)]
mod tests;
mod types;

use schema::Schema;

/// An element of the API that breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    file: String,
    aip: u32,
    pub(crate) element: String,
    text: String,
}

impl Finding {
    pub(crate) fn rule(&self) -> String {
        format!("AIP-{}", self.aip)
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}: {}: {}", self.file, self.element, self.rule(), self.text)
    }
}

/// An element whose findings are collected.
struct Element<'a> {
    findings: &'a mut Vec<Finding>,
    file: String,
    name: String,
}

impl Element<'_> {
    /// Adds a finding unless `holds`.
    fn require(&mut self, holds: bool, aip: u32, text: impl Into<String>) {
        if !holds {
            let (file, element) = (self.file.clone(), self.name.clone());
            self.findings.push(Finding { file, aip, element, text: text.into() });
        }
    }
}

/// Returns the findings of all `loadmaster.*` packages in an encoded descriptor set, by file and rule.
pub(crate) fn check(descriptors: &[u8]) -> Result<Vec<Finding>> {
    let schema = Schema::decode(descriptors)?;
    let mut findings = Vec::new();
    types::check(&schema, &mut findings);
    fields::check(&schema, &mut findings);
    methods::check(&schema, &mut findings);
    findings.sort();
    Ok(findings)
}
