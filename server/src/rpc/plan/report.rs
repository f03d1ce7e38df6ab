//! `CreateReport`, `GetReport`, `ListReports` and `DeleteReport`.

use loadmaster_filter::Query;
use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::error::{Invalid, required};
use loadmaster_proto::name::{PlanName, parse_report};
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::report::Report;
use loadmaster_proto::wire::v1;

use super::Plans;
use crate::rpc::error::ApiError;
use crate::rpc::messages::{request_key, time};
use crate::rpc::page::{Listing, listing};
use crate::store::fields;
use crate::store::records::{PageRequest, ReportRecord};

/// Stands for all plans in `ListReports`.
const ALL_PLANS: &str = "plans/-";
/// Most reports that a plan shows.
const SHOWN: u32 = 10;

impl Plans {
    pub(super) async fn create(&self, mut request: v1::CreateReportRequest) -> Result<v1::Report, ApiError> {
        let id = std::mem::take(&mut request.request_id);
        let key = request_key(&id, &request)?;
        let plan = PlanName::parse("parent", &request.parent)?;
        let report = Report::try_from(required("report", request.report)?)
            .map_err(|invalid| invalid.under("report"))?;
        believable(&plan, &self.store.get_plan(&plan).await?.content, &report)?;
        Ok(message(&self.store.put_report(&plan, &report, key.as_ref()).await?))
    }

    pub(super) async fn reports(
        &self,
        request: v1::ListReportsRequest,
    ) -> Result<v1::ListReportsResponse, ApiError> {
        let plan = match request.parent.as_str() {
            ALL_PLANS => None,
            name => Some(PlanName::parse("parent", name)?),
        };
        let (listing, page) = listing!(request, "ListReports", &[&request.parent], REPORTS);
        if let Some(plan) = &plan {
            // An empty list of a plan that does not exist would look like a plan that no one ran.
            self.store.get_plan(plan).await?;
        }
        let page = self.store.list_reports(plan.as_ref(), listing.query(), &page).await?;
        let (reports, next_page_token) = listing.answer(page, message);
        Ok(v1::ListReportsResponse { reports, next_page_token })
    }

    /// One report.
    pub(super) async fn report(&self, name: &str) -> Result<v1::Report, ApiError> {
        let (plan, id) = parse_report("name", name)?;
        Ok(message(&self.store.get_report(&plan, &id).await?))
    }

    pub(super) async fn delete_report(&self, request: v1::DeleteReportRequest) -> Result<(), ApiError> {
        let (plan, id) = parse_report("name", &request.name)?;
        Ok(self.store.delete_report(&plan, &id).await?)
    }

    /// The newest reports of a plan.
    pub(super) async fn newest_reports(&self, plan: &PlanName) -> Result<Vec<v1::Report>, ApiError> {
        let page = PageRequest { size: SHOWN, after: None };
        Ok(self
            .store
            .list_reports(Some(plan), &Query::default(), &page)
            .await?
            .rows
            .iter()
            .map(message)
            .collect())
    }
}

/// Refuses what cannot have been measured of a plan on its kind of device. On another kind devices are of other
/// sizes, which no one here knows.
fn believable(name: &PlanName, plan: &Plan, report: &Report) -> Result<(), Invalid> {
    // Stages that take turns on a device have one peak together.
    let stages = plan.first_stages();
    let (reported, wanted) = (report.measured.stage_peaks.len(), stages.len());
    if reported != 0 && reported != wanted {
        let (units, unit) = if plan.is_interleaved() {
            ("devices along its pipeline", "device")
        } else {
            ("stages", "stage")
        };
        return Err(Invalid::field(
            "report.stage_peaks",
            format!(
                "{reported} peaks were reported, but {name} has {wanted} {units}. Report one peak for each {unit}, or \
                 no peaks."
            ),
        ));
    }
    if report.device_kind.as_ref().is_some_and(|kind| *kind != plan.device_kind) {
        return Ok(());
    }
    for (index, (stage, peak)) in stages.iter().zip(&report.measured.stage_peaks).enumerate() {
        let largest = stage.devices.iter().map(|device| device.capacity).max().unwrap_or(stage.capacity);
        if peak.bytes.0 > most(&plan.device_kind, largest, peak.ledger) {
            let (bytes, largest) = (peak.bytes, Bytes(largest));
            return Err(Invalid::field(
                format!("report.stage_peaks[{index}].bytes"),
                format!(
                    "{bytes} is more than the {largest} of a device of stage {index} of {name}. Check the unit and the device \
                     kind."
                ),
            ));
        }
    }
    Ok(())
}

/// The most bytes that can be measured of a device with this capacity. A slot of a CPU enforces what it allows. Of a
/// GPU the capacity may be less than it has: what a share of it or a user's caution leaves to training.
fn most(kind: &str, capacity: u64, ledger: Accounting) -> u64 {
    const BEYOND: u64 = 2;
    match ledger {
        Accounting::Allocated if kind == CPU_KIND => capacity,
        _ => capacity.saturating_mul(BEYOND),
    }
}

fn message(record: &ReportRecord) -> v1::Report {
    let name = record.name();
    let stage_peaks = record.report.measured.stage_peaks.iter().map(|peak| peak.to_wire(&name)).collect();
    v1::Report {
        plan: record.plan.to_string(),
        create_time: Some(time(record.create_time)),
        stage_peaks,
        name,
        ..(&record.report).into()
    }
}
