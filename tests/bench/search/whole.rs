//! Whole searches, as a request starts them: degrees, micro-batches, placement and layers at once.

use std::time::Duration;

use anyhow::{Context, Result};
use loadmaster_predict::Margin;
use loadmaster_proto::plan::constraints::Constraints;
use loadmaster_proto::plan::objective::{NodeSpanning, Objective, PlanShape, SearchMode};
use loadmaster_proto::profile::document::ProfileDocument;
use loadmaster_proto::training::{RecomputePolicy, Schedule};
use loadmaster_recommend::{Criteria, Job, RecommendError, Recommendation, divisors, recommend};
use loadmaster_search::cost::{Batch, Factors, KindOfDevice, Prices};
use loadmaster_search::{Cuts, Fleet, Stop, Unit};
use loadmaster_simulate::Overlap;

use crate::search::problem::{Devices, gpt2, table};
use crate::search::report::{Row, Took, within};
use crate::stats::timed;

/// Seconds within which a front is there, or says what is open.
const FRONT: f64 = 2.0;
/// Seconds within which a stopped search gives its core back.
const GIVES_BACK: f64 = 0.1;
/// Bytes of the devices of these problems.
const CAPACITY: u64 = 32 << 30;
/// Between nodes, bytes per second: 100 Gbit/s.
const BETWEEN: f64 = 12.5e9;
/// Inside a node.
const INSIDE: f64 = 150e9;
/// How much longer the slower kind of device takes.
const SLOWER: f64 = 2.4;

/// A request on a fleet.
struct Request {
    documents: Vec<ProfileDocument>,
    fleet: Fleet,
    objective: Objective,
    shape: PlanShape,
    mode: SearchMode,
    /// None: as the shape has it. Stages of eight devices at most cannot use hundreds of them.
    spanning: Option<NodeSpanning>,
    global_batch: u32,
    /// Without baselines and what restrictions cost.
    brief: bool,
}

impl Request {
    /// The fastest plan of this shape, with nothing besides the plan.
    fn fastest(documents: Vec<ProfileDocument>, fleet: Fleet, shape: PlanShape, global_batch: u32) -> Self {
        Self {
            documents,
            fleet,
            objective: Objective::MinIterationTime,
            shape,
            mode: SearchMode::Exact,
            spanning: None,
            global_batch,
            brief: true,
        }
    }

    fn answer(&self, stop: &Stop) -> Result<Result<Recommendation, RecommendError>> {
        let tables = self.documents.iter().map(table).collect::<Result<Vec<_>>>()?;
        let kinds = tables.iter().map(|table| (KindOfDevice::new(table), Factors::NONE)).collect();
        let document = self.documents.first().context("a request has a profile")?;
        let training = document.training.context("a profile has its training")?;
        let prices = Prices::new(kinds, training, Margin::Share(0.0), None);
        let names = document.model.layer_names();
        let devices: Vec<String> = (0..self.fleet.devices()).map(|device| device.to_string()).collect();
        let job = Job {
            names: &names,
            model: None,
            fleet: &self.fleet,
            devices: &devices,
            optimizer: &training.optimizer,
        };
        let batch = |size: u32| Batch { micro_batch_size: size, micro_batches: self.global_batch / size };
        let wish = Criteria {
            objective: self.objective,
            shape: self.shape,
            rules: None,
            constraints: Constraints { spanning: self.spanning, ..Constraints::default() },
            batches: divisors(self.global_batch.into())
                .into_iter()
                .filter_map(|size| u32::try_from(size).ok())
                .map(batch)
                .collect(),
            least_share: 1,
            schedules: vec![Schedule::OneFOneB],
            recompute: vec![RecomputePolicy::None],
            may_shard: false,
            sequence_parallel: false,
            overlap: Overlap::default(),
            unit: Unit::Bytes,
            mode: self.mode,
            seed: 0,
            cuts: Cuts::anywhere(names.len()),
            is_merged: false,
            keeps_order: false,
            alternatives: 3,
            brief: self.brief,
            efforts: 1,
        };
        Ok(recommend(&prices, &job, &wish, stop))
    }

    fn row(&self, runs: usize, problem: String) -> Result<Row> {
        let (answer, seconds) = timed(runs, || self.answer(&Stop::default()));
        let found = answer?.ok();
        let certificate = found.as_ref().map(|found| &found.certificate);
        Ok(Row::new(
            problem,
            seconds,
            certificate.map_or(0, |of| of.states),
            certificate.map(|of| of.value),
            certificate.filter(|of| !of.proven).and_then(|of| of.bound),
        ))
    }

    /// How long a search of so many seconds goes on at most once it is stopped, wherever that is.
    fn stopped(&self, runs: usize, seconds: f64) -> Result<Row> {
        let mut longest = 0.0_f64;
        let times = 4 * runs;
        for time in 1..=times {
            let limit = seconds * time as f64 / (times + 1) as f64;
            let (answer, ran) = within(Duration::from_secs_f64(limit), |stop| self.answer(stop));
            // Without a plan in hand it says so.
            let _ = answer?;
            longest = longest.max(ran - limit);
        }
        Ok(Row::new(
            format!("    stopped {times} times on the way: goes on for at most"),
            longest,
            0,
            None,
            None,
        )
        .goal(GIVES_BACK))
    }
}

/// Nodes of devices with fast links inside and slower ones between them.
fn nodes(nodes: u32, per_node: u32) -> Fleet {
    let mut fleet = Devices { nodes, capacity: CAPACITY, ..Devices::one_node(per_node) }.fleet();
    for node in &mut fleet.nodes {
        node.inside.bytes_per_second = INSIDE;
        node.outside.bytes_per_second = BETWEEN;
        (node.inside.latency_seconds, node.outside.latency_seconds) = (5e-6, 20e-6);
    }
    fleet
}

/// AMP's: 24-layer GPT-2, global batch 32, n nodes of n devices; its paper's times are for its own cluster.
pub(crate) fn amp(runs: usize, quick: bool) -> Result<Vec<Row>> {
    let all = [(2, 0.01, 58.0), (4, 0.02, 326.0), (8, 0.05, 890.0), (16, 0.2, 1_627.0)];
    let mut rows = Vec::new();
    for &(n, goal, published) in if quick { &all[..1] } else { &all[..] } {
        let request = |mode| -> Result<Request> {
            Ok(Request {
                mode,
                ..Request::fastest(vec![gpt2(24, 32, 1.0)?], nodes(n, n), PlanShape::UniformGrid, 32)
            })
        };
        let problem = format!("24-layer GPT-2, batch 32, {} devices", n * n);
        let row = request(SearchMode::Exact)?.row(runs, problem)?.goal(goal);
        let mut row = row.beside("AMP's search (paper)", None, Took::Published(published));
        for (mode, what) in [
            (SearchMode::Amp, "with AMP's program for the layers"),
            (SearchMode::AmpAnnealing, "with its annealing"),
        ] {
            let other = request(mode)?.row(1, String::new())?;
            row = row.beside(what, other.value, Took::Here(other.seconds));
        }
        rows.push(row);
    }
    Ok(rows)
}

/// What a service is asked: every objective, with baselines and what the shape costs.
pub(crate) fn served(runs: usize, quick: bool) -> Result<Vec<Row>> {
    let sizes = [(24, 1, 0.01), (48, 8, 0.1), (96, 128, 1.0)];
    let objectives = [
        Objective::MinPeakMemory,
        Objective::MinIterationTime,
        Objective::Pareto,
        Objective::MinDevices,
        Objective::MinCost,
        Objective::MaxBatch,
    ];
    let mut rows = Vec::new();
    for &(layers, count, goal) in if quick { &sizes[..1] } else { &sizes[..] } {
        for shape in [PlanShape::UniformGrid, PlanShape::PerStageMesh] {
            for objective in objectives {
                let mut fleet = nodes(count, 8);
                fleet.kinds.iter_mut().for_each(|kind| kind.hourly_price = Some(2.0));
                let request = Request {
                    objective,
                    brief: false,
                    ..Request::fastest(vec![gpt2(layers - 2, 8 * count, 1.0)?], fleet, shape, 8 * count)
                };
                let problem = format!("{layers} layers, {} devices, {shape}, {objective}", 8 * count);
                let row = request.row(runs, problem)?;
                let seconds = row.seconds;
                rows.push(row.goal(if objective == Objective::Pareto { FRONT } else { goal }));
                if seconds > GIVES_BACK && !quick {
                    rows.push(request.stopped(runs, seconds)?);
                }
            }
        }
    }
    Ok(rows)
}

/// Two kinds of devices, one 2.4 times slower; and a cluster of 10,000.
pub(crate) fn large(runs: usize, quick: bool) -> Result<Vec<Row>> {
    let mixed = |fast: u32, slow: u32, global_batch, shape| -> Result<Request> {
        let mut fleet = nodes(fast + slow, 8);
        let mut kind = fleet.kinds[0].clone();
        kind.name = "slower".to_owned();
        fleet.kinds.push(kind);
        fleet.nodes.iter_mut().skip(fast as usize).for_each(|node| node.kind = 1);
        Ok(Request {
            spanning: (shape != PlanShape::UniformGrid).then_some(NodeSpanning::WholeNodes),
            ..Request::fastest(
                vec![gpt2(24, global_batch, 1.0)?, gpt2(24, global_batch, SLOWER)?],
                fleet,
                shape,
                global_batch,
            )
        })
    };
    if quick {
        return Ok(vec![
            mixed(1, 1, 16, PlanShape::UniformGrid)?.row(1, "16 devices of two kinds".to_owned())?,
        ]);
    }
    let mut rows = Vec::new();
    for (shape, name) in
        [(PlanShape::UniformGrid, "uniform grid"), (PlanShape::EqualDevices, "equal devices")]
    {
        let problem = format!("24-layer GPT-2, batch 1,024, 512 devices of two kinds, {name}");
        let row = mixed(16, 48, 1024, shape)?.row(runs, problem)?.goal(3.0);
        let row = row.beside("Sailor (published)", None, Took::Published(3.0));
        let row = row.beside("FlashFlex (published)", None, Took::Published(90.0));
        rows.push(row.beside("Metis (published)", None, Took::Published(300.0)));
    }
    let request =
        Request::fastest(vec![gpt2(126, 10_000, 1.0)?], nodes(1_250, 8), PlanShape::UniformGrid, 10_000);
    let problem = "128 layers, batch 10,000, 10,000 devices, uniform grid".to_owned();
    rows.push(request.row(runs.min(3), problem)?.goal(2.0));
    Ok(rows)
}
