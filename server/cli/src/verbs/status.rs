//! `loadmaster status`.

use loadmaster_proto::wire::longrunning::ListOperationsRequest;
use loadmaster_proto::wire::v1;
use loadmaster_show::table::server;
use loadmaster_show::text::wrapped;
use loadmaster_show::{Show, json};
use serde::Serialize;
use serde_json::Value;

use crate::failure::Failure;
use crate::output::{Format, write_stdout};
use crate::session::context::Context;

/// Most workers that are counted.
const WORKERS: i32 = 1_000;
/// Most operations in progress that are shown.
const RUNNING: i32 = 10;
/// Most failures that are shown.
const FAILURES: i32 = 5;

/// The same as a document.
#[derive(Debug, Serialize)]
struct Document {
    server: Value,
    workers: Vec<Value>,
    operations: Vec<Value>,
    failures: Vec<Value>,
}

/// Prints the planner's version, workers, operations in progress and newest failures.
pub(super) async fn run(context: &Context) -> Result<(), Failure> {
    let client = &context.client;
    let workers = v1::ListWorkersRequest { page_size: WORKERS, ..Default::default() };
    let info = client.call(v1::GetServerInfoRequest {}).await?;
    let (workers, running, failed) = tokio::try_join!(
        client.call(workers),
        client.call(operations("done = false", RUNNING)),
        client.call(operations("state = failed", FAILURES)),
    )?;
    let (running, failed) = (running.operations, failed.operations);
    let output = context.output;
    let document = || -> anyhow::Result<Document> {
        Ok(Document {
            server: json::value(&info)?,
            workers: values(&workers.workers)?,
            operations: values(&running)?,
            failures: values(&failed)?,
        })
    };
    let text = match output.format {
        Format::Table => {
            let status = server::Status {
                address: client.address(),
                info: &info,
                workers: &workers.workers,
                running: &running,
                failed: &failed,
            };
            wrapped(&server::status(&status, output.look), output.look.width)
        }
        Format::Json => serde_json::to_string_pretty(&document()?).map_err(anyhow::Error::new)? + "\n",
        Format::Yaml => serde_yaml_ng::to_string(&document()?).map_err(anyhow::Error::new)?,
        Format::Name => format!("{}\n", client.address()),
    };
    write_stdout(text.as_bytes())?;
    context.link("");
    Ok(())
}

fn operations(filter: &str, page_size: i32) -> ListOperationsRequest {
    ListOperationsRequest {
        name: "operations".to_owned(),
        filter: filter.to_owned(),
        page_size,
        ..ListOperationsRequest::default()
    }
}

fn values<M: Show>(messages: &[M]) -> anyhow::Result<Vec<Value>> {
    messages.iter().map(json::value).collect()
}
