//! The folder of the server's socket: who can enter it can try to connect.
//!
//! The server listens nowhere else. The folder belongs to the server's user and nothing else can
//! enter (but root), and inside, `pg_hba.conf` asks the kernel who is calling and lets in only the
//! user that the planner runs as.

use std::fs::DirBuilder;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;

use super::account::Account;
use super::error::{EmbeddedError, io_error};
use crate::safe_files::Folder;

/// The kernel's limit for the path of a socket, without the final NUL.
const MAX_SOCKET_PATH: usize = 107;
/// Names that Postgres gives in the folder.
const SOCKET_NAME: &str = ".s.PGSQL.5432";
const SOCKET_LOCK: &str = ".s.PGSQL.5432.lock";

/// The socket folder of a data directory: in it, or under the temporary folder when its path is too long.
///
/// Only called when no server works on the data directory. What a killed one left in the folder is
/// removed: Postgres would not, as long as any process has its process id, even a zombie.
pub(super) fn prepare(data_dir: &Path, account: &Account) -> Result<PathBuf, EmbeddedError> {
    let folder = choose(data_dir, account)?;
    for name in [SOCKET_NAME, SOCKET_LOCK] {
        folder.remove(name).map_err(io_error("remove", &folder.path().join(name)))?;
    }
    Ok(folder.path().to_owned())
}

fn choose(data_dir: &Path, account: &Account) -> Result<Folder, EmbeddedError> {
    let inside = data_dir.join("run");
    if fits(&inside) {
        return private(inside, account);
    }
    // The same name each time, so that what a killed planner leaves behind is reused.
    let mut hasher = DefaultHasher::new();
    data_dir.hash(&mut hasher);
    let name = format!("loadmaster-{}-{:016x}", account.uid, hasher.finish());
    let temporary = [std::env::temp_dir(), PathBuf::from("/tmp")];
    let folder = temporary.iter().map(|parent| parent.join(&name)).find(|folder| fits(folder));
    let folder = folder.ok_or_else(|| {
        EmbeddedError::NoSocketFolder(format!(
            "the paths {} and {} are too long for a Unix socket. Use a data directory with a shorter path.",
            data_dir.display(),
            std::env::temp_dir().display()
        ))
    })?;
    private(folder, account)
}

fn fits(folder: &Path) -> bool {
    folder.join(SOCKET_LOCK).as_os_str().len() <= MAX_SOCKET_PATH
}

/// Makes the folder, or checks that the one that is there is ours alone: under a temporary folder
/// anybody may have made it.
fn private(path: PathBuf, account: &Account) -> Result<Folder, EmbeddedError> {
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(io_error("make", &path)(error));
        }
        Ok(()) | Err(_) => {}
    }
    let others = || {
        EmbeddedError::NoSocketFolder(format!(
            "{} exists and is not a folder of user {:?}. Remove it.",
            path.display(),
            account.user
        ))
    };
    let folder = Folder::open(&path).map_err(|_| others())?;
    let owner = folder.owner().map_err(io_error("look at", &path))?;
    // Root has just made it, or was stopped before it gave it away.
    if owner.is_root() {
        account.own(&folder)?;
    } else if owner != account.uid {
        return Err(others());
    }
    if folder.mode().map_err(io_error("look at", &path))?.intersects(Mode::S_IRWXG | Mode::S_IRWXO) {
        folder.set_mode(Mode::S_IRWXU).map_err(io_error("change the mode of", &path))?;
    }
    account.check_path(path.parent().unwrap_or(&path))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    #[test]
    fn the_socket_of_a_deep_data_directory_is_under_the_temporary_folder() {
        let account = Account::choose().unwrap();
        let deep = PathBuf::from(format!("/{}", "deep/".repeat(30)));
        let folder = prepare(&deep, &account).unwrap();
        assert!(fits(&folder) && folder.parent() == Some(&std::env::temp_dir()), "{}", folder.display());
        let about = folder.symlink_metadata().unwrap();
        assert_eq!((about.uid(), about.permissions().mode() & 0o777), (account.uid.as_raw(), 0o700));
        assert_eq!(prepare(&deep, &account).unwrap(), folder, "it is found again");
        std::fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn a_link_in_place_of_the_folder_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let link = parent.path().join("link");
        std::os::unix::fs::symlink("/tmp", &link).unwrap();
        assert!(matches!(private(link, &Account::choose().unwrap()), Err(EmbeddedError::NoSocketFolder(_))));
    }
}
