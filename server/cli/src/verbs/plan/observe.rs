//! `loadmaster plan report`, `reports` and `errors`: measurements of trainings, and errors of predictions.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;
use loadmaster_proto::wire::v1;
use loadmaster_show::choice::Choice as _;

use crate::failure::Failure;
use crate::input::megatron::{self, MegatronLog};
use crate::input::parse;
use crate::input::parse::{choice, request_id};
use crate::session::context::Context;
use crate::session::list::{FilterArg, ListArgs, ListOptions};
use crate::session::page::{self, Limit};
use crate::session::{address, watch};

/// See [`PlanVerb::Report`](super::PlanVerb::Report).
#[derive(Debug, Args)]
pub(crate) struct Report {
    /// The plan that was trained: `plans/ID` or the id alone.
    #[arg(value_parser = parse::plan)]
    plan: String,

    /// Mean time of one iteration, for example 0.42s.
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, required_unless_present = "peaks")]
    iteration_time: Option<std::time::Duration>,

    /// Peak memory of each stage, on its device with the highest peak, for example 1.2GiB,1.1GiB.
    #[arg(long, value_name = "BYTES,…", value_parser = parse::bytes, value_delimiter = ',', group = "peaks")]
    stage_peaks: Vec<i64>,

    /// A log of Megatron-LM. Times are in the lines of the last rank, and peaks in those of one rank of each stage.
    #[arg(long, value_name = "FILE", group = "peaks", conflicts_with_all = ["iteration_time", "iterations"])]
    megatron_log: Option<PathBuf>,

    /// Memory accounting of the peaks. Peaks of different accountings are never compared [default: that of the plan's
    /// prediction; of a log allocated].
    #[arg(long, value_parser = choice::<v1::MemoryAccounting>(), requires = "peaks")]
    accounting: Option<v1::MemoryAccounting>,

    /// Number of iterations that were measured.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i64).range(1..))]
    iterations: i64,

    /// Kind of the devices. Default: the plan's.
    #[arg(long, value_name = "KIND", default_value = "", hide_default_value = true)]
    device_kind: String,

    /// Origin of the numbers: framework and version, job.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    source: String,

    /// UUID that makes a repeated command return the first one's report.
    #[arg(long, value_name = "UUID", value_parser = parse::uuid)]
    request_id: Option<String>,
}

impl Report {
    /// Stores what was measured and prints it.
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        let request = match &self.megatron_log {
            Some(path) => {
                let log = megatron::read(path)?;
                self.check_batch(context, &log).await?;
                let ranks = self.ranks(context, &log).await?;
                let (stage_peaks, missing) = stage_peaks(&log, &ranks, self.accounting())?;
                if let Some(stage) = missing {
                    context.remark(&format!(
                        "the report has no memory peaks, because the log has no peak of stage {stage}. Concatenate the \
                         logs of all nodes."
                    ));
                }
                let source = if self.source.is_empty() { "Megatron-LM's log" } else { &self.source };
                self.request(v1::Report {
                    iteration_seconds: log.iteration_seconds,
                    iteration_count: log.iterations,
                    stage_peaks,
                    source: source.to_owned(),
                    ..v1::Report::default()
                })
            }
            None => {
                let accounting = self.accounting_of_typed(context).await?;
                self.typed(accounting)
            }
        };
        let report = context.client.call(request).await?;
        context.output.print(&report)?;
        // With what else was measured of the plan.
        context.link(&format!("{}/history", self.plan));
        Ok(())
    }

    /// What was typed.
    fn typed(&self, accounting: v1::MemoryAccounting) -> v1::CreateReportRequest {
        self.request(v1::Report {
            iteration_seconds: self.iteration_time.map_or(0.0, |time| time.as_secs_f64()),
            stage_peaks: self.stage_peaks.iter().map(|&bytes| figure(bytes, accounting)).collect(),
            iteration_count: self.iterations,
            source: self.source.clone(),
            ..v1::Report::default()
        })
    }

    fn request(&self, report: v1::Report) -> v1::CreateReportRequest {
        v1::CreateReportRequest {
            parent: self.plan.clone(),
            report: Some(v1::Report { device_kind: self.device_kind.clone(), ..report }),
            request_id: request_id(self.request_id.as_ref()),
        }
    }

    /// The accounting of peaks in the command line: the plan's own where none is named.
    async fn accounting_of_typed(&self, context: &Context) -> Result<v1::MemoryAccounting, Failure> {
        if self.stage_peaks.is_empty() || self.accounting.is_some() {
            return Ok(self.accounting());
        }
        let request = v1::GetPlanRequest { name: self.plan.clone(), ..Default::default() };
        let plan = context.client.call(request).await?;
        let accounting = plan.predicted_peak.unwrap_or_default().accounting();
        context.remark(&format!(
            "--accounting is not set. The peaks are reported as {} memory, like the plan's predicted peak. If you \
             measured other memory, set --accounting to allocated, reserved or device",
            accounting.word()
        ));
        Ok(accounting)
    }

    /// The accounting of the peaks: allocated for a log, unless another one is named.
    fn accounting(&self) -> v1::MemoryAccounting {
        let default = match self.megatron_log {
            Some(_) => v1::MemoryAccounting::Allocated,
            None => v1::MemoryAccounting::Unspecified,
        };
        self.accounting.unwrap_or(default)
    }

    /// Seconds of other numbers of samples are not those of the plan.
    async fn check_batch(&self, context: &Context, log: &MegatronLog) -> Result<(), Failure> {
        let Some(of_log) = log.global_batch else { return Ok(()) };
        let request = v1::GetPlanRequest { name: self.plan.clone(), ..Default::default() };
        let plan = context.client.call(request).await?;
        let of_plan = plan.training.unwrap_or_default().global_batch_size;
        if of_log == of_plan {
            return Ok(());
        }
        Failure::usage(format!(
            "--megatron-log: an iteration has {of_log} samples in the log, but {of_plan} in the plan. Use a log from \
             training this plan."
        ))
    }

    /// The ranks of the plan under Megatron-LM. A log without peaks needs none.
    async fn ranks(&self, context: &Context, log: &MegatronLog) -> Result<Vec<v1::RankPlace>, Failure> {
        if log.peaks.is_empty() {
            return Ok(Vec::new());
        }
        let request = v1::ExportPlanRequest {
            name: self.plan.clone(),
            framework: "megatron".to_owned(),
            ..v1::ExportPlanRequest::default()
        };
        let export = context.client.call(request);
        Ok(export.await?.ranks)
    }
}

/// The highest peak of each stage, in order; none, and the stage, where one has told nothing.
fn stage_peaks(
    log: &MegatronLog,
    ranks: &[v1::RankPlace],
    accounting: v1::MemoryAccounting,
) -> Result<(Vec<v1::MemoryFigure>, Option<i32>), Failure> {
    if !matches!(accounting, v1::MemoryAccounting::Allocated | v1::MemoryAccounting::Reserved) {
        return Failure::usage(
            "--accounting device: a Megatron-LM log contains only allocated and reserved memory. Use --accounting \
             allocated or reserved.",
        );
    }
    if let Some(rank) = log.peaks.keys().find(|&&rank| !ranks.iter().any(|place| place.rank == rank)) {
        return Failure::usage(format!(
            "--megatron-log: the log has rank {rank}, but the plan has {} ranks. Use a log from training this plan.",
            ranks.len()
        ));
    }
    let stages: BTreeSet<i32> = ranks.iter().map(|place| place.stage).collect();
    let peak = |stage| {
        let told =
            ranks.iter().filter(|place| place.stage == stage).filter_map(|place| log.peaks.get(&place.rank));
        told.map(
            |peaks| {
                if accounting == v1::MemoryAccounting::Allocated { peaks.allocated } else { peaks.reserved }
            },
        )
        .max()
    };
    if let Some(&missing) = stages.iter().find(|&&stage| peak(stage).is_none()) {
        return Ok((Vec::new(), Some(missing)));
    }
    Ok((stages.into_iter().filter_map(peak).map(|bytes| figure(bytes, accounting)).collect(), None))
}

fn figure(bytes: i64, accounting: v1::MemoryAccounting) -> v1::MemoryFigure {
    v1::MemoryFigure { bytes, accounting: accounting.into(), ..v1::MemoryFigure::default() }
}

/// Stands for all plans.
const ALL_PLANS: &str = "plans/-";

/// See [`PlanVerb::Reports`](super::PlanVerb::Reports).
#[derive(Debug, Args)]
pub(crate) struct Reports {
    /// One report, `plans/ID/reports/ID`, or the reports of a plan, `plans/ID` or the id alone. Default: all.
    #[arg(value_parser = parse::plan_or_report)]
    name: Option<String>,

    #[command(flatten)]
    list: ListArgs,
}

impl Reports {
    /// Prints what was reported.
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        let plan = self.name.unwrap_or_else(|| ALL_PLANS.to_owned());
        let ListOptions { filter, order_by, shown } = self.list.asked()?;
        if let Some((of_plan, _)) = plan.split_once("/reports/") {
            if shown.watch || !filter.is_empty() || !order_by.is_empty() {
                return Failure::usage(
                    "--filter, --order-by, --since and --watch apply only to a list of reports. Leave these options \
                     out to show one report.",
                );
            }
            context.output.print(&context.client.call(v1::GetReportRequest { name: plan.clone() }).await?)?;
            context.link(&format!("{of_plan}/history"));
            return Ok(());
        }
        let request = v1::ListReportsRequest { parent: plan.clone(), filter, order_by, ..Default::default() };
        watch::print(context, shown, request).await?;
        // Of one plan: what is said of it is on one page.
        if plan != ALL_PLANS {
            context.link(&format!("{plan}/history"));
        }
        Ok(())
    }
}

/// See [`PlanVerb::Errors`](super::PlanVerb::Errors).
#[derive(Debug, Args)]
pub(crate) struct Errors {
    /// Only this kind of device, as `loadmaster worker list` shows it.
    #[arg(long, value_name = "KIND", default_value = "", hide_default_value = true)]
    device_kind: String,

    #[command(flatten)]
    pairs_filter: FilterArg,

    /// List the pairs of predicted and measured figures instead.
    #[arg(long)]
    pairs: bool,

    /// Fields to order the pairs by, each with asc or desc behind it: 'error desc'. Default: newest first.
    #[arg(long, value_name = "FIELD,…", default_value = "", hide_default_value = true, requires = "pairs")]
    order_by: String,

    #[command(flatten)]
    limit: Limit,
}

impl Errors {
    /// Prints errors of predictions.
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        let Self { device_kind, pairs_filter: FilterArg { filter }, pairs, order_by, limit } = self;
        let narrowed = address::narrowed(&[("device_kind", &device_kind)], &filter);
        if pairs {
            let request =
                v1::ListPredictionPairsRequest { filter: narrowed.clone(), order_by, ..Default::default() };
            context.output.print(&page::all(context, limit, &request).await?)?;
        } else {
            let request = v1::ListPredictionErrorsRequest { device_kind, filter, ..Default::default() };
            context.output.print(&page::all(context, limit, &request).await?)?;
        }
        context.link(&address::of_list("errors", &narrowed, ""));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::input::megatron::Peaks;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        report: Report,
    }

    fn parse(arguments: &[&str]) -> Result<v1::CreateReportRequest, clap::Error> {
        let arguments = std::iter::once("report").chain(arguments.iter().copied());
        let report = Program::try_parse_from(arguments)?.report;
        Ok(report.typed(report.accounting()))
    }

    /// Peaks have the accounting that was named, and times their unit.
    #[test]
    fn a_report_keeps_units_and_accounting() {
        let request = parse(&[
            "7f3c",
            "--iteration-time",
            "420ms",
            "--stage-peaks",
            "1GiB,512MiB",
            "--accounting",
            "device",
        ]);
        let request = request.unwrap();
        assert_eq!(request.parent, "plans/7f3c");
        let report = request.report.unwrap();
        assert_eq!((report.iteration_seconds, report.iteration_count), (0.42, 1));
        let peaks: Vec<(i64, v1::MemoryAccounting)> =
            report.stage_peaks.iter().map(|figure| (figure.bytes, figure.accounting())).collect();
        assert_eq!(
            peaks,
            [(1 << 30, v1::MemoryAccounting::Device), (512 << 20, v1::MemoryAccounting::Device)]
        );
    }

    /// Peaks alone are a report. An accounting without peaks, and a report of nothing, are refused.
    #[test]
    fn a_report_needs_a_number() {
        assert!(parse(&["7f3c", "--stage-peaks", "1GiB"]).is_ok());
        assert!(parse(&["7f3c", "--iteration-time", "1s", "--accounting", "device"]).is_err());
        assert!(parse(&["7f3c"]).is_err());
        assert!(parse(&["7f3c", "--iteration-time", "1s"]).is_ok());
        assert!(parse(&["7f3c", "--megatron-log", "x", "--accounting", "reserved"]).is_ok());
        for twice in [["--iteration-time", "1s"], ["--iterations", "3"], ["--stage-peaks", "1GiB"]] {
            assert!(parse(&[&["7f3c", "--megatron-log", "x"], &twice[..]].concat()).is_err());
        }
    }

    fn log(peaks: &[(i32, i64, i64)]) -> MegatronLog {
        let of = |&(rank, allocated, reserved)| (rank, Peaks { allocated, reserved });
        MegatronLog {
            iterations: 5,
            iteration_seconds: 0.5,
            global_batch: None,
            peaks: peaks.iter().map(of).collect(),
        }
    }

    /// Ranks 0 and 1 are the replicas of the first stage, 2 and 3 those of the second: Megatron tells of the first replicas.
    #[test]
    fn peaks_of_ranks_are_those_of_their_stages() {
        let place =
            |rank| v1::RankPlace { rank, stage: rank / 2, replica: rank % 2, ..v1::RankPlace::default() };
        let ranks: Vec<v1::RankPlace> = (0..4).map(place).collect();
        let bytes = |log: &MegatronLog, ledger| {
            let (figures, missing) = stage_peaks(log, &ranks, ledger).unwrap();
            assert!(figures.iter().all(|figure| figure.accounting() == ledger));
            (figures.iter().map(|figure| figure.bytes).collect::<Vec<_>>(), missing)
        };
        let whole = log(&[(0, 10, 20), (1, 11, 15), (2, 7, 8)]);
        assert_eq!(bytes(&whole, v1::MemoryAccounting::Allocated), (vec![11, 7], None));
        assert_eq!(bytes(&whole, v1::MemoryAccounting::Reserved), (vec![20, 8], None));
        assert_eq!(bytes(&log(&[(2, 7, 8)]), v1::MemoryAccounting::Allocated), (vec![], Some(0)));
        assert!(stage_peaks(&whole, &ranks, v1::MemoryAccounting::Device).is_err());
        assert!(
            stage_peaks(&log(&[(4, 1, 1)]), &ranks, v1::MemoryAccounting::Allocated).is_err(),
            "another training"
        );
        assert_eq!(stage_peaks(&log(&[]), &[], v1::MemoryAccounting::Allocated).unwrap(), (vec![], None));
    }
}
