//! Logs: `tracing` to standard error, as text or JSON, filtered by `RUST_LOG`.

use std::io::IsTerminal;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

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
