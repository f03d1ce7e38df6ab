//! `loadmaster version`.

use serde::Serialize;

use crate::failure::Failure;
use crate::output::{Format, write_stdout};
use crate::session::context::ClientArgs;

/// Versions that must fit together across planner, worker and rank.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Versions {
    loadmaster: &'static str,
    worker_protocol: i32,
    libtorch: &'static str,
}

/// Prints the versions of this program.
///
/// # Errors
/// When nothing can be printed.
pub fn show(args: &ClientArgs) -> Result<(), Failure> {
    let versions = Versions {
        loadmaster: env!("CARGO_PKG_VERSION"),
        worker_protocol: loadmaster_proto::WORKER_PROTOCOL_VERSION,
        libtorch: loadmaster_proto::LIBTORCH_VERSION,
    };
    let text = match args.output().format {
        Format::Table => format!(
            "loadmaster       {}\nworker protocol  {}\nlibtorch         {}  (of the rank that fits)\n",
            versions.loadmaster, versions.worker_protocol, versions.libtorch
        ),
        Format::Json => serde_json::to_string_pretty(&versions).map_err(anyhow::Error::new)? + "\n",
        Format::Yaml => serde_yaml_ng::to_string(&versions).map_err(anyhow::Error::new)?,
        Format::Name => format!("{}\n", versions.loadmaster),
    };
    write_stdout(text.as_bytes())
}
