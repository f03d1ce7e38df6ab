//! How right predictions were, and what would correct them.

use loadmaster_proto::wire::v1::{ListPredictionErrorsResponse, PredictionErrors, Quantity};

use super::grid::Grid;
use super::grid::Side::{Left, Right};
use super::{ledger, or_none};
use crate::show::Show;
use crate::text::terminal_abilities::Look;
use crate::text::{percent, plain, ratio};

impl Show for ListPredictionErrorsResponse {
    const TYPE: &'static str = "loadmaster.v1.ListPredictionErrorsResponse";

    /// Statistics are no resource; what can be named is what would correct them.
    fn names(&self) -> Vec<String> {
        let corrections = self.errors.iter().filter_map(|of| of.correction.as_ref());
        corrections.map(|correction| correction.version.clone()).collect()
    }

    fn table(&self, look: Look) -> String {
        list(&self.errors, look)
    }
}

/// A row per kind of device, predictor and quantity; below it where each correction comes from.
fn list(errors: &[PredictionErrors], look: Look) -> String {
    if errors.is_empty() {
        return "no pairs of predicted and measured figures: validate plans with `loadmaster plan validate`, or \
                report real runs with `loadmaster plan report`\n"
            .to_owned();
    }
    let mut text = grid(errors, look).render();
    text.push_str("error: predicted / measured - 1, negative: predicted too low\n");
    for correction in errors.iter().filter_map(|of| of.correction.as_ref()) {
        text.push_str(&format!("{}: {}\n", plain(&correction.version), plain(&correction.explanation)));
    }
    text
}

/// A row for each.
pub fn grid(errors: &[PredictionErrors], look: Look) -> Grid {
    let mut grid = Grid::new(
        &[
            ("device kind", Left),
            ("predictor", Left),
            ("of", Left),
            ("pairs", Right),
            ("plans", Right),
            ("mean error", Right),
            ("mean size", Right),
            ("p90", Right),
            ("largest", Right),
            ("correction", Right),
        ],
        look,
    );
    for of in errors {
        let factor =
            of.correction.as_ref().map(|correction| format!("{}{:.3}", look.times(), correction.factor));
        grid.row([
            or_none(&of.device_kind, look),
            or_none(&of.predictor, look),
            quantity(of),
            of.count.to_string(),
            of.plans.to_string(),
            ratio(of.mean_error_ratio),
            percent(of.mean_absolute_error_ratio),
            percent(of.p90_absolute_error_ratio),
            percent(of.max_absolute_error_ratio),
            factor.unwrap_or_else(|| look.none().to_owned()),
        ]);
    }
    grid
}

fn quantity(of: &PredictionErrors) -> String {
    match of.quantity() {
        Quantity::PeakBytes => format!("peak bytes ({})", ledger(of.ledger)),
        Quantity::IterationSeconds => "iteration seconds".to_owned(),
        Quantity::Unspecified => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::v1::{Correction, Ledger};

    use super::*;

    /// Errors are signed, bytes name their ledger, and a correction says what it was learnt from.
    #[test]
    fn a_row_has_errors_and_the_correction() {
        let correction = Correction {
            version: "correction/1+abc".to_owned(),
            factor: 1.0432,
            explanation: "the median over 3 plans".to_owned(),
            ..Correction::default()
        };
        let of = PredictionErrors {
            device_kind: "cpu".to_owned(),
            predictor: "component/1".to_owned(),
            quantity: Quantity::PeakBytes.into(),
            ledger: Ledger::Allocated.into(),
            count: 9,
            plans: 3,
            mean_error_ratio: -0.041,
            mean_absolute_error_ratio: 0.05,
            p90_absolute_error_ratio: 0.08,
            max_absolute_error_ratio: 0.1,
            correction: Some(correction),
        };
        assert_eq!(
            list(&[of], Look::PLAIN),
            "device kind  predictor    of                      pairs  plans  mean error  mean size    p90  largest  correction\n\
             cpu          component/1  peak bytes (allocated)      9      3      -4.1 %      5.0 %  8.0 %   10.0 %      x1.043\n\
             error: predicted / measured - 1, negative: predicted too low\n\
             correction/1+abc: the median over 3 plans\n"
        );
        assert!(list(&[], Look::PLAIN).starts_with("no pairs"));
    }
}
