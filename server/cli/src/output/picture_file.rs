//! Pictures as files: the form by the suffix, written as a whole or not at all.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use loadmaster_show::picture::sheet::Sheet;
use loadmaster_show::picture::{html, svg};

use crate::failure::Failure;

/// A file that a picture is written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PictureFile {
    path: PathBuf,
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Svg,
    Html,
}

impl PictureFile {
    /// The file of a path that ends with `.svg`, `.html` or `.htm`; nothing for others.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let suffix = path.extension()?.to_str()?.to_ascii_lowercase();
        let form = match suffix.as_str() {
            "svg" => Form::Svg,
            "html" | "htm" => Form::Html,
            _ => return None,
        };
        Some(Self { path: path.to_owned(), form })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses a file that is there, before anything is asked for it.
    pub(crate) fn check(&self, overwrite: bool) -> Result<(), Failure> {
        if !overwrite && self.path.exists() {
            return Err(self.is_there());
        }
        Ok(())
    }

    /// Draws and writes it: into a temporary file first, so that no reader sees half of it. A file that is there
    /// is replaced only by `overwrite`.
    pub(crate) fn write(&self, sheet: &Sheet, overwrite: bool) -> Result<(), Failure> {
        let text = match self.form {
            Form::Svg => svg::render(sheet),
            Form::Html => html::render(sheet),
        };
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let cannot = || format!("cannot write {}", self.path.display());
        let mut file = temporary(folder).with_context(cannot)?;
        file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all()).with_context(cannot)?;
        if overwrite {
            file.persist(&self.path).map_err(|error| error.error).with_context(cannot)?;
            return Ok(());
        }
        match file.persist_noclobber(&self.path) {
            Ok(_) => Ok(()),
            Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => Err(self.is_there()),
            Err(error) => Err(anyhow::Error::new(error.error).context(cannot()).into()),
        }
    }

    fn is_there(&self) -> Failure {
        Failure::Usage(format!(
            "--output {}: the file exists. Add --overwrite to replace it.",
            self.path.display()
        ))
    }
}

/// A file in `folder` that goes away unless it is given a name, with the rights that a new file has.
fn temporary(folder: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".loadmaster-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // The user's umask is applied to it.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suffix_decides() {
        let form = |path: &str| PictureFile::of(Path::new(path)).map(|file| file.form);
        assert_eq!(
            (form("a.svg"), form("/x/y.HTML"), form("b.htm")),
            (Some(Form::Svg), Some(Form::Html), Some(Form::Html))
        );
        assert_eq!((form("a.png"), form("svg"), form(""), form(".svg")), (None, None, None, None));
    }

    /// What is there stays as it was unless the user says otherwise, and nothing else is left behind.
    #[test]
    fn nothing_is_overwritten_unasked() {
        let folder = tempfile::tempdir().unwrap();
        let file = PictureFile::of(&folder.path().join("plan.svg")).unwrap();
        file.write(&Sheet::default(), false).unwrap();
        let first = std::fs::read_to_string(file.path()).unwrap();
        assert!(first.contains("<svg"), "{first}");

        std::fs::write(file.path(), "mine").unwrap();
        for refused in [file.check(false), file.write(&Sheet::default(), false)] {
            assert!(matches!(refused, Err(Failure::Usage(why)) if why.contains("--overwrite")));
        }
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "mine");
        file.check(true).unwrap();
        file.write(&Sheet::default(), true).unwrap();
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), first);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let file = PictureFile::of(Path::new("/does/not/exist/plan.svg")).unwrap();
        let Err(Failure::Local(why)) = file.write(&Sheet::default(), false) else { panic!() };
        assert!(format!("{why:#}").contains("/does/not/exist/plan.svg"), "{why:#}");
    }
}
