//! The files of the database cluster.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;

use super::account::Account;
use super::binaries::Binaries;
use super::error::{EmbeddedError, io_error};
use super::process::{end_with_parent, forget_settings};
use crate::safe_files::Folder;

/// The one role of the server; it owns everything.
pub(super) const ROLE: &str = "loadmaster";

/// Makes the cluster unless it is there, and writes who may connect.
pub(super) fn prepare(
    data_dir: &Path,
    binaries: &Binaries,
    account: &Account,
    durable: bool,
) -> Result<PathBuf, EmbeddedError> {
    let cluster = data_dir.join("postgres");
    if !cluster.join("PG_VERSION").exists() {
        initialise(data_dir, &cluster, binaries, account, durable)?;
    }
    let folder = Folder::open(&cluster).map_err(io_error("open", &cluster))?;
    account.check_owner(&folder)?;
    // At every start: the planner's user may be another than last time.
    let hba = format!(
        "# Written by Loadmaster at every start.\n# Only the planner's own user, checked by the kernel. No other user, no \
         network.\nlocal all {ROLE} peer map=planner\n"
    );
    write(&folder, "pg_hba.conf", &hba, account)?;
    let ident = format!("# Written by Loadmaster at every start.\nplanner \"{}\" {ROLE}\n", account.client);
    write(&folder, "pg_ident.conf", &ident, account)?;
    Ok(cluster)
}

/// Under another name first, so that a half-made cluster is never taken for a whole one.
fn initialise(
    data_dir: &Path,
    cluster: &Path,
    binaries: &Binaries,
    account: &Account,
    durable: bool,
) -> Result<(), EmbeddedError> {
    let unfinished = data_dir.join("postgres.unfinished");
    match fs::remove_dir_all(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(io_error("remove", &unfinished)(error));
        }
        _ => {}
    }
    fs::DirBuilder::new().mode(0o700).create(&unfinished).map_err(io_error("make", &unfinished))?;
    account.own(&Folder::open(&unfinished).map_err(io_error("open", &unfinished))?)?;

    let mut initdb = Command::new(binaries.initdb());
    initdb
        .arg("-D")
        .arg(&unfinished)
        .args(["-U", ROLE, "--encoding=UTF8", "--locale=C.UTF-8", "--data-checksums"])
        .args(["--auth-local=peer", "--auth-host=reject"])
        .current_dir(&unfinished)
        .stdin(Stdio::null());
    if !durable {
        initdb.arg("--no-sync");
    }
    forget_settings(&mut initdb);
    account.apply(&mut initdb);
    end_with_parent(&mut initdb, Signal::SIGTERM);
    let output = initdb.output().map_err(io_error("start", &binaries.initdb()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(EmbeddedError::Initdb(format!("{}: {}", output.status, said.trim())));
    }
    fs::rename(&unfinished, cluster).map_err(io_error("rename", &unfinished))?;
    fs::File::open(data_dir).and_then(|folder| folder.sync_all()).map_err(io_error("sync", data_dir))
}

/// Replaces a file of the cluster at once. The folder is its account's, who may have put anything there.
fn write(folder: &Folder, name: &str, text: &str, account: &Account) -> Result<(), EmbeddedError> {
    let new = format!("{name}.new");
    let write = || {
        let mut file = folder.create(&new)?;
        account.own_file(&file)?;
        file.write_all(text.as_bytes())?;
        folder.rename(&new, name)
    };
    write().map_err(io_error("write", &folder.path().join(name)))
}
