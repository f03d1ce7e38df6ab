//! The planner's own settings.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{DatabaseArgs, LoggingArgs, RetentionArgs};

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
