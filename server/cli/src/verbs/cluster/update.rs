//! `loadmaster cluster update`.

use std::path::{Path, PathBuf};

use clap::Args;
use loadmaster_proto::wire::v1;

use super::import::{FormatArgs, LatencyArgs, NodeArgs};
use crate::failure::Failure;
use crate::input::parse;
use crate::input::parse::Etag;
use crate::session::context::Context;

/// See [`ClusterVerb::Update`](super::ClusterVerb::Update).
#[derive(Debug, Args)]
pub(crate) struct UpdateCluster {
    /// The cluster: `clusters/ID` or the id alone.
    #[arg(value_parser = parse::cluster)]
    name: String,

    /// File with the new content, or `-` for standard input [default: equal nodes, from the options].
    #[arg(short, long, value_name = "PATH", conflicts_with_all = ["link_latency", "network_latency"])]
    file: Option<PathBuf>,

    #[command(flatten)]
    format: FormatArgs,

    #[command(flatten)]
    nodes: NodeArgs,

    #[command(flatten)]
    latency: LatencyArgs,

    #[command(flatten)]
    etag: Etag,

    /// Check and show the cluster without storing it.
    #[arg(long)]
    dry_run: bool,
}

impl UpdateCluster {
    /// The file that its request carries.
    pub(super) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    fn request(self) -> Result<v1::UpdateClusterRequest, Failure> {
        let Self { name, file, format, nodes, latency, etag: Etag { etag }, dry_run } = self;
        let (content, file) = match file {
            Some(path) => (v1::Cluster::default(), Some(format.read(&path, nodes)?)),
            None => (nodes.cluster(&latency)?, None),
        };
        Ok(v1::UpdateClusterRequest {
            cluster: Some(v1::Cluster { name, etag, ..content }),
            update_mask: Some(prost_types::FieldMask { paths: vec!["*".to_owned()] }),
            file,
            validate_only: dry_run,
        })
    }

    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        let dry_run = self.dry_run;
        let request = self.request()?;
        let cluster = context.client.call(request).await?;
        if dry_run {
            context.remark("dry run: the cluster is not changed");
        }
        context.print(&cluster, !dry_run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::tests::parsed;

    #[test]
    fn equal_nodes_or_a_file_are_the_new_content() {
        let request = |line: &str| parsed::<UpdateCluster>(line).unwrap().request();
        let equal = request(
            "prod --nodes h[1-4] --devices-per-node 8 --device-kind cpu --device-memory 80GiB --etag x",
        )
        .unwrap();
        let cluster = equal.cluster.unwrap();
        assert_eq!(
            (cluster.name.as_str(), cluster.etag.as_str(), cluster.nodes.len()),
            ("clusters/prod", "x", 4)
        );
        assert!(equal.file.is_none());
        assert_eq!(equal.update_mask.unwrap().paths, ["*"]);
        let missing = request("prod --nodes h1").unwrap_err();
        assert!(
            matches!(missing, Failure::Usage(why) if why.contains("--devices-per-node") && why.contains("--file"))
        );
        assert!(parsed::<UpdateCluster>("prod -f x.yaml --link-bandwidth 1GB/s --link-latency 1us").is_err());
    }
}
