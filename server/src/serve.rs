//! `loadmaster serve` and `loadmaster migrate`: from settings to a serving planner and back.

use std::future::Future;
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sd_notify::NotifyState;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::config::{DatabaseArgs, DatabaseSource, MigrateArgs, ServeArgs};
use crate::dispatch::{Dispatcher, LeaseTerms};
use crate::embedded::{EmbeddedError, EmbeddedPostgres};
use crate::retention::{Purges, Schedule};
use crate::rpc::{Limits, Services, Settings, serve_pages};
use crate::safe_files::Folder;
use crate::store::{ConnectOptions, Store};

/// Where the pages are unless another address is named.
const USUAL_PAGES: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7434);
/// What the health service says to be served as long as this planner lives, whatever its database does.
const ALIVE: &str = "alive";
/// Time between two looks at the database for the health service.
const HEALTH_ROUND: Duration = Duration::from_secs(2);
/// Every so many of them, something is written too: that a disk is full shows in nothing else.
const WRITE_ROUNDS: u64 = 5;
/// Longest wait for the database's answer to such a look: a frozen one refuses nothing.
const HEALTH_LIMIT: Duration = Duration::from_secs(5);
/// Descriptors that are kept for everything but callers and the database.
const OWN_DESCRIPTORS: usize = 64;
/// Longest wait for the calls that still use the database when it is closed.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// Serves until SIGTERM or SIGINT, then drains.
///
/// # Errors
/// When a setting is wrong, the database or the port cannot be had, or serving fails.
pub async fn run(args: ServeArgs) -> anyhow::Result<()> {
    args.logging.init();
    crate::rpc::document_errors_at(args.errors_url.clone());
    let schedule = args.retention.schedule()?;
    // Bind first: a taken port must not cost the start of a database.
    let listener = TcpListener::bind(args.listen)
        .await
        .map_err(|error| cannot_listen(error, args.listen, "calls", "--listen"))?;
    let address = listener.local_addr().context("cannot read the address that was bound")?;
    if !address.ip().is_loopback() {
        tracing::warn!(
            %address,
            "other machines can call the planner without authentication. Restrict access to the port, for example with \
             a firewall."
        );
    }

    let pages = bind_pages(&args).await?;
    let mut database = Database::open(&args.database).await?;
    let served = serve_on(&args, listener, pages, &mut database, schedule).await;
    database.close().await;
    served
}

/// The listener of the pages, if there are to be any. That the usual address is taken is no reason not to plan.
async fn bind_pages(args: &ServeArgs) -> anyhow::Result<Option<TcpListener>> {
    let (address, is_wanted) = match args.web {
        Some(address) => (address, true),
        None if args.no_web => return Ok(None),
        None => (USUAL_PAGES, false),
    };
    match TcpListener::bind(address).await {
        Ok(listener) => {
            if !address.ip().is_loopback() {
                tracing::warn!(
                    %address,
                    "other machines can read the web pages without authentication. Restrict access to the port, for \
                     example with a firewall."
                );
            }
            Ok(Some(listener))
        }
        Err(error) if is_wanted => Err(cannot_listen(error, address, "browsers", "--web")),
        Err(error) => {
            tracing::warn!(%address, %error, "web pages are not served. Name a free port with --web, or use --no-web.");
            Ok(None)
        }
    }
}

/// Why no one can listen at an address, and what helps.
fn cannot_listen(error: std::io::Error, address: SocketAddr, whom: &str, option: &str) -> anyhow::Error {
    let helps = match error.kind() {
        ErrorKind::AddrInUse => {
            format!(
                "another program uses this port, perhaps another planner. Name another port with {option}."
            )
        }
        ErrorKind::AddrNotAvailable => {
            format!("this machine does not have this address. Name an address of this machine with {option}.")
        }
        ErrorKind::PermissionDenied => {
            format!("ports below 1024 may need privileges. Name another port with {option}.")
        }
        _ => format!("name another address with {option}"),
    };
    anyhow::Error::new(error).context(format!("cannot listen on {address} for {whom}: {helps}"))
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
            tracing::warn!("some calls did not release their database connections in time");
        }
        if let Some(embedded) = self.embedded {
            embedded.stop().await;
        }
    }
}

async fn serve_on(
    args: &ServeArgs,
    listener: TcpListener,
    pages: Option<TcpListener>,
    database: &mut Database,
    schedule: Option<Schedule>,
) -> anyhow::Result<()> {
    // An embedded database belongs to this planner alone; a shared one is migrated on purpose.
    if database.embedded.is_some() {
        database.store.migrate().await?;
    } else {
        database.store.check_schema().await?;
    }

    let terms = LeaseTerms { lease: args.lease_duration, heartbeat: args.heartbeat_interval };
    let dispatcher = Dispatcher::start(database.store.clone(), terms);
    let reporter = HealthReporter::new();
    reporter.set_service_status(ALIVE, ServingStatus::Serving).await;
    let purges = Purges::new(database.store.clone());
    let services = Services {
        store: database.store.clone(),
        dispatcher: dispatcher.clone(),
        purges: purges.clone(),
        reflection: !args.no_reflection,
        limits: limits(args),
        settings: Settings {
            embedded_database: database.embedded.is_some(),
            web: pages.is_some(),
            retention: schedule.is_some(),
        },
    };
    let served = services.build(reporter.clone())?;
    let health = Health { reporter, names: served.names().to_vec() };
    health.set(ServingStatus::Serving).await;
    let stop = CancellationToken::new();
    let health_watch = tokio::spawn(watch_health(database.store.clone(), health.clone(), stop.clone()));
    let scheduled = schedule
        .map(|schedule| tokio::spawn(schedule.run(database.store.clone(), purges.clone(), stop.clone())));
    let purging = tokio::spawn(purges.run(stop.clone()));
    let address = listener.local_addr().context("cannot read the address that was bound")?;
    let pages_address = pages.as_ref().and_then(|pages| pages.local_addr().ok());
    if let (Some(pages), Some(address)) = (pages, pages_address) {
        let router = loadmaster_web::router(served.routes(), address, stop.clone());
        tokio::spawn(serve_pages(pages, router, stop.clone()));
    }
    let serving = tokio::spawn(served.serve(listener, pages_address, stop.clone()));
    if let Some(file) = &args.address_file {
        write_address(file, address)?;
    }
    let pages = pages_address.map(|address| format!("http://{address}"));
    tracing::info!(%address, pages, "serving");
    tell_manager(&[NotifyState::Ready, NotifyState::Status(&format!("serving on {address}"))]);

    let outcome = tokio::select! {
        outcome = supervise(serving, args.drain_timeout, stop, &dispatcher, &health) => outcome,
        error = database.lost() => Err(error.into()),
    };
    health_watch.abort();
    purging.abort();
    if let Some(scheduled) = scheduled {
        scheduled.abort();
    }
    outcome
}

/// Waits for the end of serving: by itself (an error) or after a signal, gracefully at first.
async fn supervise(
    mut serving: tokio::task::JoinHandle<()>,
    grace: Duration,
    stop: CancellationToken,
    dispatcher: &Dispatcher,
    health: &Health,
) -> anyhow::Result<()> {
    tokio::select! {
        ended = &mut serving => {
            dispatcher.stop().await;
            ended.context("the server stopped unexpectedly")?;
            anyhow::bail!("the server stopped unexpectedly");
        }
        name = stop_signal()? => tracing::info!(signal = name, "draining"),
    }
    tell_manager(&[NotifyState::Stopping, NotifyState::Status("waiting for open calls")]);
    health.set(ServingStatus::NotServing).await;
    let drained = async {
        dispatcher.stop().await;
        stop.cancel();
        let _ = (&mut serving).await;
    };
    // hyper may wait for ever for clients that are gone (hyper #4170), so the limit is hard.
    tokio::select! {
        () = drained => tracing::info!("drained"),
        () = tokio::time::sleep(grace) => tracing::warn!("open calls did not end in time; aborting them"),
        name = stop_signal()? => tracing::warn!(signal = name, "second signal; aborting open calls"),
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

/// What the health service tells, of every service that is served and of all of them together.
#[derive(Clone)]
struct Health {
    reporter: HealthReporter,
    names: Vec<&'static str>,
}

impl Health {
    async fn set(&self, status: ServingStatus) {
        for service in std::iter::once(&"").chain(&self.names) {
            self.reporter.set_service_status(*service, status).await;
        }
    }
}

/// What callers may take up, as far as this process has descriptors: a planner that ran out of them could
/// neither reach its database nor say so.
fn limits(args: &ServeArgs) -> Limits {
    let connections = args.max_connections as usize;
    let own = OWN_DESCRIPTORS + 2 * args.database.database_connections as usize;
    let descriptors = raise_descriptors();
    let most = descriptors.saturating_sub(own).max(descriptors / 4).max(1);
    if most < connections {
        tracing::warn!(
            descriptors,
            connections = most,
            "the limit on open files allows fewer connections than --max-connections. Raise it (ulimit -n)."
        );
    }
    Limits {
        calls: args.max_calls as usize,
        connections: connections.min(most),
        connections_per_peer: args.max_connections_per_peer as usize,
        idle: args.idle_timeout,
    }
}

/// Raises the limit on open files to what this process may have, and says what that is.
fn raise_descriptors() -> usize {
    let limit = match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, hard)) => match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
            Ok(()) => hard,
            Err(_) => soft,
        },
        Err(_) => 1_024,
    };
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Tells the service manager that started this planner, if one did and wants to know (`sd_notify`). That it does not listen is no
/// reason to fail.
fn tell_manager(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "could not notify the service manager");
    }
}

/// Reports `NOT_SERVING` while the database does not answer, or takes nothing.
async fn watch_health(store: Store, health: Health, stop: CancellationToken) {
    let mut healthy = true;
    for round in 1_u64.. {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(HEALTH_ROUND) => {}
        }
        // That this planner lives, not that its database does: starting it again would not help that.
        tell_manager(&[NotifyState::Watchdog]);
        let look = async {
            store.ping().await?;
            if healthy && round % WRITE_ROUNDS != 0 { Ok(()) } else { store.probe_writes().await }
        };
        let fault = match tokio::time::timeout(HEALTH_LIMIT, look).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("the database does not answer".to_owned()),
        };
        if fault.is_none() != healthy && !stop.is_cancelled() {
            healthy = fault.is_none();
            let status = if healthy { ServingStatus::Serving } else { ServingStatus::NotServing };
            health.set(status).await;
            // A line break would begin another field.
            let told = fault.as_deref().unwrap_or("serving").replace(char::is_control, " ");
            tell_manager(&[NotifyState::Status(&told)]);
            tracing::warn!(healthy, fault, "health changed");
        }
    }
}

/// Writes the address in one step, so that whoever waits for the file never reads half of it.
fn write_address(file: &Path, address: SocketAddr) -> anyhow::Result<()> {
    let write = || {
        let name = file.file_name().and_then(|name| name.to_str()).ok_or(std::io::ErrorKind::InvalidInput)?;
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        // A link to the folder is the user's own wish; one inside of it may be someone else's.
        let folder = Folder::open(&parent.unwrap_or_else(|| Path::new(".")).canonicalize()?)?;
        let part = format!("{name}.part");
        let mut new = folder.create(&part)?;
        new.set_permissions(PermissionsExt::from_mode(0o644))?;
        writeln!(new, "http://{address}")?;
        folder.rename(&part, name)
    };
    write().with_context(|| format!("cannot write the address to {}", file.display()))
}
