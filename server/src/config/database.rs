//! Where durable state lives: `DATABASE_URL`, or an embedded Postgres in the data directory.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use nix::unistd::geteuid;

const ROOTS_DATA_DIR: &str = "/var/lib/loadmaster";

/// Database settings.
#[derive(Clone, Args)]
pub struct DatabaseArgs {
    /// URL of a Postgres, for example `postgres://loadmaster@db.example/loadmaster`. Default: an embedded Postgres in
    /// --data-dir.
    #[arg(long, env = "DATABASE_URL", value_name = "URL", hide_env_values = true)]
    pub database_url: Option<String>,

    /// File with the database URL, which keeps the password out of process lists.
    #[arg(long, env = "DATABASE_URL_FILE", value_name = "FILE", conflicts_with = "database_url")]
    pub database_url_file: Option<PathBuf>,

    /// Folder of the embedded Postgres. Default: `loadmaster` in `$XDG_DATA_HOME` or `~/.local/share`, and
    /// `/var/lib/loadmaster` for root.
    #[arg(long, env = "LOADMASTER_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// Limit of connections to Postgres.
    #[arg(long, env = "LOADMASTER_DATABASE_CONNECTIONS", value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub database_connections: u32,
}

// The URL may hold a password.
impl std::fmt::Debug for DatabaseArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatabaseArgs")
            .field("database_url", &self.database_url.as_ref().map(|_| "…"))
            .field("database_url_file", &self.database_url_file)
            .field("data_dir", &self.data_dir)
            .field("database_connections", &self.database_connections)
            .finish()
    }
}

/// Which Postgres to use.
pub enum DatabaseSource {
    /// An external server.
    Url(String),
    /// A private one in this folder.
    Embedded(PathBuf),
}

impl std::fmt::Debug for DatabaseSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url(_) => f.write_str("Url(…)"),
            Self::Embedded(folder) => f.debug_tuple("Embedded").field(folder).finish(),
        }
    }
}

impl DatabaseArgs {
    /// Which Postgres to use.
    ///
    /// # Errors
    /// When the URL's file cannot be read, or no data directory can be named.
    pub fn source(&self) -> anyhow::Result<DatabaseSource> {
        if let Some(url) = self.database_url.as_ref().filter(|url| !url.trim().is_empty()) {
            return Ok(DatabaseSource::Url(url.trim().to_owned()));
        }
        if let Some(file) = &self.database_url_file {
            let url = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read the database URL from {}", file.display()))?;
            return Ok(DatabaseSource::Url(url.trim().to_owned()));
        }
        if let Some(folder) = &self.data_dir {
            return Ok(DatabaseSource::Embedded(folder.clone()));
        }
        if geteuid().is_root() {
            return Ok(DatabaseSource::Embedded(PathBuf::from(ROOTS_DATA_DIR)));
        }
        let home = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/share")));
        home.map(|home| DatabaseSource::Embedded(home.join("loadmaster")))
            .context("neither DATABASE_URL nor HOME is set. Name a data directory with --data-dir.")
    }
}
