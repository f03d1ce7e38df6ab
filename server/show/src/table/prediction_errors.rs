//! How right predictions were, and what would correct them.

use loadmaster_proto::wire::v1::{
    ListPredictionErrorsResponse, MemoryPlace, PredictionErrors, PredictionPair, Quantity,
};

use super::grid::Grid;
use super::grid::Side::{Left, Right};
use super::{accounting, id, or_none};
use crate::text::terminal_abilities::Look;
use crate::text::{bytes, percent, plain, ratio, seconds, time, word};
use crate::{Show, show};

impl Show for ListPredictionErrorsResponse {
    const TYPE: &'static str = "loadmaster.v1.ListPredictionErrorsResponse";

    /// Statistics are no resource; what can be named is what would correct them.
    fn names(&self) -> Vec<String> {
        let corrections = self.prediction_errors.iter().filter_map(|of| of.calibration.as_ref());
        corrections.map(|correction| correction.version.clone()).collect()
    }

    fn table(&self, look: Look) -> String {
        list(&self.prediction_errors, look) + &left_out(self.contended_trial_count)
    }
}

show!(@ ListPredictionPairsResponse, self, look,
    self.prediction_pairs.iter().map(|pair| pair.source.clone()).collect(),
    pairs(&self.prediction_pairs, look));

/// Instead of a list without rows.
const NONE: &str = "no pairs of predicted and measured figures found: `loadmaster plan trial` trains plans, and \
                    `loadmaster plan report` stores measurements of your own training\n";

/// A row per kind of device, predictor and quantity; below it where each correction comes from.
fn list(errors: &[PredictionErrors], look: Look) -> String {
    if errors.is_empty() {
        return NONE.to_owned();
    }
    let mut text = grid(errors, look).render();
    text.push_str("error: predicted / measured - 1, negative: predicted too low\n");
    if errors.iter().any(|of| may_be_zero(of.quantity())) {
        text.push_str(
            "for seconds waited and bytes copied, the error is predicted - measured, because a measured 0 has no \
             ratio\n",
        );
    }
    for of in errors.iter().filter(|of| is_defect(of)) {
        text.push_str(&format!(
            "{} by {} on {}: a plan states its copies to the byte, so errors here are defects; \
             `loadmaster plan errors --pairs -o json --filter 'quantity = copied-bytes AND NOT difference = 0'` \
             names the plans\n",
            quantity(of),
            plain(&of.predictor),
            plain(&of.device_kind),
        ));
    }
    for correction in errors.iter().filter_map(|of| of.calibration.as_ref()) {
        text.push_str(&format!("{}: {}\n", plain(&correction.version), plain(&correction.explanation)));
    }
    text
}

/// Which trials have no seconds among the pairs.
pub fn left_out(contended_trials: i32) -> String {
    let (whose, devices) = match contended_trials {
        i32::MIN..=0 => return String::new(),
        1 => ("1 trial".to_owned(), "its"),
        many => (format!("{many} trials"), "their"),
    };
    format!(
        "the errors exclude the seconds measured in {whose}, because other programs used {devices} devices at the \
         same time; repeat `loadmaster plan trial` when no other program uses the devices\n"
    )
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
            of.calibration.as_ref().map(|correction| format!("{}{:.3}", look.times(), correction.factor));
        let [mean, mean_absolute, p90, largest] = of_pairs(of);
        grid.row([
            or_none(&of.device_kind, look),
            or_none(&of.predictor, look),
            quantity(of),
            of.pair_count.to_string(),
            of.plan_count.to_string(),
            signed(of.quantity(), mean),
            size(of.quantity(), mean_absolute),
            size(of.quantity(), p90),
            size(of.quantity(), largest),
            factor.unwrap_or_else(|| look.none().to_owned()),
        ]);
    }
    grid
}

/// A row for each pair, in order.
fn pairs(pairs: &[PredictionPair], look: Look) -> String {
    if pairs.is_empty() {
        return NONE.to_owned();
    }
    let mut grid = Grid::new(
        &[
            ("plan", Left),
            ("of", Left),
            ("predicted", Right),
            ("measured", Right),
            ("error", Right),
            ("device kind", Left),
            ("predictor", Left),
            ("measured in", Left),
            ("at", Left),
        ],
        look,
    );
    for pair in pairs {
        let quantity = pair.quantity();
        grid.row([
            id(&pair.plan),
            named(quantity, pair.accounting, pair.link()),
            size_of(quantity, pair.predicted_value),
            size_of(quantity, pair.measured_value),
            error_of(pair).map_or_else(|| look.none().to_owned(), |error| signed(quantity, error)),
            or_none(&pair.device_kind, look),
            or_none(&pair.predictor, look),
            or_none(&pair.source, look),
            time(pair.measure_time.as_ref(), look),
        ]);
    }
    grid.render()
}

/// What was predicted or measured, with its unit.
fn size_of(quantity: Quantity, value: f64) -> String {
    match quantity {
        Quantity::PeakBytes | Quantity::CopiedBytes => bytes(value as i64),
        Quantity::IterationSeconds | Quantity::WaitedSeconds => seconds(value),
        Quantity::Unspecified => value.to_string(),
    }
}

/// How far off a prediction was: a difference of what may be 0, else a share of what was measured, if there is one.
pub fn error_of(pair: &PredictionPair) -> Option<f64> {
    let error = if may_be_zero(pair.quantity()) {
        pair.predicted_value - pair.measured_value
    } else {
        pair.predicted_value / pair.measured_value - 1.0
    };
    error.is_finite().then_some(error)
}

/// Whether errors of it are differences, as there may be no ratio.
fn may_be_zero(quantity: Quantity) -> bool {
    matches!(quantity, Quantity::WaitedSeconds | Quantity::CopiedBytes)
}

/// An error with its sign and unit.
pub fn signed(quantity: Quantity, error: f64) -> String {
    if !may_be_zero(quantity) {
        return ratio(error);
    }
    let sign = if error < 0.0 { '-' } else { '+' };
    format!("{sign}{}", size(quantity, error.abs()))
}

/// The size of an error, with its unit.
fn size(quantity: Quantity, size: f64) -> String {
    match quantity {
        Quantity::WaitedSeconds => seconds(size),
        // Of a fraction of a byte, which is a mean, something is left to see.
        Quantity::CopiedBytes => bytes(size.ceil() as i64),
        Quantity::PeakBytes | Quantity::IterationSeconds | Quantity::Unspecified => percent(size),
    }
}

/// Mean, mean size, 90th percentile and largest.
fn of_pairs(of: &PredictionErrors) -> [f64; 4] {
    if may_be_zero(of.quantity()) {
        [
            of.mean_difference(),
            of.mean_absolute_difference(),
            of.p90_absolute_difference(),
            of.max_absolute_difference(),
        ]
    } else {
        [
            of.mean_error_ratio,
            of.mean_absolute_error_ratio,
            of.p90_absolute_error_ratio,
            of.max_absolute_error_ratio,
        ]
    }
}

fn is_defect(of: &PredictionErrors) -> bool {
    of.quantity() == Quantity::CopiedBytes && of.max_absolute_difference() > 0.0
}

/// What was predicted, with the accounting of its bytes or the link of its copies.
fn quantity(of: &PredictionErrors) -> String {
    named(of.quantity(), of.accounting, of.link())
}

/// A quantity for people, with its accounting or its link.
pub fn named(quantity: Quantity, of: i32, link: MemoryPlace) -> String {
    let link = word(link.as_str_name(), "MEMORY_PLACE_");
    match quantity {
        Quantity::PeakBytes => format!("peak bytes ({})", accounting(of)),
        Quantity::IterationSeconds => "iteration seconds".to_owned(),
        Quantity::WaitedSeconds => format!("waited seconds ({link})"),
        Quantity::CopiedBytes => format!("copied bytes ({link})"),
        Quantity::Unspecified => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::v1::{Calibration, MemoryAccounting};

    use super::*;

    /// Errors are signed, bytes name their accounting, and a correction says what it was learnt from.
    #[test]
    fn a_row_has_errors_and_the_correction() {
        let correction = Calibration {
            version: "correction/1+abc".to_owned(),
            factor: 1.0432,
            explanation: "the median over 3 plans".to_owned(),
            ..Calibration::default()
        };
        let of = PredictionErrors {
            device_kind: "cpu".to_owned(),
            predictor: "component/1".to_owned(),
            quantity: Quantity::PeakBytes.into(),
            accounting: MemoryAccounting::Allocated.into(),
            pair_count: 9,
            plan_count: 3,
            mean_error_ratio: -0.041,
            mean_absolute_error_ratio: 0.05,
            p90_absolute_error_ratio: 0.08,
            max_absolute_error_ratio: 0.1,
            calibration: Some(correction),
            ..PredictionErrors::default()
        };
        assert_eq!(
            list(&[of], Look::PLAIN),
            "device kind  predictor    of                      pairs  plans  mean error  mean size    p90  largest  correction\n\
             cpu          component/1  peak bytes (allocated)      9      3      -4.1 %      5.0 %  8.0 %   10.0 %      x1.043\n\
             error: predicted / measured - 1, negative: predicted too low\n\
             correction/1+abc: the median over 3 plans\n"
        );
        assert!(list(&[], Look::PLAIN).starts_with("no pairs of"));
    }

    /// Pairs come below, in their order, each with its unit, what measured it, and its error as the rows above have it.
    #[test]
    fn pairs_are_below_the_errors_in_their_order() {
        let pair = |quantity: Quantity, predicted: f64, measured: f64| PredictionPair {
            plan: "plans/7f3c".to_owned(),
            source: "runs/01".to_owned(),
            device_kind: "cpu".to_owned(),
            predictor: "component/1".to_owned(),
            quantity: quantity.into(),
            predicted_value: predicted,
            measured_value: measured,
            ..PredictionPair::default()
        };
        let peak = PredictionPair {
            accounting: MemoryAccounting::Allocated.into(),
            ..pair(Quantity::PeakBytes, 1_610_612_736.0, 1_073_741_824.0)
        };
        let told = [
            peak,
            pair(Quantity::IterationSeconds, 0.3, 0.4),
            PredictionPair { link: MemoryPlace::Host.into(), ..pair(Quantity::WaitedSeconds, 0.0, 0.25) },
            pair(Quantity::IterationSeconds, 0.3, 0.0),
        ];
        assert_eq!(
            pairs(&told, Look::PLAIN),
            "plan  of                      predicted  measured      error  device kind  predictor    measured in  at\n\
             7f3c  peak bytes (allocated)   1.50 GiB  1.00 GiB    +50.0 %  cpu          component/1  runs/01      -\n\
             7f3c  iteration seconds        300.0 ms  400.0 ms    -25.0 %  cpu          component/1  runs/01      -\n\
             7f3c  waited seconds (host)         0 s  250.0 ms  -250.0 ms  cpu          component/1  runs/01      -\n\
             7f3c  iteration seconds        300.0 ms       0 s          -  cpu          component/1  runs/01      -\n"
        );
        assert_eq!(pairs(&[], Look::PLAIN), NONE);
    }

    /// What was measured beside other programs is no pair of seconds, which is said also where there is no other.
    #[test]
    fn seconds_that_are_left_out_are_counted() {
        let told = |errors: &[PredictionErrors], contended_trials| {
            let errors = errors.to_vec();
            ListPredictionErrorsResponse {
                prediction_errors: errors,
                contended_trial_count: contended_trials,
                ..Default::default()
            }
            .table(Look::PLAIN)
        };
        let some = [PredictionErrors::default()];
        for errors in [&[][..], &some] {
            assert!(told(errors, 1).contains(
                "\nthe errors exclude the seconds measured in 1 trial, because other programs used its devices"
            ));
            assert!(told(errors, 7).contains(
                "\nthe errors exclude the seconds measured in 7 trials, because other programs used"
            ));
            assert!(!told(errors, 0).contains("exclude"));
        }
    }

    fn of_copies(quantity: Quantity, link: MemoryPlace, errors: [f64; 4]) -> PredictionErrors {
        let [mean, mean_absolute, p90, largest] = errors.map(Some);
        PredictionErrors {
            device_kind: "cpu".to_owned(),
            predictor: "component/1".to_owned(),
            quantity: quantity.into(),
            link: link.into(),
            pair_count: 4,
            plan_count: 2,
            mean_difference: mean,
            mean_absolute_difference: mean_absolute,
            p90_absolute_difference: p90,
            max_absolute_difference: largest,
            ..PredictionErrors::default()
        }
    }

    /// Errors of what may be 0 have its unit, nothing corrects them, and bytes that are not as predicted are told.
    #[test]
    fn waits_and_copies_have_units_and_bytes_an_alarm() {
        let waits = of_copies(Quantity::WaitedSeconds, MemoryPlace::Host, [-0.0042, 0.005, 0.1, 1.25]);
        let exact = of_copies(Quantity::CopiedBytes, MemoryPlace::Host, [0.0; 4]);
        let wrong = of_copies(Quantity::CopiedBytes, MemoryPlace::Peers, [-0.25, 0.25, 0.7, 1.0]);
        let told = list(&[waits.clone(), exact.clone(), wrong], Look::PLAIN);
        let lines: Vec<&str> = told.lines().collect();
        let ends = |line: &str, end: &str| assert!(line.ends_with(end), "{line}");
        ends(
            lines[1],
            "waited seconds (host)      4      2     -4.2 ms     5.0 ms  100.0 ms   1.25 s           -",
        );
        ends(
            lines[2],
            "copied bytes (host)        4      2        +0 B        0 B       0 B      0 B           -",
        );
        ends(
            lines[3],
            "copied bytes (peers)       4      2        -1 B        1 B       1 B      1 B           -",
        );
        assert!(lines[5].ends_with("is predicted - measured, because a measured 0 has no ratio"), "{told}");
        assert!(
            lines[6].starts_with(
                "copied bytes (peers) by component/1 on cpu: a plan states its copies to the byte"
            ),
            "{told}"
        );
        assert_eq!(lines.len(), 7, "what is exact is no defect: {told}");
        assert!(!list(&[waits, exact], Look::PLAIN).contains("defect"));
    }
}
