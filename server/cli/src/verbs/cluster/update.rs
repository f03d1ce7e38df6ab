//! `loadmaster cluster update`.

use std::path::{Path, PathBuf};

use clap::Args;
use loadmaster_proto::cluster::import::MAX_DOCUMENT_BYTES;
use loadmaster_proto::wire::v1;

use super::import::{CreateArgs, ImportArgs};
use crate::failure::Failure;
use crate::input::parse::choice;
use crate::input::{parse, read_file};
use crate::session::context::Context;

/// See [`ClusterVerb::Update`](super::ClusterVerb::Update).
#[derive(Debug, Args)]
pub(crate) struct UpdateCluster {
    /// The cluster: `clusters/ID` or the id alone.
    #[arg(value_parser = parse::cluster)]
    name: String,

    /// The file that contains the new content, or `-` for standard input [default: equal nodes, from the options].
    #[arg(short, long, value_name = "PATH")]
    file: Option<PathBuf>,

    /// Format of the file [default: what it looks like].
    #[arg(long, value_parser = choice::<v1::ClusterFormat>(), requires = "file")]
    format: Option<v1::ClusterFormat>,

    #[command(flatten)]
    options: ImportArgs,

    /// Latency of `--link`, for example 3us [default: that of such links].
    #[arg(long, value_name = "LATENCY", value_parser = parse::latency, requires = "link", conflicts_with = "file")]
    link_latency: Option<f64>,

    /// Latency of `--network`, for example 5us [default: that of such networks].
    #[arg(long, value_name = "LATENCY", value_parser = parse::latency, requires = "network", conflicts_with = "file")]
    network_latency: Option<f64>,

    /// Only if this is its etag, as `cluster show -o json` prints it.
    #[arg(long, value_name = "ETAG", default_value = "", hide_default_value = true)]
    etag: String,

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
        let Self { name, file, format, options, link_latency, network_latency, etag, dry_run } = self;
        let (content, file) = match file {
            Some(path) => {
                let document = read_file("cluster file", &path, MAX_DOCUMENT_BYTES)?;
                let format = format.unwrap_or_default().into();
                let file = v1::ClusterFile { document, format, options: Some(options.options()) };
                (v1::Cluster::default(), Some(file))
            }
            None => (CreateArgs::of(options, link_latency, network_latency)?.cluster()?, None),
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
        let equal =
            request("prod --nodes h[1-4] --devices-per-node 8 --device-kind cpu --memory 80GiB --etag x")
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
        assert!(parsed::<UpdateCluster>("prod -f x.yaml --link 1GB/s --link-latency 1us").is_err());
    }
}
