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
//! | `load` | how long does it take, from so many clients at once? |

mod call;
mod load;
pub(crate) mod subject;

use std::time::Duration;

use anyhow::{Context, Result};
use call::Call;
use load::{Measured, once, under};
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::plan_service_client::PlanServiceClient;
use loadmaster_tests::Planner;
use subject::{SIZES, Subject};
use tonic::transport::{Channel, Endpoint};

use crate::output::Common;
use crate::report::{Goal, Progress, Report};
use crate::table::{Table, seconds};

/// Connections that clients share at most.
const MOST_CONNECTIONS: usize = 8;
/// Plans on the page that is listed.
const PAGE: i32 = 100;

/// Measures the planning calls of a planner: a plan by name, a page of plans and recommendations, beside an empty call.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bench rpc                        everything, a few minutes
  bench rpc --only GetPlan         one call, beside the empty one
  bench rpc --only '96 x 1,024'    all objectives on the largest cluster
  bench rpc --strict               exit code 2 if a goal is missed")]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
}

/// A search for each objective on a cluster of each size.
struct Search {
    name: String,
    size: subject::Size,
    objective: v1::Objective,
    request: v1::RecommendPlanRequest,
}

/// Measures the calls that are wanted; whether all goals are met.
pub(crate) async fn run(Options { common }: &Options) -> Result<bool> {
    let mut report = Report::new("rpc", &common.output, common.quick)?;
    // Of each measurement of many calls, and searches that nobody asked before.
    let (duration, runs) = if common.quick { (0.2, 1) } else { (3.0, 5) };
    let duration = Duration::from_secs_f64(duration);
    let planner = Planner::start_with(&[]);
    let mut channels = Vec::with_capacity(MOST_CONNECTIONS);
    for _ in 0..MOST_CONNECTIONS {
        let endpoint = Endpoint::from_shared(planner.address().to_owned())?.tcp_nodelay(true);
        channels.push(endpoint.connect().await.context("the planner does not answer")?);
    }
    let channel = channels.first().context("there is no connection")?;
    let mut subjects = Vec::with_capacity(SIZES.len());
    for size in SIZES {
        subjects.push(Subject::store(channel, size).await?);
    }
    let (calls, searches) = (calls(channel, &subjects).await?, searches(&subjects));
    let mut names: Vec<&str> = searches.iter().map(|search| search.name.as_str()).collect();
    names.extend(calls.iter().map(|call| -> &str { call.name() }));
    let selected = common.select(&names)?;
    let mut progress = Progress::new(selected.len());

    let mut table = Table::new(&["call", "clients", "p50", "p99", "calls/s", "× empty", "goal"]);
    let mut empty: Vec<Measured> = Vec::new();
    for call in &calls {
        if !selected.contains(&call.name()) && !matches!(call, Call::Empty) {
            continue;
        }
        progress.step(call.name());
        let mut all = Vec::new();
        for &clients in call.clients() {
            let measured = under(&channels[..clients.min(channels.len())], call, clients, duration).await;
            all.push(measured);
        }
        let most = all.iter().map(Measured::per_second).fold(0.0, f64::max);
        for (position, (measured, &clients)) in all.iter().zip(call.clients()).enumerate() {
            let [p50, p99] = [50.0, 99.0].map(|percent| measured.percentile(percent));
            let times =
                empty.get(position).map(|empty: &Measured| format!("{:.1}", p50 / empty.percentile(50.0)));
            let mut goals = Vec::new();
            if clients == 1 {
                goals.extend(call.limit().map(|limit| limit.goal(call.name(), measured, "")));
            }
            if position + 1 == all.len() {
                let least = |least| {
                    let what = format!("{}: calls a second", call.name());
                    Goal::at_least(what, least, Some(most), |rate| format!("{rate:.0} calls/s"))
                };
                goals.extend(call.per_second().map(least));
            }
            let gap = if let Call::Place(_, gap) = call { gap } else { "" };
            table.row([
                call.name().to_owned(),
                clients.to_string(),
                seconds(p50),
                seconds(p99),
                format!("{:.0}", measured.per_second()),
                times.unwrap_or_default(),
                format!("{}{gap}{}", verdicts(&mut report, goals), measured.failures()),
            ]);
        }
        if matches!(call, Call::Empty) {
            empty = all;
        }
    }
    report.print(table);

    let mut table = Table::new(&["search, layers x devices", "first", "p50", "p99", "goal"]);
    for Search { name, size, objective, request } in &searches {
        if !selected.contains(&name.as_str()) {
            continue;
        }
        progress.step(name);
        let (measured, found) = once(channel, request, runs).await;
        let goal = size.limit(*objective).goal(name, &measured, &found);
        table.row([
            name.clone(),
            seconds(measured.first()),
            seconds(measured.percentile(50.0)),
            seconds(measured.percentile(99.0)),
            format!("{}{found}{}", verdicts(&mut report, vec![goal]), measured.failures()),
        ]);
    }
    report.print(table);
    report.finish()
}

/// Notes the goals of a row, and returns them for its last cell.
fn verdicts(report: &mut Report, goals: Vec<Goal>) -> String {
    let text = goals.iter().map(|goal| format!("{} ", goal.verdict())).collect();
    goals.into_iter().for_each(|goal| report.note(goal));
    text
}

/// All calls, the empty one first.
async fn calls(channel: &Channel, subjects: &[Subject]) -> Result<[Call; 7]> {
    let [small, .., largest] = subjects else { anyhow::bail!("there are too few subjects") };
    let plan = call::fill(channel, small, PAGE).await?;
    let again = Box::new(call::request(small, v1::Objective::Unspecified));
    let mut client = PlanServiceClient::new(channel.clone());
    let asked = loadmaster_proto::changed!(
        call::request(largest, v1::Objective::MinIterationTime),
        problem.framework = "other".to_owned(),
        constraints.parallelism_layout = v1::ParallelismLayout::UniformGrid.into()
    );
    let name = client
        .recommend_plan(asked)
        .await
        .context("a plan to export is refused")?
        .into_inner()
        .into_plan()
        .context("a plan to export does not fit")?
        .name;
    let place = subject::on_two_kinds(channel).await?;
    let bound = client.create_placement(place.clone()).await.context("the plan is not placed")?.into_inner();
    let gap =
        bound.optimality_gap.map_or_else(|| "open".to_owned(), |gap| format!("gap {:.2} %", 100.0 * gap));
    Ok([
        Call::Empty,
        Call::GetPlan(plan),
        Call::ListPlans(PAGE),
        Call::Again(again.clone()),
        Call::New(again),
        Call::Export(v1::ExportPlanRequest { name, ..Default::default() }),
        Call::Place(place, gap),
    ])
}

/// All searches, for uniform grids.
fn searches(subjects: &[Subject]) -> Vec<Search> {
    let search = |subject: &Subject, objective| {
        let mut request = call::request(subject, objective);
        request.constraints_mut().parallelism_layout = v1::ParallelismLayout::UniformGrid.into();
        if objective == v1::Objective::MaxModel {
            request.objective_mut().candidate_profiles =
                subjects.iter().map(|subject| subject.profile.clone()).collect();
            request.problem_mut().profile.clear();
        }
        let name = format!("{} {}", subject.size.name, call::name_of(objective));
        Search { name, size: subject.size, objective, request }
    };
    // 0 is the unspecified one.
    let objectives = || (1..).map_while(|number| v1::Objective::try_from(number).ok());
    subjects.iter().flat_map(|subject| objectives().map(move |one| search(subject, one))).collect()
}
