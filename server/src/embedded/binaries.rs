//! The installed server programs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::EmbeddedError;

/// Names the folder of the server programs.
const VARIABLE: &str = "LOADMASTER_POSTGRES_BIN";
/// Where distributions put one folder per major version.
const VERSIONED: [&str; 2] = ["/usr/lib/postgresql", "/usr/local/lib/postgresql"];

/// The programs of one installed version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Binaries {
    folder: PathBuf,
    /// `15`, or `9.6` for the old ones.
    pub(super) major: String,
}

impl Binaries {
    pub(super) fn postgres(&self) -> PathBuf {
        self.folder.join("postgres")
    }

    pub(super) fn initdb(&self) -> PathBuf {
        self.folder.join("initdb")
    }

    /// The version that made the cluster, or the newest for a new one.
    pub(super) fn find(cluster: &Path) -> Result<Self, EmbeddedError> {
        let variable = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty());
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = candidates(variable.as_deref(), &path);
        let made_by = match std::fs::read_to_string(cluster.join("PG_VERSION")) {
            Ok(version) => Some(version.trim().to_owned()),
            Err(_) => None,
        };
        choose(&folders, cluster, made_by)
    }
}

fn choose(folders: &[PathBuf], cluster: &Path, made_by: Option<String>) -> Result<Binaries, EmbeddedError> {
    let mut newest: Option<Binaries> = None;
    for folder in folders {
        if !folder.join("postgres").is_file() || !folder.join("initdb").is_file() {
            continue;
        }
        let found = Binaries { major: major_version(&folder.join("postgres"))?, folder: folder.clone() };
        if made_by.as_ref().is_none_or(|made_by| *made_by == found.major) {
            return Ok(found);
        }
        newest.get_or_insert(found);
    }
    match (newest, made_by) {
        (Some(Binaries { major: installed, .. }), Some(data)) => {
            Err(EmbeddedError::WrongVersion { cluster: cluster.to_owned(), data, installed })
        }
        _ => {
            let looked: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
            Err(EmbeddedError::NoBinaries { looked: looked.join(", ") })
        }
    }
}

/// Folders to look in, best first. The variable excludes all others: who sets it means it.
fn candidates(variable: Option<&OsStr>, path: &OsStr) -> Vec<PathBuf> {
    if let Some(folder) = variable {
        return vec![PathBuf::from(folder)];
    }
    let mut versions: Vec<(u32, PathBuf)> = VERSIONED
        .iter()
        .filter_map(|parent| std::fs::read_dir(parent).ok())
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let version = entry.file_name().to_str()?.split('.').next()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    versions.sort_by(|a, b| b.cmp(a));
    let on_path = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    versions.into_iter().map(|(_, folder)| folder).chain(on_path).collect()
}

fn major_version(postgres: &Path) -> Result<String, EmbeddedError> {
    let bad = |why: String| EmbeddedError::BadBinary { program: postgres.to_owned(), why };
    let output = Command::new(postgres).arg("--version").output().map_err(|error| bad(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    major_of(&text).ok_or_else(|| bad(format!("its version {:?} cannot be read", text.trim())))
}

/// `postgres (PostgreSQL) 15.18 (Debian …)` is `15`; before 10 the major version had two numbers.
fn major_of(text: &str) -> Option<String> {
    let version = text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    let mut numbers = version.split(|c: char| !c.is_ascii_digit());
    let first: u32 = numbers.next()?.parse().ok()?;
    if first >= 10 { Some(first.to_string()) } else { Some(format!("{first}.{}", numbers.next()?)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_postgres_prints_them() {
        let major = |text| major_of(text);
        assert_eq!(major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n").as_deref(), Some("15"));
        assert_eq!(major("postgres (PostgreSQL) 18beta1").as_deref(), Some("18"));
        assert_eq!(major("postgres (PostgreSQL) 9.6.24").as_deref(), Some("9.6"));
        assert_eq!(major("bash: no such file"), None);
    }

    #[test]
    fn nothing_installed_names_the_package() {
        let error = choose(&[PathBuf::from("/nowhere/bin")], Path::new("/data/postgres"), None).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("apt install postgresql") && message.contains("/nowhere/bin"), "{message}");
    }

    #[test]
    fn the_variable_excludes_all_other_folders() {
        assert_eq!(
            candidates(Some(OsStr::new("/opt/pg")), OsStr::new("/usr/bin")),
            [PathBuf::from("/opt/pg")]
        );
        assert!(candidates(None, OsStr::new("/usr/bin:bin")).contains(&PathBuf::from("/usr/bin")));
        assert!(!candidates(None, OsStr::new("/usr/bin:bin")).contains(&PathBuf::from("bin")));
    }
}
