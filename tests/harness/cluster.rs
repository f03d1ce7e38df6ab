//! A database cluster that is made once for all tests of a run.
//!
//! `initdb` and the migrations take a core for a second, and nextest runs some hundred tests that need a database, each in a
//! process of its own: each gets a copy. Tests of how a cluster is made start on empty folders.

use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, anyhow, ensure};
use loadmaster::embedded::{EmbeddedOptions, EmbeddedPostgres};
use loadmaster::store::{ConnectOptions, Store};

/// What nextest calls one run of all tests.
const RUN: &str = "NEXTEST_RUN_ID";

/// Makes a data directory whose cluster has the planner's tables. Does nothing where tests are run by something else than nextest:
/// then most of them are in one process, and its server makes its own.
///
/// # Errors
/// What failed.
pub fn prepare_cluster(data_dir: &Path) -> anyhow::Result<()> {
    let Some(run) = std::env::var_os(RUN) else { return Ok(()) };
    let program = std::env::current_exe()?;
    // `target/PROFILE/deps/TEST`.
    let profile = program.ancestors().nth(2).context("a test is in a folder")?;
    let clusters = profile.join("clusters");
    fs::create_dir_all(&clusters)?;
    // Also while it is copied: another run removes those that are not its own.
    let lock = File::create(clusters.join("lock"))?;
    lock.lock()?;
    let made = clusters.join(run);
    if !made.exists() {
        for entry in fs::read_dir(&clusters)? {
            let entry = entry?.path();
            if entry.is_dir() {
                fs::remove_dir_all(entry)?;
            }
        }
        let unfinished = clusters.join("unfinished");
        make(&unfinished)?;
        fs::rename(&unfinished, &made)?;
    }
    // A server that was started by root runs as another user, who may pass through.
    fs::DirBuilder::new().recursive(true).mode(0o711).create(data_dir)?;
    copy(&made, &data_dir.join("postgres"))
}

/// Makes the cluster of a run.
fn make(cluster: &Path) -> anyhow::Result<()> {
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    let folder = tempfile::Builder::new().prefix("lm").permissions(permissions).tempdir()?;
    let data_dir = folder.path().join("data");
    let on_its_own = data_dir.clone();
    // Tests have runtimes of their own, on whose threads no other may wait.
    let migrated = std::thread::spawn(move || -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let options = EmbeddedOptions { durable: false, ..EmbeddedOptions::default() };
            let postgres = EmbeddedPostgres::start_with(&on_its_own, &options).await?;
            let store = Store::connect(&ConnectOptions::new(postgres.url())).await?;
            store.migrate().await?;
            store.close().await;
            postgres.stop().await;
            Ok(())
        })
    });
    migrated.join().map_err(|_| anyhow!("the cluster of all tests cannot be made"))??;
    copy(&data_dir.join("postgres"), cluster)
}

/// Copies a folder with its owners, if it is root who does.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let status = Command::new("cp").arg("-a").args([from, to]).status()?;
    ensure!(status.success(), "cp -a {} {}: {status}", from.display(), to.display());
    Ok(())
}
