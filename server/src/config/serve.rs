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

    /// File to write the real address to (`http://HOST:PORT`) once the planner serves.
    #[arg(long, env = "LOADMASTER_ADDRESS_FILE", value_name = "FILE")]
    pub address_file: Option<PathBuf>,

    /// Address of the pages for browsers; port 0 takes a free one. Default: 127.0.0.1:7434, and none where somebody else has it.
    #[arg(long, env = "LOADMASTER_WEB", value_name = "HOST:PORT")]
    pub web: Option<SocketAddr>,

    /// No pages for browsers, unless --web names an address.
    #[arg(long, env = "LOADMASTER_NO_WEB")]
    pub no_web: bool,

    /// Where durable state lives.
    #[command(flatten)]
    pub database: DatabaseArgs,

    /// Duration of a worker's lease on a run without a heartbeat; the same for all planners of a database.
    #[arg(long, env = "LOADMASTER_LEASE", value_name = "DURATION", default_value = "30s",
          value_parser = duration)]
    pub lease: Duration,

    /// Time between a worker's heartbeats; at most a third of the lease.
    #[arg(long, env = "LOADMASTER_HEARTBEAT", value_name = "DURATION", default_value = "3s",
          value_parser = duration)]
    pub heartbeat: Duration,

    /// Time that a stopping planner waits for open calls before it cancels them.
    #[arg(long, env = "LOADMASTER_DRAIN", value_name = "DURATION", default_value = "10s",
          value_parser = duration)]
    pub drain: Duration,

    /// Most calls answered at once: three quarters of them for one address at most, half of them for searches,
    /// documents and campaigns. More wait for a second, and are then refused with `RESOURCE_EXHAUSTED`. Health and
    /// reflection are always answered.
    #[arg(long, env = "LOADMASTER_MAX_CALLS", value_name = "N", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub max_calls: u32,

    /// Most connections. Where there are more, the one that is idle for longest is closed. Lowered to what the limit
    /// on open files allows.
    #[arg(long, env = "LOADMASTER_MAX_CONNECTIONS", value_name = "N", default_value_t = 4_096,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_connections: u32,

    /// Most connections from one address (for IPv6 from one /64 network). Workers behind one address need one each.
    #[arg(long, env = "LOADMASTER_MAX_CONNECTIONS_PER_PEER", value_name = "N", default_value_t = 1_024,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_connections_per_peer: u32,

    /// Time after which a connection without an open call is closed; clients open another when they need it.
    #[arg(long, env = "LOADMASTER_IDLE", value_name = "DURATION", default_value = "5m",
          value_parser = duration)]
    pub idle: Duration,

    /// Address of the documentation of errors, for the links in errors: an absolute URL of a page with an anchor for each reason.
    #[arg(long, env = "LOADMASTER_ERRORS_URL", value_name = "URL", default_value = DOCUMENTATION, value_parser = absolute_url)]
    pub errors_url: String,

    /// Do not serve gRPC reflection.
    #[arg(long, env = "LOADMASTER_NO_REFLECTION")]
    pub no_reflection: bool,

    /// What is deleted when it is old.
    #[command(flatten)]
    pub retention: RetentionArgs,

    /// Logs.
    #[command(flatten)]
    pub logging: LoggingArgs,
}

/// Settings of `loadmaster migrate`.
#[derive(Debug, Clone, Args)]
pub struct MigrateArgs {
    /// Where durable state lives.
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
    /// When leases would run out between heartbeats, or nobody knows what may be deleted.
    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.heartbeat * 3 <= self.lease,
            "--heartbeat ({} s) must be at most a third of --lease ({} s): a lease has to survive two lost heartbeats",
            self.heartbeat.as_secs_f64(),
            self.lease.as_secs_f64(),
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
        Err(format!(
            "{text:?} must be an absolute URL of at most 200 characters without #, for example https://docs.example.com/errors"
        ))
    }
}

/// Longest duration of a setting.
const MAX_DURATION: Duration = Duration::from_secs(86_400);

/// A duration with its unit, above 0 and at most a day.
fn duration(text: &str) -> Result<Duration, String> {
    if text.parse::<f64>().is_ok() {
        return Err(format!(
            "{text:?} has no unit: write {text}s for seconds, or another unit such as ms, m or h"
        ));
    }
    let span = text.parse::<jiff::SignedDuration>().ok().and_then(|span| Duration::try_from(span).ok());
    span.filter(|span| !span.is_zero() && *span <= MAX_DURATION)
        .ok_or_else(|| format!("{text:?} must be a duration above 0 and at most 24h, for example 30s or 5m"))
}

/// Log settings.
#[derive(Debug, Clone, Args)]
pub struct LoggingArgs {
    /// How log lines look. `RUST_LOG` chooses which are written (default `info`).
    #[arg(long, env = "LOADMASTER_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
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
            tracing::debug!("logging had been started before");
        }
    }
}

/// Settings of retention: off unless an age is given.
#[derive(Debug, Clone, Args)]
pub struct RetentionArgs {
    /// Delete resources that are older and that nothing references, as `loadmaster history purge --force` does, at least a day: 90d.
    /// Planners that share a database take turns. Default: nothing is deleted.
    #[arg(long, env = "LOADMASTER_PURGE_OLDER_THAN", value_name = "DURATION", value_parser = loadmaster_cli::age)]
    pub purge_older_than: Option<Duration>,

    /// Only resources that match this filter, of the lists that have its fields: 'NOT labels:keep'.
    #[arg(
        long,
        env = "LOADMASTER_PURGE_FILTER",
        value_name = "FILTER",
        requires = "purge_older_than",
        default_value = "",
        hide_default_value = true
    )]
    pub purge_filter: String,

    /// Time from one purge to the next.
    #[arg(long, env = "LOADMASTER_PURGE_EVERY", value_name = "DURATION", requires = "purge_older_than",
          default_value = "1d", value_parser = loadmaster_cli::age)]
    pub purge_every: Duration,
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
        Ok(Some(Schedule { settings, period: self.purge_every }))
    }
}
