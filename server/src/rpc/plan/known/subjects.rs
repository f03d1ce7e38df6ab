//! Profiles with their predictors, as they were read before.

use std::sync::Arc;

use loadmaster_proto::name::ProfileName;
use tokio::sync::OnceCell;

use crate::rpc::error::ApiError;
use crate::rpc::plan::{Plans, Subject};
use loadmaster_planning::predictors::Kind;

/// A profile's id, and the predictor that was asked for.
pub(super) type SubjectKey = (String, Option<&'static str>);

/// What a profile weighs before it is read.
const UNREAD: usize = 1 << 10;

/// A profile at a revision. Whoever comes first reads it, and the others wait.
#[derive(Clone)]
pub(super) struct KnownSubject {
    revision: String,
    subject: Arc<OnceCell<Arc<Subject>>>,
}

impl Plans {
    /// The profile of a request with its predictor: as it was read before, unless it has changed since.
    pub(in crate::rpc::plan) async fn subject(
        &self,
        name: ProfileName,
        kind: Option<Kind>,
    ) -> Result<Arc<Subject>, ApiError> {
        // Before it is read, so that what changes meanwhile has another revision.
        let mut revisions = self.store.revisions(&[name.id()], None).await?;
        let Some(revision) = revisions.remove(&name.to_string()) else {
            // Missing or unfinished: whoever reads it says which.
            return Ok(Arc::new(self.read_subject(name, kind).await?));
        };
        let subjects = &self.memory.0.subjects;
        let key = (name.id().to_owned(), kind.map(Kind::as_str));
        let known = subjects.get_or(
            &key,
            |known| known.revision == revision,
            UNREAD,
            || KnownSubject { revision: revision.clone(), subject: Arc::default() },
        );
        let read = || async { Ok::<_, ApiError>(Arc::new(self.read_subject(name, kind).await?)) };
        let subject = Arc::clone(known.subject.get_or_try_init(read).await?);
        // The first question adds nothing to what it remembers; each later one is weighed with those before it.
        subjects.weigh(&key, UNREAD + subject.bytes + subject.predictor.remembered_bytes());
        Ok(subject)
    }
}
