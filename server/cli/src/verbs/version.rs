//! `loadmaster version`.

use std::time::Duration;

use loadmaster_proto::wire::v1;
use loadmaster_show::json;
use loadmaster_show::table::server;
use serde::Serialize;
use serde_json::Value;

use crate::failure::Failure;
use crate::output::{Format, write_stdout};
use crate::session::client::Client;
use crate::session::context::ClientArgs;

/// Longest wait for the planner: this program's own versions must not wait for a network.
const PATIENCE: Duration = Duration::from_secs(2);

/// The versions of this program, and of the planner if it responds.
#[derive(Debug, Serialize)]
struct Versions {
    client: ClientVersions,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<Value>,
}

/// Versions that must fit together across planner, worker and rank.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ClientVersions {
    loadmaster: &'static str,
    worker_protocol: i32,
    libtorch: &'static str,
}

/// Prints the versions of this program, and of the planner if it responds.
///
/// # Errors
/// When the address is not valid, or nothing can be printed.
pub async fn show(args: &ClientArgs) -> Result<(), Failure> {
    let client = ClientVersions {
        loadmaster: env!("CARGO_PKG_VERSION"),
        worker_protocol: loadmaster_proto::WORKER_PROTOCOL_VERSION,
        libtorch: loadmaster_proto::LIBTORCH_VERSION,
    };
    let planner = Client::of(args, PATIENCE)?;
    let info = planner.attempt(v1::GetServerInfoRequest {}, PATIENCE).await;
    let format = args.output(&[]).format;
    let document = |client| -> anyhow::Result<Versions> {
        Ok(Versions { client, server: info.as_ref().ok().map(json::value).transpose()? })
    };
    let text = match format {
        Format::Table => {
            let of_planner = match &info {
                Ok(info) => format!("{}  ({})", server::versions(info), planner.address()),
                Err(_) => format!("none responds at {}", planner.address()),
            };
            format!(
                "loadmaster       {}\nworker protocol  {}\nlibtorch         {}  (required by loadmaster-rank)\n\
                 planner          {of_planner}\n",
                client.loadmaster, client.worker_protocol, client.libtorch
            )
        }
        Format::Json => serde_json::to_string_pretty(&document(client)?).map_err(anyhow::Error::new)? + "\n",
        Format::Yaml => serde_yaml_ng::to_string(&document(client)?).map_err(anyhow::Error::new)?,
        Format::Name => format!("{}\n", client.loadmaster),
    };
    write_stdout(text.as_bytes())
}
