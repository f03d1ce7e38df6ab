//! A profile that a request rests on: the name of one that is stored, or a document.

use std::path::{Path, PathBuf};

use loadmaster_proto::profile::document::MAX_DOCUMENT_BYTES;

use super::{parse, read_file};
use crate::failure::Failure;

/// `--profile`: a stored profile, or the file of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProfileRef {
    /// `profiles/ID`.
    Named(String),
    /// A document.
    File(PathBuf),
}

/// A profile's name or id, or the path of a document: that ends with `.json` or has a slash in it.
pub(crate) fn profile_or_file(text: &str) -> Result<ProfileRef, String> {
    match parse::profile(text) {
        Ok(name) => Ok(ProfileRef::Named(name)),
        Err(_) if text.ends_with(".json") || text.contains('/') => Ok(ProfileRef::File(text.into())),
        Err(why) => Err(format!("{why}; or name a document, a path that ends with .json or has a slash")),
    }
}

impl ProfileRef {
    /// The name for a request; empty for a file.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Named(name) => name,
            Self::File(_) => String::new(),
        }
    }

    /// The document for a request; empty for a name.
    pub(crate) fn document(&self) -> Result<String, Failure> {
        match self {
            Self::Named(_) => Ok(String::new()),
            Self::File(path) => read(path),
        }
    }
}

/// A document, as long as a request can carry.
pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    read_file("profile document", path, MAX_DOCUMENT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_told_from_a_name() {
        let named = |text: &str| profile_or_file(text).map(ProfileRef::name);
        assert_eq!(named("vgg-1"), Ok("profiles/vgg-1".to_owned()));
        assert_eq!(named("profiles/vgg-1"), Ok("profiles/vgg-1".to_owned()));
        for path in ["p.json", "./p", "/tmp/profile", "profiles/p.json"] {
            assert_eq!(profile_or_file(path), Ok(ProfileRef::File(path.into())), "{path}");
        }
        assert!(profile_or_file("No Name").unwrap_err().contains(".json"));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let missing = ProfileRef::File("/does/not/exist.json".into());
        assert!(
            matches!(missing.document(), Err(Failure::Usage(why)) if why.contains("/does/not/exist.json"))
        );
    }
}
