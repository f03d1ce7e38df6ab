//! All comparisons, one per line.

use std::fmt::Write;

use crate::accuracy::row::{Answer, Row};

const HEADER: &str = "study,model,parallelism,group,predictor,stage,micro_batch_size,in_flight,ledger,\
    measured_bytes,predicted_bytes,error,margin,covered,refused\n";

/// The rows with a header.
pub(super) fn csv(rows: &[Row]) -> String {
    let mut text = HEADER.to_owned();
    for row in rows {
        let (bytes, refused) = match &row.answer {
            Answer::Bytes { bytes, .. } => (bytes.to_string(), ""),
            Answer::Refused(why) => (String::new(), why.as_str()),
        };
        let error = row.error().map_or_else(String::new, |error| format!("{error:.6}"));
        let margin = row.margin().map_or_else(String::new, |margin| format!("{margin:.4}"));
        let covered = row.is_covered().map_or("", |covered| if covered { "yes" } else { "no" });
        let fields = [
            quoted(&row.study),
            quoted(&row.model),
            quoted(&row.parallelism),
            quoted(row.group.name()),
            quoted(row.predictor),
            quoted(&row.stage),
            row.micro_batch_size.to_string(),
            row.in_flight.to_string(),
            row.ledger.as_str().to_owned(),
            row.measured.to_string(),
            bytes,
            error,
            margin,
            covered.to_owned(),
            quoted(refused),
        ];
        let _ = writeln!(text, "{}", fields.join(","));
    }
    text
}

/// A field as RFC 4180 wants it.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accuracy::row::{Group, example};

    /// Every line has as many fields as the header, whatever is in them.
    #[test]
    fn lines_have_the_fields_of_the_header() {
        let row = example(Group::Parallel, "component/1", 100, 90, Some(0.05));
        let refused = Row { answer: Answer::Refused("no".to_owned()), ..row.clone() };
        let text = csv(&[row, refused]);
        let fields: Vec<usize> =
            text.lines().map(|line| line.split("\",").count() + line.split(',').count()).collect();
        assert_eq!(fields.len(), 3);
        assert!(
            text.contains("\"degree 2, 4\",component/1,0..1,2,4,allocated,100,90,-0.100000,0.0500,no,\n")
        );
        assert!(text.ends_with("100,,,,,no\n"));
        assert_eq!(quoted("say \"a\""), "\"say \"\"a\"\"\"");
    }
}
