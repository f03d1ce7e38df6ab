//! The identity of a lease: which run, and which claim of it.

use std::fmt;

use loadmaster_proto::name::RunName;

/// A run and the fence of one claim of it. Every message about a run names both.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Claim {
    /// The run.
    pub(crate) run: RunName,
    /// The fence.
    pub(crate) token: i64,
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (lease {})", self.run, self.token)
    }
}
