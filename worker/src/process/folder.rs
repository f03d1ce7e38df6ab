//! Private folders: one of the daemon's own, and one per run in it.
//!
//! Several daemons may share a work folder. Each makes a folder of its own in it, and holds a lock on that for as long as it
//! lives. A folder without a lock belonged to a dead daemon and is removed.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::bail;
use nix::unistd::geteuid;
use tempfile::TempDir;
use tracing::{info, warn};

/// Longest path of a Unix socket, without its terminating zero.
const MAX_SOCKET_PATH: usize = 107;
/// Longest name of a socket in a run's folder: ranks are asked to have room for it before they know how many there are.
const LONGEST_SOCKET: &str = "rank-9999-1048576.sock";
/// Start of the name of a daemon's folder.
const DAEMON: &str = "d";
/// Start of the name of a run's folder.
const RUN: &str = "r";
/// Random characters after it.
const RANDOM: usize = 6;
/// How often to retry when a daemon that ends removes the default work folder meanwhile.
const ATTEMPTS: usize = 5;

/// The daemon's folder; dropping it removes it.
#[derive(Debug)]
pub(crate) struct WorkFolder {
    folder: TempDir,
    /// The work folder around it, where it is no one's choice and goes when it is empty.
    default_base: Option<PathBuf>,
    _lock: File,
}

impl WorkFolder {
    /// Makes the daemon's folder in `base`, or in the default place, and removes those of dead
    /// daemons, once `end` has ended what still runs there.
    pub(crate) fn create(base: Option<&Path>, end: &dyn Fn(&Path)) -> anyhow::Result<Self> {
        let path = base.map_or_else(default_base, Path::to_path_buf);
        let mut attempts = 1;
        loop {
            let result = Self::in_base(&path, end);
            let gone = |error: &anyhow::Error| {
                error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::NotFound)
            };
            match result {
                Ok(mut made) => {
                    made.default_base = base.is_none().then_some(path);
                    return Ok(made);
                }
                Err(error) if gone(&error) && attempts < ATTEMPTS => attempts += 1,
                Err(error) => {
                    return Err(error.context(format!("the work folder {} cannot be used", path.display())));
                }
            }
        }
    }

    fn in_base(base: &Path, end: &dyn Fn(&Path)) -> anyhow::Result<Self> {
        private_folder(base)?;
        let base = base.canonicalize()?;
        // Held until the daemon's own folder is locked, so that no one takes that for a dead one's.
        let guard = File::open(&base)?;
        guard.lock()?;
        remove_dead(&base, end);
        let folder = private_temp(DAEMON, &base)?;
        let lock = File::open(folder.path())?;
        lock.try_lock().map_err(io::Error::from)?;
        let longest = folder.path().join(format!("{RUN}{}", "x".repeat(RANDOM))).join(LONGEST_SOCKET);
        let length = longest.as_os_str().len();
        if length > MAX_SOCKET_PATH {
            bail!(
                "the path is {} bytes too long for Unix sockets in this folder. Use a shorter path with --work-dir.",
                length - MAX_SOCKET_PATH
            );
        }
        Ok(Self { folder, default_base: None, _lock: lock })
    }

    /// A new private folder for a run; dropping it removes it.
    pub(crate) fn run_folder(&self) -> io::Result<TempDir> {
        private_temp(RUN, self.folder.path())
    }

    /// The file that ranks on CPU slots lock while they time passes.
    pub(crate) fn turns(&self) -> PathBuf {
        self.folder.path().join("turns")
    }

    pub(crate) fn remove(self) {
        let path = self.folder.path().to_owned();
        remove(self.folder, &path);
        if let Some(base) = self.default_base
            && let Ok(guard) = File::open(&base)
            && guard.try_lock().is_ok()
        {
            // Only when it is empty: other daemons may live in it.
            let _ = fs::remove_dir(&base);
        }
    }
}

/// Removes a folder and says so where that fails.
pub(crate) fn remove(folder: TempDir, path: &Path) {
    if let Err(error) = folder.close() {
        warn!(path = %path.display(), "cannot remove a folder: {error}");
    }
}

fn default_base() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute() && dir.is_dir())
    {
        Some(runtime) => runtime.join("loadmaster-worker"),
        None => std::env::temp_dir().join(format!("loadmaster-worker-{}", geteuid())),
    }
}

fn private_temp(prefix: &str, parent: &Path) -> io::Result<TempDir> {
    tempfile::Builder::new()
        .prefix(prefix)
        .rand_bytes(RANDOM)
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(parent)
}

/// Makes a private folder, or checks that no one but this user can put anything into it.
fn private_folder(path: &Path) -> anyhow::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.into()),
        Ok(()) | Err(_) => {}
    }
    // Not through a link: in a folder that others can write to, someone may have put one there.
    let found = fs::symlink_metadata(path)?;
    if !found.is_dir() {
        bail!("it is not a folder");
    }
    if found.uid() != geteuid().as_raw() {
        bail!("it belongs to another user (uid {})", found.uid());
    }
    // That others can read it does no harm: the folders in it are closed to them.
    if found.mode() & 0o022 != 0 {
        bail!(
            "other users can write to this folder (mode {:o}). Make the folder private with chmod 700.",
            found.mode() & 0o777
        );
    }
    Ok(())
}

/// Removes the folders of daemons that hold no lock any more.
fn remove_dead(base: &Path, end: &dyn Fn(&Path)) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let ours = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.strip_prefix(DAEMON).is_some_and(|rest| rest.len() == RANDOM));
        let path = entry.path();
        if !ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) || is_alive(&path) {
            continue;
        }
        end(&path);
        match fs::remove_dir_all(&path) {
            Ok(()) => info!(path = %path.display(), "removed the folder of an earlier daemon"),
            Err(error) => warn!(path = %path.display(), "cannot remove an earlier daemon's folder: {error}"),
        }
    }
}

/// Whether a daemon has its folder locked. In doubt it has.
fn is_alive(folder: &Path) -> bool {
    File::open(folder).map_or(true, |folder| folder.try_lock().is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn private_base() -> TempDir {
        private_temp("base", &std::env::temp_dir()).unwrap()
    }

    /// Pins that a start removes what a killed daemon left and nothing of a living one.
    #[test]
    fn only_folders_of_dead_daemons_are_removed() {
        let base = private_base();
        let living = WorkFolder::in_base(base.path(), &|_| {}).unwrap();
        let run = living.run_folder().unwrap();
        let dead = WorkFolder::in_base(base.path(), &|_| {}).unwrap();
        // A killed process gives up its lock and removes nothing.
        let dead_path = dead.folder.keep();
        drop(dead._lock);
        fs::create_dir(dead_path.join("rabcdef")).unwrap();
        fs::create_dir(base.path().join("somebody-else")).unwrap();

        let ended = std::cell::RefCell::new(Vec::new());
        let end = |folder: &Path| ended.borrow_mut().push((folder.to_owned(), folder.is_dir()));
        let next = WorkFolder::in_base(base.path(), &end).unwrap();
        assert_eq!(ended.into_inner(), [(dead_path.clone(), true)]);
        assert!(!dead_path.exists());
        assert!(run.path().exists() && next.folder.path().exists());
        assert!(base.path().join("somebody-else").exists());
        drop(run);
        living.remove();
        next.remove();
    }

    #[test]
    fn folders_are_private() {
        let base = private_base();
        let work = WorkFolder::in_base(&base.path().join("a/b"), &|_| {}).unwrap();
        let run = work.run_folder().unwrap();
        for path in [&base.path().join("a/b"), work.folder.path(), run.path()] {
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o700, "{}", path.display());
        }
    }

    #[test]
    fn a_base_that_others_can_write_to_is_refused() {
        let base = private_base();
        let open = base.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o775)).unwrap();
        assert!(WorkFolder::in_base(&open, &|_| {}).unwrap_err().to_string().contains("chmod 700"));
        let link = base.path().join("link");
        std::os::unix::fs::symlink(base.path(), &link).unwrap();
        assert!(WorkFolder::in_base(&link, &|_| {}).is_err());
    }

    /// Pins that a path too long for sockets is found at start, with a remedy.
    #[test]
    fn a_path_too_long_for_sockets_is_refused() {
        let base = private_base();
        let error = WorkFolder::in_base(&base.path().join("x".repeat(90)), &|_| {}).unwrap_err().to_string();
        assert!(error.contains("--work-dir"), "{error}");
    }
}
