//! `loadmaster cluster`.

mod import;
mod update;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use import::{FormatArgs, LatencyArgs, NodeArgs, required_without_file};
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::create_cluster_request::Subject;

use super::help;
use crate::failure::{Failure, options};
use crate::input::parse::{self, Etag, request_id, sent};
use crate::session::context::{Context, LeftBehind};
use crate::session::follow::{self, Wait};
use crate::session::list::{ListArgs, ListOptions};
use crate::session::watch;
use update::UpdateCluster;

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterVerb {
    /// Store a cluster from a file: of Slurm, NCCL or nvidia-smi, or written by hand.
    #[command(after_help = help::CLUSTER_IMPORT)]
    Import(Box<ImportCluster>),
    /// Store a cluster of equal nodes.
    #[command(after_help = help::CLUSTER_CREATE, mut_args = required_without_file)]
    Create(Box<CreateCluster>),
    /// Replace the content of a stored cluster, with a file or with equal nodes.
    #[command(after_help = help::CLUSTER_UPDATE)]
    Update(Box<UpdateCluster>),
    /// Delete a cluster that no plan and no placement references.
    #[command(after_help = help::CLUSTER_DELETE)]
    Delete {
        /// The cluster: `clusters/ID` or the id alone.
        #[arg(value_parser = parse::cluster)]
        name: String,

        #[command(flatten)]
        etag: Etag,

        /// Delete it even if plans or placements reference it. They stay, and keep its name.
        #[arg(long)]
        force: bool,
    },
    /// Store a cluster of the connected workers' nodes, devices and links.
    #[command(after_help = help::CLUSTER_DISCOVER)]
    Discover(Discover),
    /// Measure the bandwidth between the devices of each worker.
    #[command(after_help = help::CLUSTER_MEASURE)]
    Measure(Measure),
    /// List measurements of workers' links, newest first.
    #[command(after_help = help::CLUSTER_LINKS)]
    Links {
        /// Only measurements of this worker: `workers/ID` or the id alone.
        #[arg(long, value_name = "WORKER", value_parser = parse::worker)]
        worker: Option<String>,
        #[command(flatten)]
        list: ListArgs,
    },
    /// List stored clusters, newest first.
    #[command(after_help = help::CLUSTER_LIST)]
    List(ListArgs),
    /// Show a cluster: its nodes, devices, links and network tiers.
    #[command(visible_alias = "get", after_help = help::CLUSTER_SHOW)]
    Show {
        /// The cluster: `clusters/ID` or the id alone.
        #[arg(value_parser = parse::cluster)]
        name: String,
    },
}

/// How a cluster is stored.
#[derive(Debug, Args)]
struct Keep {
    /// Id of the cluster: 1 to 63 of a-z, 0-9, '-' [default: derived from the content].
    #[arg(long, value_name = "ID")]
    id: Option<String>,

    /// Check and show the cluster without storing it.
    #[arg(long)]
    dry_run: bool,
}

/// See [`ClusterVerb::Import`].
#[derive(Debug, Args)]
pub(crate) struct ImportCluster {
    /// The file, or `-` for standard input.
    #[arg(value_name = "PATH")]
    file: PathBuf,

    #[command(flatten)]
    format: FormatArgs,

    #[command(flatten)]
    nodes: NodeArgs,

    #[command(flatten)]
    keep: Keep,
}

/// See [`ClusterVerb::Create`].
#[derive(Debug, Args)]
pub(crate) struct CreateCluster {
    #[command(flatten)]
    nodes: NodeArgs,

    #[command(flatten)]
    latency: LatencyArgs,

    #[command(flatten)]
    keep: Keep,
}

/// See [`ClusterVerb::Discover`].
#[derive(Debug, Args)]
pub(crate) struct Discover {
    /// Only these workers: `workers/ID` or the id alone [default: all connected workers].
    #[arg(long, value_name = "WORKER,WORKER", value_delimiter = ',', value_parser = parse::worker)]
    workers: Vec<String>,

    /// Only devices of this kind, as `loadmaster worker show` prints it [default: all].
    #[arg(long, value_name = "KIND")]
    device_kind: Option<String>,

    /// Bandwidth of each node's network, for example 400Gb/s. Workers cannot measure it [default: 12GB/s, assumed].
    #[arg(long, value_name = "BANDWIDTH", value_parser = parse::bandwidth)]
    network_bandwidth: Option<f64>,

    #[command(flatten)]
    keep: Keep,
}

/// See [`ClusterVerb::Measure`].
#[derive(Debug, Args)]
pub(crate) struct Measure {
    /// Only these workers: `workers/ID` or the id alone [default: all].
    #[arg(long, value_name = "WORKER,WORKER", value_delimiter = ',', value_parser = parse::worker)]
    workers: Vec<String>,

    /// Number of devices of each worker that take part [default: all of its most common kind, at most 64].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=64))]
    device_count: Option<i32>,

    /// Time limit of one attempt of a run, for example 10m.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse::duration)]
    run_time_limit: std::time::Duration,

    /// UUID that makes a repeated command return the first one's operation.
    #[arg(long, value_name = "UUID", value_parser = parse::uuid)]
    request_id: Option<String>,

    #[command(flatten)]
    wait: Wait,
}

impl ClusterVerb {
    /// The options that fill the fields of its request.
    pub(crate) fn options(&self) -> options::OptionTable {
        match self {
            Self::Import(_) => options::CLUSTER_IMPORT,
            Self::Create(_) => options::CLUSTER_CREATE,
            Self::Update(_) => options::CLUSTER_UPDATE,
            Self::Delete { .. } => options::CLUSTER_DELETE,
            Self::Discover(_) => options::CLUSTER_DISCOVER,
            Self::Measure(_) => options::CLUSTER_MEASURE,
            Self::Links { .. } => options::CLUSTER_LINKS,
            Self::List(_) => options::LIST,
            Self::Show { .. } => options::NAME,
        }
    }

    /// The file that its request carries.
    pub(crate) fn document(&self) -> Option<&std::path::Path> {
        match self {
            Self::Import(import) => Some(&import.file),
            Self::Update(update) => update.file(),
            _ => None,
        }
    }
}

pub(crate) async fn run(context: &Context, verb: ClusterVerb) -> Result<(), Failure> {
    match verb {
        ClusterVerb::Import(import) => {
            let ImportCluster { file, format, nodes, keep } = *import;
            create(context, Subject::File(format.read(&file, nodes)?), keep).await
        }
        ClusterVerb::Create(wanted) => {
            let CreateCluster { nodes, latency, keep } = *wanted;
            create(context, Subject::Cluster(nodes.cluster(&latency)?), keep).await
        }
        ClusterVerb::Update(update) => update.run(context).await,
        ClusterVerb::Delete { name, etag: Etag { etag }, force } => {
            context.delete(v1::DeleteClusterRequest { name: name.clone(), etag, force }, &name).await
        }
        ClusterVerb::Discover(discover) => {
            let Discover { workers, device_kind, network_bandwidth, keep } = discover;
            let request = v1::DiscoverClusterRequest {
                workers,
                device_kind: device_kind.unwrap_or_default(),
                network_bytes_per_second: network_bandwidth.unwrap_or_default(),
                cluster_id: keep.id.clone().unwrap_or_default(),
                validate_only: keep.dry_run,
                request_id: request_id(None),
            };
            let answer = context.client.call(request).await?;
            print(context, &answer, &keep)
        }
        ClusterVerb::Measure(measure) => {
            let request = v1::MeasureLinksRequest {
                workers: measure.workers,
                device_count: measure.device_count.unwrap_or_default(),
                run_time_limit: sent(measure.run_time_limit),
                request_id: request_id(measure.request_id.as_ref()),
            };
            context.leaves(LeftBehind::Request { request_id: request.request_id.clone() });
            let operation = context.client.call(request).await?;
            follow::begun(context, operation, &measure.wait).await
        }
        ClusterVerb::Links { worker, list } => {
            let ListOptions { filter, order_by, shown } = list.asked()?;
            let parent = worker.clone().unwrap_or_else(|| "workers/-".to_owned());
            let request = v1::ListLinkMeasurementsRequest { parent, filter, order_by, ..Default::default() };
            watch::print(context, shown, request).await?;
            if let Some(worker) = worker {
                context.link(&worker);
            }
            Ok(())
        }
        ClusterVerb::List(list) => {
            let ListOptions { filter, order_by, shown } = list.asked()?;
            let request = v1::ListClustersRequest { filter, order_by, ..Default::default() };
            watch::print(context, shown, request).await
        }
        ClusterVerb::Show { name } => {
            context.show(v1::GetClusterRequest { name, ..Default::default() }).await
        }
    }
}

async fn create(context: &Context, subject: Subject, keep: Keep) -> Result<(), Failure> {
    let request = v1::CreateClusterRequest {
        subject: Some(subject),
        cluster_id: keep.id.clone().unwrap_or_default(),
        validate_only: keep.dry_run,
        request_id: request_id(None),
    };
    let answer = context.client.call(request).await?;
    print(context, &answer, &keep)
}

fn print(context: &Context, cluster: &v1::Cluster, keep: &Keep) -> Result<(), Failure> {
    if keep.dry_run {
        context.remark("dry run: the cluster is not stored");
    }
    context.print(cluster, !keep.dry_run)
}
