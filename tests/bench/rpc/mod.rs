//! `make bench-rpc`: how long planning calls take, and how many a planner answers in a second.
//!
//! A planner on its own Postgres gets profiles of 24, 48 and 96 layers and clusters of 8, 64 and 1,024 devices, made by
//! formula, and is asked over the wire like by any other client. Every figure stands beside that of an empty call in
//! the same run: what is left is the planner's and its database's. The client shares the machine with them.
//!
//! | file | question |
//! |---|---|
//! | `subject` | which profiles and clusters? |
//! | `call` | what is asked? |
//! | `load` | how long does it take, from so many clients at once, and what is told? |

mod call;
mod load;
pub(crate) mod subject;

use std::time::Duration;

use anyhow::{Context, Result};
use call::{Call, OBJECTIVES};
use clap::Parser;
use load::{Goal, Measured, Row, once, under};
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::plan_service_client::PlanServiceClient;
use loadmaster_tests::AnyPlanner;
use subject::{SIZES, Subject};
use tonic::transport::{Channel, Endpoint};

use crate::table::print_missed;

/// Clients at once.
const CLIENTS: [usize; 3] = [1, 8, 64];
/// Connections that they share at most.
const MOST_CONNECTIONS: usize = 8;
/// Plans on the page that is listed.
const PAGE: i32 = 100;

/// Measures the planning calls of a planner: a plan by name, a page of plans and recommendations, beside an empty call.
#[derive(Debug, Parser)]
#[command(after_help = "\
Examples:
  bench rpc                        everything, a few minutes
  bench rpc --only GetPlan         one call, beside the empty one
  bench rpc --only '96 x 1,024'    all objectives on the largest cluster
  bench rpc --strict               exit code 2 if a goal is missed")]
pub(crate) struct Options {
    /// Only rows whose name contains this; the empty call is always measured.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// Seconds of each measurement of many calls.
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,

    /// Searches of each objective on each cluster, none of which was asked before.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,

    /// Shape of the plans that the objectives are asked for, as the command line names it.
    #[arg(long, value_name = "SHAPE", default_value = "uniform-grid", value_parser = shape)]
    shape: v1::PlanShape,

    /// A planner that runs already, `http://HOST:PORT`. Default: one is started with a database of its own.
    #[arg(long, value_name = "URL")]
    address: Option<String>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "must be a number of seconds".to_owned())?;
    if (0.05..=600.0).contains(&seconds) { Ok(seconds) } else { Err("must be 0.05 to 600".to_owned()) }
}

fn shape(text: &str) -> Result<v1::PlanShape, String> {
    let name = format!("PLAN_SHAPE_{}", text.to_uppercase().replace('-', "_"));
    v1::PlanShape::from_str_name(&name).ok_or_else(|| format!("there is no {name}"))
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }
}

/// Measures the calls that are wanted; whether all goals are met.
pub(crate) async fn run(options: &Options) -> Result<bool> {
    let planner = AnyPlanner::at(options.address.as_deref());
    let mut channels = Vec::with_capacity(MOST_CONNECTIONS);
    for _ in 0..MOST_CONNECTIONS {
        let endpoint = Endpoint::from_shared(planner.address().to_owned())?.tcp_nodelay(true);
        channels.push(endpoint.connect().await.context("the planner does not answer")?);
    }
    let missed = measure(options, &channels).await?;
    Ok(print_missed(&missed))
}

/// Measures and tells everything that is wanted; the rows whose goals were missed.
async fn measure(options: &Options, channels: &[Channel]) -> Result<Vec<String>> {
    let channel = channels.first().context("there is no connection")?;
    let mut subjects = Vec::with_capacity(SIZES.len());
    for size in SIZES {
        subjects.push(Subject::store(channel, size).await?);
    }
    let small = subjects.first().context("there is no subject")?;
    let plan = call::fill(channel, small, PAGE).await?;
    let mut missed = Vec::new();
    let empty = saturate(options, channels, &Call::Empty, None, &mut missed).await;
    let again = call::request(small, v1::Objective::Unspecified);
    let calls = [
        Call::GetPlan(plan),
        Call::ListPlans(PAGE),
        Call::Again(Box::new(again.clone())),
        Call::New(Box::new(again)),
    ];
    for call in calls.iter().filter(|call| options.wants(call.name())) {
        saturate(options, channels, call, Some(&empty), &mut missed).await;
    }
    after_planning(options, channel, subjects.last().context("there is no subject")?, &empty, &mut missed)
        .await?;
    println!();
    load::head_of_searches();
    for subject in &subjects {
        for objective in OBJECTIVES {
            let name = format!("{} {}", subject.size.name, call::name_of(objective));
            if !options.wants(&name) {
                continue;
            }
            let mut request = call::request(subject, objective);
            request.shape = options.shape.into();
            if objective == v1::Objective::MaxModel {
                request.candidate_profiles = subjects.iter().map(|of| of.profile.clone()).collect();
                request.profile.clear();
            }
            let (measured, found) = once(channel, &request, options.runs).await;
            let goal = subject.size.goal_of(objective);
            let row = Row { name, clients: 1, measured, goal: Some(goal), note: found };
            row.print_search();
            missed.extend(row.missed());
        }
    }
    Ok(missed)
}

/// What is asked of a plan that is to be run, from one client: schedulers ask one after another.
async fn after_planning(
    options: &Options,
    channel: &Channel,
    largest: &Subject,
    empty: &[Measured],
    missed: &mut Vec<String>,
) -> Result<()> {
    let mut client = PlanServiceClient::new(channel.clone());
    let asked = v1::RecommendPlanRequest {
        launcher: v1::Launcher::Other.into(),
        shape: v1::PlanShape::UniformGrid.into(),
        ..call::request(largest, v1::Objective::MinIterationTime)
    };
    let plan = client.recommend_plan(asked).await.context("a plan to export is refused")?.into_inner();
    let export = Call::Export(v1::ExportPlanRequest { name: plan.name, ..Default::default() });
    let bind = subject::on_two_kinds(channel).await?;
    let bound = client.bind_plan(bind.clone()).await.context("the plan is not bound")?.into_inner();
    let gap = bound.gap.map_or_else(|| "open".to_owned(), |gap| format!("gap {:.2} %", 100.0 * gap));
    for (call, note) in [(export, String::new()), (Call::Bind(bind), gap)] {
        if !options.wants(call.name()) {
            continue;
        }
        let measured =
            under(std::slice::from_ref(channel), &call, 1, Duration::from_secs_f64(options.seconds)).await;
        let row = Row { name: call.name().to_owned(), clients: 1, measured, goal: call.latency(), note };
        row.print_call(empty.first());
        missed.extend(row.missed());
    }
    Ok(())
}

/// One call from one client and from many; the figures by number of clients.
async fn saturate(
    options: &Options,
    channels: &[Channel],
    call: &Call,
    empty: Option<&[Measured]>,
    missed: &mut Vec<String>,
) -> Vec<Measured> {
    if empty.is_none() {
        load::head_of_calls();
    }
    let mut all = Vec::with_capacity(CLIENTS.len());
    let mut most: f64 = 0.0;
    for (position, clients) in CLIENTS.into_iter().enumerate() {
        let shared = &channels[..clients.min(channels.len())];
        let measured = under(shared, call, clients, Duration::from_secs_f64(options.seconds)).await;
        most = most.max(measured.per_second());
        let is_last = position + 1 == CLIENTS.len();
        let (name, note) = (call.name().to_owned(), String::new());
        let row = Row { name, clients, measured, goal: call.latency().filter(|_| clients == 1), note };
        row.print_call(empty.and_then(|empty| empty.get(position)));
        missed.extend(row.missed());
        if let Some(Goal::PerSecond(least)) = call.throughput().filter(|_| is_last) {
            let told = load::throughput(most, least);
            println!("{:<36} {told}", "");
            missed.extend((most < least).then(|| format!("{}, {told}", call.name())));
        }
        all.push(row.measured);
    }
    all
}
