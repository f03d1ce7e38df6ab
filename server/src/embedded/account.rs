//! Whom Postgres runs as: ourselves, or an unprivileged user when we are root, as whom it refuses to.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::unistd::{Gid, Uid, User, fchown};

use super::error::{EmbeddedError, io_error};
use crate::safe_files::Folder;

/// Accounts to use in place of root, best first.
const UNPRIVILEGED: [&str; 2] = ["postgres", "nobody"];

/// The account of the server and the one that may connect to it.
#[derive(Debug, Clone)]
pub(super) struct Account {
    /// Name of the server's user.
    pub(super) user: String,
    pub(super) uid: Uid,
    gid: Gid,
    /// Name of this process's user: the only one that the server lets in.
    pub(super) client: String,
    /// We are root and must hand over.
    switch: bool,
}

impl Account {
    pub(super) fn choose() -> Result<Self, EmbeddedError> {
        let own_uid = Uid::effective();
        let lookup = |error: nix::Error| EmbeddedError::Internal(format!("cannot look up users: {error}"));
        let own = User::from_uid(own_uid)
            .map_err(lookup)?
            .ok_or(EmbeddedError::NoUserName { uid: own_uid.as_raw() })?;
        if !own_uid.is_root() {
            return Ok(Self {
                user: own.name.clone(),
                uid: own.uid,
                gid: own.gid,
                client: own.name,
                switch: false,
            });
        }
        for name in UNPRIVILEGED {
            if let Some(user) = User::from_name(name).map_err(lookup)? {
                return Ok(Self {
                    user: user.name,
                    uid: user.uid,
                    gid: user.gid,
                    client: own.name,
                    switch: true,
                });
            }
        }
        Err(EmbeddedError::NoAccount)
    }

    /// Makes a program run as this account.
    pub(super) fn apply(&self, command: &mut Command) {
        if self.switch {
            // The standard library also drops the supplementary groups.
            command.uid(self.uid.as_raw()).gid(self.gid.as_raw());
        }
    }

    /// Gives a folder to this account.
    pub(super) fn own(&self, folder: &Folder) -> Result<(), EmbeddedError> {
        if self.switch {
            folder.give_to(self.uid, self.gid).map_err(io_error("change the owner of", folder.path()))?;
        }
        Ok(())
    }

    /// Gives a file to this account.
    pub(super) fn own_file(&self, file: &File) -> std::io::Result<()> {
        if self.switch {
            fchown(file, Some(self.uid), Some(self.gid))?;
        }
        Ok(())
    }

    /// Mode of the data directory: root's must let the server's user pass.
    pub(super) fn data_dir_mode(&self) -> u32 {
        if self.switch { 0o711 } else { 0o700 }
    }

    /// Whether the account may pass through a folder and all above it.
    pub(super) fn check_path(&self, folder: &Path) -> Result<(), EmbeddedError> {
        if !self.switch {
            return Ok(());
        }
        for folder in folder.ancestors() {
            let about = folder.metadata().map_err(io_error("look at", folder))?;
            let mode = about.permissions().mode();
            let pass = if about.uid() == self.uid.as_raw() {
                mode & 0o100
            } else if about.gid() == self.gid.as_raw() {
                mode & 0o010
            } else {
                mode & 0o001
            };
            if pass == 0 {
                return Err(EmbeddedError::NotTraversable {
                    user: self.user.clone(),
                    folder: folder.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Whether a folder that is there already belongs to the account.
    pub(super) fn check_owner(&self, folder: &Folder) -> Result<(), EmbeddedError> {
        let owner = folder.owner().map_err(io_error("look at", folder.path()))?;
        if owner == self.uid {
            return Ok(());
        }
        Err(EmbeddedError::WrongOwner {
            path: folder.path().to_owned(),
            owner: owner.as_raw(),
            wanted: self.uid.as_raw(),
        })
    }
}
