//! What a correction promises, on random pairs.

use loadmaster_proto::accounting::Accounting;
use proptest::prelude::*;

use super::*;

fn pair(plan: &str, quantity: Quantity, predicted: f64, measured: f64) -> Pair {
    let subject = Subject { device_kind: "cpu".to_owned(), predictor: "component/1".to_owned(), quantity };
    Pair { subject, plan: format!("plans/{plan}"), predicted, measured }
}

const BYTES: Quantity = Quantity::PeakBytes(Accounting::Allocated);
const WAITED: Quantity = Quantity::WaitedSeconds(Link::Host);

fn ratio_pairs(ratios: &[(&str, f64)]) -> Vec<Pair> {
    ratios.iter().map(|&(plan, ratio)| pair(plan, BYTES, 1000.0, 1000.0 * ratio)).collect()
}

fn factor(pairs: &[Pair]) -> Option<f64> {
    Corrections::of(pairs).bytes("cpu", "component/1", Accounting::Allocated).map(|found| found.factor)
}

/// Any pairs of a few subjects and plans, also useless ones.
fn any_pairs() -> impl Strategy<Value = Vec<Pair>> {
    let kind = prop_oneof![Just("cpu"), Just("h200")];
    let quantity = prop::sample::select(vec![
        BYTES,
        Quantity::PeakBytes(Accounting::Device),
        Quantity::PeakBytes(Accounting::Host),
        Quantity::IterationSeconds,
        WAITED,
        Quantity::CopiedBytes(Link::Peers),
    ]);
    let value = prop_oneof![9 => 1e-3..1e12, 1 => prop_oneof![Just(0.0), Just(f64::NAN), Just(-1.0)]];
    let one = (kind, quantity, 0_u8..6, value.clone(), value).prop_map(
        |(kind, quantity, plan, predicted, measured)| {
            let mut pair = pair(&format!("p{plan}"), quantity, predicted, measured);
            pair.subject.device_kind = kind.to_owned();
            pair
        },
    );
    prop::collection::vec(one, 0..40)
}

/// The error once more: a ratio of what is above 0, a difference of what may be 0.
fn error_by_definition(pair: &Pair) -> Option<f64> {
    let both = [pair.predicted, pair.measured];
    match pair.subject.quantity {
        Quantity::WaitedSeconds(_) | Quantity::CopiedBytes(_) => {
            both.iter().all(|of| of.is_finite() && *of >= 0.0).then_some(pair.predicted - pair.measured)
        }
        Quantity::PeakBytes(_) | Quantity::IterationSeconds => {
            both.iter().all(|of| of.is_finite() && *of > 0.0).then(|| pair.predicted / pair.measured - 1.0)
        }
    }
}

/// The statistics once more, straight from their definitions.
fn by_definition(pairs: &[&Pair]) -> (usize, f64, f64, f64) {
    let errors: Vec<f64> = pairs.iter().filter_map(|pair| error_by_definition(pair)).collect();
    let count = errors.len() as f64;
    let mean = errors.iter().sum::<f64>() / count;
    let absolute = errors.iter().map(|error| error.abs()).sum::<f64>() / count;
    let most = errors.iter().map(|error| error.abs()).fold(0.0, f64::max);
    (errors.len(), mean, absolute, most)
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

proptest! {
    /// Every usable pair is counted once, with those of its own device kind, predictor and quantity alone.
    #[test]
    fn statistics_are_those_of_the_definition(pairs in any_pairs()) {
        let found = errors(&pairs);
        let usable: Vec<&Pair> = pairs.iter().filter(|pair| error_by_definition(pair).is_some()).collect();
        prop_assert_eq!(found.iter().map(|of| of.count).sum::<usize>(), usable.len());
        for of in &found {
            let own: Vec<&Pair> = usable.iter().copied().filter(|pair| pair.subject == of.subject).collect();
            let (count, mean, absolute, most) = by_definition(&own);
            prop_assert_eq!(of.count, count);
            prop_assert!(close(of.mean, mean) && close(of.mean_absolute, absolute) && close(of.max_absolute, most));
            prop_assert!(of.p90_absolute <= of.max_absolute);
            let below = own.iter()
                .filter(|pair| error_by_definition(pair).unwrap().abs() <= of.p90_absolute * (1.0 + 1e-12))
                .count();
            prop_assert!(below as f64 >= (0.9 * (count - 1) as f64).floor());
        }
    }

    /// A factor is within its range, is learnt from enough plans, of nothing that may be 0 and of nothing at the host, and
    /// depends on the set of pairs alone; so does its version.
    #[test]
    fn corrections_do_not_depend_on_the_order(pairs in any_pairs(), seed in any::<u64>()) {
        let corrections = Corrections::of(&pairs);
        let mut shuffled = pairs.clone();
        shuffled.sort_by_key(|pair| {
            let mixed = pair.predicted.to_bits() ^ pair.measured.to_bits().rotate_left(17) ^ seed;
            mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        prop_assert_eq!(&Corrections::of(&shuffled), &corrections);
        for of in errors(&pairs) {
            let Subject { device_kind, predictor, quantity } = &of.subject;
            let found = corrections.get(device_kind, predictor, *quantity);
            let is_mended = match quantity {
                Quantity::PeakBytes(ledger) => *ledger != Accounting::Host,
                Quantity::IterationSeconds => true,
                Quantity::WaitedSeconds(_) | Quantity::CopiedBytes(_) => false,
            };
            prop_assert_eq!(found.is_some(), is_mended && of.plans >= LEAST_PLANS);
            if let Some(found) = found {
                prop_assert!((0.5..=2.0).contains(&found.factor));
                prop_assert_eq!((&found.subject, found.count, found.plans), (&of.subject, of.count, of.plans));
            }
        }
    }

    /// Predictions that are wrong by one constant factor are right after the correction.
    #[test]
    fn a_constant_error_is_corrected_away(
        true_factor in 0.55_f64..1.9,
        predicted in prop::collection::vec(1.0_f64..1e12, 3..20),
    ) {
        let pairs: Vec<Pair> = predicted.iter().enumerate()
            .map(|(plan, &bytes)| pair(&format!("p{plan}"), BYTES, bytes, bytes * true_factor))
            .collect();
        let corrections = Corrections::of(&pairs);
        let found = corrections.bytes("cpu", "component/1", Accounting::Allocated).unwrap();
        prop_assert!(close(found.factor, true_factor));
        for pair in &pairs {
            prop_assert!(close(pair.predicted * found.factor, pair.measured));
        }
    }

    /// Less than half of the plans may be wrong without moving the factor out of the others' range.
    #[test]
    fn a_minority_of_plans_moves_nothing(
        right in prop::collection::vec(0.95_f64..1.05, 4..10),
        wrong in prop::collection::vec(1e-3_f64..1e3, 0..4),
    ) {
        let minority = wrong.len().min(right.len() - 1);
        let ratios: Vec<(String, f64)> = right.iter().chain(&wrong[..minority]).enumerate()
            .map(|(plan, &ratio)| (format!("p{plan}"), ratio)).collect();
        let ratios: Vec<(&str, f64)> = ratios.iter().map(|(plan, ratio)| (plan.as_str(), *ratio)).collect();
        let found = factor(&ratio_pairs(&ratios)).unwrap();
        prop_assert!((0.95..=1.05).contains(&found), "{}", found);
    }
}

/// A plan that was tried often, or has many stages, is one voice.
#[test]
fn every_plan_has_one_voice() {
    let mut ratios = vec![("a", 1.0), ("b", 1.1)];
    ratios.extend(std::iter::repeat_n(("c", 1.9), 50));
    assert!(close(factor(&ratio_pairs(&ratios)).unwrap(), 1.1));
}

/// Two plans may agree by chance.
#[test]
fn two_plans_teach_nothing() {
    assert_eq!(factor(&ratio_pairs(&[("a", 1.2), ("a", 1.2), ("b", 1.2)])), None);
}

/// What one memory accounting, device kind or predictor teaches says nothing about another.
#[test]
fn ledgers_kinds_and_predictors_are_apart() {
    let learnt = Corrections::of(&ratio_pairs(&[("a", 1.2), ("b", 1.2), ("c", 1.2)]));
    assert!(learnt.bytes("cpu", "component/1", Accounting::Allocated).is_some());
    assert_eq!(learnt.bytes("cpu", "component/1", Accounting::Device), None);
    assert_eq!(learnt.bytes("h200", "component/1", Accounting::Allocated), None);
    assert_eq!(learnt.bytes("cpu", "capture/1", Accounting::Allocated), None);
    assert_eq!(learnt.seconds("cpu", "component/1"), None);
}

/// A factor that is beyond belief is clamped, and its explanation says so; every explanation states the
/// spread.
#[test]
fn explanations_name_the_spread_and_the_clamp() {
    let explain = |ratios: &[(&str, f64)]| {
        let learnt = Corrections::of(&ratio_pairs(ratios));
        learnt.bytes("cpu", "component/1", Accounting::Allocated).unwrap().clone()
    };
    let clamped = explain(&[("a", 3.0), ("b", 4.0), ("c", 5.0)]);
    assert!(close(clamped.factor, 2.0));
    assert!(
        clamped.explanation.contains("4.000. It is the median of 3 plans (3 pairs of values)"),
        "{}",
        clamped.explanation
    );
    assert!(clamped.explanation.contains("limited to 2"), "{}", clamped.explanation);
    let plain = explain(&[("a", 0.9), ("b", 1.0), ("c", 1.1)]);
    assert!(plain.explanation.contains("from 0.900 to 1.100"), "{}", plain.explanation);
    assert!(plain.version.starts_with("correction/1+") && plain.version != clamped.version);
}

/// A wait of nothing is as good a figure as any: predicted or measured as 0, its error is a difference, and never infinite.
#[test]
fn waits_of_nothing_have_differences() {
    let waits = [(0.0, 0.0), (0.0, 0.25), (0.5, 0.0), (f64::NAN, 1.0), (-1.0, 1.0), (1.0, f64::INFINITY)];
    let pairs: Vec<Pair> =
        waits.iter().map(|&(predicted, measured)| pair("p", WAITED, predicted, measured)).collect();
    let told: Vec<Option<f64>> = pairs.iter().map(Pair::error).collect();
    assert_eq!(told, [Some(0.0), Some(-0.25), Some(0.5), None, None, None]);
    let [found] = &errors(&pairs)[..] else { panic!("one subject") };
    assert_eq!((found.count, found.max_absolute, found.mean_absolute), (3, 0.5, 0.25));
    assert!(close(found.mean, 0.25 / 3.0));
    // Of a peak nothing follows from a 0.
    assert_eq!([pair("p", BYTES, 0.0, 1.0), pair("p", BYTES, 1.0, 0.0)].map(|of| of.error()), [None, None]);
}
