//! `loadmaster serve` and `loadmaster migrate`: from settings to a serving planner and back.

use std::future::Future;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use loadmaster_proto::wire::longrunning::operations_server::OperationsServer;
use loadmaster_proto::wire::v1::model_service_server::ModelServiceServer;
use loadmaster_proto::wire::v1::plan_service_server::PlanServiceServer;
use loadmaster_proto::wire::v1::profile_service_server::ProfileServiceServer;
use loadmaster_proto::wire::v1::worker_service_server::WorkerServiceServer;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tonic::server::NamedService;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::config::{DatabaseArgs, DatabaseSource, MigrateArgs, ServeArgs};
use crate::dispatch::{Dispatcher, LeaseTerms};
use crate::embedded::{EmbeddedError, EmbeddedPostgres};
use crate::folder::Folder;
use crate::rpc::{self, Services};
use crate::store::{ConnectOptions, Store};

/// Time between two looks at the database for the health service.
const HEALTH_ROUND: Duration = Duration::from_secs(2);
/// Longest wait for the database's answer to such a look: a frozen one refuses nothing.
const HEALTH_LIMIT: Duration = Duration::from_secs(5);
/// Longest wait for the calls that still use the database when it is closed.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// Serves until SIGTERM or SIGINT, then drains.
///
/// # Errors
/// When a setting is wrong, the database or the port cannot be had, or serving fails.
pub async fn run(args: ServeArgs) -> anyhow::Result<()> {
    args.logging.init();
    args.check()?;
    // Bind first: a taken port must not cost the start of a database.
    let listener = TcpListener::bind(args.listen).await.with_context(|| {
        format!(
            "cannot listen on {}: is another planner running? name another port with --listen",
            args.listen
        )
    })?;
    let address = listener.local_addr().context("cannot read the address that was bound")?;
    if !address.ip().is_loopback() {
        tracing::warn!(%address, "listening beyond this machine without authentication: protect the port");
    }

    let mut database = Database::open(&args.database).await?;
    let served = serve_on(&args, listener, address, &mut database).await;
    database.close().await;
    served
}

/// Brings the database's schema up to date.
///
/// # Errors
/// When the database cannot be had or a migration fails.
pub async fn migrate(args: MigrateArgs) -> anyhow::Result<()> {
    args.logging.init();
    let database = Database::open(&args.database).await?;
    let migrated = database.store.migrate().await;
    database.close().await;
    let report = migrated?;
    tracing::info!(applied = report.applied.len(), "the schema is up to date");
    Ok(())
}

/// The store, and the embedded server behind it if there is one.
struct Database {
    store: Store,
    embedded: Option<EmbeddedPostgres>,
}

impl Database {
    async fn open(args: &DatabaseArgs) -> anyhow::Result<Self> {
        let (embedded, url) = match args.source()? {
            DatabaseSource::Url(url) => (None, url),
            DatabaseSource::Embedded(folder) => {
                let embedded = EmbeddedPostgres::start(&folder).await?;
                let url = embedded.url();
                (Some(embedded), url)
            }
        };
        let options =
            ConnectOptions { max_connections: args.database_connections, ..ConnectOptions::new(url) };
        match Store::connect(&options).await {
            Ok(store) => Ok(Self { store, embedded }),
            Err(error) => {
                if let Some(embedded) = embedded {
                    embedded.stop().await;
                }
                Err(error.into())
            }
        }
    }

    /// Keeps the embedded server running; returns once that has failed for good.
    async fn lost(&mut self) -> EmbeddedError {
        match &mut self.embedded {
            Some(embedded) => embedded.keep().await,
            None => std::future::pending().await,
        }
    }

    async fn close(self) {
        // After a hard stop, calls may still be at it, and wait for a database that never answers.
        if tokio::time::timeout(CLOSE_LIMIT, self.store.close()).await.is_err() {
            tracing::warn!("some calls did not let go of the database");
        }
        if let Some(embedded) = self.embedded {
            embedded.stop().await;
        }
    }
}

async fn serve_on(
    args: &ServeArgs,
    listener: TcpListener,
    address: std::net::SocketAddr,
    database: &mut Database,
) -> anyhow::Result<()> {
    // An embedded database belongs to this planner alone; a shared one is migrated on purpose.
    if database.embedded.is_some() {
        database.store.migrate().await?;
    } else {
        database.store.check_schema().await?;
    }

    let terms = LeaseTerms { lease: args.lease, heartbeat: args.heartbeat };
    let dispatcher = Dispatcher::start(database.store.clone(), terms);
    let reporter = HealthReporter::new();
    set_health(&reporter, ServingStatus::Serving).await;
    let stop = CancellationToken::new();
    let health_watch = tokio::spawn(watch_health(database.store.clone(), reporter.clone(), stop.clone()));

    let services = Services {
        store: database.store.clone(),
        dispatcher: dispatcher.clone(),
        reflection: !args.no_reflection,
        max_calls: args.max_calls as usize,
    };
    let serving = tokio::spawn(rpc::serve(services, listener, (reporter.clone(), stop.clone())));
    if let Some(file) = &args.address_file {
        write_address(file, address)?;
    }
    tracing::info!(%address, "serving");

    let outcome = tokio::select! {
        outcome = supervise(serving, args.drain, stop, &dispatcher, &reporter) => outcome,
        error = database.lost() => Err(error.into()),
    };
    health_watch.abort();
    outcome
}

/// Waits for the end of serving: by itself (an error) or after a signal, gracefully at first.
async fn supervise(
    mut serving: tokio::task::JoinHandle<Result<(), Box<dyn std::error::Error + Send + Sync>>>,
    grace: Duration,
    stop: CancellationToken,
    dispatcher: &Dispatcher,
    reporter: &HealthReporter,
) -> anyhow::Result<()> {
    tokio::select! {
        ended = &mut serving => {
            dispatcher.stop().await;
            ended.context("the server stopped unexpectedly")?.map_err(|e| anyhow::anyhow!("serving failed: {e}"))?;
            anyhow::bail!("the server stopped unexpectedly");
        }
        name = stop_signal()? => tracing::info!(signal = name, "draining"),
    }
    set_health(reporter, ServingStatus::NotServing).await;
    let drained = async {
        dispatcher.stop().await;
        stop.cancel();
        let _ = (&mut serving).await;
    };
    // hyper may wait for ever for clients that are gone (hyper #4170), so the limit is hard.
    tokio::select! {
        () = drained => tracing::info!("drained"),
        () = tokio::time::sleep(grace) => tracing::warn!("open calls did not end in time, stopping hard"),
        name = stop_signal()? => tracing::warn!(signal = name, "second signal, stopping hard"),
    }
    serving.abort();
    Ok(())
}

/// The next SIGTERM or SIGINT.
fn stop_signal() -> anyhow::Result<impl Future<Output = &'static str>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    })
}

async fn set_health(reporter: &HealthReporter, status: ServingStatus) {
    let services = [
        "",
        ModelServiceServer::<()>::NAME,
        ProfileServiceServer::<()>::NAME,
        PlanServiceServer::<()>::NAME,
        WorkerServiceServer::<()>::NAME,
        OperationsServer::<()>::NAME,
    ];
    for service in services {
        reporter.set_service_status(service, status).await;
    }
}

/// Reports `NOT_SERVING` while the database does not answer.
async fn watch_health(store: Store, reporter: HealthReporter, stop: CancellationToken) {
    let mut healthy = true;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(HEALTH_ROUND) => {}
        }
        let answers = matches!(tokio::time::timeout(HEALTH_LIMIT, store.ping()).await, Ok(Ok(())));
        if answers != healthy && !stop.is_cancelled() {
            healthy = answers;
            let status = if answers { ServingStatus::Serving } else { ServingStatus::NotServing };
            set_health(&reporter, status).await;
            tracing::warn!(healthy, "health changed");
        }
    }
}

/// Writes the address in one step, so that whoever waits for the file never reads half of it.
fn write_address(file: &Path, address: std::net::SocketAddr) -> anyhow::Result<()> {
    let write = || {
        let name = file.file_name().and_then(|name| name.to_str()).ok_or(std::io::ErrorKind::InvalidInput)?;
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        // A link to the folder is the user's own wish; one inside of it may be somebody else's.
        let folder = Folder::open(&parent.unwrap_or_else(|| Path::new(".")).canonicalize()?)?;
        let part = format!("{name}.part");
        let mut new = folder.create(&part)?;
        new.set_permissions(PermissionsExt::from_mode(0o644))?;
        writeln!(new, "http://{address}")?;
        folder.rename(&part, name)
    };
    write().with_context(|| format!("cannot write the address to {}", file.display()))
}
