//! `ListPredictionErrors`, and the corrections that follow from the same pairs.

use loadmaster_proto::wire::v1;

use super::Plans;
use crate::rpc::blocking::blocking;
use crate::rpc::error::ApiError;
use crate::rpc::messages::count;
use crate::store::records::MeasuredPlan;
use loadmaster_planning::learn::{Corrections, ErrorStatistics, Pair, Quantity, Subject, errors, pairs};

/// The newest trials, and the newest observations, that are judged: as many of each.
const JUDGED: u32 = 2_000;

impl Plans {
    /// What earlier trials and observations teach about predictions.
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
        let kind = request.device_kind;
        let measured = self.store.measured_plans(JUDGED).await?;
        blocking("judging predictions failed", move || {
            let pairs: Vec<Pair> = measured
                .iter()
                .filter(|of| kind.is_empty() || of.device_kind == kind)
                .flat_map(pairs_of)
                .collect();
            let corrections = Corrections::of(&pairs);
            let errors = errors(&pairs).into_iter().map(|of| message(&of, &corrections)).collect();
            Ok::<_, ApiError>(v1::ListPredictionErrorsResponse { errors })
        })
        .await
    }
}

fn pairs_of(of: &MeasuredPlan) -> Vec<Pair> {
    pairs(&of.plan, &of.content, &of.device_kind, &of.measured)
}

fn message(of: &ErrorStatistics, corrections: &Corrections) -> v1::PredictionErrors {
    let Subject { device_kind, predictor, quantity } = &of.subject;
    let correction = corrections.get(device_kind, predictor, *quantity);
    let (quantity, ledger) = quantity_message(*quantity);
    v1::PredictionErrors {
        device_kind: device_kind.clone(),
        predictor: predictor.clone(),
        quantity: quantity.into(),
        ledger: ledger.into(),
        count: number(of.count),
        plans: number(of.plans),
        mean_error_ratio: of.mean,
        mean_absolute_error_ratio: of.mean_absolute,
        p90_absolute_error_ratio: of.p90_absolute,
        max_absolute_error_ratio: of.max_absolute,
        correction: correction.map(|of| (&of.applied()).into()),
    }
}

fn quantity_message(quantity: Quantity) -> (v1::Quantity, v1::Ledger) {
    match quantity {
        Quantity::PeakBytes(ledger) => (v1::Quantity::PeakBytes, ledger.into()),
        Quantity::IterationSeconds => (v1::Quantity::IterationSeconds, v1::Ledger::Unspecified),
    }
}

fn number(of: usize) -> i32 {
    count(u32::try_from(of).unwrap_or(u32::MAX))
}
