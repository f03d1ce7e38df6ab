//! `ReportObservation` and `ListObservations`.

use loadmaster_proto::error::{Invalid, required};
use loadmaster_proto::name::PlanName;
use loadmaster_proto::observation::Observation;
use loadmaster_proto::wire::v1;

use super::Plans;
use crate::rpc::error::ApiError;
use crate::rpc::messages::time;
use crate::rpc::page::Listing;
use crate::rpc::validate::request_key;
use crate::store::records::{ObservationRecord, PageRequest};

/// Stands for all plans in `ListObservations`.
const ALL_PLANS: &str = "plans/-";
/// Most observations that a plan shows.
const SHOWN: u32 = 10;

impl Plans {
    pub(super) async fn report(
        &self,
        mut request: v1::ReportObservationRequest,
    ) -> Result<v1::Observation, ApiError> {
        let id = std::mem::take(&mut request.request_id);
        let key = request_key(&id, &request)?;
        let plan = PlanName::parse("plan", &request.plan)?;
        let observation = Observation::try_from(required("observation", request.observation)?)
            .map_err(|invalid| invalid.under("observation"))?;
        let stages = self.store.get_plan(&plan).await?.content.stages.len();
        let reported = observation.measured.stage_peaks.len();
        if reported != 0 && reported != stages {
            return Err(Invalid::field(
                "observation.stage_peaks",
                format!("has {reported} peaks, {plan} has {stages} stages: give one for each, or none"),
            )
            .into());
        }
        Ok(message(&self.store.put_observation(&plan, &observation, key.as_ref()).await?))
    }

    pub(super) async fn observations(
        &self,
        request: v1::ListObservationsRequest,
    ) -> Result<v1::ListObservationsResponse, ApiError> {
        let plan = match request.plan.as_str() {
            ALL_PLANS => None,
            name => Some(PlanName::parse("plan", name)?),
        };
        let listing = Listing::new("ListObservations", &[&request.plan]);
        let page = listing.request(request.page_size, &request.page_token)?;
        if let Some(plan) = &plan {
            // An empty list of a plan that does not exist would look like a plan that nobody ran.
            self.store.get_plan(plan).await?;
        }
        let page = self.store.list_observations(plan.as_ref(), &page).await?;
        Ok(v1::ListObservationsResponse {
            next_page_token: listing.next_token(&page),
            observations: page.rows.iter().map(message).collect(),
        })
    }

    /// The newest observations of a plan.
    pub(super) async fn newest_observations(
        &self,
        plan: &PlanName,
    ) -> Result<Vec<v1::Observation>, ApiError> {
        let page = PageRequest { size: SHOWN, after: None };
        Ok(self.store.list_observations(Some(plan), &page).await?.rows.iter().map(message).collect())
    }
}

fn message(record: &ObservationRecord) -> v1::Observation {
    let name = record.name();
    let stage_peaks =
        record.observation.measured.stage_peaks.iter().map(|peak| peak.to_wire(&name)).collect();
    v1::Observation {
        plan: record.plan.to_string(),
        create_time: Some(time(record.create_time)),
        stage_peaks,
        name,
        ..(&record.observation).into()
    }
}
