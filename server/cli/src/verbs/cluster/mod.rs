//! `loadmaster cluster`.

mod import;
mod update;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use import::{CreateArgs, ImportArgs};
use loadmaster_proto::cluster::import::MAX_DOCUMENT_BYTES;
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::create_cluster_request::Subject;

use super::help;
use crate::failure::{Failure, options};
use crate::input::parse::{choice, request_id, sent};
use crate::input::{parse, read_file};
use crate::session::context::{Context, LeftBehind};
use crate::session::follow::{self, Wait};
use crate::session::list::{ListArgs, ListOptions};
use crate::session::watch;
use update::UpdateCluster;

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterVerb {
    /// Store the cluster that a file of a scheduler or of NVIDIA's tools describes, or that was written by hand.
    #[command(after_help = help::CLUSTER_IMPORT)]
    Import(Box<ImportCluster>),
    /// Store a cluster of equal nodes.
    #[command(after_help = help::CLUSTER_CREATE)]
    Create(Box<CreateCluster>),
    /// Replace the content of a stored cluster, by that of a file or by equal nodes.
    #[command(after_help = help::CLUSTER_UPDATE)]
    Update(Box<UpdateCluster>),
    /// Delete a cluster that no plan and no placement references.
    #[command(after_help = help::CLUSTER_DELETE)]
    Delete {
        /// The cluster: `clusters/ID` or the id alone.
        #[arg(value_parser = parse::cluster)]
        name: String,

        /// Only if this is its etag, as `cluster show -o json` prints it.
        #[arg(long, value_name = "ETAG", default_value = "", hide_default_value = true)]
        etag: String,

        /// Also where plans or placements reference it: they stay and keep its name.
        #[arg(long)]
        force: bool,
    },
    /// Store the cluster that the connected workers are.
    #[command(after_help = help::CLUSTER_DISCOVER)]
    Discover(Discover),
    /// Measure how fast the devices of each worker exchange bytes.
    #[command(after_help = help::CLUSTER_MEASURE)]
    Measure(Measure),
    /// What was measured of workers' links, newest first.
    #[command(after_help = help::CLUSTER_LINKS)]
    Links {
        /// Only those of this worker: `workers/ID` or the id alone.
        #[arg(long, value_name = "WORKER", value_parser = parse::worker)]
        worker: Option<String>,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Stored clusters, newest first.
    #[command(after_help = help::CLUSTER_LIST)]
    List(ListArgs),
    /// One cluster: its nodes, devices, links and tiers.
    #[command(visible_alias = "get", after_help = help::CLUSTER_SHOW)]
    Show {
        /// The cluster: `clusters/ID` or the id alone.
        #[arg(value_parser = parse::cluster)]
        name: String,
    },
}

/// How a cluster is kept.
#[derive(Debug, Args)]
struct Keep {
    /// Id of the cluster, so that plans can name it [default: derived from the content].
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

    /// What it is written in [default: what it looks like].
    #[arg(long, value_parser = choice::<v1::ClusterFormat>())]
    format: Option<v1::ClusterFormat>,

    #[command(flatten)]
    options: ImportArgs,

    #[command(flatten)]
    keep: Keep,
}

/// See [`ClusterVerb::Create`].
#[derive(Debug, Args)]
pub(crate) struct CreateCluster {
    #[command(flatten)]
    nodes: CreateArgs,

    #[command(flatten)]
    keep: Keep,
}

/// See [`ClusterVerb::Discover`].
#[derive(Debug, Args)]
pub(crate) struct Discover {
    /// Only these workers: `workers/ID` or the id alone [default: all that are connected].
    #[arg(long, value_name = "WORKER,WORKER", value_delimiter = ',', value_parser = parse::worker)]
    workers: Vec<String>,

    /// Only devices of this kind, as `loadmaster worker show` prints it [default: all].
    #[arg(long, value_name = "KIND")]
    device_kind: Option<String>,

    /// Each node's network, for example 400Gb/s; no worker can know of it [default: 12GB/s, assumed].
    #[arg(long, value_name = "BANDWIDTH", value_parser = parse::bandwidth)]
    network: Option<f64>,

    #[command(flatten)]
    keep: Keep,
}

/// See [`ClusterVerb::Measure`].
#[derive(Debug, Args)]
pub(crate) struct Measure {
    /// Only these workers: `workers/ID` or the id alone [default: all].
    #[arg(long, value_name = "WORKER,WORKER", value_delimiter = ',', value_parser = parse::worker)]
    workers: Vec<String>,

    /// How many devices of a worker take part [default: all of its commonest kind, at most 64].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=64))]
    devices: Option<i32>,

    /// Hard limit of one attempt, for example 10m.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse::duration)]
    run_deadline: std::time::Duration,

    /// UUID that makes a repeated command find the first one's operation.
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
            let ImportCluster { file, format, options, keep } = *import;
            let document = read_file("cluster file", &file, MAX_DOCUMENT_BYTES)?;
            let format = format.unwrap_or_default().into();
            let file = v1::ClusterFile { document, format, options: Some(options.options()) };
            create(context, Subject::File(file), keep).await
        }
        ClusterVerb::Create(wanted) => {
            let CreateCluster { nodes, keep } = *wanted;
            create(context, Subject::Cluster(nodes.cluster()?), keep).await
        }
        ClusterVerb::Update(update) => update.run(context).await,
        ClusterVerb::Delete { name, etag, force } => {
            context.delete(v1::DeleteClusterRequest { name: name.clone(), etag, force }, &name).await
        }
        ClusterVerb::Discover(discover) => {
            let Discover { workers, device_kind, network, keep } = discover;
            let request = v1::DiscoverClusterRequest {
                workers,
                device_kind: device_kind.unwrap_or_default(),
                network_bytes_per_second: network.unwrap_or_default(),
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
                device_count: measure.devices.unwrap_or_default(),
                run_time_limit: sent(measure.run_deadline),
                request_id: request_id(measure.request_id.as_ref()),
            };
            context.leaves(LeftBehind::Request { request_id: request.request_id.clone() });
            let operation = context.client.call(request).await?;
            follow::begun(context, operation, &measure.wait).await
        }
        ClusterVerb::Links { worker, list } => {
            let ListOptions { filter, order_by, shown } = list.asked()?;
            let worker = worker.unwrap_or_default();
            let request = v1::ListLinkMeasurementsRequest {
                worker: worker.clone(),
                filter,
                order_by,
                ..Default::default()
            };
            watch::print(context, shown, request).await?;
            if !worker.is_empty() {
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
