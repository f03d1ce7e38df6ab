//! The planner's own settings, with those of its logs and of retention.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use loadmaster_proto::reason::DOCUMENTATION;
use tracing_subscriber::EnvFilter;

use super::DatabaseArgs;
use crate::retention::{Rule, Schedule};
use crate::store::PurgeSettings;

/// Settings of `loadmaster serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, env = "LOADMASTER_LISTEN", value_name = "HOST:PORT", default_value = "127.0.0.1:7433")]
    pub listen: SocketAddr,

    /// File for the address (`http://HOST:PORT`), written when the planner is ready.
    #[arg(long, env = "LOADMASTER_ADDRESS_FILE", value_name = "FILE")]
    pub address_file: Option<PathBuf>,

    /// Address of the web pages; port 0 takes a free one. Default: 127.0.0.1:7434, or no pages if another program uses it.
    #[arg(long, env = "LOADMASTER_WEB", value_name = "HOST:PORT")]
    pub web: Option<SocketAddr>,

    /// Serve no web pages, unless --web names an address.
    #[arg(long, env = "LOADMASTER_NO_WEB")]
    pub no_web: bool,

    /// Database settings.
    #[command(flatten)]
    pub database: DatabaseArgs,

    /// Time after which a worker without a heartbeat loses its runs. Use the same for all planners of a database.
    #[arg(long, env = "LOADMASTER_LEASE_DURATION", value_name = "DURATION", default_value = "30s",
          value_parser = duration)]
    pub lease_duration: Duration,

    /// Time between a worker's heartbeats, at most a third of --lease-duration.
    #[arg(long, env = "LOADMASTER_HEARTBEAT_INTERVAL", value_name = "DURATION", default_value = "3s",
          value_parser = duration)]
    pub heartbeat_interval: Duration,

    /// Longest wait of a stopping planner for open calls. It cancels them afterwards.
    #[arg(long, env = "LOADMASTER_DRAIN_TIMEOUT", value_name = "DURATION", default_value = "10s",
          value_parser = duration)]
    pub drain_timeout: Duration,

    /// Limit of concurrent calls. One address gets at most three quarters of them, and searches, documents and
    /// profiling requests half. More calls wait for a second, and then fail with `RESOURCE_EXHAUSTED`. Health and
    /// reflection have no limit.
    #[arg(long, env = "LOADMASTER_MAX_CALLS", value_name = "N", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub max_calls: u32,

    /// Limit of connections. Above it, the connection that was idle for the longest time is closed. The limit of open files
    /// may lower it.
    #[arg(long, env = "LOADMASTER_MAX_CONNECTIONS", value_name = "N", default_value_t = 4_096,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_connections: u32,

    /// Limit of connections from one address (for IPv6 from one /64 network). Each worker needs one.
    #[arg(long, env = "LOADMASTER_MAX_CONNECTIONS_PER_PEER", value_name = "N", default_value_t = 1_024,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_connections_per_peer: u32,

    /// Time after which a connection without an open call is closed. Clients open another when they need it.
    #[arg(long, env = "LOADMASTER_IDLE_TIMEOUT", value_name = "DURATION", default_value = "5m",
          value_parser = duration)]
    pub idle_timeout: Duration,

    /// URL of the documentation of errors: a page with an anchor for each reason. Errors link to it.
    #[arg(long, env = "LOADMASTER_ERRORS_URL", value_name = "URL", default_value = DOCUMENTATION, value_parser = absolute_url)]
    pub errors_url: String,

    /// Do not serve gRPC reflection.
    #[arg(long, env = "LOADMASTER_NO_REFLECTION")]
    pub no_reflection: bool,

    /// Retention.
    #[command(flatten)]
    pub retention: RetentionArgs,

    /// Logs.
    #[command(flatten)]
    pub logging: LoggingArgs,
}

/// Settings of `loadmaster migrate`.
#[derive(Debug, Clone, Args)]
pub struct MigrateArgs {
    /// Database settings.
    #[command(flatten)]
    pub database: DatabaseArgs,

    /// Logs.
    #[command(flatten)]
    pub logging: LoggingArgs,
}

impl ServeArgs {
    /// Checks what no single value can tell.
    ///
    /// # Errors
    /// When leases would end between heartbeats, or settings of retention contradict each other.
    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.heartbeat_interval * 3 <= self.lease_duration,
            "--heartbeat-interval {:?}: expected at most a third of --lease-duration {:?}, so that a lease survives two lost \
             heartbeats. Shorten --heartbeat-interval, or lengthen --lease-duration.",
            self.heartbeat_interval,
            self.lease_duration,
        );
        self.retention.schedule().map(drop)
    }
}

/// A URL with a scheme and no anchor, at most 200 characters: it travels in headers.
fn absolute_url(text: &str) -> Result<String, String> {
    let (scheme, rest) = text.split_once("://").unwrap_or_default();
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    let is_plain = rest.bytes().all(|byte| byte.is_ascii_graphic()) && !rest.contains('#');
    if is_scheme && is_plain && !rest.is_empty() && text.len() <= 200 {
        Ok(text.to_owned())
    } else {
        Err("expected an absolute URL of at most 200 characters and without #, for example \
             https://docs.example.com/errors"
            .to_owned())
    }
}

/// Longest duration of a setting.
const MAX_DURATION: Duration = Duration::from_secs(86_400);

/// A duration with its unit, above 0 and at most a day.
fn duration(text: &str) -> Result<Duration, String> {
    match loadmaster_cli::duration(text)? {
        duration if duration <= MAX_DURATION => Ok(duration),
        _ => Err("expected a duration of at most 24h, for example 30s or 5m".to_owned()),
    }
}

/// Log settings.
#[derive(Debug, Clone, Args)]
pub struct LoggingArgs {
    /// Format of log lines. `RUST_LOG` sets the level (default `info`).
    #[arg(long, env = "LOADMASTER_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Human-readable lines.
    Text,
    /// One JSON object per line.
    Json,
}

impl LoggingArgs {
    /// Starts logging. A second call changes nothing.
    pub fn init(&self) {
        // sqlx reports each slow statement of a busy test machine; its own level stays quieter.
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,sqlx=error"));
        let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        let started = match self.log_format {
            LogFormat::Json => builder.json().try_init(),
            LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        };
        if started.is_err() {
            tracing::debug!("logging was already initialized");
        }
    }
}

/// Settings of retention: off unless an age is given.
#[derive(Debug, Clone, Args)]
pub struct RetentionArgs {
    /// Regularly delete resources of this age that nothing references, as `history purge --force` does: 90d. At least a day.
    /// Default: nothing is deleted.
    #[arg(long, env = "LOADMASTER_PURGE_OLDER_THAN", value_name = "DURATION", value_parser = loadmaster_cli::age)]
    pub purge_older_than: Option<Duration>,

    /// Delete only resources that match this filter, in collections that have its fields: 'NOT labels:keep'.
    #[arg(
        long,
        env = "LOADMASTER_PURGE_FILTER",
        value_name = "FILTER",
        requires = "purge_older_than",
        default_value = "",
        hide_default_value = true
    )]
    pub purge_filter: String,

    /// Time between two purges.
    #[arg(long, env = "LOADMASTER_PURGE_INTERVAL", value_name = "DURATION", requires = "purge_older_than",
          default_value = "1d", value_parser = loadmaster_cli::age)]
    pub purge_interval: Duration,
}

impl RetentionArgs {
    /// The purge that is repeated, if there is one.
    ///
    /// # Errors
    /// An age below a day, or a filter that no list knows.
    pub fn schedule(&self) -> anyhow::Result<Option<Schedule>> {
        let Some(older_than) = self.purge_older_than else { return Ok(None) };
        let filter = self.purge_filter.clone();
        let settings = PurgeSettings { older_than, filter, collections: Vec::new(), force: true };
        Rule::of(&settings).context("--purge-older-than and --purge-filter are not valid together")?;
        Ok(Some(Schedule { settings, period: self.purge_interval }))
    }
}
