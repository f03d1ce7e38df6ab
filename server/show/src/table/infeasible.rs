//! Why no plan satisfies a request, as text; the caller writes changes as it names fields.

use loadmaster_proto::wire::v1::{FieldChange, Infeasible, MemoryFigure, Remedy};

use crate::Show;
use crate::text::terminal_abilities::Look;
use crate::text::{bytes, plain, seconds};

impl Show for Infeasible {
    const TYPE: &'static str = "loadmaster.v1.Infeasible";

    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    fn table(&self, _look: Look) -> String {
        text(self, |change| change.field.clone())
    }
}

/// Returns the explanation with a line for each remedy. `written` is how the caller writes a change.
pub fn text(infeasible: &Infeasible, written: impl Fn(&FieldChange) -> String) -> String {
    let mut text = plain(&infeasible.message);
    if !infeasible.remedies.is_empty() {
        text.push_str("\nA plan exists with one of these changes:");
    }
    for remedy in &infeasible.remedies {
        let changes: Vec<String> = remedy.changes.iter().map(&written).collect();
        text.push_str(&format!("\n  {}", plain(&remedy.description)));
        if !changes.is_empty() {
            text.push_str(&format!(": {}", plain(&changes.join(" "))));
        }
        let figures = figures(remedy);
        if !figures.is_empty() {
            text.push_str(&format!(" ({figures})"));
        }
    }
    text
}

fn figures(remedy: &Remedy) -> String {
    let peak = remedy
        .predicted_peak
        .as_ref()
        .map(|&MemoryFigure { bytes: peak, .. }| format!("peak {}", bytes(peak)));
    let time = remedy.iteration_seconds.map(|time| format!("{} per iteration", seconds(time)));
    let frameworks = (!remedy.frameworks.is_empty()).then(|| remedy.frameworks.join(", "));
    let parts: Vec<String> = [peak, time, frameworks].into_iter().flatten().collect();
    parts.join("; ")
}
