//! `loadmaster plan report`, `observations` and `errors`: what real runs needed, and how right predictions
//! were.

use clap::Args;
use loadmaster_proto::wire::v1;

use crate::failure::Failure;
use crate::input::choice::choice;
use crate::input::parse;
use crate::input::parse::request_id;
use crate::session::client::plans;
use crate::session::context::Context;
use crate::session::list::{Asked, ListArgs};
use crate::session::page;

/// See [`PlanVerb::Report`](super::PlanVerb::Report).
#[derive(Debug, Args)]
pub(crate) struct Report {
    /// The plan that was trained: `plans/ID` or the id alone.
    #[arg(value_parser = parse::plan)]
    plan: String,

    /// Mean time of one iteration, for example 0.42s.
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, required_unless_present = "peak")]
    iteration: Option<std::time::Duration>,

    /// Peak of each stage's fullest device, in the order of the stages, for example 1.2GiB,1.1GiB.
    #[arg(long, value_name = "BYTES,…", value_parser = parse::bytes, value_delimiter = ',', requires = "ledger")]
    peak: Vec<i64>,

    /// The account that the peaks were read from; numbers of different ledgers are never compared.
    #[arg(long, value_parser = choice::<v1::Ledger>(), requires = "peak")]
    ledger: Option<v1::Ledger>,

    /// How many iterations the numbers are of.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i64).range(1..))]
    iterations: i64,

    /// Kind of the devices. Default: the plan's.
    #[arg(long, value_name = "KIND", default_value = "", hide_default_value = true)]
    device_kind: String,

    /// Where the numbers are from: launcher and version, job.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    source: String,

    /// UUID that makes a repeated command return the first one's observation.
    #[arg(long, value_name = "UUID", value_parser = parse::uuid)]
    request_id: Option<String>,
}

impl Report {
    fn request(self) -> v1::ReportObservationRequest {
        let ledger = self.ledger.unwrap_or_default();
        let figure = |bytes| v1::MemoryFigure { bytes, ledger: ledger.into(), ..v1::MemoryFigure::default() };
        v1::ReportObservationRequest {
            plan: self.plan,
            observation: Some(v1::Observation {
                iteration_seconds: self.iteration.map_or(0.0, |iteration| iteration.as_secs_f64()),
                stage_peaks: self.peak.into_iter().map(figure).collect(),
                iterations: self.iterations,
                device_kind: self.device_kind,
                source: self.source,
                ..v1::Observation::default()
            }),
            request_id: request_id(self.request_id.as_ref()),
        }
    }

    /// Stores what was measured and prints it.
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        let observation = context
            .client
            .call(self.request(), async |channel, q| plans(channel).report_observation(q).await)
            .await?;
        context.output.print(&observation)
    }
}

/// See [`PlanVerb::Observations`](super::PlanVerb::Observations).
#[derive(Debug, Args)]
pub(crate) struct Observations {
    /// The plan: `plans/ID` or the id alone. Default: all plans.
    #[arg(value_parser = parse::plan)]
    plan: Option<String>,

    #[command(flatten)]
    list: ListArgs,
}

impl Observations {
    /// Prints what was reported.
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        let plan = self.plan.unwrap_or_else(|| "plans/-".to_owned());
        let Asked { filter, order_by, limit } = self.list.asked()?;
        let observations = page::all(context, limit, async |page_size, page_token| {
            let request = v1::ListObservationsRequest {
                plan: plan.clone(),
                page_size,
                page_token,
                filter: filter.clone(),
                order_by: order_by.clone(),
            };
            context.client.call(request, async |channel, q| plans(channel).list_observations(q).await).await
        });
        context.output.print(&observations.await?)
    }
}

/// See [`PlanVerb::Errors`](super::PlanVerb::Errors).
#[derive(Debug, Args)]
pub(crate) struct Errors {
    /// Only this kind of device, as `loadmaster worker list` shows it.
    #[arg(long, value_name = "KIND", default_value = "", hide_default_value = true)]
    device_kind: String,
}

impl Errors {
    /// Prints how right predictions were.
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        let request = v1::ListPredictionErrorsRequest { device_kind: self.device_kind };
        let errors = context
            .client
            .call(request, async |channel, q| plans(channel).list_prediction_errors(q).await)
            .await?;
        context.output.print(&errors)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        report: Report,
    }

    fn parse(arguments: &[&str]) -> Result<v1::ReportObservationRequest, clap::Error> {
        let arguments = std::iter::once("report").chain(arguments.iter().copied());
        Ok(Program::try_parse_from(arguments)?.report.request())
    }

    /// Peaks carry the ledger that was named, and times their unit.
    #[test]
    fn a_report_keeps_units_and_ledger() {
        let request = parse(&["7f3c", "--iteration", "420ms", "--peak", "1GiB,512MiB", "--ledger", "device"]);
        let request = request.unwrap();
        assert_eq!(request.plan, "plans/7f3c");
        let observation = request.observation.unwrap();
        assert_eq!((observation.iteration_seconds, observation.iterations), (0.42, 1));
        let peaks: Vec<(i64, v1::Ledger)> =
            observation.stage_peaks.iter().map(|figure| (figure.bytes, figure.ledger())).collect();
        assert_eq!(peaks, [(1 << 30, v1::Ledger::Device), (512 << 20, v1::Ledger::Device)]);
    }

    /// Bytes without a ledger, and a report of nothing, are refused before anybody is asked.
    #[test]
    fn bytes_need_a_ledger_and_reports_a_number() {
        assert!(parse(&["7f3c", "--peak", "1GiB"]).is_err());
        assert!(parse(&["7f3c", "--iteration", "1s", "--ledger", "device"]).is_err());
        assert!(parse(&["7f3c"]).is_err());
        assert!(parse(&["7f3c", "--iteration", "1s"]).is_ok());
    }
}
