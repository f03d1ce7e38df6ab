//! A profile that a request references: the name of one that is stored, or a document.

use std::path::{Path, PathBuf};

use loadmaster_proto::profile::document::MAX_DOCUMENT_BYTES;
use loadmaster_proto::wire::v1;

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
        Err(why) => Err(format!(
            "{why}. For a profile document, write a path that ends with .json or contains a slash"
        )),
    }
}

impl ProfileRef {
    /// Makes this the profile of a problem.
    ///
    /// # Errors
    /// The document cannot be read.
    pub(crate) fn name_in(self, problem: &mut v1::Problem) -> Result<(), Failure> {
        (problem.profile, problem.profile_document) = match self {
            Self::Named(name) => (name, String::new()),
            Self::File(path) => (String::new(), read(&path)?),
        };
        Ok(())
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
        for name in ["vgg-1", "profiles/vgg-1"] {
            assert_eq!(profile_or_file(name), Ok(ProfileRef::Named("profiles/vgg-1".to_owned())));
        }
        for path in ["p.json", "./p", "/tmp/profile", "profiles/p.json"] {
            assert_eq!(profile_or_file(path), Ok(ProfileRef::File(path.into())), "{path}");
        }
        assert!(profile_or_file("No Name").unwrap_err().contains(".json"));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let missing = ProfileRef::File("/does/not/exist.json".into());
        let refused = missing.name_in(&mut v1::Problem::default());
        assert!(matches!(refused, Err(Failure::Usage(why)) if why.contains("/does/not/exist.json")));
    }
}
