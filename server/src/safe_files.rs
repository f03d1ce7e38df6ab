//! Files in a folder that another user can write to: made new, never followed.
//!
//! A program that runs as root and opens `folder/name` for writing overwrites whatever the folder's owner
//! has made `name` a link to. So the folder is opened once, without following a link to it, and every name
//! in it is used relative to what was opened: nothing can be put in its place in between.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, renameat};
use nix::sys::stat::{Mode, SFlag, fchmod, fstat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, unlinkat};

/// An opened folder.
#[derive(Debug)]
pub(crate) struct Folder {
    opened: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Opens a folder; a link in its place is refused.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        Ok(Self { opened: open(path, flags, Mode::empty())?, path: path.to_owned() })
    }

    /// What it was opened as.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whose it is.
    pub(crate) fn owner(&self) -> io::Result<Uid> {
        Ok(Uid::from_raw(fstat(&self.opened)?.st_uid))
    }

    /// Who may use it.
    pub(crate) fn mode(&self) -> io::Result<Mode> {
        Ok(Mode::from_bits_truncate(fstat(&self.opened)?.st_mode))
    }

    /// Sets its owner and group.
    pub(crate) fn give_to(&self, owner: Uid, group: Gid) -> io::Result<()> {
        Ok(fchown(&self.opened, Some(owner), Some(group))?)
    }

    /// Says who may use it.
    pub(crate) fn set_mode(&self, mode: Mode) -> io::Result<()> {
        Ok(fchmod(&self.opened, mode)?)
    }

    /// A new file that only its owner can use, in place of whatever has the name.
    pub(crate) fn create(&self, name: &str) -> io::Result<File> {
        self.remove(name)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(File::from(openat(&self.opened, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?))
    }

    /// The file of this name, made if it is not there. Neither a link nor a second name of some other file:
    /// either may lead to a file that whoever put it there could not write.
    pub(crate) fn open_or_create(&self, name: &str, how: OFlag) -> io::Result<File> {
        // Without waiting for the other end of a pipe that another process left there.
        let flags = how | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = File::from(openat(&self.opened, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?);
        let about = file.metadata()?;
        let regular = SFlag::from_bits_truncate(about.mode() & SFlag::S_IFMT.bits()) == SFlag::S_IFREG;
        if regular && about.nlink() == 1 {
            return Ok(file);
        }
        Err(io::Error::other("expected a regular file without hard links. Remove the file."))
    }

    /// Gives a file of the folder another name of the folder, in place of whatever has that.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.opened, from, &self.opened, to)?)
    }

    /// Removes a file, if it is there; of a link, the link.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.opened, name, UnlinkatFlags::NoRemoveDir) {
            Err(Errno::ENOENT) => Ok(()),
            done => Ok(done?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

    fn scene() -> (tempfile::TempDir, PathBuf, Folder) {
        let scene = tempfile::tempdir().unwrap();
        let precious = scene.path().join("precious");
        std::fs::write(&precious, "precious").unwrap();
        let inside = scene.path().join("inside");
        std::fs::create_dir(&inside).unwrap();
        let folder = Folder::open(&inside).unwrap();
        (scene, precious, folder)
    }

    #[test]
    fn a_link_is_replaced_and_what_it_leads_to_stays() {
        let (_scene, precious, folder) = scene();
        symlink(&precious, folder.path().join("new")).unwrap();
        folder.create("new").unwrap().write_all(b"text").unwrap();
        folder.rename("new", "name").unwrap();
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
        assert_eq!(std::fs::read_to_string(folder.path().join("name")).unwrap(), "text");
    }

    #[test]
    fn links_and_second_names_are_not_opened() {
        let (_scene, precious, folder) = scene();
        symlink(&precious, folder.path().join("soft")).unwrap();
        std::fs::hard_link(&precious, folder.path().join("hard")).unwrap();
        nix::unistd::mkfifo(&folder.path().join("pipe"), Mode::S_IRWXU).unwrap();
        for name in ["soft", "hard", "pipe"] {
            assert!(folder.open_or_create(name, OFlag::O_WRONLY | OFlag::O_APPEND).is_err(), "{name}");
        }
        let mut log = folder.open_or_create("log", OFlag::O_WRONLY | OFlag::O_APPEND).unwrap();
        log.write_all(b"line").unwrap();
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
    }

    #[test]
    fn a_folder_is_not_looked_for_behind_a_link() {
        let (scene, _, folder) = scene();
        let link = scene.path().join("link");
        symlink(folder.path(), &link).unwrap();
        assert!(Folder::open(&link).is_err());
    }
}
