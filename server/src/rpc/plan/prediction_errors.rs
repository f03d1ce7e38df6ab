//! `ListPredictionErrors` and `ListPredictionPairs`, and the corrections that follow from the same pairs.

use jiff::Timestamp;
use loadmaster_filter::{Field, Query, Value};
use loadmaster_predict::learn::{Corrections, ErrorStatistics, Link, Pair, Quantity, Subject, errors, pairs};
use loadmaster_proto::wire::v1;

use super::Plans;
use crate::rpc::blocking::blocking;
use crate::rpc::error::ApiError;
use crate::rpc::messages::{count, time};
use crate::rpc::page::{Listing, listing};
use crate::store::fields;
use crate::store::records::{Cursor, MeasuredPlan, Positioned};

/// The newest trials, and the newest reports, that are judged: as many of each.
const JUDGED: u32 = 2_000;

impl Plans {
    /// What earlier trials and reports teach about predictions.
    pub(super) async fn corrections(&self) -> Result<Corrections, ApiError> {
        let measured = self.store.measured_plans(JUDGED).await?;
        blocking("learning corrections failed", move || {
            let pairs: Vec<Pair> = measured.iter().flat_map(pairs_of).collect();
            Ok::<_, ApiError>(Corrections::of(&pairs))
        })
        .await
    }

    pub(super) async fn prediction_errors(
        &self,
        request: v1::ListPredictionErrorsRequest,
    ) -> Result<v1::ListPredictionErrorsResponse, ApiError> {
        let v1::ListPredictionErrorsRequest { device_kind: kind, filter, page_size, page_token } = request;
        let listing = Listing::of("ListPredictionErrors", &[&kind], fields::PAIRS, (&filter, ""))?;
        let page = listing.request(page_size, &page_token)?;
        let measured = self.store.measured_plans(JUDGED).await?;
        blocking("judging predictions failed", move || {
            let of_kind = || measured.iter().filter(|of| kind.is_empty() || of.device_kind == kind);
            let contended_trial_count = number(of_kind().filter(|of| of.contended).count());
            let all: Vec<PairRow<'_>> = of_kind().flat_map(PairRow::all).collect();
            let corrections = Corrections::of(&all.iter().map(|row| row.pair.clone()).collect::<Vec<_>>());
            let pairs: Vec<Pair> =
                all.into_iter().filter(|row| row.fits(listing.query())).map(|row| row.pair).collect();
            let rows = errors(&pairs).into_iter().map(|of| (of, Vec::new()));
            let page = page.page_of_all(rows.collect())?;
            let (prediction_errors, next_page_token) = listing.answer(page, |of| message(of, &corrections));
            Ok::<_, ApiError>(v1::ListPredictionErrorsResponse {
                prediction_errors,
                next_page_token,
                contended_trial_count,
            })
        })
        .await
    }

    pub(super) async fn prediction_pairs(
        &self,
        request: v1::ListPredictionPairsRequest,
    ) -> Result<v1::ListPredictionPairsResponse, ApiError> {
        let (listing, page) = listing!(request, "ListPredictionPairs", &[], PAIRS);
        let measured = self.store.measured_plans(JUDGED).await?;
        blocking("listing predictions failed", move || {
            let query = listing.query();
            let mut rows: Vec<PairRow<'_>> =
                measured.iter().flat_map(PairRow::all).filter(|row| row.fits(query)).collect();
            rows.sort_by_cached_key(|row| (row.of.time, row.of.source.clone(), row.position));
            if query.order.is_empty() {
                rows.reverse();
            }
            let rows = query.sorted(rows, |row, field| value(field, row.of, &row.pair));
            let page = page.page_of_all(rows)?;
            let (prediction_pairs, next_page_token) =
                listing.answer(page, |row| pair_message(row.of, &row.pair));
            Ok::<_, ApiError>(v1::ListPredictionPairsResponse { prediction_pairs, next_page_token })
        })
        .await
    }
}

/// A pair of a trial or a report.
struct PairRow<'a> {
    of: &'a MeasuredPlan,
    /// Its position among the pairs of the same trial or report.
    position: usize,
    pair: Pair,
}

impl<'a> PairRow<'a> {
    fn all(of: &'a MeasuredPlan) -> impl Iterator<Item = Self> {
        pairs_of(of).into_iter().enumerate().map(move |(position, pair)| Self { of, position, pair })
    }

    fn fits(&self, query: &Query) -> bool {
        let value = |field: &Field, _: Option<&str>| value(field, self.of, &self.pair);
        query.condition.as_ref().is_none_or(|asked| asked.holds(&value))
    }
}

impl Positioned for PairRow<'_> {
    fn cursor(&self) -> Cursor {
        let id = format!("{}/{}", self.of.source, self.position);
        Cursor { keys: Vec::new(), time: self.of.time, id }
    }
}

impl Positioned for ErrorStatistics {
    fn cursor(&self) -> Cursor {
        let Subject { device_kind, predictor, quantity } = &self.subject;
        let id = format!("{device_kind}/{predictor}/{quantity:?}");
        Cursor { keys: Vec::new(), time: Timestamp::UNIX_EPOCH, id }
    }
}

/// What a filter may ask of a pair.
fn value(field: &Field, of: &MeasuredPlan, pair: &Pair) -> Option<Value> {
    let text = |text: &str| Some(Value::Text(text.to_owned()));
    let number = |number: f64| number.is_finite().then_some(Value::Real(number));
    match field.name {
        "plan" => text(of.plan.id()),
        "profile" => text(of.content.profile.id()),
        "model" => text(of.content.model.id()),
        "device_kind" => text(&of.device_kind),
        "predictor" => text(&pair.subject.predictor),
        "quantity" => text(match pair.subject.quantity {
            Quantity::PeakBytes(_) => "peak-bytes",
            Quantity::IterationSeconds => "iteration-seconds",
            Quantity::WaitedSeconds(_) => "waited-seconds",
            Quantity::CopiedBytes(_) => "copied-bytes",
        }),
        "link" => match pair.subject.quantity {
            Quantity::WaitedSeconds(link) | Quantity::CopiedBytes(link) => text(link.as_str()),
            Quantity::PeakBytes(_) | Quantity::IterationSeconds => None,
        },
        "source" => text(&of.source),
        "predicted" => number(pair.predicted),
        "measured" => number(pair.measured),
        "error" if !pair.subject.quantity.may_be_zero() => number(pair.predicted / pair.measured - 1.0),
        "difference" => number(pair.predicted - pair.measured),
        "create_time" => Some(Value::Time(of.time)),
        _ => None,
    }
}

fn pair_message(of: &MeasuredPlan, pair: &Pair) -> v1::PredictionPair {
    let (quantity, ledger, link) = quantity_message(pair.subject.quantity);
    v1::PredictionPair {
        plan: of.plan.to_string(),
        source: of.source.clone(),
        device_kind: of.device_kind.clone(),
        predictor: pair.subject.predictor.clone(),
        quantity: quantity.into(),
        accounting: ledger.into(),
        link: link.into(),
        predicted_value: pair.predicted,
        measured_value: pair.measured,
        measure_time: Some(time(of.time)),
    }
}

fn pairs_of(of: &MeasuredPlan) -> Vec<Pair> {
    pairs(&of.plan, &of.content, &of.device_kind, &of.measured, &of.copied)
}

fn message(of: &ErrorStatistics, corrections: &Corrections) -> v1::PredictionErrors {
    let Subject { device_kind, predictor, quantity } = &of.subject;
    let correction = corrections.get(device_kind, predictor, *quantity);
    let is_difference = quantity.may_be_zero();
    let ratio = |error: f64| if is_difference { 0.0 } else { error };
    let difference = |error: f64| is_difference.then_some(error);
    let (quantity, ledger, link) = quantity_message(*quantity);
    v1::PredictionErrors {
        device_kind: device_kind.clone(),
        predictor: predictor.clone(),
        quantity: quantity.into(),
        accounting: ledger.into(),
        link: link.into(),
        pair_count: number(of.count),
        plan_count: number(of.plans),
        mean_error_ratio: ratio(of.mean),
        mean_absolute_error_ratio: ratio(of.mean_absolute),
        p90_absolute_error_ratio: ratio(of.p90_absolute),
        max_absolute_error_ratio: ratio(of.max_absolute),
        mean_difference: difference(of.mean),
        mean_absolute_difference: difference(of.mean_absolute),
        p90_absolute_difference: difference(of.p90_absolute),
        max_absolute_difference: difference(of.max_absolute),
        calibration: correction.map(|of| (&of.applied()).into()),
    }
}

fn quantity_message(quantity: Quantity) -> (v1::Quantity, v1::MemoryAccounting, v1::MemoryPlace) {
    let nowhere = v1::MemoryPlace::Unspecified;
    match quantity {
        Quantity::PeakBytes(ledger) => (v1::Quantity::PeakBytes, ledger.into(), nowhere),
        Quantity::IterationSeconds => {
            (v1::Quantity::IterationSeconds, v1::MemoryAccounting::Unspecified, nowhere)
        }
        Quantity::WaitedSeconds(link) => {
            (v1::Quantity::WaitedSeconds, v1::MemoryAccounting::Unspecified, place(link))
        }
        Quantity::CopiedBytes(link) => {
            (v1::Quantity::CopiedBytes, v1::MemoryAccounting::Unspecified, place(link))
        }
    }
}

fn place(link: Link) -> v1::MemoryPlace {
    match link {
        Link::Host => v1::MemoryPlace::Host,
        Link::Peers => v1::MemoryPlace::Peers,
    }
}

fn number(of: usize) -> i32 {
    count(u32::try_from(of).unwrap_or(u32::MAX))
}
