//! The planner's own settings, with those of its logs and of retention.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

use super::DatabaseArgs;
use crate::retention::{Rule, Schedule};

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

    /// Seconds that a worker's lease on a run lasts without a heartbeat; the same for all planners of a database.
    #[arg(long, env = "LOADMASTER_LEASE_SECONDS", value_name = "SECONDS", default_value = "30",
          value_parser = seconds)]
    pub lease: Duration,

    /// Seconds between a worker's heartbeats; at most a third of the lease.
    #[arg(long, env = "LOADMASTER_HEARTBEAT_SECONDS", value_name = "SECONDS", default_value = "3",
          value_parser = seconds)]
    pub heartbeat: Duration,

    /// Seconds that a stopping planner waits for open calls before it stops hard.
    #[arg(long, env = "LOADMASTER_DRAIN_SECONDS", value_name = "SECONDS", default_value = "10",
          value_parser = seconds)]
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

    /// Seconds after which a connection without an open call is closed; clients open another when they need it.
    #[arg(long, env = "LOADMASTER_IDLE_SECONDS", value_name = "SECONDS", default_value = "300",
          value_parser = seconds)]
    pub idle: Duration,

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

/// Seconds above 0 and up to a day, fractions allowed.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    if seconds > 0.0 && seconds <= 86_400.0 {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("is {seconds}, must be above 0 and at most 86400 seconds"))
    }
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
    /// Delete what is older and what nothing that stays refers to, as `loadmaster history prune` does, at least a day: 90d.
    /// Planners that share a database take turns. Default: nothing is deleted.
    #[arg(long, env = "LOADMASTER_PRUNE_OLDER_THAN", value_name = "DURATION", value_parser = loadmaster_cli::age)]
    pub prune_older_than: Option<Duration>,

    /// Only what fits this filter, of the lists that know its fields: 'NOT labels:keep'.
    #[arg(
        long,
        env = "LOADMASTER_PRUNE_FILTER",
        value_name = "FILTER",
        requires = "prune_older_than",
        default_value = "",
        hide_default_value = true
    )]
    pub prune_filter: String,

    /// Time from one pruning to the next.
    #[arg(long, env = "LOADMASTER_PRUNE_EVERY", value_name = "DURATION", requires = "prune_older_than",
          default_value = "1d", value_parser = loadmaster_cli::age)]
    pub prune_every: Duration,
}

impl RetentionArgs {
    /// What is done from time to time, if anything.
    ///
    /// # Errors
    /// An age below a day, or a filter that no list knows.
    pub fn schedule(&self) -> anyhow::Result<Option<Schedule>> {
        let Some(age) = self.prune_older_than else { return Ok(None) };
        let rule = Rule::new(age, &self.prune_filter, &[])
            .context("--prune-older-than and --prune-filter do not say what may be deleted")?;
        Ok(Some(Schedule { rule, period: self.prune_every }))
    }
}
